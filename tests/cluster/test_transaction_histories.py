"""Histories of transactions under faults: what was committed is read, what was aborted is not, nothing stays open.

    KLAMM_TRANSACTION_ROUNDS=500 KLAMM_FAULT_SEED=7 pytest -s tests/cluster/test_transaction_histories.py
    KLAMM_FAULT=kill_coordinator pytest -s tests/cluster/test_transaction_histories.py

Each round has its own topics, and one fault while writers, workers and zombies are at work. The seed decides which
faults come and what is written; their effects differ from run to run. The checker is tried as well: it must notice
each rule that a broker breaks on purpose.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fault_cluster import FaultCluster
from faults import (
    Fault,
    Injected,
    cut_line,
    freeze_broker,
    freeze_controller,
    freeze_zookeeper,
    kill_broker,
    kill_controller,
)
from guest_cluster import GuestCluster
from reassigning import start_reassignment, wait_reassigned
from soak import rounds
from transaction_histories import PARTITIONS, TRANSACTION_TIMEOUT_MS, Clients
from transaction_promises import History, Outcome, Written, violations
from wire_client import create_topic

from engine.common.model import TopicPartition
from engine.common.topic_names import TRANSACTION_STATE_TOPIC
from engine.local.zookeeper import EmbeddedZooKeeper

ROUNDS = rounds("KLAMM_TRANSACTION_ROUNDS", 8)
"""One for each kind of fault."""

SEED = int(os.environ.get("KLAMM_FAULT_SEED", "11"))
SETTINGS = {
    "transaction.state.log.num.partitions": "3",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "offsets.topic.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    # The coordinator's log is compacted all the time, however few transactions a busy machine gets done.
    "transaction.state.log.segment.bytes": "4096",
    "log.cleaner.backoff.ms": "300",
    "log.cleaner.min.cleanable.ratio": "0.01",
}
ALONE = {"transaction.state.log.replication.factor": "1", "transaction.state.log.min.isr": "1"}

pytestmark = pytest.mark.timeout(120 + 120 * ROUNDS)


def kill_coordinator(cluster: FaultCluster, rng: random.Random) -> Injected | None:
    """kill -9 of the broker that coordinates a writer's transactions."""
    states = cluster.states([TRANSACTION_STATE_TOPIC])
    leader = states[TopicPartition(TRANSACTION_STATE_TOPIC, rng.randrange(3))].leader_and_isr.leader
    if leader not in cluster.running:
        return None
    cluster.broker(leader).kill()
    return Injected(f"kill -9 coordinator {leader}", 2, lambda: cluster.local.start_broker(leader))


def reassign_coordinator(cluster: FaultCluster, rng: random.Random) -> Injected | None:
    """Take the replicas of the coordinator's partitions from their leaders, one after the other."""
    assignments = cluster.assignments([TRANSACTION_STATE_TOPIC])
    states = cluster.states([TRANSACTION_STATE_TOPIC])
    before = {partition: assignment.replicas for partition, assignment in assignments.items()}
    for partition, replicas in before.items():
        leader = states[partition].leader_and_isr.leader
        target = {partition: [each for each in replicas if each != leader]}
        start_reassignment(cluster, target)
        wait_reassigned(cluster, target)

    def undo() -> None:
        shuffled = {partition: rng.sample(replicas, len(replicas)) for partition, replicas in before.items()}
        start_reassignment(cluster, shuffled)
        wait_reassigned(cluster, shuffled)

    return Injected("the coordinator is reassigned", 2, undo)


def is_compacted(cluster: FaultCluster) -> bool:
    """Whether each broker has cleaned a partition of the coordinator's."""
    names = [f"{TRANSACTION_STATE_TOPIC} {index} " for index in range(3)]
    checkpoints = [
        (log_dir / "cleaner-offset-checkpoint").read_text()
        for broker in cluster.local.brokers.values()
        for log_dir in broker.spec.log_dirs
    ]
    return all(any(name in line for name in names) for line in checkpoints)


FAULTS: tuple[Fault, ...] = (
    kill_coordinator,
    reassign_coordinator,
    freeze_broker,
    kill_broker,
    freeze_controller,
    cut_line,
    kill_controller,
    freeze_zookeeper,
)
CHOSEN = [fault for fault in FAULTS if fault.__name__ == os.environ.get("KLAMM_FAULT", fault.__name__)]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[FaultCluster]:
    with FaultCluster(tmp_path / "cluster", config=SETTINGS) as made:
        yield made


def test_histories_hold_under_faults(cluster: FaultCluster) -> None:
    print(f"\nKLAMM_FAULT_SEED={SEED}")
    rng = random.Random(SEED)
    for number in range(ROUNDS):
        clients = _clients(cluster.bootstrap, f"in-{number}", f"out-{number}", SEED + number)
        clients.start()
        _wait_for_more(clients, 5)
        fault = CHOSEN[number % len(CHOSEN)](cluster, rng)
        time.sleep(rng.uniform(0.2, 1.5))
        if fault is not None:
            fault.undo()
        cluster.local.wait_until_serving()
        _wait_for_more(clients, 5)
        history = clients.finish()
        context = f"round {number}, {fault and fault.text}: {_counts(history)}"
        print(context, *clients.slow_steps(), dict(sorted(clients.walked.items())), flush=True)
        broken = violations(history)
        if broken or clients.still:
            _tell(clients, cluster)
        assert broken == [], f"{context}; {clients.told[-40:]}"
    cluster.wait_for("the coordinator's log is compacted", lambda: is_compacted(cluster))


