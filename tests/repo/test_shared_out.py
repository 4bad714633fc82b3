"""Files are shared out as the plugin says: the longest first, and one process for those that belong together."""

from __future__ import annotations

import re
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from shared_out import (
    LONGEST,
    ON_BROKERS,
    SPARK,
    SPARK_ON_KAFKA,
    TOGETHER,
    Ends,
    _Sharing,
    pytest_collection_modifyitems,
)

ROOT = Path(__file__).parents[2]


def test_the_named_files_are_there() -> None:
    files = [*LONGEST, *(file for together in TOGETHER for file in together)]
    assert [file for file in files if not (ROOT / file).is_file()] == []


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
    assert {path.relative_to(ROOT).as_posix() for path in files} == {*SPARK, *SPARK_ON_KAFKA}
    sharing = _Sharing.__new__(_Sharing)
    for together in TOGETHER:
        assert {sharing._split_scope(f"{file}::test_1[x::y]") for file in together} == {together[0]}
    assert sharing._split_scope("tests/cli/test_plan.py::test_1") == "tests/cli/test_plan.py"


@pytest.mark.parametrize("fixture", ON_BROKERS)
def test_the_files_that_share_brokers_are_named(fixture: str, request: pytest.FixtureRequest) -> None:
    """Any other file would start the same brokers once more, in its process. A whole run knows all files."""
    users: dict[str, bool] = {}
    for item in request.session.items:
        if isinstance(item, pytest.Function) and not item.nodeid.startswith("tests/interop/"):
            file = item.nodeid.partition("::")[0]
            made = item._fixtureinfo.name2fixturedefs.get(fixture)
            users[file] = users.get(file, False) or bool(made and made[-1].scope == "session")
    named = {*SPARK, *(file for files in ON_BROKERS[fixture] for file in files)}
    more = [file for file, is_one in users.items() if is_one and file not in named]
    assert more == [], f"ON_BROKERS of shared_out.py names the files that use {fixture}"
    assert [file for file in named - {*SPARK} if not users.get(file, True)] == []


@pytest.mark.parametrize(
    ("scope", "file", "following", "ended"),
    [
        ("session", SPARK[0], SPARK[1], []),
        ("session", SPARK[1], SPARK[0], []),
        ("session", SPARK[0], "tests/a.py", ["spark"]),
        ("session", "tests/a.py", "tests/b.py", ["spark"]),
        ("session", SPARK[0], None, []),
        ("module", SPARK[0], "tests/a.py", []),
    ],
)
def test_what_files_share_ends_after_the_last_of_them(
    scope: str, file: str, following: str | None, ended: list[str]
) -> None:
    """At the end of the run pytest does it, and at the end of a file with what is the file's own."""
    asked: list[object] = []
    fixture: Any = SimpleNamespace(argname="spark", scope=scope, finish=asked.append)
    item, nextitem = (name and SimpleNamespace(nodeid=f"{name}::test_1[x::y]") for name in (file, following))
    ends, request = Ends(), "spark"
    for hook in (ends.pytest_fixture_setup(fixture, request), ends.pytest_runtest_teardown(item, nextitem)):  # type: ignore[arg-type]
        next(hook)
        with suppress(StopIteration):
            next(hook)
    assert asked == ended


def test_a_process_gets_its_next_file_when_one_test_is_left() -> None:
    """It begins none before it knows the next one."""

    class Process:
        shutting_down = False
        sent: list[int] = []  # noqa: RUF012

        def send_runtest_some(self, tests: list[int]) -> None:
            self.sent += tests

    process, sharing = Process(), _Sharing.__new__(_Sharing)
    file = {"a.py::0": False, "a.py::1": False, "a.py::2": False}
    sharing.log = lambda *words: None
    sharing.registered_collections = {process: [*file, "b.py::0"]}
    sharing.workqueue = OrderedDict({"b.py": {"b.py::0": False}})
    sharing.assigned_work = {process: OrderedDict({"a.py": file})}
    sent = []
    for test in range(2):
        sharing.mark_test_complete(process, test)
        sent.append([*process.sent])
    assert sent == [[], [3]]
