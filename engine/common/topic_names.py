"""Which names a topic may have (Kafka's Topic.validate), and which topics are Kafka's own."""

from __future__ import annotations

import re
from collections.abc import Iterable

from engine.common.errors import ErrorCode, KafkaError

GROUP_METADATA_TOPIC = "__consumer_offsets"
TRANSACTION_STATE_TOPIC = "__transaction_state"
CLUSTER_METADATA_TOPIC = "__cluster_metadata"
"""KRaft's metadata log; no topic of a ZooKeeper cluster may have this name."""

INTERNAL_TOPICS = frozenset({GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC})

SUITE_TOPIC_PREFIX = "klamm-perf-suite-"
"""What the names of topics begin with that the suite of speed tests makes for a moment."""

NAME_LENGTH_MAX = 249
"""With a partition number and a suffix the name must fit into the 255 bytes of a file name."""

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def invalid_topic_name(name: str) -> str | None:
    """Return, in Kafka's words, why ``name`` cannot be a topic's, or None if it can."""
    if not name:
        return "the empty string is not allowed"
    if name in {".", ".."}:
        return f"'{name}' is not allowed"
    if len(name) > NAME_LENGTH_MAX:
        return f"the length of '{name}' is longer than the max allowed length {NAME_LENGTH_MAX}"
    if _LEGAL.fullmatch(name) is None:
        return f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    return None


def check_topic_name(name: str) -> None:
    """Raise KafkaError INVALID_TOPIC_EXCEPTION if ``name`` cannot be a topic's."""
    reason = invalid_topic_name(name)
    if reason is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")


def has_collision_chars(name: str) -> bool:
    """Return whether the name has a character that metric names cannot tell from another one."""
    return "_" in name or "." in name


def colliding(name: str, others: Iterable[str]) -> list[str]:
    """Return the names whose metrics would have the same name as this one's: '.' and '_' count as one character."""
    length, metric_name = len(name), name.replace(".", "_")
    return [other for other in others if len(other) == length and other.replace(".", "_") == metric_name]
