"""Requests about transactions to brokers of both kinds: every step and version, right and wrong, and walks.

Producer ids differ between the brokers, so each side keeps its own; what is compared is everything else.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

from compared_records import make, wait_for_ids
from patience import within
from side_by_side import Side, SideBySide
from soak import SOAK

from engine.common.errors import ErrorCode
from engine.kafka.formats.control_records import read_end_transaction_marker
from engine.kafka.protocol.apis.add_offsets_to_txn import AddOffsetsToTxnRequest
from engine.kafka.protocol.apis.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from engine.kafka.protocol.apis.delete_topics import DeleteTopicsRequest
from engine.kafka.protocol.apis.describe_producers import DescribeProducersRequest, TopicRequest
from engine.kafka.protocol.apis.describe_transactions import DescribeTransactionsRequest
from engine.kafka.protocol.apis.end_txn import EndTxnRequest
from engine.kafka.protocol.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from engine.kafka.protocol.apis.find_coordinator import FindCoordinatorRequest
from engine.kafka.protocol.apis.init_producer_id import InitProducerIdRequest
from engine.kafka.protocol.apis.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from engine.kafka.protocol.apis.list_transactions import ListTransactionsRequest
from engine.kafka.protocol.apis.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from engine.kafka.protocol.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from engine.kafka.protocol.apis.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from engine.kafka.protocol.apis.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from engine.kafka.protocol.declaration import Request
from engine.kafka.protocol.records.encode import encode_batch
from engine.kafka.protocol.records.header import iter_batches
from engine.kafka.protocol.records.record import Record

WORDS = {"error_message"}
DEADLINE_S = 30
BEGIN_MS = int(time.time() * 1000)
"""The records' time. They are in one segment with their markers, which get the present time."""
TIMEOUT_MS = 60_000

Who = tuple[str, int]
"""A transactional id, and which of the producers that got an id and epoch for it."""

Build = Callable[[Side], Request]


