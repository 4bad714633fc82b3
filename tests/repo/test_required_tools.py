"""Nobody can overlook a missing tool that CI requires, or a skipped test: real runs of pytest."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from engine.local.java import find_java

ROOT = Path(__file__).parents[2]
MISSING = "mvn is missing here: apt-get install maven"
REFUSED = "KLAMM_REQUIRE and KLAMM_MAY_SKIP do not allow this skip: Skipped: "
INTEROP = "tests/interop/test_kafka_tools.py"

FOR_A_TOOL = {
    "test_in_a_test.py": "from required_tools import require\ndef test_it():\n    require('mvn')\n",
    "test_in_a_module.py": "from required_tools import require\nrequire('mvn')\n",
    "test_in_a_fixture.py": """
import pytest
from required_tools import require
@pytest.fixture(scope='session')
def tool():
    require('mvn')
def test_it(tool):
    pass
""",
}
OTHERWISE = {
    "test_by_hand.py": "import pytest\ndef test_it():\n    pytest.skip('not today')\n",
    "test_by_a_mark.py": "import pytest\n@pytest.mark.skipif(True, reason='not today')\ndef test_it():\n    pass\n",
    "test_whole_module.py": "import pytest\npytest.skip('not today', allow_module_level=True)\n",
    "test_import.py": "import pytest\npytest.importorskip('nowhere.to.be.found')\n",
    "test_of_unittest.py": """
import unittest
class T(unittest.TestCase):
    def test_it(self):
        self.skipTest('not today')
""",
}
PASSING = {"test_passing.py": "def test_it():\n    pass\n"}


def run_pytest(folder: Path, *arguments: str | Path, **variables: str) -> tuple[int, str]:
    """Run pytest with Java, without mvn and without Kafka's jars; return its exit code and output."""
    programs = folder / "programs"
    programs.mkdir()
    (programs / "java").symlink_to(find_java().program)
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("KLAMM_", "PYTEST_"))}
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments],
        cwd=ROOT,
        env=kept | {"PATH": str(programs), "XDG_CACHE_HOME": str(folder / "cache")} | variables,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    return ran.returncode, ran.stdout + ran.stderr


def run_suite(folder: Path, files: dict[str, str], **variables: str) -> tuple[int, list[str], str]:
    """Run test files with our plugin and no other; return the exit code, the files that failed, and the output."""
    suite = folder / "suite"
    suite.mkdir()
    for name, text in files.items():
        (suite / name).write_text(text)
    plugin = ["-c", os.devnull, "-o", f"pythonpath={ROOT / 'tests/support/run'}", "-p", "required_tools"]
    arguments = [*plugin, "--rootdir", suite, "-rA", "--continue-on-collection-errors", suite]
    code, said = run_pytest(folder, *arguments, PYTEST_DISABLE_PLUGIN_AUTOLOAD="1", **variables)
    return code, sorted(re.findall(r"^(?:FAILED|ERROR) .*/(test_\w+\.py)", said, re.MULTILINE)), said


def test_a_run_does_not_start_without_a_required_tool(tmp_path: Path) -> None:
    code, said = run_pytest(tmp_path, "tests/interop", "tests/common", KLAMM_REQUIRE="java,mvn")
    assert (code, said.strip()) == (pytest.ExitCode.USAGE_ERROR, f"ERROR: KLAMM_REQUIRE: {MISSING}")


def test_a_tool_that_nobody_knows_cannot_be_required(tmp_path: Path) -> None:
    code, said = run_pytest(tmp_path, "tests/common", KLAMM_REQUIRE="maven")
    assert code == pytest.ExitCode.USAGE_ERROR
    assert said.startswith("ERROR: KLAMM_REQUIRE names 'maven'; known are java, mvn, ")


def test_what_needs_apache_kafka_is_skipped_aloud_elsewhere(tmp_path: Path) -> None:
    code, said = run_pytest(tmp_path, INTEROP)
    assert (code, MISSING in said, "passed" in said) == (pytest.ExitCode.OK, True, False), said


def test_what_needs_apache_kafka_cannot_be_skipped_in_ci(tmp_path: Path) -> None:
    code, said = run_pytest(tmp_path, "-n", "1", INTEROP, KLAMM_REQUIRE="java", KLAMM_MAY_SKIP="tmpfs")
    assert (code, REFUSED + MISSING in said, " skipped" in said) == (pytest.ExitCode.TESTS_FAILED, True, False), said


def test_nothing_fails_where_nothing_is_required(tmp_path: Path) -> None:
    code, failed, said = run_suite(tmp_path, FOR_A_TOOL | OTHERWISE)
    assert (code, failed) == (pytest.ExitCode.OK, []), said
    assert f"{len(FOR_A_TOOL | OTHERWISE)} skipped" in said


def test_a_skip_for_a_tool_may_be_allowed_and_no_other(tmp_path: Path) -> None:
    files = FOR_A_TOOL | OTHERWISE | PASSING
    code, failed, said = run_suite(tmp_path, files, KLAMM_REQUIRE="java", KLAMM_MAY_SKIP="tmpfs,mvn")
    assert (code, failed) == (pytest.ExitCode.TESTS_FAILED, sorted(OTHERWISE)), said
    assert said.count(f"\n{REFUSED}") == len(OTHERWISE)


def test_a_skip_for_a_tool_that_is_not_allowed_fails(tmp_path: Path) -> None:
    files = FOR_A_TOOL | PASSING
    code, failed, said = run_suite(tmp_path, files, KLAMM_REQUIRE="java", KLAMM_MAY_SKIP="tmpfs")
    assert (code, failed) == (pytest.ExitCode.TESTS_FAILED, sorted(FOR_A_TOOL)), said
    assert said.count(f"\n{REFUSED}{MISSING}") == len(FOR_A_TOOL)


def test_one_test_has_to_pass(tmp_path: Path) -> None:
    code, failed, said = run_suite(tmp_path, FOR_A_TOOL, KLAMM_REQUIRE="java", KLAMM_MAY_SKIP="mvn")
    assert (code, failed) == (pytest.ExitCode.NO_TESTS_COLLECTED, [])
    assert "error: no test has passed" in said
