"""Offsets of one group: when they are visible, which one wins, and when they are forgotten."""

from __future__ import annotations

import pytest

from engine.broker.coordinator.groups.commit_form import CommittedOffset
from engine.broker.coordinator.groups.group import Group, GroupState
from engine.broker.coordinator.groups.offsets import GroupOffsets, StoredOffset
from engine.common.model import TopicPartition

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
HOUR_MS = 3_600_000


def offset(number: int, **values: int) -> CommittedOffset:
    return CommittedOffset(number, **values)  # type: ignore[arg-type]


def test_a_commit_is_visible_once_it_is_replicated() -> None:
    offsets, commit = GroupOffsets(), {T0: offset(1)}
    offsets.begin_commit(commit)
    assert (offsets.get(T0), offsets.is_unstable(T0), offsets.is_empty) == (None, True, False)
    offsets.end_commit(commit, 10)
    assert (offsets.get(T0), offsets.is_unstable(T0), list(offsets.partitions)) == (offset(1), False, [T0])


def test_a_commit_that_failed_leaves_what_was() -> None:
    offsets = GroupOffsets()
    offsets.load(T0, StoredOffset(offset(1), 10))
    commit = {T0: offset(2)}
    offsets.begin_commit(commit)
    offsets.fail_commit(commit)
    assert (offsets.get(T0), offsets.is_unstable(T0)) == (offset(1), False)


def test_of_two_commits_that_are_equal_one_may_fail() -> None:
    for first_fails in (True, False):
        offsets = GroupOffsets()
        first, second = {T0: offset(1)}, {T0: offset(1)}
        offsets.begin_commit(first)
        offsets.begin_commit(second)
        if first_fails:
            offsets.fail_commit(first)
            offsets.end_commit(second, 11)
        else:
            offsets.end_commit(first, 10)
            assert offsets.is_unstable(T0)
            offsets.fail_commit(second)
        assert (offsets.get(T0), offsets.is_unstable(T0)) == (offset(1), False)


def test_the_later_one_in_the_log_wins_whoever_is_told_first() -> None:
    offsets = GroupOffsets()
    offsets.begin_commit({T0: offset(1)})
    offsets.begin_commit({T0: offset(2)})
    offsets.end_commit({T0: offset(2)}, 11)
    offsets.load(T1, StoredOffset(offset(9), 5))
    offsets.begin_commit({T0: offset(3)})
    offsets.end_commit({T0: offset(1)}, 10)
    assert offsets.get(T0) == offset(2)


def test_what_is_deleted_while_it_is_written_does_not_come_back() -> None:
    offsets = GroupOffsets()
    offsets.begin_commit({T0: offset(1)})
    assert offsets.remove([T0]) == [T0], "it is in the log, and needs a tombstone"
    offsets.end_commit({T0: offset(1)}, 10)
    assert offsets.is_empty


@pytest.mark.parametrize("is_commit", [True, False])
def test_offsets_of_a_transaction(is_commit: bool) -> None:
    offsets = GroupOffsets()
    offsets.begin_transactional_commit(7, [T0, T1])
    offsets.end_transactional_commit(7, {T0: offset(1)}, 10)
    offsets.fail_transactional_commit(7, [T1])
    assert (offsets.is_unstable(T0), offsets.is_unstable(T1), list(offsets.producer_ids)) == (True, False, [7])
    offsets.end_transaction(7, is_commit=is_commit)
    assert offsets.get(T0) == (offset(1) if is_commit else None)
    assert list(offsets.producer_ids) == []


def test_which_partitions_a_deletion_touches() -> None:
    offsets = GroupOffsets()
    offsets.load(T0, StoredOffset(offset(1), 1))
    offsets.begin_commit({T1: offset(1)})
    offsets.begin_transactional_commit(7, [U0])
    assert offsets.among({T0, T1, U0, TopicPartition("v", 0)}) == {T0, T1, U0}
    assert offsets.remove([T0, T1, U0]) == [T0, T1]