class Producers:
    """What each side has told the producers: producer id and epoch, by transactional id and turn."""

    def __init__(self, both: SideBySide) -> None:
        self.both = both
        self.told: dict[str, dict[Who, tuple[int, int]]] = {name: {} for name in both.sides}

    def of(self, side: Side, who: Who) -> tuple[int, int]:
        """Return the side's producer id and epoch; what nobody has if it was told none."""
        (name,) = (name for name, each in self.both.sides.items() if each is side)
        return self.told[name].get(who, (987_654, 0))

    def init(self, what: str, who: Who, expected: Who | None = None, *, version: int = 5, **of: Any) -> None:
        """InitProducerId for a turn of a transactional id; ``expected`` says what the producer has."""
        answers = []
        for name, side in self.both.sides.items():
            producer_id, epoch = (-1, -1) if expected is None else self.of(side, expected)
            request = InitProducerIdRequest(
                **{
                    "transactional_id": who[0],
                    "transaction_timeout_ms": TIMEOUT_MS,
                    "producer_id": producer_id,
                    "producer_epoch": epoch,
                }
                | of
            )
            answer = side.ask(request, version)
            if answer.error_code == ErrorCode.NONE:
                self.told[name][who] = (answer.producer_id, answer.producer_epoch)
            answers.append(side.plain(answer))
        self.both.compare(what, version, *answers)

    def settle(self, *transactional_ids: str) -> None:
        """Wait until the transactions have their markers: Kafka answers before."""
        is_in_time = within(DEADLINE_S)
        asked = DescribeTransactionsRequest(transactional_ids=list(transactional_ids))
        for side in self.both.sides.values():
            while any(state.transaction_state.startswith("Prepare") for state in side.ask(asked, 0).transaction_states):
                assert is_in_time(), "markers are missing"
                time.sleep(0.01)

    # -- requests, made for each side

    def adding(self, who: Who, *topics: tuple[str, list[int]]) -> Build:
        def build(side: Side) -> Request:
            producer_id, epoch = self.of(side, who)
            return AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=who[0],
                v3_and_below_producer_id=producer_id,
                v3_and_below_producer_epoch=epoch,
                v3_and_below_topics=[AddPartitionsToTxnTopic(name=name, partitions=of) for name, of in topics],
            )

        return build

    def verifying(self, *asked: tuple[Who, list[tuple[str, list[int]]]], verify_only: bool = True) -> Build:
        def build(side: Side) -> Request:
            transactions = []
            for who, topics in asked:
                producer_id, epoch = self.of(side, who)
                transactions.append(
                    AddPartitionsToTxnTransaction(
                        transactional_id=who[0],
                        producer_id=producer_id,
                        producer_epoch=epoch,
                        verify_only=verify_only,
                        topics=[AddPartitionsToTxnTopic(name=name, partitions=of) for name, of in topics],
                    )
                )
            return AddPartitionsToTxnRequest(transactions=transactions)

        return build

    def adding_offsets(self, who: Who, group: str) -> Build:
        def build(side: Side) -> Request:
            producer_id, epoch = self.of(side, who)
            return AddOffsetsToTxnRequest(
                transactional_id=who[0], producer_id=producer_id, producer_epoch=epoch, group_id=group
            )

        return build

    def ending(self, who: Who, *, is_commit: bool) -> Build:
        def build(side: Side) -> Request:
            producer_id, epoch = self.of(side, who)
            return EndTxnRequest(
                transactional_id=who[0], producer_id=producer_id, producer_epoch=epoch, committed=is_commit
            )

        return build

    def producing(self, who: Who, topic: str, partition: int, sequence: int, *, transactional: bool = True) -> Build:
        def build(side: Side) -> Request:
            producer_id, epoch = self.of(side, who)
            records = encode_batch(
                [Record(0, BEGIN_MS + sequence, b"k", b"v", [])],
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=sequence,
                transactional=transactional,
            )
            data = PartitionProduceData(index=partition, records=memoryview(records))
            return ProduceRequest(
                transactional_id=who[0],
                acks=-1,
                timeout_ms=10_000,
                topic_data=[TopicProduceData(name=topic, partition_data=[data])],
            )

        return build

    def committing(self, who: Who, group: str, offset: int, *topics: tuple[str, int], **of: Any) -> Build:
        def build(side: Side) -> Request:
            producer_id, epoch = self.of(side, who)
            return TxnOffsetCommitRequest(
                transactional_id=who[0],
                group_id=group,
                producer_id=producer_id,
                producer_epoch=epoch,
                topics=[
                    TxnOffsetCommitRequestTopic(
                        name=name,
                        partitions=[
                            TxnOffsetCommitRequestPartition(
                                partition_index=index, committed_offset=offset, committed_metadata=f"m{offset}"
                            )
                        ],
                    )
                    for name, index in topics
                ],
                **of,
            )

        return build

    def marking(self, who: Who, *topics: tuple[str, list[int]], is_commit: bool, coordinator_epoch: int = 0) -> Build:
        def build(side: Side) -> Request:
            producer_id, epoch = self.of(side, who)
            return WriteTxnMarkersRequest(
                markers=[
                    WritableTxnMarker(
                        producer_id=producer_id,
                        producer_epoch=epoch,
                        transaction_result=is_commit,
                        topics=[WritableTxnMarkerTopic(name=name, partition_indexes=of) for name, of in topics],
                        coordinator_epoch=coordinator_epoch,
                    )
                ]
            )

        return build


def reading(topic: str, *partitions: int, isolation: int = 1) -> Build:
    def build(side: Side) -> Request:
        wanted = [FetchPartition(partition=p, fetch_offset=0, partition_max_bytes=1_000_000) for p in partitions]
        return FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=50_000_000,
            isolation_level=isolation,
            session_id=0,
            session_epoch=-1,
            topics=[FetchTopic(topic=topic, topic_id=side.id_of(topic), partitions=wanted)],
        )

    return build


