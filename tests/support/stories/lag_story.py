"""Readers of every kind on one growing topic, written once: the tests play it on our engine and on Apache Kafka."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from golden import Seen, check_json
from group_members import commit, fill
from klamm_program import Ran
from patience import wait_for
from wire_client import WireClient

from engine.common.errors import ErrorCode
from engine.kafka.protocol.apis.find_coordinator import FindCoordinatorRequest
from engine.kafka.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

Run = Callable[..., Ran]


class Steady:
    """A consumer of one group, polled by a thread. It commits whatever it has read while ``commits`` is set.

    With ``by_record`` it commits the offset after each record, as many applications do, and no marker's.
    """

    def __init__(
        self, servers: str, group_id: str, topic: str, *, by_record: bool = False, isolation: str = "read_committed"
    ) -> None:
        self._by_record = by_record
        settings = {
            "isolation.level": isolation,
            "bootstrap.servers": servers, "group.id": group_id, "auto.offset.reset": "earliest",
            "enable.auto.commit": False, "session.timeout.ms": 6000, "heartbeat.interval.ms": 500, "log_level": 2,
        }  # fmt: skip
        self._consumer = Consumer(settings)
        self._consumer.subscribe([topic])
        self._end = threading.Event()
        self.commits = True
        self.read = 0
        self._thread = threading.Thread(target=self._run, name=f"consumer in {group_id}")
        self._thread.start()

    def _run(self) -> None:
        while not self._end.is_set():
            messages = self._consumer.consume(500, 0.05)
            if self.commits and self._by_record:
                for message in messages:
                    self._consumer.commit(message=message, asynchronous=False)
            elif self.commits and messages:
                self._consumer.commit(asynchronous=False)
            self.read += len(messages)
        self._consumer.close()

    def close(self) -> None:
        """Leave the group."""
        self._end.set()
        self._thread.join()


@contextmanager
def producing(servers: str, topic: str) -> Iterator[None]:
    """Produce records to both partitions during this context."""
    end = threading.Event()
    producer = Producer({"bootstrap.servers": servers, "log_level": 2})

    def run() -> None:
        while not end.wait(0.05):
            for number in (0, 1):
                producer.produce(topic, b"more", partition=number)
            producer.poll(0)
        producer.flush(10)

    thread = threading.Thread(target=run, name="steady producer")
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()


def every_kind_of_reader(run: Run, servers: str, topic: str) -> None:
    """One reader keeps up, one stopped, one is stuck, one was set back, one never commits; the log keeps growing."""
    names = {kind: f"{topic}-{kind}" for kind in ("keeps-up", "stopped", "stalled", "set-back", "never")}
    fill(servers, topic, 2, 200)
    readers = {kind: Steady(servers, name, topic) for kind, name in names.items() if kind not in ("set-back", "never")}
    readers["never"] = Steady(servers, names["never"], topic)
    readers["never"].commits = False
    try:
        wait_for(lambda: all(reader.read >= 400 for reader in readers.values()), "all have read what is there")
        readers["stopped"].close()
        readers["stalled"].commits = False
        commit(servers, names["set-back"], {(topic, 0): 150, (topic, 1): 200})
        with producing(servers, topic):
            words = [word for name in names.values() for word in ("--group", name)]
            look = ("lag", *words, "--interval", "0.7", "--samples", "3", "--history", "lag.jsonl", "-o", "json")
            before = {row["group"]: row["status"] for row in run(*look).json}
            assert before[names["set-back"]] == "STOP"
            commit(servers, names["set-back"], {(topic, 0): 20})
            ran = run(*look, "--partitions")
    finally:
        for reader in readers.values():
            reader.close()
    check_json("lag", Seen(ran.code, ran.out, ran.err))
    assert (ran.code, ran.json[0]["group"]) == (1, names["set-back"]), "the worst comes first"
    _all_are_named_right({row["group"].removeprefix(f"{topic}-"): row for row in ran.json})


def _all_are_named_right(found: dict[str, dict[str, Any]]) -> None:
    assert {kind: (row["status"], row["reason"]) for kind, row in found.items()} == {
        "keeps-up": ("OK", found["keeps-up"]["reason"]),
        "stopped": ("STOP", "nobody_reads"),
        "stalled": ("STALL", "stands_still"),
        "set-back": ("REWIND", "went_back"),
        "never": ("UNKNOWN", "nothing_committed"),
    }
    never, keeps_up, stopped = found["never"], found["keeps-up"], found["stopped"]
    assert [never[key] for key in ("lag", "time_lag_ms", "out_per_sec", "clear_in_ms")] == [None] * 4
    assert keeps_up["sample_count"] == 6
    assert keeps_up["out_per_sec"] > 1
    assert (stopped["out_per_sec"], stopped["clear_in_ms"]) == (0, None)
    assert stopped["lag"] == sum(partition["log_end_offset"] - 200 for partition in stopped["partitions"])
    # The oldest unread record was written when the producer began, some seconds ago.
    assert 1_000 < stopped["time_lag_ms"] < 60_000
    assert all(0 < partition["span_ms"] <= partition["time_lag_ms"] for partition in stopped["partitions"])
    assert [partition["consumer_id"] for partition in stopped["partitions"]] == [None, None]
    assert all(partition["consumer_id"].startswith("rdkafka-") for partition in found["stalled"]["partitions"])


def readers_that_commit_seldom(run: Run, servers: str, topic: str) -> None:
    """Some readers are between two commits and some are late. Looks alone would find all of them stuck."""
    now_ms = time.time_ns() // 1_000_000
    _fill_at(servers, topic, now_ms - 3_600_000)
    # Seconds ago, offset. Each commit came a minute after its records.
    stories: dict[str, Sequence[tuple[int, int]]] = {
        "not-late": ((180, 10), (120, 20), (60, 30)),
        "late": ((460, 10), (400, 20), (340, 30)),
        "insists": ((180, 10), (120, 20), (60, 30), (30, 30)),
        "once": ((60, 30),),
    }
    for kind, commits in stories.items():
        for ago_s, offset in commits:
            _commit_at(servers, f"{topic}-{kind}", topic, offset, now_ms - ago_s * 1000)
    words = [word for kind in stories for word in ("--group", f"{topic}-{kind}")]
    look = ("lag", *words, "--interval", "0.1", "--samples", "3", "-o", "json")
    still = ("STOP", "nobody_reads")
    assert _told(run(*look), topic) == {
        "not-late": ("UNKNOWN", "between_commits"), "late": still, "insists": still, "once": still,
    }  # fmt: skip
    assert set(_told(run(*look, "--no-time-lag"), topic).values()) == {still}, "records are not read then"


def readers_of_transactions(run: Run, servers: str, topic: str) -> None:
    """Behind what a reader commits stand markers and aborted records: nobody stands still until a record comes."""
    producer = Producer({"bootstrap.servers": servers, "transactional.id": topic, "log_level": 2})
    producer.init_transactions(30)

    def send(partition: int) -> None:
        producer.begin_transaction()
        producer.produce(topic, b"v", partition=partition)
        assert producer.flush(30) == 0

    # A record and a marker in both partitions; an aborted record and its marker in the second.
    for partition in (0, 1):
        send(partition)
        producer.commit_transaction(30)
    send(1)
    producer.abort_transaction(30)
    wait_for(lambda: _stable_offsets(servers, topic) == [2, 4], "the transactions have their markers")
    names = {level: f"{topic}-{level}" for level in ("read_committed", "read_uncommitted")}
    readers = {level: Steady(servers, name, topic, by_record=True, isolation=level) for level, name in names.items()}
    look = ("lag", *names.values(), "--interval", "0.1", "--samples", "3", "--partitions", "-o", "json")
    committed_only = ("--isolation", "read-committed")
    no_records, still = ("OK", "no_records"), ("STALL", "stands_still")

    def verdicts(*options: str) -> dict[str, list[tuple[str, str]]]:
        ran = run(*look, *options)
        check_json("lag", Seen(ran.code, ran.out, ran.err))
        assert ran.code == any(row["status"] == "STALL" for row in ran.json)
        return {
            row["group"].removeprefix(f"{topic}-"): [(part["status"], part["reason"]) for part in row["partitions"]]
            for row in ran.json
        }

    try:
        wait_for(lambda: [reader.read for reader in readers.values()] == [2, 3], "all have read what is there")
        for options in ((), ("--no-time-lag",)):
            assert verdicts(*options) == {
                "read_committed": [no_records, ("UNKNOWN", "only_aborted")],
                "read_uncommitted": [no_records, no_records],
            }
        assert verdicts(*committed_only)["read_committed"] == [no_records, no_records]
        for reader in readers.values():
            reader.commits = False
        # What is in an open transaction may be committed, but a reader of committed records does not wait for it yet.
        send(0)
        for options in ((), ("--no-time-lag",)):
            assert [verdict[0] for verdict in verdicts(*options).values()] == [still, still]
        for options in (committed_only, (*committed_only, "--no-time-lag")):
            assert verdicts(*options)["read_committed"] == [no_records, no_records]
        plain = Producer({"bootstrap.servers": servers, "log_level": 2})
        plain.produce(topic, b"v", partition=1)
        assert plain.flush(30) == 0
        assert [verdict[1] for verdict in verdicts().values()] == [still, still]
        assert [verdict[1] for verdict in verdicts(*committed_only).values()] == [still, still]
    finally:
        for reader in readers.values():
            reader.close()
        producer.abort_transaction(30)


def _stable_offsets(servers: str, topic: str) -> list[int]:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "unused", "isolation.level": "read_committed"})
    try:
        return [consumer.get_watermark_offsets(TopicPartition(topic, number), 30)[1] for number in (0, 1)]
    finally:
        consumer.close()


def _told(ran: Ran, topic: str) -> Mapping[str, tuple[str, str]]:
    return {row["group"].removeprefix(f"{topic}-"): (row["status"], row["reason"]) for row in ran.json}


def _fill_at(servers: str, topic: str, time_ms: int) -> None:
    producer = Producer({"bootstrap.servers": servers, "log_level": 2})
    for number in range(100):
        producer.produce(topic, b"v%d" % number, partition=0, timestamp=time_ms)
    assert producer.flush(40) == 0


def _commit_at(servers: str, group: str, topic: str, offset: int, time_ms: int) -> None:
    """Commit with a past time, which version 1 of OffsetCommit allows, once the group has a coordinator."""
    partition = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata="", commit_timestamp=time_ms
    )
    request = OffsetCommitRequest(group_id=group, topics=[OffsetCommitRequestTopic(name=topic, partitions=[partition])])

    def is_committed() -> bool:
        with WireClient(servers.split(",")[0]) as client:
            response = client.ask(FindCoordinatorRequest(key=group), 1)
        if response.error_code != ErrorCode.NONE:
            return False
        with WireClient(f"{response.host}:{response.port}") as client:
            return bool(client.ask(request, 1).topics[0].partitions[0].error_code == ErrorCode.NONE)

    wait_for(is_committed, f"{group} has committed")