def group_with_offsets(state: GroupState, protocol_type: str | None, entered_ms: int | None) -> Group:
    """A group with an offset of topic t from hour 1, and one of topic u from hour 5."""
    group = Group("g", 0)
    group.state, group.protocol_type, group.state_timestamp_ms = state, protocol_type, entered_ms
    group.offsets.load(T0, StoredOffset(offset(1, commit_timestamp_ms=HOUR_MS), 1))
    group.offsets.load(U0, StoredOffset(offset(1, commit_timestamp_ms=5 * HOUR_MS), 2))
    return group


@pytest.mark.parametrize(
    ("protocol_type", "state", "entered_ms", "subscribed", "expired"),
    [
        pytest.param(None, GroupState.EMPTY, 0, None, {T0}, id="a standalone consumer: since the commit"),
        pytest.param("consumer", GroupState.EMPTY, 7 * HOUR_MS, None, set(), id="empty: since it became so"),
        pytest.param("consumer", GroupState.EMPTY, HOUR_MS, None, {T0, U0}, id="empty for long: all of them"),
        pytest.param("consumer", GroupState.EMPTY, None, None, {T0}, id="empty, stored by an old Kafka"),
        pytest.param("consumer", GroupState.STABLE, 0, frozenset({"t"}), set(), id="what is read is kept"),
        pytest.param("consumer", GroupState.STABLE, 0, frozenset({"u"}), {T0}, id="what is not read expires"),
        pytest.param("consumer", GroupState.STABLE, 0, None, set(), id="subscriptions that cannot be read"),
        pytest.param("consumer", GroupState.PREPARING_REBALANCE, 0, frozenset(), set(), id="rebalancing"),
        pytest.param("connect", GroupState.STABLE, 0, None, set(), id="not consumers"),
    ],
)
def test_expiration(
    protocol_type: str | None,
    state: GroupState,
    entered_ms: int | None,
    subscribed: frozenset[str] | None,
    expired: set[TopicPartition],
) -> None:
    group = group_with_offsets(state, protocol_type, entered_ms)
    group.subscribed_topics = subscribed
    assert set(group.remove_expired_offsets(8 * HOUR_MS, 4 * HOUR_MS, group.offsets.partitions)) == expired
    assert set(group.offsets.partitions) == {T0, U0} - expired


def test_an_expiry_of_its_own_goes_before_the_retention_and_pending_ones_stay() -> None:
    group = Group("g", 0)
    for partition, expires_ms in ((T0, 8), (T1, 9), (U0, 8)):
        value = offset(1, commit_timestamp_ms=0, expire_timestamp_ms=expires_ms)
        group.offsets.load(partition, StoredOffset(value, 1))
    group.offsets.begin_commit({U0: offset(2)})
    assert group.remove_expired_offsets(8, 1, group.offsets.partitions) == [T0]


def test_an_offset_expires_at_the_end_of_its_retention() -> None:
    group = group_with_offsets(GroupState.EMPTY, None, 0)
    assert group.remove_expired_offsets(5 * HOUR_MS - 1, 4 * HOUR_MS, group.offsets.partitions) == []
    assert group.remove_expired_offsets(5 * HOUR_MS, 4 * HOUR_MS, group.offsets.partitions) == [T0]


def test_a_transaction_that_wrote_nothing_holds_no_group() -> None:
    offsets = GroupOffsets()
    offsets.begin_transactional_commit(7, [T0])
    offsets.fail_transactional_commit(7, [T0])
    assert offsets.is_empty
    assert list(offsets.producer_ids) == []


def test_what_is_deleted_during_a_transaction_does_not_come_back_with_its_end() -> None:
    offsets = GroupOffsets()
    offsets.begin_transactional_commit(7, [T0, T1])
    offsets.end_transactional_commit(7, {T0: offset(1), T1: offset(2)}, 10)
    assert offsets.remove([T0]) == []
    offsets.end_transaction(7, is_commit=True)
    assert (offsets.get(T0), offsets.get(T1)) == (None, offset(2))
