"""Reassignments as rows: generated, verified, cancelled, under way.

Those under way have bars, and under them the partitions that take longest. On a terminal the lines are rewritten in
place; elsewhere the first line is printed at a bounded pace.
"""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from cli.exit_codes import ExitCode
from cli.framework.invocation import Invocation
from cli.framework.talk import Talk, Verbosity
from cli.output.drawing import gauge
from cli.output.format import TerminalView, can_show_blocks, is_terminal
from cli.output.report import Advice, Column, Kind, Report, Section, Table, Tone, cells_of
from cli.output.values import human_duration
from cli.views.kafka.reassignment import running_text
from engine.admin.cluster.errors import Refused
from engine.admin.reassignment.cancel import CancelledPartition, CancelledReassignments, CancelResult
from engine.admin.reassignment.generate import GeneratedPlan
from engine.admin.reassignment.moves import (
    MoveProgress,
    PartitionStatus,
    ReassignmentProgress,
    ReassignmentState,
    Refusal,
    RunningReassignment,
)
from engine.admin.reassignment.prepare import PlannedMove, PreparedReassignment, RoomShortage
from engine.admin.reassignment.reassignment_file import plan_document, plan_text
from engine.admin.reassignment.throttles import ClearedThrottles
from engine.admin.reassignment.verify import HELD_UP
from engine.common.quantities import counted, plural, size_text

_STATE_TONES = {
    ReassignmentState.COMPLETE: Tone.GOOD,
    ReassignmentState.IN_PROGRESS: Tone.WARNING,
    ReassignmentState.WAITING: Tone.WARNING,
    ReassignmentState.FAILED: Tone.BAD,
    ReassignmentState.NOT_FOUND: Tone.BAD,
    ReassignmentState.NOT_BEGUN: Tone.WARNING,
    ReassignmentState.ROLLED_BACK: Tone.WARNING,
}
_RESULT_TONES = {
    CancelResult.CANCELLED: Tone.GOOD,
    CancelResult.UNDER_WAY: Tone.WARNING,
    CancelResult.FAILED: Tone.BAD,
    CancelResult.NOT_ACTIVE: Tone.QUIET,
}


_NAME = (Column("topic"), Column("partition", Kind.NUMBER))
_STATUS = (
    *_NAME,
    Column("state", tone=_STATE_TONES),
    Column("replicas", Kind.LIST),
    Column("target", Kind.LIST),
    Column("adding", Kind.LIST),
    Column("removing", Kind.LIST),
    Column("remaining_bytes", Kind.BYTES, title="Remaining"),
    Column("reason", falls_below=True),
)
_RUNNING = (*_NAME, Column("replicas", Kind.LIST), Column("adding", Kind.LIST), Column("removing", Kind.LIST))
_PLANNED = (
    *_NAME,
    Column("replicas", Kind.LIST),
    Column("target", Kind.LIST),
    Column("adding", Kind.LIST),
    Column("removing", Kind.LIST),
    Column("bytes_to_copy", Kind.BYTES, title="To copy"),
    Column("log_dirs", Kind.LIST),
)
_CANCELLED = (
    *_NAME,
    Column("result", tone=_RESULT_TONES),
    Column("replicas", Kind.LIST),
    Column("error", falls_below=True),
)
_ALWAYS = 4
"""People see this many leading columns even if they are empty."""


def shortage_text(shortage: RoomShortage) -> str:
    """Say that there is less room than will be copied."""
    where = shortage.log_dir or "its log dirs"
    copied, free = size_text(shortage.bytes_to_copy), size_text(shortage.usable_bytes)
    return f"broker {shortage.broker} has to copy {copied}, but has only {free} free in {where}"


def generated_report(plan: GeneratedPlan) -> Report:
    """Both assignments, as documents for machines and side by side in a table."""
    data = {"current": plan_document(plan.current), "proposed": plan_document(plan.proposed)}
    columns = (*_NAME, Column("current", Kind.LIST), Column("proposed", Kind.LIST))
    rows = [(*name, plan.current.get(name, ()), replicas) for name, replicas in plan.proposed.items()]
    return Report(data, Table(columns, rows))


def generated_text(plan: GeneratedPlan) -> str:
    """Both assignments as Kafka's tool prints them."""
    current, proposed = (plan_text(plan_document(moves)) for moves in (plan.current, plan.proposed))
    lines = (
        "Current partition replica assignment",
        current,
        "",
        "Proposed partition reassignment configuration",
        proposed,
    )
    return "".join(f"{line}\n" for line in lines)


