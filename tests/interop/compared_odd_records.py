"""Requests about records that no client sends: a partition twice, limits below zero, a batch that spoils others."""

from __future__ import annotations

from collections.abc import Callable

from compared_records import BATCHES, WORDS, batch, changed, make, write
from side_by_side import Side, SideBySide

from engine.kafka.protocol.apis.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from engine.kafka.protocol.apis.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from engine.kafka.protocol.apis.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from engine.kafka.protocol.apis.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from engine.kafka.protocol.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData

TRANSACTIONAL = 0x10


def produced_twice(both: SideBySide) -> None:
    """Produce: the last batch of a partition counts. One transactional batch spoils all."""
    make(both, "twice", 3)
    make(both, "twice-old", 1)
    good, bad, spoilt = batch(2), changed(">B", 80, 1, is_sealed=False), changed(">B", 16, 1, is_sealed=False)
    transactional = changed(">h", 21, TRANSACTIONAL)
    pairs = {"good, good": (good, batch(4)), "good, bad": (good, bad), "bad, good": (bad, good)}
    pairs |= {"good, spoilt": (good, spoilt), "spoilt, good": (spoilt, good), "spoilt, bad": (spoilt, bad)}
    for name, (first, second) in pairs.items():
        for acks in (1, -1):
            both.ask(name, write(("twice", 0, first), ("twice", 0, second), acks=acks), BATCHES, unlike=WORDS)
            both.ask(f"{name}, apart", _apart("twice", first, second, acks=acks), BATCHES, unlike=WORDS)
    spoilers = {"too short": changed(">i", 8, 10), "less than none": changed(">i", 8, -1)}
    spoilers |= {f"magic {magic}": changed(">B", 16, magic, is_sealed=False) for magic in (0, 1, 3, 255)}
    spoilers |= {"too long": changed(">i", 8, 9999), "a part": batch()[:40], "a tail": batch() + b"xyz", "none": b""}
    spoilers |= {"a long transaction": changed(">h", 21, TRANSACTIONAL)[:-2]}
    for name, spoiler in spoilers.items():
        both.ask(f"beside {name}", write(("twice", 0, good), ("twice", 1, spoiler)), BATCHES, unlike=WORDS)
        both.ask(f"nowhere beside {name}", write(("twice", 1, spoiler), ("nosuch", 0, good)), BATCHES, unlike=WORDS)
    for acks in (2, -2):
        wrong = write(("nosuch", 0, good), ("twice", 0, spoilt), ("twice", 1, good), acks=acks)
        both.ask(f"acks {acks}", wrong, BATCHES, unlike=WORDS)
    both.ask("none of both", write(("twice", 9, good), ("twice", 9, good)), BATCHES, unlike=WORDS)
    both.ask("a transaction", write(("twice", 1, good), ("twice", 2, transactional)), BATCHES, unlike=WORDS)
    both.ask("a transaction first", write(("twice", 1, transactional), ("nosuch", 2, good)), BATCHES, unlike=WORDS)
    both.ask("nothing", ProduceRequest(acks=1, timeout_ms=1000, topic_data=[]), BATCHES)
    both.ask("no partition", ProduceRequest(acks=1, timeout_ms=1000, topic_data=[TopicProduceData(name="twice")]), [9])
    for acks in (1, 2):
        both.ask(f"no time, acks {acks}", _without_time(acks), BATCHES, unlike=WORDS)
    for partition in range(3):
        both.ask("what is there", _ends(("twice", partition)), [7])
        both.ask("what is there", _fetch(("twice", partition, 0, 10**6)), [12])


def _apart(topic: str, *parts: bytes | bytearray, acks: int) -> ProduceRequest:
    data = [
        TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=bytes(part))])
        for part in parts
    ]
    return ProduceRequest(acks=acks, timeout_ms=5_000, topic_data=data)


def _without_time(acks: int) -> ProduceRequest:
    request = write(("twice", 2, batch()), acks=acks)
    request.timeout_ms = -1
    return request


def _ends(*parts: tuple[str, int]) -> ListOffsetsRequest:
    topics = [
        ListOffsetsTopic(name=name, partitions=[ListOffsetsPartition(partition_index=index, timestamp=-1)])
        for name, index in parts
    ]
    return ListOffsetsRequest(replica_id=-1, topics=topics)


