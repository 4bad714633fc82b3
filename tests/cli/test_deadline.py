"""--timeout counts the time of the cluster, and not that of a person's answer."""

from __future__ import annotations

import asyncio
import time

import pytest

from cli.exit_codes import ExitCode
from cli.framework.execution import execute
from cli.framework.invocation import Invocation
from cli.framework.talk import Talk
from cli.output.format import OutputFormat
from engine.admin.cluster.errors import Unreachable


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
