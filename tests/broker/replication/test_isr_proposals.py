"""What a leader asks about its ISR, whom each step wakes, and what each answer changes: without network and logs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest
from virtual_time import ManualClock

from engine.broker.replication import isr_proposals
from engine.broker.replication.isr import FollowerState, IsrState
from engine.broker.replication.isr_updater import IsrOutcome, IsrUpdate
from engine.broker.replication.partition_environment import IsrStatistics
from engine.common.errors import ErrorCode
from engine.common.model import LeaderAndIsr, TopicPartition

TOPIC_ID = bytes(range(16))
LAG_MS_MAX = 5000


@dataclass
class Asked:
    update: IsrUpdate
    answer: Callable[[IsrOutcome], None]
    is_retry: bool


class LedPartition:
    """Broker 1 leads in leader epoch 4, with records up to offset 10; 2 and 3 follow at that offset."""

    def __init__(self, isr: tuple[int, ...]) -> None:
        self.clock = ManualClock()
        self.clock.advance(60_000)
        self.asked: list[Asked] = []
        self.statistics = IsrStatistics()
        self.environment: Any = SimpleNamespace(
            broker_id=1,
            clock=self.clock,
            replica_lag_time_max_ms=LAG_MS_MAX,
            is_alive=lambda _broker_id: True,
            isr_updater=self,
            statistics=self.statistics,
        )
        self.topic_partition = TopicPartition("orders", 0)
        self.topic_id = TOPIC_ID
        self.leader_log: Any = SimpleNamespace(log_end_offset=10, high_watermark=8)
        self.leader_epoch = 4
        self.leader_epoch_start_offset: int | None = 5
        self.controller_epoch = 6
        self.partition_epoch = 7
        self.isr_state = IsrState.settled(isr)
        self.followers = {b: FollowerState(b) for b in (2, 3)}
        for follower in self.followers.values():
            follower.record_fetch(10, 0, self.clock.monotonic_ms(), 10, 1)
        self.steps: list[str] = []

    def submit(self, update: IsrUpdate, on_done: Callable[[IsrOutcome], None], *, is_retry: bool = False) -> None:
        self.steps.append("asked")
        self.asked.append(Asked(update, on_done, is_retry))

    @property
    def isr(self) -> tuple[int, ...]:
        return self.isr_state.committed

    @property
    def is_under_min_isr(self) -> bool:
        return False

    def advance_high_watermark(self) -> bool:
        self.steps.append("advanced")
        return True

    def changed(self) -> None:
        self.steps.append("told")

    def lose(self) -> None:
        """Follow somebody from now on."""
        self.leader_log = None


def expanding() -> LedPartition:
    """A partition that has asked for 3."""
    led = LedPartition((1, 2))
    isr_proposals.maybe_expand(led, led.followers[3])
    return led


def shrinking() -> LedPartition:
    """A partition that has asked to be without 2."""
    led = LedPartition((1, 2))
    led.leader_log.log_end_offset = 11
    led.clock.advance(LAG_MS_MAX + 1)
    isr_proposals.maybe_shrink(led)
    return led


@pytest.mark.parametrize(("asks", "wanted", "maximal"), [(expanding, (1, 2, 3), (1, 2, 3)), (shrinking, (1,), (1, 2))])
def test_a_change_is_asked_for_once_on_the_state_that_is_known(
    asks: Callable[[], LedPartition], wanted: tuple[int, ...], maximal: tuple[int, ...]
) -> None:
    """Who waits for the partition looks again: acks=all now counts the replica that may be in the ISR."""
    led = asks()
    (asked,) = led.asked
    assert asked.update == IsrUpdate(
        led.topic_partition, TOPIC_ID, LeaderAndIsr(1, 4, wanted, partition_epoch=7), controller_epoch=6
    )
    assert not asked.is_retry
    assert (led.isr_state.maximal, led.isr_state.committed, led.isr_state.proposed) == (
        maximal,
        (1, 2),
        asked.update.leader_and_isr,
    )
    assert led.steps == ["told", "asked"]
    isr_proposals.maybe_expand(led, led.followers[3])
    isr_proposals.maybe_shrink(led)
    assert len(led.asked) == 1, "one change at a time"


@pytest.mark.parametrize("what", ["in the ISR", "behind", "not at the epoch's start", "dead", "no leader"])
def test_who_may_not_join_is_not_asked_for(what: str) -> None:
    led = LedPartition((1, 2))
    match what:
        case "in the ISR":
            led.isr_state = IsrState.settled((1, 2, 3))
        case "behind":
            led.followers[3].log_end_offset = 7
        case "not at the epoch's start":
            led.leader_epoch_start_offset = 11
        case "dead":
            led.environment.is_alive = lambda _broker_id: False
        case "no leader":
            led.lose()
    isr_proposals.maybe_expand(led, led.followers[3])
    assert (led.asked, led.steps) == ([], [])


def test_nobody_is_put_out_who_is_in_time_or_by_who_leads_no_more() -> None:
    led = LedPartition((1, 2, 3))
    led.leader_log.log_end_offset = 11
    led.clock.advance(LAG_MS_MAX)
    isr_proposals.maybe_shrink(led)
    led.clock.advance(1)
    led.lose()
    isr_proposals.maybe_shrink(led)
    assert (led.asked, led.steps) == ([], [])


@pytest.mark.parametrize(("asks", "counted"), [(expanding, (1, 0, 0)), (shrinking, (0, 1, 0))])
@pytest.mark.parametrize("partition_epoch", [7, 8])
def test_an_accepted_change_counts_and_wakes_who_waits(
    asks: Callable[[], LedPartition], counted: tuple[int, int, int], partition_epoch: int
) -> None:
    """Without 2 the high watermark may rise; and a fetch of a consumer that may go to 3 has to look again.

    The partition epoch stays if an earlier answer was lost and the state is the wanted one already.
    """
    led = asks()
    led.steps.clear()
    wanted = led.asked[0].update.leader_and_isr
    led.asked[0].answer(replace(wanted, partition_epoch=partition_epoch))
    assert led.isr_state == IsrState.settled(wanted.isr)
    assert (led.partition_epoch, led.steps) == (partition_epoch, ["advanced", "told"])
    assert figures(led.statistics) == counted


@pytest.mark.parametrize("error", [ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED])
def test_a_change_that_was_certainly_not_made_is_taken_back(error: ErrorCode) -> None:
    """Then acks=all need not wait for 3 any more: who waits looks again."""
    led = expanding()
    led.steps.clear()
    led.asked[0].answer(error)
    assert (led.isr_state, led.steps) == (IsrState.settled((1, 2)), ["told"])
    assert figures(led.statistics) == (0, 0, 1)


@pytest.mark.parametrize("error", [ErrorCode.INVALID_UPDATE_VERSION, ErrorCode.FENCED_LEADER_EPOCH])
def test_a_change_that_another_state_has_overtaken_waits_for_it(error: ErrorCode) -> None:
    led = expanding()
    pending = led.isr_state
    led.asked[0].answer(error)
    assert led.isr_state is pending
    assert (led.steps, figures(led.statistics)) == (["told", "asked"], (0, 0, 1))


def test_a_change_whose_outcome_is_unknown_is_asked_for_again_after_a_pause() -> None:
    led = expanding()
    pending = led.isr_state
    led.asked[0].answer(ErrorCode.UNKNOWN_SERVER_ERROR)
    first, again = led.asked
    assert led.isr_state is pending
    assert (again.update, again.is_retry) == (first.update, True)
    assert figures(led.statistics) == (0, 0, 1)


@pytest.mark.parametrize(("leader_epoch", "partition_epoch"), [(5, 8), (3, 8), (4, 6)])
def test_an_answer_of_another_leadership_or_an_older_state_only_counts_as_failed(
    leader_epoch: int, partition_epoch: int
) -> None:
    led = expanding()
    pending = led.isr_state
    led.asked[0].answer(LeaderAndIsr(1, leader_epoch, (1, 2, 3), partition_epoch=partition_epoch))
    assert led.isr_state is pending
    assert (led.partition_epoch, led.steps) == (7, ["told", "asked"])
    assert figures(led.statistics) == (0, 0, 1)


def figures(statistics: IsrStatistics) -> tuple[int, int, int]:
    return statistics.expands_total, statistics.shrinks_total, statistics.failed_updates_total
