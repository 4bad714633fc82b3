"""Commits that are answered from their bytes leave the same log, the same offsets and the same answers as others."""

from __future__ import annotations

import asyncio
import gc
import struct
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from weakref import ref

import pytest
from coordinator_world import READ, CoordinatorWorld, stable, with_world
from event_loop import staged
from hypothesis import given
from hypothesis import strategies as st
from network_serving import session

from engine.broker.coordinator.groups.commit_form import CommitForm, CommitForms, CommittedOffset, Committer
from engine.broker.coordinator.groups.commit_gathering import commit_batch
from engine.broker.handlers.context import RequestContext
from engine.broker.handlers.offset_commit import offset_commit
from engine.broker.handlers.plain_commits import plain_commit
from engine.broker.network.request import Deferred, EncodedAnswer
from engine.broker.replication.metadata_cache import MetadataSnapshot
from engine.common.errors import ErrorCode
from engine.common.model import TopicPartition
from engine.kafka.config.metadata_version import parse_metadata_version
from engine.kafka.formats.consumer_offsets import encode_offset_key
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from engine.kafka.protocol.codec import Outgoing, encoder
from engine.kafka.protocol.frames import decode_request, decode_request_header, encode_request
from engine.kafka.protocol.records import layout
from engine.kafka.protocol.records.attributes import Codec
from engine.kafka.protocol.records.encode import encode_records
from engine.kafka.protocol.records.header import iter_batches
from engine.kafka.protocol.records.record import Record

IBP = parse_metadata_version("3.9")


@dataclass
class Sender:
    """Sends commits to a world's coordinator, from their bytes or through the handler."""

    world: CoordinatorWorld
    topics: dict[str, dict[int, None]] = field(default_factory=lambda: {"read": dict.fromkeys(range(10))})
    ibp: str = "3.9"

    def __post_init__(self) -> None:
        self.tell_cluster()

    def tell_cluster(self) -> None:
        """Let the broker hear of the topics as they are now."""
        topics = {name: dict(partitions) for name, partitions in self.topics.items()}
        self.broker: Any = SimpleNamespace(
            clock=self.world.clock,
            config=SimpleNamespace(inter_broker_protocol_version=parse_metadata_version(self.ibp)),
            group_coordinator=self.world.coordinator,
            metadata_cache=SimpleNamespace(
                snapshot=MetadataSnapshot(),
                partitions=lambda topic: topics.get(topic, {}),
                contains=lambda partition: partition[1] in topics.get(partition[0], {}),
            ),
        )

    def plainly(self, request: OffsetCommitRequest, version: int = 8, extra: bytes = b"") -> Deferred | None:
        frame = memoryview(bytes(encode_request(request, version, 1, "c"))[4:] + extra)
        _, position = decode_request_header(frame)
        context = RequestContext(self.broker, ApiKey.OFFSET_COMMIT, version, 1, "c", session("h"))
        return plain_commit(context, frame, position)

    def usually(self, request: OffsetCommitRequest, version: int = 8) -> Any:
        received: Any = decode_request(memoryview(encode_request(request, version, 1, "c"))[4:])[1]
        context = RequestContext(self.broker, ApiKey.OFFSET_COMMIT, version, 1, "c", session("h"))
        return offset_commit(context, received)

    async def sent_before(self, request: OffsetCommitRequest) -> None:
        """Send commits until this form of them is known."""
        for _ in range(2):
            if self.plainly(request) is None:
                self.usually(request)
            await asyncio.sleep(0)


def committing(
    offsets: dict[int, int], group: str = "g", text: str | None = "", epoch: int = 3, topic: str = "read", **of: Any
) -> OffsetCommitRequest:
    partitions = [
        OffsetCommitRequestPartition(
            partition_index=index, committed_offset=offset, committed_leader_epoch=epoch, committed_metadata=text
        )
        for index, offset in offsets.items()
    ]
    return OffsetCommitRequest(
        group_id=group, topics=[OffsetCommitRequestTopic(name=topic, partitions=partitions)], **of
    )


