"""One ``__transaction_state``, two engines in turn: what one begins the other ends, and Kafka's tools read ours."""

from __future__ import annotations

import time
from pathlib import Path

from kafka_tools import run_tool
from one_folder import DEADLINE_S, OneFolder
from patience import within
from transactional_clients import CLIENTS, Fenced, TransactionalProducer, committed_offset, read_values
from wire_client import WireClient, create_topic, wait_until_led

from engine.kafka.protocol.apis.describe_transactions import DescribeTransactionsRequest

TOPIC = "written"
PARTITIONS = 2
SETTINGS = {
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "group.initial.rebalance.delay.ms": "0",
}

Client = CLIENTS["confluent-kafka"]


class Transactions(OneFolder):
    """What clients see of the transactions of a folder that the engines take over in turn."""

    def __init__(self, folder: Path, zookeeper_connect: str) -> None:
        super().__init__(folder, zookeeper_connect, SETTINGS)
        self.committed: list[bytes] = []
        self.offsets: dict[str, int] = {}
        """Each transaction commits an offset of a group of its own."""

    def wait_until_ready(self, *transactional_ids: str) -> None:
        wait_until_led(self.address, TOPIC)
        is_in_time = within(DEADLINE_S)
        while any(error for error, *_ in self.described(*transactional_ids).values()):
            assert is_in_time()
            time.sleep(0.05)

    def described(self, *transactional_ids: str) -> dict[str, tuple[int, str, int, int, list[tuple[str, list[int]]]]]:
        """Return error, state, producer id, epoch and partitions."""
        with WireClient(self.address) as client:
            answer = client.ask(DescribeTransactionsRequest(transactional_ids=list(transactional_ids)), 0)
        return {
            state.transactional_id: (
                state.error_code,
                state.transaction_state,
                state.producer_id,
                state.producer_epoch,
                sorted((topic.topic, sorted(topic.partitions)) for topic in state.topics),
            )
            for state in answer.transaction_states
        }

    def begun(self, transactional_id: str, offset: int) -> TransactionalProducer:
        """Return a producer with an open transaction of two records and an offset."""
        producer = Client(self.address, transactional_id)
        producer.begin()
        for partition in range(PARTITIONS):
            producer.send(TOPIC, partition, b"%s %d" % (transactional_id.encode(), partition))
        producer.send_offset(transactional_id, TOPIC, 0, offset)
        self.offsets[transactional_id] = -1001
        return producer

    def note(self, transactional_id: str, offset: int) -> None:
        """Expect what ``begun`` has sent."""
        self.offsets[transactional_id] = offset
        self.committed += [b"%s %d" % (transactional_id.encode(), partition) for partition in range(PARTITIONS)]

    def check(self, *transactional_ids: str) -> None:
        """Check what readers of committed records see once the transactions have ended."""
        is_in_time = within(DEADLINE_S)
        while any(not shown[1].startswith("Complete") for shown in self.described(*transactional_ids).values()):
            assert is_in_time()
            time.sleep(0.02)
        assert read_values(self.address, TOPIC, PARTITIONS) == sorted(self.committed)
        for group in transactional_ids:
            assert committed_offset(self.address, group, TOPIC) == self.offsets[group]


def test_transactions_change_engines_and_back(tmp_path: Path, zk_chroot: str) -> None:
    both = Transactions(tmp_path, zk_chroot)
    with both.kafka():
        create_topic(both.address, TOPIC, partitions=PARTITIONS)
        first, second = both.begun("kafka-commits", 1), both.begun("klamm-commits", 2)
        third = both.begun("klamm-aborts", 3)
        first.commit()
        both.note("kafka-commits", 1)
        both.check("kafka-commits")
        shown = both.described("klamm-commits", "klamm-aborts")
    with both.klamm(killed=True):
        both.wait_until_ready("klamm-commits", "klamm-aborts")
        assert both.described("klamm-commits", "klamm-aborts") == shown
        second.commit()
        third.abort()
        both.note("klamm-commits", 2)
        both.check("kafka-commits", "klamm-commits", "klamm-aborts")
        fourth, fifth = both.begun("kafka-commits-too", 4), both.begun("kafka-aborts", 5)
        hanging = both.begun("fenced", 6)
        shown = both.described("kafka-commits-too", "kafka-aborts", "fenced", "klamm-commits")
    with both.kafka():
        both.wait_until_ready("kafka-commits-too", "kafka-aborts", "fenced")
        assert both.described("kafka-commits-too", "kafka-aborts", "fenced", "klamm-commits") == shown
        fourth.commit()
        fifth.abort()
        both.note("kafka-commits-too", 4)
        successor = Client(both.address, "fenced")
        epoch = both.described("fenced")["fenced"][3]
        assert epoch == shown["fenced"][3] + 2
        both.check("klamm-commits", "kafka-commits-too", "kafka-aborts")
    with both.klamm():
        both.wait_until_ready("fenced", "kafka-aborts")
        successor.begin()
        successor.send(TOPIC, 0, b"of the successor")
        try:
            hanging.commit()
        except Fenced:
            pass
        else:
            raise AssertionError("the predecessor is not fenced")
        successor.commit()
        both.committed.append(b"of the successor")
        both.check("fenced", "kafka-commits-too")
    tools_read(tmp_path / "data")


def tools_read(data: Path) -> None:
    """Kafka's tool decodes the coordinator's log and finds nothing wrong with logs and indexes."""
    (state,) = sorted((data / "__transaction_state-0").glob("*.log"))
    output = run_tool("kafka.tools.DumpLogSegments", "--transaction-log-decoder", "--files", str(state))
    assert output.returncode == 0, output.stderr
    for word in ("transactionalId=kafka-commits", "state=PrepareCommit", "state=CompleteAbort", "state=Ongoing"):
        assert word in output.stdout, output.stdout[-2000:]
    files = [*data.glob(f"{TOPIC}-*/*.log"), *data.glob(f"{TOPIC}-*/*.txnindex"), *data.glob(f"{TOPIC}-*/*.snapshot")]
    output = run_tool("kafka.tools.DumpLogSegments", "--deep-iteration", "--files", ",".join(map(str, files)))
    assert output.returncode == 0, output.stderr
    assert "endTxnMarker: COMMIT" in output.stdout and "endTxnMarker: ABORT" in output.stdout
    assert "isvalid: false" not in output.stdout and "Found" not in output.stdout, output.stdout[-2000:]
