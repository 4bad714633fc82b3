"""``partition.metadata`` in a partition's folder: the topic id of the folder (Kafka 2.8, KIP-516)."""

from __future__ import annotations

import re

from engine.common.errors import CorruptFileError
from engine.common.topic_id import ZERO_TOPIC_ID, parse_topic_id, topic_id_text

PARTITION_METADATA_FILE = "partition.metadata"
PARTITION_METADATA_VERSION = 0

_SEPARATOR = re.compile(r":\s+")


def encode_partition_metadata(topic_id: bytes) -> str:
    """Return the file's text, which has no line end after its last line."""
    return f"version: {PARTITION_METADATA_VERSION}\ntopic_id: {topic_id_text(topic_id)}"


def decode_partition_metadata(text: str, location: str) -> bytes:
    """Return the topic id; reads later versions of the file as this one.

    Raises:
        CorruptFileError: a line is missing or malformed, or the id is the reserved zero id.
    """
    lines = text.splitlines()
    try:
        version = int(_value(lines, 0))
        topic_id = parse_topic_id(_value(lines, 1))
    except (ValueError, IndexError) as error:
        raise CorruptFileError(f"Malformed partition metadata file [{location}]: {text!r}", path=location) from error
    if version < PARTITION_METADATA_VERSION:
        raise CorruptFileError(
            f"Unrecognized version of partition metadata file ({location}): {version}", path=location
        )
    if topic_id == ZERO_TOPIC_ID:
        raise CorruptFileError(f"Invalid topic ID in partition metadata file ({location})", path=location)
    return topic_id


def _value(lines: list[str], index: int) -> str:
    name, value = _SEPARATOR.split(lines[index], maxsplit=1)
    if not name:
        raise ValueError("no name before the colon")
    return value.strip()
