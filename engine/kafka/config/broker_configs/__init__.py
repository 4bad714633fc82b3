"""Every setting of a broker that Kafka 3.9 knows, split by subject; ``BROKER_CONFIG_DEF`` holds them all.

``OWN_KEYS`` are the settings that klamm adds.
"""

from __future__ import annotations

from collections.abc import Mapping
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

OWN_KEYS: Final[Mapping[str, str]] = {
    "klamm.metrics.listener": "HOST:PORT where the broker serves its metrics over HTTP: to Prometheus and by Jolokia's "
    "protocol. Without it there is no such server.",
    "klamm.metrics.allow.remote": "`true` allows an address there that other machines reach. Everybody may read.",
    "klamm.metrics.reporters": "Where metrics go every `kafka.metrics.polling.interval.secs`: any of `graphite`, "
    "`console`, `log`.",
    "klamm.metrics.graphite.address": "HOST:PORT of Graphite, which takes its plain protocol there.",
    "klamm.metrics.graphite.prefix": "What Graphite's names begin with. Without it `kafka.` and the broker's id.",
}
"""Settings that Kafka does not have, and what each means. Their texts are in ``BrokerConfig.originals``."""
