"""Every setting of a broker that Kafka 3.9 knows, split by subject; ``BROKER_CONFIG_DEF`` holds them all."""

from __future__ import annotations

from typing import Final

from engine.config.broker_configs import (
    cleaner,
    groups,
    kraft,
    log,
    network,
    quotas,
    replication,
    sasl,
    security,
    ssl,
    tiered_storage,
    transactions,
    zookeeper,
)
from engine.config.definition import ConfigDef

SUBJECTS: Final = (
    zookeeper,
    network,
    log,
    cleaner,
    replication,
    transactions,
    groups,
    quotas,
    security,
    sasl,
    ssl,
    tiered_storage,
    kraft,
)
"""The modules of definitions, in the order in which the documentation shows them."""

BROKER_CONFIG_DEF: Final = ConfigDef(key for subject in SUBJECTS for key in subject.KEYS)
