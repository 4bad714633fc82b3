"""What the screens know of the newest frame. Without Textual."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from fake_cluster import FakeCluster

from engine.admin.watch.frame import Frame, Stage, StageStatus
from engine.common import turns
from tui.pages import brokers
from tui.pages.page import View
from tui.state.board import Board
from tui.state.location import Location


def with_stage(frame: Frame, stage: Stage, status: StageStatus) -> Frame:
    return replace(frame, stages={**frame.stages, stage: status})


@pytest.mark.parametrize("stage", list(Stage))
def test_a_frame_is_whole_when_every_stage_was_read_or_says_why_not(stage: Stage) -> None:
    frame = FakeCluster(topics={"orders": 4}).frame()
    board = Board()
    board.take(frame)
    assert board.was_read_whole
    board.take(with_stage(frame, stage, StageStatus()))
    assert not board.was_read_whole
    board.take(with_stage(frame, stage, StageStatus(error="nobody may tell")))
    assert board.was_read_whole is (stage is not Stage.METADATA), "without topics there is nothing to be seen"


def test_of_earlier_frames_only_what_rates_need_is_kept() -> None:
    cluster, board = FakeCluster(topics={"orders": 4}), Board()
    for _ in range(12):
        cluster.advance()
        board.take(cluster.frame())
    assert board.rates.in_per_s and board.rates.in_per_s > 0
    assert len(board.rates._past) > 2
    for reading in board.rates._past:
        assert reading.ends and vars(reading).keys() <= {"read_at_ms", "is_overdue", "ends", "total"}


def test_without_two_readings_of_the_ends_no_rate_is_known() -> None:
    """A frame without ends had counted as one in which nothing was in the logs, in 1970."""
    cluster, board = FakeCluster(3, {"orders": 3}, rate=100), Board()
    first = cluster.frame()
    board.take(replace(with_stage(first, Stage.OFFSETS, StageStatus()), offsets={}))
    for expected in (None, 300.0):
        cluster.advance()
        board.take(cluster.frame())
        assert board.rates.in_per_s == expected
        assert set(board.samples[-1].in_by_broker.values()) == ({100.0} if expected else set())


def test_what_brokers_get_is_not_known_before_the_ends_of_logs_are() -> None:
    """They had got nothing, while the figure above them was missing."""
    cluster, board = FakeCluster(3, {"orders": 3}, rate=100), Board()
    for _ in range(4):
        board.take(replace(cluster.frame(), offsets={}))
        cluster.advance()
    assert board.rates.in_per_s is None
    assert board.samples[-1].in_by_broker == {}
    for _ in range(3):
        board.take(cluster.frame())
        cluster.advance()
    assert board.rates.in_per_s == 300.0
    assert set(board.samples[-1].in_by_broker.values()) == {100.0}


def test_text_and_table_of_a_screen_are_of_one_frame_while_the_next_one_is_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Which broker is out of ISRs, and of how many, stands above the table as well as in it."""
    monkeypatch.setattr(turns, "SLICE", 4)
    cluster, board = FakeCluster(3, {f"t{number}": 4 for number in range(10)}), Board()

    def shown() -> tuple[str, int]:
        """Return who is out as the text says it, and of how many ISRs the table says broker 2 is."""
        place = View(board, Location("brokers"))
        text = "\n".join("".join(part for part, _ in line) for line in brokers.PAGE.summary(place, 200))
        (item,) = [item for item in brokers.PAGE.rows(place).items if item.id == 2]
        sentence = re.search("broker 2 is out of .*", text)
        return sentence[0] if sentence else "", item.missing

    def take(frame: Frame) -> int:
        """Take a frame as the dashboard does, and look at the screen after each turn; return how many there were."""
        before, count = shown(), 0
        for _ in board.turns(frame):
            assert shown() == before
            count += 1
        board.take(frame)
        return count

    board.take(cluster.frame())
    assert shown() == ("", 0)
    cluster.kill(2)
    assert take(cluster.frame()) > 1
    assert shown() == ("broker 2 is out of the ISR of 40 of 40 under-replicated partitions: down", 40)
    cluster.start(2)
    take(cluster.frame())
    assert shown() == (
        "broker 2 is out of the ISR of 40 of 40 under-replicated partitions: alive, does not keep up",
        40,
    )
    cluster.advance()
    assert take(cluster.frame()) > 1
    assert shown() == ("", 0)
