"""Columns that do not fit: keys and clicks bring each of them into sight, and the first column stays."""

from __future__ import annotations

from dataclasses import replace

import pytest
from dashboards import Driven, dashboard, shown
from event_loop import in_event_loop, staged
from fake_cluster import FakeCluster
from fake_feed import FakeFeed

from engine.admin.watch.frame import Stage
from tui.drawing.cells import Tone
from tui.pages import brokers, partitions, topics
from tui.pages.asides import aside_of
from tui.pages.page import View
from tui.state.board import Board
from tui.state.location import Location
from tui.widgets.line_table import LineTable

SMALL = (80, 24)


def header(driven: Driven) -> str:
    table = driven.main.query_one(LineTable)
    return driven.drawn.splitlines()[table.region.y]


@pytest.mark.parametrize(
    ("scene", "where"),
    [
        ("live", Location("brokers")),
        ("live", Location("topics")),
        ("live", Location("partitions")),
        ("live", Location("partition", topic="orders", partition=0)),
        ("live", Location("groups")),
        ("reassigning", Location("reassignments")),
        ("streaming", Location("spark")),
    ],
    ids=lambda place: place if isinstance(place, str) else place.page,
)
def test_every_column_can_be_reached_in_80_columns(scene: str, where: Location) -> None:
    async def look(driven: Driven) -> None:
        await driven.tick(4)
        driven.main.go_to(where)
        await driven.settled()
        columns = driven.main.model.rows.columns
        table = driven.main.query_one(LineTable)
        seen, before = set[str](), header(driven)
        for _ in columns:
            layout = [column for column, _ in table._layout]
            assert layout[0] is columns[0], "the first column stays"
            out_of_sight = len(columns) - len(layout) - driven.main.model.skipped
            assert (f"{out_of_sight}→" in header(driven)) is bool(out_of_sight)
            assert (f"←{driven.main.model.skipped} " in header(driven)) is bool(driven.main.model.skipped)
            assert all(column.title in header(driven) or width < len(column.title) for column, width in table._layout)
            seen |= {column.name for column in layout}
            if not out_of_sight:
                break
            await driven.press("right")
        assert seen == {column.name for column in columns}
        await driven.press(*["left"] * len(columns))
        assert header(driven) == before, "the way back leads to the columns that matter most"

    shown(look, scene, page="partitions", size=SMALL)


@pytest.mark.parametrize("skipped", [0, 1, 2, 3])
@staged(shown, size=SMALL, page="partitions")
async def test_what_a_row_says_stands_under_its_title(driven: Driven, /, skipped: int) -> None:
    await driven.press(*["right"] * skipped)
    table = driven.main.query_one(LineTable)
    assert driven.main.model.skipped == skipped
    item, left = driven.main.model.shown[0], 2
    row = driven.drawn.splitlines()[table.region.y + 1]
    for place, (column, width) in enumerate(table._layout):
        assert column.title in header(driven)[left : left + width]
        assert row[left : left + width].strip() == column.cell(item).text.strip()
        left += width + 2 + (4 if place == 0 and skipped else 0)


@staged(shown, size=SMALL, page="topics")
async def test_at_either_end_a_key_says_that_there_is_no_more(driven: Driven, /) -> None:
    await driven.press("left")
    assert [notification.message for notification in driven.app._notifications] == ["there are no columns further left"]
    count = len(driven.main.model.rows.columns)
    await driven.press(*["right"] * count)
    messages = [
        notification.message for notification in driven.app._notifications if notification.message.endswith("right")
    ]
    assert messages == ["there are no columns further right"], "said once, and no key lost"
    assert "→" not in header(driven) and driven.main.model.skipped < count - 2


@staged(shown, size=SMALL, page="topics")
async def test_the_numbers_of_hidden_columns_can_be_clicked_and_titles_still_sort(driven: Driven, /) -> None:
    table = driven.main.query_one(LineTable)

    async def click(text: str) -> None:
        await driven.pilot.click(LineTable, offset=(header(driven).index(text), 0))
        await driven.settled()

    await click("→")
    assert driven.main.model.skipped == 1
    column = table._layout[1][0]
    await click(column.title)
    assert driven.main.model.sort_name == column.name
    await click("←1")
    assert driven.main.model.skipped == 0


@staged(shown, size=SMALL, page="topics")
async def test_a_terminal_that_gets_wider_shows_all_columns_again(driven: Driven, /) -> None:
    await driven.press("right", "right")
    assert driven.main.model.skipped == 2
    await driven.pilot.resize_terminal(200, 24)
    await driven.settled()
    assert driven.main.model.skipped == 0 and "→" not in header(driven) and "←" not in header(driven)