def statuses_report(statuses: Sequence[PartitionStatus], notes: Sequence[str], *, stop: str) -> Report:
    """One row per partition; the exit code distinguishes done, failed and still moving.

    ``stop`` is the command that stops what waits for a dead broker.
    """
    table = Table.of(_STATUS, statuses)
    counts = {state: sum(status.state is state for status in statuses) for state in ReassignmentState}
    tally = ", ".join(f"{count} {state.value.replace('_', ' ')}" for state, count in counts.items() if count)
    summary = f"{counted(len(statuses), 'partition')}: {tally}" if tally else "nothing is under way"
    if any(status.reason is not None and status.reason.startswith(HELD_UP) for status in statuses):
        notes = (*notes, Advice(f"it goes on when the broker is back; to stop it: {stop}"))
    code = ExitCode.DONE
    if counts[ReassignmentState.IN_PROGRESS] or counts[ReassignmentState.WAITING]:
        code = ExitCode.UNDER_WAY
    elif counts[ReassignmentState.COMPLETE] < len(statuses):
        code = ExitCode.BAD_ANSWER
    return Report(statuses, table, (Section(body=_shown(table)),), (summary, *notes), exit_code=code)


def planned_report(moves: Sequence[PlannedMove], heat: Section | None = None) -> Report:
    """What an execute would start: one row per partition that changes, and the effect on the brokers."""
    rows = [(*cells_of(_PLANNED[:-1], move), tuple(map(str, move.log_dirs))) for move in moves]
    table = Table(_PLANNED, rows)
    known = [move.bytes_to_copy for move in moves if move.bytes_to_copy is not None]
    notes = (f"to copy: {size_text(sum(known))}",) if known else ()
    return Report(moves, table, (Section(body=_shown(table)), *([] if heat is None else [heat])), notes)


def running_report(running: Sequence[RunningReassignment]) -> Report:
    """One row per partition that is being reassigned."""
    return Report(
        running,
        Table.of(_RUNNING, running),
        notes=() if running else ("no partition reassignments found",),
        as_kafka=lambda: running_text(running),
    )


def cancelled_report(results: Sequence[CancelledPartition], notes: Sequence[str] = ()) -> Report:
    """One row per partition."""
    table = Table.of(_CANCELLED, results)
    outcomes = {result.result for result in results}
    code = ExitCode.UNDER_WAY if CancelResult.UNDER_WAY in outcomes else ExitCode.DONE
    code = ExitCode.REFUSED if CancelResult.FAILED in outcomes else code
    if not outcomes & {
        CancelResult.CANCELLED,
        CancelResult.WOULD_BE_CANCELLED,
        CancelResult.UNDER_WAY,
        CancelResult.FAILED,
    }:
        notes = ("none of the partition reassignments are active", *notes)
    return Report(results, table, (Section(body=_shown(table)),), tuple(notes), exit_code=code)


def cancelled_notes(cancelled: CancelledReassignments) -> list[str]:
    """Say what stays where it is, and what lost its throttle."""
    kept = [f"{name} stays in its log dir on broker {broker}" for name, broker in cancelled.kept_dirs]
    return [*kept, *throttle_notes(cancelled.cleared)]


def throttle_notes(cleared: ClearedThrottles) -> list[str]:
    """Say what lost its throttle, and what did not and why."""
    notes = []
    whose = [f"{plural('topic', len(cleared.topics))} {_listed(cleared.topics)}"] if cleared.topics else []
    whose += [f"{plural('broker', len(cleared.brokers))} {_listed(cleared.brokers)}"] if cleared.brokers else []
    if whose:
        notes.append(f"throttle removed from {' and '.join(whose)}")
    return [*notes, *cleared.left]


def _shown(table: Table) -> Table:
    return table.without_empty(keeps=[column.name for column in table.columns[:_ALWAYS]])


def _listed(values: Sequence[object]) -> str:
    return ", ".join(map(str, values))


PARTITION_LINES_MAX = 6
_LOG_PACE_S = 10.0
_FIRST_LINE_S = 2.0
"""A move that is done by then needs no line."""

_BAR_WIDTH = 16


