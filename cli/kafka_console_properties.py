"""What ``--property`` of Kafka's console tools is here: a ``--format`` of the formatter's, options of the reader's.

Kafka's formatter puts time, partition, offset, headers, key and value in this order, whatever order they are asked in.
Its time comes after the kind of timestamp; here always after ``CreateTime:``, which is nearly always the kind.
"""

from __future__ import annotations

from collections.abc import Mapping

_FIELDS = (
    ("print.timestamp", "CreateTime:%T"),
    ("print.partition", "Partition:%p"),
    ("print.offset", "Offset:%o"),
    ("print.headers", "%h"),
    ("print.key", "%k"),
    ("print.value", "%s"),
)
_BETWEEN, _AT_END = "key.separator", "line.separator"


def consumer_words(properties: Mapping[str, str]) -> list[str] | None:
    """Return our words for a formatter's properties; None if one of them has no counterpart."""
    if not {*properties} <= {*(name for name, _ in _FIELDS), _BETWEEN, _AT_END}:
        return None
    said = {"print.value": "true"} | dict(properties)
    shown = [form for name, form in _FIELDS if said.get(name, "").lower() == "true"]
    between, end = (_literal(said.get(name, text)) for name, text in ((_BETWEEN, "\t"), (_AT_END, "\n")))
    return ["--format", between.join(shown) + end]


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


def _literal(text: str) -> str:
    """Return a text as ``--format`` takes it: percent signs and backslashes mean themselves."""
    return text.replace("\\", "\\x5c").replace("%", "%%").replace("\n", "\\n").replace("\t", "\\t")
