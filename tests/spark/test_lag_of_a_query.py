"""A real query reads from our brokers: checkpoint, event log and listener agree with its own report, batch by batch.

``klamm groups`` shows what is committed for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from guest_cluster import GuestCluster
from klamm_program import Program, in_process
from patience import wait_for
from query_ways import Ends, all_ways_agree, produce, start

from engine.admin.lag.spark_positions import BATCHES_MAX
from engine.common.model import TopicPartition
from engine.local.cluster import LocalCluster
from engine.local.zookeeper import EmbeddedZooKeeper

TOPIC = "orders"


@pytest.fixture
def listener(spark: Any, tmp_path: Path, live_cluster: LocalCluster) -> Iterator[Path]:
    """The folder that klamm's listener writes into; it also commits to a group per query."""
    from klamm.spark_listener import LagListener

    lag_listener = LagListener(
        tmp_path / "told",
        group="mirror-{query}",
        bootstrap_servers=live_cluster.bootstrap_servers,
        commit_interval_s=0.2,
    )
    spark.streams.addListener(lag_listener)
    try:
        yield tmp_path / "told"
    finally:
        spark.streams.removeListener(lag_listener)
        lag_listener.close()


def test_all_ways_agree_with_the_query_at_every_batch(
    spark: Any, program: Program, listener: Path, topic_name: str, live_cluster: LocalCluster, tmp_path: Path
) -> None:
    servers, checkpoint = live_cluster.bootstrap_servers, tmp_path / "checkpoint"
    produce(servers, topic_name, 100)
    query = start(spark, servers, topic_name, topic_name, checkpoint, maxOffsetsPerTrigger=40)
    try:
        for _ in range(3):
            query.processAllAvailable()
            produce(servers, topic_name, 30)
        query.processAllAvailable()
        own = all_ways_agree(spark, query, program, checkpoint, listener)
        assert len(own) >= 5
        assert own[max(own)] == {TopicPartition(topic_name, 0): 95, TopicPartition(topic_name, 1): 95}
    finally:
        query.stop()
    _lag_while_it_stands_still(program, topic_name, servers, checkpoint, listener)


def _lag_while_it_stands_still(program: Program, topic: str, servers: str, checkpoint: Path, listener: Path) -> None:
    produce(servers, topic, 20)
    ran = program("lag", "--checkpoint", checkpoint, "--event-log", listener, "-o", "json")
    assert [row["lag"] for row in ran.json] == [20]

    def mirrored() -> list[tuple[int, int]]:
        ran = program("groups", "describe", "--group", f"mirror-{topic}", "-o", "json")
        return (
            [(partition["current_offset"], partition["lag"]) for partition in ran.json[0]["partitions"]]
            if ran.code == 0
            else []
        )

    wait_for(lambda: mirrored() == [(95, 10), (95, 10)], "what the listener had committed")
    ran = program("spark", "commit", checkpoint, "--group", f"{topic}-once", "-o", "json", "--yes")
    assert (ran.code, [(row["new_offset"], row["result"]) for row in ran.json]) == (0, [(95, "reset")] * 2)
    shown = program("groups", "describe", "--group", f"{topic}-once", "-o", "json").json[0]["partitions"]
    assert [(row["current_offset"], row["lag"]) for row in shown] == [(95, 10)] * 2
    (job,) = program("spark", "jobs", checkpoint, "-o", "json").json
    assert (job["path"], job["lag"], job["sources"]) == (
        str(checkpoint),
        20,
        [{"source": "0", "topics": [topic], "partition_count": 2}],
    )
    assert job["last_commit"] is not None


def test_all_ways_agree_while_brokers_are_killed(
    zookeeper: EmbeddedZooKeeper,
    spark: Any,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each of three brokers dies in turn, including the controller, while the query processes batches."""
    from klamm.spark_listener import LagListener

    checkpoint, output_path = tmp_path / "checkpoint", tmp_path / "told"
    settings = {"auto.leader.rebalance.enable": "false", "controlled.shutdown.retry.backoff.ms": "100"}
    monkeypatch.chdir(tmp_path)

    def program(*words: str | Path) -> Any:
        return in_process(*words, capture=capsys)

    def in_sync() -> list[int]:
        (topic,) = program("topics", "describe", TOPIC, "-o", "json").json
        return [len(partition["isr"]) for partition in topic["partitions"]]

    with GuestCluster(zookeeper, 3, directory=tmp_path / "cluster", config=settings) as cluster:
        servers = cluster.bootstrap_servers
        monkeypatch.setenv("KLAMM_BOOTSTRAP_SERVER", servers)
        words = ("--partitions", "2", "--replication-factor", "3")
        assert program("topics", "create", TOPIC, *words).code == 0
        with closing(LagListener(output_path)) as listener:
            spark.streams.addListener(listener)
            query = start(spark, servers, TOPIC, TOPIC, checkpoint, maxOffsetsPerTrigger=40)
            own: Ends = {}
            try:
                for number, victim in enumerate(cluster.broker_ids, 1):
                    before = _read_of(query)
                    produce(servers, TOPIC, 120)
                    wait_for(lambda before=before: _read_of(query) > before, "the query reads")  # type: ignore[misc]
                    cluster.kill_broker(victim)
                    produce(servers, TOPIC, 40)
                    query.processAllAvailable()
                    seen, own = len(own), all_ways_agree(spark, query, program, checkpoint, output_path)
                    assert len(own) - seen <= BATCHES_MAX, "so none went unchecked"
                    assert sum(own[max(own)].values()) == number * 160
                    cluster.start_broker(victim)
                    wait_for(lambda: in_sync() == [3, 3], "the next one may die")
            finally:
                query.stop()
                spark.streams.removeListener(listener)
    assert len(own) >= 3 * 160 // 40


def _read_of(query: Any) -> int:
    return sum(progress["numInputRows"] for progress in query.recentProgress)