class ProgressView:
    """Shows progress on stderr. ``end`` takes it away."""

    def __init__(self, talk: Talk) -> None:
        self._is_shown = talk.verbosity > Verbosity.QUIET
        self._is_terminal = is_terminal(sys.stderr)
        self._shown_at: float | None = None
        self._lines = 0

    def show(self, progress: ReassignmentProgress) -> None:
        """Show how far it is now."""
        if not self._is_shown:
            return
        lines = progress_lines(progress)
        if self._shown_at is None:
            self._shown_at = time.monotonic() - _LOG_PACE_S + _FIRST_LINE_S
        if self._is_terminal:
            width = TerminalView.of(sys.stderr).width
            self._erase()
            sys.stderr.write("".join(f"{line[: width - 1]}\n" for line in lines))
            self._lines = len(lines)
        elif time.monotonic() - self._shown_at >= _LOG_PACE_S and progress.partitions:
            self._shown_at = time.monotonic()
            reasons = dict.fromkeys(partition.reason for partition in progress.partitions if partition.reason)
            sys.stderr.write(f"{'; '.join([lines[0], *reasons])}\n")
        sys.stderr.flush()

    def end(self) -> None:
        """Remove the lines."""
        if self._lines:
            self._erase()
            sys.stderr.flush()

    def _erase(self) -> None:
        # The terminal echoes Ctrl-C at the cursor: the line may have begun.
        sys.stderr.write(f"\r\x1b[{self._lines}A\x1b[J" if self._lines else "")
        self._lines = 0


_EXECUTE = "klamm reassign execute --reassignment-json-file"


class ExecutionView(ProgressView):
    """Also says what an execution has saved and started."""

    def __init__(self, invocation: Invocation, prepared: PreparedReassignment, way_back: str = _EXECUTE) -> None:
        super().__init__(invocation.talk)
        self.code = ExitCode.DONE
        """The code of the first partition that was refused."""
        self._invocation = invocation
        self._prepared = prepared
        self._way_back = way_back
        """The command that takes the rollback file."""

    def saved(self, rollback_file: Path) -> None:
        """Say where the rollback is."""
        way_back = self._invocation.pasteable(f"{self._way_back} {shlex.quote(str(rollback_file))}")
        self._invocation.talk.remind(f"the rollback is in {rollback_file}; to go back: {way_back}")

    def dropped(self, rollback_file: Path) -> None:
        """Say that there is nothing to go back from."""
        self._invocation.talk.remind(f"nothing was changed, and {rollback_file} is removed again")

    def started(self, refusals: Sequence[Refusal]) -> None:
        """Report what was refused, and how much has started."""
        self.code = self._invocation.tell_failures(
            [Refused(refusal.code, refusal.message, where=f"partition {refusal.name}") for refusal in refusals]
        )
        count, dirs = len(self._prepared.changing), self._prepared.dir_move_count
        if count:
            self._invocation.talk.say(f"started {count - len(refusals)} of {len(self._prepared.plan)} partitions")
        elif dirs:
            self._invocation.talk.say(f"started to move {counted(dirs, 'replica')} to other log dirs")
        else:
            self._invocation.talk.say("changed what is under way")


def progress_lines(progress: ReassignmentProgress) -> list[str]:
    """Return the line of all, then the partitions: those that move first, with the most left at the top."""
    overall = progress.overall
    lines = [f"moved {_figures(overall)}, {progress.done_count}/{progress.count} done"]
    longest = sorted(
        progress.partitions, key=lambda partition: (partition.rate <= 0, partition.moved_bytes - partition.total_bytes)
    )
    shown = longest[:PARTITION_LINES_MAX]
    width = max((len(str(move.name)) for move in shown), default=0)
    lines += [
        f"  {str(move.name).ljust(width)}  {_figures(move)}{f', {move.reason}' if move.reason else ''}"
        for move in shown
    ]
    more = len(longest) - len(shown)
    return [*lines, f"  … and {more} more"] if more else lines


def _figures(move: MoveProgress) -> str:
    share = move.moved_bytes / move.total_bytes if move.total_bytes else 0.0
    bar = gauge(share, _BAR_WIDTH, has_blocks=can_show_blocks(sys.stderr))
    left = "" if move.eta_s is None else f", {human_duration(int(move.eta_s + 1) * 1000)} left"
    sizes = f"{size_text(move.moved_bytes)} of {size_text(move.total_bytes)}"
    return f"{sizes} {bar} {share:4.0%} {size_text(int(move.rate))}/s{left}"
