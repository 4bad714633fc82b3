"""A follower's fetch session against a model of what the leader remembers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.broker.replication.follower_fetch_session import (
    FetchPlan,
    FetchWanted,
    FollowerFetchSession,
    add_to_topics,
)
from engine.common.errors import ErrorCode
from engine.common.model import TopicPartition
from engine.common.topic_id import ZERO_TOPIC_ID
from engine.kafka.protocol.apis.fetch import FetchableTopicResponse, FetchResponse, FetchTopic, PartitionData

VERSION = 17
ID = bytes(15) + b"\x01"
A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def wanted(offset: int = 0, topic_id: bytes = ID) -> FetchWanted:
    return FetchWanted(topic_id, offset, 0, 1000, 5, 3)


def topics_of(plan: FetchPlan) -> list[FetchTopic]:
    topics: list[FetchTopic] = []
    for sent in plan.sent.items():
        add_to_topics(topics, [sent])
    return topics


def asked(plan: FetchPlan) -> dict[int, int]:
    """Return the offsets in the request, by partition."""
    return {p.partition: p.fetch_offset for topic in topics_of(plan) for p in topic.partitions}


def answer(*partitions: int, session_id: int = 9, error: ErrorCode = ErrorCode.NONE) -> FetchResponse:
    topic = FetchableTopicResponse(topic_id=ID, partitions=[PartitionData(partition_index=p) for p in partitions])
    return FetchResponse(error_code=error, session_id=session_id, responses=[topic] if partitions else [])


def established(*partitions: TopicPartition) -> FollowerFetchSession:
    session = FollowerFetchSession("test")
    for topic_partition in partitions:
        session.want(topic_partition, wanted())
    plan = session.plan()
    assert session.handle_response(answer(*(tp.partition for tp in partitions)), plan, VERSION) is not None
    return session


def test_the_first_request_says_all_and_the_next_only_changes() -> None:
    session = established(A, B)
    session.want(A, wanted(5))
    session.want(B, wanted())
    plan = session.plan()
    assert (plan.session_id, plan.session_epoch, asked(plan)) == (9, 1, {0: 5})
    assert plan.partitions.keys() == {A, B}
    assert session.handle_response(answer(), plan, VERSION) == []
    assert session.plan().session_epoch == 2


def test_without_a_session_whoever_got_records_comes_last() -> None:
    """As in Kafka 3.9.1 (FetchRequest.Builder), a topic appears again where another one stands between."""
    session = FollowerFetchSession("test")
    other = TopicPartition("u", 0)
    for topic_partition in (A, other, B):
        session.want(topic_partition, wanted())
    assert in_order(session.plan()) == [("t", [0]), ("u", [0]), ("t", [1])]
    session.want(A, wanted(5), is_last=True)
    session.want(other, wanted())
    assert in_order(session.plan()) == [("u", [0]), ("t", [1, 0])]


def in_order(plan: FetchPlan) -> list[tuple[str, list[int]]]:
    return [(topic.topic, [part.partition for part in topic.partitions]) for topic in topics_of(plan)]


def test_what_is_dropped_is_forgotten_once() -> None:
    session = established(A, B)
    session.drop(B)
    plan = session.plan()
    assert [(t.topic_id, t.partitions) for t in plan.forgotten] == [(ID, [1])]
    session.handle_response(answer(), plan, VERSION)
    assert session.plan().forgotten == []


def test_a_session_without_partitions_is_told_so_and_then_rests() -> None:
    session = established(A)
    session.drop(A)
    assert not session.is_empty, "the leader has something to forget"
    plan = session.plan()
    assert session.handle_response(answer(session_id=0), plan, VERSION) == []
    assert session.is_empty


def test_a_recreated_topic_is_replaced() -> None:
    session = established(A)
    session.want(A, wanted(0, bytes(15) + b"\x02"))
    plan = session.plan()
    assert [(t.topic_id, t.partitions) for t in plan.forgotten] == [(ID, [0])]
    assert [t.topic_id for t in topics_of(plan)] == [bytes(15) + b"\x02"]


def test_errors_begin_the_session_anew() -> None:
    for error, session_id in (
        (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0),
        (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 9),
        (ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, 9),
    ):
        session = established(A)
        assert session.handle_response(answer(error=error), session.plan(), VERSION) is None
        plan = session.plan()
        assert (plan.session_id, plan.session_epoch, asked(plan)) == (session_id, 0, {0: 0})


def test_a_lost_answer_begins_the_session_anew() -> None:
    session = established(A)
    session.plan()
    session.restart()
    plan = session.plan()
    assert (plan.session_id, plan.session_epoch) == (9, 0)


def test_answers_that_do_not_fit_are_dropped() -> None:
    session = established(A)
    assert session.handle_response(answer(0, 7), session.plan(), VERSION) is None
    full = FollowerFetchSession("test")
    full.want(A, wanted())
    full.want(B, wanted())
    assert full.handle_response(answer(0), full.plan(), VERSION) is None


def test_without_a_session_every_request_is_full() -> None:
    session = FollowerFetchSession("test")
    session.want(A, wanted())
    assert session.handle_response(answer(0, session_id=0), session.plan(), VERSION) is not None
    plan = session.plan()
    assert (plan.session_id, plan.session_epoch, asked(plan)) == (0, 0, {0: 0})


def test_one_topic_without_an_id_ends_the_session_by_id() -> None:
    session = established(A)
    session.want(TopicPartition("old", 0), wanted(0, ZERO_TOPIC_ID))
    plan = session.plan()
    assert (plan.session_epoch, plan.uses_topic_ids) == (0, False)


def test_the_epoch_wraps_to_one() -> None:
    session = established(A)
    session._epoch = 2**31 - 1
    session.handle_response(answer(), session.plan(), VERSION)
    assert session.plan().session_epoch == 1


operations = st.lists(
    st.tuples(st.sampled_from(["want", "drop", "send", "lose"]), st.integers(0, 3), st.integers(0, 2)), max_size=40
)


@given(operations)
def test_the_leader_always_knows_what_is_wanted(steps: list[tuple[str, int, int]]) -> None:
    """The model leader applies every request that arrives. After each, it must hold exactly what the follower wants."""
    session = FollowerFetchSession("test")
    model: dict[int, int] = {}
    truth: dict[int, int] = {}
    for operation, index, offset in steps:
        topic_partition = TopicPartition("t", index)
        if operation == "want":
            session.want(topic_partition, wanted(offset))
            truth[index] = offset
        elif operation == "drop":
            session.drop(topic_partition)
            truth.pop(index, None)
        else:
            plan = session.plan()
            if plan.is_full:
                model.clear()
            for topic in plan.forgotten:
                for forgotten in topic.partitions:
                    model.pop(forgotten, None)
            model |= asked(plan)
            assert model == truth
            if operation == "lose":
                session.restart()
            else:
                assert session.handle_response(answer(*(model if plan.is_full else ())), plan, VERSION) is not None