def body_of(answer: Any, version: int) -> bytes:
    """Return the bytes of an answer that may have come later."""
    response = answer.response if isinstance(answer, Deferred) else answer
    if isinstance(response, EncodedAnswer):
        return response.body
    assert isinstance(response, OffsetCommitResponse)
    out = Outgoing()
    encoder(OffsetCommitResponse, version)(out, response)
    return bytes(out)


@pytest.mark.parametrize("version", [8, 9])
@pytest.mark.parametrize("text", ["", None])
@pytest.mark.parametrize("indexes", [[0], [3, 1, 2], list(range(10))])
@pytest.mark.parametrize("is_replicated_at_once", [True, False])
@staged(with_world)
async def test_log_offsets_and_answers_are_those_of_any_commit(
    world: CoordinatorWorld, /, indexes: list[int], text: str | None, version: int, is_replicated_at_once: bool
) -> None:
    async def outcome(plain_ones: int) -> tuple[bytes, bytes, object]:
        await world.lead()
        sender = Sender(world)
        start = len(world.partition.log.data)
        answers = []
        for number in range(4):
            world.partition.is_replicated_at_once = is_replicated_at_once
            request = committing({index: 10 * number + index for index in indexes}, text=text)
            answer = sender.plainly(request, version) if number >= 4 - plain_ones else None
            assert (answer is not None) == (plain_ones == 3 and number >= 2), "the second makes the form"
            answer = answer or sender.usually(request, version)
            await asyncio.sleep(0)
            assert answer.is_complete is is_replicated_at_once
            world.replicate()
            answers.append(body_of(answer, version))
        assert len(set(answers)) == 1
        stored = world.coordinator.offsets.fetch("g", [TopicPartition("read", i) for i in range(11)])
        log = bytes(world.partition.log.data[start:])
        await world.move()
        assert world.coordinator.offsets.fetch("g", [TopicPartition("read", i) for i in range(11)]) == stored
        return answers[0], without_places(log), stored

    # On virtual time no clock ticks in between.
    usual, plain = await outcome(0), await outcome(3)
    assert usual == plain


def without_places(log: bytes) -> bytes:
    """Return batches without their offsets."""
    return b"".join(
        log[position + 8 : position + header.size_bytes] for position, header in iter_batches(memoryview(log))
    )


@given(
    group=st.text(min_size=1, max_size=20),
    topic=st.sampled_from(["t", "topic-" * 30]),
    values=st.lists(st.tuples(st.integers(-1, 2**63 - 1), st.integers(-(2**31), 2**31 - 1)), min_size=1, max_size=20),
    before=st.sampled_from([0, 1, 50, 63, 64, 65, 200, 8180, 8192]),
    timestamp_ms=st.integers(0, 2**50),
)
def test_records_are_those_of_any_commit(
    group: str, topic: str, values: list[tuple[int, int]], before: int, timestamp_ms: int
) -> None:
    partitions = [TopicPartition(topic, 7 * number) for number in range(len(values))]
    form = CommitForm(group, Committer(), partitions, lambda error: error)
    offsets, epochs = zip(*values, strict=True)
    filler = {TopicPartition("f", number): CommittedOffset(number) for number in range(before)}
    in_front = commit_batch([("f", filler)], 1, Codec.NONE, IBP)
    commit = form.offsets(offsets, epochs, timestamp_ms)
    both = commit_batch([("f", filler), (group, commit)], 1, Codec.NONE, IBP)
    for _ in range(2):
        records = form.records(before, offsets, epochs, timestamp_ms)
        if records is None:
            assert before < 64 < before + len(values) or before + len(values) > 8192
        else:
            assert records == both[len(in_front) :]
    assert len(in_front) >= layout.BATCH_OVERHEAD


USUAL = committing({0: 1})