def compare_batches(both: SideBySide, what: str, topic: str, partition: int) -> None:
    """Compare the batches of a partition; only their times and producer ids may differ."""
    logs = []
    for side in both.sides.values():
        answer = side.ask(reading(topic, partition, isolation=0)(side), 13).responses[0].partitions[0]
        batches: list[list[Any]] = []
        for position, header in iter_batches(answer.records):
            marker = read_end_transaction_marker(answer.records, position, header) if header.is_control else None
            sequences = (header.base_sequence, header.last_sequence)
            epochs = (header.producer_epoch, header.partition_leader_epoch)
            batches.append([header.base_offset, header.is_transactional, *sequences, *epochs, str(marker)])
        end_offset = batches[-1][0] + 1 if batches else 0
        assert end_offset == answer.high_watermark, "it was read to the end"
        aborted = side.ask(reading(topic, partition)(side), 13).responses[0].partitions[0].aborted_transactions
        batches.append([transaction.first_offset for transaction in aborted or ()])
        logs.append(batches)
    both.compare(what, 13, *logs)


def ends(topic: str, *partitions: int) -> Request:
    wanted = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in partitions]
    return ListOffsetsRequest(
        replica_id=-1, isolation_level=1, topics=[ListOffsetsTopic(name=topic, partitions=wanted)]
    )


def offsets_of(group: str, *topics: str, require_stable: bool) -> Request:
    named = [OffsetFetchRequestTopics(name=name, partition_indexes=[0, 1]) for name in topics]
    return OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=group, topics=named if topics else None)],
        require_stable=require_stable,
    )


def make_ready(both: SideBySide) -> Producers:
    """Make a topic, and wait for the coordinators of both kinds."""
    if any("in-txn" not in side.ids for side in both.sides.values()):
        make(both, "in-txn", 3)
        make(both, "also-in-txn", 2)
    wait_for_ids(both)
    is_in_time = within(DEADLINE_S)
    for side in both.sides.values():
        for kind in (0, 1):
            while side.ask(FindCoordinatorRequest(key="t", key_type=kind), 3).error_code:
                assert is_in_time(), "no coordinator"
                time.sleep(0.05)
        asked = DescribeTransactionsRequest(transactional_ids=[f"t{number}" for number in range(200)])
        while (
            any(
                state.error_code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
                for state in side.ask(asked, 0).transaction_states
            )
            and "t-done" not in side.ids
        ):
            assert is_in_time(), "transactional ids are not loaded"
            time.sleep(0.05)
        side.ids["t-done"] = b""
    return Producers(both)


def transactions_refused(both: SideBySide) -> None:
    """What nobody may do without a transaction, and what no producer may ask for."""
    p = make_ready(both)
    both.ask("coordinator", FindCoordinatorRequest(key="t", key_type=1), range(1, 4))
    both.ask("coordinators", FindCoordinatorRequest(coordinator_keys=["t", "", "u"], key_type=1), range(4, 7))
    for timeout_ms in (0, -1, 900_001, 2**31 - 1):
        p.init(f"time-out {timeout_ms}", ("refused", 0), transaction_timeout_ms=timeout_ms)
    p.init("empty", ("", 0))
    for producer_id, epoch in ((5, -1), (-1, 5)):
        p.init(f"{producer_id} {epoch}", ("refused", 0), producer_id=producer_id, producer_epoch=epoch)
    nobody = ("nobody", 0)
    for who in (nobody, ("", 0)):
        both.ask("add", p.adding(who, ("in-txn", [0, 1])), range(4))
        both.ask("verify", p.verifying((who, [("in-txn", [0, 1])])), [4, 5])
        both.ask("offsets", p.adding_offsets(who, "g"))
        both.ask("commit", p.ending(who, is_commit=True))
        both.ask("abort", p.ending(who, is_commit=False))
        both.ask("produce", p.producing(who, "in-txn", 0, 0), [3, 8, 9, 11], unlike=WORDS)
        both.ask("commit offsets", p.committing(who, "g", 5, ("in-txn", 0)))
    both.ask("describe", DescribeTransactionsRequest(transactional_ids=["nobody", "", "nobody"]))
    both.ask("describe none", DescribeTransactionsRequest(transactional_ids=[]))
    both.ask("unknown states", ListTransactionsRequest(state_filters=["Ongoing", "ongoing", "Gone", "Dead"]))
    both.ask("no markers", WriteTxnMarkersRequest(markers=[]))
    both.ask("nothing to mark", p.marking(nobody, is_commit=True))
    both.ask("nowhere to mark", p.marking(nobody, ("nosuch", [0]), ("in-txn", [7]), is_commit=True))


