"""The settings that the controller's core reads: a plain value, so that its tests need no configuration."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ControllerOptions:
    """Settings and features that follow from ``inter.broker.protocol.version`` (defaults: Kafka 3.9)."""

    controller_id: int
    delete_topic_enable: bool = True
    auto_leader_rebalance_enable: bool = True
    leader_imbalance_per_broker_percentage: int = 10
    leader_imbalance_check_interval_ms: int = 300_000
    uses_topic_ids: bool = True
    """IBP 2.8 and later: topics without an id get one at take-over."""
    is_alter_partition_enabled: bool = True
    """IBP 2.7-IV2 and later: leaders ask the controller for ISR changes instead of writing the state znode."""
    is_leader_recovery_supported: bool = True
    """IBP 3.2 and later: an unclean leader is marked RECOVERING."""
    is_feature_versioning_supported: bool = True
    """IBP 2.7 and later: ``/feature`` is enabled."""
    feature_znode_version: int = 2
    """2 from IBP 3.3 on, 1 before."""
