"""Runs one command's function: event loop, deadline, Ctrl-C, closed pipes, and the resulting exit code."""

from __future__ import annotations

import inspect
import os
import signal
import threading
import traceback
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import FrameType
from typing import Any

from typer._click.exceptions import UsageError
from typer._click.globals import get_current_context

from cli.exit_codes import ExitCode
from cli.framework.early import interruptible
from cli.framework.failure import EXIT_CODES, Failure, failure_of, interrupted
from cli.framework.invocation import Invocation, Stop
from cli.framework.stdout import STDOUT, OutputClosed, closed_pipe
from cli.framework.talk import Talk
from cli.output.report import Report

CommandResult = Report | ExitCode | int | None
CommandFunction = Callable[..., CommandResult | Awaitable[CommandResult]]


WAIT_TOLD_S = 2.0
_LOG_WAIT_TOLD_S, _LOG_PACE_S = 10.0, 60.0
"""Used without a terminal, by commands that may run forever; all others end with an error."""
LOOK_AT_ALL = "look before you go on: klamm cluster health"


def execute(invocation: Invocation, function: CommandFunction, values: dict[str, Any], *, is_bounded: bool) -> int:
    """Run ``function`` and print its report; every exception becomes an error message and an exit code."""
    with interruptible():
        return _execute(invocation, function, values, is_bounded)


def _execute(invocation: Invocation, function: CommandFunction, values: dict[str, Any], is_bounded: bool) -> int:
    try:
        result = function(invocation, **values)
        if inspect.iscoroutine(result):
            result = _run(result, invocation, is_bounded=is_bounded)
        return _finish(invocation, result)  # type: ignore[arg-type]
    except OutputClosed:
        return closed_pipe()
    except KeyboardInterrupt:
        if invocation.is_ended_by_interrupt and not invocation.is_terminated:
            return ExitCode.INTERRUPTED
        looks = [_look_first(invocation)] if invocation.unanswered else []
        failure = interrupted(invocation.left_running or looks, by_term=invocation.is_terminated)
        invocation.talk.fail(failure)
        return failure.code
    except Stop as stop:
        invocation.talk.fail(stop.failure)
        return stop.failure.code
    except UsageError as error:
        error.ctx = error.ctx or get_current_context(silent=True)
        raise
    except Exception as error:
        if invocation.turn_to_brokers(error):
            return _execute(invocation, function, values, is_bounded)
        show_debug_traceback()
        failure = _failure_of(invocation, error)
        invocation.talk.fail(failure)
        return failure.code


def show_debug_traceback() -> None:
    """Print the traceback of the exception being handled, if the user has asked for it."""
    if os.environ.get("KLAMM_DEBUG"):
        traceback.print_exc()


def unexpected(talk: Talk, error: BaseException) -> int:
    """Report an error outside any command's run."""
    show_debug_traceback()
    failure = failure_of(error)
    talk.fail(failure)
    return failure.code


def _failure_of(invocation: Invocation, error: Exception) -> Failure:
    is_accepted = bool(invocation.left_running) and invocation.has_sent_changes
    failure = failure_of(error, is_accepted=is_accepted, pasteable=invocation.pasteable)
    # ``is_for_change``: a member of a group commits offsets as it reads; its user did not ask for that change.
    if failure.where == STDOUT and invocation.has_sent_changes and invocation.is_for_change:
        return _report_lost(invocation, failure)
    if isinstance(error, TimeoutError) and not str(error) and failure.code is ExitCode.UNREACHABLE:
        failure = replace(
            failure,
            message=f"no answer within {invocation.timeout_s:g} s",
            where=invocation.waited_for or invocation.cluster_name,
            hint="give it more time with --timeout SECONDS; --verbose shows who was asked, and who answered",
        )
    if failure.code is ExitCode.UNREACHABLE and invocation.has_sent_changes and invocation.is_for_change:
        outlook = "may still take effect" if invocation.unanswered else "is still being carried out"
        return replace(
            failure,
            code=ExitCode.UNDER_WAY,
            kind="under_way",
            message=f"{failure.message}; the request {outlook}",
            hint=_look_first(invocation)
            if invocation.unanswered
            else "; ".join(invocation.left_running) or LOOK_AT_ALL,
        )
    if failure.code is ExitCode.UNDER_WAY and isinstance(error, TimeoutError) and invocation.unanswered:
        message = f"no answer within {invocation.timeout_s:g} s; the request may still take effect"
        failure = replace(failure, message=message, where=invocation.waited_for)
    if failure.code is ExitCode.UNDER_WAY and invocation.left_running:
        return replace(failure, hint="; ".join(invocation.left_running))
    return failure


