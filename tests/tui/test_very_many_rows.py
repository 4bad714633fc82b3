"""Very many rows get their order in turns of the event loop, which goes on with other things in between."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from dashboards import dashboard
from event_loop import in_event_loop
from fake_cluster import FakeCluster
from fake_feed import FakeFeed
from textual.widget import Widget

from engine.common.model import TopicPartition
from tui.drawing.cells import Cell, Column
from tui.state.table_model import AT_ONCE, TURN, Filter, Rows, TableModel
from tui.widgets.line_table import LineTable
from tui.widgets.lines_view import RowsView

COUNT = AT_ONCE + 1_500


class Things:
    """Rows of numbers that count how often somebody asks for a value."""

    def __init__(self, seed: int) -> None:
        random = Random(seed)
        self.sizes = [random.randrange(1_000_000) if number % 7 else None for number in range(COUNT)]
        self.asked = 0

    def rows(self, *, only_even: bool = False) -> Rows:
        columns = (Column("size", "SIZE", lambda n: Cell(str(n)), self._size, is_figure=True),)
        return Rows(
            columns, range(COUNT), lambda n: n, lambda n: f"thing-{n}",
            is_kept=(lambda n: n % 2 == 0) if only_even else None,
        )  # fmt: skip

    def _size(self, number: int) -> int | None:
        self.asked += 1
        return self.sizes[number]


def exhausted(model: TableModel) -> None:
    while model.arranging is not None:
        next(model.arranging, None)


def at_once(rows: Rows, model: TableModel) -> Sequence[Any]:
    """Return what a model that is arranged in the same way shows without turns."""
    other = TableModel(sort_name=model.sort_name, is_reversed=model.is_reversed, filter=model.filter)
    other.show(rows)
    return list(other.shown)


def is_right(model: TableModel, rows: Rows) -> bool:
    """Compare here: pytest would look for every difference between thousands of rows."""
    return list(model.shown) == at_once(rows, model)


@pytest.mark.parametrize("only_even", [False, True])
@pytest.mark.parametrize("text", ["", "3"])
@pytest.mark.parametrize("sort", [None, "size"])
def test_turns_lead_to_the_same_rows(sort: str | None, text: str, only_even: bool) -> None:
    things, model = Things(1), TableModel(works_in_turns=True)
    model.show(things.rows(only_even=only_even))
    model.sort_by(sort)
    model.set_filter(Filter(text))
    exhausted(model)
    assert list(model.shown) == at_once(things.rows(only_even=only_even), model)


def test_no_turn_looks_at_more_than_some_rows() -> None:
    things, model = Things(1), TableModel(works_in_turns=True)
    model.show(things.rows())
    model.sort_by("size")
    assert things.asked == 0, "not even the first turn is done at once"
    most = 0
    while model.arranging is not None:
        before = things.asked
        next(model.arranging, None)
        most = max(most, things.asked - before)
    assert 0 < most <= TURN


def test_the_cursor_stays_where_it_was_moved_meanwhile() -> None:
    things, model = Things(2), TableModel(works_in_turns=True)
    model.show(things.rows())
    model.sort_by("size")
    assert model.arranging is not None
    next(model.arranging)
    model.cursor = 4_321
    exhausted(model)
    assert model.cursor_item == 4_321
    assert model.shown[0] == max(range(COUNT), key=lambda n: things.sizes[n] or 0)


def test_newer_rows_wait_for_the_end_and_then_have_their_own_order() -> None:
    """If each frame began anew, rows that take longer than a frame would never be sorted."""
    old, new, model = Things(3), Things(4), TableModel(works_in_turns=True)
    model.show(old.rows())
    model.sort_by("size")
    work = model.arranging
    for _ in range(3):
        assert model.arranging is work and work is not None
        next(work)
        model.show(new.rows())
    while model.arranging is work:
        next(work, None)  # type: ignore[call-overload]
    assert list(model.shown) == at_once(old.rows(), model)
    assert model.arranging is not None
    exhausted(model)
    assert list(model.shown) == at_once(new.rows(), model)


def test_another_wish_meanwhile_counts_at_once() -> None:
    things, model = Things(5), TableModel(works_in_turns=True)
    model.show(things.rows())
    model.sort_by("size")
    assert model.arranging is not None
    next(model.arranging)
    model.set_filter(Filter("thing-77"))
    model.show(things.rows(only_even=True))
    exhausted(model)
    assert list(model.shown) == at_once(things.rows(only_even=True), model)
    assert model.shown[0] % 2 == 0


def test_rows_that_were_left_meanwhile_are_forgotten() -> None:
    things, model = Things(6), TableModel(works_in_turns=True)
    model.show(things.rows())
    model.sort_by("size")
    model.leave()
    assert model.arranging is None and not model.shown
    model.show(things.rows())
    exhausted(model)
    assert list(model.shown) == at_once(things.rows(), model)


def test_rows_stay_in_their_order_without_a_look_while_what_it_is_made_of_is_the_same() -> None:
    things, items, model = Things(7), range(COUNT), TableModel(works_in_turns=True)

    def rows(basis: object, items: Sequence[int] = items) -> Rows:
        rows = things.rows()
        return replace(rows, items=items, columns=(replace(rows.columns[0], basis=basis),))

    first, second = object(), object()
    model.show(rows(first))
    model.sort_by("size")
    assert model.arranging is not None
    next(model.arranging)
    model.show(rows(first))
    exhausted(model)
    assert things.asked == COUNT, "newer rows that came meanwhile have the same order"
    newer = rows(first)
    model.show(newer)
    assert model.arranging is None and model.rows is newer and things.asked == COUNT
    things.sizes.reverse()
    some, fewer = replace(rows(second), is_kept=lambda n: n > 5), rows(second, range(COUNT - 1))
    for changed in (rows(second), some, rows(second), fewer):
        model.show(changed)
        exhausted(model)
        assert is_right(model, changed)
    model.show(rows(second))
    exhausted(model)
    model.set_filter(Filter("3"))
    model.show(rows(second))
    exhausted(model)
    assert is_right(model, rows(second))


@pytest.mark.parametrize("basis", [None, object()])
def test_rows_have_their_order_after_other_values_and_after_another_screen(basis: object) -> None:
    things, items, model = Things(9), range(COUNT), TableModel(works_in_turns=True)

    def show() -> Rows:
        rows = things.rows()
        rows = replace(rows, items=items, columns=(replace(rows.columns[0], basis=basis),))
        model.show(rows)
        exhausted(model)
        return rows

    show()
    model.sort_by("size")
    exhausted(model)
    assert is_right(model, show())
    model.leave()
    assert is_right(model, show())
    if basis is None:
        things.sizes.reverse()
        assert is_right(model, show()), "what these values are made of is not known"


def test_rows_whose_order_failed_are_put_in_order_anew() -> None:
    things, model = Things(8), TableModel(works_in_turns=True)
    rows = things.rows()
    rows = replace(rows, columns=(replace(rows.columns[0], basis=things),))
    model.show(rows)
    model.sort_by("size")
    for text in ("", "3"):
        model.set_filter(Filter(text))
        model.arranging = None
        model.show(rows)
        exhausted(model)
        assert is_right(model, rows)


@in_event_loop
async def test_a_table_of_partitions_is_sorted_by_size_only_when_sizes_were_read() -> None:
    cluster = FakeCluster(3, {"orders": AT_ONCE + 1}, partition_bytes=1_000_000)
    async with dashboard(FakeFeed(cluster, plays=False), page="partitions") as driven:
        await driven.tick(2)
        model = driven.main.model
        for name, stays in (("bytes", True), ("leader", True), ("end_offset", False)):
            model.sort_by(name)
            await driven.tick()
            await driven.until(lambda: model.arranging is None)
            shown, logs = model.shown, driven.app.board.frame.logs
            await driven.tick()
            await driven.until(lambda: model.arranging is None)
            assert driven.app.board.frame.logs is logs, "they are read every ten seconds"
            assert (model.shown is shown) is stays, name
        cluster.move_leader(TopicPartition("orders", 7), 2)
        model.sort_by("leader_epoch")
        await driven.tick()
        await driven.until(lambda: model.arranging is None)
        cluster.move_leader(TopicPartition("orders", 9), 2)
        cluster.move_leader(TopicPartition("orders", 9), 1)
        await driven.tick()
        await driven.until(lambda: str(model.shown[0].name) == "orders-9")


@in_event_loop
async def test_a_table_on_the_screen_is_sorted_and_filtered_as_frames_come() -> None:
    cluster = FakeCluster(3, {"orders": AT_ONCE, "clicks": 300}, partition_bytes=1_000_000)
    feed = FakeFeed(cluster, plays=False)
    async with dashboard(feed, page="partitions") as driven:
        await driven.tick(2)
        model = driven.main.model
        cluster.move_leader(TopicPartition("orders", 4_999), 2)
        model.sort_by("leader_epoch")
        await driven.tick()
        await driven.until(lambda: model.arranging is None)
        assert str(model.shown[0].name) == "orders-4999" and "orders-4999" in driven.drawn
        await driven.press("slash")
        await driven.type("clicks")
        await driven.until(lambda: model.arranging is None)
        assert len(model.shown) == 300 and "clicks-0" in driven.drawn


@in_event_loop
async def test_rows_that_cannot_be_put_in_order_stay_and_the_user_is_told() -> None:
    feed = FakeFeed(FakeCluster(3, {"orders": AT_ONCE + 1}), plays=False)

    def broken(_: object) -> bool:
        raise ZeroDivisionError

    async with dashboard(feed, page="partitions") as driven:
        await driven.tick(2)
        model = driven.main.model
        model.rows = replace(model.rows, search=broken)
        model.set_filter(Filter("orders"))
        driven.main.query_one(LineTable).refresh_rows(is_new_data=False)
        await driven.until(lambda: model.arranging is None)
        assert [notification.message for notification in driven.app._notifications] == [
            "the rows could not be put in order: see the logs (l)"
        ]
        assert len(model.shown) == AT_ONCE + 1 and "orders-0" in driven.drawn
        await driven.tick()
        await driven.until(lambda: model.arranging is None)
        assert len(driven.app._notifications) == 1, "the next frame's rows are sound"


@in_event_loop
async def test_a_step_of_the_cursor_draws_two_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[int] = []
    row = LineTable._row
    monkeypatch.setattr(LineTable, "_row", lambda table, index: drawn.append(index) or row(table, index))
    async with dashboard("live", page="partitions", size=(120, 24)) as driven:
        await driven.tick(2)
        drawn.clear()
        await driven.press("down")
        assert set(drawn) == {0, 1}
        assert [line[:3] for line in driven.lines_with("__consumer_offsets-")[:2]] == ["  _", "▌ _"]
        drawn.clear()
        await driven.press("end")
        assert len(set(drawn)) > 10, "it has scrolled"


@in_event_loop
@pytest.mark.parametrize(("page", "widget"), [("overview", RowsView), ("brokers", LineTable)])
async def test_a_frame_draws_the_lines_that_it_changes(
    page: str, widget: type[Widget], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A terminal behind a slow line takes a few kB a second."""
    drawn: list[int] = []
    render_line = widget.render_line
    monkeypatch.setattr(widget, "render_line", lambda view, y: drawn.append(y) or render_line(view, y))
    feed = FakeFeed(FakeCluster(3, {"orders": 4}, rate=0), plays=False)
    async with dashboard(feed, page=page) as driven:
        await driven.tick(30)
        drawn.clear()
        await driven.tick()
        assert len(drawn) <= 3, "the newest point of a chart, and ages"
        before = driven.drawn
        feed.cluster.kill(2)
        await driven.tick(3)
        changed = driven.drawn
        assert (changed != before and "2  ✖ down" in changed) or "2  down" in changed
        driven.main.draw(is_new_data=False)
        driven.main.query_one(widget).refresh()
        await driven.settled()
        assert driven.drawn == changed, "no line was forgotten"
