"""What a broker measures of its requests: ``kafka.network:type=RequestMetrics`` of Kafka.

The hot path adds to a ``RequestTimes``, one for each API and version; a tick makes the histograms of an API of them.
One loop does what Kafka's processors and handlers do. A request waits in a queue only while its connection waits for
its next turn; an answer is sent at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Protocol

from engine.broker.metrics.measures import RECENT_MAX, Histogram, Meter, Occasional
from engine.broker.metrics.topics import Conversions
from engine.kafka.protocol.declaration import Struct
from engine.kafka.protocol.large_arrays import EncodedList
from engine.kafka.protocol.types import Array

FROM_CONSUMER, FROM_FOLLOWER = "FetchConsumer", "FetchFollower"

CONVERTING: Final = frozenset({"Fetch", "Produce"})
"""Kafka measures conversions of these only."""

SIZE_BYTES: Final = 4
"""Before each request and each answer stands its size."""

_WITHOUT_MEANING = ("ResponseQueueTimeMs", "ResponseSendTimeMs")


ErrorCounter = Callable[[MutableMapping[int, int], Any], None]


@cache
def error_counter(response: type[Struct], api_version: int, *, is_large: bool = False) -> ErrorCounter | None:
    """Return what counts the error codes anywhere in an answer, as Kafka does; None if it has none.

    Args:
        is_large: the answer's arrays may be encoded already, which counted them.
    """
    of_array = "uncounted({}, errors)" if is_large else "{} or ()"
    lines = _counting(response, api_version, "told", 1, of_array)
    if not lines:
        return None
    namespace: dict[str, Any] = {"uncounted": _uncounted}
    exec("\n".join(["def count(errors, told):", "    right = 0", *lines, "    errors[0] += right"]), namespace)
    return namespace["count"]  # type: ignore[no-any-return]


def _uncounted(elements: Any, errors: MutableMapping[int, int]) -> Iterable[Any]:
    """Add the errors that an array has counted already; return the other elements."""
    if not isinstance(elements, EncodedList):
        return elements or ()
    for code, count in elements.errors.items():
        errors[code] += count
    return elements.objects


def _counting(struct: type[Struct], api_version: int, name: str, depth: int, of_array: str) -> list[str]:
    indent = "    " * depth
    lines: list[str] = []
    for field in struct.wire_fields:
        if not field.is_in(api_version):
            continue
        if field.name == "error_code":
            lines += [
                f"{indent}if {name}.error_code:",
                f"{indent}    errors[{name}.error_code] += 1",
                f"{indent}else:",
                f"{indent}    right += 1",
            ]
        elif (
            isinstance(field.type, Array)
            and isinstance(field.type.element, type)
            and issubclass(field.type.element, Struct)
        ):
            inner = _counting(field.type.element, api_version, f"each{depth}", depth + 1, of_array)
            if inner:
                elements = of_array.format(f"{name}.{field.name}")
                lines += [f"{indent}for each{depth} in {elements}:", *inner]
    return lines


class RequestTimes:
    """The requests of one API in one version since the start, and its answers.

    The connection appends sizes to lists, which is the cheapest that Python has; ``fold`` adds them up.
    """

    __slots__ = (
        "_answer_bytes",
        "_answers",
        "_bytes",
        "_interval_s",
        "_requests",
        "_weighed",
        "largest_answer",
        "new_answers",
        "new_requests",
        "queued_total_s",
        "recent_s",
        "sizes",
        "slowest_s",
        "spent_s",
        "timed_from_s",
        "waited_s",
        "waits",
    )

    def __init__(self) -> None:
        self.new_requests: list[int] = []
        """Their bytes, of those that came since ``fold``."""
        self.new_answers: list[int] = []
        """Bytes of the answers since then, if connections have encoded them. Threads append, too."""
        self.largest_answer = 0
        """Bytes of the largest that is folded, since this was set to 0."""
        self._requests = self._bytes = self._answers = self._answer_bytes = 0
        self.timed_from_s = 0.0
        """The first request that begins then or later is timed: all while there are few, few when there are many."""
        self._interval_s = 0.0
        self._weighed = 0
        """As many requests does the time of those stand for that were timed."""
        self.spent_s = 0.0
        """Seconds that the loop was busy with all of them, as far as those that were timed tell."""
        self.slowest_s = 0.0
        self.queued_total_s = 0.0
        self.recent_s: deque[tuple[float, float]] = deque(maxlen=RECENT_MAX)
        """Of those that were answered at once: seconds in the queue, and seconds until the answer."""
        self.sizes: deque[int] = deque(maxlen=RECENT_MAX)
        """Of some of those that are folded."""
        self.waits: deque[tuple[float, float, float]] = deque(maxlen=RECENT_MAX)
        """Of those whose answer came later: seconds in the queue, until the handler returned, and until the answer."""
        self.waited_s = 0.0

    @property
    def requests(self) -> int:
        """How many came."""
        return self._requests + len(self.new_requests)

    @property
    def bytes(self) -> int:
        """Their bytes, without those of the sizes before them."""
        return self._bytes + sum(self.new_requests)

    def answers(self) -> tuple[int, int]:
        """Return how many answers were encoded, and their bytes without the four of each one's size."""
        return self._answers + len(self.new_answers), self._answer_bytes + sum(self.new_answers)

    def fold(self) -> None:
        """Add up what came since the last time, and keep a sample of the sizes."""
        new = self.new_requests
        self._requests += len(new)
        self._bytes += sum(new)
        self.sizes.extend(new[:: 1 + len(new) // RECENT_MAX])
        new.clear()
        # A thread may append at the same time.
        new = self.new_answers[:]
        del self.new_answers[: len(new)]
        if not new:
            return
        self._answers += len(new)
        if new.count(new[0]) == len(new):
            # Many answers of one size: to count equal ones costs a tenth of a sum and a maximum.
            self._answer_bytes += new[0] * len(new)
            largest = new[0]
        else:
            self._answer_bytes += sum(new)
            largest = max(new)
        self.largest_answer = max(self.largest_answer, largest)

    def stands_for(self, begun_s: float) -> int:
        """Begin to time a request; return how many its time stands for: those since the last that was timed."""
        self.timed_from_s = begun_s + self._interval_s
        requests = self.requests
        weight, self._weighed = requests - self._weighed, requests
        return weight

    def answered_at_once(self, queued_s: float, took_s: float, weight: int) -> None:
        """Note a timed request, which stands for ``weight``."""
        self.spent_s += took_s * weight
        self.recent_s.append((queued_s, took_s))
        self.queued_total_s += queued_s * weight
        if queued_s + took_s > self.slowest_s:
            self.slowest_s = queued_s + took_s

    def answered_later(self, queued_s: float, local_s: float, waited_s: float, weight: int) -> None:
        """Note a timed request whose answer came ``waited_s`` after the handler had returned."""
        self.spent_s += local_s * weight
        self.queued_total_s += queued_s * weight
        self.slowest_s = max(self.slowest_s, queued_s + local_s + waited_s)
        self.waited_s += waited_s * weight
        self.waits.append((queued_s, local_s, waited_s))

    def choose_interval(self, requests_per_s: float) -> None:
        """Time about ``RECENT_MAX`` requests a second from now on, or all if there are no more."""
        self._interval_s = 1 / RECENT_MAX if requests_per_s > RECENT_MAX else 0.0
        self.timed_from_s = 0.0


@dataclass(slots=True)
class RequestSums:
    """What all versions of an API have counted together."""

    requests: int = 0
    bytes: int = 0
    queued_s: float = 0.0
    spent_s: float = 0.0
    waited_s: float = 0.0
    slowest_s: float = 0.0

    def add(self, times: RequestTimes) -> None:
        self.requests += times.requests
        self.bytes += times.bytes
        self.queued_s += times.queued_total_s
        self.spent_s += times.spent_s
        self.waited_s += times.waited_s
        self.slowest_s = max(self.slowest_s, times.slowest_s)


class ApiMetrics:
    """The histograms of one API, over all its versions."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.local, self.remote, self.total, self.size = Histogram(), Histogram(), Histogram(), Histogram()
        self.queue, self.nothing = Histogram(), Histogram()
        self.throttle, self.conversions, self.temporary_memory = Histogram(), Histogram(), Histogram()
        self._seen: dict[Histogram, tuple[int, int]] = {}
        """How many requests had a value of these, and how many had none, at the last look."""
        self.errors: dict[str, Meter] = {}

    def take(self, times: RequestTimes, now_s: float) -> None:
        """Put the newest requests into the samples, and forget them there."""
        at_once = [(1000 * queued, 1000 * took, 0.0) for queued, took in times.recent_s]
        times_ms = [*at_once, *((1000 * queued, 1000 * local, 1000 * waited) for queued, local, waited in times.waits)]
        self.queue.take([queued for queued, _, _ in times_ms], now_s)
        self.local.take([local for _, local, _ in times_ms], now_s)
        self.remote.take([waited for _, _, waited in times_ms], now_s)
        self.total.take([sum(each) for each in times_ms], now_s)
        self.size.take(times.sizes, now_s)
        times.recent_s.clear()
        times.waits.clear()
        times.sizes.clear()

    def take_throttles(self, newest: Occasional, requests: int, now_s: float) -> None:
        """Put the newest throttle times into the sample; ``requests`` is how many there ever were."""
        self._take_some(self.throttle, newest, requests, now_s)

    def take_conversions(self, newest: Conversions, requests: int, now_s: float) -> None:
        """Put the newest conversions into the samples."""
        self._take_some(self.conversions, newest.times_ms, requests, now_s)
        self._take_some(self.temporary_memory, newest.size_bytes, requests, now_s)

    def _take_some(self, histogram: Histogram, newest: Occasional, requests: int, now_s: float) -> None:
        """Take in the newest values, and for each as many zeros as requests had none."""
        had, had_none = self._seen.get(histogram, (0, 0))
        new, none = newest.count - had, max(0, requests - newest.count)
        share = min(1.0, len(newest.recent) / new) if new else 1.0
        histogram.take(newest.recent, now_s)
        histogram.take([0.0] * min(RECENT_MAX, round(max(0, none - had_none) * share)), now_s)
        histogram.total = newest.total
        self._seen[histogram] = newest.count, none
        newest.recent.clear()

    def merge(self, *parts: ApiMetrics) -> None:
        """Show the samples of others together."""
        self.throttle.total = sum(part.throttle.total for part in parts)
        for name in ("queue", "local", "remote", "total", "size", "throttle"):
            getattr(self, name).hold(*(getattr(part, name) for part in parts))

    def count(self, sums: RequestSums) -> None:
        """Set what is counted exactly: number, sums and the slowest."""
        for histogram, total in (
            (self.queue, sums.queued_s * 1000),
            (self.local, sums.spent_s * 1000),
            (self.remote, sums.waited_s * 1000),
            (self.total, (sums.queued_s + sums.spent_s + sums.waited_s) * 1000),
            (self.size, float(sums.bytes)),
            (self.nothing, 0.0),
        ):
            histogram.count, histogram.total = sums.requests, total
        self.total.max = max(self.total.max, sums.slowest_s * 1000)
        self.throttle.count = self.conversions.count = self.temporary_memory.count = sums.requests

    def mbeans(self) -> Iterator[tuple[str, dict[str, object]]]:
        """Yield name and attributes of each histogram."""
        nothing = {**self.nothing.attributes(), "Min": 0.0}
        yield "RequestQueueTimeMs", self.queue.attributes()
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


class ServedApi(Protocol):
    """One API in one version, as a listener serves it (``network.routes.Route``)."""

    @property
    def times(self) -> RequestTimes: ...
    @property
    def follower_times(self) -> RequestTimes: ...


class NetworkTotals:
    """Bytes, connections and logins of one listener since the start.

    What its APIs count already is not counted again: requests, answers and bytes are sums, made when they are read.
    """

    __slots__ = (
        "accepted",
        "apis",
        "closed",
        "failed_logins",
        "failed_renewals",
        "idle_closed",
        "logins",
        "logins_without_renewal",
        "other_bytes_in",
        "other_bytes_out",
        "other_requests",
        "renewal_times_ms",
        "renewals",
        "unanswered",
    )

    def __init__(self) -> None:
        self.apis: list[Mapping[int, ServedApi | None]] = []
        """Those that its peers have used, in tables of this listener alone."""
        self.accepted = self.closed = self.idle_closed = 0
        self.other_requests = self.other_bytes_in = self.other_bytes_out = 0
        """Of bare tokens, and of requests that no API took. What was encoded and never sent is taken off."""
        self.unanswered = 0
        """Requests that have no answer and will get none."""
        self.logins = self.logins_without_renewal = self.failed_logins = 0
        """Also by TLS alone. Without renewal: of clients that do not know of it (KIP-368)."""
        self.renewals = self.failed_renewals = 0
        self.renewal_times_ms: deque[tuple[int, int]] = deque(maxlen=RECENT_MAX)
        """When each was complete, on the broker's monotonic clock, and how long it took."""

    def received(self) -> tuple[int, int]:
        """Return how many requests came, and their bytes with the four of each one's size."""
        requests, size_bytes = self.other_requests, self.other_bytes_in
        for times in self._times():
            requests += times.requests
            size_bytes += times.bytes + SIZE_BYTES * times.requests
        return requests, size_bytes

    def bytes_out(self) -> int:
        """Return the bytes of all answers."""
        size_bytes = self.other_bytes_out
        for times in self._times():
            answers, answer_bytes = times.answers()
            size_bytes += answer_bytes + SIZE_BYTES * answers
        return size_bytes

    def largest_answer(self) -> int:
        """Return the bytes of the largest answer since ``forget_largest_answer``."""
        largest = 0
        for times in self._times():
            largest = max(largest, times.largest_answer, max(times.new_answers, default=0))
        return largest

    def forget_largest_answer(self) -> None:
        """Start looking for the largest answer again."""
        for times in self._times():
            times.fold()
            times.largest_answer = 0

    def _times(self) -> Iterator[RequestTimes]:
        for table in self.apis:
            for api in table.values():
                if api is not None:
                    yield from {api.times, api.follower_times}
