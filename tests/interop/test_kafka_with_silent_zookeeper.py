"""ZooKeeper hangs or is gone under Apache Kafka: klamm shows what brokers know, and leaves them able to answer."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from apache_kafka import KAFKA_VERSION, ApacheKafkaBroker, SharedJvm
from kafka_cluster import kafka_cluster
from klamm_program import in_process, klamm

from engine.admin.cluster.settings_silence import DEAD_ZOOKEEPER

Capture = pytest.CaptureFixture[str]


class Silenced:
    """Two Kafka brokers, and a ZooKeeper that answers nothing, or refuses connections."""

    def __init__(self, brokers: Sequence[ApacheKafkaBroker], zookeeper: str, plan: Path) -> None:
        self.each = [broker.bootstrap for broker in brokers]
        self.by_wire = ("-b", ",".join(broker.bootstrap for broker in brokers))
        self.by_both = (*self.by_wire, "--zookeeper", zookeeper)
        self.plan = ("--reassignment-json-file", f"{plan}")


@pytest.fixture(scope="module", params=["frozen", "killed"])
def silenced(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Silenced]:
    folder = tmp_path_factory.mktemp("silent-zookeeper")
    settings = {
        "auto.leader.rebalance.enable": "false",
        "controlled.shutdown.enable": "false",
        "offsets.topic.replication.factor": "2",
        # Brokers that hear nothing from ZooKeeper stay in the cluster during the test.
        "zookeeper.session.timeout.ms": "120000",
    }
    with SharedJvm(KAFKA_VERSION) as jvm, kafka_cluster(folder, 2, 21092, settings, shares_jvm=jvm) as running:
        brokers, zookeeper = running.brokers, running.server
        plan = folder / "plan.json"
        partition = {"topic": "kept", "partition": 0, "replicas": [1, 0]}
        plan.write_text(json.dumps({"version": 1, "partitions": [partition]}))
        made = Silenced(brokers, zookeeper.connect_string, plan)
        words = ("topics", "create", "kept", "--replica-assignment", "0:1", *made.by_wire)
        assert klamm(*words, folder=folder).code == 0
        assert klamm("produce", "kept", *made.by_wire, folder=folder, stdin="a\nb\n").code == 0
        words = ("groups", "reset-offsets", "--group", "g", "--topic", "kept", "--to-latest", "--execute", "--yes")
        assert klamm(*words, *made.by_wire, folder=folder).code == 0
        if request.param == "frozen":
            zookeeper.pause()
        else:
            zookeeper.kill()
        try:
            yield made
        finally:
            zookeeper.resume()
            # Brokers would wait for a ZooKeeper that is gone.
            jvm.kill()


READERS = {
    "topics list": 0,
    "topics describe kept": 0,
    "elect preferred --all-topic-partitions --dry-run": 0,
    "reassign list": 0,
    "reassign verify --all": 0,
    "brokers list": 0,
    "brokers describe": 0,
    "brokers log-dirs": 0,
    "groups list": 0,
    "offsets kept": 0,
    "cluster describe": 0,
    "cluster load": 0,
    "replicas verify --topic kept": 0,
    "plan leaders": 0,
    "cluster health": 1,
    "configs describe --topic kept": 3,
}
"""The commands with their exit codes. Together they would ask for settings more often than a broker has threads."""


def test_readers_have_their_verdicts_and_leave_the_brokers_able_to_answer(silenced: Silenced, capsys: Capture) -> None:
    for words, code in READERS.items():
        ran = in_process(*words.split(), *silenced.by_both, "-o", "json", "--timeout", "60", capture=capsys)
        assert ran.code == code, (words, ran.err)
        assert "no answer within" not in ran.err, (words, ran.err)
    watched = in_process("topics", "describe", "kept", *silenced.by_wire, "--timeout", "10", capture=capsys)
    assert (watched.code, "settings of 1 topic are not known: no answer within 2 s" in watched.err) == (0, True)


DRY_RUNS = {
    "topics create new --partitions 1 --replication-factor 1": 3,
    "topics delete kept": 0,
    "topics alter kept --partitions 3 --yes": 3,
    "configs alter --topic kept --add-config retention.ms=2h --yes": 3,
    "brokers demote 0": 0,
    "records delete --topic kept --partition 0 --before-offset 1": 0,
    "groups reset-offsets --group g --topic kept --to-earliest": 0,
    "elect preferred --all-topic-partitions": 0,
    "reassign cancel --all": 0,
}
"""The commands with their exit codes: 3 where a broker would have to ask ZooKeeper."""


def test_dry_runs_keep_no_thread_of_a_broker(silenced: Silenced, capsys: Capture, tmp_path: Path) -> None:
    by_plan = {" ".join(("reassign", "execute", *silenced.plan)): 0}
    assert len(by_plan | DRY_RUNS) == 10, "more than a broker has threads"
    for words, code in (by_plan | DRY_RUNS).items():
        ran = in_process(*words.split(), "--dry-run", *silenced.by_both, "-o", "json", capture=capsys)
        assert ran.code == code, (words, ran.err)
        assert "no answer within" not in ran.err, (words, ran.err)
        if code == 3:
            assert ran.error["message"] == DEAD_ZOOKEEPER, (words, ran.err)
            assert "--via wire asks the brokers all the same" in ran.error["hint"]
    for broker in silenced.each:
        listed = in_process("topics", "list", "-b", broker, capture=capsys)
        assert (listed.code, listed.out.split()[0]) == (0, "__consumer_offsets"), listed.err
        # The broker would have to ask ZooKeeper for a producer id.
        produced = in_process("produce", "kept", "--no-idempotence", "-b", broker, stdin="c\n", capture=capsys)
        assert produced.code == 0, produced.err


def test_where_the_controller_hangs_too_it_is_named_soon(silenced: Silenced, capsys: Capture, tmp_path: Path) -> None:
    way_back = ("--rollback-file", f"{tmp_path / 'back.json'}")
    words = ("reassign", "execute", *silenced.plan, "--timeout", "3", "--yes", "--no-wait", *way_back)
    begun = in_process(*words, *silenced.by_wire, capture=capsys)
    assert begun.code == 5, begun.err
    for words in (("list",), ("verify", "--all")):
        ran = in_process("reassign", *words, *silenced.by_both, "-o", "json", "--timeout", "60", capture=capsys)
        assert (ran.code, ran.out) == (3, ""), ran.err
        assert "no answer within 8 s: broker " in ran.error["message"], ran.err
        assert "the controller" in ran.error["message"]
    ran = in_process("brokers", "describe", *silenced.by_both, "-o", "json", "--timeout", "60", capture=capsys)
    assert [(broker["id"], broker["partitions"]["held"]) for broker in ran.json] == [(0, 6), (1, 6)], ran.err
    assert "reassignments are not known: no answer within 5 s: broker " in ran.err
