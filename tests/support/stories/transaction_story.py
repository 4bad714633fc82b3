"""What an operator does with transactions, written once: the tests play it on our engine and on Apache Kafka.

The cluster must have ``transaction.partition.verification.enable=false``: only then can a transaction hang.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from uuid import uuid4

from confluent_kafka import Consumer, Producer, TopicPartition
from klamm_program import Ran
from wire_client import WireClient

from engine.kafka.protocol.apis.init_producer_id import InitProducerIdRequest
from engine.kafka.protocol.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from engine.kafka.protocol.records.encode import encode_batch
from engine.kafka.protocol.records.record import Record

SETTINGS = {
    "transaction.partition.verification.enable": "false",
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "group.initial.rebalance.delay.ms": "0",
}
HANGS_SINCE_MS = 2 * 3_600_000


@dataclass(frozen=True)
class Stage:
    """A cluster of one broker, and the program that knows it over the wire."""

    servers: str
    run_words: Callable[..., Ran]

    def run(self, *words: str, stdin: str = "") -> Ran:
        return self.run_words(*words, "--bootstrap-server", self.servers, stdin=stdin)

    def new_topic(self, partitions: int = 2) -> str:
        topic = f"t-{uuid4().hex[:8]}"
        made = self.run("topics", "create", topic, "--partitions", str(partitions), "--replication-factor", "1")
        assert made.code == 0, made.err
        return topic

    def committed(self, topic: str, partition: int = 0) -> list[bytes]:
        """Read what readers of committed records get before they would have to wait."""
        settings = {"bootstrap.servers": self.servers, "group.id": uuid4().hex, "enable.partition.eof": True}
        consumer = Consumer(settings | {"isolation.level": "read_committed", "auto.offset.reset": "earliest"})
        consumer.assign([TopicPartition(topic, partition, 0)])
        values, until = [], time.monotonic() + 30
        try:
            while time.monotonic() < until:
                message = consumer.poll(1)
                if message is None:
                    continue
                if message.error():
                    return values
                values.append(message.value())
        finally:
            consumer.close()
        raise AssertionError("no end of the partition")


def hang(servers: str, topic: str, partition: int = 0) -> int:
    """Leave a transaction that no coordinator knows: a record of it, long ago. Return its producer's id."""
    with WireClient(servers) as client:
        producer_id: int = client.ask(InitProducerIdRequest(transaction_timeout_ms=0), 4).producer_id
        sent_ms = int(time.time() * 1000) - HANGS_SINCE_MS
        batch = encode_batch(
            [Record(timestamp_ms=sent_ms, value=b"hanging")],
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
            transactional=True,
        )
        data = [TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=partition, records=batch)])]
        request = ProduceRequest(transactional_id="lost", acks=-1, timeout_ms=10_000, topic_data=data)
        (answer,) = client.ask(request, 9).responses[0].partition_responses
        assert answer.error_code == 0, answer
    return producer_id


def an_open_transaction(stage: Stage, look: Callable[[str, str], None] = lambda name, topic: None) -> None:
    """It is listed, described, and ended for a producer that will never end it."""
    topic, name = stage.new_topic(), f"id-{uuid4().hex[:8]}"
    producer = Producer({"bootstrap.servers": stage.servers, "transactional.id": name})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"never", partition=1)
    producer.flush()
    listed = {row["transactional_id"]: row for row in stage.run("transactions", "list", "-o", "json").json}[name]
    assert listed["state"] == "Ongoing"
    (description,) = stage.run("transactions", "describe", name, "-o", "json").json
    assert {key: description[key] for key in listed} == listed
    assert (description["partitions"], description["timeout_ms"]) == ([{"topic": topic, "partition": 1}], 60_000)
    assert 0 <= description["duration_ms"] < 60_000 and description["start_time"].endswith("Z")
    by_state = stage.run("transactions", "list", "--state", "prepareabort,ongoing", "--producer-id",
                         str(description["producer_id"]), "-o", "json").json  # fmt: skip
    assert by_state == [listed]
    assert listed not in stage.run("transactions", "list", "--duration-filter", "1h", "-o", "json").json
    look(name, topic)
    (writer,) = stage.run("transactions", "producers", f"{topic}-1", "-o", "json").json
    assert (writer["producer_id"], writer["start_offset"], writer["last_sequence"]) == (
        description["producer_id"],
        0,
        0,
    )
    assert stage.run("transactions", "producers", "--topic", topic, "-o", "json").json == [writer]

    live = stage.run("transactions", "abort", f"{topic}-1", "--start-offset", "0", "--yes")
    assert live.code == 2, live.err
    assert f"'{name}' is Ongoing" in live.err and "force-terminate" in live.err
    assert stage.run("transactions", "find-hanging", "--topic", topic, "--max-transaction-timeout", "1ms").code == 0

    planned = stage.run("transactions", "force-terminate", name, "--dry-run", "-o", "json")
    assert planned.json[0]["result"] == "would_be_terminated", planned.err
    assert "Ongoing for" in planned.err and f"in {topic}-1" in planned.err
    ended = stage.run("transactions", "force-terminate", "--transactional-id", name, "--yes", "-o", "json")
    (row,) = ended.json
    # The fence raises the epoch once for the abort, and once for the successor.
    assert (row["before"], row["producer_epoch"], row["result"]) == ("Ongoing", 2, "terminated")
    assert row["after"] in ("Empty", "CompleteAbort")
    assert stage.committed(topic, 1) == []
    try:
        producer.commit_transaction(10)
    except Exception as error:
        assert "fenced" in str(error).lower() or "epoch" in str(error).lower(), error
    else:
        raise AssertionError("the producer is not fenced")


