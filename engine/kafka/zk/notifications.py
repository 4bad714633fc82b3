"""Notices from brokers to the controller: ISR changes and failed log dirs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from engine.common.model import TopicPartition
from engine.kafka.zk.acl_policy import AclPolicy
from engine.kafka.zk.admin_nodes import decode_partition_list, partition_list
from engine.kafka.zk.client import ZkClient
from engine.kafka.zk.controller import raise_first, write_guarded
from engine.kafka.zk.errors import NoNode, ZnodeFormatError
from engine.kafka.zk.operations import Delete
from engine.kafka.zk.partitions import Notifications
from engine.kafka.zk.reads import children_or_empty, decoded, or_raise
from engine.kafka.zk.znode_json import Fields, encode_json


class IsrChangeNotificationZNode:
    """Parent of the ISR notifications; the controller watches its children."""

    path: Final = "/isr_change_notification"


class IsrChangeNotificationSequenceZNode:
    """Partitions whose leader wrote a new ISR to the state znode (0.9 up to IBP 2.7-IV1)."""

    prefix: Final = "isr_change_"
    create_path: Final = "/isr_change_notification/isr_change_"

    @staticmethod
    def path(name: str) -> str:
        return f"{IsrChangeNotificationZNode.path}/{name}"

    @staticmethod
    def encode(partitions: Iterable[TopicPartition]) -> bytes:
        return encode_json({"version": 1, "partitions": partition_list(partitions)})

    @staticmethod
    def decode(name: str, data: bytes) -> tuple[TopicPartition, ...]:
        return decode_partition_list(Fields.parse(IsrChangeNotificationSequenceZNode.path(name), data))


class LogDirEventNotificationZNode:
    """Parent of the log-dir notifications; the controller watches its children."""

    path: Final = "/log_dir_event_notification"


class LogDirEventNotificationSequenceZNode:
    """A broker says that one of its log dirs failed (KIP-112)."""

    prefix: Final = "log_dir_event_"
    create_path: Final = "/log_dir_event_notification/log_dir_event_"

    @staticmethod
    def path(name: str) -> str:
        return f"{LogDirEventNotificationZNode.path}/{name}"

    @staticmethod
    def encode(broker_id: int) -> bytes:
        return encode_json({"version": 1, "broker": broker_id, "event": 1})

    @staticmethod
    def decode(name: str, data: bytes) -> int:
        """Return the broker's id."""
        return Fields.parse(LogDirEventNotificationSequenceZNode.path(name), data).integer("broker")


T = TypeVar("T")


class NotificationZnodes:
    """Reads and writes of ``/isr_change_notification`` and ``/log_dir_event_notification``."""

    def __init__(self, client: ZkClient, acl_policy: AclPolicy) -> None:
        self._client = client
        self._acl = acl_policy.acl

    async def get_isr_change_notifications(self) -> Notifications[TopicPartition]:
        """Return the partitions whose leaders changed the ISR; arms the folder's children callbacks."""
        return await self._read(
            IsrChangeNotificationZNode.path,
            IsrChangeNotificationSequenceZNode.prefix,
            IsrChangeNotificationSequenceZNode.decode,
        )

    async def delete_isr_change_notifications(self, names: Iterable[str] | None, epoch_zk_version: int | None) -> None:
        """Remove the named notices (all if None), guarded; missing notices are no error."""
        await self._delete(
            IsrChangeNotificationZNode.path, IsrChangeNotificationSequenceZNode.prefix, names, epoch_zk_version
        )

    async def propagate_isr_changes(self, partitions: Iterable[TopicPartition]) -> None:
        """Tell the controller about partitions whose leader wrote the ISR itself."""
        path = IsrChangeNotificationSequenceZNode.create_path
        await self._client.create(
            path, IsrChangeNotificationSequenceZNode.encode(partitions), sequential=True, acl=self._acl(path)
        )

    async def get_log_dir_events(self) -> Notifications[int]:
        """Return the ids of brokers that report a failed log dir; arms the folder's children callbacks."""
        return await self._read(
            LogDirEventNotificationZNode.path, LogDirEventNotificationSequenceZNode.prefix, _decode_log_dir_event
        )

    async def delete_log_dir_events(self, names: Iterable[str] | None, epoch_zk_version: int | None) -> None:
        """Remove the named notices (all if None), guarded; missing notices are no error."""
        await self._delete(
            LogDirEventNotificationZNode.path, LogDirEventNotificationSequenceZNode.prefix, names, epoch_zk_version
        )

    async def propagate_log_dir_event(self, broker_id: int) -> None:
        """Tell the controller that a log dir of this broker failed."""
        path = LogDirEventNotificationSequenceZNode.create_path
        await self._client.create(
            path, LogDirEventNotificationSequenceZNode.encode(broker_id), sequential=True, acl=self._acl(path)
        )

    async def _read(self, folder: str, prefix: str, decode: Callable[[str, bytes], tuple[T, ...]]) -> Notifications[T]:
        names = await self._names(folder, prefix)
        contents = await self._client.read_many(
            (f"{folder}/{name}" for name in names),
            lambda position, outcome: decoded(outcome, lambda data, _: decode(names[position], data)),
        )
        values: dict[T, None] = {}
        malformed = []
        for name, read in zip(names, contents, strict=True):
            if isinstance(read, ZnodeFormatError):
                malformed.append(name)
            elif read is not None:
                values.update(dict.fromkeys(or_raise(read)))
        return Notifications(tuple(names), tuple(values), tuple(malformed))

    async def _delete(
        self, folder: str, prefix: str, names: Iterable[str] | None, epoch_zk_version: int | None
    ) -> None:
        wanted = await self._names(folder, prefix) if names is None else names
        outcomes = await write_guarded(self._client, [Delete(f"{folder}/{name}") for name in wanted], epoch_zk_version)
        raise_first(outcomes, NoNode)

    async def _names(self, folder: str, prefix: str) -> list[str]:
        return sorted(name for name in await children_or_empty(self._client, folder) if name.startswith(prefix))


def _decode_log_dir_event(name: str, data: bytes) -> tuple[int, ...]:
    return (LogDirEventNotificationSequenceZNode.decode(name, data),)
