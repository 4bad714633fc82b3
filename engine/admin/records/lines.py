"""Parses lines of text or JSON into records to send: what ``klamm produce`` reads. Pure."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from engine.admin.cluster.errors import BadRequest
from engine.kafka.protocol.records.record import Header, Record


@dataclass(frozen=True, slots=True)
class LineFormat:
    """How a line becomes a record.

    ``key_separator`` stands between key and value; ``has_headers``: the line starts with ``name:value,name:value`` and
    a tab, as kafka-console-producer has it; ``null_marker`` is the text that means a null key or value.
    """

    key_separator: bytes | None = None
    has_headers: bool = False
    null_marker: bytes | None = None
    fixed_headers: tuple[Header, ...] = ()


def parse_line(line: bytes, number: int, rules: LineFormat, timestamp_ms: int) -> Record:
    """Return the record of a line without its line end.

    Raises:
        BadRequest: the separator or the headers are missing; names the line.
    """
    headers: list[Header] = list(rules.fixed_headers)
    if rules.has_headers:
        head, tab, line = line.partition(b"\t")
        if not tab:
            raise BadRequest("no tab after the headers", where=f"line {number} of stdin")
        headers += _headers(head, number)
    key: bytes | None = None
    if rules.key_separator is not None:
        head, separator, rest = line.partition(rules.key_separator)
        if not separator:
            text = rules.key_separator.decode("utf-8", "replace")
            raise BadRequest(f"no key separator {text!r}", where=f"line {number} of stdin")
        key, line = _or_null(head, rules), rest
    return Record(timestamp_ms=timestamp_ms, key=key, value=_or_null(line, rules), headers=headers)


def parse_json_line(line: bytes, number: int, timestamp_ms: int) -> tuple[Record, int | None]:
    """Return the record, and its partition if it names one, of a line that ``consume --output jsonl`` could print.

    Raises:
        BadRequest: not such an object; names the line.
    """
    where = f"line {number} of stdin"
    try:
        document = json.loads(line)
        headers = [(entry["key"], _bytes(entry, "value")) for entry in document.get("headers") or ()]
        time = document.get("timestamp")
        if isinstance(time, str):
            timestamp_ms = round(datetime.fromisoformat(time).timestamp() * 1000)
        partition = document.get("partition")
        record = Record(
            timestamp_ms=timestamp_ms, key=_bytes(document, "key"), value=_bytes(document, "value"), headers=headers
        )
    except (ValueError, KeyError, TypeError, AttributeError, binascii.Error) as error:
        hint = 'write {"key": …, "value": …, "headers": [{"key": …, "value": …}]}'
        raise BadRequest(f"not a record in JSON ({error})", where=where, hint=hint) from error
    return record, partition if isinstance(partition, int) else None


def parse_header(text: str) -> Header:
    """Return the header that ``NAME=VALUE`` means; without the sign its value is null."""
    name, equals, value = text.partition("=")
    return name, value.encode() if equals else None


def split_lines(chunk: bytes, rest: bytes) -> tuple[list[bytes], bytes]:
    """Return the whole lines of ``rest`` and ``chunk``, and what has no line end yet."""
    *lines, rest = (rest + chunk).split(b"\n")
    return [line.removesuffix(b"\r") for line in lines], rest


def _headers(text: bytes, number: int) -> Sequence[Header]:
    found: list[Header] = []
    for part in text.split(b",") if text else ():
        name, colon, value = part.partition(b":")
        if not colon:
            raise BadRequest(f"a header is not NAME:VALUE: {part!r}", where=f"line {number} of stdin")
        found.append((name.decode("utf-8", "replace"), value))
    return found


def _or_null(text: bytes, rules: LineFormat) -> bytes | None:
    return None if rules.null_marker is not None and text == rules.null_marker else text


def _bytes(document: dict[str, Any], name: str) -> bytes | None:
    value = document.get(name)
    if value is None:
        return None
    if not isinstance(value, str):
        value = json.dumps(value, ensure_ascii=False)
    if document.get(f"{name}_encoding") == "base64":
        return base64.b64decode(value, validate=True)
    return bytes(value, "utf-8")
