"""The segment that a log appends to: when it is full, and which of its positions are known without a search.

It alone keeps this state; code that appends, cuts or reads tells it or asks it.
"""

from __future__ import annotations

from engine.broker.log.segment import LogSegment
from engine.kafka.config.log_config import LogConfig
from engine.kafka.formats.index_entries import RELATIVE_OFFSET_MAX

ALWAYS_ASK = -2
"""No timestamp is smaller, so ``must_roll`` has to take the long way."""

POSITIONS_MAX = 64


class ActiveSegment:
    """The last segment of a log. An append within the bounds kept here need not ask ``must_roll``."""

    __slots__ = (
        "_config",
        "_last_append_offset",
        "_last_append_position",
        "_positions",
        "last_offset_max",
        "roll_after_ms",
        "segment",
        "size_bytes_max",
    )

    def __init__(self, segment: LogSegment, config: LogConfig) -> None:
        self._config = config
        self._positions: dict[int, int] = {}
        self.replace(segment)

    def replace(self, segment: LogSegment) -> None:
        """Continue with ``segment``: the log has rolled, or was cut."""
        self.segment = segment
        self._positions.clear()
        self._last_append_offset = self._last_append_position = -1
        self.last_offset_max = segment.base_offset + RELATIVE_OFFSET_MAX
        """Offsets beyond it are too far from the base offset for 32 bits."""
        self.update_config(self._config)

    def update_config(self, config: LogConfig) -> None:
        """Apply changed settings of the topic. Those of indexes concern the next segment, as in Kafka."""
        self._config = config
        self.size_bytes_max = config.segment_bytes
        self._schedule_roll()

    def _schedule_roll(self) -> None:
        """Compute the timestamp from which the segment is too old."""
        segment = self.segment
        first_ms = segment.first_batch_timestamp_ms() if segment.size_bytes else ALWAYS_ASK
        self.roll_after_ms = first_ms + self._config.roll_ms - segment.roll_jitter_ms if first_ms >= 0 else ALWAYS_ASK

    def must_roll(self, size_bytes: int, max_timestamp_ms: int, last_offset: int, now_ms: int) -> bool:
        """Return whether batches of this size, timestamp and last offset need a new segment."""
        segment = self.segment
        if segment.size_bytes == 0:
            return not segment.takes(last_offset)
        if segment.size_bytes + size_bytes > self.size_bytes_max or segment.is_index_full:
            return True
        if not segment.takes(last_offset):
            return True
        if segment.waited_for_roll_ms(now_ms, max_timestamp_ms) > self._config.roll_ms - segment.roll_jitter_ms:
            return True
        # An empty segment had no first batch to count from.
        self._schedule_roll()
        return False

    def note_append(self, first_offset: int, position: int) -> None:
        """Remember where the last append began: a reader that keeps up reads from there."""
        self._last_append_offset, self._last_append_position = first_offset, position

    def known_position(self, offset: int) -> int:
        """Return where the batch that begins with ``offset`` is, or -1 if only a search can tell."""
        if offset == self._last_append_offset:
            return self._last_append_position
        return self._positions.get(offset, -1)

    def remember(self, offset: int, position: int) -> None:
        """Keep a position at which a read began or ended: the next one probably begins there."""
        positions = self._positions
        if len(positions) >= POSITIONS_MAX:
            positions.clear()
        positions[offset] = position
