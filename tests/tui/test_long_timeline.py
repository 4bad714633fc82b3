"""A full timeline costs a drawing no more than an empty one."""

from __future__ import annotations

import tracemalloc
from collections import deque
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from dashboards import dashboard
from event_loop import in_event_loop
from fake_cluster import FakeCluster, big_cluster
from fake_feed import FakeFeed

from engine.admin.analysis import history
from engine.admin.analysis import timeline as analysis_timeline
from engine.admin.analysis.incidents import Runs
from engine.admin.analysis.timeline import timelines
from engine.admin.watch.events import Event, EventKind
from engine.common.model import TopicPartition
from tui.drawing.lines import text_of
from tui.pages import timeline
from tui.pages.page import View
from tui.pages.timeline import run_line, short_kind
from tui.state.board import Board, NumberedEvents
from tui.state.location import Location
from tui.state.table_model import Filter, TableModel


def present_by_rows(board: Board) -> set[tuple[int, TopicPartition, int]]:
    """Return who is out of sync since when, found anew in all events."""
    states = {
        TopicPartition(topic.name, partition.partition): partition
        for topic in board.topics
        for partition in topic.partitions
    }
    return {
        (absence.since_ms, row.name, absence.broker)
        for row in timelines(board.events)
        for absence in row.absences
        if absence.since_ms is not None and absence.is_present(states.get(row.name))
    }


@pytest.mark.parametrize("seed", range(5))
def test_absences_are_those_that_all_events_tell(seed: int) -> None:
    random, board = Random(seed), Board()
    cluster = FakeCluster(4, {"orders": 6, "passing": 3, "moved": 3})
    feed = FakeFeed(cluster, plays=False)
    board.take(feed.tick())
    for _ in range(40):
        broker = random.randrange(1, 5)
        match random.randrange(5):
            case 0 if len(cluster.frame().cluster.brokers) > 2:  # type: ignore[union-attr]
                if broker in {broker.id for broker in cluster.frame().cluster.brokers}:  # type: ignore[union-attr]
                    cluster.kill(broker)
            case 1:
                if broker not in {broker.id for broker in cluster.frame().cluster.brokers}:  # type: ignore[union-attr]
                    cluster.start(broker)
            case 2:
                cluster.shrink_isr(TopicPartition("orders", random.randrange(6)), broker)
            case 3:
                cluster.elect_preferred()
            case _:
                pass
        board.take(feed.tick())
        assert set(board.history.absences.present(board.topics)) == present_by_rows(board)
    assert board.events


def test_a_jump_back_forgets_who_left_after_it() -> None:
    cluster, board = FakeCluster(3, {"orders": 1}), Board()
    feed = FakeFeed(cluster, plays=False)
    board.take(feed.tick())
    before = feed.tick()
    board.take(before)
    cluster.kill(3)
    board.take(feed.tick())
    last = feed.tick()
    board.take(last)
    assert list(board.history.absences.present(board.topics))
    board.take(replace(before, sequence=last.sequence + 1, events=()))
    assert not list(board.history.absences.present(last.cluster.topics))  # type: ignore[union-attr]


def test_the_oldest_absences_are_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(analysis_timeline, "ABSENT_MAX", 2)
    cluster, board = FakeCluster(3, {"orders": 3}), Board()
    feed = FakeFeed(cluster, plays=False)
    board.take(feed.tick())
    cluster.kill(3)
    board.take(feed.tick())
    partitions = [name.partition for _, name, _ in board.history.absences.present(board.topics)]
    left = [event.partition for event in board.events if event.kind is EventKind.ISR_SHRANK]
    assert len(left) == 3
    assert partitions == left[1:]


def test_the_lines_above_a_full_timeline_look_at_no_event() -> None:
    class Unread(deque[Event]):
        def __iter__(self) -> Any:
            raise AssertionError("all events were looked at")

    cluster, board = big_cluster(6, 20, 600), Board()
    feed = FakeFeed(cluster, plays=False)
    board.take(feed.tick())
    cluster.kill(3)
    board.take(feed.tick())
    board.take(feed.tick())
    count = len(board.events)
    board.history.events = Unread(board.events)
    text = str(timeline.PAGE.summary(View(board, Location("timeline")), 200))
    assert f"{count} events" in text
    assert "300 replicas out of sync: " in text


@in_event_loop
async def test_a_screen_draws_what_is_around_its_rows_once_when_it_is_opened() -> None:
    async with dashboard("live") as driven:
        await driven.tick(2)
        main, drawn = driven.main, []
        page = main.pages["timeline"]

        def summary(view: View, width: int) -> Any:
            drawn.append(view)
            return page.summary(view, width)

        main.pages = {**main.pages, "timeline": replace(page, summary=summary)}  # type: ignore[assignment]
        await driven.press("8")
        assert len(drawn) == 1


