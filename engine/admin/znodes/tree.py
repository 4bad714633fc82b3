"""Looks at znodes: one, or a whole tree read level by level with all reads of a level in flight at once."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from engine.admin.cluster.errors import BadRequest, NotFound
from engine.admin.cluster.remedies import Do, Operation, Phrase
from engine.common.model import LeaderIsrAndControllerEpoch, TopicPartition
from engine.common.topic_id import topic_id_text
from engine.kafka.acls import AclEntry, ResourcePattern
from engine.kafka.config.dynamic_keys import is_login, is_password
from engine.kafka.zk.acls import ExtendedAclChangeZNode, LiteralAclChangeZNode, ResourceZNode
from engine.kafka.zk.admin_nodes import PreferredReplicaElectionZNode, ReassignPartitionsZNode
from engine.kafka.zk.brokers import BrokerIdZNode, BrokerRegistration
from engine.kafka.zk.client import ZkClient
from engine.kafka.zk.cluster import (
    FeatureZNode,
    FinalizedFeatures,
    MigrationState,
    MigrationZNode,
    ProducerIdBlock,
    ProducerIdBlockZNode,
)
from engine.kafka.zk.configs import ConfigEntityChangeNotificationSequenceZNode, ConfigEntityZNode
from engine.kafka.zk.consumers import ConsumerIdZNode, ConsumerSubscription
from engine.kafka.zk.controller import ControllerRegistration, ControllerZNode
from engine.kafka.zk.errors import NoAuth, NoNode, ZnodeFormatError, ZooKeeperError
from engine.kafka.zk.known_znodes import known_znode
from engine.kafka.zk.notifications import IsrChangeNotificationSequenceZNode, LogDirEventNotificationSequenceZNode
from engine.kafka.zk.operations import Acl, ZnodeStat, acl_texts
from engine.kafka.zk.tokens import DelegationToken, DelegationTokenChangeZNode, DelegationTokenInfoZNode
from engine.kafka.zk.topics import TopicIdReplicaAssignment, TopicPartitionStateZNode, TopicZNode


@dataclass(frozen=True, slots=True)
class Znode:
    """One znode as it is shown. ``data`` is decoded, or text where the raw form was wanted.

    ``acl`` holds texts such as ``sasl:kafka:cdrwa``; None if it was not asked for, or may not be read.
    """

    path: str
    kind: str | None
    data: object
    complaint: str | None
    version: int
    children_count: int
    ephemeral_owner: str | None
    czxid: int
    mzxid: int
    created: datetime | None
    modified: datetime | None
    acl: tuple[str, ...] | None = None

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2] or "/"

    @property
    def depth(self) -> int:
        return 0 if self.path == "/" else self.path.count("/")


async def get_znode(zk: ZkClient, path: str, *, raw: bool = False) -> Znode:
    """Return one znode.

    Raises:
        BadRequest: not a path.
        NotFound: there is no such znode.
    """
    path = checked_path(path)
    try:
        data, stat = await zk.get(path)
    except NoNode as error:
        raise _missing(path) from error
    (acl,) = await zk.get_acl_many([path])
    return replace(_znode(path, data, stat, raw=raw), acl=_acl(acl, raw=raw))


async def get_tree(
    zk: ZkClient, path: str, *, depth_max: int | None = None, raw: bool = False, with_acls: bool = False
) -> list[Znode]:
    """Return a znode and everything below it, depth first by name; what disappears during the walk is left out.

    A znode that this session may not read has a complaint instead of data.

    Args:
        depth_max: how many levels below the root to show.

    Raises:
        BadRequest: not a path.
        NotFound: there is no such znode.
    """
    root = checked_path(path)
    znodes: dict[str, Znode] = {}
    await _add(zk, znodes, [root], raw=raw)
    if not znodes:
        raise _missing(root)
    level, depth = [root], 0
    while level and (depth_max is None or depth < depth_max):
        level = await _children_of(zk, [path for path in level if znodes[path].children_count])
        await _add(zk, znodes, level, raw=raw)
        level = [path for path in level if path in znodes]
        depth += 1
    if with_acls:
        paths = list(znodes)
        for path, acl in zip(paths, await zk.get_acl_many(paths), strict=True):
            znodes[path] = replace(znodes[path], acl=_acl(acl, raw=raw))
    return [znodes[path] for path in sorted(znodes, key=lambda path: path.split("/"))]


def checked_path(path: str) -> str:
    """Return a path as ZooKeeper wants it, without a slash at the end.

    Raises:
        BadRequest: it does not begin with a slash, or has an empty part.
    """
    trimmed = path.rstrip("/") or "/"
    if not trimmed.startswith("/") or "//" in trimmed:
        raise BadRequest(f"not a path: {path!r}", hint="a path begins with / and is relative to the chroot")
    return trimmed


_UNKNOWN = ZnodeStat(-1, -1, -1, -1, -1, -1, -1, 0, 0, 0, -1)
"""For a znode that may be known by name only."""


async def _add(zk: ZkClient, znodes: dict[str, Znode], paths: Sequence[str], *, raw: bool) -> None:
    """Read znodes. What a znode is can be seen without the right to read it."""
    hidden = []
    for path, answer in zip(paths, await zk.get_many(paths), strict=True):
        if isinstance(answer, NoAuth):
            hidden.append(path)
        elif isinstance(answer, ZooKeeperError):
            _only_no_node(answer)
        else:
            znodes[path] = _znode(path, *answer, raw=raw)
    for path, stat in zip(hidden, await zk.exists_many(hidden), strict=True):
        if isinstance(stat, ZooKeeperError) and not isinstance(stat, NoAuth):
            _only_no_node(stat)
        elif stat is not None:
            # Since ZooKeeper 3.8.3, seeing that a znode exists needs the right to read it.
            known = stat if isinstance(stat, ZnodeStat) else _UNKNOWN
            znodes[path] = replace(_znode(path, b"", known, raw=raw), complaint=f"its ACL hides it from you: {path}")


def _acl(read: tuple[tuple[Acl, ...], object] | ZooKeeperError, *, raw: bool) -> tuple[str, ...] | None:
    return None if isinstance(read, ZooKeeperError) else acl_texts(read[0], raw=raw)


async def _children_of(zk: ZkClient, paths: Sequence[str]) -> list[str]:
    children: list[str] = []
    for path, answer in zip(paths, await zk.children_many(paths), strict=True):
        if isinstance(answer, NoAuth):
            continue
        if isinstance(answer, ZooKeeperError):
            _only_no_node(answer)
        else:
            prefix = "" if path == "/" else path
            children += [f"{prefix}/{name}" for name in answer]
    return children


def _only_no_node(error: ZooKeeperError) -> None:
    """Ignore a znode that disappeared while the tree was read; raise anything else."""
    if not isinstance(error, NoNode):
        raise error


def _znode(path: str, data: bytes, stat: ZnodeStat, *, raw: bool) -> Znode:
    decoded = decode_znode(path, data, stat)
    return Znode(
        path=path,
        kind=decoded.kind,
        data=raw_text(path, data) if raw else decoded.value,
        complaint=None if raw else decoded.complaint,
        version=stat.version,
        children_count=stat.num_children,
        ephemeral_owner=f"0x{stat.ephemeral_owner & (1 << 64) - 1:x}" if stat.ephemeral_owner else None,
        czxid=stat.czxid,
        mzxid=stat.mzxid,
        created=_time(stat.ctime_ms),
        modified=_time(stat.mtime_ms),
    )


def _time(timestamp_ms: int) -> datetime | None:
    return None if timestamp_ms < 0 else datetime.fromtimestamp(timestamp_ms / 1000, UTC)


def _missing(path: str) -> NotFound:
    parent = path.rpartition("/")[0] or "/"
    return NotFound("no such znode", where=path, hint=Phrase("see what exists: ", Do(Operation.LIST_ZNODES, parent)))


# What a znode contains: Kafka's znodes, decoded by their classes into plain values.
#
# A znode with an unknown path is shown as JSON or text. One whose content its class cannot read is shown as text, with
# the error. Secrets (SCRAM keys, brokers' passwords) are left out, of the raw form too: it is copied into reports.

_REDACTED = "[redacted]"
_WITH_SECRETS = ("/config/users", "/config/brokers")
_SCRAM_PART = re.compile(r"(salt|stored_key|server_key)=[^,\"\\\\]*")
_SETTING = re.compile(r'"((?:[^"\\]|\\.)*)"(\s*:\s*)"(?:[^"\\]|\\.?)*("|$)')
"""A key and its value in JSON; the end of what is damaged may be missing."""


@dataclass(frozen=True, slots=True)
class DecodedZnode:
    """What a znode contains. ``kind`` is the class that read it, None if klamm has no class for it."""

    kind: str | None
    value: object
    complaint: str | None = None


def decode_znode(path: str, data: bytes, stat: ZnodeStat) -> DecodedZnode:
    """Return a znode's content as plain values: mappings, lists, texts, numbers, times."""
    known = known_znode(path)
    if known is None:
        return DecodedZnode(None, _json_or_text(path, data))
    kind = known.znode_class.__name__
    if not data:
        return DecodedZnode(kind, None)
    try:
        value = known.decode(data, stat)
    except ZnodeFormatError as error:
        return DecodedZnode(kind, raw_text(path, data), str(error))
    shown = _SHOWN.get(known.znode_class)
    return DecodedZnode(kind, value if shown is None else shown(value))