def _fetch(
    *parts: tuple[str, int, int, int],
    max_bytes: int = 10**6,
    min_bytes: int = 1,
    wait_ms: int = 0,
    session: tuple[int, int] = (0, -1),
    together: bool = False,
) -> Callable[[Side], FetchRequest]:
    """Fetch partitions from an offset on, with a limit each; ``together`` puts them under one entry of the topic."""

    def build(side: Side) -> FetchRequest:
        topics: list[FetchTopic] = []
        for name, partition, offset, limit in parts:
            wanted = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=limit)
            if together and topics:
                topics[-1].partitions.append(wanted)
            else:
                topics.append(FetchTopic(topic=name, topic_id=side.id_of(name), partitions=[wanted]))
        return FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            session_id=session[0],
            session_epoch=session[1],
            topics=topics,
        )

    return build


def fetched_oddly(both: SideBySide) -> None:
    """Fetch: a partition twice, limits below zero. When Kafka converts for old readers, it appends half a record."""
    make(both, "odd", 3)
    make(both, "odd-empty")
    make(both, "odd-rolled", segment_bytes="400")
    for topic in ("odd", "odd-rolled"):
        for _ in range(4):
            both.prepare(write((topic, 0, batch())), 9)
    both.prepare(write(("odd", 1, batch())), 9)

    def ask(what: str, build: Callable[[Side], FetchRequest]) -> None:
        both.ask(what, build, (4, 7, 12, 13, 17), unlike={"aborted_transactions"})
        both.ask(what, build, (0, 2, 3), unlike={"records"})

    far = 10**6
    for session in ((0, -1), (0, 0)):
        for together in (False, True):
            for offsets in ((0, 9), (9, 0), (0, 99), (99, 0), (3, 3)):
                two = [("odd", 0, offset, far) for offset in offsets]
                ask(f"twice {offsets} {session} {together}", _fetch(*two, session=session, together=together))
        limits = [("odd", 0, 0, 10), ("odd", 1, 0, far), ("odd", 0, 0, 300), ("odd-rolled", 0, 0, far)]
        ask("other limits", _fetch(*limits, session=session))
        ask("nowhere twice", _fetch(("nosuch", 0, 0, far), ("nosuch", 0, 5, far)))
    empty = ("odd-empty", 0, 0, far)
    ask("waits", _fetch(("odd", 0, 12, far), ("odd", 0, 12, far), wait_ms=20))
    # The client waits for 20 seconds only.
    ask("nowhere alone", _fetch(("nosuch", 0, 0, far), ("odd", 9, 0, far), wait_ms=60_000))
    ask("an older segment", _fetch(("odd-rolled", 0, 0, far), empty, min_bytes=far, wait_ms=60_000))
    full = (("odd", 0, 0, 10), ("odd-rolled", 0, 0, 10))
    ask("an older segment with no room", _fetch(*full, min_bytes=far, wait_ms=60_000))
    full = (("odd", 1, 0, far), ("odd", 0, 0, far))
    no_room = _fetch(*full, min_bytes=250, max_bytes=250, wait_ms=60_000)
    both.ask("no room in the answer", no_room, (4, 7, 12, 13, 17), unlike={"aborted_transactions"})
    for limit in (-1, -(2**31)):
        for offset in (0, 9, 12, 13):
            ask(f"limit {limit} at {offset}", _fetch(("odd", 0, offset, limit), ("odd", 1, 0, far), empty))
            whole = [("odd", 0, offset, far), ("odd", 1, 0, far), ("odd-rolled", 0, 0, far), empty]
            ask(f"in all {limit} at {offset}", _fetch(*whole, max_bytes=limit))
        ask(f"at least {limit}", _fetch(("odd", 0, 0, far), empty, min_bytes=limit))
        ask(f"wait {limit}", _fetch(empty, wait_ms=limit))
        ask(f"at least {limit} of nothing", _fetch(empty, min_bytes=limit, wait_ms=5000))
    both.ask("in all -1 of nothing", _fetch(empty, max_bytes=-1, wait_ms=5000), (4, 7, 12, 17))


def asked_twice(both: SideBySide) -> None:
    """DeleteRecords and OffsetForLeaderEpoch: a partition twice."""
    make(both, "again", 2)
    for partition in (0, 1):
        both.prepare(write(("again", partition, batch(6))), 9)
    for epochs in ((0, 5), (5, 0), (-1, 0)):
        wanted = [OffsetForLeaderPartition(partition=0, leader_epoch=epoch) for epoch in epochs]
        together = [OffsetForLeaderTopic(topic="again", partitions=wanted)]
        apart = [OffsetForLeaderTopic(topic="again", partitions=[request]) for request in wanted]
        for topics in (together, apart):
            both.ask(f"epochs {epochs}", OffsetForLeaderEpochRequest(replica_id=-1, topics=topics))
    for offsets in ((1, 2), (4, 3), (99, 5), (5, 99)):
        for partition, is_apart in ((0, False), (1, True)):
            deleted = [DeleteRecordsPartition(partition_index=partition, offset=offset) for offset in offsets]
            parts = [[name] for name in deleted] if is_apart else [deleted]
            topics = [DeleteRecordsTopic(name="again", partitions=part) for part in parts]
            both.ask(f"deleted {offsets}", DeleteRecordsRequest(topics=topics, timeout_ms=5_000))


