"""The buffer for an encoded message."""

from __future__ import annotations

from typing import Protocol


class SizedRange(Protocol):
    """Bytes in a file, which are sent from there."""

    @property
    def size_bytes(self) -> int:
        """Number of bytes to splice in; must not change until they are sent."""


class Outgoing(bytearray):
    """Encoded bytes without the ranges. Each range is (position, range), to be sent before the byte at that position.

    Positions ascend and count only the bytes of this buffer. Lengths inside the message already include the ranges.
    """

    ranges: list[tuple[int, SizedRange]] | tuple[()] = ()

    def splice(self, record_range: SizedRange) -> None:
        """Splice in ``record_range`` at the current end."""
        if not self.ranges:
            self.ranges = []
        self.ranges.append((len(self), record_range))

    @property
    def size_bytes(self) -> int:
        """Length including the ranges."""
        return len(self) + sum([record_range.size_bytes for _, record_range in self.ranges])

    def append_whole(self, other: Outgoing) -> None:
        """Add another message's bytes and ranges at the end."""
        if other.ranges:
            start = len(self)
            self.ranges = [*self.ranges, *((start + position, part) for position, part in other.ranges)]
        self += other
