"""The experiments that show what a cluster can carry, as values: what each runs, its results, and what stops it.

They are those of the articles that made Kafka's figures known: producers, record sizes, partitions, replicas,
consumers, and a producer and a consumer at once. ``suite_run`` carries them out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import BadRequest
from engine.admin.log_dirs.describing import LogDir, read_log_dirs
from engine.common.quantities import size_text

FORMAT = 1

PUBLISHED_PER_SEC: Final[Mapping[tuple[str, str], int]] = {
    ("producers", "1"): 1_280_000,
    ("consumers", "1"): 3_060_000,
    ("pair", "1 + 1"): 1_220_000,
}
"""Records a second in the articles, by experiment and label: three brokers on machines of eight cores each, and clients
on machines of their own."""

_RECORD_FIELDS_BYTES = 12
"""What a record without key and headers needs beside its value, at most, with its part of the batch's header."""
_PARTITIONS = 6
_RECORD_BYTES = 100


@dataclass(frozen=True, slots=True)
class Case:
    """One measurement. ``producers`` send first, then ``consumers`` read; with ``is_pair`` all at once."""

    experiment: str
    label: str
    producers: int = 1
    consumers: int = 0
    record_bytes: int = _RECORD_BYTES
    partitions: int = _PARTITIONS
    replicas: int = 1
    is_pair: bool = False


@dataclass(frozen=True, slots=True)
class Experiment:
    """Cases that differ in one thing."""

    name: str
    title: str
    cases: tuple[Case, ...]


@dataclass(frozen=True, slots=True)
class CaseResult:
    """What one case measured; latencies are the worst of its producers, rates the sum. None: not measured.

    ``broker_cpu_s_per_million`` are the seconds of CPU that all brokers spent per million records.
    """

    case: Case
    sent_records: int | None = None
    sent_per_sec: float | None = None
    sent_mb_per_sec: float | None = None
    read_records: int | None = None
    read_per_sec: float | None = None
    read_mb_per_sec: float | None = None
    p50_latency_ms: float | None = None
    p95_latency_ms: float | None = None
    p99_latency_ms: float | None = None
    p999_latency_ms: float | None = None
    broker_cpu_s_per_million: float | None = None
    error: str | None = None

    @property
    def rate(self) -> float | None:
        """What the case measures: records read a second if it only reads, else records sent."""
        return self.read_per_sec if self.case.consumers and not self.case.is_pair else self.sent_per_sec

    @property
    def published_per_sec(self) -> int | None:
        """The articles' rate for the same case."""
        return PUBLISHED_PER_SEC.get((self.case.experiment, self.case.label))


def experiments(broker_count: int, *, is_quick: bool = False, names: Sequence[str] = ()) -> list[Experiment]:
    """Return the experiments for a cluster of this many brokers, or those named.

    Raises:
        BadRequest: there is none of that name.
    """
    sizes = (100, 1000) if is_quick else (10, 100, 1000, 10_000)
    counts = (1, 9) if is_quick else (1, 3, 6, 9)
    some = (1, 3) if is_quick else (1, 2, 3)
    factors = [count for count in some if count <= broker_count] or [1]
    series = {
        "producers": ("Producers, records of 100 bytes", [("producers", n) for n in some]),
        "record-size": ("Bytes of a record, one producer", [("record_bytes", n) for n in sizes]),
        "partitions": ("Partitions, one producer", [("partitions", n) for n in counts]),
        "replicas": ("Replicas, one producer, acks=all", [("replicas", n) for n in factors]),
        "consumers": ("Consumers, each reads everything", [("consumers", n) for n in some]),
    }
    built = [
        Experiment(name, title, tuple(_case(name, field, value) for field, value in values))
        for name, (title, values) in series.items()
    ]
    pair = Case("pair", "1 + 1", consumers=1, is_pair=True)
    built.append(Experiment("pair", "A producer and a consumer at once", (pair,)))
    unknown = [name for name in names if name not in {experiment.name for experiment in built}]
    if unknown:
        raise BadRequest(
            f"no such experiment: {unknown[0]}", hint=f"there are {', '.join(experiment.name for experiment in built)}"
        )
    return [experiment for experiment in built if not names or experiment.name in names]


def records_of_producer(case: Case, producer_bytes: int) -> int:
    """Return how many records a producer sends at most."""
    return max(1, producer_bytes // case.record_bytes)


def bytes_on_disks(case: Case, producer_bytes: int) -> int:
    """Return what a case writes at most, on the disks of all brokers together."""
    records = case.producers * records_of_producer(case, producer_bytes)
    return records * (case.record_bytes + _RECORD_FIELDS_BYTES) * case.replicas


def bytes_on_broker(case: Case, producer_bytes: int, broker_count: int) -> int:
    """Return the most that a case writes on one of this many brokers, for Kafka's own assignment without racks."""
    rounds, rest = divmod(case.partitions, broker_count)
    replicas = rounds * case.replicas + min(rest, case.replicas)
    return math.ceil(bytes_on_disks(case, producer_bytes) * replicas / (case.partitions * case.replicas))


def document(results: Sequence[CaseResult], facts: Mapping[str, object], stopped: str | None) -> dict[str, object]:
    """Return a run as JSON has it."""
    published = [
        {"experiment": experiment, "label": label, "records_per_sec": rate}
        for (experiment, label), rate in PUBLISHED_PER_SEC.items()
    ]
    return {"format": FORMAT, **facts, "stopped": stopped, "cases": list(results), "published": published}


def rates_of(document: object) -> dict[tuple[str, str], float]:
    """Return the rates of an earlier run by experiment and label.

    Raises:
        ValueError: it is not the document of a run.
    """
    if (
        not isinstance(document, Mapping)
        or document.get("format") != FORMAT
        or not isinstance(document.get("cases"), list)
    ):
        raise ValueError("not the document of a run")
    rates: dict[tuple[str, str], float] = {}
    for entry in document["cases"]:
        try:
            case = entry["case"]
            reads = case["consumers"] and not case["is_pair"]
            rate = entry["read_per_sec" if reads else "sent_per_sec"]
            if rate is not None:
                rates[case["experiment"], case["label"]] = float(rate)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"a case is not well-formed: {error}") from error
    return rates