def board_with(count: int) -> Board:
    """Return a board to which something has happened so many times, one after the other."""
    board = Board()
    frame = FakeCluster(3, {"orders": 1}).frame()
    events = tuple(Event(frame.at_ms + number, EventKind.BROKER_DOWN, f"broker {number}") for number in range(count))
    board.take(replace(frame, events=events))
    return board


def opened_timeline() -> tuple[Board, View, TableModel]:
    """Return a board whose timeline is full, and the rows of that."""
    board = board_with(history.EVENTS_MAX)
    view, model = View(board, Location("timeline"), None, 40), TableModel()
    model.show(timeline.PAGE.rows(view))
    return board, view, model


def told(board: Board, subject: str) -> None:
    assert board.frame is not None
    frame = board.frame
    board.take(replace(frame, sequence=frame.sequence + 1, events=(Event(0, EventKind.BROKER_UP, subject),)))


def test_rows_of_events_keep_their_numbers_while_more_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "EVENTS_MAX", 3)
    board = board_with(3)
    rows = NumberedEvents(board)
    as_list = [(2, "broker 2"), (1, "broker 1"), (0, "broker 0")]
    assert [(number, event.subject) for number, event in rows] == as_list and len(rows) == 3
    told(board, "broker 3")
    assert [(number, event.subject) for number, event in rows[:2]] == as_list[:2]
    assert [rows[index][0] for index in (0, 1, 2, -1)] == [2, 1, 0, 0]
    assert [number for number, _ in rows] == [2, 1, 0]
    assert [number for number, _ in NumberedEvents(board)] == [3, 2, 1]
    with pytest.raises(IndexError):
        rows[3]
    assert list(NumberedEvents(Board())) == []


def test_the_rows_of_a_full_timeline_take_no_memory() -> None:
    """Two lists of 20,000 pairs were 4 MB at each visit, and left holes in Python's memory when they were gone."""
    board, view, model = opened_timeline()
    tracemalloc.start()
    try:
        told(board, "one more")
        tracemalloc.reset_peak()
        before_bytes = tracemalloc.get_traced_memory()[0]
        model.show(timeline.PAGE.rows(view))
        peak_bytes = tracemalloc.get_traced_memory()[1] - before_bytes
    finally:
        tracemalloc.stop()
    assert model.cursor == 1 and peak_bytes < 100_000, peak_bytes


@pytest.mark.parametrize("arrange", ["sort", "filter", "reverse"])
def test_the_rows_of_an_arranged_timeline_keep_no_event_of_their_own(arrange: str) -> None:
    """A list of 20,000 pairs was 2 MB, made anew in each second, between which lasting values found a place."""
    _, _, model = opened_timeline()
    tracemalloc.start()
    try:
        before_bytes = tracemalloc.get_traced_memory()[0]
        match arrange:
            case "sort":
                model.sort_by("subject")
            case "filter":
                model.set_filter(Filter("broker"))
            case _:
                model.reverse()
        kept_bytes = tracemalloc.get_traced_memory()[0] - before_bytes
    finally:
        tracemalloc.stop()
    assert len(model.shown) == history.EVENTS_MAX and kept_bytes < 200_000, kept_bytes


def test_a_long_change_is_cut_so_that_its_column_fits() -> None:
    """A throttle's list of replicas would take the whole row, and the table would leave the column out."""
    column = next(column for column in timeline.columns_of(Board()) if column.name == "change")
    event = Event(1, EventKind.TOPIC_CONFIG_CHANGED, "orders", after=",".join(f"{number}:1" for number in range(100)))
    text = column.cell((0, event)).text
    assert len(text) == 80 and text.endswith("…")
    assert column.value((0, event)) == event.after, "what is exported is whole"


def test_where_it_is_narrow_the_change_is_not_cut_for_words_that_say_it_twice() -> None:
    def told(*events: Event) -> str:
        runs = Runs()
        (run,) = {id(run): run for run in map(runs.take, events)}.values()
        return text_of(run_line(run, len(short_kind(run)) + 2, is_short=True)).partition("  ")[2]

    kind = EventKind.GROUP_MEMBERS_CHANGED
    left = Event(0, kind, "group billing", "1", "0", reason="billing-1 left")
    assert told(left) == "members  group billing  1 → 0  billing-1 left"
    assert told(left, Event(0, kind, "group fraud", "1", "2")) == "group members  2 times  group billing, group fraud"
    rate = Event(0, EventKind.BROKER_CONFIG_CHANGED, "broker 3", "", "x.rate=9")
    assert told(rate) == "config  broker 3  x.rate=9"
    assert told(Event(0, EventKind.BROKER_DOWN, "broker 3")) == "broker down  broker 3"
