"""What a broker measures of its requests: ``kafka.network:type=RequestMetrics`` of Kafka.

The hot path adds to a ``RequestTimes``, one for each API and version; a tick makes the histograms of an API of them.
One loop does what Kafka's processors and handlers do, so a request never waits in a queue: those times are 0.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, MutableMapping
from typing import Any, Final

from engine.broker.metrics.measures import RECENT_MAX, Histogram, Meter
from engine.kafka.protocol.declaration import Struct
from engine.kafka.protocol.types import Array

FROM_CONSUMER, FROM_FOLLOWER = "FetchConsumer", "FetchFollower"

CONVERTING: Final = frozenset({"Fetch", "Produce"})
"""Kafka measures conversions of these only."""

_WITHOUT_MEANING = ("RequestQueueTimeMs", "ResponseQueueTimeMs", "ResponseSendTimeMs")


ErrorCounter = Callable[[MutableMapping[int, int], Any], None]


def error_counter(response: type[Struct], api_version: int) -> ErrorCounter | None:
    """Return what counts the error codes anywhere in an answer, as Kafka does; None if it has none."""
    lines = _counting(response, api_version, "told", 1)
    if not lines:
        return None
    namespace: dict[str, Any] = {}
    exec("\n".join(["def count(errors, told):", *lines]), namespace)
    return namespace["count"]  # type: ignore[no-any-return]


def _counting(struct: type[Struct], api_version: int, name: str, depth: int) -> list[str]:
    indent = "    " * depth
    lines: list[str] = []
    for field in struct.wire_fields:
        if not field.is_in(api_version):
            continue
        if field.name == "error_code":
            lines.append(f"{indent}errors[{name}.error_code] += 1")
        elif (
            isinstance(field.type, Array)
            and isinstance(field.type.element, type)
            and issubclass(field.type.element, Struct)
        ):
            inner = _counting(field.type.element, api_version, f"each{depth}", depth + 1)
            if inner:
                lines += [f"{indent}for each{depth} in {name}.{field.name} or ():", *inner]
    return lines


class RequestTimes:
    """The requests of one API in one version since the start. The connection adds to it, without a call."""

    __slots__ = ("bytes", "recent_s", "requests", "sizes", "skips", "slowest_s", "spent_s", "waited_s", "waits")

    def __init__(self) -> None:
        self.requests = 0
        self.bytes = 0
        self.skips = 0
        """Of ``skips + 1`` requests, a power of two, one is timed: all while there are few, few when there are many."""
        self.spent_s = 0.0
        """Seconds that the loop was busy with all of them, as far as those that were timed tell."""
        self.slowest_s = 0.0
        self.recent_s: deque[float] = deque(maxlen=RECENT_MAX)
        self.sizes: deque[int] = deque(maxlen=RECENT_MAX)
        self.waits: deque[tuple[float, float]] = deque(maxlen=RECENT_MAX)
        """Of those whose answer came later: seconds until the handler returned, and seconds until the answer."""
        self.waited_s = 0.0

    def answered_at_once(self, took_s: float, size_bytes: int) -> None:
        """Note a timed request."""
        self.spent_s += took_s * (self.skips + 1)
        self.recent_s.append(took_s)
        self.sizes.append(size_bytes)
        if took_s > self.slowest_s:
            self.slowest_s = took_s

    def answered_later(self, local_s: float, waited_s: float) -> None:
        """Note a timed request whose answer came ``waited_s`` after the handler had returned."""
        self.spent_s += local_s * (self.skips + 1)
        self.slowest_s = max(self.slowest_s, local_s + waited_s)
        self.waited_s += waited_s * (self.skips + 1)
        self.waits.append((local_s, waited_s))

    def choose_skips(self, requests_per_s: float) -> None:
        """Time about ``RECENT_MAX`` requests a second from now on, or all if there are no more."""
        self.skips = 0
        while requests_per_s > RECENT_MAX * (self.skips + 1):
            self.skips = 2 * self.skips + 1


class ApiMetrics:
    """The histograms of one API, over all its versions."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.local, self.remote, self.total, self.size = Histogram(), Histogram(), Histogram(), Histogram()
        self.nothing = Histogram()
        self.throttle = Histogram()
        self._throttled = 0
        self._unthrottled = 0
        self.conversions = Histogram()
        self.temporary_memory = Histogram()
        self.errors: dict[str, Meter] = {}

    def take(self, times: RequestTimes, now_s: float) -> None:
        """Put the newest requests into the samples, and forget them there."""
        recent_ms = [1000 * took for took in times.recent_s]
        waits = [(1000 * local, 1000 * waited) for local, waited in times.waits]
        self.local.take([*recent_ms, *(local for local, _ in waits)], now_s)
        self.remote.take([*(0.0 for _ in recent_ms), *(waited for _, waited in waits)], now_s)
        self.total.take([*recent_ms, *(local + waited for local, waited in waits)], now_s)
        self.size.take(times.sizes, now_s)
        times.recent_s.clear()
        times.waits.clear()
        times.sizes.clear()

    def take_throttles(
        self, recent_ms: Collection[int], throttled: int, total_ms: int, requests: int, now_s: float
    ) -> None:
        """Put the newest throttle times into the sample, and as many zeros for each as requests were not throttled.

        Args:
            recent_ms: some of the times since the last call.
            throttled: how many requests were ever throttled.
            total_ms: the sum of all their times.
            requests: how many there ever were.
        """
        new, self._throttled = throttled - self._throttled, throttled
        unthrottled = requests - throttled
        zeros, self._unthrottled = max(0, unthrottled - self._unthrottled), unthrottled
        share = min(1.0, len(recent_ms) / new) if new else 1.0
        self.throttle.take(recent_ms, now_s)
        self.throttle.take([0.0] * min(RECENT_MAX, round(zeros * share)), now_s)
        self.throttle.total = float(total_ms)

    def merge(self, *parts: ApiMetrics) -> None:
        """Show the samples of others together."""
        self.throttle.total = sum(part.throttle.total for part in parts)
        for name in ("local", "remote", "total", "size", "throttle"):
            getattr(self, name).hold(*(getattr(part, name) for part in parts))

    def count(self, requests: int, size_bytes: int, spent_s: float, waited_s: float, slowest_s: float) -> None:
        """Set what is counted exactly: number, sums and the slowest."""
        for histogram, total in (
            (self.local, spent_s * 1000),
            (self.remote, waited_s * 1000),
            (self.total, (spent_s + waited_s) * 1000),
            (self.size, float(size_bytes)),
            (self.nothing, 0.0),
        ):
            histogram.count, histogram.total = requests, total
        self.total.max = max(self.total.max, slowest_s * 1000)
        self.throttle.count = requests

    def mbeans(self) -> Iterator[tuple[str, dict[str, object]]]:
        """Yield name and attributes of each histogram."""
        nothing = {**self.nothing.attributes(), "Min": 0.0}
        yield "LocalTimeMs", self.local.attributes()
        yield "RemoteTimeMs", self.remote.attributes()
        yield "TotalTimeMs", self.total.attributes()
        yield "RequestBytes", self.size.attributes()
        yield "ThrottleTimeMs", self.throttle.attributes()
        for name in _WITHOUT_MEANING:
            yield name, nothing
        if self.name in CONVERTING:
            yield "MessageConversionsTimeMs", self.conversions.attributes()
            yield "TemporaryMemoryBytes", self.temporary_memory.attributes()


class NetworkTotals:
    """Bytes, connections and logins of one listener since the start."""

    __slots__ = (
        "accepted",
        "answers",
        "bytes_in",
        "bytes_out",
        "closed",
        "failed_logins",
        "failed_renewals",
        "idle_closed",
        "largest_answer",
        "logins",
        "logins_without_renewal",
        "renewal_times_ms",
        "renewals",
        "requests",
    )

    def __init__(self) -> None:
        self.accepted = self.closed = self.idle_closed = 0
        self.bytes_in = self.bytes_out = 0
        self.requests = self.answers = 0
        self.largest_answer = 0
        """Bytes of the largest since somebody last looked, and set it to 0."""
        self.logins = self.logins_without_renewal = self.failed_logins = 0
        """Also by TLS alone. Without renewal: of clients that do not know of it (KIP-368)."""
        self.renewals = self.failed_renewals = 0
        self.renewal_times_ms: deque[tuple[int, int]] = deque(maxlen=RECENT_MAX)
        """When each was complete, on the broker's monotonic clock, and how long it took."""
