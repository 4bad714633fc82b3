"""Plan files as the commands of ``klamm plan`` read them: the file, its moves, and the options of carrying it out."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer._click.exceptions import UsageError

from cli.exit_codes import ExitCode
from cli.framework.failure import Failure
from cli.framework.invocation import Stop

if TYPE_CHECKING:
    from engine.admin.reassignment.adaptive_throttle import ThrottleRange
    from engine.admin.reassignment.waves import WaveMove
    from plans.plan_file import PlanFile

PlanArgument = Annotated[Path, typer.Argument(metavar="FILE", help="A plan, as klamm plan … --out writes it.")]
ThrottleOption = Annotated[
    str | None,
    typer.Option("--throttle", metavar="SIZE", help="Bytes a second between brokers.  [default: what the plan says]"),
]
ThrottleFloor = Annotated[
    str | None,
    typer.Option(metavar="SIZE", help="The throttle is never halved below this.  [default: a quarter of --throttle]"),
]
ThrottleCeiling = Annotated[
    str | None, typer.Option(metavar="SIZE", help="While all is calm it is raised up to this.  [default: --throttle]")
]
WaveReplicas = Annotated[
    int, typer.Option(metavar="N", min=1, help="At most so many replicas in a wave into a broker, and out of one.")
]
WaveBytes = Annotated[
    str | None, typer.Option(metavar="SIZE", help="At most so many bytes in a wave into a broker, and out of one.")
]
Stall = Annotated[str, typer.Option(metavar="TIME", help="A copy without a byte of progress for so long stops it.")]
LockTimeout = Annotated[
    str, typer.Option(metavar="TIME", help="So long the lock outlives a klamm that was killed; 6s or more by the wire.")
]
Elect = Annotated[
    bool, typer.Option("--elect/--no-elect", help="At the end let the replicas lead that the plan puts first.")
]
JournalOption = Annotated[
    Path | None, typer.Option("--journal", metavar="FILE", help="What was done and when.  [default: FILE.journal]")
]


@dataclass(frozen=True, slots=True)
class LoadedPlan:
    """A plan file: its text, and what stands in it."""

    path: Path
    text: str
    plan: PlanFile

    @property
    def digest(self) -> str:
        """By which a journal knows its plan."""
        return f"sha256:{hashlib.sha256(self.text.encode()).hexdigest()}"

    @property
    def moves(self) -> list[WaveMove]:
        """The plan's partitions as values that are carried out."""
        from engine.admin.reassignment.plan_file import PartitionMove
        from engine.admin.reassignment.waves import WaveMove

        before = {entry.name: entry for entry in self.plan.klamm.rollback}
        return [
            WaveMove(
                PartitionMove(one.name, one.replicas, one.log_dirs),
                before[one.name].replicas,
                dirs_before=before[one.name].log_dirs,
            )
            for one in self.plan.partitions
        ]

    def beside(self, suffix: str) -> Path:
        """Return the path of a file that belongs to the plan and lies beside it."""
        return self.path.with_name(f"{self.path.name}{suffix}")


def load_plan(path: Path) -> LoadedPlan:
    """Read a plan file.

    Raises:
        Stop: it is none; the message names the place in it.
    """
    from plans.errors import BadPlanFile
    from plans.plan_file import decode_plan

    text = path.read_text(encoding="utf-8", errors="replace")
    try:
        return LoadedPlan(path, text, decode_plan(text))
    except BadPlanFile as error:
        raise Stop(Failure(ExitCode.USAGE, "usage", str(error), str(path), error.hint)) from error


def size_option(name: str, text: str | None) -> int | None:
    """Return the bytes that an option means."""
    from engine.common.quantities import parse_size

    try:
        return None if text is None else parse_size(text)
    except ValueError as error:
        raise UsageError(f"{name}: {error}") from error


def seconds_option(name: str, text: str) -> float:
    """Return the seconds that an option means."""
    from engine.common.quantities import parse_duration_s

    try:
        seconds = parse_duration_s(text)
    except ValueError as error:
        raise UsageError(f"{name}: {error}") from error
    if not seconds > 0:
        raise UsageError(f"{name} wants a time above 0")
    return seconds


def throttle_options(
    advice: int | None, throttle: str | None, floor: str | None, ceiling: str | None
) -> ThrottleRange | None:
    """Return the throttle that options name, or else the plan's advice; None copies at full speed."""
    from engine.admin.reassignment.adaptive_throttle import ThrottleRange

    start = size_option("--throttle", throttle)
    start = advice if start is None else start
    if start is None:
        if floor is not None or ceiling is not None:
            raise UsageError("--throttle-floor and --throttle-ceiling want a --throttle")
        return None
    return ThrottleRange.of(start, size_option("--throttle-floor", floor), size_option("--throttle-ceiling", ceiling))
