"""When to read a stage next: as often as wanted, less often if reading takes long, and later after failures. Pure.

That is the feed's back-pressure: a stage never takes more than its share of the time, however large the cluster is.
Times are milliseconds of one clock.
"""

from __future__ import annotations

BACK_OFF_MS = 1_000
BACK_OFF_MAX_MS = 10_000


class StageSchedule:
    """The times of one stage.

    Args:
        interval_ms: time from the start of one reading to that of the next; None is the feed's own tick.
        share: the share of the time for reading: what takes 300 ms with a share of 0.1 is read every 3 s.
        ticks: it is read no more often than after so many ticks.
    """

    def __init__(self, interval_ms: int | None, share: float, ticks: int = 1) -> None:
        self._wanted_ms = interval_ms
        self._share = share
        self._ticks = ticks
        self._failures = 0
        self._must_repeat = False
        self._whole_cost_ms = 0
        self.started_ms: int | None = None
        """When the current reading began."""
        self.next_ms: int | None = 0
        """When it is read next; None while it is being read."""
        self.interval_ms = interval_ms or 0
        """The latest time from one reading to the next."""

    def is_due(self, now_ms: int) -> bool:
        return self.next_ms is not None and now_ms >= self.next_ms

    def trigger(self, now_ms: int) -> None:
        """Read it now, or once more if it is being read: that reading may have begun too early."""
        if self.started_ms is not None:
            self._must_repeat = True
        else:
            self.next_ms = now_ms
            self._failures = 0

    def start(self, now_ms: int) -> None:
        """Reading begins."""
        self.started_ms, self.next_ms, self._must_repeat = now_ms, None, False

    def succeed(self, now_ms: int, tick_ms: int, *, is_partial: bool = False) -> int:
        """Reading ended well; return how long it took.

        Args:
            is_partial: a broker did not answer. Waiting for it was no work, so the next reading begins a second later,
            and the share does not apply to the wait. It still applies to the time of a whole reading.
        """
        cost_ms = self._end(now_ms)
        self._failures = 0
        if is_partial:
            work_ms, pause_ms = min(cost_ms, self._whole_cost_ms), cost_ms + BACK_OFF_MS
        else:
            work_ms = self._whole_cost_ms = cost_ms
            pause_ms = 0
        # More often than frames are made, nobody would see it.
        self.interval_ms = max(self._wanted_ms or 0, self._ticks * tick_ms, round(work_ms / self._share), pause_ms)
        self.next_ms = now_ms if self._must_repeat else max(now_ms, now_ms - cost_ms + self.interval_ms)
        return cost_ms

    def hasten(self, interval_ms: int, cost_ms: int) -> None:
        """Make the next reading come this soon, once, as far as the share allows."""
        if self.next_ms is not None:
            sooner_ms = max(interval_ms, round(cost_ms / self._share))
            self.next_ms += min(0, sooner_ms - self.interval_ms)
            self.interval_ms = min(self.interval_ms, sooner_ms)

    def fail(self, now_ms: int, tick_ms: int) -> None:
        """Reading failed: the next try comes later after each failure."""
        cost_ms = self._end(now_ms)
        back_off_ms = min(BACK_OFF_MAX_MS, BACK_OFF_MS * 2**self._failures)
        self._failures = min(self._failures + 1, 10)
        self.interval_ms = max(self._wanted_ms or 0, tick_ms, back_off_ms)
        self.next_ms = now_ms if self._must_repeat else now_ms + max(0, back_off_ms - cost_ms, back_off_ms // 2)

    def _end(self, now_ms: int) -> int:
        started_ms = now_ms if self.started_ms is None else self.started_ms
        self.started_ms = None
        return now_ms - started_ms
