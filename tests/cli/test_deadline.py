"""What is told of a change at its end: --timeout counts the time of the cluster alone, and a report may be lost."""

from __future__ import annotations

import asyncio
import errno
import time

import pytest

from cli.exit_codes import ExitCode
from cli.framework.execution import execute
from cli.framework.invocation import Invocation
from cli.framework.stdout import STDOUT
from cli.framework.talk import Talk
from cli.output.format import OutputFormat
from cli.output.report import Report, Table
from engine.admin.cluster.errors import Unreachable


class LosesReports(Invocation):
    """A command whose stdout is on a full disk."""

    def print(self, report: Report) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", STDOUT)


class SlowPerson(Talk):
    """Thinks longer than the command may take, then agrees."""

    @property
    def can_ask(self) -> bool:
        return True

    def ask(self, question: str, *, is_yes_default: bool) -> bool:
        time.sleep(1.3)
        return True


async def asks_first(invocation: Invocation, then_s: float) -> None:
    assert invocation.confirm("change something", is_destructive=True)
    await asyncio.sleep(then_s)


@pytest.mark.parametrize(("then_s", "code"), [(0.01, ExitCode.DONE), (30.0, ExitCode.UNREACHABLE)])
def test_a_question_does_not_eat_the_time(then_s: float, code: ExitCode, capsys: pytest.CaptureFixture[str]) -> None:
    invocation = Invocation(OutputFormat.PLAIN, SlowPerson(), timeout_s=1.0)
    assert execute(invocation, asks_first, {"then_s": then_s}, is_bounded=True) == code
    assert ("no answer within 1 s" in capsys.readouterr().err) == (code is ExitCode.UNREACHABLE)


def test_a_command_without_a_bound_may_ask_too() -> None:
    invocation = Invocation(OutputFormat.PLAIN, SlowPerson(), timeout_s=0.2)
    assert execute(invocation, asks_first, {"then_s": 0.25}, is_bounded=False) == ExitCode.DONE


def test_who_was_not_answered_is_not_told_that_it_was_accepted(capsys: pytest.CaptureFixture[str]) -> None:
    async def asks_in_vain(invocation: Invocation) -> None:
        invocation.left_running = ["the controller elects; check with: klamm topics describe"]
        invocation.has_sent_changes, invocation.waited_for = True, "h:1"
        invocation.unanswered = ["klamm topics describe"]
        raise TimeoutError

    invocation = Invocation(OutputFormat.PLAIN, Talk(), timeout_s=2.0)
    assert execute(invocation, asks_in_vain, {}, is_bounded=True) == ExitCode.UNDER_WAY
    assert capsys.readouterr().err.splitlines() == [
        "error: no answer within 2 s; the request may still take effect: h:1",
        "hint: the controller elects; check with: klamm topics describe",
    ]


@pytest.mark.parametrize(("is_for_change", "code"), [(True, ExitCode.UNDER_WAY), (False, ExitCode.UNREACHABLE)])
def test_only_who_meant_to_change_something_is_told_that_it_goes_on(
    is_for_change: bool, code: ExitCode, capsys: pytest.CaptureFixture[str]
) -> None:
    """A consumer of a group has committed offsets, which is no change in its user's eyes."""

    async def loses_the_cluster(invocation: Invocation) -> None:
        invocation.has_sent_changes, invocation.is_for_change = True, is_for_change
        raise Unreachable("no leader for 30 s")

    invocation = Invocation(OutputFormat.PLAIN, Talk())
    assert execute(invocation, loses_the_cluster, {}, is_bounded=False) == code
    assert ("the request is still being carried out" in capsys.readouterr().err) == is_for_change


MADE = "hint: the change was made: only its report could not be written"
LOOK = "look before you go on: klamm cluster health"


@pytest.mark.parametrize(
    ("reported", "is_for_change", "left", "code", "expected"),
    [
        (ExitCode.DONE, False, [], ExitCode.USAGE, []),
        (ExitCode.DONE, True, [], ExitCode.USAGE, [MADE]),
        (ExitCode.BAD_ANSWER, True, [], ExitCode.BAD_ANSWER, [f"hint: the change was sent; {LOOK}"]),
        (ExitCode.REFUSED, True, [], ExitCode.REFUSED, [f"hint: the change was sent; {LOOK}"]),
        (ExitCode.UNDER_WAY, True, ["it goes on"], ExitCode.UNDER_WAY, ["hint: the change was sent; it goes on"]),
        (None, True, [], ExitCode.UNDER_WAY, [f"hint: the change was sent; {LOOK}"]),
        (None, False, [], ExitCode.USAGE, []),
    ],
)
def test_a_lost_report_says_no_more_than_is_known_of_the_change(
    reported: ExitCode | None,
    is_for_change: bool,
    left: list[str],
    code: ExitCode,
    expected: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """``reported`` is None if the disk is full before the command has ended."""

    async def changes(invocation: Invocation) -> Report:
        invocation.has_sent_changes, invocation.is_for_change, invocation.left_running = True, is_for_change, left
        report = Report([], Table((), ()), exit_code=reported or ExitCode.DONE)
        if reported is None:
            invocation.print(report)
        return report

    invocation = LosesReports(OutputFormat.PLAIN, Talk())
    assert execute(invocation, changes, {}, is_bounded=False) == code
    assert capsys.readouterr().err.splitlines() == ["error: no space left on device: stdout", *expected]
