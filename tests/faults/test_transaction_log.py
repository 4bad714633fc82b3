"""``__transaction_state`` of a real broker: a disk that takes no more of it, and records that nobody understands."""

from __future__ import annotations

import resource
import time
from pathlib import Path
from typing import Any

from broker_logs import server_log
from guest_cluster import GuestCluster
from patience import wait_for
from wire_client import WireClient, create_topic, read_all, wait_until_no_transaction_is_open

from engine.common.errors import ErrorCode
from engine.common.topic_names import TRANSACTION_STATE_TOPIC
from engine.kafka.formats.transaction_state import decode_key, encode_key
from engine.kafka.protocol.apis.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from engine.kafka.protocol.apis.describe_transactions import DescribeTransactionsRequest
from engine.kafka.protocol.apis.end_txn import EndTxnRequest
from engine.kafka.protocol.apis.find_coordinator import FindCoordinatorRequest
from engine.kafka.protocol.apis.init_producer_id import InitProducerIdRequest
from engine.kafka.protocol.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from engine.kafka.protocol.records.decode import iter_records
from engine.kafka.protocol.records.encode import encode_batch
from engine.kafka.protocol.records.header import iter_batches
from engine.kafka.protocol.records.record import Record
from engine.local.zookeeper import EmbeddedZooKeeper

TOPIC = "t"
NAME = "x" * 30_000
"""Each record of the coordinator has this name. So its log is by far the largest file of the broker."""
SETTINGS = {
    "transaction.state.log.num.partitions": "1",
    # A new segment's index has its maximum size, which must be below the limit.
    "log.index.size.max.bytes": "40960",
    "transaction.state.log.segment.bytes": "100000000",
    "log.cleaner.enable": "false",
}
SAID_ONCE = f"Error while appending records for {TRANSACTION_STATE_TOPIC}-0"


class Producer:
    """One transactional id, whose requests are sent one by one."""

    def __init__(self, cluster: GuestCluster, name: str = NAME) -> None:
        self._cluster, self._name = cluster, name
        self.committed: list[bytes] = []
        self._id, self._epoch, self._sequence = -1, -1, 0

    def ask(self, what: str) -> ErrorCode:
        """Send one request, and return its error."""
        with WireClient(self._cluster.bootstrap_servers) as client:
            who: dict[str, Any] = {
                "transactional_id": self._name,
                "producer_id": self._id,
                "producer_epoch": self._epoch,
            }
            match what:
                case "init":
                    init = InitProducerIdRequest(transactional_id=self._name, transaction_timeout_ms=60_000)
                    answer = client.ask(init, 4)
                    if not answer.error_code:
                        self._id, self._epoch, self._sequence = answer.producer_id, answer.producer_epoch, 0
                    return ErrorCode(answer.error_code)
                case "add":
                    topics = [AddPartitionsToTxnTopic(name=TOPIC, partitions=[0])]
                    old = {f"v3_and_below_{name}": value for name, value in who.items()}
                    add = AddPartitionsToTxnRequest(**old, v3_and_below_topics=topics)
                    (topic,) = client.ask(add, 3).results_by_topic_v3_and_below
                    return ErrorCode(topic.results_by_partition[0].partition_error_code)
                case "produce":
                    value = b"%d" % len(self.committed)
                    answer = client.ask(self._batch(value), 9).responses[0].partition_responses[0]
                    if not answer.error_code:
                        self.committed.append(value)
                        self._sequence += 1
                    return ErrorCode(answer.error_code)
            assert what == "commit"
            return ErrorCode(client.ask(EndTxnRequest(**who, committed=True), 3).error_code)

    def ask_until_done(self, *steps: str) -> None:
        """Take steps of a transaction; the answers say that the coordinator is not there yet, or nothing is wrong."""
        for step in steps:
            wait_for(lambda step=step: self._is_done(step), f"{step} is answered")  # type: ignore[misc]

    def _is_done(self, step: str) -> bool:
        error = self.ask(step)
        assert error in (ErrorCode.NONE, *NOT_YET), f"{step}: {error.name}"
        return error is ErrorCode.NONE

    def _batch(self, value: bytes) -> ProduceRequest:
        batch = encode_batch(
            [Record(timestamp_ms=time.time_ns() // 1_000_000, value=value)],
            producer_id=self._id,
            producer_epoch=self._epoch,
            base_sequence=self._sequence,
            transactional=True,
        )
        data = [TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(index=0, records=batch)])]
        return ProduceRequest(transactional_id=self._name, acks=-1, timeout_ms=10_000, topic_data=data)


NOT_YET = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
)