@pytest.mark.parametrize(
    "unusual",
    {
        "a text": committing({0: 1}, text="x"),
        "no partition": committing({}),
        "a partition twice": OffsetCommitRequest(
            group_id="g",
            topics=[OffsetCommitRequestTopic(name="read", partitions=[*USUAL.topics[0].partitions] * 2)],
        ),
        "two topics": OffsetCommitRequest(group_id="g", topics=USUAL.topics * 2),
        "no topic": OffsetCommitRequest(group_id="g", topics=[]),
        "a long group": committing({0: 1}, group="g" * 127),
        "a member": committing({0: 1}, member_id="m", generation_id_or_member_epoch=1),
        "a partition that is not there": committing({0: 1, 11: 1}),
        "a topic that is not there": committing({0: 1}, topic="other"),
        "a group that is not there": committing({0: 1}, group="other"),
    }.items(),
    ids=lambda named: named[0].replace(" ", "-"),
)
@staged(with_world)
async def test_what_is_not_usual_is_left_to_the_handler(
    world: CoordinatorWorld, /, unusual: tuple[str, OffsetCommitRequest]
) -> None:
    await world.lead()
    sender = Sender(world)
    await sender.sent_before(USUAL)
    assert sender.plainly(USUAL) is not None
    for _ in range(4):
        assert sender.plainly(unusual[1]) is None


@staged(with_world)
async def test_of_the_usual_bytes_none_may_be_missing_or_too_many(world: CoordinatorWorld, /) -> None:
    await world.lead()
    sender = Sender(world)
    await sender.sent_before(USUAL)
    assert sender.plainly(USUAL, extra=b"\0") is None
    assert sender.plainly(USUAL, version=7) is None
    frame = memoryview(encode_request(USUAL, 8, 1, "c"))[4:]
    _, position = decode_request_header(frame)
    context = RequestContext(sender.broker, ApiKey.OFFSET_COMMIT, 8, 1, "c", session("h"))
    assert plain_commit(context, frame, position) is not None
    for end in range(position, len(frame)):
        assert plain_commit(context, frame[:end], position) is None
    for tagged in (1, 2, 3):
        changed = bytearray(frame)
        changed[-tagged] = 1
        assert plain_commit(context, memoryview(changed), position) is None


@staged(with_world)
async def test_what_nobody_can_decode_is_left_to_the_handler_too(world: CoordinatorWorld, /) -> None:
    await world.lead()
    sender = Sender(world)
    frame = encode_request(USUAL, 8, 1, "c")[4:]
    _, position = decode_request_header(memoryview(frame))
    context = RequestContext(sender.broker, ApiKey.OFFSET_COMMIT, 8, 1, "c", session("h"))
    no_text = bytes(frame).replace(b"\2g", b"\2\xff", 1)
    # Without a topic, the two tagged fields look like a topic of one partition.
    topic = bytes(frame).index(b"\5read")
    no_topic = bytes(frame[: topic - 1]) + b"\1" + b"\2\0" + bytes(frame[topic + 5 :])
    for damaged in (no_text, no_topic):
        assert [plain_commit(context, memoryview(damaged), position) for _ in range(3)] == [None] * 3


class Topics(dict[str, Any]):
    """Topics that somebody may watch."""


@staged(with_world)
async def test_a_form_keeps_alive_neither_old_metadata_nor_the_groups_of_a_partition_that_is_gone(
    world: CoordinatorWorld, /
) -> None:
    await world.lead()
    sender = Sender(world)
    topics = Topics()
    sender.broker.metadata_cache.snapshot = MetadataSnapshot(topics=topics)
    await sender.sent_before(USUAL)
    assert sender.plainly(USUAL) is not None
    await asyncio.sleep(0)
    known, group = ref(topics), ref(world.coordinator.groups.find("g"))
    del topics
    sender.tell_cluster()
    world.resign()
    gc.collect()
    assert (known(), group()) == (None, None)


