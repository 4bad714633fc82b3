"""What a log knows about its own cleaning. It belongs to the log and disappears with it."""

from __future__ import annotations


class CleaningState:
    """``first_dirty_offset`` is the value in ``cleaner-offset-checkpoint``; None if the log was never cleaned."""

    __slots__ = ("crashes", "first_dirty_offset", "is_in_progress", "is_uncleanable")

    def __init__(self) -> None:
        self.first_dirty_offset: int | None = None
        self.is_in_progress = False
        self.is_uncleanable = False
        """Its cleaning failed, and would fail again. The next start of the broker forgets this, as in Kafka."""
        self.crashes = 0
        """Worker processes in a row that died while cleaning it."""

    def on_cut(self, offset: int) -> None:
        """Note that a truncation may have changed the segment that begins at ``offset``, and all after it."""
        if self.first_dirty_offset is not None:
            self.first_dirty_offset = min(self.first_dirty_offset, offset)
