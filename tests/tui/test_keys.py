"""The registry of actions, custom keys, and what is typed after the colon. Without Textual."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from engine.admin.cluster.errors import BadRequest
from tui.actions import ACTIONS, OF_THE_PROBLEM, PAGES, Registry, key_label
from tui.dialogs.menu import parse_command, suggestions
from tui.run import load_keys
from tui.screen.offers import OPERATIONS
from tui.state.location import History, Location


def problems_of(text: str, tmp_path: Path) -> list[str]:
    path = tmp_path / "keys.toml"
    path.write_text(text, "utf-8")
    registry, problems = load_keys(path, Registry())
    assert not problems or registry.actions == ACTIONS, "a file with mistakes changes nothing"
    return [problem.removeprefix(f"{path}:") for problem in problems]


def test_no_key_does_two_things_on_one_screen() -> None:
    for page, _, _ in PAGES:
        keys = [key for action in Registry().on_page(page) for key in action.keys]
        shared = [key for name in sorted(OF_THE_PROBLEM)[1:] for key in Registry().named(name).keys]
        assert sorted(keys) == sorted([*set(keys), *(shared if page == "overview" else ())]), page


def test_the_problem_under_the_cursor_decides_what_a_shared_key_does() -> None:
    registry = Registry()
    actions = [registry.for_key("R", "overview", mends) for mends in ((), ("plan.resume",), ("plan.retire",))]
    assert [action and action.id for action in actions] == ["plan.retire", "plan.resume", "plan.retire"]


def test_ids_are_unique_and_every_change_is_an_operation() -> None:
    assert len({action.id for action in ACTIONS}) == len(ACTIONS)
    changing = {action.id for action in ACTIONS if action.changes}
    of_plans = {f"plan.{word}" for word in ("apply", "resume", "rollback", "cancel", "throttle", "stop")}
    assert changing == OPERATIONS - {"replicas.verify"} | of_plans, (
        "what changes is in the table of operations, and is marked"
    )


def test_keys_that_change_something_are_capitals_and_the_other_capitals_are_known() -> None:
    changing = {key for action in ACTIONS if action.changes for key in action.keys}
    # G goes to the last row, as everywhere else.
    assert all(key.isupper() and len(key) == 1 for key in changing - {"plus"})
    others = {action.id for action in ACTIONS if not action.changes and any(key.isupper() for key in action.keys)}
    plans_made = {"plan.make", "plan.rebalance", "plan.retire", "plan.replace", "plan.move", "plan.factor"}
    assert others - plans_made == {"rows.reverse", "rows.tag_all", "replicas.verify", "plan.history"}, (
        "the guide names those that only arrange rows or read"
    )


def test_keys_of_a_file_take_the_place_of_those_of_the_table(tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    path.write_text('[keys]\n"rows.filter" = "f"\nview.pause = ["K", "^s"]\n"view.export" = "ctrl+e"\n', "utf-8")
    registry, problems = load_keys(path, Registry())
    assert problems == []
    action = registry.for_key("f", "topics")
    assert action is not None
    assert action.id == "rows.filter"
    assert registry.for_key("slash", "topics") is None
    assert registry.named("view.pause").keys == ("K", "ctrl+s")
    assert registry.named("view.pause").key_text == "K ^s"


def test_without_a_file_the_table_holds(tmp_path: Path) -> None:
    assert load_keys(tmp_path / "keys.toml", Registry()) == (Registry(), [])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('[keys]\n"rows.filtr" = "f"\n', ["2: no action is called 'rows.filtr': did you mean 'rows.filter'?"]),
        ('[keys]\n\n"rows.filter" = 3\n', ["3: rows.filter: write a key, or a list of keys"]),
        ('[keys]\n"rows.filter" = []\n', ["2: rows.filter: write a key, or a list of keys"]),
        ('[keys]\n"rows.filter" = "no key"\n', ["2: rows.filter: not a key: 'no key'"]),
        (
            '[keys]\n"rows.filter" = "up"\n',
            ["2: rows.filter: up is taken: it moves the cursor or ends the program"],
        ),
        ('[keys]\n# x\n"rows.filter" = "s"\n', ["3: s is the key of rows.sort too"]),
        ('[keys]\n"rows.filter" = "right"\n', ["2: → is the key of rows.right too"]),
        ('[keys]\n"rows.right" = ["→", "shift+right"]\n', []),
        ('[keys]\n"topic.delete" = "X"\n"records.delete" = "D"\n', []),
        ("[keys\n", ["1: not TOML: Expected ']' at the end of a table declaration (at line 1, column 6)"]),
        ("\n[colours]\n", ["2: unknown table 'colours': keys stand under [keys]"]),
        ("keys = 1\n", ["1: keys must be a table: [keys]"]),
    ],
)
def test_every_mistake_is_told_with_its_line(text: str, expected: list[str], tmp_path: Path) -> None:
    assert problems_of(text, tmp_path) == expected


def test_a_file_that_is_no_text_is_told(tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    path.write_bytes(b"\xff\xfe")
    registry, problems = load_keys(path, Registry())
    assert registry.actions == ACTIONS
    assert "cannot be read" in problems[0]


@pytest.mark.parametrize(
    ("typed", "where"),
    [
        (":t orders", Location("partitions", topic="orders")),
        (":topics", Location("topics")),
        ("b 2", Location("partitions", broker=2)),
        (":p orders-12", Location("partitions", topic="orders", row="orders-12")),
        (":p orders", Location("partitions", topic="orders")),
        (":g billing", Location("group", group="billing")),
        (":zk brokers/ids", Location("zookeeper", path="/brokers/ids")),
        (":lag", Location("groups")),
    ],
)
def test_a_command_goes_where_it_says(typed: str, where: Location) -> None:
    assert parse_command(typed, Registry()) == where


def test_a_command_may_be_an_action() -> None:
    assert parse_command(":q", Registry()) == "quit"
    assert parse_command(":leader.elect", Registry()) == "leader.elect"


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        (":", "type a screen"),
        (":topcs", "did you mean 'topics'?"),
        (":b two", "a broker's id is a number"),
        (":logs x", "logs takes no name"),
        (":xyzzy", "? shows what there is"),
    ],
)
def test_what_is_not_understood_is_said(typed: str, expected: str) -> None:
    with pytest.raises(BadRequest, match=re.escape(expected)):
        parse_command(typed, Registry())


def test_words_are_completed() -> None:
    assert suggestions("top", Registry()) == ["topics", "topic.create", "topic.grow", "topic.delete"]


def test_history_is_a_browsers() -> None:
    history = History(Location("overview"))
    history.visit(Location("topics"))
    history.visit(Location("partitions", topic="a"))
    history.visit(Location("partitions", topic="a"))
    assert history.back()
    assert history.current == Location("topics")
    assert history.forward()
    assert history.current.topic == "a"
    history.back()
    history.visit(Location("brokers"))
    assert not history.forward()
    assert history.back()
    assert history.back()
    assert not history.back()


def test_breadcrumbs_say_where_one_is() -> None:
    assert Location("partitions", topic="orders").breadcrumbs == ("Topics", "orders")
    assert Location("partitions", broker=2).breadcrumbs == ("Brokers", "2")
    assert Location("group", group="billing").breadcrumbs == ("Groups", "billing")
    assert Location("zookeeper", path="/brokers/ids").breadcrumbs == ("ZooKeeper", "brokers", "ids")


def test_keys_are_written_as_people_do() -> None:
    assert [key_label(key) for key in ("slash", "ctrl+s", "escape", "D")] == ["/", "^s", "esc", "D"]