@staged(with_world)
async def test_each_time_it_is_looked_whether_the_commit_may_be_refused(world: CoordinatorWorld, /) -> None:
    await world.lead()
    sender = Sender(world)
    member_id, generation = await stable(world, "g")
    request = committing({0: 1}, member_id=member_id, generation_id_or_member_epoch=generation)
    await sender.sent_before(request)
    assert sender.plainly(request) is not None
    await asyncio.sleep(0)
    sender.topics["read"].pop(0)
    sender.tell_cluster()
    assert sender.plainly(request) is None, "the partition is gone"
    sender.topics["read"][0] = None
    sender.tell_cluster()
    assert sender.plainly(request) is not None
    world.partition.is_leader = False
    assert sender.plainly(request) is None, "the coordinator's log dir has failed"
    world.partition.is_leader = True
    assert sender.plainly(request) is not None
    await asyncio.sleep(0)
    await stable(world, "g")
    assert sender.plainly(request) is None, "another generation"
    world.resign()
    assert sender.plainly(request) is None, "another coordinator"
    await world.lead(waits=False)
    assert sender.plainly(request) is None, "it is being loaded"
    await world.lead()
    assert sender.plainly(committing({0: 1})) is None


@staged(with_world)
async def test_a_commit_keeps_its_member_s_session(world: CoordinatorWorld, /) -> None:
    await world.lead()
    sender = Sender(world)
    member_id, generation = await stable(world, "g")
    request = committing({0: 1}, member_id=member_id, generation_id_or_member_epoch=generation)
    answers = []
    for _ in range(6):
        await asyncio.sleep(6)
        answer = sender.plainly(request) or sender.usually(request)
        await asyncio.sleep(0)
        answers.append(body_of(answer, 8))
    assert len(set(answers)) == 1
    await asyncio.sleep(11)
    assert sender.plainly(request) is None, "its session of ten seconds is over"


@staged(with_world)
async def test_the_later_commit_counts_whatever_its_way(world: CoordinatorWorld, /) -> None:
    await world.lead()
    sender = Sender(world)
    await sender.sent_before(committing({0: 1, 1: 1}))
    await sender.sent_before(committing({1: 1}, epoch=4, group_instance_id=None, member_id=""))
    for number in range(2, 20):
        request = committing({0: number, 1: number})
        way = sender.usually if number % 3 == 0 else sender.plainly
        sender.plainly(request) if number % 4 == 0 else None
        assert way(committing({0: number + 100, 1: number + 100})) is not None
        await asyncio.sleep(0)
        assert world.committed("g") == number + 100
    assert sender.plainly(committing({0: 5, 1: 5})) is not None
    world.coordinator.offsets.delete("g", [READ])
    await asyncio.sleep(0)
    assert world.committed("g") is None, "it was committed before it was deleted"
    assert world.committed("g", TopicPartition("read", 1)) == 5


@staged(with_world)
async def test_a_commit_that_is_deleted_before_it_is_replicated_does_not_come_back(world: CoordinatorWorld, /) -> None:
    await world.lead()
    sender = Sender(world)
    await sender.sent_before(USUAL)
    world.partition.is_replicated_at_once = False
    answer = sender.plainly(committing({0: 9}))
    assert answer is not None
    await asyncio.sleep(0)
    assert world.committed("g") == 1
    await world.coordinator.offsets.partitions_deleted([READ])
    world.replicate()
    assert answer.is_complete
    assert world.committed("g") is None


@pytest.mark.parametrize("refusal", [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.KAFKA_STORAGE_ERROR])
@staged(with_world)
async def test_the_answer_to_a_commit_that_cannot_be_written(world: CoordinatorWorld, /, refusal: ErrorCode) -> None:
    await world.lead()
    sender = Sender(world)
    await sender.sent_before(USUAL)
    world.partition.refusal = refusal
    answers = [sender.plainly(committing({0: 9})), sender.usually(committing({0: 9}))]
    await asyncio.sleep(0)
    plain, usual = (body_of(answer, 8) for answer in answers)
    assert plain == usual
    assert world.committed("g") == 1
    encoded = answers[0].response
    assert (encoded.error_count, encoded.error_code != 0) == (1, True)