def raw_text(path: str, data: bytes) -> str | None:
    """Return a znode's data as text, without secrets: UTF-8, or hex with a prefix; None if there is none."""
    if not data:
        return None
    may_hold_secrets = path.startswith(_WITH_SECRETS)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return _REDACTED if may_hold_secrets else f"0x{data.hex()}"
    if not may_hold_secrets:
        return text
    text = _SCRAM_PART.sub(rf"\1={_REDACTED}", text)
    return _SETTING.sub(lambda m: f'"{m[1]}"{m[2]}"{_REDACTED}{m[3]}' if _is_secret(m[1]) else m[0], text)


def _is_secret(key: str) -> bool:
    return is_password(key) or is_login(key)


def _json_or_text(path: str, data: bytes) -> object:
    text = raw_text(path, data)
    if text is None or not text.startswith(("{", "[")):
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


def _partitions(partitions: tuple[TopicPartition, ...]) -> list[dict[str, object]]:
    return [{"topic": topic, "partition": partition} for topic, partition in partitions]


def _broker(registration: BrokerRegistration) -> object:
    return {
        "id": registration.broker.id,
        "endpoints": [str(endpoint) for endpoint in registration.broker.endpoints],
        "security_protocols": {e.listener_name: e.security_protocol.name for e in registration.broker.endpoints},
        "rack": registration.broker.rack,
        "broker_epoch": registration.broker.broker_epoch,
        "registered": _time(registration.timestamp_ms),
        "features": registration.features,
        "version": registration.json_version,
    }


