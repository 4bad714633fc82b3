"""``klamm brokers metrics`` of a running cluster of ours, whose brokers say where they serve their metrics."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from golden import check_json, paths_in
from guest_cluster import GuestCluster
from klamm_program import in_process
from patience import wait_for, within

from engine.local.cluster import LocalCluster
from engine.local.zookeeper import EmbeddedZooKeeper

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def measured(zookeeper: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Two brokers that serve metrics."""
    folder: Path = tmp_path_factory.mktemp("measured")
    with GuestCluster(zookeeper, 2, directory=folder, metrics=True) as cluster:
        yield cluster


def test_every_side_tells_what_was_produced(measured: LocalCluster, capsys: Capture) -> None:
    by_wire = ("-b", measured.bootstrap_servers)
    made = in_process("topics", "create", "traffic", "--replica-assignment", "0:1,1:0", *by_wire, capture=capsys)
    assert made.code == 0, made.err
    for partition, count in enumerate((3, 4)):
        lines = "some text\n" * count
        sent = in_process("produce", "traffic", "--partition", str(partition), *by_wire, capture=capsys, stdin=lines)
        assert sent.code == 0, sent.err
    for side in (by_wire, ("--zookeeper", measured.zookeeper_connect)):
        ran = in_process("brokers", "metrics", "--topics", "--requests", *side, "-o", "json", capture=capsys)
        assert ran.code == 0, ran.err
        check_json("brokers metrics", ran)
        named = in_process("brokers", "metrics", "--topics", "--requests", *side, "-o", "csv", capture=capsys)
        assert set(named.out.splitlines()[0].split(",")) <= paths_in(ran.json)
        totals = [
            topic["messages_in"]["total"]
            for broker in ran.json
            for topic in broker["topics"]
            if topic["topic"] == "traffic"
        ]
        assert totals == [3, 4]
        for broker in ran.json:
            assert (broker["source"], broker["reason"], broker["under_replicated"]) == ("jolokia", None, 0)
            assert broker["idle_percent"] > 0 and broker["produce_throttle_ms"] is not None
            assert "Produce" in {request["api"] for request in broker["requests"]}

    def rates() -> list[float | None]:
        ran = in_process("brokers", "metrics", *by_wire, "-o", "json", capture=capsys)
        assert ran.code == 0, ran.err
        return [broker["messages_in_per_s"] for broker in ran.json]

    wait_for(lambda: all(rates()), "each broker has a rate")


def test_followers_that_find_nothing_new_are_counted_all_the_same(measured: LocalCluster) -> None:
    page = measured.status().brokers[0].metrics
    assert page is not None

    def fetches() -> float:
        with urllib.request.urlopen(page, timeout=30) as answer:
            text = answer.read().decode()
        total = re.search(
            r'^kafka_server_brokertopicmetrics_totalfetchrequests_total{topic="traffic"} (.+)$', text, re.M
        )
        return float(total[1]) if total else 0.0

    # The first of them may still have news.
    wait_for(lambda: fetches() > 0, "a follower has fetched")
    first = fetches()
    wait_for(lambda: fetches() > first + 10, "its fetches of an idle topic count")


def test_a_person_sees_columns_and_the_largest_topics(measured: LocalCluster, capsys: Capture) -> None:
    by_wire = ("-b", measured.bootstrap_servers)
    ran = in_process("brokers", "metrics", "1", "--requests", *by_wire, "-o", "table", capture=capsys)
    assert ran.code == 0, ran.err
    for heading in ("Messages/s", "In/s", "Out/s", "Idle %", "Produce p99", "throttled", "ISR shrinks", "Request"):
        assert heading in ran.out, ran.out
    first = next(line for line in ran.out.splitlines() if "jolokia" in line)
    assert first.split()[0] == "1"


def test_a_profiles_page_of_klamm_tells_rates(measured: LocalCluster, capsys: Capture) -> None:
    port = measured.status().brokers[0].metrics.rpartition(":")[2]  # type: ignore[union-attr]
    url = f"http://{{host}}:{port}"
    ran = in_process(
        "brokers", "metrics", "0", "-b", measured.bootstrap_servers, "--metrics-url", url, "-o", "json", capture=capsys
    )
    assert (ran.code, ran.json[0]["source"]) == (0, "jolokia"), ran.err
    assert ran.json[0]["bytes_in"]["one_minute"] is not None


def test_who_does_not_tell_has_a_reason(measured: LocalCluster, capsys: Capture) -> None:
    by_wire = ("-b", measured.bootstrap_servers)
    ran = in_process(
        "brokers", "metrics", *by_wire, "--metrics-url", "http://{host}:1{id}/metrics", "-o", "json", capture=capsys
    )
    assert ran.code == 1
    assert all("cannot connect" in broker["reason"] and broker["bytes_in"]["total"] is None for broker in ran.json)
    unknown = in_process("brokers", "metrics", "7", *by_wire, capture=capsys)
    assert (unknown.code, "live brokers: 0, 1" in unknown.err) == (2, True), unknown.err
    wrong = in_process("brokers", "metrics", *by_wire, "--metrics-url", "http://k1:7071/metrics", capture=capsys)
    assert (wrong.code, "{host}" in wrong.err) == (2, True), wrong.err