@staged(with_world)
async def test_of_two_commits_the_one_that_fits_is_written(world: CoordinatorWorld, /) -> None:
    await world.lead()
    sender = Sender(world)
    many = dict.fromkeys(range(10), 1)
    await sender.sent_before(USUAL)
    await sender.sent_before(committing(many, group="h"))
    world.partition.batch_bytes_max = 400
    answers = [sender.plainly(committing({0: 9})), sender.plainly(committing(many, group="h"))]
    await asyncio.sleep(0)
    codes = [answer.response.error_code for answer in answers if answer is not None]
    assert codes == [ErrorCode.NONE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE]
    assert world.committed("g") == 9


@staged(with_world)
async def test_very_many_commits_of_one_turn(world: CoordinatorWorld, /) -> None:
    """The numbers of their records in the batch take one byte, then two; one commit has both."""
    await world.lead()
    sender = Sender(world)
    groups = [f"g{number}" for number in range(150)]
    for group in groups:
        await sender.sent_before(committing(dict.fromkeys(range(10), 1), group=group))
    answers = [
        sender.plainly(committing({i: 1000 * number + i for i in range(10)}, group=group))
        for number, group in enumerate(groups)
    ]
    await asyncio.sleep(0)
    assert all(answer is not None and answer.is_complete for answer in answers)
    await world.move()
    for number, group in enumerate(groups):
        for index in range(10):
            assert world.committed(group, TopicPartition("read", index)) == 1000 * number + index


@staged(with_world)
async def test_a_client_that_commits_other_partitions_each_time_has_no_form(world: CoordinatorWorld, /) -> None:
    await world.lead()
    sender = Sender(world)
    for number in range(10):
        request = committing({number: 1})
        assert sender.plainly(request) is None
        sender.usually(request)
        await asyncio.sleep(0)


@staged(with_world)
async def test_old_brokers_and_static_members_that_they_refuse_have_no_form(world: CoordinatorWorld, /) -> None:
    await world.lead()
    for ibp, instance_id in (("2.0", None), ("2.2", "i")):
        sender = Sender(world, ibp=ibp)
        request = committing({0: 1}, group_instance_id=instance_id)
        sender.usually(committing({0: 1}))
        await asyncio.sleep(0)
        assert [sender.plainly(request) for _ in range(4)] == [None] * 4


@staged(with_world)
async def test_the_first_brokers_that_write_plain_values_have_forms_which_serve_again_and_again(
    world: CoordinatorWorld, /
) -> None:
    await world.lead()
    sender = Sender(world, ibp="2.1-IV1")
    await sender.sent_before(USUAL)
    (form,) = world.coordinator.offsets.forms.values()
    assert isinstance(form, CommitForm)
    assert sender.plainly(USUAL) is not None
    (again,) = world.coordinator.offsets.forms.values()
    assert again is form


def test_numbers_of_records_take_one_byte_or_two() -> None:
    partitions = [TopicPartition("read", index) for index in (0, 1)]
    keys = [encode_offset_key("g", *partition) for partition in partitions]

    def made(first: int, count: int) -> bytes | None:
        form = CommitForm("g", Committer(), partitions[:count], lambda error: None)
        return form.records(first, [7, 8][:count], [3, 4][:count], 5)

    def expected(first: int, count: int) -> bytes:
        values = [struct.pack(">hqihq", 3, 7 + number, 3 + number, 0, 5) for number in range(count)]
        records = [Record(first + n, 5, keys[n], values[n]) for n in range(count)]
        return bytes(encode_records(records, 0, 5).data)

    for first, count in ((0, 2), (62, 2), (63, 1), (64, 2), (8190, 2), (8191, 1)):
        assert made(first, count) == expected(first, count)
    # The first takes one byte and the second two, or two and three.
    assert made(63, 2) is made(8191, 2) is made(8192, 1) is None


def test_forms_take_a_bounded_amount_of_memory() -> None:
    forms = CommitForms()
    for number in range(100_000):
        for _ in range(3):
            forms.put(b"%d" % number, (1, 2))
        assert len(forms) <= 10_000
        if number == 15_000:
            assert b"9999" in forms, "one more takes no other's place"
            assert b"15000" not in forms
    assert any(b"%d" % number in forms for number in range(80_000, 100_000)), "former ones make way in the end"
