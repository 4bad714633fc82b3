"""ISR decisions: examples that name a rule, and properties that must hold for every input."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.broker.replication.isr import (
    NEVER_MS,
    AlterReaction,
    FollowerState,
    IsrChange,
    IsrState,
    SessionFetch,
    high_watermark_candidate,
    may_join_isr,
    out_of_sync_replicas,
    reaction_to,
)
from engine.common.errors import ErrorCode

LAG_MS = 30_000


def always(_: int) -> bool:
    return True


def never(_: int) -> bool:
    return False


def follower(broker_id: int, end_offset: int, caught_up_ms: int = NEVER_MS) -> FollowerState:
    state = FollowerState(broker_id)
    state.log_end_offset = end_offset
    state.last_caught_up_ms = caught_up_ms
    return state


class TestFollowerState:
    def test_a_new_follower_is_not_caught_up_even_when_the_clock_starts_at_zero(self) -> None:
        assert not FollowerState(2).is_caught_up(leader_end_offset=10, now_ms=0, lag_ms_max=LAG_MS)

    def test_no_broker_epoch_is_known_before_a_leaders_first_fetch(self) -> None:
        """AlterPartition then sends -1, for which the controller checks no epoch."""
        state = FollowerState(2)
        assert state.broker_epoch == -1
        state.record_fetch(10, 0, now_ms=1000, leader_end_offset=10, broker_epoch=7)
        state.reset(now_ms=2000, leader_end_offset=10, is_new_leader=True, is_in_sync=True)
        assert state.broker_epoch == -1

    def test_asking_for_the_end_is_being_caught_up_now(self) -> None:
        state = FollowerState(2)
        state.record_fetch(10, 0, now_ms=1000, leader_end_offset=10, broker_epoch=7)
        assert (state.last_caught_up_ms, state.log_end_offset, state.broker_epoch) == (1000, 10, 7)

    def test_asking_for_the_end_of_the_last_fetch_is_being_caught_up_then(self) -> None:
        state = FollowerState(2)
        state.record_fetch(10, 0, now_ms=1000, leader_end_offset=15, broker_epoch=-1)
        caught_up_before = state.last_caught_up_ms
        state.record_fetch(15, 0, now_ms=1500, leader_end_offset=20, broker_epoch=-1)
        assert caught_up_before == NEVER_MS
        assert state.last_caught_up_ms == 1000

    def test_a_fetch_behind_the_last_end_does_not_count(self) -> None:
        state = FollowerState(2)
        state.record_fetch(10, 0, now_ms=1000, leader_end_offset=10, broker_epoch=-1)
        state.record_fetch(11, 0, now_ms=9000, leader_end_offset=99, broker_epoch=-1)
        state.record_fetch(12, 0, now_ms=9500, leader_end_offset=99, broker_epoch=-1)
        assert state.last_caught_up_ms == 1000

    def test_reset_of_a_new_leader_forgets_offsets_and_trusts_the_isr(self) -> None:
        state = FollowerState(2)
        state.record_fetch(10, 3, now_ms=1000, leader_end_offset=10, broker_epoch=4)
        state.reset(now_ms=5000, leader_end_offset=50, is_new_leader=True, is_in_sync=True)
        assert (state.log_end_offset, state.log_start_offset, state.last_caught_up_ms) == (-1, -1, 5000)

    def test_reset_of_a_reelected_leader_keeps_offsets(self) -> None:
        state = FollowerState(2)
        state.record_fetch(10, 3, now_ms=1000, leader_end_offset=10, broker_epoch=4)
        state.reset(now_ms=5000, leader_end_offset=50, is_new_leader=False, is_in_sync=False)
        assert (state.log_end_offset, state.last_fetch_ms, state.last_caught_up_ms) == (10, NEVER_MS, NEVER_MS)
        state.record_fetch(49, 3, now_ms=5001, leader_end_offset=60, broker_epoch=4)
        assert state.last_caught_up_ms == NEVER_MS, "a fetch below the end at election proves nothing"

    def test_a_session_s_fetches_count_until_the_partition_leaves_it(self) -> None:
        state, session = FollowerState(2), SessionFetch()
        state.join_session(session)
        session.at_ms = 1000
        assert state.last_caught_up_ms == 1000
        state.leave_session(SessionFetch())
        session.at_ms = 2000
        assert state.last_caught_up_ms == 2000, "another session's end is not this one's"
        state.leave_session(session)
        session.at_ms = 3000
        assert (state.last_caught_up_ms, state.last_fetch_ms) == (2000, 2000)

    def test_joining_the_next_session_keeps_what_the_last_one_showed(self) -> None:
        state, first, second = FollowerState(2), SessionFetch(), SessionFetch()
        state.join_session(first)
        first.at_ms = 1000
        state.join_session(second)
        first.at_ms = 5000
        assert (state.last_caught_up_ms, state.last_fetch_ms) == (1000, 1000)


class TestIsrState:
    def test_an_addition_counts_at_once(self) -> None:
        state = IsrState.settled((1,)).propose_expand(2, leader=1, leader_epoch=5, partition_epoch=7)
        assert state.pending is IsrChange.EXPAND
        assert (state.committed, state.maximal) == ((1,), (1, 2))
        assert state.proposed is not None
        assert (state.proposed.isr, state.proposed.leader_epoch, state.proposed.partition_epoch) == ((1, 2), 5, 7)

    def test_a_removal_counts_only_when_committed(self) -> None:
        state = IsrState.settled((3, 1, 2)).propose_shrink({1}, leader=3, leader_epoch=5, partition_epoch=7)
        assert state.pending is IsrChange.SHRINK
        assert (state.committed, state.maximal) == ((3, 1, 2), (3, 1, 2))
        assert state.proposed is not None
        assert state.proposed.isr == (3, 2)

    def test_reverting_forgets_the_proposal(self) -> None:
        settled = IsrState.settled((1,))
        assert settled.propose_expand(2, leader=1, leader_epoch=0, partition_epoch=0).reverted() == settled


class TestHighWatermark:
    def test_alone_it_is_the_end(self) -> None:
        assert high_watermark_candidate(9, (), (1,), now_ms=0, lag_ms_max=LAG_MS, is_eligible=always) == 9

    def test_a_lagging_outsider_holds_nothing_back(self) -> None:
        outsider = follower(2, 4)
        assert high_watermark_candidate(9, [outsider], (1,), now_ms=0, lag_ms_max=LAG_MS, is_eligible=always) == 9

    def test_an_outsider_caught_up_by_time_holds_it_back_if_it_may_join(self) -> None:
        outsider = follower(2, 4, caught_up_ms=100)
        assert high_watermark_candidate(9, [outsider], (1,), now_ms=200, lag_ms_max=LAG_MS, is_eligible=always) == 4
        assert high_watermark_candidate(9, [outsider], (1,), now_ms=200, lag_ms_max=LAG_MS, is_eligible=never) == 9

    @given(
        leader_end=st.integers(0, 50),
        followers=st.dictionaries(st.integers(2, 6), st.tuples(st.integers(-1, 50), st.integers(0, 100_000))),
        isr=st.sets(st.integers(1, 6)),
        now_ms=st.integers(0, 100_000),
    )
    def test_never_above_any_member_of_the_maximal_isr_nor_the_leader(
        self, leader_end: int, followers: dict[int, tuple[int, int]], isr: set[int], now_ms: int
    ) -> None:
        states = [follower(b, min(end, leader_end), t) for b, (end, t) in followers.items()]
        candidate = high_watermark_candidate(
            leader_end, states, isr, now_ms=now_ms, lag_ms_max=LAG_MS, is_eligible=always
        )
        assert candidate <= leader_end
        assert all(candidate <= s.log_end_offset for s in states if s.broker_id in isr)
        held_by = [s.log_end_offset for s in states] + [leader_end]
        assert candidate in held_by

    @given(
        leader_end=st.integers(0, 50),
        ends=st.dictionaries(st.integers(2, 6), st.integers(0, 50), min_size=1),
        joining=st.integers(2, 6),
    )
    def test_a_larger_maximal_isr_is_never_less_strict(
        self, leader_end: int, ends: dict[int, int], joining: int
    ) -> None:
        states = [follower(b, end) for b, end in ends.items()]
        settled = IsrState.settled((1,))
        expanding = settled.propose_expand(joining, leader=1, leader_epoch=0, partition_epoch=0)
        before, after = (
            high_watermark_candidate(leader_end, states, s.maximal, now_ms=0, lag_ms_max=LAG_MS, is_eligible=always)
            for s in (settled, expanding)
        )
        assert after <= before


class TestShrink:
    def lagging(self, state: IsrState, followers: dict[int, FollowerState], now_ms: int) -> tuple[int, ...]:
        return out_of_sync_replicas(state, followers, leader=1, leader_end_offset=10, now_ms=now_ms, lag_ms_max=LAG_MS)

    def test_the_limit_itself_is_still_in_sync(self) -> None:
        followers = {2: follower(2, 4, caught_up_ms=0)}
        assert self.lagging(IsrState.settled((1, 2)), followers, LAG_MS) == ()
        assert self.lagging(IsrState.settled((1, 2)), followers, LAG_MS + 1) == (2,)

    def test_at_the_end_no_silence_is_too_long(self) -> None:
        assert self.lagging(IsrState.settled((1, 2)), {2: follower(2, 10)}, 10**9) == ()

    def test_an_isr_member_nobody_knows_lags(self) -> None:
        assert self.lagging(IsrState.settled((1, 2)), {}, 0) == (2,)

    def test_nothing_is_proposed_while_a_change_is_pending(self) -> None:
        pending = IsrState.settled((1, 2)).propose_shrink({2}, leader=1, leader_epoch=0, partition_epoch=0)
        assert self.lagging(pending, {2: follower(2, 4)}, 10**9) == ()

    @given(isr=st.lists(st.integers(1, 6), unique=True), ends=st.dictionaries(st.integers(1, 6), st.integers(0, 10)))
    def test_the_leader_never_leaves_and_only_members_do(self, isr: list[int], ends: dict[int, int]) -> None:
        followers = {b: follower(b, end) for b, end in ends.items() if b != 1}
        lagging = self.lagging(IsrState.settled(isr), followers, 10**9)
        assert 1 not in lagging
        assert set(lagging) <= set(isr)
        assert all(b not in followers or followers[b].log_end_offset != 10 for b in lagging)


class TestExpand:
    def joins(self, end_offset: int, *, state: IsrState | None = None, epoch_start: int | None = 8) -> bool:
        return may_join_isr(
            state or IsrState.settled((1,)),
            follower(2, end_offset),
            high_watermark=5,
            leader_epoch_start_offset=epoch_start,
            is_eligible=always,
        )

    def test_reaching_the_high_watermark_is_not_enough_below_the_epoch_start(self) -> None:
        assert not self.joins(5)
        assert not self.joins(7)
        assert self.joins(8)

    def test_reaching_the_epoch_start_is_not_enough_below_the_high_watermark(self) -> None:
        assert not self.joins(4, epoch_start=0)
        assert self.joins(5, epoch_start=0)

    def test_not_while_another_change_is_pending_nor_when_already_in(self) -> None:
        pending = IsrState.settled((1,)).propose_expand(3, leader=1, leader_epoch=0, partition_epoch=0)
        assert not self.joins(20, state=pending)
        assert not self.joins(20, state=IsrState.settled((1, 2)))
        assert not self.joins(20, epoch_start=None)

    def test_a_dead_broker_does_not_join(self) -> None:
        assert not may_join_isr(
            IsrState.settled((1,)),
            follower(2, 20),
            high_watermark=5,
            leader_epoch_start_offset=0,
            is_eligible=never,
        )


@pytest.mark.parametrize(
    ("error", "reaction"),
    [
        (ErrorCode.INELIGIBLE_REPLICA, AlterReaction.REVERT),
        (ErrorCode.OPERATION_NOT_ATTEMPTED, AlterReaction.REVERT),
        (ErrorCode.FENCED_LEADER_EPOCH, AlterReaction.AWAIT_METADATA),
        (ErrorCode.INVALID_UPDATE_VERSION, AlterReaction.AWAIT_METADATA),
        (ErrorCode.UNKNOWN_TOPIC_ID, AlterReaction.AWAIT_METADATA),
        (ErrorCode.NOT_CONTROLLER, AlterReaction.RETRY),
        (ErrorCode.UNKNOWN_SERVER_ERROR, AlterReaction.RETRY),
    ],
)
def test_reaction_to_a_refused_change(error: ErrorCode, reaction: AlterReaction) -> None:
    assert reaction_to(error) is reaction
