"""Converts groups and offsets to records of ``__consumer_offsets`` and back. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from engine.broker.coordinator.groups.commit_form import CommittedOffset
from engine.broker.coordinator.groups.group import Group, GroupState
from engine.broker.coordinator.groups.member import Member
from engine.common.model import TopicPartition
from engine.kafka.config.metadata_version import (
    MetadataVersion,
    group_metadata_value_version,
    offset_commit_value_version,
)
from engine.kafka.formats.consumer_offsets import (
    NO_TIMESTAMP,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitValue,
    encode_group_key,
    encode_group_value,
    encode_offset_key,
    encode_offset_value,
)
from engine.kafka.protocol.records.attributes import Codec
from engine.kafka.protocol.records.encode import encode_batch
from engine.kafka.protocol.records.record import Record

OFFSETS_BASE_SEQUENCE = 0
"""Kafka gives batches of offsets the sequence 0, without a producer id; other batches have none."""


def group_record(group: Group, assignments: dict[str, bytes], now_ms: int, ibp: MetadataVersion) -> Record:
    """Return the record of a group with its members' assignments."""
    name = group.protocol_name
    value = GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation_id,
        protocol=name,
        leader=group.leader_id,
        current_state_timestamp=NO_TIMESTAMP if group.state_timestamp_ms is None else group.state_timestamp_ms,
        members=[
            MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=b"" if name is None else member.metadata(name),
                assignment=assignments.get(member.member_id, b""),
            )
            for member in group.members.values()
        ],
    )
    version = group_metadata_value_version(ibp)
    return Record(timestamp_ms=now_ms, key=encode_group_key(group.group_id), value=encode_group_value(value, version))


def offset_tombstones(group_id: str, partitions: Iterable[TopicPartition], now_ms: int) -> list[Record]:
    return [Record(timestamp_ms=now_ms, key=encode_offset_key(group_id, t, p)) for t, p in partitions]


def group_tombstone(group_id: str, now_ms: int) -> Record:
    return Record(timestamp_ms=now_ms, key=encode_group_key(group_id))


def batch_of(records: Sequence[Record], codec: Codec, *, base_sequence: int = -1) -> memoryview:
    """Return one batch into which a log may stamp its offsets."""
    return memoryview(bytearray(encode_batch(records, codec=codec, base_sequence=base_sequence)))


def committed_offset(value: OffsetCommitValue) -> CommittedOffset:
    return CommittedOffset(
        value.offset,
        value.metadata,
        value.leader_epoch,
        value.commit_timestamp,
        None if value.expire_timestamp == NO_TIMESTAMP else value.expire_timestamp,
    )


def group_of(group_id: str, value: GroupMetadataValue, now_ms: int) -> Group:
    """Return the group that a record holds: stable with its members, or empty."""
    group = Group(group_id, now_ms)
    group.generation_id = value.generation
    group.protocol_type = value.protocol_type or None
    group.protocol_name = value.protocol
    group.leader_id = value.leader
    for stored in value.members:
        # Version 0 has no rebalance time-out: the session time-out is used.
        has_timeout = stored.rebalance_timeout >= 0
        member = Member(
            stored.member_id,
            group_instance_id=stored.group_instance_id,
            client_id=stored.client_id,
            client_host=stored.client_host,
            rebalance_timeout_ms=stored.rebalance_timeout if has_timeout else stored.session_timeout,
            session_timeout_ms=stored.session_timeout,
            protocols=((value.protocol or "", bytes(stored.subscription)),),
            assignment=bytes(stored.assignment),
        )
        group.add(member, value.protocol_type)
    group.state = GroupState.STABLE if value.members else GroupState.EMPTY
    timestamp_ms = value.current_state_timestamp
    group.state_timestamp_ms = None if timestamp_ms == NO_TIMESTAMP else timestamp_ms
    group.subscribed_topics = group.compute_subscribed_topics()
    return group


def offset_value(value: CommittedOffset, ibp: MetadataVersion) -> bytes:
    """Return the value of an offset's record, in the version of the inter-broker protocol."""
    has_expiry = value.expire_timestamp_ms is not None
    return encode_offset_value(
        OffsetCommitValue(
            offset=value.offset,
            leader_epoch=value.leader_epoch,
            metadata=value.metadata,
            commit_timestamp=value.commit_timestamp_ms,
            expire_timestamp=NO_TIMESTAMP if value.expire_timestamp_ms is None else value.expire_timestamp_ms,
        ),
        offset_commit_value_version(ibp, has_expire_timestamp=has_expiry),
    )