def by_experiment(
    chosen: Iterable[Experiment], results: Sequence[CaseResult]
) -> list[tuple[Experiment, list[CaseResult]]]:
    """Return each experiment that has begun, with its results."""
    grouped = [
        (experiment, [result for result in results if result.case.experiment == experiment.name])
        for experiment in chosen
    ]
    return [(experiment, experiment_results) for experiment, experiment_results in grouped if experiment_results]


def _case(experiment: str, field: str, value: int) -> Case:
    return replace(Case(experiment, f"{value:,}"), **{field: value})  # type: ignore[arg-type]


class MustStop(Exception):
    """The suite cannot continue; the text says why."""


class WatchedDisks:
    """The log dirs of the brokers that are online when it is opened. A disk of unknown size is not watched."""

    def __init__(
        self, cluster: Cluster, free_share_min: float, dirs: Sequence[LogDir], hosts: Mapping[int, str]
    ) -> None:
        self._cluster = cluster
        self._free_share_min = free_share_min
        self._at_start = dirs
        self._hosts = hosts
        self.offline = {
            (log_dir.broker, log_dir.log_dir)
            for log_dir in dirs
            if log_dir.log_dir is not None and log_dir.error is not None
        }
        """The log dirs that were offline at the start."""

    @classmethod
    async def open(cls, cluster: Cluster, free_share_min: float) -> WatchedDisks:
        """Read the log dirs of all brokers.

        Raises:
            AdminError: no broker can be reached.
        """
        dirs = await read_log_dirs(cluster, None, ())
        nodes = await (await cluster.wire()).nodes()
        return cls(cluster, free_share_min, dirs, {broker: node.host for broker, node in nodes.items()})

    @property
    def unwatched(self) -> dict[int, str]:
        """Brokers that did not say at the start how large their disks are, and why."""
        return {
            log_dir.broker: (log_dir.error or "only Kafka 3.3 and later does")
            for log_dir in self._at_start
            if log_dir.total_bytes is None and (log_dir.broker, log_dir.log_dir) not in self.offline
        }

    async def look(self, *, must_answer: bool) -> list[LogDir]:
        """Return the log dirs of all brokers.

        Raises:
            MustStop: a log dir has gone offline or is nearly full, or a broker has left the cluster; or, with
                ``must_answer``, a broker is silent, for which a heavy load is no excuse then.
            AdminError: no broker can be reached.
        """
        dirs = await read_log_dirs(self._cluster, None, ())
        for log_dir in dirs:
            if (
                log_dir.log_dir is not None
                and log_dir.error is not None
                and (log_dir.broker, log_dir.log_dir) not in self.offline
            ):
                raise MustStop(f"{log_dir.log_dir} of broker {log_dir.broker} is offline: {log_dir.error}")
        for log_dir in dirs:
            if log_dir.total_bytes and log_dir.usable_bytes is not None:
                share = log_dir.usable_bytes / log_dir.total_bytes
                if share < self._free_share_min:
                    raise MustStop(f"{log_dir.log_dir} of broker {log_dir.broker} has only {share:.0%} left")
        for broker in sorted(self._hosts.keys() - {log_dir.broker for log_dir in dirs}):
            raise MustStop(f"broker {broker} has left the cluster")
        answered = {log_dir.broker for log_dir in self._at_start if log_dir.log_dir is not None}
        for log_dir in dirs:
            if must_answer and log_dir.log_dir is None and log_dir.broker in answered:
                raise MustStop(f"broker {log_dir.broker} does not answer: {log_dir.error}")
        return dirs

    def shortage(self, case: Case, producer_bytes: int, dirs: Sequence[LogDir] | None = None) -> str | None:
        """Return which disk has the least room for a case, if it is too little.

        It assumes the worst: that all bytes of a broker go to one of its log dirs.

        Args:
            dirs: as ``look`` returned them; None: as they were at the start.
        """
        dirs = self._at_start if dirs is None else dirs
        each = bytes_on_broker(case, producer_bytes, len(self._hosts))
        worst, least = None, 1.0
        for disk in dirs:
            if not disk.total_bytes or disk.usable_bytes is None:
                continue
            need = min(each * len(self._sharing(disk, dirs)), bytes_on_disks(case, producer_bytes))
            room = max(0.0, disk.usable_bytes - disk.total_bytes * self._free_share_min)
            if room / need < least:
                least = room / need
                worst = (
                    f"it may write {size_text(need)} to {disk.log_dir} of broker {disk.broker}, which has room for "
                    f"{size_text(room)} above the {self._free_share_min:.0%} that stay free"
                )
        return worst

    def producer_bytes_with_room(self, cases: Iterable[Case], producer_bytes: int) -> int:
        """Return how much each producer may send so that all cases had room at the start; 0 if nothing fits."""
        for case in cases:
            while producer_bytes and self.shortage(case, producer_bytes):
                producer_bytes = producer_bytes * 9 // 10
        return producer_bytes

    def _sharing(self, log_dir: LogDir, dirs: Sequence[LogDir]) -> set[int]:
        """Return the brokers of a host whose disks are equally large: most likely it is one disk."""
        host = self._hosts.get(log_dir.broker)
        return {
            other.broker
            for other in dirs
            if other.total_bytes == log_dir.total_bytes and self._hosts.get(other.broker) == host
        }
