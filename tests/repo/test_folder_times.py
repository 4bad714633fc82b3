"""The table after a run shows how long each folder took, and which one is over its budget."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

from folder_times import BUDGETS_S, FolderTimes

CONTRIBUTING = Path(__file__).parents[2] / "docs" / "contributing.md"


def times(*tests: tuple[str, float]) -> FolderTimes:
    """Return a run with tests of these ids, whose calls took these seconds; setup and teardown take a second each."""
    table = FolderTimes()
    for node_id, seconds in tests:
        for when, duration in (("setup", 1.0), ("call", seconds), ("teardown", 1.0)):
            table.pytest_runtest_logreport(SimpleNamespace(nodeid=node_id, when=when, duration=duration))
    return table


def test_a_line_per_folder_the_slowest_first() -> None:
    found = times(
        ("tests/cli/test_a.py::test_1", 1.0),
        ("tests/kafka/zk/test_b.py::test_1[x::y]", 20.0),
        ("tests/cli/deeper/test_c.py::test_1", 2.0),
        ("tests/cli/deeper/test_c.py::test_2", 0.0),
    ).lines()
    assert [line.split() for line in found] == [
        ["seconds", "tests"],
        ["22.0", "1", "tests/kafka/zk", "22.0", "s", "tests/kafka/zk/test_b.py"],
        ["9.0", "3", "tests/cli", "6.0", "s", "tests/cli/deeper/test_c.py"],
    ]


def test_one_folder_alone_is_told_by_file_and_one_file_not_at_all() -> None:
    found = times(("tests/cli/test_a.py::test_1", 1.0), ("tests/cli/test_b.py::test_1", 2.0)).lines()
    assert [line.split() for line in found[1:]] == [
        ["4.0", "1", "tests/cli/test_b.py"],
        ["3.0", "1", "tests/cli/test_a.py"],
    ]
    assert times(("tests/cli/test_a.py::test_1", 1.0), ("tests/cli/test_a.py::test_2", 2.0)).lines() == []


def test_a_folder_over_its_budget_is_seen() -> None:
    within = times(("tests/tui/test_a.py::test_1", 178.0), ("tests/cli/test_a.py::test_1", 999.0))
    assert "BUDGET" not in "".join(within.lines())
    over = times(("tests/tui/test_a.py::test_1", 178.1), ("tests/cli/test_a.py::test_1", 999.0))
    assert ["OVER ITS BUDGET of 180 s" in line for line in over.lines()] == [False, False, True]


def test_a_contributor_is_told_the_budgets() -> None:
    rows = re.findall(r"^\| `(\w+)` \|[^|]*\| (\d+) \|$", CONTRIBUTING.read_text(), re.MULTILINE)
    assert {f"tests/{folder}": int(seconds) for folder, seconds in rows} == BUDGETS_S