class _Session:
    """The steps of a fetch session, sent to both brokers, each in the session that it opened."""

    def __init__(self, both: SideBySide, what: str, version: int) -> None:
        self._both = both
        self._what = what
        self._version = version
        self._ids: dict[str, int] = {}

    def step(
        self,
        epoch: int,
        *parts: tuple[str, int, int],
        forgotten: tuple[tuple[str, int], ...] = (),
        version: int | None = None,
        wait_ms: int = 0,
        leader_epoch: int = -1,
    ) -> None:
        answers = []
        used = self._version if version is None else version
        for name, side in self._both.sides.items():
            wanted = [(*part, 10**6) for part in parts]
            request = _fetch(*wanted, session=(self._ids.get(name, 0), epoch), wait_ms=wait_ms)(side)
            request.forgotten_topics_data = [
                ForgottenTopic(topic=topic, topic_id=side.id_of(topic), partitions=[index])
                for topic, index in forgotten
            ]
            for partition in (partition for topic in request.topics for partition in topic.partitions):
                partition.current_leader_epoch = leader_epoch
            answer = side.ask(request, used)
            if epoch == 0:
                self._ids[name] = answer.session_id
            # A session continues or has ended. Its id is the broker's own.
            goes_on = answer.session_id == self._ids[name] != 0
            answers.append({"goes_on": goes_on, **side.plain(answer)})
        self._both.compare(f"{self._what}, epoch {epoch} {parts}", used, *answers, unlike={"aborted_transactions"})


def fetched_in_sessions(both: SideBySide) -> None:
    """Fetch: sessions step by step, with partitions that come, go, get records, fail, or do not exist yet."""
    make(both, "steps", 3)
    for version in (7, 11, 12, 13, 17):
        late = f"steps-late-{version}"
        session = _Session(both, "a session", version)
        ends = {partition: _end(both, "steps", partition) for partition in range(3)}
        session.step(0, ("steps", 0, ends[0]), ("steps", 1, ends[1]))
        session.step(1)
        both.prepare(write(("steps", 1, batch())), 9)
        session.step(2)
        session.step(3, ("steps", 1, ends[1] + 3))
        session.step(4, ("steps", 2, ends[2]), ("nosuch", 0, 0))
        session.step(5)
        session.step(6, ("steps", 0, 999))
        session.step(7)
        session.step(8, ("steps", 0, ends[0]))
        session.step(9, forgotten=(("steps", 1), ("nosuch", 0), ("steps", 2)))
        both.prepare(write(("steps", 1, batch()), ("steps", 0, batch())), 9)
        session.step(10)
        session.step(12)
        session.step(11, (late, 0, 0))
        make(both, late)
        session.step(12)
        session.step(13, (late, 0, 0))
        session.step(14, version=12 if version > 12 else 13)
        session.step(14, forgotten=(("steps", 0), (late, 0)))
        session.step(15, forgotten=(("steps", 0), (late, 0), ("nosuch", 0)))
        session.step(16)
        empty = _Session(both, "an empty session", version)
        empty.step(0)
        empty.step(1)
        empty.step(2, ("steps", 0, 0))
        ends = {partition: _end(both, "steps", partition) for partition in range(3)}
        epochs = _Session(both, "a session with leader epochs", version)
        epochs.step(0, ("steps", 0, ends[0]), ("steps", 1, ends[1]))
        epochs.step(1, ("steps", 0, ends[0]), leader_epoch=0)
        epochs.step(2, ("steps", 1, ends[1]), leader_epoch=9)
        epochs.step(3, ("steps", 1, ends[1]))
        epochs.step(4, ("steps", 0, 0), forgotten=(("steps", 0), ("steps", 1)))
        epochs.step(5)
        both.ask("the end of a session", _fetch(("steps", 0, 0, 10), session=(77, -1)), [version])


def _end(both: SideBySide, topic: str, partition: int) -> int:
    (answer,) = {side.ask(_ends((topic, partition)), 7).topics[0].partitions[0].offset for side in both.sides.values()}
    return int(answer)


AREAS: tuple[Callable[[SideBySide], None], ...] = (produced_twice, fetched_oddly, fetched_in_sessions, asked_twice)
