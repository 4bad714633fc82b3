"""A topic's settings as the log uses them: typed, resolved, immutable.

The rows (default, range, documentation, synonyms) are in ``topic_configs``; this is only the value.
"""

from __future__ import annotations

from dataclasses import make_dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from engine.kafka.config.metadata_version import highest_record_magic, parse_metadata_version
from engine.kafka.config.topic_configs import TOPIC_CONFIG_DEF, TopicKeys


class _Readings(TopicKeys):
    """Values that follow from one or several settings of a topic."""

    __slots__ = ()

    @property
    def record_magic(self) -> int:
        """The record format that leaders write: 2, unless brokers before 0.11 must read it."""
        return _magic_of(self.message_format_version)

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def roll_ms(self) -> int:
        """Age at which a segment is closed: in a compacted log no later than it must be cleaned."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.is_compacted else self.segment_ms

    @property
    def is_deleted_by_retention(self) -> bool:
        return "delete" in self.cleanup_policy


@lru_cache(maxsize=64)
def _magic_of(format_version: str) -> int:
    return highest_record_magic(parse_metadata_version(format_version))


if TYPE_CHECKING:

    class LogConfig(_Readings):
        """Effective settings of one topic: an attribute for each row; missing ones have Kafka's default."""

        def __init__(self, **values: Any) -> None: ...

else:
    LogConfig = make_dataclass(
        "LogConfig",
        [(row.attribute, Any, row.default) for row in TOPIC_CONFIG_DEF],
        bases=(_Readings,),
        namespace={"__doc__": "Effective settings of one topic.", "__module__": __name__},
        frozen=True,
        slots=True,
    )
