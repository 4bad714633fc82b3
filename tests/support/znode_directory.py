"""Which class reads which path: a recorded znode is decoded without a loss, so that it can be encoded again."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from engine.common.model import TopicPartition
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
from engine.zk.znodes.cluster_znodes import ClusterIdZNode, FeatureZNode, ProducerIdBlockZNode
from engine.zk.znodes.config_znodes import ConfigEntityChangeNotificationSequenceZNode, ConfigEntityZNode
from engine.zk.znodes.controller_znodes import ControllerEpochZNode, ControllerZNode
from engine.zk.znodes.notification_znodes import (
    IsrChangeNotificationSequenceZNode,
    LogDirEventNotificationSequenceZNode,
)
from engine.zk.znodes.token_znodes import DelegationTokenChangeZNode, DelegationTokenInfoZNode
from engine.zk.znodes.topic_znodes import TopicPartitionStateZNode, TopicZNode

_Decode = Callable[[re.Match[str], bytes], object]


@dataclass(frozen=True, slots=True)
class DecodedZnode:
    """A znode's meaning: the class that reads it, by Kafka's name, and the value."""

    znode_class: str
    value: object


def decode_znode(path: str, data: bytes) -> DecodedZnode | None:
    """Return what a znode means; None for a folder, an empty znode, or one that is not Kafka's.

    Raises:
        ZnodeFormatError: it is Kafka's and cannot be understood.
    """
    if not data:
        return None
    for pattern, znode_class, decode in _TABLE:
        match = pattern.fullmatch(path)
        if match is not None:
            return DecodedZnode(znode_class.__name__, decode(match, data))
    return None


def _acl(match: re.Match[str], data: bytes) -> object:
    pattern_type = PatternType.PREFIXED if match["prefixed"] else PatternType.LITERAL
    return ResourceZNode.decode(ResourcePattern(ResourceType(match["type"]), match["name"], pattern_type), data)


_TOPIC = r"/brokers/topics/(?P<topic>[^/]+)"
_ACL_TYPES = "|".join(resource_type.value for resource_type in ResourceType)

_ROWS: tuple[tuple[str, type, _Decode], ...] = (
    (r"/brokers/ids/(\d+)", BrokerIdZNode, lambda m, data: BrokerIdZNode.decode(int(m[1]), data)),
    (_TOPIC, TopicZNode, lambda m, data: TopicZNode.decode(m["topic"], data)),
    (
        _TOPIC + r"/partitions/(?P<partition>\d+)/state",
        TopicPartitionStateZNode,
        lambda m, data: TopicPartitionStateZNode.decode(
            TopicPartition(m["topic"], int(m["partition"])), data, zk_version=-1
        ),
    ),
    (ControllerZNode.path, ControllerZNode, lambda _, data: ControllerZNode.decode(data)),
    (ControllerEpochZNode.path, ControllerEpochZNode, lambda _, data: ControllerEpochZNode.decode(data)),
    (ClusterIdZNode.path, ClusterIdZNode, lambda _, data: ClusterIdZNode.decode(data)),
    (FeatureZNode.path, FeatureZNode, lambda _, data: FeatureZNode.decode(data)),
    (ProducerIdBlockZNode.path, ProducerIdBlockZNode, lambda _, data: ProducerIdBlockZNode.decode(data)),
    (ReassignPartitionsZNode.path, ReassignPartitionsZNode, lambda _, data: ReassignPartitionsZNode.decode(data)),
    (
        PreferredReplicaElectionZNode.path,
        PreferredReplicaElectionZNode,
        lambda _, data: PreferredReplicaElectionZNode.decode(data),
    ),
    (
        r"/isr_change_notification/(isr_change_\d+)",
        IsrChangeNotificationSequenceZNode,
        lambda m, data: IsrChangeNotificationSequenceZNode.decode(m[1], data),
    ),
    (
        r"/log_dir_event_notification/(log_dir_event_\d+)",
        LogDirEventNotificationSequenceZNode,
        lambda m, data: LogDirEventNotificationSequenceZNode.decode(m[1], data),
    ),
    (
        r"/config/changes/(config_change_\d+)",
        ConfigEntityChangeNotificationSequenceZNode,
        lambda m, data: ConfigEntityChangeNotificationSequenceZNode.decode(m[1], data),
    ),
    (
        r"/config/(topics|brokers|clients|ips|users)/[^/]+(/clients/[^/]+)?",
        ConfigEntityZNode,
        lambda m, data: ConfigEntityZNode.decode(m.string, data),
    ),
    (
        rf"/kafka-acl(?P<prefixed>-extended/prefixed)?/(?P<type>{_ACL_TYPES})/(?P<name>.+)",
        ResourceZNode,
        _acl,
    ),
    (
        r"/kafka-acl-changes/(acl_changes_\d+)",
        LiteralAclChangeZNode,
        lambda m, data: LiteralAclChangeZNode.decode(m[1], data),
    ),
    (
        r"/kafka-acl-extended-changes/(acl_changes_\d+)",
        ExtendedAclChangeZNode,
        lambda m, data: ExtendedAclChangeZNode.decode(m[1], data),
    ),
    (
        r"/delegation_token/tokens/([^/]+)",
        DelegationTokenInfoZNode,
        lambda m, data: DelegationTokenInfoZNode.decode(m[1], data),
    ),
    (
        r"/delegation_token/token_changes/(token_change_\d+)",
        DelegationTokenChangeZNode,
        lambda m, data: DelegationTokenChangeZNode.decode(m[1], data),
    ),
)

_TABLE = tuple((re.compile(pattern), znode_class, decode) for pattern, znode_class, decode in _ROWS)
