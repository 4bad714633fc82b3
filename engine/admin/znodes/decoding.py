"""What a znode contains: Kafka's znodes, decoded by their classes into plain values. Pure.

A znode with an unknown path is shown as JSON or text. One whose content its class cannot read is shown as text, with
the error. Secrets (SCRAM keys) are left out; the raw form has them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from engine.common.model import LeaderIsrAndControllerEpoch, TopicPartition
from engine.common.topic_id import topic_id_text
from engine.kafka.acls import AclEntry, ResourcePattern
from engine.kafka.zk.errors import ZnodeFormatError
from engine.kafka.zk.operations import ZnodeStat
from engine.kafka.zk.znodes.acl_znodes import ExtendedAclChangeZNode, LiteralAclChangeZNode, ResourceZNode
from engine.kafka.zk.znodes.admin_znodes import PreferredReplicaElectionZNode, ReassignPartitionsZNode
from engine.kafka.zk.znodes.broker_znodes import BrokerIdZNode, BrokerRegistration
from engine.kafka.zk.znodes.cluster_znodes import (
    FeatureZNode,
    FinalizedFeatures,
    MigrationState,
    MigrationZNode,
    ProducerIdBlock,
    ProducerIdBlockZNode,
)
from engine.kafka.zk.znodes.config_znodes import ConfigEntityChangeNotificationSequenceZNode, ConfigEntityZNode
from engine.kafka.zk.znodes.consumer_znodes import ConsumerIdZNode, ConsumerSubscription
from engine.kafka.zk.znodes.controller_znodes import ControllerRegistration, ControllerZNode
from engine.kafka.zk.znodes.directory import known_znode
from engine.kafka.zk.znodes.notification_znodes import (
    IsrChangeNotificationSequenceZNode,
    LogDirEventNotificationSequenceZNode,
)
from engine.kafka.zk.znodes.token_znodes import DelegationToken, DelegationTokenChangeZNode, DelegationTokenInfoZNode
from engine.kafka.zk.znodes.topic_znodes import TopicIdReplicaAssignment, TopicPartitionStateZNode, TopicZNode

_REDACTED = "[redacted]"


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
        return DecodedZnode(None, _json_or_text(data))
    kind = known.znode_class.__name__
    if not data:
        return DecodedZnode(kind, None)
    try:
        value = known.decode(data, stat)
    except ZnodeFormatError as error:
        return DecodedZnode(kind, raw_text(data), str(error))
    shown = _SHOWN.get(known.znode_class)
    return DecodedZnode(kind, value if shown is None else shown(value))


def raw_text(data: bytes) -> str | None:
    """Return a znode's data as text: UTF-8, or hex with a prefix; None if there is none."""
    if not data:
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return f"0x{data.hex()}"


def _json_or_text(data: bytes) -> object:
    text = raw_text(data)
    if text is None or not text.startswith(("{", "[")):
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


def _time(timestamp_ms: int) -> datetime | None:
    return None if timestamp_ms < 0 else datetime.fromtimestamp(timestamp_ms / 1000, UTC)


def _partitions(partitions: tuple[TopicPartition, ...]) -> list[dict[str, object]]:
    return [{"topic": topic, "partition": partition} for topic, partition in partitions]


def _broker(found: BrokerRegistration) -> object:
    return {
        "id": found.broker.id,
        "endpoints": [str(endpoint) for endpoint in found.broker.endpoints],
        "security_protocols": {e.listener_name: e.security_protocol.name for e in found.broker.endpoints},
        "rack": found.broker.rack,
        "broker_epoch": found.broker.broker_epoch,
        "registered": _time(found.timestamp_ms),
        "features": found.features,
        "version": found.json_version,
    }


def _topic(found: TopicIdReplicaAssignment) -> object:
    return {
        "topic": found.topic,
        "topic_id": None if found.topic_id is None else topic_id_text(found.topic_id),
        "partitions": {str(p): list(a.replicas) for p, a in found.assignment.items()},
        "adding_replicas": {str(p): list(a.adding_replicas) for p, a in found.assignment.items() if a.adding_replicas},
        "removing_replicas": {
            str(p): list(a.removing_replicas) for p, a in found.assignment.items() if a.removing_replicas
        },
    }


def _state(found: LeaderIsrAndControllerEpoch) -> object:
    leadership = found.leader_and_isr
    return {
        "leader": leadership.leader,
        "isr": list(leadership.isr),
        "leader_epoch": leadership.leader_epoch,
        "controller_epoch": found.controller_epoch,
        "leader_recovery_state": leadership.leader_recovery_state.name,
        "zk_version": leadership.partition_epoch,
    }


def _controller(found: ControllerRegistration) -> object:
    return {
        "broker": found.broker_id,
        "elected": _time(found.timestamp_ms),
        "kraft_controller_epoch": found.kraft_controller_epoch,
    }


def _config(found: Mapping[str, str]) -> object:
    return {key: _redacted(key, value) for key, value in found.items()}


def _redacted(key: str, value: str) -> str:
    if not key.startswith("SCRAM-"):
        return value
    iterations = re.search(r"iterations=\d+", value)
    return f"{iterations[0] if iterations else ''} {_REDACTED}".strip()


def _reassignments(found: Mapping[TopicPartition, tuple[int, ...]]) -> object:
    return [{"topic": tp.topic, "partition": tp.partition, "replicas": list(r)} for tp, r in found.items()]


def _features(found: FinalizedFeatures) -> object:
    return {"status": found.status.name, "features": found.features, "version": found.json_version}


def _producer_ids(found: ProducerIdBlock) -> object:
    return {
        "broker": found.broker_id,
        "first_producer_id": found.first_producer_id,
        "last_producer_id": found.last_producer_id,
    }


def _migration(found: MigrationState) -> object:
    return {name: getattr(found, name) for name in found.__slots__}


def _consumer(found: ConsumerSubscription) -> object:
    return {"subscription": found.subscription, "pattern": found.pattern, "registered": _time(found.timestamp_ms)}


def _acl(entries: tuple[AclEntry, ...]) -> object:
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


def _token(found: DelegationToken) -> object:
    return {
        "token_id": found.token_id,
        "owner": found.owner,
        "token_requester": found.token_requester,
        "renewers": list(found.renewers),
        "issued": _time(found.issue_timestamp_ms),
        "expires": _time(found.expiry_timestamp_ms),
        "ends": _time(found.max_timestamp_ms),
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
    ResourceZNode: _acl,
    LiteralAclChangeZNode: _acl_change,
    ExtendedAclChangeZNode: _acl_change,
    DelegationTokenInfoZNode: _token,
    DelegationTokenChangeZNode: lambda token_id: {"token_id": token_id},
}
"""Converters of values that are not plain yet, by the class that read them."""
