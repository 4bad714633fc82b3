"""Files are shared out as the plugin says: the longest first, and one process for those that belong together."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from shared_out import LONGEST, SPARK, _Sharing, pytest_collection_modifyitems

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("file", LONGEST)
def test_a_named_file_is_there(file: str) -> None:
    assert (ROOT / file).is_file()


def test_the_longest_come_first_in_their_order_and_the_others_stay_in_theirs() -> None:
    files = ["tests/a.py", LONGEST[5], "tests/b.py", LONGEST[0], LONGEST[5]]
    items = [SimpleNamespace(nodeid=f"{file}::test_{number}[x::y]") for number, file in enumerate(files)]
    alone, worker = SimpleNamespace(), SimpleNamespace(workerinput={})
    pytest_collection_modifyitems(alone, items)  # type: ignore[arg-type]
    assert [int(item.nodeid[-7]) for item in items] == [0, 1, 2, 3, 4], "one process: as they are written"
    pytest_collection_modifyitems(worker, items)  # type: ignore[arg-type]
    assert [int(item.nodeid[-7]) for item in items] == [3, 1, 4, 0, 2]


def test_one_process_runs_all_tests_that_use_the_session_of_spark() -> None:
    """Each further process would start a session of its own, for ten seconds of CPU."""
    uses_session = re.compile(r"\bspark: (Any|object)\b")
    files = {path for path in (ROOT / "tests").rglob("test_*.py") if uses_session.search(path.read_text("utf-8"))}
    named = {path.relative_to(ROOT).as_posix() for path in files if "interop" not in path.parts}
    assert named == set(SPARK)
    sharing = _Sharing.__new__(_Sharing)
    assert {sharing._split_scope(f"{file}::test_1[x::y]") for file in SPARK} == {SPARK[0]}
    assert sharing._split_scope("tests/cli/test_lag.py::test_1") == "tests/cli/test_lag.py"
