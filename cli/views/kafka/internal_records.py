"""What kafka-console-consumer prints of Kafka's internal topics, by the formatter that is named.

The formatters have two names in Kafka 3.9. By the new one they print JSON; by the one of earlier releases they print
what those printed. Where Kafka prints a set in the order of its hashes, this is the order of the record.
"""

from __future__ import annotations

import json
from typing import Any

from engine.kafka.formats import consumer_offsets, transaction_state
from engine.kafka.formats.consumer_offsets import GroupMetadataValue, MemberMetadata, OffsetCommitValue
from engine.kafka.formats.transaction_state import TransactionLogValue
from engine.kafka.formats.versioned import json_fields, read_version

_TRANSACTIONS = "TransactionLogMessageFormatter"
_KEY_VERSIONS = {"OffsetsMessageFormatter": (0, 1), "GroupMetadataMessageFormatter": (2,), _TRANSACTIONS: (0,)}


def line_of(formatter: str, key_data: bytes | None, value_data: bytes | None, *, is_old: bool) -> bytes:
    """Return the line of a record; it is empty if the formatter leaves such records out.

    Raises:
        KafkaError: the record is not what belongs in the topic.
    """
    if key_data is None or (key_version := read_version(key_data)) not in _KEY_VERSIONS[formatter]:
        return b""
    key: Any
    value: Any
    if formatter == _TRANSACTIONS:
        key, value = transaction_state.decode_key(key_data), transaction_state.decode_value(value_data)
    else:
        key = consumer_offsets.decode_key(key_data)
        value = consumer_offsets.decode_value(key, value_data)
    value_version = None if value_data is None else read_version(value_data)
    if is_old:
        return _old_line(key, value, value_version).encode()
    fields = {
        "key": {"version": key_version, "data": json_fields(key, key_version)},
        "value": None if value is None else {"version": value_version, "data": json_fields(value, value_version or 0)},
    }
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def _old_line(key: Any, value: Any, version: int | None) -> str:
    match value:
        case OffsetCommitValue():
            text = _offset(value)
        case GroupMetadataValue():
            text = _group(key.group, value, version)
        case TransactionLogValue():
            text = _transaction(key.transactional_id, value)
        case _:
            text = "NULL"
    if isinstance(key, consumer_offsets.OffsetCommitKey):
        return f"[{key.group},{key.topic},{key.partition}]::{text}\n"
    return f"{key.group if isinstance(key, consumer_offsets.GroupMetadataKey) else key.transactional_id}::{text}\n"


def _offset(value: OffsetCommitValue) -> str:
    epoch = "Optional.empty" if value.leader_epoch < 0 else f"Optional[{value.leader_epoch}]"
    expires = _option(None if value.expire_timestamp == consumer_offsets.NO_TIMESTAMP else value.expire_timestamp)
    return (
        f"OffsetAndMetadata(offset={value.offset}, leaderEpoch={epoch}, metadata={value.metadata}, "
        f"commitTimestamp={value.commit_timestamp}, expireTimestamp={expires})"
    )


def _group(group: str, value: GroupMetadataValue, version: int | None) -> str:
    members = ", ".join(f"{member.member_id} -> {_member(member, value, version)}" for member in value.members)
    return (
        f"GroupMetadata(groupId={group}, generation={value.generation}, "
        f"protocolType={_option(value.protocol_type or None)}, currentState={'Stable' if members else 'Empty'}, "
        f"members=HashMap({members}))"
    )


def _member(member: MemberMetadata, group: GroupMetadataValue, version: int | None) -> str:
    rebalance_timeout = member.session_timeout if version == 0 else member.rebalance_timeout
    return (
        f"MemberMetadata(memberId={member.member_id}, groupInstanceId={_option(member.group_instance_id)}, "
        f"clientId={member.client_id}, clientHost={member.client_host}, sessionTimeoutMs={member.session_timeout}, "
        f"rebalanceTimeoutMs={rebalance_timeout}, supportedProtocols=List({group.protocol}))"
    )


def _transaction(transactional_id: str, value: TransactionLogValue) -> str:
    partitions = ", ".join(
        f"{topic.topic}-{index}" for topic in value.transaction_partitions or () for index in topic.partition_ids
    )
    return (
        f"TransactionMetadata(transactionalId={transactional_id}, producerId={value.producer_id}, "
        f"producerEpoch={value.producer_epoch}, txnTimeoutMs={value.transaction_timeout_ms}, "
        f"state={value.state.kafka_name}, pendingState=None, topicPartitions=HashSet({partitions}), "
        f"txnStartTimestamp={value.transaction_start_timestamp_ms}, "
        f"txnLastUpdateTimestamp={value.transaction_last_update_timestamp_ms})"
    )


def _option(value: object) -> str:
    return "None" if value is None else f"Some({value})"
