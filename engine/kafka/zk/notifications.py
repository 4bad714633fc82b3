"""Notices from brokers to the controller: ISR changes and failed log dirs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from engine.common.model import TopicPartition
from engine.kafka.zk.acl_policy import AclPolicy
from engine.kafka.zk.client import ZkClient
from engine.kafka.zk.errors import NoNode, ZnodeFormatError
from engine.kafka.zk.guarded import raise_first, write_guarded
from engine.kafka.zk.operations import Delete
from engine.kafka.zk.reads import children_or_empty, decoded, or_raise
from engine.kafka.zk.results import Notifications
from engine.kafka.zk.znodes.notification_znodes import IsrChangeNotificationSequenceZNode as IsrChangeZNode
from engine.kafka.zk.znodes.notification_znodes import IsrChangeNotificationZNode as IsrChangesZNode
from engine.kafka.zk.znodes.notification_znodes import LogDirEventNotificationSequenceZNode as LogDirEventZNode
from engine.kafka.zk.znodes.notification_znodes import LogDirEventNotificationZNode as LogDirEventsZNode

T = TypeVar("T")


class NotificationZnodes:
    """Reads and writes of ``/isr_change_notification`` and ``/log_dir_event_notification``."""

    def __init__(self, client: ZkClient, acl_policy: AclPolicy) -> None:
        self._client = client
        self._acl = acl_policy.acl

    async def get_isr_change_notifications(self) -> Notifications[TopicPartition]:
        """Return the partitions whose leaders changed the ISR; arms the folder's children callbacks."""
        return await self._read(IsrChangesZNode.path, IsrChangeZNode.prefix, IsrChangeZNode.decode)

    async def delete_isr_change_notifications(self, names: Iterable[str] | None, epoch_zk_version: int | None) -> None:
        """Remove the named notices (all if None), guarded; missing notices are no error."""
        await self._delete(IsrChangesZNode.path, IsrChangeZNode.prefix, names, epoch_zk_version)

    async def propagate_isr_changes(self, partitions: Iterable[TopicPartition]) -> None:
        """Tell the controller about partitions whose leader wrote the ISR itself."""
        path = IsrChangeZNode.create_path
        await self._client.create(path, IsrChangeZNode.encode(partitions), sequential=True, acl=self._acl(path))

    async def get_log_dir_events(self) -> Notifications[int]:
        """Return the ids of brokers that report a failed log dir; arms the folder's children callbacks."""
        return await self._read(LogDirEventsZNode.path, LogDirEventZNode.prefix, _decode_log_dir_event)

    async def delete_log_dir_events(self, names: Iterable[str] | None, epoch_zk_version: int | None) -> None:
        """Remove the named notices (all if None), guarded; missing notices are no error."""
        await self._delete(LogDirEventsZNode.path, LogDirEventZNode.prefix, names, epoch_zk_version)

    async def propagate_log_dir_event(self, broker_id: int) -> None:
        """Tell the controller that a log dir of this broker failed."""
        path = LogDirEventZNode.create_path
        await self._client.create(path, LogDirEventZNode.encode(broker_id), sequential=True, acl=self._acl(path))

    async def _read(self, folder: str, prefix: str, decode: Callable[[str, bytes], tuple[T, ...]]) -> Notifications[T]:
        names = await self._names(folder, prefix)
        found = await self._client.read_many(
            (f"{folder}/{name}" for name in names),
            lambda position, outcome: decoded(outcome, lambda data, _: decode(names[position], data)),
        )
        values: dict[T, None] = {}
        malformed = []
        for name, read in zip(names, found, strict=True):
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
    return (LogDirEventZNode.decode(name, data),)
