"""The broker's settings of groups and of the topic that keeps them."""

from __future__ import annotations

from dataclasses import dataclass

from engine.config.broker import BrokerConfig
from engine.config.metadata_version import MetadataVersion
from engine.coordinator.group.values import GroupSettings
from engine.protocol.records.attributes import Codec


@dataclass(frozen=True, slots=True)
class OffsetsTopicSettings:
    """How ``__consumer_offsets`` is written and read (made: ``controller.internal_topics``). Names follow the keys."""

    num_partitions: int
    codec: Codec
    commit_timeout_ms: int
    load_buffer_bytes: int
    retention_check_interval_ms: int
    ibp: MetadataVersion


def group_settings(config: BrokerConfig) -> GroupSettings:
    """Read what the state machine needs."""
    return GroupSettings(
        group_min_session_timeout_ms=config.get_int("group.min.session.timeout.ms"),
        group_max_session_timeout_ms=config.get_int("group.max.session.timeout.ms"),
        group_initial_rebalance_delay_ms=config.get_int("group.initial.rebalance.delay.ms"),
        group_max_size=config.get_int("group.max.size"),
        offset_metadata_max_bytes=config.get_int("offset.metadata.max.bytes"),
        offsets_retention_ms=config.get_int("offsets.retention.minutes") * 60_000,
    )


def offsets_topic_settings(config: BrokerConfig) -> OffsetsTopicSettings:
    """Read what the offsets topic needs."""
    return OffsetsTopicSettings(
        num_partitions=config.offsets_topic_num_partitions,
        codec=Codec(config.get_int("offsets.topic.compression.codec")),
        commit_timeout_ms=config.get_int("offsets.commit.timeout.ms"),
        load_buffer_bytes=config.get_int("offsets.load.buffer.size"),
        retention_check_interval_ms=config.get_int("offsets.retention.check.interval.ms"),
        ibp=config.inter_broker_protocol_version,
    )