def _topic(topic: TopicIdReplicaAssignment) -> object:
    return {
        "topic": topic.topic,
        "topic_id": None if topic.topic_id is None else topic_id_text(topic.topic_id),
        "partitions": {str(p): list(a.replicas) for p, a in topic.assignment.items()},
        "adding_replicas": {str(p): list(a.adding_replicas) for p, a in topic.assignment.items() if a.adding_replicas},
        "removing_replicas": {
            str(p): list(a.removing_replicas) for p, a in topic.assignment.items() if a.removing_replicas
        },
    }


def _state(state: LeaderIsrAndControllerEpoch) -> object:
    leadership = state.leader_and_isr
    return {
        "leader": leadership.leader,
        "isr": list(leadership.isr),
        "leader_epoch": leadership.leader_epoch,
        "controller_epoch": state.controller_epoch,
        "leader_recovery_state": leadership.leader_recovery_state.name,
        "zk_version": leadership.partition_epoch,
    }


def _controller(registration: ControllerRegistration) -> object:
    return {
        "broker": registration.broker_id,
        "elected": _time(registration.timestamp_ms),
        "kraft_controller_epoch": registration.kraft_controller_epoch,
    }


def _config(settings: Mapping[str, str]) -> object:
    return {key: _redacted(key, value) for key, value in settings.items()}