@staged(shown, size=SMALL)
async def test_each_table_remembers_its_columns_and_a_new_topic_begins_with_the_first(driven: Driven, /) -> None:
    await driven.press("3", "right", "enter")
    assert driven.main.location.page == "partitions" and driven.main.model.skipped == 0
    await driven.press("right", "escape")
    assert driven.main.model.skipped == 1
    assert driven.main.model.put_cursor_on("orders")
    driven.main.go_to(Location("partitions", topic="orders"))
    assert driven.main.model.skipped == 0


@in_event_loop
async def test_a_long_name_keeps_both_ends_where_it_is_cut() -> None:
    cluster = FakeCluster(3, {f"shop.eu-central-1.orders.v2.{'x' * 60}.{end}": 1 for end in ("created", "paid")})
    async with dashboard(FakeFeed(cluster, plays=False), page="topics", size=(80, 24)) as driven:
        await driven.tick()
        assert driven.lines_with("shop.eu-") == driven.lines_with("…")
        assert any(".created " in line for line in driven.lines_with("…"))
        assert any(".paid " in line for line in driven.lines_with("…"))


@in_event_loop
async def test_few_rows_leave_room_for_more_about_the_one_under_the_cursor() -> None:
    async with dashboard("live", page="groups", size=(120, 40)) as driven:
        await driven.tick(3)
        assert driven.main.query_one("#room").has_class("-below")
        assert "partitions furthest behind" in driven.drawn
        await driven.press("4")
        assert not driven.main.query_one("#room").has_class("-below"), "34 rows need all of it"
        await driven.press("slash")
        await driven.type("audit")
        await driven.press("enter")
        assert driven.main.query_one("#room").has_class("-below")


# What brokers themselves measure


def measured(cluster: FakeCluster) -> Board:
    board = Board()
    board.take(cluster.frame())
    return board


def cells_of(board: Board, page: str) -> dict[str, dict[object, tuple[str, Tone]]]:
    """Return the cells of each column by the row's name."""
    rows = (brokers.PAGE if page == "brokers" else topics.PAGE).rows(View(board, Location(page)))
    return {column.name: {rows.key(item): tuple(column.cell(item)) for item in rows.items} for column in rows.columns}  # type: ignore[misc]


def beside(board: Board, page: str, row: object) -> str:
    rows = (brokers.PAGE if page == "brokers" else topics.PAGE).rows(View(board, Location(page)))
    item = next(item for item in rows.items if rows.key(item) == row)
    return "\n".join(
        "".join(text for text, _ in line).rstrip() for line in aside_of(View(board, Location(page)), page, item, 90)
    )


def test_a_figure_has_a_colour_only_where_it_needs_an_eye() -> None:
    cluster = FakeCluster(3, {"orders": 6})
    cluster.overload(2, idle_percent=19.0, throttle_ms=250.0)
    cluster.overload(3, idle_percent=20.0)
    cells = cells_of(measured(cluster), "brokers")
    assert cells["handler_idle_percent"][2] == ("19 %", Tone.WARN)
    assert cells["handler_idle_percent"][3] == ("20 %", Tone.PLAIN)
    assert cells["throttle_ms"] == {1: ("0", Tone.QUIET), 2: ("250 ms", Tone.WARN), 3: ("0", Tone.QUIET)}
    assert cells["bytes_in_per_s"][1] == ("200 kB/s", Tone.PLAIN)
    assert cells["bytes_out_per_s"][1] == ("400 kB/s", Tone.PLAIN)
    assert {cells[name][1][1] for name in ("produce_p99_ms", "fetch_p99_ms")} == {Tone.PLAIN}
    assert "throttled  produce 250 ms, fetch 0" in beside(measured(cluster), "brokers", 2)


def test_what_nobody_tells_is_a_dash_and_the_reason_stands_beside_it() -> None:
    cluster = FakeCluster(3, {"audit": 1, "orders": 6}, replication_factor=1)
    cluster.hide_figures(1, "cannot connect: Connection refused")
    board = measured(cluster)
    cells = cells_of(board, "brokers")
    names = [column.name for column in brokers.FIGURES]
    assert {cells[name][1] for name in names} == {("—", Tone.QUIET)}
    assert "—" not in {cells[name][2][0] for name in names}
    assert "rates and latencies\ncannot connect: Connection refused" in beside(board, "brokers", 1)
    assert "by jolokia, read 0.0s ago" in beside(board, "brokers", 2)
    of_topics = cells_of(board, "topics")
    assert of_topics["bytes_in_per_s"] == {"audit": ("—", Tone.QUIET), "orders": ("≥400 kB/s", Tone.PLAIN)}
    assert "broker 1 does not report: cannot connect" in beside(board, "topics", "orders")
    assert "≥400 kB/s in, ≥800 kB/s out" in beside(board, "topics", "orders")


