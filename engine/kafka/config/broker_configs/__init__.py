"""Every setting of a broker that Kafka 3.9 knows, split by subject; ``BROKER_CONFIG_DEF`` holds them all."""

from __future__ import annotations

from typing import Final

from engine.kafka.config.broker_configs.cluster import KRaftKeys, ReplicationKeys, ZooKeeperKeys
from engine.kafka.config.broker_configs.coordinators import GroupKeys, TransactionKeys
from engine.kafka.config.broker_configs.log import CleanerKeys, LogKeys, TieredStorageKeys
from engine.kafka.config.broker_configs.network import NetworkKeys, QuotaKeys, SaslKeys, SecurityKeys, TlsKeys
from engine.kafka.config.definition import ConfigDef


class BrokerKeys(
    ZooKeeperKeys,
    NetworkKeys,
    LogKeys,
    CleanerKeys,
    ReplicationKeys,
    TransactionKeys,
    GroupKeys,
    QuotaKeys,
    SecurityKeys,
    SaslKeys,
    TlsKeys,
    TieredStorageKeys,
    KRaftKeys,
):
    """The rows of all subjects, each an attribute."""


SUBJECTS: Final = BrokerKeys.__bases__
"""In the order of the documentation: the first line of a docstring is a heading there, the rest its text."""

BROKER_CONFIG_DEF: Final = ConfigDef.of(*SUBJECTS)