def _redacted(key: str, value: str) -> str:
    if _is_secret(key):
        return _REDACTED
    if not key.startswith("SCRAM-"):
        return value
    iterations = re.search(r"iterations=\d+", value)
    return f"{iterations[0] if iterations else ''} {_REDACTED}".strip()


def _reassignments(reassignments: Mapping[TopicPartition, tuple[int, ...]]) -> object:
    return [{"topic": tp.topic, "partition": tp.partition, "replicas": list(r)} for tp, r in reassignments.items()]


def _features(finalized: FinalizedFeatures) -> object:
    return {"status": finalized.status.name, "features": finalized.features, "version": finalized.json_version}


def _producer_ids(block: ProducerIdBlock) -> object:
    return {
        "broker": block.broker_id,
        "first_producer_id": block.first_producer_id,
        "last_producer_id": block.last_producer_id,
    }


def _migration(state: MigrationState) -> object:
    return {name: getattr(state, name) for name in state.__slots__}


def _consumer(subscription: ConsumerSubscription) -> object:
    return {
        "subscription": subscription.subscription,
        "pattern": subscription.pattern,
        "registered": _time(subscription.timestamp_ms),
    }


def _access_entries(entries: tuple[AclEntry, ...]) -> object:
    return [
        {
            "principal": entry.principal,
            "permission": entry.permission.value,
            "operation": entry.operation.spelling,
            "host": entry.host,
        }
        for entry in entries
    ]


def _acl_change(pattern: ResourcePattern) -> object:
    return {
        "resource_type": pattern.resource_type.name,
        "name": pattern.name,
        "pattern_type": pattern.pattern_type.value,
    }


def _token(token: DelegationToken) -> object:
    return {
        "token_id": token.token_id,
        "owner": token.owner,
        "token_requester": token.token_requester,
        "renewers": list(token.renewers),
        "issued": _time(token.issue_timestamp_ms),
        "expires": _time(token.expiry_timestamp_ms),
        "ends": _time(token.max_timestamp_ms),
    }


_SHOWN: Mapping[type, Callable[[Any], object]] = {
    BrokerIdZNode: _broker,
    TopicZNode: _topic,
    TopicPartitionStateZNode: _state,
    ControllerZNode: _controller,
    ConfigEntityZNode: _config,
    ConfigEntityChangeNotificationSequenceZNode: lambda entity: {"entity": entity},
    ReassignPartitionsZNode: _reassignments,
    PreferredReplicaElectionZNode: _partitions,
    IsrChangeNotificationSequenceZNode: _partitions,
    LogDirEventNotificationSequenceZNode: lambda broker_id: {"broker": broker_id},
    ProducerIdBlockZNode: _producer_ids,
    FeatureZNode: _features,
    MigrationZNode: _migration,
    ConsumerIdZNode: _consumer,
    ResourceZNode: _access_entries,
    LiteralAclChangeZNode: _acl_change,
    ExtendedAclChangeZNode: _acl_change,
    DelegationTokenInfoZNode: _token,
    DelegationTokenChangeZNode: lambda token_id: {"token_id": token_id},
}
"""Converters of values that are not plain yet, by the class that read them."""
