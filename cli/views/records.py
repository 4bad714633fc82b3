"""Records as lines: the value alone, in a format of the user's, or with all their fields.

Formats are those of kcat: %t topic, %p partition, %o offset, %T timestamp in ms, %k key, %s value, %h headers,
%K and %S their lengths (-1 is null), %% a percent sign; \\n, \\t, \\0 and \\xHH as elsewhere.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from cli.output.format import OutputFormat
from cli.output.printer import csv_line, json_text
from cli.output.report import Kind
from cli.output.values import iso_time, machine_text
from cli.views.kafka.records import formatter, prints_values_alone
from engine.admin.records.fetching import ConsumedRecord
from engine.common.errors import ConfigError
from engine.common.moments import calendar_time
from engine.common.topic_names import GROUP_METADATA_TOPIC, INTERNAL_TOPICS
from engine.kafka.protocol.records.record import Record

RecordPrinter = Callable[[ConsumedRecord], bytes]

_NULL = b"null"
_FIELDS: dict[str, RecordPrinter] = {
    "t": lambda r: r.topic.encode(),
    "p": lambda r: b"%d" % r.partition,
    "o": lambda r: b"%d" % r.record.offset,
    "T": lambda r: b"%d" % r.record.timestamp_ms,
    "k": lambda r: b"" if r.record.key is None else r.record.key,
    "s": lambda r: b"" if r.record.value is None else r.record.value,
    "K": lambda r: b"%d" % (-1 if r.record.key is None else len(r.record.key)),
    "S": lambda r: b"%d" % (-1 if r.record.value is None else len(r.record.value)),
    "h": lambda r: b",".join(_header(key, value) for key, value in r.record.headers),
    "%": lambda r: b"%",
}
_ESCAPE = re.compile(rb"\\x([0-9a-fA-F]{2})|\\(.)")
_ESCAPES = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"0": b"\0", b"\\": b"\\"}
CSV_HEADER = csv_line(("topic", "partition", "offset", "timestamp", "key", "value", "headers"))


def prints_values(
    output: OutputFormat, pattern: str | None, properties: Mapping[str, str], class_name: str | None = None
) -> bool:
    """Whether ``record_printer`` prints values alone, and ``value_lines`` prints the same."""
    if pattern is not None or properties or not prints_values_alone(class_name):
        return False
    return output in (OutputFormat.PLAIN, OutputFormat.TABLE, OutputFormat.KAFKA)


def value_lines(values: Sequence[bytes | None]) -> bytes:
    lines = [_NULL if value is None else value for value in values]
    return b"\n".join([*lines, b""])


def record_printer(
    output: OutputFormat, pattern: str | None, properties: Mapping[str, str], class_name: str | None = None
) -> RecordPrinter:
    """Return what turns a record into bytes with a line end; ``class_name`` is the formatter of Kafka's tool.

    Raises:
        ConfigError: the pattern has a field that no record has, or Kafka's formatter has no such class or property.
    """
    if pattern is not None:
        return _by_pattern(pattern)
    if properties or class_name is not None or output is OutputFormat.KAFKA:
        return formatter(properties, class_name)
    match output:
        case OutputFormat.JSON | OutputFormat.JSONL:
            return lambda record: (json_text(record_fields(record), is_indented=False) + "\n").encode()
        case OutputFormat.YAML:
            return _yaml_item
        case OutputFormat.CSV:
            return _csv_row
        case _:
            return _value_line


def decoding(to_bytes: RecordPrinter, output: OutputFormat, pattern: str | None) -> RecordPrinter:
    """Return a printer that shows the records of Kafka's internal topics decoded, and all others as ``to_bytes`` does.

    Key and value are JSON then: objects in the JSON of a record, texts elsewhere; a plain line has both.
    """

    def print_one(consumed: ConsumedRecord) -> bytes:
        payload = decoded_payload(consumed)
        if payload is None:
            return to_bytes(consumed)
        if pattern is None and output.is_json:
            fields = record_fields(consumed) | {"key": payload[0], "value": payload[1]}
            shown = {name: value for name, value in fields.items() if not name.endswith("_encoding")}
            return (json_text(shown, is_indented=False) + "\n").encode()
        if pattern is None and output in (OutputFormat.PLAIN, OutputFormat.TABLE, OutputFormat.KAFKA):
            return (json_text({"key": payload[0], "value": payload[1]}, is_indented=False) + "\n").encode()
        return to_bytes(with_payload(consumed, payload))

    return print_one


def decoded_payload(consumed: ConsumedRecord) -> tuple[Any, Any] | None:
    """Return key and value of a record of an internal topic as values for JSON; None for any other."""
    if consumed.topic not in INTERNAL_TOPICS:
        return None
    from engine.admin.dump.payloads import PayloadDecoder, Undecodable, decode_payload

    is_of_groups = consumed.topic == GROUP_METADATA_TOPIC
    try:
        return decode_payload(PayloadDecoder.OFFSETS if is_of_groups else PayloadDecoder.TRANSACTIONS, consumed.record)
    except Undecodable:
        return None


def with_payload(consumed: ConsumedRecord, payload: tuple[Any, Any]) -> ConsumedRecord:
    """Return a record whose key and value are the JSON of ``payload``."""
    key, value = (None if part is None else json_text(part, is_indented=False).encode() for part in payload)
    record = consumed.record
    return consumed._replace(record=Record(record.offset, record.timestamp_ms, key, value, record.headers))


def record_fields(consumed: ConsumedRecord) -> dict[str, object]:
    """Return all fields of a record; bytes that are not UTF-8 come as base64, and ``…_encoding`` says so."""
    record = consumed.record
    fields: dict[str, object] = {
        "topic": consumed.topic,
        "partition": consumed.partition,
        "offset": record.offset,
        "timestamp": _time(record.timestamp_ms),
        "timestamp_type": consumed.timestamp_type.kafka_name,
    }
    fields |= _text_field("key", record.key)
    fields |= _text_field("value", record.value)
    fields["headers"] = [{"key": key, **_text_field("value", value)} for key, value in record.headers]
    return fields


def _value_line(consumed: ConsumedRecord) -> bytes:
    value = consumed.record.value
    return (_NULL if value is None else value) + b"\n"


def _csv_row(consumed: ConsumedRecord) -> bytes:
    record = consumed.record
    headers = b",".join(_header(key, value) for key, value in record.headers).decode("utf-8", "replace")
    cells = (
        consumed.topic,
        str(consumed.partition),
        str(record.offset),
        machine_text(Kind.TIME, _time(record.timestamp_ms)),
        (record.key or b"").decode("utf-8", "replace"),
        (record.value or b"").decode("utf-8", "replace"),
        headers,
    )
    return csv_line(cells).encode()


def _yaml_item(consumed: ConsumedRecord) -> bytes:
    import yaml

    text: str = yaml.safe_dump([record_fields(consumed)], sort_keys=False, allow_unicode=True, width=4096)
    return text.encode()


def _by_pattern(pattern: str) -> RecordPrinter:
    parts: list[bytes | RecordPrinter] = []
    for literal, percent, field in re.findall(r"([^%]*)(%?)(.?)", pattern, re.DOTALL):
        parts.append(_ESCAPE.sub(_unescaped, literal.encode()))
        if percent:
            if field not in _FIELDS:
                known = " ".join(f"%{name}" for name in _FIELDS)
                raise ConfigError(f"--format has no field %{field}; there are {known}")
            parts.append(_FIELDS[field])
    return lambda record: b"".join(part if isinstance(part, bytes) else part(record) for part in parts)


def _unescaped(match: re.Match[bytes]) -> bytes:
    if match[1] is not None:
        return bytes((int(match[1], 16),))
    return _ESCAPES.get(match[2], match[0])


def _text_field(name: str, value: bytes | None) -> dict[str, object]:
    if value is None:
        return {name: None}
    try:
        return {name: value.decode("utf-8")}
    except UnicodeDecodeError:
        return {name: base64.b64encode(value).decode("ascii"), f"{name}_encoding": "base64"}


def _header(key: str, value: bytes | None) -> bytes:
    return key.encode() + b"=" + (b"NULL" if value is None else value)


def _time(timestamp_ms: int) -> str | int | None:
    time = None if timestamp_ms < 0 else calendar_time(timestamp_ms)
    return iso_time(time) if isinstance(time, datetime) else time