def _report_lost(invocation: Invocation, failure: Failure) -> Failure:
    """Return the failure of a change whose report could not be written; its code is the report's own if that is bad."""
    code = invocation.report_code
    if code is ExitCode.DONE:
        return replace(failure, hint="the change was made: only its report could not be written")
    kind = next((kind for kind, of_kind in EXIT_CODES.items() if of_kind is code), "bad_answer")
    looks = "; ".join(invocation.left_running) or LOOK_AT_ALL
    return replace(failure, code=code, kind=kind, hint=f"the change was sent; {looks}")


def _look_first(invocation: Invocation) -> str:
    return f"look before you send it again: {', '.join(invocation.unanswered)}"


def _run(coroutine: Coroutine[Any, Any, CommandResult], invocation: Invocation, *, is_bounded: bool) -> CommandResult:
    async def bounded() -> CommandResult:
        async with asyncio.timeout(invocation.timeout_s) as limit:
            now = asyncio.get_running_loop().time
            invocation.restart_deadline = lambda: limit.reschedule(now() + invocation.timeout_s)
            return await coroutine

    main: Any = None

    async def with_waits_told() -> CommandResult:
        nonlocal main
        main = asyncio.current_task()
        telling = asyncio.create_task(_tell_waits(invocation, is_bounded=is_bounded), name="tell waits")
        try:
            return await (bounded() if is_bounded else coroutine)
        finally:
            telling.cancel()
            invocation.talk.clear()

    def cancel() -> bool:
        if main is None or main.done() or invocation.is_terminated:
            return False
        main.get_loop().call_soon_threadsafe(main.cancel)
        return True

    work = with_waits_told()
    try:
        import asyncio

        with _term_as_interrupt(invocation, cancel):
            try:
                return asyncio.run(work)
            except asyncio.CancelledError:
                if not invocation.is_terminated:
                    raise
                raise KeyboardInterrupt from None
    finally:
        # An interrupt may come before either has begun; Python would complain of that.
        for begun in (work, coroutine):
            if inspect.getcoroutinestate(begun) == inspect.CORO_CREATED:
                begun.close()


async def _tell_waits(invocation: Invocation, *, is_bounded: bool) -> None:
    """Say what the command waits for, once that takes longer than a person expects."""
    import asyncio

    can_show, is_shown, next_s = invocation.talk.can_show, False, _LOG_WAIT_TOLD_S
    while True:
        await asyncio.sleep(1.0)
        silent = invocation.awaited(WAIT_TOLD_S)
        longest_s = max(silent.values(), default=0.0)
        message = f"waiting for {', '.join(sorted(silent))}, silent for {longest_s:.0f} s"
        if not silent:
            # Somebody else's line stays.
            if is_shown:
                invocation.talk.clear()
            is_shown, next_s = False, _LOG_WAIT_TOLD_S
        elif can_show:
            invocation.talk.show(f"{message} …")
            is_shown = True
        elif not is_bounded and longest_s >= next_s:
            invocation.talk.say(message)
            next_s = longest_s + _LOG_PACE_S


@contextmanager
def _term_as_interrupt(invocation: Invocation, cancel: Callable[[], bool]) -> Iterator[None]:
    """Make TERM end a command as Ctrl-C does: it leaves groups, releases locks and says what continues without it.

    A script's background jobs ignore Ctrl-C, so that asyncio handles none: there the first TERM has ``cancel`` end the
    command. An exception between any two lines would show tracebacks.
    """
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        on_interrupt = signal.getsignal(signal.SIGINT)
        is_cancelled = not callable(on_interrupt) and cancel()
        invocation.is_terminated = True
        if callable(on_interrupt):
            on_interrupt(signal.SIGINT, frame)
        elif not is_cancelled:
            raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _finish(invocation: Invocation, result: CommandResult) -> int:
    if isinstance(result, Report):
        invocation.report_code = result.exit_code
        invocation.print(result)
        return invocation.tell_hidden(result.exit_code)
    return invocation.tell_hidden(ExitCode.DONE if result is None else result)
