"""The rows of a table: filtered, sorted, tagged, with the cursor on its row. Without Textual."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tui.drawing.cells import Cell, Column
from tui.screen.saving import as_csv, as_json
from tui.state.table_model import Filter, Rows, TableModel


@dataclass(frozen=True)
class Thing:
    name: str
    size: int | None


COLUMNS = (
    Column("name", "NAME", lambda t: Cell(t.name), lambda t: t.name),
    Column("size_bytes", "SIZE", lambda t: Cell(str(t.size)), lambda t: t.size, is_figure=True),
)


def rows(*things: Thing) -> Rows:
    return Rows(COLUMNS, things, lambda t: t.name, lambda t: t.name)


def names(model: TableModel) -> list[str]:
    return [thing.name for thing in model.shown]


THREE = rows(Thing("orders", 5), Thing("clicks", None), Thing("payments", 9))


@pytest.mark.parametrize(
    ("typed", "kept"),
    [
        ("", ["orders", "clicks", "payments"]),
        ("ORD", ["orders"]),
        ("!ord", ["clicks", "payments"]),
        ("~pmt", ["payments"]),
        ("~mpt", []),
        ("!~pmt", ["orders", "clicks"]),
        ("s !ord", ["clicks", "payments"]),
        ("!", ["orders", "clicks", "payments"]),
        ("~", ["orders", "clicks", "payments"]),
        ("a.y", []),
    ],
)
def test_a_filter_keeps_what_it_says(typed: str, kept: list[str]) -> None:
    model = TableModel()
    model.show(THREE)
    model.set_filter(Filter(typed))
    assert names(model) == kept


def test_figures_are_sorted_from_the_largest_and_what_is_not_known_comes_last_either_way() -> None:
    model = TableModel()
    model.show(THREE)
    model.sort_by("size_bytes")
    assert names(model) == ["payments", "orders", "clicks"]
    model.sort_by("size_bytes")
    assert names(model) == ["orders", "payments", "clicks"]
    model.sort_by("name")
    assert names(model) == ["clicks", "orders", "payments"]


def test_sorting_by_the_next_column_ends_unsorted() -> None:
    model = TableModel()
    model.show(THREE)
    seen = []
    for _ in range(3):
        model.sort_by_next()
        seen.append(model.sort_name)
    assert seen == ["name", "size_bytes", None]
    assert names(model) == ["orders", "clicks", "payments"]


def test_cursor_and_tags_stay_with_their_rows() -> None:
    model = TableModel()
    model.show(THREE)
    model.cursor = 2
    model.toggle_tag()
    model.show(rows(Thing("new", 1), *THREE.items))
    assert (model.cursor, model.cursor_key, model.tags) == (3, "payments", {"payments"})
    model.sort_by("name")
    assert model.cursor_key == "payments"
    model.show(rows(Thing("orders", 5)))
    assert (model.cursor_key, model.tags) == ("orders", set())


def test_a_table_may_begin_at_the_top_when_its_screen_is_shown_again() -> None:
    model = TableModel()
    model.show(THREE)
    model.cursor = 2
    model.leave()
    model.show(THREE)
    assert model.cursor == 2, "as it was left"
    model.leave()
    model.begin_at_top()
    model.show(rows(Thing("new", 9), *THREE.items))
    assert model.cursor == 0


def test_an_operation_is_about_tagged_rows_also_hidden_ones_else_about_the_cursor() -> None:
    model = TableModel()
    model.show(THREE)
    assert [thing.name for thing in model.chosen] == ["orders"]
    model.toggle_all_tags()
    model.set_filter(Filter("click"))
    assert [thing.name for thing in model.chosen] == ["orders", "clicks", "payments"]
    model.set_filter(Filter())
    model.toggle_all_tags()
    assert model.tags == set()


def test_a_table_without_rows_has_no_cursor() -> None:
    model = TableModel()
    model.show(rows())
    model.toggle_tag()
    assert (model.cursor_item, model.chosen, model.tags) == (None, [], set())


def test_exports_hold_exact_values_of_all_columns() -> None:
    items = [Thing('a,"b', 10), Thing("ü", None)]
    assert as_csv(COLUMNS, items) == 'name,size_bytes\n"a,""b",10\nü,\n'
    assert as_json(COLUMNS, items).splitlines()[1:3] == ["  {", '    "name": "a,\\"b",']
    assert '"size_bytes": null' in as_json(COLUMNS, items)