def test_before_the_first_reading_the_figures_are_awaited_and_without_a_reader_they_are_not_there() -> None:
    cluster = FakeCluster(2, {"orders": 2})
    cluster.fail_stage(Stage.METRICS, "not the address of metrics: Port out of range")
    board = measured(cluster)
    assert cells_of(board, "brokers")["throttle_ms"][1] == ("—", Tone.QUIET)
    assert "rates and latencies\nnot the address of metrics: Port out" in beside(board, "brokers", 1)
    assert "traffic\nnot the address of metrics: Port out" in beside(board, "topics", "orders")
    nobody = FakeCluster(2, {"orders": 2}, has_wire=False)
    assert not {column.name for column in brokers.FIGURES} & cells_of(measured(nobody), "brokers").keys()
    assert "bytes_in_per_s" not in cells_of(measured(nobody), "topics")
    assert "rates" not in beside(measured(nobody), "brokers", 1)
    refuse = FakeCluster(2, {"orders": 2})
    for broker in (1, 2):
        refuse.hide_figures(broker, "it has no JMX port")
    assert "throttle_ms" not in cells_of(measured(refuse), "brokers"), "columns of nothing hide others"
    assert "it has no JMX port" in beside(measured(refuse), "brokers", 1)
    assert "bytes_in_per_s" not in cells_of(measured(refuse), "topics")
    assert "brokers 1, 2 do not report: it has no JMX port" in beside(measured(refuse), "topics", "orders")


@staged(shown, page="brokers", size=(200, 60))
async def test_rows_are_sorted_by_what_brokers_measure_and_the_unknown_comes_last(driven: Driven, /) -> None:
    driven.feed.cluster.overload(3, idle_percent=5, throttle_ms=9)
    driven.feed.cluster.hide_figures(1, "it has no JMX port")
    await driven.tick(2)
    for name, order in (("throttle_ms", [3, 2, 1]), ("handler_idle_percent", [2, 3, 1])):
        driven.main.model.sort_by(name)
        driven.main.draw(is_new_data=False)
        await driven.settled()
        assert [item.id for item in driven.main.model.shown] == order


@pytest.mark.parametrize(
    ("scene", "page", "size", "told"),
    [
        ("reassigning", "reassignments", (120, 40), "WHY"),
        ("reassigning", "reassignments", (120, 40), "others are cop"),
        ("live", "spark", SMALL, "Name them:"),
    ],
)
def test_why_a_row_is_as_it_is_has_a_place(scene: str, page: str, size: tuple[int, int], told: str) -> None:
    async def look(driven: Driven) -> None:
        await driven.tick(14)
        assert driven.lines_with(told), driven.text

    shown(look, scene, page=page, size=size)


@pytest.mark.parametrize(("scene", "is_moving"), [("broker-down", False), ("reassigning", True)])
def test_who_is_missing_from_an_isr_is_told_before_figures_and_loud_if_nothing_moves(
    scene: str, is_moving: bool
) -> None:
    async def look(driven: Driven) -> None:
        await driven.tick(4)
        titles = header(driven)
        assert ("  OUT " in titles) is not is_moving, titles
        (column,) = [one for one in partitions.columns_of(driven.app.board) if one.name == "osr"]
        cells = {column.cell(item) for item in driven.app.board.items if item.partition.osr}
        assert {cell.tone for cell in cells} == {Tone.ACCENT if is_moving else Tone.BAD}

    shown(look, scene, page="partitions", size=SMALL)


@pytest.mark.parametrize("full_in_s", [200.0, 0.0], ids=["soon", "now"])
@staged(shown, page="brokers", size=(120, 40))
async def test_when_disks_are_full_is_worth_a_column_where_one_fills_up(driven: Driven, /, full_in_s: float) -> None:
    await driven.tick(25)
    assert "IN/S" in header(driven) and "FULL IN" not in header(driven)
    board = driven.app.board
    board._dir_trends = [replace(board.dir_trends[0], full_in_s=full_in_s)]
    driven.main.draw(is_new_data=False)
    await driven.settled()
    assert "FULL IN" in header(driven)
