"""Parses lines of text or JSON into records to send: what ``klamm produce`` reads. Pure."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import os
from codecs import BOM_UTF8
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from engine.admin.cluster.errors import BadRequest
from engine.kafka.protocol.records.record import Header, Record


@dataclass(frozen=True, slots=True)
class LineFormat:
    """How a line becomes a record.

    Attributes:
        key_separator: the text between key and value.
        has_headers: the line starts with ``name:value,name:value`` and a tab, as kafka-console-producer has it.
        null_marker: the text that means a null key, value or value of a header.
        headers_end, header_separator, header_name_end: what stands for the tab, the comma and the colon.
        takes_all: a line without one of the separators is a record without key, or without headers.
    """

    key_separator: bytes | None = None
    has_headers: bool = False
    null_marker: bytes | None = None
    fixed_headers: tuple[Header, ...] = ()
    headers_end: bytes = b"\t"
    header_separator: bytes = b","
    header_name_end: bytes = b":"
    takes_all: bool = False


_HEADER_FIELDS = frozenset(("key", "value", "value_encoding"))
_RECORD_FIELDS = _HEADER_FIELDS | {
    "key_encoding",
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestamp_type",
    "headers",
}
"""What ``consume --output jsonl`` prints of a record. Its topic, offset and type of time are not taken over."""


def parse_line(line: bytes, number: int, rules: LineFormat, timestamp_ms: int) -> Record:
    """Return the record of a line without its line end.

    Raises:
        BadRequest: the separator or the headers are missing; names the line.
    """
    headers: list[Header] = list(rules.fixed_headers)
    if rules.has_headers:
        head, end, rest = line.partition(rules.headers_end)
        if end:
            headers += _headers(head, number, rules)
            line = rest
        elif not rules.takes_all:
            raise BadRequest(f"no {_named(rules.headers_end)} after the headers", where=f"line {number} of stdin")
    key: bytes | None = None
    if rules.key_separator is not None:
        head, separator, rest = line.partition(rules.key_separator)
        if separator:
            key, line = _or_null(head, rules), rest
        elif not rules.takes_all:
            raise BadRequest(f"no key separator {_named(rules.key_separator)}", where=f"line {number} of stdin")
    return Record(timestamp_ms=timestamp_ms, key=key, value=_or_null(line, rules), headers=headers)


def parse_json_line(
    line: bytes, number: int, timestamp_ms: int, fixed_headers: Sequence[Header] = ()
) -> tuple[Record, int | None]:
    """Return the record, and its partition if it names one, of a line that ``consume --output jsonl`` could print.

    ``value`` has to be there, because a record without one is a tombstone: ``"value": null`` says so.

    Raises:
        BadRequest: not such an object; names the line.
    """
    try:
        document = json.loads(line.removeprefix(BOM_UTF8) if number == 1 else line)
        _check_fields(document, _RECORD_FIELDS, "a record")
        headers = [_json_header(entry) for entry in document.get("headers") or ()]
        time = document.get("timestamp")
        if time is not None:
            timestamp_ms = _timestamp_ms(time)
        partition = document.get("partition")
        if partition is not None and (type(partition) is not int or partition < 0):
            raise ValueError(f"partition is {json.dumps(partition)}, not a number from 0")
        key, value = _bytes(document, "key"), _bytes(document, "value")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, binascii.Error) as error:
        hint = 'write {"key": …, "value": …, "headers": [{"key": …, "value": …}]}; a null value is a tombstone'
        raise BadRequest(f"not a record in JSON ({error})", where=f"line {number} of stdin", hint=hint) from error
    return Record(timestamp_ms=timestamp_ms, key=key, value=value, headers=[*fixed_headers, *headers]), partition


def parse_header(text: str) -> Header:
    """Return the header that ``NAME=VALUE`` means; without the sign its value is null."""
    name, equals, value = text.partition("=")
    return name, value.encode() if equals else None


def split_lines(chunk: bytes, rest: bytes) -> tuple[list[bytes], bytes]:
    """Return the whole lines of ``rest`` and ``chunk``, and what has no line end yet."""
    *lines, rest = (rest + chunk).split(b"\n")
    return [line.removesuffix(b"\r") for line in lines], rest


def _headers(text: bytes, number: int, rules: LineFormat) -> Sequence[Header]:
    headers: list[Header] = []
    # Of an empty text, Kafka's tool makes a header without name or value, or an error.
    if text == rules.null_marker or not (text or rules.takes_all):
        return headers
    for part in text.split(rules.header_separator):
        name, end, value = part.partition(rules.header_name_end)
        where = f"line {number} of stdin"
        if not (end or rules.takes_all):
            shape = f"NAME{rules.header_name_end.decode('utf-8', 'replace')}VALUE"
            raise BadRequest(f"a header is not {shape}: {part!r}", where=where)
        if name == rules.null_marker:
            raise BadRequest(f"the name of a header is the null marker: {part!r}", where=where)
        headers.append((name.decode("utf-8", "replace"), _or_null(value, rules) if end else None))
    return headers


def _named(separator: bytes) -> str:
    return "tab" if separator == b"\t" else repr(separator.decode("utf-8", "replace"))


def _or_null(text: bytes, rules: LineFormat) -> bytes | None:
    return None if rules.null_marker is not None and text == rules.null_marker else text


def _json_header(entry: Any) -> Header:
    _check_fields(entry, _HEADER_FIELDS, "a header")
    if not isinstance(entry.get("key"), str):
        raise ValueError("a header has no name: key must be a string")
    return entry["key"], _bytes(entry, "value")


def _check_fields(document: Any, known: frozenset[str], name: str) -> None:
    """Raise ValueError unless it is an object with a value and known fields: a misspelt field would be lost."""
    if not isinstance(document, dict):
        raise ValueError(f"{name} must be an object")
    unknown = sorted(set(document) - known)
    if unknown:
        raise ValueError(f"{name} has no field {', '.join(map(repr, unknown))}")
    if "value" not in document:
        raise ValueError(f"{name} must have a value")


def _timestamp_ms(time: object) -> int:
    if isinstance(time, str):
        return round(datetime.fromisoformat(time).timestamp() * 1000)
    if type(time) is int:
        return time
    raise ValueError(f"timestamp is {json.dumps(time)}, neither a time nor milliseconds")


def _bytes(document: dict[str, Any], name: str) -> bytes | None:
    value, encoding = document.get(name), document.get(f"{name}_encoding")
    if encoding not in (None, "base64"):
        raise ValueError(f"{name}_encoding is {json.dumps(encoding)}, not base64")
    if value is None:
        return None
    if encoding is not None:
        if not isinstance(value, str):
            raise ValueError(f"{name} is not a string, so it is not base64")
        return base64.b64decode(value, validate=True)
    if not isinstance(value, str):
        value = json.dumps(value, ensure_ascii=False)
    return bytes(value, "utf-8")


CHUNK_BYTES = 1024 * 1024


async def read_chunks(descriptor: int) -> AsyncIterator[bytes]:
    """Yield what can be read, at most ``CHUNK_BYTES`` at a time, until the end.

    This waits for a pipe or terminal; a regular file is always ready, and is read at once.
    """
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    try:
        loop.add_reader(descriptor, ready.set)
    except PermissionError:
        while chunk := os.read(descriptor, CHUNK_BYTES):
            yield chunk
            await asyncio.sleep(0)
        return
    try:
        while True:
            await ready.wait()
            ready.clear()
            chunk = os.read(descriptor, CHUNK_BYTES)
            if not chunk:
                return
            yield chunk
    finally:
        loop.remove_reader(descriptor)
