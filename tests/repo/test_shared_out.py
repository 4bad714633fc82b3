"""Files are shared out as the plugin says: the longest first, those that belong together to one process."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from shared_out import LONGEST, SPARK, SPARK_ON_KAFKA, _together, pytest_collection_modifyitems

ROOT = Path(__file__).parents[2]
SUPPORT = ROOT / "tests" / "support" / "run"


@pytest.mark.parametrize("file", LONGEST)
def test_a_named_file_is_there(file: str) -> None:
    assert (ROOT / file).is_file()


def test_the_longest_come_first_in_their_order_and_the_others_stay_in_theirs() -> None:
    files = ["tests/a.py", LONGEST[5], "tests/b.py", LONGEST[0], LONGEST[5]]
    items = [SimpleNamespace(nodeid=f"{file}::test_{number}[x::y]") for number, file in enumerate(files)]
    for workers, order in ((0, [0, 1, 2, 3, 4]), (2, [3, 1, 4, 0, 2])):
        config = SimpleNamespace(getoption={"workers": workers}.get)
        pytest_collection_modifyitems(config, items)  # type: ignore[arg-type]
        assert [int(item.nodeid[-7]) for item in items] == order


def test_one_process_runs_all_tests_that_use_the_session_of_spark() -> None:
    """Each further process would start a session of its own, for ten seconds of CPU."""
    uses_session = re.compile(r"\bspark: (Any|object)\b")
    files = {path for path in (ROOT / "tests").rglob("test_*.py") if uses_session.search(path.read_text("utf-8"))}
    assert {path.relative_to(ROOT).as_posix() for path in files} == {*SPARK, *SPARK_ON_KAFKA[0], *SPARK_ON_KAFKA[1]}
    for together in (SPARK, *SPARK_ON_KAFKA):
        assert {_together(f"{file}::test_1[x::y]") for file in together} == {together[0]}
    assert _together("tests/cli/test_lag.py::test_1") == "tests/cli/test_lag.py"


COMMON = """\
import os
from pathlib import Path
from time import monotonic, sleep

import pytest

def note(text):
    Path(f"{text}.{os.getpid()}").touch()

def wait_for(text):
    end = monotonic() + 20
    while not [*Path().glob(f"{text}.*")]:
        assert monotonic() < end, text
        sleep(0.01)

@pytest.fixture(scope="session")
def session():
    yield
    note("session")

@pytest.fixture(scope="module")
def module():
    yield
    note("module")
"""


def shared_out(folder: Path, files: dict[str, str], *options: str) -> subprocess.CompletedProcess[str]:
    """Run these files in two processes, which come to know each other through files in the folder."""
    for name, text in files.items():
        (folder / f"test_{name}.py").write_text(f"{COMMON}\n{text}\n")
    words = ("-c", os.devnull, "-o", f"pythonpath={SUPPORT}", "-p", "shared_out", "--rootdir", folder)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--workers", "2", *words, *options],
        env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        cwd=folder, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def test_no_file_waits_behind_a_long_test(tmp_path: Path) -> None:
    """A test waits for another file's, and that one for the end of a module. What belongs to a session ends last."""
    files = {
        "a": "def test_1(session): wait_for('c')",
        "b": "def test_1(session, module): pass",
        "c": "def test_1(tmp_path): wait_for('module'); assert not [*Path().glob('session.*')]; "
        "note('c'); assert '/worker-' in str(tmp_path)",
    }
    done = shared_out(tmp_path, files)
    assert (done.returncode, "3 passed" in done.stdout) == (0, True), done.stdout
    assert len([*tmp_path.glob("session.*")]) == 2, "in each process, when it has nothing to do any more"


def test_a_process_that_dies_fails_its_test_and_another_one_runs_the_rest(tmp_path: Path) -> None:
    files = {"a": "def test_1(): os._exit(7)\ndef test_2(): note('a')", "b": "def test_1(): assert 1 == 2, 'wrong'"}
    done = shared_out(tmp_path, files)
    assert (done.returncode, "2 failed, 1 passed" in done.stdout) == (1, True), done.stdout
    assert "test_a.py::test_1 - the process that ran it ended with 7" in done.stdout
    assert "test_b.py::test_1 - AssertionError: wrong" in done.stdout


def test_a_run_ends_with_the_first_failure_if_it_is_told_to(tmp_path: Path) -> None:
    files = {"a": "def test_1(): assert 0", "b": "def test_1(): sleep(1)\ndef test_2(): note('b')"}
    done = shared_out(tmp_path, files, "-x")
    assert (done.returncode, "1 failed" in done.stdout) == (1, True), done.stdout
    assert not [*tmp_path.glob("b.*")]


def test_a_fixture_of_the_session_that_cannot_end_is_an_error(tmp_path: Path) -> None:
    fixture = "@pytest.fixture(scope='session')\ndef broken():\n    yield\n    raise OSError('it cannot end')\n"
    done = shared_out(tmp_path, {"a": f"{fixture}def test_1(broken): pass"})
    assert (done.returncode, "1 passed, 1 error" in done.stdout) == (1, True), done.stdout
    assert "OSError: it cannot end" in done.stdout
