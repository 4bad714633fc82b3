"""Every setting of a broker that Kafka 3.9 knows, split by subject; ``BROKER_CONFIG_DEF`` holds them all."""

from __future__ import annotations

from typing import Final

from engine.kafka.config.broker_configs.cleaner import CleanerKeys
from engine.kafka.config.broker_configs.groups import GroupKeys
from engine.kafka.config.broker_configs.kraft import KRaftKeys
from engine.kafka.config.broker_configs.log import LogKeys
from engine.kafka.config.broker_configs.network import NetworkKeys
from engine.kafka.config.broker_configs.quotas import QuotaKeys
from engine.kafka.config.broker_configs.replication import ReplicationKeys
from engine.kafka.config.broker_configs.sasl import SaslKeys
from engine.kafka.config.broker_configs.security import SecurityKeys
from engine.kafka.config.broker_configs.ssl import TlsKeys
from engine.kafka.config.broker_configs.tiered_storage import TieredStorageKeys
from engine.kafka.config.broker_configs.transactions import TransactionKeys
from engine.kafka.config.broker_configs.zookeeper import ZooKeeperKeys
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
"""In the order of the documentation, which uses the first line of their docstrings as headings."""

BROKER_CONFIG_DEF: Final = ConfigDef.of(*SUBJECTS)
