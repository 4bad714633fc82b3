"""All metrics of a running broker: asks each part for its figures when they are read, and ticks the meters.

Every MBean that Kafka 3.9 registers has its counterpart here, under the same name with the same attributes. Where a
thing has no meaning in this broker the value is the nearest true one; ``docs/reference/broker-metrics.md`` says which.
"""

from __future__ import annotations

from collections.abc import Iterator

from engine.broker.metrics.mbean import MBean, MBeans, gauges
from engine.broker.metrics.measures import TICK_S, Ledger
from engine.broker.metrics.prometheus import PrometheusPage, SeriesPlans
from engine.broker.server.figures.cluster import ClusterFigures
from engine.broker.server.figures.measured import MeasuredBroker
from engine.broker.server.figures.network import NetworkFigures
from engine.broker.server.figures.process import CLIENTS_SHOWN_MAX, ProcessFigures
from engine.broker.server.figures.replicas import ReplicaFigures
from engine.broker.server.figures.requests import SAMPLE_S, RequestFigures
from engine.common.windowed_rate import METRICS_WINDOW, Window
from engine.runtime.turns import Breather

PLANS_MAX = 20_000
"""From this many on, the names of series are computed again: clients and followers come and go."""


class BrokerMetrics:
    """The figures of one broker. It belongs to the broker's event loop."""

    def __init__(self, server: MeasuredBroker, window: Window = METRICS_WINDOW) -> None:
        self._server = server
        self._seconds = 0
        self._plans: SeriesPlans = {}
        self._ledger = ledger = Ledger(window)
        self._process = ProcessFigures(server, ledger)
        self._requests = RequestFigures(server, ledger)
        self._network = NetworkFigures(server, ledger, self._process)
        self._replicas = ReplicaFigures(server, ledger)
        self._cluster = ClusterFigures(server, ledger)

    def start(self) -> None:
        self._server.supervisor.every(SAMPLE_S * 1000, self._sample, "metrics")
        self._cluster.start()
        self._process.start()

    async def stop(self) -> None:
        """Let go of what belongs to the process."""
        self._process.stop()

    async def _sample(self) -> None:
        """Take in the newest requests; every few seconds bring all rates up to date."""
        # First: what is noted until then takes memory, and anything else may fail.
        self._requests.fold()
        self._server.replica_manager.environment.topics.fold()
        now_s = self._ledger.now_s
        breather = Breather()
        self._cluster.take_latencies(now_s)
        await self._requests.sample(now_s, breather)
        self._seconds += SAMPLE_S
        if self._seconds % TICK_S == 0:
            await self._tick(now_s, breather)

    async def _tick(self, now_s: float, breather: Breather) -> None:
        self._ledger.ticks += 1
        self._process.count()
        self._count(now_s)
        for part in (self._ledger, self._process, self._requests, self._network, self._cluster):
            part.tick()
        replicas = self._server.replica_manager
        topics = replicas.environment.topics
        topics.forget_all_but({topic_partition.topic for topic_partition in replicas.partitions})
        for partition in list(replicas.partitions.values()):
            partition.count_skipped()
            await breather.give_way()
        for _ in topics.tick(self._ledger.ticks, now_s):
            await breather.give_way()

    def _count(self, now_s: float) -> None:
        """Bring meters and rates to what other parts have counted."""
        self._requests.count(now_s)
        self._network.count(now_s)

    async def page(self) -> PrometheusPage:
        """Return all figures as Prometheus reads them. To write out its pieces, some megabytes, is for a thread."""
        page = PrometheusPage(self._plans)
        breather = Breather()
        for _ in self._look(page):
            await breather.give_way()
        for mbean in self._few(CLIENTS_SHOWN_MAX):
            page.add(mbean)
            await breather.give_way()
        if len(self._plans) > PLANS_MAX:
            self._plans.clear()
        return page

    async def collect(self, *, with_partitions: bool) -> list[MBean]:
        """Return every MBean; those of single partitions, very many, only with ``with_partitions``."""
        mbeans = []
        breather = Breather()
        for _ in self._look(PrometheusPage()):
            await breather.give_way()
        for mbean in self._all(with_partitions=with_partitions):
            mbeans.append(mbean)
            await breather.give_way()
        return mbeans

    def _look(self, page: PrometheusPage) -> Iterator[None]:
        """Read what there is very much of, in pieces."""
        yield from self._replicas.look(page)
        yield from self._cluster.look()

    def _all(self, *, with_partitions: bool) -> MBeans:
        yield from self._few(None)
        yield from self._replicas.topics()
        if with_partitions:
            yield from self._replicas.partitions()

    def _few(self, clients_max: int | None) -> MBeans:
        """Yield all but those of single topics and partitions; of each quota ``clients_max`` clients."""
        self._count(self._ledger.now_s)
        named, windowed = self._replicas.of_singles, 0
        for mbean in self._parts(clients_max):
            if mbean.domain != "klamm":
                named += mbean.name is not None
                windowed += len(mbean.attributes) if mbean.name is None else 0
            yield mbean
        yield from gauges("kafka.server", "KafkaServer", {"yammer-metrics-count": named + 1})
        yield MBean("kafka.server", "kafka-metrics-count", None, (), {"count": windowed + 1.0})

    def _parts(self, clients_max: int | None) -> MBeans:
        yield from self._process.of_broker(clients_max)
        yield from self._requests.mbeans()
        yield from self._network.network()
        yield from self._network.channels()
        yield from self._cluster.zookeeper()
        yield from self._replicas.replicas()
        yield from self._replicas.fetchers()
        yield from self._cluster.controller()
        yield from self._cluster.coordinators()
        yield from self._replicas.logs()
        yield from self._replicas.all_topics()
        yield from self._process.own()