def a_transaction(both: SideBySide) -> None:
    """One transaction after the other, every step in every version."""
    p = make_ready(both)
    for version in range(6):
        p.init("init", (f"story-{version}", 0), version=version)
        p.init("again", (f"story-{version}", 1), version=version)
    first, second = ("story-3", 0), ("story-3", 1)
    topics = ("in-txn", [0, 1, 1]), ("also-in-txn", [1])
    both.ask("fenced add", p.adding(first, *topics), range(4))
    both.ask("fenced end", p.ending(first, is_commit=True))
    both.ask("fenced offsets", p.adding_offsets(first, "g"))
    for wrong in (("nosuch", [0]), ("in-txn", [0, 9, -1])):
        both.ask("add wrong", p.adding(second, ("in-txn", [0]), wrong), range(4))
    both.ask("add nothing", p.adding(("story-5", 1)), range(4))
    both.ask("add", p.adding(second, *topics), range(4))
    both.ask("verify", p.verifying((second, [("in-txn", [0, 1, 2])]), (("story-5", 0), [("in-txn", [0])])), [4, 5])
    both.ask("verify none", p.verifying((second, [])), [4, 5])
    both.ask("verify wrong", p.verifying((second, [("nosuch", [0]), ("in-txn", [0])])), [4, 5])
    for sequence, version in enumerate((3, 7, 9, 10, 11)):
        both.ask("produce", p.producing(second, "in-txn", 0, sequence), [version])
    both.ask("produce twice", p.producing(second, "in-txn", 0, 4), [11])
    both.ask("not transactional", p.producing(second, "in-txn", 0, 5, transactional=False), [11], unlike=WORDS)
    both.ask("produce elsewhere", p.producing(second, "in-txn", 2, 0), [3, 9, 10, 11], unlike=WORDS)
    both.ask("fenced produce", p.producing(first, "in-txn", 1, 0), [3, 9, 10, 11], unlike=WORDS)
    both.ask("offsets not added", p.committing(second, "story", 5, ("in-txn", 0)))
    both.ask("add offsets", p.adding_offsets(second, "story"))
    for version in range(5):
        asked = p.committing(second, "story", version, ("in-txn", 0), ("nosuch", 0), ("in-txn", 9))
        both.ask("offsets", asked, [version])
    member = {"generation_id": 3, "member_id": "somebody"}
    both.ask("offsets of a member", p.committing(second, "story", 9, ("in-txn", 1), **member), [3, 4])
    both.ask("no group", p.committing(second, "", 9, ("in-txn", 1)))
    for stable in (False, True):
        both.ask("pending", offsets_of("story", "in-txn", require_stable=stable), [8, 9])
        both.ask("all pending", offsets_of("story", require_stable=stable), [8, 9])
    both.ask("stable", ends("in-txn", 0, 1, 2), range(2, 10))
    both.ask("read", reading("in-txn", 0, 1, 2), [4, 11, 13, 16])
    both.ask("describe", DescribeTransactionsRequest(transactional_ids=["story-3", "story-5", "story-0"]))
    for filters in ({"state_filters": ["Ongoing"]}, {"state_filters": ["Empty"]}, {"producer_id_filters": [-5]}):
        both.ask(f"list {filters}", ListTransactionsRequest(**filters))
    both.ask("list long", ListTransactionsRequest(duration_filter=3_600_000), [1])
    both.ask("producers", DescribeProducersRequest(topics=[TopicRequest(name="in-txn", partition_indexes=[0, 1, 2])]))
    both.ask("commit", p.ending(second, is_commit=True), [4])
    p.settle("story-3")
    both.ask("commit again", p.ending(second, is_commit=True))
    both.ask("abort after all", p.ending(second, is_commit=False))
    for stable in (False, True):
        both.ask("committed", offsets_of("story", "in-txn", require_stable=stable), [8, 9])
    both.ask("stable then", ends("in-txn", 0, 1, 2), range(2, 10))
    both.ask("zombie", p.producing(second, "in-txn", 0, 5), [3, 9, 10, 11], unlike=WORDS)
    both.ask("described then", DescribeTransactionsRequest(transactional_ids=["story-3"]))
    both.ask("verify then", p.verifying((second, [("in-txn", [0])])), [4, 5])


