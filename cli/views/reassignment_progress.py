"""Moving partitions as they move: a bar with bytes, rate and time left, and under it the partitions that take longest.

On a terminal the lines are rewritten in place; elsewhere the first line is printed at a bounded pace.
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
from cli.output.terminal import TerminalView, can_show_blocks, is_terminal
from cli.output.values import human_duration
from engine.admin.cluster.errors import Refused
from engine.admin.reassignment.moves import Refusal
from engine.admin.reassignment.prepare import PreparedReassignment
from engine.admin.reassignment.progress import MoveProgress, ReassignmentProgress
from engine.common.quantities import counted, size_text

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
