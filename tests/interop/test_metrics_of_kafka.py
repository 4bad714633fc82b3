"""``klamm brokers metrics`` of genuine brokers: by JMX, by Jolokia's agent, from the JMX exporter's page."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from apache_kafka import fetch_jar
from golden import check_json
from kafka_cluster import kafka_cluster
from klamm_program import Ran, in_process
from metric_work import COUNTED, counted_work
from patience import within

from engine.admin.brokers.metrics import Teller
from engine.admin.cluster.target import ClusterTarget, Origin, parse_addresses
from engine.admin.watch.frame import Frame, Stage
from engine.admin.watch.live_feed import LiveFeed
from engine.local.addresses import own_loopback_address
from engine.local.jmx import read_jmx
from engine.local.zookeeper import EmbeddedZooKeeper

EXPORTER = "io.prometheus.jmx:jmx_prometheus_javaagent:1.0.1"
JOLOKIA = "org.jolokia:jolokia-agent-jvm:2.1.1:jar:javaagent"
PORTS, JMX, PAGE, AGENT = (21192, 21193), 21194, 21190, 21191
BESIDE = "2119{id}"
"""PAGE or AGENT, by the broker."""
RULES = r"""
rules:
  - pattern: kafka.(\w+)<type=(.+), name=(.+)PerSec\w*, (.+)=(.+)><>Count
    name: kafka_$1_$2_$3_total
    type: COUNTER
    labels: {"$4": "$5"}
  - pattern: kafka.(\w+)<type=(.+), name=(.+)PerSec\w*><>Count
    name: kafka_$1_$2_$3_total
    type: COUNTER
  - pattern: kafka.(\w+)<type=(.+), name=(.+)><>Value
    name: kafka_$1_$2_$3
  - pattern: kafka.(\w+)<type=(.+), name=(.+), (.+)=(.+)><>Count
    name: kafka_$1_$2_$3_count
    type: COUNTER
    labels: {"$4": "$5"}
  - pattern: kafka.(\w+)<type=(.+), name=(.+), (.+)=(.+)><>(\d+)thPercentile
    name: kafka_$1_$2_$3
    labels: {"$4": "$5", quantile: "0.$6"}
  - pattern: kafka.(\w+)<type=(.+), name=(.+)><>Count
    name: kafka_$1_$2_$3_count
    type: COUNTER
"""
"""The JMX exporter's usual rules for Kafka, in short."""


class Watched:
    """Two brokers with a topic of 30 records, watched in three ways."""

    def __init__(self, zookeeper: str, bootstrap: str) -> None:
        self.zookeeper, self.bootstrap = zookeeper, bootstrap

    def read(self, capture: pytest.CaptureFixture[str], *words: str) -> list[dict[str, Any]]:
        ran = self.run(capture, *words, "--timeout", "90", "-o", "json")
        assert ran.code == 0, ran.out
        check_json("brokers metrics", ran)
        rows: list[dict[str, Any]] = ran.json
        return rows

    def run(self, capture: pytest.CaptureFixture[str], *words: str) -> Ran:
        return in_process("brokers", "metrics", *words, capture=capture)


