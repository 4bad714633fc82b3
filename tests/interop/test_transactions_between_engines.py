"""Transactions in one cluster of both engines: one coordinates, the other leads, or takes over as coordinator.

Broker 0 is ours, broker 1 is Apache Kafka's, and each leads one partition of every topic: the coordinator's, the
groups', and the one that is written. Broker 2, ours, leads what is to be without a leader for a while.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from mixed_cluster import MixedCluster
from patience import wait_for
from transactional_clients import CLIENTS, Fenced, committed_offset, read_values
from wire_client import WireClient, create_topic

from engine.common.errors import ErrorCode
from engine.common.model import TopicPartition
from engine.common.topic_names import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from engine.kafka.formats.consumer_offsets import partition_for
from engine.kafka.protocol.apis.describe_transactions import DescribeTransactionsRequest
from engine.local.zookeeper import EmbeddedZooKeeper

KLAMM, KAFKA, FAR = 0, 1, 2
WRITTEN, FAR_OFF = "written", "far-off"
ENGINES = [pytest.param(KLAMM, id="klamm"), pytest.param(KAFKA, id="kafka")]
_numbers = itertools.count()


class Engines:
    """The cluster, and what was committed in it."""

    def __init__(self, cluster: MixedCluster) -> None:
        self.cluster = cluster
        self.committed: list[bytes] = []

    def name(self, engine: int) -> str:
        """Return a new name whose partition of two the engine led first: of a transactional id, or of a group."""
        return next(name for name in map("name-{}".format, _numbers) if partition_for(name, 2) == engine)

    def state(self, coordinator: int, transactional_id: str) -> str:
        """Return the state that a broker tells; nothing while it cannot."""
        with WireClient(self.cluster.address(coordinator)) as client:
            answer = client.ask(DescribeTransactionsRequest(transactional_ids=[transactional_id]), 0)
        (state,) = answer.transaction_states
        return state.transaction_state if state.error_code == ErrorCode.NONE else ""

    def wait_for_state(self, coordinator: int, transactional_id: str, state: str) -> None:
        wait_for(lambda: self.state(coordinator, transactional_id) == state, f"{transactional_id} is {state}")

    def coordinate(self, partition: int, engine: int) -> None:
        """Let an engine lead a partition of the coordinator's topic."""
        replicas = [engine, KAFKA if engine == KLAMM else KLAMM]
        self.cluster.reassign({TopicPartition(TRANSACTION_STATE_TOPIC, partition): replicas})
        self.cluster.elect_preferred(TRANSACTION_STATE_TOPIC, 2)

    def check(self) -> None:
        """Compare what both engines let readers of committed records see with what was committed."""
        for broker_id in (KLAMM, KAFKA):
            values = read_values(self.cluster.address(broker_id), WRITTEN, 2)
            values += read_values(self.cluster.address(broker_id), FAR_OFF, 1)
            assert sorted(values) == sorted(self.committed)


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory, zookeeper: EmbeddedZooKeeper) -> Iterator[Engines]:
    folder, connect = tmp_path_factory.mktemp("between"), f"{zookeeper.connect_string}/between-engines"
    # Kafka looks at the number of partitions once, before there are any.
    counts = {"transaction_state_log_num_partitions": "2", "offsets_topic_num_partitions": "2"}
    cluster = MixedCluster(folder, connect, (KLAMM, KAFKA, FAR), (KAFKA,), **counts)
    cluster.shares_jvm = True
    with cluster:
        both = {KLAMM: [KLAMM, KAFKA], KAFKA: [KAFKA, KLAMM]}
        for topic in (TRANSACTION_STATE_TOPIC, GROUP_METADATA_TOPIC):
            create_topic(cluster.address(KLAMM), topic, assignment=both, configs={"cleanup.policy": "compact"})
        create_topic(cluster.address(KLAMM), WRITTEN, assignment=both)
        create_topic(cluster.address(KLAMM), FAR_OFF, assignment={0: [FAR]})
        yield Engines(cluster)
        cluster.stop_all()


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("coordinator", ENGINES)
def test_leaders_of_both_obey_the_markers_of_either(engines: Engines, coordinator: int, client: str) -> None:
    name = engines.name(coordinator)
    groups = [engines.name(engine) for engine in (KLAMM, KAFKA)]
    producer = CLIENTS[client](engines.cluster.bootstrap, name)
    wanted: list[bytes] = []
    for number, is_commit in enumerate((True, False, True)):
        producer.begin()
        for partition in (KLAMM, KAFKA):
            producer.send(WRITTEN, partition, value := b"%s %d %d" % (name.encode(), number, partition))
            wanted += [value] if is_commit else []
        # aiokafka adds the first group of a transaction only.
        producer.send_offset(groups[number // 2], WRITTEN, 0, 1 + number)
        (producer.commit if is_commit else producer.abort)()
    producer.close()
    engines.committed += wanted
    engines.wait_for_state(coordinator, name, "CompleteCommit")
    engines.check()
    assert [committed_offset(engines.cluster.bootstrap, group, WRITTEN) for group in groups] == [1, 3]


@pytest.mark.parametrize("first", ENGINES)
def test_one_ends_what_began_under_the_other(engines: Engines, first: int) -> None:
    second = KAFKA if first == KLAMM else KLAMM
    client = CLIENTS["confluent-kafka"]
    begun = [(engines.name(first), ending) for ending in ("commit", "abort", "successor")]
    producers = [client(engines.cluster.bootstrap, name) for name, _ in begun]
    for (name, ending), producer in zip(begun, producers, strict=True):
        producer.begin()
        for partition in (KLAMM, KAFKA):
            producer.send(WRITTEN, partition, value := b"%s %d" % (name.encode(), partition))
            engines.committed += [value] if ending == "commit" else []
    engines.coordinate(first, second)
    for name, _ in begun:
        engines.wait_for_state(second, name, "Ongoing")
    commits, aborts, hangs = producers
    commits.commit()
    aborts.abort()
    successor = client(engines.cluster.bootstrap, begun[2][0])
    with pytest.raises(Fenced):
        hangs.commit()
    engines.wait_for_state(second, begun[0][0], "CompleteCommit")
    engines.wait_for_state(second, begun[1][0], "CompleteAbort")
    engines.check()
    # The first takes over again what the other has written.
    engines.coordinate(first, first)
    successor.begin()
    successor.send(WRITTEN, second, value := begun[2][0].encode())
    successor.commit()
    engines.committed.append(value)
    engines.wait_for_state(first, begun[2][0], "CompleteCommit")
    engines.check()


@pytest.mark.parametrize("first", ENGINES)
def test_one_sends_the_markers_that_the_other_could_not(engines: Engines, first: int) -> None:
    second = KAFKA if first == KLAMM else KLAMM
    cluster, begun = engines.cluster, []
    for is_commit in (True, False):
        name = engines.name(first)
        producer = CLIENTS["confluent-kafka"](cluster.bootstrap, name)
        producer.begin()
        for topic, partition in ((FAR_OFF, 0), (WRITTEN, first), (WRITTEN, second)):
            producer.send(topic, partition, value := f"{name} {topic} {partition}".encode())
            engines.committed += [value] if is_commit else []
        begun.append((name, producer, "Commit" if is_commit else "Abort"))
    cluster.kill(FAR)
    cluster.wait_for_topic(FAR_OFF, "it has no leader", lambda told: told[0][0] == -1)
    for name, producer, outcome in begun:
        (producer.commit if outcome == "Commit" else producer.abort)()
        assert engines.state(first, name) == f"Prepare{outcome}"
    engines.coordinate(first, second)
    for name, _, outcome in begun:
        engines.wait_for_state(second, name, f"Prepare{outcome}")
    cluster.start(FAR)
    for name, _, outcome in begun:
        engines.wait_for_state(second, name, f"Complete{outcome}")
    engines.check()
    engines.coordinate(first, first)
