"""One record as tools, compaction and tests see it. The hot path never creates one."""

from __future__ import annotations

from collections.abc import Sequence

from engine.kafka.protocol.records import layout

Header = tuple[str, bytes | None]
"""A record header: key, and a value that may be null."""

NO_OFFSET = -1


class Record:
    """A decoded record, whatever its original format.

    ``offset`` is absolute. In a record that is not written yet, -1 means "the offset after the previous record's".
    ``timestamp_ms`` is what a consumer sees (the batch's append time under LogAppendTime), -1 for none.
    ``headers`` is empty for the formats v0 and v1, which have none.
    """

    __slots__ = ("headers", "key", "offset", "timestamp_ms", "value")

    def __init__(
        self,
        offset: int = NO_OFFSET,
        timestamp_ms: int = layout.NO_TIMESTAMP,
        key: bytes | None = None,
        value: bytes | None = None,
        headers: Sequence[Header] = (),
    ) -> None:
        self.offset = offset
        self.timestamp_ms = timestamp_ms
        self.key = key
        self.value = value
        self.headers = headers

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Record):
            return NotImplemented
        return self._comparable() == other._comparable()

    def __hash__(self) -> int:
        return hash(self._comparable())

    def __repr__(self) -> str:
        return (
            f"Record(offset={self.offset}, timestamp_ms={self.timestamp_ms}, key={self.key!r}, value={self.value!r}, "
            f"headers={list(self.headers)!r})"
        )

    def _comparable(self) -> tuple[object, ...]:
        return (self.offset, self.timestamp_ms, self.key, self.value, tuple(self.headers))
