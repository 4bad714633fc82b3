"""The group ``klamm plan``, and what its commands share: plan files, their moves, the options for carrying them out."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer._click.exceptions import UsageError

from cli.exit_codes import ExitCode
from cli.framework.command import CommandGroup
from cli.framework.failure import Failure, failure_of
from cli.framework.invocation import Stop
from cli.framework.option_values import seconds_option
from engine.runtime.input_files import name_of, read_input

if TYPE_CHECKING:
    from engine.admin.reassignment.adaptive_throttle import ThrottleRange
    from engine.admin.reassignment.waves import WaveMove
    from plans.plan_file import PlanFile

group = CommandGroup("plan", "The smallest safe reassignment: planned, checked, carried out in waves.")

PlanArgument = Annotated[
    Path, typer.Argument(metavar="FILE", allow_dash=True, help="A plan, as klamm plan … --out writes it.")
]
JournalOption = Annotated[
    Path | None,
    typer.Option("--journal", metavar="FILE", help="The record of what was done, and when.  [default: FILE.journal]"),
]


@dataclass(frozen=True, slots=True)
class LoadedPlan:
    """A plan file: its text, and its content."""

    path: Path
    text: str
    plan: PlanFile

    @property
    def digest(self) -> str:
        """Identifies the plan in its journal."""
        from plans.digest import plan_digest

        return plan_digest(self.text)

    @property
    def moves(self) -> tuple[WaveMove, ...]:
        """The plan's partitions as moves to carry out."""
        from engine.admin.reassignment.plan_runs import moves_between

        return moves_between(self.plan.klamm.rollback, self.plan.partitions)

    def beside(self, suffix: str) -> Path:
        """Return the path of a file that belongs to the plan and lies beside it.

        Raises:
            UsageError: the plan came from stdin.
        """
        from engine.admin.reassignment.plan_runs import beside

        if str(self.path) == "-":
            raise UsageError("this keeps a journal beside the plan: name a file, not stdin")
        return beside(self.path, suffix)


def read_named(path: Path, advice: str) -> str:
    """Return the text of a file that the caller names, or of stdin.

    Raises:
        Stop: there is no such file; the hint is ``advice``.
    """
    try:
        return read_input(path)
    except FileNotFoundError as error:
        raise Stop(replace(failure_of(error), hint=advice)) from error


def load_plan(path: Path) -> LoadedPlan:
    """Read a plan file.

    Raises:
        Stop: there is none, or it is not a plan; the message names the place.
    """
    from plans.errors import BadPlanFile
    from plans.plan_file import decode_plan

    text = read_named(path, f"make a plan first: klamm plan rebalance --out {shlex.quote(str(path))}")
    try:
        return LoadedPlan(path, text, decode_plan(text))
    except BadPlanFile as error:
        raise Stop(Failure(ExitCode.USAGE, "usage", str(error), name_of(path), error.hint)) from error


def size_option(name: str, text: str | None) -> int | None:
    """Return the bytes that an option means."""
    from engine.common.quantities import parse_size

    return _quantity_option(name, text, parse_size)


def rate_option(name: str, text: str | None) -> int | None:
    """Return the bytes a second that an option means."""
    from engine.common.quantities import parse_rate

    return _quantity_option(name, text, parse_rate)


def _quantity_option(name: str, text: str | None, parse: Callable[[str], int]) -> int | None:
    try:
        return None if text is None else parse(text)
    except ValueError as error:
        raise UsageError(f"{name}: {error}") from error


def throttle_options(
    advice: int | None, throttle: str | None, floor: str | None, ceiling: str | None, p99: str | None
) -> ThrottleRange | None:
    """Return the throttle that options name, or else the advice; None (``--throttle 0``): full speed."""
    from engine.admin.reassignment.adaptive_throttle import ThrottleRange

    start = rate_option("--throttle", throttle)
    start = advice if start is None else start
    if not start:
        if any(option is not None for option in (floor, ceiling, p99)):
            raise UsageError("--throttle-floor, --throttle-ceiling and --throttle-p99 need a --throttle")
        return None
    return ThrottleRange.of(
        start,
        rate_option("--throttle-floor", floor),
        rate_option("--throttle-ceiling", ceiling),
        None if p99 is None else seconds_option("--throttle-p99", p99),
    )
