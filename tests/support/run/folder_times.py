"""Reports after a run what each folder took, its dearest file, and what is over its budget. A pytest plugin.

A run of one folder gets a line per file, a run of one file nothing. Budgets are in seconds of CPU, of the tests and all
that they start: two cores have two of them a second, however busy the machine is. The other seconds are those that
tests took on the clock, added up over all workers.
"""

from __future__ import annotations

import os
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Generator
from contextlib import suppress
from math import inf
from pathlib import Path, PurePosixPath

import pytest

BUDGETS_CPU_S = {
    "tests/cli": 300, "tests/spark": 150, "tests/plans": 100, "tests/tui": 100, "tests/cluster": 95, "tests/admin": 60,
    "tests/repo": 30, "tests/broker/server": 45, "tests/broker/handlers": 40,
    "tests/broker/security": 20, "tests/broker/coordinator": 25, "tests/broker/network": 15,
    "tests/broker/controller": 30, "tests/broker/log": 30, "tests/broker/replication": 25,
    "tests/faults": 15, "tests/kafka/protocol": 30, "tests/kafka/zk": 25, "tests/klamm": 30, "tests/clients": 12,
    "tests/local": 15, "tests/demo": 12,
}  # fmt: skip
"""The seconds of CPU that a folder's tests may take, with all that they start. docs/contributing.md names them."""

OTHERS_CPU_S = 10
"""The budget of each folder that is not named, but for those that ``make test`` leaves out."""

NOT_IN_TEST = {"tests/interop", "tests/package"}


class FolderTimes:
    """Adds up the seconds of tests by file."""

    def __init__(self) -> None:
        self._seconds: Counter[str] = Counter()
        self._cpu: Counter[str] = Counter()
        self._tests: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        file = report.nodeid.partition("::")[0]
        self._seconds[file] += report.duration  # type: ignore[assignment]
        self._cpu[file] += getattr(report, "cpu_s", 0.0)  # type: ignore[assignment]
        self._tests[file] += report.when == "call"

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for line in self.lines():
            terminalreporter.write_line(line)

    def lines(self) -> list[str]:
        """Return the table, the dearest line first."""
        folders = self._grouped(_folder)
        groups = folders if len(folders) > 1 else self._grouped(str)
        if len(groups) < 2:
            return []
        cpu = {name: sum(self._cpu[file] for file in files) for name, files in groups.items()}
        lines = [f"{'cpu s':>9}{'seconds':>9}{'tests':>7}"]
        for name in sorted(groups, key=lambda each: -cpu[each]):
            dearest = max(groups[name], key=lambda file: self._cpu[file])
            seconds = sum(self._seconds[file] for file in groups[name])
            tests = sum(self._tests[file] for file in groups[name])
            detail = f" {self._cpu[dearest]:.1f} s {dearest}" if dearest != name else ""
            over = _over_budget(name, cpu[name]) if groups is folders else ""
            text = f"{cpu[name]:>9.1f}{seconds:>9.1f}{tests:>7}  {name:<26}{detail}{over}"
            lines.append(text.rstrip())
        total = sum(cpu.values())
        # The files of one folder share its budget.
        over = "" if groups is folders else _over_budget(*folders, total)
        return [*lines, f"{total:>9.1f}{sum(self._seconds.values()):>9.1f}{sum(self._tests.values()):>7}{over}"]

    def _grouped(self, name_of: Callable[[str], str]) -> dict[str, list[str]]:
        groups: dict[str, list[str]] = defaultdict(list)
        for file in self._seconds:
            groups[name_of(file)].append(file)
        return groups


class FileCpu:
    """Notes in the last report of a file the CPU seconds since the one before it, in the process that runs both."""

    def __init__(self) -> None:
        self._before_s = 0.0
        self._is_last = False

    def pytest_collection_finish(self) -> None:
        self._before_s = cpu_seconds()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> Generator[None, object, object]:
        self._is_last = nextitem is None or nextitem.path != item.path
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if self._is_last and report.when == "teardown":
            now_s = cpu_seconds()
            # It may fall for a moment: what a process used is nowhere between its end and its parent's answer to it.
            report.cpu_s = max(now_s - self._before_s, 0.0)
            self._before_s = max(now_s, self._before_s)
        return report


def _folder(file: str) -> str:
    """Return the folder that a file counts for: one of tests, or of a program's parts where these have folders."""
    parts = PurePosixPath(file).parts
    return "/".join(parts[: 3 if len(parts) > 3 and parts[1] in ("broker", "kafka") else 2])


def _over_budget(folder: str, cpu_s: float) -> str:
    is_free = folder.startswith(tuple(NOT_IN_TEST))
    budget_s = inf if is_free else BUDGETS_CPU_S.get(folder, OTHERS_CPU_S)
    return f"  OVER ITS BUDGET of {budget_s} s" if cpu_s > budget_s else ""


def pytest_configure(config: pytest.Config) -> None:
    """Only the process that reports adds the seconds up."""
    config.pluginmanager.register(FileCpu())
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(FolderTimes())


_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds() -> float:
    """Return the seconds so far. On other systems than Linux, children count once they have ended."""
    if sys.platform != "linux":
        return sum(os.times()[:4])
    # To look at all processes of the machine would take ten times as long, once for each file.
    ticks, processes = 0, [str(os.getpid())]
    while processes:
        process = Path("/proc", processes.pop())
        # It may end meanwhile.
        with suppress(OSError):
            # The name may contain spaces. After it: state, parent, …, own user and system, those of ended children.
            ticks += sum(map(int, (process / "stat").read_text().rpartition(")")[2].split()[11:15]))
            for thread in (process / "task").iterdir():
                processes += (thread / "children").read_text().split()
    return ticks / _TICKS