def a_hanging_transaction(stage: Stage, look: Callable[[str], None] = lambda topic: None) -> None:
    """It is found, and a marker lets readers of committed records go on."""
    topic = stage.new_topic()
    # There are coordinators.
    assert stage.run("produce", topic, "--transactional-id", "empty").code == 0
    producer_id = hang(stage.servers, topic)
    assert stage.run("produce", topic, "--partition", "0", stdin="after\n").code == 0
    assert stage.committed(topic) == []
    ran = stage.run("transactions", "find-hanging", "--topic", topic, "-o", "json")
    (row,) = ran.json
    assert ran.code == 1
    assert (row["topic"], row["partition"], row["producer_id"], row["start_offset"]) == (topic, 0, producer_id, 0)
    assert (row["producer_epoch"], row["coordinator_epoch"], row["transactional_id"]) == (0, None, None)
    assert HANGS_SINCE_MS <= row["age_ms"] < HANGS_SINCE_MS + 600_000
    look(topic)
    for young in (("--max-transaction-timeout", "3h"), ("--partition", "1")):
        assert stage.run("transactions", "find-hanging", "--topic", topic, *young, "-o", "json").json == []
    health = stage.run("cluster", "health", "-o", "json", "-v")
    (reason,) = [reason for reason in health.json["reasons"] if reason["check"] == "hanging_transactions"]
    assert health.code == 1
    (line,) = [line for line in reason["examples"] if line.startswith(f"{topic}-0 ")]
    assert f"producer {producer_id}" in line and "from offset 0 on" in line and "120 min" in line

    nothing = stage.run("transactions", "abort", f"{topic}-0", "--start-offset", "1", "--yes")
    assert (nothing.code, "open ones begin at 0" in nothing.err) == (2, True), nothing.err
    future = ("--producer-id", str(producer_id), "--producer-epoch", "0", "--coordinator-epoch", "1000000", "--force")
    refused = stage.run("transactions", "abort", f"{topic}-0", *future, "--yes")
    assert (refused.code, "no coordinator has the epoch 1000000 yet" in refused.err) == (2, True), refused.err
    words = ("transactions", "abort", "--topic", topic, "--partition", "0", "--start-offset", "0", "-o", "json")
    assert stage.run(*words).code == 2, "it must be confirmed"
    assert stage.run(*words, "--dry-run").json[0]["result"] == "would_be_aborted"
    (aborted,) = stage.run(*words, "--yes").json
    assert (aborted["result"], aborted["producer_id"]) == ("aborted", producer_id)
    assert stage.committed(topic) == [b"after"]
    assert stage.run("transactions", "find-hanging", "--topic", topic, "-o", "json").json == []


def one_transaction_for_stdin(stage: Stage) -> None:
    """``klamm produce --transactional-id``: all of stdin is seen, or nothing."""
    topic, name = stage.new_topic(1), f"id-{uuid4().hex[:8]}"
    sent = stage.run("produce", topic, "--transactional-id", name, stdin="a\nb\n")
    assert (sent.code, "2 records sent, committed" in sent.err) == (0, True), sent.err
    wrong = json.dumps({"value": "c"}) + "\nnot json\n"
    refused = stage.run("produce", topic, "--transactional-id", name, "--input", "jsonl", stdin=wrong)
    assert (refused.code, "the transaction is aborted" in refused.err) == (2, True), refused.err
    assert stage.run("produce", topic, "--transactional-id", name, "--acks", "1", stdin="d\n").code == 2
    assert stage.committed(topic) == [b"a", b"b"]
    everything = stage.run("consume", topic, "--from-beginning", "--until-end")
    assert everything.out == "a\nb\nc\n", everything.err
    only = stage.run("consume", topic, "--from-beginning", "--until-end", "--isolation", "read-committed")
    assert only.out == "a\nb\n", only.err


def load_in_transactions(stage: Stage) -> None:
    """``klamm perf producer``: every record is committed, in as many transactions as the duration allows."""
    topic = stage.new_topic(3)
    name = f"id-{uuid4().hex[:8]}"
    words = ("perf", "producer", "--topic", topic, "--num-records", "600", "--record-size", "10")
    ran = stage.run(*words, "--throughput", "1000", "--transactional-id", name, "--transaction-duration-ms", "100")
    assert ran.code == 0, ran.err
    assert sum(len(stage.committed(topic, index)) for index in range(3)) == 600
    (description,) = stage.run("transactions", "describe", name, "-o", "json").json
    assert description["state"] in ("PrepareCommit", "CompleteCommit")
    ends = stage.run("offsets", "--topic", topic, "-o", "json").json
    markers = sum(row["offset"] for row in ends) - 600
    assert markers >= 3, "several transactions"
    once = stage.run(*words[:5], "1", *words[6:], "--transaction-duration-ms", "10000")
    assert once.code == 0, once.err
    later = stage.run("offsets", "--topic", topic, "-o", "json").json
    assert sum(row["offset"] for row in later) - sum(row["offset"] for row in ends) == 2, "one record, one marker"