def coordinator_error(address: str) -> ErrorCode:
    with WireClient(address) as client:
        return ErrorCode(client.ask(FindCoordinatorRequest(key=NAME, key_type=1), 2).error_code)


def state_of(address: str) -> str:
    with WireClient(address) as client:
        (state,) = client.ask(DescribeTransactionsRequest(transactional_ids=[NAME]), 0).transaction_states
    return str(state.transaction_state)


def limit_files(cluster: GuestCluster, size_bytes: int) -> None:
    """Let no file of the broker grow beyond a size. A new process has no limit."""
    process = cluster.broker(0).process
    assert process is not None
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (size_bytes, size_bytes))


def test_a_log_of_transactions_that_may_not_grow(zookeeper: EmbeddedZooKeeper, tmp_path: Path) -> None:
    with GuestCluster(zookeeper, 1, directory=tmp_path, config=SETTINGS, log_dir_count=2) as cluster:
        address = cluster.bootstrap_servers
        create_topic(address, TOPIC)
        wait_for(lambda: coordinator_error(address) is ErrorCode.NONE, "the coordinator's topic is there")
        producer = Producer(cluster)
        producer.ask_until_done("init", *("add", "produce", "commit") * 4)
        (log,) = tmp_path.glob(f"broker-0/data-*/{TRANSACTION_STATE_TOPIC}-0/*.log")
        steps = ("init", "add", "produce", "commit")
        for times, failing in enumerate(("init", "add", "commit", "completion"), start=1):
            before = steps[: steps.index("commit" if failing == "completion" else failing)]
            wait_for(lambda: state_of(address) == "CompleteCommit", "nothing is being written")
            producer.ask_until_done(*before)
            room = 1.5 if failing == "completion" else 0.5
            limit_files(cluster, log.stat().st_size + int(room * len(NAME)))
            if failing == "completion":
                assert producer.ask("commit") is ErrorCode.NONE
            else:
                assert producer.ask(failing) is ErrorCode.NOT_COORDINATOR
            wait_for(lambda: coordinator_error(address) is ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{failing}: no leader")
            assert server_log(cluster.broker(0).logs_path).count(SAID_ONCE) == times
            cluster.restart_broker(0)
            producer.ask_until_done(*(() if failing == "completion" else steps[len(before) :]))
            wait_for(lambda: state_of(address) == "CompleteCommit", f"{failing}: the transaction is complete")
            wait_until_no_transaction_is_open(address, TOPIC)
            with WireClient(address) as client:
                values = [record.value for record in read_all(client, TOPIC) if record.key is None]
            # Markers have keys.
            assert values == producer.committed


def test_a_log_of_transactions_with_records_that_nobody_understands(
    zookeeper: EmbeddedZooKeeper, tmp_path: Path
) -> None:
    """What a downgrade or a bad disk leaves. The broker says what it skips, and coordinates all other ids."""
    with GuestCluster(zookeeper, 1, directory=tmp_path, config=SETTINGS) as cluster:
        address = cluster.bootstrap_servers
        create_topic(address, TOPIC)
        wait_for(lambda: coordinator_error(address) is ErrorCode.NONE, "the coordinator's topic is there")
        before, after = Producer(cluster, "before"), Producer(cluster, "after")
        before.ask_until_done("init", "add", "produce")
        after.ask_until_done("init", "add", "produce")
        assert cluster.stop_broker(0)
        (log,) = tmp_path.glob(f"broker-0/*/{TRANSACTION_STATE_TOPIC}-0/*.log")
        held = log.read_bytes()
        (*_, (position, last)) = iter_batches(held)
        (begun,) = iter_records(held[position:])
        assert decode_key(begun.key or b"").transactional_id == "after"
        later, damaged = Record(key=encode_key("later"), value=b"\0\x63" + bytes(20)), Record(key=b"\0", value=b"\0")
        bad = encode_batch([later, damaged], base_offset=last.base_offset)
        good = encode_batch(
            [Record(timestamp_ms=begun.timestamp_ms, key=begun.key, value=begun.value)],
            base_offset=last.base_offset + 2,
        )
        log.write_bytes(held[:position] + bad + good)
        cluster.start_broker(0)
        for producer in (before, after):
            producer.ask_until_done("commit")
        wait_until_no_transaction_is_open(address, TOPIC)
        with WireClient(address) as client:
            assert len([record for record in read_all(client, TOPIC) if record.key is None]) == 2
        said = server_log(cluster.broker(0).logs_path)
        assert said.count("Unknown version of a record while loading transaction state") == 1
        assert said.count("A record of an internal topic cannot be read and is skipped") == 1
