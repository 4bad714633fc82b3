"""The buffer a message is written to."""

from __future__ import annotations

from typing import Protocol


class SizedRange(Protocol):
    """Bytes that lie elsewhere, in a file, and are sent from there."""

    @property
    def size_bytes(self) -> int:
        """How many bytes will be spliced in; must not change until they are sent."""


class Outgoing(bytearray):
    """Encoded bytes, less the ranges: each is (position, range), to be sent before the byte at that position.

    Positions count the bytes of this buffer only, and rise. Lengths inside the message already count the ranges.
    """

    ranges: list[tuple[int, SizedRange]] | tuple[()] = ()

    def splice(self, record_range: SizedRange) -> None:
        """Note that ``record_range`` belongs at the present end."""
        if not self.ranges:
            self.ranges = []
        self.ranges.append((len(self), record_range))

    @property
    def size_bytes(self) -> int:
        """Length with the ranges."""
        return len(self) + sum([record_range.size_bytes for _, record_range in self.ranges])

    def append_whole(self, other: Outgoing) -> None:
        """Add another message's bytes and ranges at the end."""
        if other.ranges:
            start = len(self)
            self.ranges = [*self.ranges, *((start + position, part) for position, part in other.ranges)]
        self += other
