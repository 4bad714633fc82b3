"""What ``--property`` of Kafka's console producer is here: options of ``klamm produce``."""

from __future__ import annotations

from collections.abc import Mapping


def producer_words(properties: Mapping[str, str]) -> list[str] | None:
    """Return our words for a line reader's properties; None if one of them has no counterpart."""
    if not {*properties} <= {"parse.key", "key.separator", "parse.headers", "null.marker"}:
        return None
    words: list[str] = []
    if properties.get("parse.key", "").lower() == "true":
        words += ["--key-separator", properties.get("key.separator", "\t")]
    if properties.get("parse.headers", "").lower() == "true":
        words.append("--headers")
    if "null.marker" in properties:
        words += ["--null-marker", properties["null.marker"]]
    return words
