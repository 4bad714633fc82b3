"""Transactions as clients use them, on three brokers: the committed is read, the aborted is not, whatever fails.

The clients are kafka-python, aiokafka and librdkafka; none knows that the brokers are not Kafka's.
"""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest
from broker_program import OLD_RECORDS_STAY
from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec
from guest_cluster import GuestCluster
from patience import wait_for
from transactional_clients import CLIENTS, Fenced, TransactionalProducer, committed_offset, read_values

from engine.common.topic_names import TRANSACTION_STATE_TOPIC
from engine.kafka.formats.consumer_offsets import partition_for
from engine.local.cluster import LocalCluster
from engine.local.zookeeper import EmbeddedZooKeeper

PARTITIONS = 3
CLIENT = pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS)

SETTINGS = OLD_RECORDS_STAY | {
    "transaction.state.log.num.partitions": "4",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    "offsets.topic.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
    "zookeeper.session.timeout.ms": "3000",
    "controlled.shutdown.retry.backoff.ms": "100",
    "auto.leader.rebalance.enable": "false",
}


@pytest.fixture(scope="module")
def cluster(zookeeper: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with GuestCluster(zookeeper, 3, directory=tmp_path_factory.mktemp("transactions"), config=SETTINGS) as made:
        yield made


@pytest.fixture
def topic(cluster: LocalCluster) -> str:
    name = f"t-{uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.create_topics([NewTopic(name, PARTITIONS, 3, config={"min.insync.replicas": "2"})])[name].result(30)
    return name


def transactional_id() -> str:
    return f"id-{uuid4().hex[:8]}"


def last_stable_offset(cluster: LocalCluster, topic: str, partition: int = 0) -> int:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    of = TopicPartition(topic, partition)
    offsets = admin.list_offsets({of: OffsetSpec.latest()}, isolation_level=IsolationLevel.READ_COMMITTED)
    return int(offsets[of].result(30).offset)


def coordinator_of(cluster: LocalCluster, transactional_id: str) -> int:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    topic = admin.list_topics(TRANSACTION_STATE_TOPIC, 30).topics[TRANSACTION_STATE_TOPIC]
    return int(topic.partitions[partition_for(transactional_id, len(topic.partitions))].leader)


@CLIENT
def test_what_is_committed_is_read_and_what_is_aborted_is_not(
    client: type[TransactionalProducer], cluster: LocalCluster, topic: str
) -> None:
    producer = client(cluster.bootstrap_servers, transactional_id())
    for number in range(6):
        producer.begin()
        for partition in range(PARTITIONS):
            producer.send(topic, partition, b"%d-%d" % (number, partition))
        if number % 3 == 1:
            producer.abort()
        else:
            producer.commit()
    producer.close()
    wanted = sorted(b"%d-%d" % (n, p) for n in range(6) for p in range(PARTITIONS) if n % 3 != 1)
    wait_for(lambda: read_values(cluster.bootstrap_servers, topic, PARTITIONS) == wanted, "all that is committed")
    everything = read_values(cluster.bootstrap_servers, topic, PARTITIONS, committed=False)
    assert len(everything) == 6 * PARTITIONS


def test_readers_of_committed_records_wait_for_the_end_of_a_transaction(cluster: LocalCluster, topic: str) -> None:
    producer = CLIENTS["aiokafka"](cluster.bootstrap_servers, transactional_id())
    producer.begin()
    producer.send(topic, 0, b"in the transaction")
    assert read_values(cluster.bootstrap_servers, topic, 1) == []
    assert read_values(cluster.bootstrap_servers, topic, 1, committed=False) == [b"in the transaction"]
    assert last_stable_offset(cluster, topic) == 0
    producer.commit()
    wait_for(lambda: last_stable_offset(cluster, topic) == 2, "the record and its marker are stable")
    assert read_values(cluster.bootstrap_servers, topic, 1) == [b"in the transaction"]
    producer.close()


@CLIENT
def test_offsets_are_committed_with_the_transaction_or_not_at_all(
    client: type[TransactionalProducer], cluster: LocalCluster, topic: str
) -> None:
    group = f"g-{topic}"
    producer = client(cluster.bootstrap_servers, transactional_id())
    for offset, is_commit in ((5, True), (9, False), (7, True)):
        producer.begin()
        producer.send(topic, 0, b"made of what was read up to %d" % offset)
        producer.send_offset(group, topic, 1, offset)
        if is_commit:
            producer.commit()
        else:
            producer.abort()
        kept = {5: 5, 9: 5, 7: 7}[offset]
        wait_for(lambda kept=kept: committed_offset(cluster.bootstrap_servers, group, topic, 1) == kept, f"{kept}")
    producer.close()


@CLIENT
def test_a_producer_is_fenced_by_its_successor(
    client: type[TransactionalProducer], cluster: LocalCluster, topic: str
) -> None:
    name = transactional_id()
    old = client(cluster.bootstrap_servers, name)
    old.begin()
    old.send(topic, 0, b"of the old one")
    new = client(cluster.bootstrap_servers, name)
    new.begin()
    new.send(topic, 0, b"of the new one")
    with pytest.raises(Fenced):
        old.commit()
    new.commit()
    wait_for(lambda: read_values(cluster.bootstrap_servers, topic, 1) == [b"of the new one"], "the new one's only")
    new.close()
    try:
        old.close()
    except Exception as error:
        assert isinstance(error, Fenced)


def test_a_transaction_that_nobody_ends_is_aborted_after_its_time_out(cluster: LocalCluster, topic: str) -> None:
    producer = CLIENTS["kafka-python"](cluster.bootstrap_servers, transactional_id(), timeout_ms=1_000)
    producer.begin()
    producer.send(topic, 0, b"left alone")
    wait_for(lambda: last_stable_offset(cluster, topic) == 2, "the abort marker")
    assert read_values(cluster.bootstrap_servers, topic, 1) == []
    with pytest.raises(Fenced):
        producer.send(topic, 0, b"too late")
        producer.commit()


@pytest.mark.parametrize("how", ["kill", "restart"])
def test_a_transaction_survives_its_coordinator(how: str, cluster: LocalCluster, topic: str) -> None:
    """The brokers end one after the other, so leaders change as well."""
    client = CLIENTS["confluent-kafka"]
    names = [transactional_id() for _ in range(3)]
    producers = [client(cluster.bootstrap_servers, name) for name in names]
    for number, producer in enumerate(producers):
        producer.begin()
        producer.send(topic, number % PARTITIONS, b"before %d" % number)
    for broker_id in (0, 1, 2) if how == "restart" else (coordinator_of(cluster, names[0]),):
        if how == "restart":
            cluster.stop_broker(broker_id)
        else:
            cluster.kill_broker(broker_id)
        cluster.start_broker(broker_id)
        cluster.wait_until_serving()
    for number, producer in enumerate(producers):
        producer.send(topic, number % PARTITIONS, b"after %d" % number)
        if number == 1:
            producer.abort()
        else:
            producer.commit()
    wanted = [b"after 0", b"after 2", b"before 0", b"before 2"]
    wait_for(lambda: read_values(cluster.bootstrap_servers, topic, PARTITIONS) == wanted, "all that is committed")
