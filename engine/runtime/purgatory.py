"""Operations that wait for a condition or a deadline: Kafka's purgatory on one event loop.

An operation is watched under keys (partitions, topics, groups). Whoever changes what a key stands for calls
``check_and_complete``; the operation looks at its condition itself. Deadlines are kept in coarse buckets, one loop
timer for the whole purgatory, so that a waiting request costs no timer of its own. Nothing here is thread-safe.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

BUCKET_MS = 10
"""Width of a deadline bucket: an operation expires at most this much late."""


class DelayedOperation:
    """One waiting operation. Subclasses say when it is done and what happens then."""

    __slots__ = ("_keys", "delay_ms", "is_completed")

    def __init__(self, delay_ms: int) -> None:
        self.delay_ms = delay_ms
        self.is_completed = False
        self._keys: tuple[Hashable, ...] = ()

    def try_complete(self) -> bool:
        """Return whether the condition holds; when it does, call ``force_complete`` first."""
        raise TypeError(f"{type(self).__name__} does not say when it is complete")

    def on_complete(self) -> None:
        """Called exactly once, when the condition held or the time was over."""
        raise TypeError(f"{type(self).__name__} does not say what to do when it is complete")

    def on_expiration(self) -> None:
        """Called after ``on_complete`` when the deadline, not the condition, ended the wait."""

    def force_complete(self) -> bool:
        """Complete unless that has happened already; return whether this call did it."""
        if self.is_completed:
            return False
        self.is_completed = True
        self.on_complete()
        return True

    def cancel(self) -> None:
        """Forget the operation without completing it: nobody waits for the answer any more."""
        self.is_completed = True


Key = TypeVar("Key", bound=Hashable)


class Purgatory(Generic[Key]):
    """The waiting operations of one kind, by key."""

    def __init__(self, name: str, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self.name = name
        self.expired_total = 0
        self.completed_total = 0
        self._loop = loop or asyncio.get_running_loop()
        self._watchers: dict[Hashable, list[DelayedOperation]] = {}
        self._buckets: dict[int, list[DelayedOperation]] = {}
        self._bucket_heap: list[int] = []
        self._timer: asyncio.TimerHandle | None = None
        self._timer_bucket = 0

    def __len__(self) -> int:
        """Number of operations that still wait."""
        return sum(not o.is_completed for bucket in self._buckets.values() for o in bucket)

    def try_complete_else_watch(self, operation: DelayedOperation, keys: Iterable[Key]) -> bool:
        """Complete the operation now if it can be; else let it wait under ``keys``. Return whether it is complete.

        The condition is looked at twice, before and after the watch is set only where that can differ; on one event
        loop nothing changes in between, so once is enough.
        """
        if operation.try_complete():
            self.completed_total += 1
            return True
        self.watch(operation, keys)
        return False

    def watch(self, operation: DelayedOperation, keys: Iterable[Key]) -> None:
        """Let an operation wait under ``keys`` whose condition was just found not to hold."""
        operation._keys = tuple(keys)
        watchers = self._watchers
        for key in operation._keys:
            waiting = watchers.get(key)
            if waiting is None:
                watchers[key] = [operation]
            else:
                waiting.append(operation)
        self._schedule(operation)

    def check_and_complete(self, key: Key) -> int:
        """Let every operation under ``key`` look at its condition again; return how many completed."""
        return self.check_and_complete_all((key,))

    def check_and_complete_all(self, keys: Iterable[Key]) -> int:
        """Do so for many keys; an operation looks once, under however many of them it waits.

        A look costs a time proportional to what an operation waits for: a fetch of 1,000 partitions, all of which
        changed, would else be looked at 1,000,000 times.
        """
        completed = 0
        looked: set[DelayedOperation] = set()
        for key in keys:
            waiting = self._watchers.pop(key, None)
            if waiting is None:
                continue
            still_waiting = []
            for operation in waiting:
                if operation.is_completed:
                    continue
                if operation not in looked:
                    looked.add(operation)
                    completed += operation.try_complete()
                if not operation.is_completed:
                    still_waiting.append(operation)
            if still_waiting:
                # Completing one may have added new ones under the same key; those stay behind the older ones.
                self._watchers[key] = still_waiting + self._watchers.get(key, [])
        self.completed_total += completed
        return completed

    def is_watched(self, key: Key) -> bool:
        """Return whether anything may wait under ``key``: cheap, for hot paths."""
        return key in self._watchers

    def complete_all(self) -> None:
        """Complete every waiting operation as if its time were over: the broker is going down."""
        for bucket in list(self._buckets.values()):
            for operation in bucket:
                operation.force_complete()
        self._watchers.clear()
        self.close()

    def close(self) -> None:
        """Stop the timer and forget everything."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._buckets.clear()
        self._bucket_heap.clear()

    def _schedule(self, operation: DelayedOperation) -> None:
        bucket = int((self._loop.time() * 1000 + operation.delay_ms) // BUCKET_MS) + 1
        members = self._buckets.get(bucket)
        if members is not None:
            members.append(operation)
            return
        self._buckets[bucket] = [operation]
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
            expired = self._buckets.pop(heapq.heappop(self._bucket_heap))
            for operation in expired:
                if operation.force_complete():
                    self.expired_total += 1
                    operation.on_expiration()
            self._unwatch(expired)
        if self._bucket_heap:
            self._arm(self._bucket_heap[0])

    def _unwatch(self, operations: Iterable[DelayedOperation]) -> None:
        """Drop completed operations from their keys, so that idle keys do not collect dead ones."""
        for key in {key for operation in operations for key in operation._keys}:
            waiting = self._watchers.get(key)
            if waiting is None:
                continue
            alive = [o for o in waiting if not o.is_completed]
            if alive:
                self._watchers[key] = alive
            else:
                del self._watchers[key]
