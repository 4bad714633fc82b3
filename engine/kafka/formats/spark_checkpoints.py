"""Files of a Structured Streaming checkpoint: what a query plans to read, and which batches it has finished.

    metadata         {"id": "<query id>"}
    offsets/<batch>  written before a batch runs: the offset at which it ends, for each source
    commits/<batch>  written once the batch is finished
    sources/<id>/0   where a source began, if it says so

Every offset is the next one to read. This module turns text into values; others handle folders and file times.
Spark writes versions 1 and 2 of the offset log (2 since 4.2), versions 1 to 3 of the commit log (2 since 4.0, 3 since
4.3).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from engine.common.errors import CorruptFileError
from engine.common.model import TopicPartition

OFFSET_LOG_VERSION_MAX = 2
COMMIT_LOG_VERSION_MAX = 3

Offsets = Mapping[TopicPartition, int]

_VERSION = re.compile(r"v(\d{1,9})")
_BATCH = re.compile(r"\d{1,18}")


class ForeignVersion(CorruptFileError):
    """A file has a version that this module does not know."""


@dataclass(frozen=True, slots=True)
class OffsetLogEntry:
    """One file of the offset log.

    ``sources`` has every source by its id, in the file's order: Kafka offsets, or None for a source of another type
    or without an offset. ``batch_ms`` is the time when the batch was planned; a continuous query has none.
    """

    batch_ms: int | None
    sources: Mapping[str, Offsets | None]


def batch_id_of(file_name: str) -> int | None:
    """Return the batch of a file in the offset or commit log; None for checksums, leftovers and the like."""
    return int(file_name) if _BATCH.fullmatch(file_name) else None


def decode_metadata(text: str, location: str) -> str:
    """Return the query's id.

    Raises:
        CorruptFileError: it is no such file.
    """
    document = _json(text, location)
    query_id = document.get("id") if isinstance(document, dict) else None
    if not isinstance(query_id, str) or not query_id:
        raise CorruptFileError(f"{location}: no query id in it", path=location)
    return query_id


def decode_offset_log(text: str, location: str) -> OffsetLogEntry:
    """Return the content of one file of the offset log.

    Raises:
        ForeignVersion: its version is unknown.
        CorruptFileError: it is cut off, or not such a file.
    """
    version, rest = _versioned(text, OFFSET_LOG_VERSION_MAX, "offset log", location)
    metadata, has_sources, sources = rest.partition("\n")
    if not has_sources:
        raise CorruptFileError(f"{location}: ends before the first source", path=location)
    lines = sources.split("\n")
    # By position in version 1; by the id before the first colon in version 2.
    named = [line.partition(":")[::2] for line in lines] if version > 1 else [(str(n), s) for n, s in enumerate(lines)]
    return OffsetLogEntry(
        _batch_ms(metadata, location), {source: _source_offsets(text, location) for source, text in named}
    )


def check_commit_log(text: str, location: str) -> None:
    """Check that a file of the commit log has a known version. For offsets, only its existence matters.

    Raises:
        ForeignVersion: it is not.
        CorruptFileError: it is no such file.
    """
    _versioned(text, COMMIT_LOG_VERSION_MAX, "commit log", location)


def decode_initial_offsets(text: str, location: str) -> Offsets | None:
    """Return where a source began; None for a source that is not Kafka's.

    Raises:
        ForeignVersion, CorruptFileError: as for the offset log.
    """
    text = text.removeprefix("\0")
    if text.startswith("{"):
        # Spark 2.1.0 wrote no version.
        return kafka_offsets(_json(text, location))
    _, rest = _versioned(text, 1, "initial offsets", location)
    return _source_offsets(rest, location) if rest.startswith("{") else None


def kafka_offsets(value: object) -> Offsets | None:
    """Return offsets from ``{"topic": {"0": 12}}``, given as an object or as text; None for anything else.

    Event logs have them as JSON inside a string, a listener in Python as a string that may be ``None``.
    """
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return None
    if not isinstance(value, dict):
        return None
    offsets: dict[TopicPartition, int] = {}
    for topic, partitions in value.items():
        if not isinstance(partitions, dict):
            return None
        for number, offset in partitions.items():
            if not (number.isascii() and number.isdigit()) or type(offset) is not int:
                return None
            offsets[TopicPartition(topic, int(number))] = offset
    return offsets


def _versioned(text: str, version_max: int, noun: str, location: str) -> tuple[int, str]:
    first, _, rest = text.partition("\n")
    match = _VERSION.fullmatch(first.strip())
    if match is None:
        raise CorruptFileError(f"{location}: begins with {first[:40]!r}, not with a version", path=location)
    version = int(match[1])
    if not 1 <= version <= version_max:
        known = "version 1" if version_max == 1 else f"versions 1 to {version_max}"
        raise ForeignVersion(
            f"{location}: version {version} of Spark's {noun}; only {known} can be read", path=location
        )
    return version, rest


def _batch_ms(metadata: str, location: str) -> int | None:
    if not metadata:
        return None
    document = _json(metadata, location)
    batch_ms = document.get("batchTimestampMs") if isinstance(document, dict) else None
    return batch_ms if type(batch_ms) is int and batch_ms > 0 else None


def _source_offsets(text: str, location: str) -> Offsets | None:
    if text == "-":
        return None
    if not text.startswith("{"):
        return None
    value = _json(text, location)
    _check_numbers(value, location)
    return kafka_offsets(value)


def _check_numbers(value: object, location: str) -> None:
    """Refuse what would be Kafka's offsets if they were numbers: another source's line has another shape."""
    for topic, partitions in value.items() if isinstance(value, dict) else ():
        for number, offset in partitions.items() if isinstance(partitions, dict) else ():
            if number.isascii() and number.isdigit() and isinstance(offset, str) and offset.lstrip("-").isdigit():
                message = f"the offset of {topic}-{number} is {offset!r}, not a number"
                raise CorruptFileError(f"{location}: {message}", path=location)


def _json(text: str, location: str) -> object:
    try:
        return json.loads(text)
    except ValueError as error:
        raise CorruptFileError(f"{location}: not JSON, or cut off: {error}", path=location) from error
