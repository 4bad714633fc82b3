"""The process, its CPU and its memory, and what says which broker it is."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Mapping
from pathlib import Path

from engine.broker.metrics.mbean import MBean, MBeans, gauges
from engine.broker.metrics.measures import TICK_S, Attributes, Ledger, Meter, Timer
from engine.broker.server.figures.measured import MeasuredBroker
from engine.common.version import VERSION
from engine.runtime.descriptors import descriptor_limit

CLIENTS_SHOWN_MAX = 1000
"""As many clients of each quota are on a page for Prometheus: each has series of its own there."""


class ProcessFigures:
    """Figures of the broker as a whole."""

    def __init__(self, server: MeasuredBroker, ledger: Ledger) -> None:
        self._server = server
        self._ledger = ledger
        self._started_ms = server.clock.now_ms()
        self._idle_ns = Meter("percent", ledger.since_s, rate_unit="NANOSECONDS")
        self._cpu_s = time.process_time()
        self._gc_begun_s = 0.0
        self._gc_times = {generation: Timer(ledger.since_s) for generation in range(3)}

    def start(self) -> None:
        """Begin to watch the garbage collector."""
        gc.callbacks.append(self._on_gc)

    def stop(self) -> None:
        """Let go of what belongs to the process."""
        if self._on_gc in gc.callbacks:
            gc.callbacks.remove(self._on_gc)

    def count(self) -> None:
        """Take in the CPU that was used since the last call, a tick ago."""
        cpu_s, self._cpu_s = self._cpu_s, time.process_time()
        busy_s = self._cpu_s - cpu_s
        self._idle_ns.count += max(0, int((TICK_S - busy_s) * 1e9))

    def tick(self) -> None:
        self._idle_ns.tick(self._ledger.ticks)
        for timer in self._gc_times.values():
            timer.tick(self._ledger.ticks)

    @property
    def idle_ns(self) -> int:
        """For how long the process has used no CPU."""
        return self._idle_ns.count

    @property
    def cpu_ns(self) -> float:
        """For how long it has used CPU."""
        return 1e9 * time.process_time()

    @property
    def idle_share(self) -> float:
        """The share of the last minute in which the process used no CPU."""
        return min(1.0, float(self._idle()["OneMinuteRate"]))  # type: ignore[arg-type]

    def _on_gc(self, phase: str, info: Mapping[str, int]) -> None:
        now_s = self._ledger.now_s
        if phase == "start":
            self._gc_begun_s = now_s
        else:
            self._gc_times[info["generation"]].add(1000 * (now_s - self._gc_begun_s), now_s)

    def of_broker(self, clients_max: int | None) -> MBeans:
        """Yield what says which broker it is and how it is; of each quota ``clients_max`` clients."""
        server = self._server
        commit, version, started = "unknown", VERSION, self._started_ms
        broker_id = str(server.broker_id)
        yield MBean("kafka.server", "app-info", None, (("id", broker_id),),
                    {"CommitId": commit, "StartTimeMs": started, "Version": version})  # fmt: skip
        yield MBean("kafka.server", "app-info", None, (),
                    {"commit-id": commit, "start-time-ms": started, "version": version})  # fmt: skip
        read_bytes, written_bytes = _disk_bytes()
        yield from gauges("kafka.server", "KafkaServer", {
            "BrokerState": server.state,
            "ClusterId": server.cluster_id,
            "linux-disk-read-bytes": read_bytes,
            "linux-disk-write-bytes": written_bytes,
        })  # fmt: skip
        yield MBean("kafka.server", "KafkaRequestHandlerPool", "RequestHandlerAvgIdlePercent", (), self._idle())
        for kind, user, client_id, attributes in server.quotas.figures(clients_max):
            # As in Kafka, a name leaves out what is empty.
            tags = tuple((key, value) for key, value in (("user", user), ("client-id", client_id)) if value)
            yield MBean("kafka.server", kind, None, tags, attributes)
        left_out = 0 if clients_max is None else server.quotas.accounts_beyond(clients_max)
        yield from gauges("klamm", "ClientQuotas", {"NotShown": left_out})
        yield from gauges(
            "kafka.server", "MetadataLoader", {"CurrentControllerId": server.metadata_cache.controller_id}
        )

    def _idle(self) -> Attributes:
        """Return the share of time in which the process did not use its CPU, as Kafka's handlers show theirs."""
        attributes = dict(self._idle_ns.attributes(self._ledger.now_s, self._ledger.ticks))
        for name in ("FifteenMinuteRate", "FiveMinuteRate", "MeanRate", "OneMinuteRate"):
            share = float(attributes[name]) / 1e9  # type: ignore[arg-type]
            attributes[name] = min(1.0, share) if self._ledger.ticks else 1.0
        return attributes

    def own(self) -> MBeans:
        """Yield klamm's own."""
        server = self._server
        yield from gauges("klamm", "EventLoop", {
            "LagMs": server.loop_lag.lag_ms_last,
            "MaxLagMs": server.loop_lag.lag_ms_max,
        })  # fmt: skip
        for generation, timer in self._gc_times.items():
            attributes = timer.attributes(self._ledger.now_s, self._ledger.ticks)
            yield MBean("klamm", "GarbageCollection", "Pauses", (("generation", str(generation)),), attributes)
        used, limit = _descriptors()
        yield from gauges("klamm", "Process", {
            "CpuSeconds": time.process_time(),
            "MaxOpenFiles": limit,
            "OpenFiles": used,
            "ResidentBytes": _resident_bytes(),
            "UptimeSeconds": self._ledger.now_s - self._ledger.since_s,
        })  # fmt: skip
        yield MBean("klamm", "info", None, (("version", VERSION),), {"info": 1})
        yield from gauges("klamm", "OffloadedWork", {"Waiting": server.offloader.waiting})


def _disk_bytes() -> tuple[int, int]:
    """Return what this process has read from disks and written to them; zeros where the system does not report them."""
    try:
        text = Path("/proc/self/io").read_text()
    except OSError:
        return 0, 0
    counters = dict(line.split(": ") for line in text.splitlines())
    return int(counters.get("read_bytes", 0)), int(counters.get("write_bytes", 0))


def _descriptors() -> tuple[int, int]:
    """Return how many descriptors are open, and the limit; -1 where the system does not report it."""
    try:
        return sum(1 for _ in Path("/proc/self/fd").iterdir()), descriptor_limit()
    except OSError:
        return -1, descriptor_limit()


def _resident_bytes() -> int:
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return -1
