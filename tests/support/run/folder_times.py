"""Reports after a run how long each folder took, its slowest file, and what is over its budget. A pytest plugin.

A run of one folder gets a line per file, a run of one file nothing. Seconds are those of the tests, whichever worker
ran them: three workers take about a third as long, but on two cores each waits for the others.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import PurePosixPath

import pytest

BUDGETS_S = {"tests/plans": 300, "tests/spark": 480, "tests/tui": 180}
"""The budgets in CI of folders whose tests could take any time. docs/contributing.md names them too."""


class FolderTimes:
    """Adds up the seconds of tests by file."""

    def __init__(self) -> None:
        self._seconds: Counter[str] = Counter()
        self._tests: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        file = report.nodeid.partition("::")[0]
        self._seconds[file] += report.duration  # type: ignore[assignment]
        self._tests[file] += report.when == "call"

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for line in self.lines():
            terminalreporter.write_line(line)

    def lines(self) -> list[str]:
        """Return the table, the slowest line first."""
        groups = self._grouped(_folder)
        if len(groups) == 1:
            groups = self._grouped(str)
        if len(groups) < 2:
            return []
        seconds = {name: sum(self._seconds[file] for file in files) for name, files in groups.items()}
        lines = [f"{'seconds':>9}{'tests':>7}"]
        for name in sorted(groups, key=lambda each: -seconds[each]):
            slowest = max(groups[name], key=lambda file: self._seconds[file])
            tests = sum(self._tests[file] for file in groups[name])
            detail = f"{self._seconds[slowest]:.1f} s {slowest}" if slowest != name else ""
            text = f"{seconds[name]:>9.1f}{tests:>7}  {name:<20}{detail}{_over_budget(name, seconds[name])}"
            lines.append(text.rstrip())
        return lines

    def _grouped(self, name_of: Callable[[str], str]) -> dict[str, list[str]]:
        groups: dict[str, list[str]] = defaultdict(list)
        for file in self._seconds:
            groups[name_of(file)].append(file)
        return groups


def _folder(file: str) -> str:
    """Return the folder that a file counts for: one of tests, or of a program's parts where these have folders."""
    parts = PurePosixPath(file).parts
    return "/".join(parts[: 3 if len(parts) > 3 and parts[1] in ("broker", "kafka") else 2])


def _over_budget(folder: str, seconds: float) -> str:
    budget_s = BUDGETS_S.get(folder)
    return f"  OVER ITS BUDGET of {budget_s} s" if budget_s is not None and seconds > budget_s else ""


def pytest_configure(config: pytest.Config) -> None:
    """Only the process that reports adds the seconds up."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(FolderTimes())
