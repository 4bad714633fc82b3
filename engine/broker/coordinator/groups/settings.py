"""The broker's settings of groups and of the topic that keeps them."""

from __future__ import annotations

from dataclasses import dataclass

from engine.kafka.config.broker import BrokerConfig
from engine.kafka.config.metadata_version import MetadataVersion
from engine.kafka.protocol.records.attributes import Codec


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """What the broker's configuration says about groups. Field names follow the keys."""

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 3_000
    group_max_size: int = 2**31 - 1
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_ms: int = 7 * 24 * 3_600_000


@dataclass(frozen=True, slots=True)
class OffsetsTopicSettings:
    """How to write and read ``__consumer_offsets``; ``controller.internal_topics`` creates it. Names are the keys."""

    num_partitions: int
    codec: Codec
    commit_timeout_ms: int
    load_buffer_bytes: int
    retention_check_interval_ms: int
    ibp: MetadataVersion


def group_settings(config: BrokerConfig) -> GroupSettings:
    return GroupSettings(
        group_min_session_timeout_ms=config.group_min_session_timeout_ms,
        group_max_session_timeout_ms=config.group_max_session_timeout_ms,
        group_initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
        group_max_size=config.group_max_size,
        offset_metadata_max_bytes=config.offset_metadata_max_bytes,
        offsets_retention_ms=config.offsets_retention_minutes * 60_000,
    )


def offsets_topic_settings(config: BrokerConfig) -> OffsetsTopicSettings:
    return OffsetsTopicSettings(
        num_partitions=config.offsets_topic_num_partitions,
        codec=Codec(config.offsets_topic_compression_codec),
        commit_timeout_ms=config.offsets_commit_timeout_ms,
        load_buffer_bytes=config.offsets_load_buffer_size,
        retention_check_interval_ms=config.offsets_retention_check_interval_ms,
        ibp=config.inter_broker_protocol_version,
    )
