"""What kafka-console-consumer prints: the lines of its formatters, and the texts that Kafka's deserializers make.

Formatters of internal topics have two names in Kafka 3.9. By the new one they print JSON; by the one of earlier
releases they print what those printed. Where Kafka prints a set in the order of its hashes, this is the order of the
record.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Mapping
from typing import Any, Final

from engine.admin.records.fetching import ConsumedRecord
from engine.common.errors import ConfigError, KafkaError
from engine.common.quantities import counted
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


_PRINTED: Final = ("timestamp", "partition", "offset", "headers", "key", "value")
"""Parts of a line in the formatter's order, whatever order they are asked in."""
_DEFAULTS: Final[dict[str, str]] = {
    **{f"print.{part}": "false" for part in _PRINTED},
    "print.value": "true",
    "key.separator": "\t",
    "line.separator": "\n",
    "headers.separator": ",",
    "null.literal": "null",
}
_OF_RECORDS: Final = ("DefaultMessageFormatter", "LoggingMessageFormatter")
"""The second also logs, and the tool's log shows warnings only."""
_OF_NOTHING: Final = "NoOpMessageFormatter"


INTERNAL_FORMATTERS: Final = (
    "OffsetsMessageFormatter",
    "GroupMetadataMessageFormatter",
    "TransactionLogMessageFormatter",
)


class BadRecord(ConfigError):
    """A record is not what the deserializer or formatter expects."""

    processed = 0
    """How many records of its batch were processed, this one included, as Kafka's tool counts."""
    next_offset = 0
    """Behind the record."""


def prints_values_alone(class_name: str | None) -> bool:
    """Return whether the formatter of this class prints values as they are, unless it has properties."""
    return class_name is None or _simple(class_name) in _OF_RECORDS


def is_of_internal_topic(class_name: str | None) -> bool:
    """Return whether the formatter of this class decodes the records of an internal topic."""
    return class_name is not None and _simple(class_name) in INTERNAL_FORMATTERS


def formatter(properties: Mapping[str, str], class_name: str | None = None) -> Callable[[ConsumedRecord], bytes]:
    """Return what makes a record a line, as ``--formatter`` and the properties of ``--property`` want it.

    A class may have its name of Kafka 3.9 or an older one. Those of internal topics then print what they printed.

    Raises:
        ConfigError: a class is none of Kafka's own, or the formatter has no property of this name.
    """
    simple = _OF_RECORDS[0] if class_name is None else _simple(class_name)
    if simple == _OF_NOTHING:
        return lambda consumed: b""
    if simple in INTERNAL_FORMATTERS:
        return _internal_formatter(simple, is_old=str(class_name).startswith("kafka."))
    if simple not in _OF_RECORDS:
        known = ", ".join((*_OF_RECORDS, _OF_NOTHING, *INTERNAL_FORMATTERS))
        raise ConfigError(f"--formatter {class_name}: klamm loads no Java classes; it has {known}")
    return _default_formatter(properties)


def _internal_formatter(simple: str, *, is_old: bool) -> Callable[[ConsumedRecord], bytes]:

    def line(consumed: ConsumedRecord) -> bytes:
        record = consumed.record
        try:
            return line_of(simple, record.key, record.value, is_old=is_old)
        except KafkaError as error:
            raise _bad_record(consumed, error.message or error.code.name) from None

    return line


def _default_formatter(properties: Mapping[str, str]) -> Callable[[ConsumedRecord], bytes]:
    deserializers: dict[str, Callable[[bytes], bytes]] = {}
    for name, value in properties.items():
        if name in ("key.deserializer", "value.deserializer", "headers.deserializer"):
            deserializers[name.partition(".")[0]] = _deserializer(name, value)
        elif name not in _DEFAULTS:
            raise ConfigError(f"--property: kafka-console-consumer has no {name}; it has {', '.join(_DEFAULTS)}")
    chosen = _DEFAULTS | dict(properties)
    parts = [part for part in _PRINTED if chosen[f"print.{part}"].strip().lower() == "true"]
    between, end, comma, null = (
        chosen[name].encode() for name in ("key.separator", "line.separator", "headers.separator", "null.literal")
    )

    def text_of(part: str, data: bytes | None, consumed: ConsumedRecord) -> bytes:
        if data is None:
            return null
        to_text = deserializers.get(part)
        if to_text is None:
            return data
        try:
            return to_text(data)
        except (ValueError, struct.error):
            kind = _simple(properties[f"{part}.deserializer"]).removesuffix("Deserializer")
            raise _bad_record(consumed, f"{part} is no {kind} ({counted(len(data), 'byte')})") from None

    def part_of(part: str, consumed: ConsumedRecord) -> bytes:
        record = consumed.record
        match part:
            case "timestamp":
                kind = consumed.timestamp_type.kafka_name
                return b"NO_TIMESTAMP" if record.timestamp_ms < 0 else f"{kind}:{record.timestamp_ms}".encode()
            case "partition":
                return b"Partition:%d" % consumed.partition
            case "offset":
                return b"Offset:%d" % record.offset
            case "headers":
                headers = (key.encode() + b":" + text_of("headers", value, consumed) for key, value in record.headers)
                return comma.join(headers) or b"NO_HEADERS"
        return text_of(part, record.key if part == "key" else record.value, consumed)

    return lambda consumed: between.join(part_of(part, consumed) for part in parts) + (end if parts else b"")


