"""What a znode says, in words: Kafka's znodes decoded by their classes into plain values. Pure.

A znode of an unknown path is shown as JSON or text. One whose content its class does not understand is shown as text,
with the complaint. Secrets (SCRAM keys) are left out; the raw form has them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from engine.common.model import TopicPartition
from engine.common.topic_id import topic_id_text
from engine.zk.errors import ZnodeFormatError
from engine.zk.operations import ZnodeStat
from engine.zk.znodes.acl_znodes import (
    ExtendedAclChangeZNode,
    LiteralAclChangeZNode,
    PatternType,
    ResourcePattern,
    ResourceType,
    ResourceZNode,
)
from engine.zk.znodes.admin_znodes import PreferredReplicaElectionZNode, ReassignPartitionsZNode
from engine.zk.znodes.broker_znodes import BrokerIdZNode
from engine.zk.znodes.cluster_znodes import ClusterIdZNode, FeatureZNode, MigrationZNode, ProducerIdBlockZNode
from engine.zk.znodes.config_znodes import ConfigEntityChangeNotificationSequenceZNode, ConfigEntityZNode
from engine.zk.znodes.consumer_znodes import ConsumerIdZNode, ConsumerOffsetZNode, ConsumerOwnerZNode
from engine.zk.znodes.controller_znodes import ControllerEpochZNode, ControllerZNode
from engine.zk.znodes.notification_znodes import (
    IsrChangeNotificationSequenceZNode,
    LogDirEventNotificationSequenceZNode,
)
from engine.zk.znodes.token_znodes import DelegationTokenChangeZNode, DelegationTokenInfoZNode
from engine.zk.znodes.topic_znodes import TopicPartitionStateZNode, TopicZNode

Decoder = Callable[[re.Match[str], bytes, ZnodeStat], object]

_REDACTED = "[redacted]"


@dataclass(frozen=True, slots=True)
class DecodedZnode:
    """What a znode says. ``kind`` is the class that read it, None for one that klamm has no class for."""

    kind: str | None
    value: object
    complaint: str | None = None


def decode_znode(path: str, data: bytes, stat: ZnodeStat) -> DecodedZnode:
    """Return a znode's content as plain values: mappings, lists, texts, numbers, times."""
    for pattern, kind, decoder in _DECODERS:
        match = pattern.fullmatch(path)
        if match is None:
            continue
        try:
            return DecodedZnode(kind, decoder(match, data, stat) if data else None)
        except ZnodeFormatError as error:
            return DecodedZnode(kind, raw_text(data), str(error))
    return DecodedZnode(None, _json_or_text(data))


def raw_text(data: bytes) -> str | None:
    """Return a znode's data as text: UTF-8, or hex with a prefix; None where there is none."""
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


def _broker(match: re.Match[str], data: bytes, stat: ZnodeStat) -> object:
    found = BrokerIdZNode.decode(int(match["id"]), data, stat.czxid)
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


def _topic(match: re.Match[str], data: bytes, stat: ZnodeStat) -> object:
    found = TopicZNode.decode(match["topic"], data)
    return {
        "topic": found.topic,
        "topic_id": None if found.topic_id is None else topic_id_text(found.topic_id),
        "partitions": {str(p): list(a.replicas) for p, a in found.assignment.items()},
        "adding_replicas": {str(p): list(a.adding_replicas) for p, a in found.assignment.items() if a.adding_replicas},
        "removing_replicas": {
            str(p): list(a.removing_replicas) for p, a in found.assignment.items() if a.removing_replicas
        },
    }


def _state(match: re.Match[str], data: bytes, stat: ZnodeStat) -> object:
    found = TopicPartitionStateZNode.decode(TopicPartition(match["topic"], int(match["p"])), data, stat.version)
    leadership = found.leader_and_isr
    return {
        "leader": leadership.leader,
        "isr": list(leadership.isr),
        "leader_epoch": leadership.leader_epoch,
        "controller_epoch": found.controller_epoch,
        "leader_recovery_state": leadership.leader_recovery_state.name,
        "zk_version": stat.version,
    }


def _controller(match: re.Match[str], data: bytes, stat: ZnodeStat) -> object:
    found = ControllerZNode.decode(data)
    return {
        "broker": found.broker_id,
        "elected": _time(found.timestamp_ms),
        "kraft_controller_epoch": found.kraft_controller_epoch,
    }


def _config(match: re.Match[str], data: bytes, stat: ZnodeStat) -> object:
    return {key: _redacted(key, value) for key, value in ConfigEntityZNode.decode(match[0], data).items()}


def _redacted(key: str, value: str) -> str:
    if not key.startswith("SCRAM-"):
        return value
    iterations = re.search(r"iterations=\d+", value)
    return f"{iterations[0] if iterations else ''} {_REDACTED}".strip()


def _reassignments(match: re.Match[str], data: bytes, stat: ZnodeStat) -> object:
    found = ReassignPartitionsZNode.decode(data)
    return [{"topic": tp.topic, "partition": tp.partition, "replicas": list(r)} for tp, r in found.items()]


def _features(match: re.Match[str], data: bytes, stat: ZnodeStat) -> object:
    found = FeatureZNode.decode(data)
    return {"status": found.status.name, "features": found.features, "version": found.json_version}


def _producer_ids(match: re.Match[str], data: bytes, stat: ZnodeStat) -> object:
    found = ProducerIdBlockZNode.decode(data)
    return {
        "broker": found.broker_id,
        "first_producer_id": found.first_producer_id,
        "last_producer_id": found.last_producer_id,
    }


def _migration(match: re.Match[str], data: bytes, stat: ZnodeStat) -> object:
    found = MigrationZNode.decode(data)
    return {name: getattr(found, name) for name in found.__slots__}


