"""How Kafka's own topics are created on first use: ``offsets.topic.*``, ``transaction.state.log.*``. Pure.

Source: the topic settings of GroupMetadataManager and TransactionStateManager of Kafka 3.9.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from engine.common.topic_names import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from engine.kafka.config.broker import BrokerConfig


@dataclass(frozen=True, slots=True)
class InternalTopic:
    """The settings of an internal topic, whichever client asks for it first."""

    num_partitions: int
    replication_factor: int
    configs: Mapping[str, str]


def internal_topic(name: str, config: BrokerConfig) -> InternalTopic | None:
    """Return the settings to create the topic with; None if it is not internal."""
    if name == GROUP_METADATA_TOPIC:
        return InternalTopic(
            config.offsets_topic_num_partitions,
            config.offsets_topic_replication_factor,
            {
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(config.offsets_topic_segment_bytes),
            },
        )
    if name == TRANSACTION_STATE_TOPIC:
        return InternalTopic(
            config.transaction_state_log_num_partitions,
            config.transaction_state_log_replication_factor,
            {
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "min.insync.replicas": str(config.transaction_state_log_min_isr),
                "segment.bytes": str(config.transaction_state_log_segment_bytes),
                "unclean.leader.election.enable": "false",
            },
        )
    return None