def _simple(class_name: str) -> str:
    return class_name.replace("$", ".").rpartition(".")[2]


def _bad_record(consumed: ConsumedRecord, what: str) -> BadRecord:
    where = f"{consumed.topic}-{consumed.partition} at offset {consumed.record.offset}"
    return BadRecord(f"{what}: {where}; --skip-message-on-error leaves such records out")


# Kafka's deserializers: bytes to the text that Java's toString() makes of the value.


def _deserializer(name: str, class_name: str) -> Callable[[bytes], bytes]:
    simple = _simple(class_name)
    package = class_name.removesuffix(simple)
    to_text = _DESERIALIZERS.get(simple.removesuffix("Deserializer"))
    if to_text is None or package not in ("", "org.apache.kafka.common.serialization."):
        known = ", ".join(f"{kind}Deserializer" for kind in _DESERIALIZERS)
        raise ConfigError(f"--property {name}={class_name}: klamm loads no Java classes; it has {known}")
    return to_text


def _number(form: str) -> Callable[[bytes], bytes]:
    return lambda data: str(struct.unpack(form, data)[0]).encode()


def _double(data: bytes) -> bytes:
    (value,) = struct.unpack(">d", data)
    return _java_text(value, repr(value))


def _float(data: bytes) -> bytes:
    """Return the shortest text that means this float, and no neighbour."""
    (value,) = struct.unpack(">f", data)
    for digits in range(1, 9):
        text = f"{value:.{digits}g}"
        try:
            if struct.pack(">f", float(text)) == data:
                return _java_text(value, text)
        except OverflowError:
            # Rounded up from nearly the largest float.
            continue
    return _java_text(value, f"{value:.9g}")


def _java_text(value: float, shortest: str) -> bytes:
    """Return a number as Java writes it: with a fraction, and from 10^7 on or below 10^-3 with an exponent."""
    if math.isnan(value) or math.isinf(value):
        return b"NaN" if math.isnan(value) else b"Infinity" if value > 0 else b"-Infinity"
    from decimal import Decimal

    sign, digits, exponent = Decimal(shortest).as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits))
    point = len(text) + exponent
    stripped = text.rstrip("0") or "0"
    minus = "-" if sign else ""
    if value == 0:
        return f"{minus}0.0".encode()
    if -3 < point <= 7:
        whole = stripped[:point].ljust(point, "0") if point > 0 else "0"
        fraction = stripped[point:] if point > 0 else "0" * -point + stripped
        return f"{minus}{whole}.{fraction or '0'}".encode()
    return f"{minus}{stripped[0]}.{stripped[1:] or '0'}E{point - 1}".encode()


def _boolean(data: bytes) -> bytes:
    (value,) = struct.unpack(">B", data)
    if value > 1:
        raise ValueError(value)
    return b"true" if value else b"false"


def _uuid(data: bytes) -> bytes:
    import uuid

    return str(uuid.UUID(data.decode("ascii"))).encode()


def _escaped(data: bytes) -> bytes:
    """Return bytes as Kafka's class Bytes shows them."""
    return b"".join(b"%c" % byte if 32 <= byte < 127 and byte != 92 else b"\\x%02X" % byte for byte in data)


_DESERIALIZERS: Final[dict[str, Callable[[bytes], bytes]]] = {
    "String": lambda data: data.decode("utf-8", "replace").encode(),
    "ByteArray": bytes,
    "Bytes": _escaped,
    "Short": _number(">h"),
    "Integer": _number(">i"),
    "Long": _number(">q"),
    "Float": _float,
    "Double": _double,
    "Boolean": _boolean,
    "UUID": _uuid,
}
"""By the name without ``Deserializer``. For a ByteArray Java prints an address; these are the bytes."""
