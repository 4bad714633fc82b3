"""What a wide terminal shows in addition to a narrow one, and where a table's columns go."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from dashboards import Driven, shown
from event_loop import staged
from fake_cluster import FakeCluster
from fake_feed import FakeFeed, fake_feed

from engine.admin.cluster.target import ClusterTarget, Origin
from engine.admin.lag.verdicts import LagStatus
from engine.admin.watch.frame import Frame, Stage, StageStatus
from tui.drawing.lines import text_of, width_of
from tui.pages import brokers, groups, overview, reassignments
from tui.pages.asides import aside_of
from tui.pages.page import View, rows_at
from tui.pages.plans import PlannedItem
from tui.state.board import Board
from tui.state.location import Location, Only
from tui.state.problems import problems_of
from tui.state.status import status_lines
from tui.widgets.lines_view import LinesView, RowsView

HUGE = (200, 60)


def aside(driven: Driven) -> str:
    return driven.main.query_one("#aside", LinesView).text


def board_after(feed: FakeFeed, ticks: int) -> Board:
    board = Board()
    for _ in range(ticks):
        board.take(feed.tick())
    return board


def overview_of(board: Board, width: int, height: int) -> str:
    lines = overview.overview_of(board, problems_of(board), width, height).lines
    assert all(width_of(line) <= width for line in lines)
    return "\n".join("".join(text for text, _ in line).rstrip() for line in lines)


@staged(shown, size=HUGE)
async def test_beside_the_table_stands_what_there_is_to_say_of_the_row_under_the_cursor(driven: Driven, /) -> None:
    await driven.tick(6)
    driven.feed.cluster.kill(2)
    await driven.tick(3)
    await driven.press("4")
    assert "out of the ISR\nbroker 2 since " in aside(driven)
    assert "broker down" in aside(driven)
    first = aside(driven).splitlines()[0]
    await driven.press("down")
    assert aside(driven).splitlines()[0] != first, "it follows the cursor"
    for keys, told in (("2g", "34 partitions would"), ("3", "partitions by leader"),
                       ("5", "partitions furthest behind"), ("8", "what happened")):  # fmt: skip
        await driven.press(*keys)
        assert told in aside(driven)
    await driven.press("1")
    assert not driven.main.query_one("#room").display


@staged(shown, size=HUGE)
async def test_a_replica_that_is_back_was_out_until_a_time(driven: Driven, /) -> None:
    await driven.tick(6)
    driven.feed.cluster.kill(2)
    await driven.tick(3)
    await driven.press("4")
    assert re.search(r"broker 2 since \S+ for \S+, and still is", aside(driven)), aside(driven)
    driven.feed.cluster.start(2)
    await driven.tick(20)
    assert re.search(r"broker 2 from (\S+) to (?!\1)\S+ for ", aside(driven)), aside(driven)


@staged(shown, size=HUGE)
async def test_a_lone_replica_that_is_down_did_not_leave_the_isr(driven: Driven, /) -> None:
    driven.feed.cluster.create_topic("alone", 1, replication_factor=1)
    await driven.tick()
    (leader,) = driven.feed.cluster.frame().cluster.topic("alone").partitions[0].isr
    driven.feed.cluster.kill(leader)
    await driven.tick()
    driven.main.go_to(Location("partition", topic="alone", partition=0))
    await driven.settled()
    assert "what happened" in aside(driven)
    assert "out of the ISR" not in aside(driven)


def test_a_move_shows_its_course_and_why_it_stands_still() -> None:
    board = board_after(fake_feed("reassigning", plays=False), 40)
    (move,) = reassignments.items_of(board)
    lines = aside_of(View(board, Location("reassignments")), "reassignments", move, 60)
    told = "\n".join("".join(text for text, _ in line).rstrip() for line in lines)
    assert told.startswith("clicks-1 to broker 5  stands still\n\nwhat to do\nsee what both brokers log;")
    assert "\n\ncopied  0 B\n2.0 GB┤" in told
    assert "no byte seen for 39s" in told, "sizes were last read after 30 s, and the time counts on"


def test_a_partition_of_a_plan_that_is_rolled_back_is_going_back() -> None:
    board = board_after(fake_feed("reassigning", plays=False), 1)
    items = [item for item in board.items if item.partition.assignment.is_being_reassigned]
    goal, elsewhere = items[0].partition.assignment.target_replicas, (97, 98, 99)
    for before, target, state in (
        (elsewhere, goal, "under way"),
        (goal, elsewhere, "going back"),
        (elsewhere, elsewhere, "going elsewhere"),
    ):
        assert PlannedItem(items[0].name, before, target, items[0], None).state == state


@pytest.mark.parametrize("page", ["brokers", "partitions", "groups"])
def test_no_column_makes_room_for_what_stands_beside_the_table(page: str) -> None:
    async def look(driven: Driven) -> None:
        await driven.tick(2)
        titles = driven.main.model.rows.columns
        for size in ((200, 60), (160, 45), (140, 45), (120, 40)):
            await driven.pilot.resize_terminal(*size)
            await driven.tick()
            is_beside = driven.main.query_one("#aside").display and not driven.main.query_one("#room").has_class(
                "-below"
            )
            assert not (is_beside and size[0] < 140)
            (head,) = driven.lines_with(titles[0].title + " ")[:1]
            if is_beside:
                assert all(column.title in head for column in titles), f"{size}: {head}"

    shown(look, "live", size=HUGE, page=page)


@staged(shown, size=HUGE, page="topics")
async def test_a_row_is_not_torn_apart_by_a_wide_terminal(driven: Driven, /) -> None:
    await driven.tick()
    (row,) = driven.lines_with("invoices ")[:1]
    assert row.index(" 3 ") - row.index("invoices") < 40, row


def test_a_huge_overview_shows_brokers_and_moves_and_those_in_trouble_first() -> None:
    feed = fake_feed("reassigning", plays=False)
    board = board_after(feed, 12)
    huge = overview_of(board, 200, 54)
    assert "OUT OF ISR" in huge and "┌ Moves" in huge
    assert "0 to 750 in/s" in huge, "the brokers' charts have one scale"
    assert "OUT OF ISR" not in overview_of(board, 80, 54)
    feed.cluster.kill(4)
    rows = overview_of(board_after(feed, 3), 200, 54).splitlines()
    at = next(index for index, row in enumerate(rows) if "OUT OF ISR" in row)
    assert rows[at + 1].split()[1:4] == ["4", "✖", "down"]


@pytest.mark.parametrize("scene", ["live", "broker-down", "empty", "reassigning", "connecting", "denied"])
def test_the_overview_fills_any_room_and_never_more(scene: str) -> None:
    board = board_after(fake_feed(scene, plays=False), 5)
    for width in (1, 18, 60, 80, 109, 110, 120, 200, 300):
        for height in range(64):
            lines = overview.overview_of(board, problems_of(board), width, height, cursor=height % 5).lines
            assert len(lines) <= height
            assert width < 60 or all(width_of(line) <= width for line in lines)
            assert len(lines) == height or width < 60 or height < 12


def test_many_brokers_do_not_push_out_what_happened() -> None:
    feed = FakeFeed(FakeCluster(40, {"orders": 80}), plays=False)
    feed.tick()
    feed.cluster.kill(7)
    huge = overview_of(board_after(feed, 6), 200, 54)
    assert "more, with nothing wrong" in huge
    assert "Last changes" in huge and "broker down" in huge


@pytest.mark.parametrize("height", [16, 20, 60])
def test_every_problem_has_its_row(height: int) -> None:
    feed = fake_feed("broker-down", plays=False)
    board = board_after(feed, 3)
    assert board.frame is not None and board.frame.health is not None
    told = overview_of(board, 80, height)
    problems = problems_of(board)
    assert len(problems) >= len(board.frame.health.reasons)
    shown = [problem for problem in problems if problem.subject in told]
    assert shown == list(problems) or f"┌ Problems {len(problems)} " in told, "else it says how many there are"
    assert shown[0] is problems[0], "the gravest comes first"


@pytest.mark.parametrize("width", [120, 140, 200])
def test_a_problem_says_what_and_whom_it_hits(width: int) -> None:
    feed = fake_feed("broker-down", plays=False)
    board = board_after(feed, 3)
    told = overview_of(board, width, 45)
    assert all(f"{problem.subject} " in told and problem.effect[:30] in told for problem in problems_of(board))
    assert "Last changes" in told


def test_a_dead_broker_leaves_the_others_their_share() -> None:
    feed = fake_feed("live", plays=False)
    feed.cluster.kill(2)
    items = brokers.items_of(board_after(feed, 3))
    assert [item.skew for item in items] == [0, 0, 0], "each was assigned a third of the replicas, and is still"


def test_the_age_of_a_registration_is_not_called_the_age_of_the_process() -> None:
    titles = {column.name: column.title for column in brokers.COLUMNS}
    assert titles["registered_s"] == "SESSION" and "UP FOR" not in titles.values()


def test_a_lost_cluster_is_told_once() -> None:
    feed = fake_feed("disconnected", plays=False)
    frame = feed.tick()
    told = " ".join(text for line in status_lines(frame, 200) for text, _ in line)
    assert told.count("connection refused") == 1
    assert "ZooKeeper" in told and "brokers" in told
    feed = fake_feed("stages-failing", plays=False)
    told = " ".join(text for line in status_lines(feed.tick(), 200) for text, _ in line)
    assert "log dirs: no answer within 8 s" in told, "what no lost side explains is told"


def test_the_overview_the_summary_and_the_filter_count_the_same_readers() -> None:
    cluster = FakeCluster(3, {"orders": 3})
    cluster.add_group("fine", "orders", reads=2.0)
    board = Board()

    def told(frame: Frame) -> tuple[str, str, int]:
        board.take(frame)
        view = View(board, Location("groups"))
        drawn = overview_of(board, 140, 40)
        summary = "".join(text for line in groups.PAGE.summary(view, 140) for text, _ in line)
        assert groups.PAGE.is_trouble is not None
        return drawn, summary, sum(groups.PAGE.is_trouble(view, group) for group in frame.groups)

    frame = cluster.frame()
    fine = next(iter(frame.groups))
    unread = replace(frame, stages={**frame.stages, Stage.GROUPS: StageStatus()})
    assert "groups have not been read" in told(unread)[0]
    assert "nothing is wrong" in told(frame)[0]
    for statuses in ((LagStatus.STOP, LagStatus.OK, LagStatus.WARN), (LagStatus.REWIND, LagStatus.UNKNOWN)):
        found = tuple(
            replace(fine, lag=replace(fine.lag, group=f"g{n}", status=status)) for n, status in enumerate(statuses)
        )
        count = sum(status not in (LagStatus.OK, LagStatus.UNKNOWN) for status in statuses)
        frame = replace(cluster.frame(), groups=found)
        drawn, summary, kept = told(frame)
        assert "nothing is wrong" not in drawn
        assert f"{count} unhealthy group{'s' * (count > 1)}" in drawn and f"group g0 {statuses[0].value}" in drawn
        assert (f"{count} unhealthy" in summary, kept) == (True, count)


def test_moves_and_groups_stand_one_above_the_other_where_each_would_be_too_narrow() -> None:
    feed = fake_feed("reassigning", plays=False)
    feed.cluster.add_group("reports", "clicks", reads=100)
    board = board_after(feed, 12)
    rows = overview_of(board, 120, 36).splitlines()
    moves, readers = ([row for row in rows if f"┌ {title} ─" in row] for title in ("Moves", "Groups"))
    assert len(moves) == len(readers) == 1 and moves != readers
    name = reassignments.items_of(board)[0].name
    assert any(f"│  {name}  " in row and "→ " in row for row in rows)
    (beside,) = (row for row in overview_of(board, 230, 54).splitlines() if "┌ Moves ─" in row)
    assert "┌ Groups ─" in beside


def test_room_that_is_left_explains_other_problems_too() -> None:
    feed = fake_feed("live", plays=False)
    feed.cluster.kill(2)
    board = board_after(feed, 6)
    names = [problem.subject for problem in problems_of(board)]
    assert len(names) > 2
    huge = overview_of(board, 200, 54)
    assert "CRITICAL  broker 2 down ≥5s · " in huge
    assert [name for name in names if f"─ {name} ─" in huge] == names
    assert [name for name in names if f"─ {name} ─" in overview_of(board, 120, 34)][:1] == names[:1]


def test_where_a_group_stands_still_stand_its_reader_the_record_and_the_commands() -> None:
    feed = FakeFeed(FakeCluster(3, {"orders": 2, "audit": 1}), plays=False)
    feed.cluster.add_group("reports", "audit", reads=0, lag=4_000)
    board = board_after(feed, 30)
    target = ClusterTarget("tried", Origin.OPTIONS, None, (("broker", 9092),))
    view = View(board, Location("group", group="reports", only=Only.UNHEALTHY), target)
    (row,) = rows_at(groups.GROUP_PAGE, view)
    told = "\n".join("".join(text for text, _ in line).rstrip() for line in aside_of(view, "group", row, 150))
    assert "audit-0  STALL  stands still\n\nwho reads it\nreports at /10.0.0.1\n" in told
    at = row.committed_offset
    assert f"klamm consume audit --partition 0 --offset {at} -n 1 --bootstrap-server broker:9092" in told
    assert "klamm groups reset-offsets reports --topic audit:0 --shift-by 1 --execute --bootstrap" in told


def test_partitions_of_a_group_in_trouble_are_told_by_their_readers() -> None:
    board = board_after(fake_feed("live", plays=False), 6)
    told = {problem.subject: problem for problem in problems_of(board) if not problem.is_of_cluster}
    (stopped,) = (problem for subject, problem in told.items() if "nightly-report" in subject)
    assert stopped.effect.startswith("nobody reads, 1.5M behind for ")
    assert stopped.examples == ("payments-0, payments-1, payments-2 and 3 more: 1.5M behind, read by nobody",)
    (behind,) = (problem.examples for subject, problem in told.items() if "search-index" in subject)
    assert [case.partition(" behind, ")[2] for case in behind] == [
        "read by search-index at /10.0.0.1", "read by search-index at /10.0.0.2",
    ]  # fmt: skip


@staged(shown, size=(120, 40))
async def test_the_text_below_a_table_is_there_as_soon_as_its_screen(driven: Driven, /) -> None:
    """The overview has hidden the table before, so it had no height."""
    await driven.tick(2)
    await driven.press("2")
    assert driven.lines_with("  broker 1  up  kafka1:9092")


@pytest.mark.parametrize(
    ("scene", "page", "told"),
    [
        ("broker-down", "brokers", "start it, or move its replicas away"),
        ("live", "groups", "start its consumers; see where each partition waits (enter)"),
        ("streaming", "spark", "see its batches and its sources (enter)"),
        ("reassigning", "reassignments", "cancel it (C)"),
    ],
)
def test_a_row_in_trouble_says_what_to_do_and_w_says_why(scene: str, page: str, told: str) -> None:
    async def look(driven: Driven) -> None:
        await driven.tick(30)
        driven.main.go_to(Location(page))
        is_trouble = driven.main.pages[page].is_trouble
        assert is_trouble is not None
        rows = driven.main.model.shown
        well = [at for at, row in enumerate(rows) if not is_trouble(driven.main.view, row)]
        driven.main.model.put_cursor_on_first(lambda row: is_trouble(driven.main.view, row))
        driven.main.draw(is_new_data=False)
        await driven.settled()
        lines = driven.drawn.splitlines()
        at = next(at for at, row in enumerate(lines) if row.strip() == "what to do")
        assert told in lines[at + 1] and "w why" in lines[-1]
        await driven.press("w")
        assert "what to do  " in driven.text and told in driven.text
        await driven.press("escape")
        for row in well[:1]:
            driven.main.model.cursor = row
            driven.main.draw(is_new_data=False)
            await driven.settled()
            assert "what to do" not in driven.drawn and "w why" not in driven.drawn

    shown(look, scene, size=(80, 24))


def test_a_chart_uses_the_height_of_the_terminal() -> None:
    board = board_after(fake_feed("live", plays=False), 12)
    item = brokers.items_of(board)[0]

    def height(lines: int) -> int:
        told = [text_of(line) for line in aside_of(View(board, Location("brokers"), height=lines), "brokers", item, 60)]
        at = next(at for at, text in enumerate(told) if text.startswith("records in/s"))
        return told.index("", at) - at - 1

    assert [height(lines) for lines in (24, 40, 60)] == [4, 6, 10]


@staged(shown, size=(80, 24))
async def test_on_a_small_terminal_what_to_do_takes_the_room_of_what_has_not_happened(driven: Driven, /) -> None:
    await driven.tick(26)
    assert driven.lines_with("none since the dashboard started")
    assert driven.lines_with("what to do  start its consumers")
    assert driven.lines_with("1.5M behind, read by …"), "what is cut says so"


@staged(shown, "broker-down", size=(60, 24))
async def test_the_chosen_problem_is_drawn_while_its_columns_are_those_of_a_wider_terminal(driven: Driven, /) -> None:
    """A terminal may be drawn between its change of size and the lines for it."""
    await driven.tick(2)
    view = driven.main.query_one("#overview", RowsView)
    for columns in ((1, 119), (61, 119)):
        view.set_rows({3: 0}, columns, 0)
        assert view.render_line(3).cell_length == 60
