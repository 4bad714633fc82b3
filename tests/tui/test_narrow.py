"""What stays visible in 80 columns and 24 lines. Without Textual."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fake_cluster import FakeCluster
from fake_feed import FakeFeed, fake_feed

from engine.admin.watch.events import Event, EventKind
from engine.admin.watch.frame import Link, LinkState, Stage, StageSource, StageStatus
from engine.common.model import TopicPartition
from tui.drawing.lines import Line, text_of, width_of
from tui.pages import brokers, groups, partitions, reassignments, timeline, topics
from tui.pages.asides import aside_of
from tui.pages.overview import overview_of
from tui.pages.page import Page, View
from tui.state.board import Board
from tui.state.location import Location
from tui.state.problems import problems_of
from tui.state.status import cause_of, status_lines

WIDTH = 76
"""What 80 columns leave for the lines above a table."""


def board_of(feed: FakeFeed, ticks: int, board: Board | None = None) -> Board:
    board = board or Board()
    for _ in range(ticks):
        board.take(feed.tick())
    return board


def overview_lines(board: Board, width: int, height: int) -> list[Line]:
    return overview_of(board, problems_of(board), width, height).lines


def texts(lines: list[Line]) -> list[str]:
    return ["".join(text for text, _ in line) for line in lines]


@pytest.mark.parametrize(
    ("scene", "page", "expected"),
    [
        ("reassigning", reassignments.PAGE, " of 6.0 GB"),
        ("reassigning", brokers.PAGE, "T, then E gives back"),
        ("broker-down", topics.PAGE, "at it, "),
    ],
)
def test_the_lines_above_a_table_lose_nothing(scene: str, page: Page, expected: str) -> None:
    board = board_of(fake_feed(scene, plays=False), 12)
    for width in (WIDTH, 200):
        lines = page.summary(View(board, Location(page.name)), width)
        assert any(expected in text for text in texts(lines))
        assert all(width_of(line) <= width for line in lines), texts(lines)


@pytest.mark.parametrize(
    ("low", "left", "high", "expected"),
    [
        (45.0, 60.0, 90.0, " 45s to 1m 30s left"),
        (45.0, 60.0, None, " at least 45s left"),
        (60.0, 60.0, 60.0, " 1m left"),
        (None, None, None, None),
    ],
)
def test_the_time_left_of_all_moves_has_its_range(
    low: float | None, left: float | None, high: float | None, expected: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    board = board_of(fake_feed("reassigning", plays=False), 12)
    assert board.frame is not None
    moves = replace(board.moves, left_low_s=low, left_s=left, left_high_s=high)
    monkeypatch.setattr(Board, "moves", moves)
    for width in (WIDTH, 200):
        first = texts(reassignments.PAGE.summary(View(board, Location("reassignments")), width))[0]
        assert "left" not in first if expected is None else expected in first


def test_a_burst_under_a_throttle_foretells_no_end_and_no_text_about_it_is_cut() -> None:
    cluster = FakeCluster(4, {"orders": 2}, partition_bytes=90_000_000_000)
    for key in ("leader.replication.throttled", "follower.replication.throttled"):
        cluster.set_broker_config(None, f"{key}.rate", "1000000")
    cluster.reassign(TopicPartition("orders", 0), (1, 2, 4))
    feed = FakeFeed(cluster, plays=False)

    def told() -> tuple[str, str, str]:
        view = View(board, Location("reassignments"))
        summary = "  ".join(texts(reassignments.PAGE.summary(view, WIDTH)))
        (item,) = reassignments.items_of(board)
        left = next(column for column in reassignments.COLUMNS if column.name == "left_s").cell(item).text
        return summary, left, next(text for text in texts(overview_lines(board, 120, 40)) if "┌ Moves" in text)

    board = board_of(feed, 40)
    summary, left, panel = told()
    assert " left" in summary and " left" in panel and left != "—", "nothing is throttled"
    for key in ("leader.replication.throttled", "follower.replication.throttled"):
        cluster.set_topic_config("orders", f"{key}.replicas", "*")
    board_of(feed, 40, board)
    summary, left, panel = told()
    assert "in a burst" in summary and " left" not in summary + panel and left == "—"
    assert "would let it end within an hour" in summary and "…" not in summary and summary.endswith("H changes them")


def test_a_silent_broker_is_not_counted_as_up() -> None:
    feed = fake_feed("live", plays=False)
    feed.cluster.silence(2)
    board = board_of(feed, 8)
    overview, summary = (
        "\n".join(texts(lines))
        for lines in (overview_lines(board, 120, 40), brokers.PAGE.summary(View(board, Location("brokers")), WIDTH))
    )
    known = len(board.broker_ids)
    assert f"{known - 1} of {known} answer" in summary and " up" not in summary.splitlines()[0]
    assert f"{known - 1} of {known} brokers answer" in overview and "brokers up" not in overview
    assert "✖ broker 2 silent" in overview


def test_partitions_well_above_min_isr_are_not_said_to_be_none() -> None:
    feed = FakeFeed(FakeCluster(3, {"orders": 4}, min_isr=1), plays=False)
    summary = " ".join(texts(topics.PAGE.summary(View(board_of(feed, 2), Location("topics")), 200)))
    assert "min ISR: 0 below, 0 at it, 0 one above" in summary


def test_the_address_of_a_lost_side_is_told_once() -> None:
    link = Link(LinkState.LOST, "k1:9092,k2:9092", cause="no broker can be reached: k1:9092,k2:9092")
    assert cause_of(link) == "no broker can be reached"
    assert cause_of(replace(link, cause="k1:9092 refused: x")) == "k1:9092 refused: x"


def test_a_lost_side_says_when_it_is_tried_again_however_long_the_cause_is() -> None:
    frame = fake_feed("disconnected", plays=False).tick()
    links = {side: replace(link, cause=f"cannot be reached: {'x' * 60}") for side, link in frame.links.items()}
    lines = status_lines(replace(frame, links=links), WIDTH)
    assert all(width_of(line) <= WIDTH for line in lines)
    assert " ".join(" ".join(texts(lines)).split()).count("next try in") == 2


def test_advice_on_restarts_that_is_cut_says_so() -> None:
    feed = fake_feed("live", plays=False)
    feed.cluster.kill(2)
    lines = texts(brokers.PAGE.summary(View(board_of(feed, 3), Location("brokers")), 60))
    at = next(index for index, text in enumerate(lines) if text.startswith("rolling restart: none now"))
    assert lines[at + 1].rstrip().endswith("…")
    wide = texts(brokers.PAGE.summary(View(board_of(feed, 3), Location("brokers")), 300))
    assert any(text.rstrip().endswith("under-replicated") for text in wide)


def test_changes_are_counted_where_only_one_of_them_has_room() -> None:
    feed = fake_feed("live", plays=False)
    board = board_of(feed, 8)
    feed.cluster.kill(2)
    board.take(feed.tick())
    shrunk = sum(event.kind == "isr_shrank" for event in board.events)
    for height in (13, 14, 20, 40):
        shown = [text for text in texts(overview_lines(board, 80, height)) if "ISR shrank" in text]
        assert all(f"{shrunk} times" in text for text in shown), shown
    assert shown


def test_what_happened_stands_apart_from_what_it_happened_to() -> None:
    board = board_of(fake_feed("live", plays=False), 1)
    assert board.frame is not None
    events = tuple(Event(number, kind, "orders") for number, kind in enumerate(EventKind))
    board.take(replace(board.frame, sequence=board.frame.sequence + 1, events=events))
    lines = texts(overview_lines(board, 80, 200))
    starts = {text.index("orders") for text in lines if "orders" in text}
    for kind in EventKind:
        assert any(f"{timeline.kind_cell(Event(0, kind, '')).text}  " in text for text in lines), kind
    assert len(starts) == 1, "the names stand below each other"


def test_without_brokers_the_groups_say_which_they_are() -> None:
    sentence = "only groups in ZooKeeper, without lag: brokers are not asked"
    for has_wire in (True, False):
        board = board_of(FakeFeed(FakeCluster(has_wire=has_wire), plays=False), 1)
        assert board.frame is not None
        stages = {**board.frame.stages, Stage.GROUPS: StageStatus(StageSource.POLL, read_at_ms=1)}
        board.take(replace(board.frame, sequence=board.frame.sequence + 1, stages=stages))
        assert texts(groups.PAGE.summary(View(board, Location("groups")), 120)) == [sentence] * (not has_wire)


def test_a_replica_that_was_moved_away_or_deleted_is_not_out_of_sync_any_more() -> None:
    cluster, board = FakeCluster(3, {"gone": 1, "moved": 1}), Board()
    feed = FakeFeed(cluster, plays=False)

    def told(ticks: int) -> str:
        for _ in range(ticks):
            board.take(feed.tick())
        return "\n".join(texts(timeline.PAGE.summary(View(board, Location("timeline")), 200)))

    told(2)
    cluster.kill(3)
    assert "2 replicas out of sync: gone-0 without 3 for 1s, moved-0 without 3 for 1s" in told(2)
    cluster.delete_topic("gone")
    assert "1 replica out of sync: moved-0 without 3" in told(1)
    cluster.reassign(TopicPartition("moved", 0), (1, 2))
    assert "out of sync" not in told(100)
    assert board.topics[0].partitions[0].replicas == (1, 2)


def test_the_sign_of_a_leader_that_is_not_preferred_is_explained_where_there_is_one() -> None:
    def summary(scene: str) -> str:
        view = View(board_of(fake_feed(scene, plays=False), 1), Location("partitions"))
        return "".join(text_of(line) for line in partitions.PAGE.summary(view, 80))

    assert summary("reassigning").endswith("   * not led by the preferred replica")
    assert summary("five") == "27 partitions"


def test_what_to_do_about_the_gravest_problem_is_worth_more_than_older_changes() -> None:
    feed = FakeFeed(FakeCluster(3, {"orders": 6}), plays=False)
    board = board_of(feed, 4)
    feed.cluster.kill(2)
    drawn = "\n".join(texts(overview_lines(board_of(feed, 4, board), 80, 19)))
    assert "what to do  start it" in drawn and "broker down" in drawn


def test_a_lag_that_was_never_there_has_no_chart() -> None:
    def charts(rate: int) -> str:
        feed = FakeFeed(FakeCluster(3, {"orders": 6}, rate=rate), plays=False)
        feed.cluster.add_group("billing", "orders", reads=rate / 2)
        lines = texts(overview_lines(board_of(feed, 8), 120, 33))
        return "".join(text for text in lines if "┌" in text)

    assert "Records in/s" in charts(0) and "Lag of groups" not in charts(0)
    assert "Lag of groups" in charts(100)


@pytest.mark.parametrize(("width", "height"), [(80, 19), (80, 12), (120, 19)])
def test_with_four_problems_there_is_room_for_what_to_do(width: int, height: int) -> None:
    """A terminal of 24 lines leaves 19 for the overview, one of 16 leaves 12."""
    feed = fake_feed("live", plays=False)
    board = board_of(feed, 8)
    feed.cluster.kill(2)
    board_of(feed, 4, board)
    assert len(problems_of(board)) == 4
    shown = texts(overview_lines(board, width, height))
    assert any("what to do  start it, or move its replicas away" in text for text in shown), shown
    assert len(shown) == height


def test_a_chart_beside_the_rows_is_whole_or_left_out() -> None:
    board = board_of(fake_feed("live", plays=False), 8)
    item = brokers.items_of(board)[0]
    for height in range(1, 40):
        shown = texts(aside_of(View(board, Location("brokers"), height=24), "brokers", item, WIDTH, height))
        tops, floors = ([row for row, text in enumerate(shown[:height]) if end in text] for end in ("k┤", "  0┤"))
        assert len(tops) == len(floors), height
        assert any("restart now" in text for text in shown)
    assert tops, "where it fits it is there"
    for width in (WIDTH, 120):
        assert aside_of(View(board, Location("partition", topic="gone", partition=0)), "partition", item, width) == []