def test_a_broker_without_a_listener_says_so(live_cluster: LocalCluster, capsys: Capture) -> None:
    for side, why in (
        (("-b", live_cluster.bootstrap_servers), "would stand in ZooKeeper"),
        (("--zookeeper", live_cluster.zookeeper_connect), "no JMX port"),
    ):
        ran = in_process("brokers", "metrics", *side, "-o", "json", capture=capsys)
        assert (ran.code, why in ran.json[0]["reason"], "--metrics-url" in ran.err) == (1, True, True), ran.err


def test_who_is_held_back_for_a_quota(measured: LocalCluster, capsys: Capture) -> None:
    by_wire = ("-b", measured.bootstrap_servers)
    nobody = in_process("quotas", "usage", *by_wire, "-o", "json", capture=capsys)
    assert (nobody.code, nobody.json) == (0, []), nobody.err
    assert "no quota is set, so no client is limited" in nobody.err
    nowhere = ("--metrics-url", "http://{host}:1{id}/metrics")
    silent = in_process("quotas", "usage", *by_wire, *nowhere, "-o", "json", capture=capsys)
    assert (silent.code, silent.json, silent.err) == (0, nobody.json, nobody.err)
    made = in_process("topics", "create", "limited", "--replica-assignment", "0:1", *by_wire, capture=capsys)
    assert made.code == 0, made.err
    limit = in_process("quotas", "set", "--client", "greedy", "--producer-byte-rate", "2k", *by_wire, capture=capsys)
    assert limit.code == 0, limit.err
    is_in_time = within(60)
    while True:
        producing = (
            "perf", "producer", "--topic", "limited", "--num-records", "40", "--record-size", "1000",
            "--throughput", "-1", "--producer-props", "client.id=greedy", "acks=1",
        )  # fmt: skip
        assert in_process(*producing, *by_wire, capture=capsys).code == 0
        for side in (by_wire, ("--zookeeper", measured.zookeeper_connect)):
            ran = in_process("quotas", "usage", *side, "-o", "json", capture=capsys)
            assert ran.code == 0, ran.err
            check_json("quotas usage", ran)
        (mine,) = [usage for usage in ran.json if usage["client_id"] == "greedy"] or [None]
        if mine is not None and mine["throttled_ms"]:
            break
        assert is_in_time(), ran.out
    assert (mine["broker"], mine["user"], mine["quota"], mine["limit"]) == (0, None, "producer_byte_rate", 2000.0)
    assert mine["used"] > 0
    shown = in_process("quotas", "usage", "--broker", "0", *by_wire, "-o", "table", capture=capsys)
    assert "greedy" in shown.out and "throttled: 1" in shown.err
    gone = in_process("quotas", "usage", *by_wire, *nowhere, "-o", "json", capture=capsys)
    assert (gone.code, gone.err.count("cannot connect")) == (1, 2), gone.err
    check_json("quotas usage", gone)
    silent = [(row["broker"], row["quota"], "cannot connect" in row["reason"]) for row in gone.json]
    assert silent == [(0, None, True), (1, None, True)]


def test_load_with_rates(measured: LocalCluster, capsys: Capture, topic_name: str) -> None:
    by_wire = ("-b", measured.bootstrap_servers)
    made = in_process("topics", "create", topic_name, "--replica-assignment", "1:0", *by_wire, capture=capsys)
    assert made.code == 0, made.err
    plain = in_process("cluster", "load", *by_wire, "-o", "json", capture=capsys)
    assert {row["bytes_in_rate"] for row in plain.json} == {None}
    load = ("cluster", "load", topic_name, "--rates", *by_wire)
    is_in_time = within(60)
    while True:
        sent = in_process("produce", topic_name, *by_wire, capture=capsys, stdin="some text\n" * 50)
        assert sent.code == 0, sent.err
        ran = in_process(*load, "-o", "json", capture=capsys)
        assert ran.code == 0, ran.err
        check_json("cluster load", ran)
        if ran.json[1]["messages_in_rate"] > 0:
            break
        assert is_in_time(), ran.out
    assert (ran.json[0]["messages_in_rate"], ran.json[1]["bytes_out_rate"]) == (0, 0)
    assert "Messages/s" in in_process(*load, "-o", "table", capture=capsys).out
    silent = in_process(*load, "--metrics-url", "http://{host}:1{id}/metrics", "-o", "json", capture=capsys)
    assert (silent.code, {row["bytes_in_rate"] for row in silent.json}) == (0, {None})
    assert "the rates of broker 0 are not known: cannot connect" in silent.err
