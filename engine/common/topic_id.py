"""Topic ids: 16 bytes on the wire, 22 characters of URL-safe base64 in znodes and files (KIP-516)."""

from __future__ import annotations

import base64
import binascii
import uuid

ZERO_TOPIC_ID = bytes(16)
"""The id that stands for "none" on the wire."""

METADATA_TOPIC_ID = bytes(15) + b"\x01"
"""Reserved by Kafka for the KRaft metadata topic; never given to a topic."""


def random_topic_id() -> bytes:
    """Return a new id as Kafka makes them: random, never reserved, and its text never starts with a dash."""
    while True:
        topic_id = uuid.uuid4().bytes
        if topic_id not in (ZERO_TOPIC_ID, METADATA_TOPIC_ID) and not topic_id_text(topic_id).startswith("-"):
            return topic_id


def topic_id_text(topic_id: bytes) -> str:
    """Return the 22-character text of a 16-byte id."""
    return base64.urlsafe_b64encode(topic_id).rstrip(b"=").decode("ascii")


def parse_topic_id(text: str) -> bytes:
    """Return the 16 bytes of an id's text.

    Raises:
        ValueError: the text is not 22 characters of URL-safe base64.
    """
    try:
        decoded = base64.b64decode(text + "==", altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"not a topic id: {text!r}") from error
    if len(decoded) != 16:
        raise ValueError(f"not a topic id: {text!r} has {len(decoded)} bytes instead of 16")
    return decoded