@pytest.fixture(scope="module")
def watched(zookeeper: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    folder, host = tmp_path_factory.mktemp("watched"), own_loopback_address()
    (folder / "rules.yaml").write_text("lowercaseOutputName: true\n" + RULES)
    agents = (
        f"{fetch_jar(EXPORTER)}={host}:{PAGE}:{folder / 'rules.yaml'}",
        f"{fetch_jar(JOLOKIA)}=host={host},port={AGENT}",
    )
    each = [{"jmx_port": JMX + number, "agent": agent} for number, agent in enumerate(agents)]
    with kafka_cluster(
        folder, 2, PORTS[0], {}, host=host, chroot="/kafka", each=each, shares_jvm=False, zookeeper=zookeeper
    ) as running:
        counted_work(running.brokers[0].bootstrap)
        yield Watched(running.zookeeper, running.brokers[0].bootstrap)


def topic_total(found: list[dict[str, Any]], figure: str) -> float:
    """Return what the brokers have counted of the topic together."""
    topics = [topic for broker in found for topic in broker["topics"] if topic["topic"] == COUNTED]
    return float(sum(topic[figure]["total"] or 0 for topic in topics))


def test_by_jmx_at_the_port_in_zookeeper(watched: Watched, capsys: pytest.CaptureFixture[str]) -> None:
    is_in_time = within(30)
    while True:
        figures = watched.read(capsys, "--zookeeper", watched.zookeeper, "--requests", "--topics")
        # Kafka counts how idle it is from its first tick on, which comes after five seconds.
        if all(broker["idle_percent"] for broker in figures):
            break
        assert is_in_time(), figures
    assert [(broker["broker"], broker["source"]) for broker in figures] == [(0, "jmx"), (1, "jmx")]
    for broker in figures:
        assert all(broker["bytes_in"][span] is not None for span in ("one_minute", "five_minutes", "fifteen_minutes"))
        assert 0 < broker["idle_percent"] <= 100
        assert broker["under_replicated"] == 0 and broker["isr_shrinks"]["total"] is not None
        assert broker["produce_throttle_ms"] is not None and broker["fetch_throttle_ms"] is not None
        assert any(request["count"] and request["p99_ms"] is not None for request in broker["requests"])
    assert topic_total(figures, "messages_in") > 0


def test_three_ways_tell_the_same_counts(watched: Watched, capsys: pytest.CaptureFixture[str]) -> None:
    ways = {
        "jmx": watched.read(capsys, "--zookeeper", watched.zookeeper, "--topics"),
        "prometheus": watched.read(
            capsys, "0", "-b", watched.bootstrap, "--topics", "--metrics-url", f"http://{{host}}:{PAGE}/metrics"
        ),
        "jolokia": watched.read(
            capsys, "1", "-b", watched.bootstrap, "--topics", "--metrics-url", f"http://{{host}}:{AGENT}/jolokia/"
        ),
    }
    by_jmx = {broker["broker"]: broker for broker in ways["jmx"]}
    for way, broker in (("prometheus", 0), ("jolokia", 1)):
        (count,) = ways[way]
        assert count["source"] == way
        for figure in ("messages_in", "bytes_in", "bytes_out", "isr_shrinks", "isr_expands"):
            assert count[figure]["total"] == by_jmx[broker][figure]["total"], (way, figure)
        for figure in ("idle_percent", "produce_p99_ms", "fetch_p99_ms", "under_replicated"):
            assert count[figure] is not None, (way, figure)
        assert topic_total([count], "messages_in") == topic_total([by_jmx[broker]], "messages_in")
    (counted,) = ways["prometheus"]
    assert counted["bytes_in"]["one_minute"] is None and counted["bytes_in"]["measured"] == 0.0
    assert ways["jolokia"][0]["bytes_in"]["one_minute"] is not None


@pytest.mark.parametrize(
    ("broker", "pattern", "teller"),
    [
        (0, None, Teller.JMX),
        (0, f"http://{{host}}:{BESIDE}/metrics", Teller.PROMETHEUS),
        (1, f"http://{{host}}:{BESIDE}/jolokia/", Teller.JOLOKIA),
    ],
    ids=lambda told_by: str(told_by) if isinstance(told_by, Teller) else "",
)
def test_a_dashboard_reads_them_again_and_again(
    watched: Watched, broker: int, pattern: str | None, teller: Teller
) -> None:
    async def read() -> Frame:
        target = ClusterTarget(
            "kafka", Origin.OPTIONS, watched.zookeeper, parse_addresses(watched.bootstrap), metrics=pattern
        )
        feed = LiveFeed(target, interval_s=0.5, read_jmx=read_jmx)
        await feed.start()
        try:
            async with asyncio.timeout(60):
                async for frame in feed.frames():
                    figures = frame.figures.get(broker)
                    # Broker 1 leads no partition of the topic.
                    has_traffic = COUNTED in frame.traffic or broker == 1
                    if figures is not None and figures.bytes_in.now is not None and has_traffic:
                        return frame
                    if figures is not None:
                        # A page tells counts only: rates come with the next reading.
                        feed.refresh([Stage.METRICS])
        finally:
            await feed.close()
        raise AssertionError("the feed ended")

    of_broker = asyncio.run(read()).figures[broker]
    assert (of_broker.told_by, of_broker.trouble) == (teller, None)
    figures = (
        of_broker.bytes_out.now,
        of_broker.handler_idle_percent,
        of_broker.produce_p99_ms,
        of_broker.fetch_p99_ms,
        of_broker.throttle_ms,
    )
    assert None not in figures, of_broker


def test_brokers_alone_do_not_tell_where(watched: Watched, capsys: pytest.CaptureFixture[str]) -> None:
    ran = watched.run(capsys, "-b", watched.bootstrap, "-o", "json")
    assert ran.code == 1
    assert [broker["source"] for broker in ran.json] == [None, None]
    assert "a JMX port would stand in ZooKeeper" in ran.json[0]["reason"]
    assert "--metrics-url" in ran.err


def test_a_port_where_nobody_speaks_jmx(watched: Watched, capsys: pytest.CaptureFixture[str]) -> None:
    ran = watched.run(
        capsys, "0", "-b", watched.bootstrap, "--metrics-url", f"jmx://{{host}}:{PAGE}", "--timeout", "15", "-o", "json"
    )
    assert ran.code == 1
    assert all(broker["reason"] for broker in ran.json), ran.out


def test_tls_to_a_port_without_it(watched: Watched, capsys: pytest.CaptureFixture[str]) -> None:
    ran = watched.run(
        capsys, "0", "-b", watched.bootstrap, "--metrics-url", f"jmxs://{{host}}:{JMX}", "--timeout", "15", "-o", "json"
    )
    assert (ran.code, ran.json[0]["reason"]) == (
        1,
        "what listens there does not speak TLS: write jmx:// instead of jmxs://",
    )


def test_load_with_rates_by_jmx(watched: Watched, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("cluster", "load", "--rates", "--zookeeper", watched.zookeeper, "--timeout", "90", "-o", "json")
    ran = in_process(*words, capture=capsys)
    assert (ran.code, "not known" in ran.err) == (0, False), ran.err
    check_json("cluster load", ran)
    assert not [
        broker for broker in ran.json for name in ("messages_in_rate", "bytes_out_rate") if broker[name] is None
    ]


def test_who_is_held_back_for_a_quota(watched: Watched, capsys: pytest.CaptureFixture[str]) -> None:
    by_wire = ("-b", watched.bootstrap)
    limit = in_process("quotas", "set", "--client", "greedy", "--producer-byte-rate", "2k", *by_wire, capture=capsys)
    assert limit.code == 0, limit.err
    is_in_time = within(90)
    owner: dict[str, Any] = {}
    # Both figures fade within seconds.
    while not (owner.get("used") and owner.get("throttled_ms")):
        assert is_in_time(), owner
        producing = (
            "perf", "producer", "--topic", COUNTED, "--num-records", "40", "--record-size", "1000",
            "--throughput", "-1", "--producer-props", "client.id=greedy", "acks=1",
        )  # fmt: skip
        assert in_process(*producing, *by_wire, capture=capsys).code == 0
        ran = in_process("quotas", "usage", "--zookeeper", watched.zookeeper, "-o", "json", capture=capsys)
        assert ran.code == 0, ran.err
        check_json("quotas usage", ran)
        is_owner = {"client_id": "greedy", "broker": 0, "quota": "producer_byte_rate"}.items()
        owner = next((usage for usage in ran.json if is_owner <= usage.items()), {})
    assert (owner["user"], owner["limit"]) == (None, 2000.0)
