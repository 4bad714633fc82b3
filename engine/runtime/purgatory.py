"""Operations that wait for a condition or a deadline: Kafka's purgatory on one event loop.

An operation waits under keys (partitions, topics, groups). Code that changes a key's object calls
``check_and_complete``, and the operation checks its condition itself. Deadlines are in coarse buckets, with one loop
timer for the whole purgatory: a timer per operation would triple the cost of a waiting request. A completed or
cancelled operation leaves every list at once, whatever its client's deadline. Nothing here is thread-safe.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Callable, Collection, Hashable, Iterable
from typing import Any, Generic, TypeVar

logger = logging.getLogger(__name__)

BUCKET_MS = 10
"""Width of a deadline bucket: an operation expires at most this late."""

_EMPTY_BUCKETS_MAX = 1000
"""Up to this many dead deadlines are skipped when due; more are dropped earlier."""


class DelayedOperation:
    """One waiting operation. Subclasses say when it is done and what happens then."""

    __slots__ = ("_bucket", "_keys", "_purgatory", "delay_ms", "is_completed")

    def __init__(self, delay_ms: int) -> None:
        self.delay_ms = delay_ms
        self.is_completed = False
        self._keys: tuple[Hashable, ...] = ()
        self._purgatory: Purgatory[Any] | None = None
        self._bucket = 0

    def try_complete(self) -> bool:
        """Return whether the condition holds; if it does, call ``force_complete`` first."""
        raise TypeError(f"{type(self).__name__} does not say when it is complete")

    def on_complete(self) -> None:
        """Called exactly once, when the condition holds or the time is up."""
        raise TypeError(f"{type(self).__name__} does not say what to do when it is complete")

    def on_expiration(self) -> None:
        """Called after ``on_complete`` if the deadline, not the condition, ended the wait."""

    def on_fault(self) -> None:
        """Called if one of the above raised; no other call follows. Nobody may be left waiting forever."""

    def force_complete(self) -> bool:
        """Complete it if that has not happened yet; return whether this call did so."""
        if self.is_completed:
            return False
        self.cancel()
        self.on_complete()
        return True

    def cancel(self) -> None:
        """Forget the operation without completing it: the answer is no longer awaited."""
        self.is_completed = True
        if self._purgatory is not None:
            self._purgatory.forget(self)


Key = TypeVar("Key", bound=Hashable)


class Purgatory(Generic[Key]):
    """The waiting operations of one type, by key."""

    def __init__(self, name: str, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self.name = name
        self.expired_total = 0
        self._loop = loop or asyncio.get_running_loop()
        self._watchers: dict[Hashable, dict[DelayedOperation, None]] = {}
        self.watched_keys: Collection[Hashable] = self._watchers
        """The keys under which anything waits: a look into a dict, without a call of Python, for hot paths."""
        self._buckets: dict[int, dict[DelayedOperation, None]] = {}
        self._bucket_heap: list[int] = []
        self._timer: asyncio.TimerHandle | None = None
        self._timer_bucket = 0

    def __len__(self) -> int:
        """Return the number of waiting operations."""
        return sum(len(bucket) for bucket in self._buckets.values())

    @property
    def watched(self) -> int:
        """Waiting operations by key: one counts under each of its keys."""
        return sum(map(len, self._watchers.values()))

    def try_complete_else_watch(self, operation: DelayedOperation, keys: Iterable[Key]) -> bool:
        """Complete the operation now if possible; else let it wait under ``keys``. Return whether it is complete.

        It checks the condition only once: on one event loop nothing changes between the check and the watch, so a
        second check after setting the watch is not needed.
        """
        if operation.try_complete():
            return True
        self.watch(operation, keys)
        return False

    def watch(self, operation: DelayedOperation, keys: Iterable[Key]) -> None:
        """Let an operation wait under ``keys``; the caller has just found that its condition does not hold."""
        operation._keys = ()
        operation._purgatory = self
        self.watch_also(operation, keys)
        self._schedule(operation)

    def watch_also(self, operation: DelayedOperation, keys: Iterable[Key]) -> None:
        """Let a waiting operation wait under more keys."""
        more = tuple(keys)
        operation._keys += more
        watchers = self._watchers
        for key in more:
            waiting = watchers.get(key)
            if waiting is None:
                watchers[key] = {operation: None}
            else:
                waiting[operation] = None

    def check_and_complete(self, keys: Iterable[Key]) -> int:
        """Let every operation under these keys check its condition again; return how many completed.

        An operation checks once, however many of the keys it waits under.
        The cost of a check is proportional to what an operation waits for: otherwise, if all 1,000 partitions of a
        fetch changed, there would be 1,000,000 checks.
        """
        completed = 0
        looked: set[DelayedOperation] = set()
        for key in keys:
            for operation in list(self._watchers.get(key, ())):
                if operation.is_completed or operation in looked:
                    continue
                looked.add(operation)
                completed += self._isolated(operation, operation.try_complete)
        return completed

    def complete_all(self) -> None:
        """Complete every waiting operation as if its time were up: the broker is going down."""
        for bucket in list(self._buckets.values()):
            for operation in list(bucket):
                self._isolated(operation, operation.force_complete)
        self.close()

    def close(self) -> None:
        """Stop the timer and forget everything."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._watchers.clear()
        self._buckets.clear()
        self._bucket_heap.clear()

    def forget(self, operation: DelayedOperation) -> None:
        """Remove an operation from every list. Operations call it when they are complete or cancelled."""
        operation._purgatory = None
        for key in operation._keys:
            waiting = self._watchers.get(key)
            if waiting is not None:
                waiting.pop(operation, None)
                if not waiting:
                    del self._watchers[key]
        bucket = self._buckets.get(operation._bucket)
        if bucket is not None:
            bucket.pop(operation, None)
            if not bucket:
                del self._buckets[operation._bucket]
                self._drop_empty_buckets()

    def _drop_empty_buckets(self) -> None:
        if len(self._bucket_heap) > 2 * len(self._buckets) + _EMPTY_BUCKETS_MAX:
            self._bucket_heap = list(self._buckets)
            heapq.heapify(self._bucket_heap)

    def _schedule(self, operation: DelayedOperation) -> None:
        bucket = int((self._loop.time() * 1000 + operation.delay_ms) // BUCKET_MS) + 1
        operation._bucket = bucket
        members = self._buckets.get(bucket)
        if members is not None:
            members[operation] = None
            return
        self._buckets[bucket] = {operation: None}
        heapq.heappush(self._bucket_heap, bucket)
        if self._timer is None or bucket < self._timer_bucket:
            self._arm(bucket)

    def _arm(self, bucket: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_bucket = bucket
        self._timer = self._loop.call_at(bucket * BUCKET_MS / 1000, self._expire)

    def _expire(self) -> None:
        self._timer = None
        now_bucket = int(self._loop.time() * 1000 // BUCKET_MS)
        while self._bucket_heap and self._bucket_heap[0] <= now_bucket:
            for operation in list(self._buckets.get(heapq.heappop(self._bucket_heap), ())):
                if self._isolated(operation, operation.force_complete):
                    self.expired_total += 1
                    self._isolated(operation, operation.on_expiration)
        if self._bucket_heap:
            self._arm(self._bucket_heap[0])

    def _isolated(self, operation: DelayedOperation, step: Callable[[], object]) -> bool:
        """Run one step of an operation; if it fails, only this operation ends."""
        try:
            return bool(step())
        except Exception:
            logger.exception("A waiting operation failed and ends purgatory=%s operation=%r", self.name, operation)
        try:
            operation.cancel()
            operation.on_fault()
        except Exception:
            logger.exception("Cannot report that failure to anybody purgatory=%s operation=%r", self.name, operation)
        return False