def _consumer(match: re.Match[str], data: bytes, stat: ZnodeStat) -> object:
    found = ConsumerIdZNode.decode(match["group"], match["id"], data)
    return {"subscription": found.subscription, "pattern": found.pattern, "registered": _time(found.timestamp_ms)}


def _acl(match: re.Match[str], data: bytes, stat: ZnodeStat) -> object:
    kind = PatternType.LITERAL if match["root"] == "kafka-acl" else PatternType.PREFIXED
    entries = ResourceZNode.decode(ResourcePattern(ResourceType(match["type"]), match["name"], kind), data)
    return [
        {"principal": e.principal, "permission": e.permission_type, "operation": e.operation, "host": e.host}
        for e in entries
    ]


def _acl_change(pattern: ResourcePattern) -> Mapping[str, str]:
    return {
        "resource_type": pattern.resource_type.name,
        "name": pattern.name,
        "pattern_type": pattern.pattern_type.value,
    }


def _token(match: re.Match[str], data: bytes, stat: ZnodeStat) -> object:
    found = DelegationTokenInfoZNode.decode(match["id"], data)
    return {
        "token_id": found.token_id,
        "owner": found.owner,
        "token_requester": found.token_requester,
        "renewers": list(found.renewers),
        "issued": _time(found.issue_timestamp_ms),
        "expires": _time(found.expiry_timestamp_ms),
        "ends": _time(found.max_timestamp_ms),
    }


_DECODERS: tuple[tuple[re.Pattern[str], str, Decoder], ...] = tuple(
    (re.compile(pattern), kind, decoder)
    for pattern, kind, decoder in (
        (r"/brokers/ids/(?P<id>\d+)", "BrokerIdZNode", _broker),
        (r"/brokers/topics/(?P<topic>[^/]+)", "TopicZNode", _topic),
        (r"/brokers/topics/(?P<topic>[^/]+)/partitions/(?P<p>\d+)/state", "TopicPartitionStateZNode", _state),
        (r"/controller", "ControllerZNode", _controller),
        (r"/controller_epoch", "ControllerEpochZNode", lambda m, data, s: ControllerEpochZNode.decode(data)),
        (r"/cluster/id", "ClusterIdZNode", lambda m, data, s: ClusterIdZNode.decode(data)),
        (r"/config/(?:topics|brokers|clients|users|ips)/[^/]+(?:/clients/[^/]+)?", "ConfigEntityZNode", _config),
        (
            r"/config/changes/(?P<name>[^/]+)",
            "ConfigEntityChangeNotificationSequenceZNode",
            lambda m, data, s: {"entity": ConfigEntityChangeNotificationSequenceZNode.decode(m["name"], data)},
        ),
        (r"/admin/reassign_partitions", "ReassignPartitionsZNode", _reassignments),
        (
            r"/admin/preferred_replica_election",
            "PreferredReplicaElectionZNode",
            lambda m, data, s: _partitions(PreferredReplicaElectionZNode.decode(data)),
        ),
        (
            r"/isr_change_notification/(?P<name>[^/]+)",
            "IsrChangeNotificationSequenceZNode",
            lambda m, data, s: _partitions(IsrChangeNotificationSequenceZNode.decode(m["name"], data)),
        ),
        (
            r"/log_dir_event_notification/(?P<name>[^/]+)",
            "LogDirEventNotificationSequenceZNode",
            lambda m, data, s: {"broker": LogDirEventNotificationSequenceZNode.decode(m["name"], data)},
        ),
        (r"/latest_producer_id_block", "ProducerIdBlockZNode", _producer_ids),
        (r"/feature", "FeatureZNode", _features),
        (r"/migration", "MigrationZNode", _migration),
        (r"/consumers/(?P<group>[^/]+)/ids/(?P<id>[^/]+)", "ConsumerIdZNode", _consumer),
        (
            r"/consumers/(?P<group>[^/]+)/offsets/(?P<topic>[^/]+)/(?P<p>\d+)",
            "ConsumerOffsetZNode",
            lambda m, data, s: ConsumerOffsetZNode.decode(m["group"], TopicPartition(m["topic"], int(m["p"])), data),
        ),
        (
            r"/(?P<root>kafka-acl|kafka-acl-extended/prefixed)/"
            r"(?P<type>Topic|Group|Cluster|TransactionalId|DelegationToken|User)/(?P<name>.+)",
            "ResourceZNode",
            _acl,
        ),
        (
            r"/kafka-acl-changes/(?P<name>[^/]+)",
            "LiteralAclChangeZNode",
            lambda m, data, s: _acl_change(LiteralAclChangeZNode.decode(m["name"], data)),
        ),
        (
            r"/kafka-acl-extended-changes/(?P<name>[^/]+)",
            "ExtendedAclChangeZNode",
            lambda m, data, s: _acl_change(ExtendedAclChangeZNode.decode(m["name"], data)),
        ),
        (r"/delegation_token/tokens/(?P<id>[^/]+)", "DelegationTokenInfoZNode", _token),
        (
            r"/delegation_token/token_changes/(?P<name>[^/]+)",
            "DelegationTokenChangeZNode",
            lambda m, data, s: {"token_id": DelegationTokenChangeZNode.decode(m["name"], data)},
        ),
        (
            r"/consumers/(?P<group>[^/]+)/owners/(?P<topic>[^/]+)/(?P<p>\d+)",
            "ConsumerOwnerZNode",
            lambda m, data, s: ConsumerOwnerZNode.decode(m["group"], TopicPartition(m["topic"], int(m["p"])), data),
        ),
    )
)
