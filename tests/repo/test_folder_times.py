"""The table after a run shows what each folder took, and which one is over its budget."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from folder_times import BUDGETS_CPU_S, OTHERS_CPU_S, FolderTimes

CONTRIBUTING = Path(__file__).parents[2] / "docs" / "contributing.md"
SUPPORT = Path(__file__).parents[1] / "support" / "run"


def times(*tests: tuple[str, float, float | None]) -> FolderTimes:
    """Return a run of tests with these ids, seconds and CPU seconds; setup and teardown take a second each.

    CPU seconds come with the last test of a file.
    """
    table = FolderTimes()
    for node_id, seconds, cpu_s in tests:
        for when, duration in (("setup", 1.0), ("call", seconds), ("teardown", 1.0)):
            report = SimpleNamespace(nodeid=node_id, when=when, duration=duration)
            if cpu_s is not None and when == "teardown":
                report.cpu_s = cpu_s
            table.pytest_runtest_logreport(report)
    return table


def test_a_line_per_folder_the_dearest_first() -> None:
    rows = times(
        ("tests/cli/test_a.py::test_1", 1.0, 1.5),
        ("tests/kafka/zk/test_b.py::test_1[x::y]", 20.0, 3.0),
        ("tests/cli/deeper/test_c.py::test_1", 2.0, None),
        ("tests/cli/deeper/test_c.py::test_2", 0.0, 2.5),
    ).lines()
    assert [line.split() for line in rows] == [
        ["cpu", "s", "seconds", "tests"],
        ["4.0", "9.0", "3", "tests/cli", "2.5", "s", "tests/cli/deeper/test_c.py"],
        ["3.0", "22.0", "1", "tests/kafka/zk", "3.0", "s", "tests/kafka/zk/test_b.py"],
        ["7.0", "31.0", "4"],
    ]


def test_one_folder_alone_is_told_by_file_and_one_file_not_at_all() -> None:
    rows = times(("tests/cli/test_a.py::test_1", 1.0, 5.0), ("tests/cli/test_b.py::test_1", 2.0, 6.0)).lines()
    assert [line.split() for line in rows[1:]] == [
        ["6.0", "4.0", "1", "tests/cli/test_b.py"],
        ["5.0", "3.0", "1", "tests/cli/test_a.py"],
        ["11.0", "7.0", "2"],
    ]
    one_file = times(("tests/cli/test_a.py::test_1", 1.0, None), ("tests/cli/test_a.py::test_2", 2.0, 1.0))
    assert one_file.lines() == []


@pytest.mark.parametrize("folder", ["tui", "runtime"])
def test_a_folder_over_its_budget_is_seen(folder: str) -> None:
    budget_s = BUDGETS_CPU_S.get(f"tests/{folder}", OTHERS_CPU_S)
    others = [(f"tests/{name}/test_a.py::test_1", 1.0, 999.0) for name in ("interop", "package")]
    within = times((f"tests/{folder}/test_a.py::test_1", 1000.0, float(budget_s)), *others)
    assert "BUDGET" not in "".join(within.lines())
    over = times((f"tests/{folder}/test_a.py::test_1", 1.0, budget_s + 0.1), *others)
    (line,) = [line for line in over.lines() if "BUDGET" in line]
    assert line.split()[3] == f"tests/{folder}"
    assert line.endswith(f"OVER ITS BUDGET of {budget_s} s")


def test_the_files_of_one_folder_share_its_budget() -> None:
    half_s = BUDGETS_CPU_S["tests/tui"] / 2
    files = [(f"tests/tui/test_{name}.py::test_1", 1.0, half_s) for name in "ab"]
    assert "BUDGET" not in "".join(times(*files).lines())
    *others, total = times(*files, ("tests/tui/test_c.py::test_1", 1.0, 1.0)).lines()
    assert "BUDGET" not in "".join(others) and total.endswith(f"OVER ITS BUDGET of {BUDGETS_CPU_S['tests/tui']} s")


def test_a_contributor_is_told_the_budgets() -> None:
    rows = re.findall(r"^\| `([\w/]+)` \| (\d+) \|$", CONTRIBUTING.read_text(), re.MULTILINE)
    assert {f"tests/{folder}": int(seconds) for folder, seconds in rows} == BUDGETS_CPU_S


SPENDING = """\
import subprocess, sys, time

BUSY = "import time\\nwhile time.process_time() < 0.4: pass"

def spend():
    begun = time.process_time()
    while time.process_time() < begun + 0.4: pass

def test_itself(): spend()
def test_a_child_that_ended(): subprocess.run([sys.executable, "-c", BUSY])
"""


@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_file_counts_for_what_its_tests_and_their_children_use(tmp_path: Path, workers: str) -> None:
    for name in ("a", "b"):
        (tmp_path / "tests" / name).mkdir(parents=True)
        text = SPENDING if name == "a" else "def test_nothing(): pass\n"
        (tmp_path / "tests" / name / f"test_{name}.py").write_text(text)
    words = ("-c", os.devnull, "-o", f"pythonpath={SUPPORT}", "-p", "folder_times", "--rootdir", tmp_path)
    words = (*words, "-p", "xdist", "-n", workers, "--dist", "loadfile", "tests")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--import-mode=importlib", *words],
        env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    spent = {
        row[3]: float(row[0]) for row in map(str.split, done.stdout.splitlines()) if len(row) > 3 and "/" in row[3]
    }
    assert 0.8 <= spent["tests/a"] < 3.0
    assert spent["tests/b"] < 0.4