def aborted_transactions(both: SideBySide) -> None:
    """Aborts by the producer, by its successor and by an operator, and what readers see of them."""
    p = make_ready(both)
    for turn, outcome in enumerate((False, True, False)):
        who = ("abort", turn)
        p.init("init", who)
        both.ask("add", p.adding(who, ("also-in-txn", [0])), [3])
        both.ask("produce", p.producing(who, "also-in-txn", 0, 0), [11])
        both.ask("end", p.ending(who, is_commit=outcome), [4])
        p.settle("abort")
    both.ask("read", reading("also-in-txn", 0), [4, 11, 13, 16], unlike={"records"})
    compare_batches(both, "aborted and committed", "also-in-txn", 0)
    p.init("init", ("fence", 0))
    both.ask("add", p.adding(("fence", 0), ("also-in-txn", [0])), [3])
    both.ask("produce", p.producing(("fence", 0), "also-in-txn", 0, 0), [11])
    p.init("while open", ("fence", 1))
    p.settle("fence")
    p.init("then", ("fence", 1))
    both.ask("zombie", p.producing(("fence", 0), "also-in-txn", 0, 1), [3, 9, 10, 11], unlike=WORDS)
    both.ask("zombie ends", p.ending(("fence", 0), is_commit=True))
    p.init("zombie goes on", ("fence", 2), ("fence", 0))
    p.init("go on", ("fence", 3), ("fence", 1))
    p.init("the same again", ("fence", 3), ("fence", 1))
    for version in (3, 4):
        p.init("zombie", ("fence", 4), ("fence", 0), version=version)
    p.init("init", ("hang", 0))
    both.ask("add", p.adding(("hang", 0), ("also-in-txn", [0])), [3])
    both.ask("produce", p.producing(("hang", 0), "also-in-txn", 0, 0), [11])
    marked = [("also-in-txn", [0, 1])]
    both.ask("marker", p.marking(("hang", 0), *marked, is_commit=False), [1])
    both.ask("marker of a former coordinator", p.marking(("hang", 0), *marked, is_commit=False, coordinator_epoch=-1))
    both.ask("marker of nobody", p.marking(("nobody", 0), *marked, is_commit=True))
    both.ask("produce then", p.producing(("hang", 0), "also-in-txn", 0, 1), [11])
    both.ask("commit", p.ending(("hang", 0), is_commit=True), [4])
    p.settle("hang")
    for partition in (0, 1):
        compare_batches(both, f"also-in-txn-{partition}", "also-in-txn", partition)


def odd_transactions(both: SideBySide) -> None:
    """Very long transactional ids, and a topic that is deleted while transactions write to it."""
    p = make_ready(both)
    for size in (249, 30_000, 2**15 - 1):
        who = ("x" * size, 0)
        for version in range(6):
            p.init(f"{size} bytes", who, version=version)
        both.ask(f"{size} bytes, add", p.adding(who, ("in-txn", [2])), [0, 3])
        both.ask(f"{size} bytes, verify", p.verifying((who, [("in-txn", [2])])), [4, 5])
        both.ask(f"{size} bytes, offsets", p.adding_offsets(who, "long"), [0, 3])
        both.ask(f"{size} bytes, describe", DescribeTransactionsRequest(transactional_ids=[who[0]]))
        both.ask(f"{size} bytes, commit", p.ending(who, is_commit=True), [4])
        p.settle(who[0])
    topic, other = "deleted-in-txn", "left-in-txn"
    make(both, topic, 2)
    make(both, other)
    both.wait_until_led(topic, other)
    ids = ["commits", "aborts", "goes-on"]
    for who in ((name, 0) for name in ids):
        p.init("init", who)
        both.ask("add", p.adding(who, (topic, [0, 1]), (other, [0])), [3])
        both.ask("produce", p.producing(who, topic, 0, 0), [11])
        both.ask("produce elsewhere", p.producing(who, other, 0, 0), [11])
    both.prepare(DeleteTopicsRequest(topic_names=[topic], timeout_ms=15_000), 3)
    last = ("goes-on", 0)
    both.ask("add to the deleted", p.adding(last, (topic, [0])), [3])
    both.ask("verify the deleted", p.verifying((last, [(topic, [0]), (other, [0])])), [4, 5])
    both.ask("produce to the deleted", p.producing(last, topic, 0, 1), [11], unlike=WORDS)
    for name in ids:
        both.ask(name, p.ending((name, 0), is_commit=name != "aborts"), [4])
        p.settle(name)
    both.ask("described", DescribeTransactionsRequest(transactional_ids=ids))
    both.ask("ends", ends(other, 0), [9])
    compare_batches(both, "the other topic", other, 0)


