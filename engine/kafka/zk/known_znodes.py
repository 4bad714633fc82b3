"""Finds the class that reads a path, for tools that show any znode of a Kafka cluster."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from engine.common.acl import ResourceType
from engine.common.model import TopicPartition
from engine.kafka.acls import PatternType, ResourcePattern
from engine.kafka.zk.acls import ExtendedAclChangeZNode, LiteralAclChangeZNode, ResourceZNode
from engine.kafka.zk.admin_nodes import PreferredReplicaElectionZNode, ReassignPartitionsZNode
from engine.kafka.zk.brokers import BrokerIdZNode
from engine.kafka.zk.cluster import ClusterIdZNode, FeatureZNode, MigrationZNode, ProducerIdBlockZNode
from engine.kafka.zk.configs import ConfigEntityChangeNotificationSequenceZNode, ConfigEntityZNode
from engine.kafka.zk.consumers import ConsumerIdZNode, ConsumerOffsetZNode, ConsumerOwnerZNode
from engine.kafka.zk.controller import ControllerEpochZNode, ControllerZNode
from engine.kafka.zk.notifications import IsrChangeNotificationSequenceZNode, LogDirEventNotificationSequenceZNode
from engine.kafka.zk.operations import ZnodeStat
from engine.kafka.zk.tokens import DelegationTokenChangeZNode, DelegationTokenInfoZNode
from engine.kafka.zk.topics import TopicPartitionStateZNode, TopicZNode

_Decode = Callable[[re.Match[str], bytes, ZnodeStat], object]


@dataclass(frozen=True, slots=True)
class KnownZnode:
    """One of Kafka's znodes, with the class that reads it; ``decode`` raises ZnodeFormatError if it cannot."""

    znode_class: type
    decode: Callable[[bytes, ZnodeStat], object]


def known_znode(path: str) -> KnownZnode | None:
    """Return what Kafka keeps at a path; None for a folder and for paths that are not Kafka's."""
    for pattern, znode_class, decode in _TABLE:
        match = pattern.fullmatch(path)
        if match is not None:
            return KnownZnode(znode_class, partial(decode, match))
    return None


def _partition(match: re.Match[str]) -> TopicPartition:
    return TopicPartition(match["topic"], int(match["partition"]))


def _acl(match: re.Match[str], data: bytes, _: ZnodeStat) -> object:
    pattern_type = PatternType.PREFIXED if match["prefixed"] else PatternType.LITERAL
    return ResourceZNode.decode(ResourcePattern(ResourceType(match["type"]), match["name"], pattern_type), data)


_TOPIC = r"/brokers/topics/(?P<topic>[^/]+)"
_GROUP = r"/consumers/(?P<group>[^/]+)"
_PARTITION = r"(?P<topic>[^/]+)/(?P<partition>\d+)"
_ACL_TYPES = "|".join(resource_type.value for resource_type in ResourceType)

_ROWS: tuple[tuple[str, type, _Decode], ...] = (
    (r"/brokers/ids/(\d+)", BrokerIdZNode, lambda m, data, stat: BrokerIdZNode.decode(int(m[1]), data, stat.czxid)),
    (_TOPIC, TopicZNode, lambda m, data, stat: TopicZNode.decode(m["topic"], data, stat.version)),
    (
        _TOPIC + r"/partitions/(?P<partition>\d+)/state",
        TopicPartitionStateZNode,
        lambda m, data, stat: TopicPartitionStateZNode.decode(_partition(m), data, stat.version),
    ),
    (ControllerZNode.path, ControllerZNode, lambda m, data, _: ControllerZNode.decode(data)),
    (ControllerEpochZNode.path, ControllerEpochZNode, lambda m, data, _: ControllerEpochZNode.decode(data)),
    (ClusterIdZNode.path, ClusterIdZNode, lambda m, data, _: ClusterIdZNode.decode(data)),
    (FeatureZNode.path, FeatureZNode, lambda m, data, _: FeatureZNode.decode(data)),
    (MigrationZNode.path, MigrationZNode, lambda m, data, _: MigrationZNode.decode(data)),
    (ProducerIdBlockZNode.path, ProducerIdBlockZNode, lambda m, data, _: ProducerIdBlockZNode.decode(data)),
    (ReassignPartitionsZNode.path, ReassignPartitionsZNode, lambda m, data, _: ReassignPartitionsZNode.decode(data)),
    (
        PreferredReplicaElectionZNode.path,
        PreferredReplicaElectionZNode,
        lambda m, data, _: PreferredReplicaElectionZNode.decode(data),
    ),
    (
        r"/isr_change_notification/([^/]+)",
        IsrChangeNotificationSequenceZNode,
        lambda m, data, _: IsrChangeNotificationSequenceZNode.decode(m[1], data),
    ),
    (
        r"/log_dir_event_notification/([^/]+)",
        LogDirEventNotificationSequenceZNode,
        lambda m, data, _: LogDirEventNotificationSequenceZNode.decode(m[1], data),
    ),
    (
        r"/config/changes/([^/]+)",
        ConfigEntityChangeNotificationSequenceZNode,
        lambda m, data, _: ConfigEntityChangeNotificationSequenceZNode.decode(m[1], data),
    ),
    (
        r"/config/(topics|brokers|clients|ips|users)/[^/]+(/clients/[^/]+)?",
        ConfigEntityZNode,
        lambda m, data, _: ConfigEntityZNode.decode(m.string, data),
    ),
    (rf"/kafka-acl(?P<prefixed>-extended/prefixed)?/(?P<type>{_ACL_TYPES})/(?P<name>.+)", ResourceZNode, _acl),
    (r"/kafka-acl-changes/([^/]+)", LiteralAclChangeZNode, lambda m, data, _: LiteralAclChangeZNode.decode(m[1], data)),
    (
        r"/kafka-acl-extended-changes/([^/]+)",
        ExtendedAclChangeZNode,
        lambda m, data, _: ExtendedAclChangeZNode.decode(m[1], data),
    ),
    (
        r"/delegation_token/tokens/([^/]+)",
        DelegationTokenInfoZNode,
        lambda m, data, _: DelegationTokenInfoZNode.decode(m[1], data),
    ),
    (
        r"/delegation_token/token_changes/([^/]+)",
        DelegationTokenChangeZNode,
        lambda m, data, _: DelegationTokenChangeZNode.decode(m[1], data),
    ),
    (
        _GROUP + r"/ids/(?P<member>[^/]+)",
        ConsumerIdZNode,
        lambda m, data, _: ConsumerIdZNode.decode(m["group"], m["member"], data),
    ),
    (
        _GROUP + "/owners/" + _PARTITION,
        ConsumerOwnerZNode,
        lambda m, data, _: ConsumerOwnerZNode.decode(m["group"], _partition(m), data),
    ),
    (
        _GROUP + "/offsets/" + _PARTITION,
        ConsumerOffsetZNode,
        lambda m, data, _: ConsumerOffsetZNode.decode(m["group"], _partition(m), data),
    ),
)

_TABLE = tuple((re.compile(pattern), znode_class, decode) for pattern, znode_class, decode in _ROWS)