@pytest.mark.parametrize(
    ("rule", "noticed"),
    [
        ("a_former_producer_is_not_fenced", "was committed, and"),
        ("an_aborted_transaction_gets_the_marker_of_a_committed_one", "was aborted, and"),
        ("a_marker_is_answered_and_not_written", "the last stable offset stays at"),
        ("any_batch_may_begin_a_transaction", "the last stable offset stays at"),
        ("records_of_open_transactions_are_stable", "which is not in the input"),
        ("", ""),
    ],
)
def test_the_checker_notices_what_a_broker_breaks(
    zookeeper: EmbeddedZooKeeper, rule: str, noticed: str, tmp_path: Path
) -> None:
    program = Path(__file__).with_name("killable_broker.py")
    command = (sys.executable, str(program), str(tmp_path / "order"), *filter(None, [rule]))
    violations_found: list[str] = []
    config, folder = SETTINGS | ALONE, tmp_path / "cluster"
    with GuestCluster(zookeeper, 1, directory=folder, config=config, commands={0: command}) as cluster:
        # Whether the rule matters within two seconds of load is a matter of chance.
        for number in range(5 if rule else 1):
            clients = _clients(cluster.bootstrap_servers, f"in-{number}", f"out-{number}", SEED + number)
            clients.start()
            time.sleep(2.0)
            violations_found = violations(clients.finish(open_s=TRANSACTION_TIMEOUT_MS / 1000 + 2))
            if any(noticed in line for line in violations_found):
                break
    assert any(noticed in line for line in violations_found) if rule else violations_found == [], violations_found


def _tell(clients: Clients, cluster: FaultCluster) -> None:
    """Print what may explain a failure."""
    print(*clients.still, sep="\n")
    for broker_id in cluster.local.broker_ids:
        print(f"== the last lines of broker {broker_id}", *cluster.server_log(broker_id).splitlines()[-100:], sep="\n")


def _clients(bootstrap: str, source: str, target: str, seed: int) -> Clients:
    for topic in (source, target):
        create_topic(bootstrap.split(",")[0], topic, partitions=PARTITIONS, replication_factor=bootstrap.count(",") + 1)
    return Clients(bootstrap, source, target, seed)


def _wait_for_more(clients: Clients, count: int, timeout_s: float = 60.0) -> None:
    wanted, until = clients.committed + count, time.monotonic() + timeout_s
    while clients.committed < wanted:
        assert time.monotonic() < until, f"no more transactions are committed; {clients.told[-10:]}"
        time.sleep(0.05)


def _counts(history: History) -> str:
    outcomes = [transaction.outcome for transaction in history.written]
    read = sum(map(len, history.read.values()))
    return ", ".join(f"{outcomes.count(each)} {each.value}" for each in Outcome) + f", {read} records read"


def _history() -> History:
    """Return a history that keeps every promise."""
    return History(
        [
            Written("a/0", {0: ["a/0/0"], 1: ["a/0/1"]}, Outcome.COMMITTED),
            Written("a/1", {0: ["a/1/0"]}, Outcome.ABORTED),
            Written("a/2", {0: ["a/2/0", "a/2/1"]}, Outcome.UNKNOWN),
        ],
        {0: ["a/0/0", "a/2/0", "a/2/1"], 1: ["a/0/1"]},
        {0: ["a/0/0", "a/2/0", "a/2/1"], 1: ["a/0/1"]},
        {0: (7, 7), 1: (2, 2)},
        {0: 6, 1: 1},
        {0: 6, 1: 1},
        {0: [0, 3, 3, 7]},
    )


def test_each_promise_is_checked() -> None:
    assert violations(_history()) == []
    broken: dict[str, list[str]] = {}
    for name in ("lost", "aborted", "part", "twice", "order", "stranger", "open", "back", "behind", "output"):
        history = _history()
        match name:
            case "lost":
                history.read[1] = history.output[1] = []
            case "aborted":
                history.read[0].append("a/1/0")
                history.output[0].append("a/1/0")
            case "part":
                history.read[0].pop()
                history.output[0].pop()
            case "twice":
                history.read[0].append("a/0/0")
            case "order":
                history.read[0][1:] = reversed(history.read[0][1:])
            case "stranger":
                history.read[1].append("b/0/0")
                history.output[1].append("b/0/0")
            case "open":
                history.ends[0] = (7, 8)
            case "back":
                history.stable[0].append(6)
            case "behind":
                history.positions[1] = 0
            case "output":
                history.output[0].append("a/0/0")
        broken[name] = violations(history)
    assert {name: len(violation) for name, violation in broken.items()} == dict.fromkeys(broken, 1)