def walked(both: SideBySide, seed: int, steps: int) -> None:
    """Random requests of several producers, in and out of order."""
    p = make_ready(both)
    chance = random.Random(seed)
    ids = [f"walk-{seed}-{number}" for number in range(3)]
    turns = dict.fromkeys(ids, 0)
    sequences: dict[tuple[Who, int], int] = {}
    for step in range(steps):
        name = chance.choice(ids)
        who = (name, max(0, turns[name] - chance.choice((0, 0, 0, 0, 1))))
        context = f"seed {seed} step {step} {who}"
        action = chance.choices(
            ["init", "go on", "add", "offsets", "produce", "commit offsets", "end", "verify", "look"],
            [2, 2, 5, 2, 8, 3, 5, 1, 1],
        )[0]
        partition = chance.randrange(3)
        if action == "init":
            turns[name] += 1
            p.init(f"{context} init", (name, turns[name]), version=chance.choice((0, 2, 4, 5)))
        elif action == "go on":
            turns[name] += 1
            p.init(f"{context} go on", (name, turns[name]), who, version=chance.choice((3, 4, 5)))
        elif action == "add":
            both.ask(f"{context} add", p.adding(who, ("in-txn", [partition])), [chance.randrange(4)])
        elif action == "offsets":
            both.ask(f"{context} offsets", p.adding_offsets(who, f"walk-{partition}"), [chance.randrange(5)])
        elif action == "produce":
            of = (who, partition)
            sequence = max(0, sequences.get(of, 0) + chance.choice((0, 0, 0, 0, 0, 1, -1)))
            sequences[of] = sequence + 1
            both.ask(
                f"{context} produce {partition} {sequence}",
                p.producing(who, "in-txn", partition, sequence),
                [chance.choice((3, 9, 11))],
                unlike=WORDS,
            )
        elif action == "commit offsets":
            asked = p.committing(who, f"walk-{partition}", step, ("in-txn", partition))
            both.ask(f"{context} commit offsets", asked, [chance.randrange(5)])
        elif action == "end":
            both.ask(f"{context} end", p.ending(who, is_commit=chance.random() < 0.6), [chance.randrange(5)])
        elif action == "verify":
            both.ask(f"{context} verify", p.verifying((who, [("in-txn", [0, 1, 2])])), [chance.choice((4, 5))])
        else:
            both.ask(f"{context} describe", DescribeTransactionsRequest(transactional_ids=ids))
            both.ask(f"{context} ends", ends("in-txn", 0, 1, 2), [9])
            both.ask(f"{context} offsets", offsets_of(f"walk-{partition}", require_stable=True), [9])
        p.settle(*ids)
    both.ask(f"seed {seed} read", reading("in-txn", 0, 1, 2), [16], unlike={"records"})
    for partition in range(3):
        compare_batches(both, f"seed {seed} partition {partition}", "in-txn", partition)


def transactions_walked(both: SideBySide) -> None:
    """Three short walks; ``KLAMM_SOAK`` multiplies them."""
    for seed in range(3 * SOAK):
        walked(both, seed, 150)


AREAS: tuple[Callable[[SideBySide], None], ...] = (
    transactions_refused,
    a_transaction,
    aborted_transactions,
    odd_transactions,
    transactions_walked,
)
