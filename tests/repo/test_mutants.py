"""The mutation run names modules and tests that exist, and explains only mutants that can still be made."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.mutants import __main__ as run
from tests.mutants.__main__ import HERE, TESTED_BY, Bench
from tests.mutants.changes import ROOT, Mutant, keys_of, mutants_of


def test_each_module_and_its_tests_exist() -> None:
    missing = [name for name in TESTED_BY if not (ROOT / name).is_file()]
    missing += [name for names in TESTED_BY.values() for name in names if not (ROOT / "tests" / name).is_file()]
    assert not missing


def test_each_explained_mutant_can_be_made() -> None:
    survivors = tomllib.loads((HERE / "survivors.toml").read_text())["survivor"]
    assert all(survivor["why"] for survivor in survivors)
    made = {key for module in {survivor["module"] for survivor in survivors} for key in keys_of(module)}
    stale = [
        survivor
        for survivor in survivors
        if (survivor["module"], survivor["function"], survivor["before"], survivor["after"]) not in made
    ]
    assert not stale


def test_a_mutant_differs_in_one_thing() -> None:
    module = "engine/broker/replication/truncation.py"
    mutants = list(mutants_of(module))
    assert len({mutant.source for mutant in mutants}) == len(mutants) > 5
    assert {mutant.key for mutant in mutants} == keys_of(module)
    assert all(Path(mutant.module) == Path(module) and mutant.before != mutant.after for mutant in mutants)
    compile(mutants[0].source, module, "exec")


def test_tests_that_fail_by_themselves_are_named_and_do_not_end_the_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failing, other = "engine/broker/replication/roles.py", "engine/broker/replication/truncation.py"

    def in_forks(_self: Bench, module: str, mutants: Sequence[Mutant]) -> list[dict[str, Any]]:
        if module == failing:
            return []
        survey = {"passed": True, "seconds": 1}
        return [survey, *({"mutant": mutant.number, "is_tried": True, "is_noticed": True} for mutant in mutants)]

    monkeypatch.setattr(Bench, "_in_forks", in_forks)
    monkeypatch.setattr(run, "_files", list)
    monkeypatch.setattr(run, "_remove_when_ended", lambda _folder, _benches: None)
    assert run.main([failing, other, "--workers", "1"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"error: the tests of {failing} fail without any mutant: tests/broker/replication/")
    assert re.fullmatch(rf"{other}: \d+ mutants, 0 survive", lines[1])


def test_mutants_are_tried_in_forks(tmp_path: Path) -> None:
    """Where none can be, each takes a process of its own that runs all tests, and an hour becomes a day."""
    module = "engine/broker/replication/truncation.py"
    survey, *verdicts = Bench(tmp_path / "0")._in_forks(module, list(mutants_of(module))[:2])
    assert survey["passed"]
    assert [verdict["is_tried"] for verdict in verdicts] == [True, True]


def test_an_ended_run_leaves_no_process_and_no_file_behind(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.mutants", "--quick", "engine/broker/replication/roles.py"],
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(tmp_path)},
    )
    try:
        until(lambda: len(list(descendants(process.pid))) >= 2, "its tests run, and a fork of them")
        started = list(descendants(process.pid))
        assert list(tmp_path.iterdir()), "its copy of the checkout"
    finally:
        # As ``timeout`` does: to the process, and to its group.
        process.terminate()
        process.terminate()
        process.wait()
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in started), "all have ended", within_s=20)
    assert list(tmp_path.iterdir()) == []


def descendants(pid: int) -> Iterator[int]:
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, children.read_text().split()):
            yield child
            yield from descendants(child)


def until(is_true: Callable[[], bool], what: str, within_s: float = 120) -> None:
    deadline = time.monotonic() + within_s
    while not is_true():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)
