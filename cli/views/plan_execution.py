"""A plan under way: the progress of each wave, on a terminal, in a pipe and as JSON lines; its state and its end."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cli.exit_codes import ExitCode
from cli.framework.invocation import Invocation
from cli.framework.stdout import data_stream
from cli.framework.talk import Verbosity
from cli.output.drawing import gauge
from cli.output.format import OutputFormat, TerminalView, can_show_blocks, is_terminal
from cli.output.printer import json_text
from cli.output.report import Column, Fields, Kind, Report, Section, Table
from cli.output.values import human_duration
from engine.admin.reassignment.journal import JournalRecord
from engine.admin.reassignment.lock_holder import Holder
from engine.admin.reassignment.wave_progress import Outcome, Step, WaveProgress, WavesResult
from engine.admin.reassignment.waves import Standing, Wave
from engine.common.model import TopicPartition
from engine.common.quantities import counted, size_text

_PIPE_PACE_S = 5.0
_JSON_PACE_S = 1.0
_BAR_WIDTH = 16
_BAR_WIDTH_MIN = 4
_CODES = {Outcome.DONE: ExitCode.DONE, Outcome.STOPPED: ExitCode.BAD_ANSWER, Outcome.DEADLINE: ExitCode.UNDER_WAY}


class ExecutionView:
    """Shows how the waves go: one line, rewritten on a terminal; with -o jsonl each event is a line of data."""

    def __init__(self, invocation: Invocation, goes_on: str, *, is_throttled: bool = False) -> None:
        self._invocation = invocation
        self._is_throttled = is_throttled
        self._goes_on = goes_on
        self._is_jsonl = invocation.output is OutputFormat.JSONL
        self._is_shown = invocation.talk.verbosity > Verbosity.QUIET and not invocation.talk.is_json
        self._is_terminal = is_terminal(sys.stderr)
        self._shown_at = 0.0
        self._has_line = False
        self._wave_count = 0
        self._begun: set[int] = set()

    def step(self, step: Step, wave: int) -> None:
        """Report the steps for which the user waits, and note what to say if the run is interrupted."""
        if self._is_jsonl and step is not Step.ENDED:
            self._data({"event": step.value, "wave": wave or None})
        if step is Step.WAVE_BEGUN:
            self._shown_at = 0.0
            self._begun.add(wave)
        elif step is Step.STARTED:
            throttle = ", and copies stay throttled until a plan command ends that" if self._is_throttled else ""
            self._leaves(f"wave {wave} is under way in the cluster{throttle}; go on with: {self._goes_on}")
        elif step is Step.WAVE_DONE:
            self._erase()
            self._say(f"wave {wave} is done")
            self._leaves(f"nothing is under way; go on with: {self._goes_on}")
        elif step is Step.ELECTED:
            self._say("preferred leaders are elected")

    def show(self, progress: WaveProgress) -> None:
        """Show the progress, at a pace that suits the reader."""
        now = time.monotonic()
        if self._is_jsonl and now - self._shown_at >= _JSON_PACE_S:
            self._shown_at = now
            self._data({"event": "progress", **_progress_data(progress)})
        if not self._is_shown:
            return
        room = TerminalView.of(sys.stderr).width - 1 if self._is_terminal else None
        line = progress_line(progress, room)
        if self._is_terminal:
            self._erase()
            sys.stderr.write(f"{line[:room]}\n")
            sys.stderr.flush()
            self._has_line = True
        elif now - self._shown_at >= _PIPE_PACE_S:
            self._shown_at = now
            self._invocation.talk.say(line)

    def saved(self, rollback_file: Path) -> None:
        """Say where the rollback is."""
        self._say(f"the rollback is in {rollback_file}; to go back: {self._goes_on.replace(' resume ', ' rollback ')}")

    def waits_for(self, holder: Holder) -> None:
        """Report who holds the lock."""
        self._say(f"the lock is held by {holder}, for {holder.what}; waiting in case that run was killed")

    def says(self, text: str) -> None:
        """Print a line that the user wants to read."""
        self._erase()
        self._say(text)

    def end(self) -> None:
        """Remove the line."""
        self._erase()

    def _leaves(self, text: str) -> None:
        self._invocation.left_running.clear()
        self._invocation.accepted(text)

    def _say(self, text: str) -> None:
        if self._is_shown:
            self._invocation.talk.say(text)

    def _data(self, event: dict[str, object]) -> None:
        with data_stream() as stream:
            stream.write(json_text(event, is_indented=False) + "\n")

    def _erase(self) -> None:
        if self._has_line:
            # The terminal echoes Ctrl-C at the cursor: the line may have begun.
            sys.stderr.write("\r\x1b[1A\x1b[J")
            sys.stderr.flush()
        self._has_line = False


def progress_line(progress: WaveProgress, room: int | None = None) -> str:
    """Return one line: the wave, partitions, bytes, rate, and the least and the most time left.

    If ``room`` is short, the bar shrinks first, then words and sizes go; rate and time left stay.
    """
    head = f"wave {progress.wave} of {progress.wave_count}, {progress.done_count}/{progress.count} partitions,"
    if progress.moved_bytes is None or progress.total_bytes is None:
        return f"{head} sizes are not known"
    share = progress.share
    sizes = f"{size_text(progress.moved_bytes)} of {size_text(progress.total_bytes)}"
    p99 = "" if progress.p99_s is None else f", p99 {progress.p99_s * 1000:.0f} ms"
    tail = f"{share:4.0%} {size_text(int(progress.rate))}/s{_left(progress)}{p99}"
    line = f"{head} {sizes} {tail}"
    width = _BAR_WIDTH if room is None else min(_BAR_WIDTH, room - len(line) - len("[] "))
    if width >= _BAR_WIDTH_MIN:
        return f"{head} {sizes} {gauge(share, width, has_blocks=can_show_blocks(sys.stderr))} {tail}"
    short = f"wave {progress.wave}/{progress.wave_count}, {progress.done_count}/{progress.count},"
    forms = (line, f"{short} {sizes} {tail}", f"{short} {tail}")
    return next((form for form in forms if room is None or len(form) <= room), forms[-1])


def waves_report(waves: Sequence[Wave]) -> Report:
    """What a dry run shows: each partition with the wave that it would move in."""
    columns = (
        Column("wave", Kind.NUMBER),
        Column("topic"),
        Column("partition", Kind.NUMBER),
        Column("replicas", Kind.LIST),
        Column("target", Kind.LIST),
        Column("bytes", Kind.BYTES),
        Column("log_dirs", Kind.LIST, title="Log dirs"),
    )
    rows = [
        (number, *move.name, move.before, move.target, move.copied_bytes, move.disks)
        for number, wave in enumerate(waves, 1)
        for move in wave
    ]
    table = Table(columns, rows).unless_empty("log_dirs")
    return Report(table.records(), table)


def waves_result_report(result: WavesResult, goes_on: str, journal: str, *, is_back: bool = False) -> Report:
    """How it ended: done, or why not and how to continue."""
    code = _CODES[result.outcome]
    if result.outcome is Outcome.DONE and result.done < result.count:
        code = ExitCode.BAD_ANSWER
    is_left = code is not ExitCode.DONE and (
        result.outcome is not Outcome.DONE or result.done + result.gone < result.count
    )
    data = {
        "outcome": result.outcome,
        "reason": result.reason,
        "wave": result.wave,
        "waves": result.wave_count,
        "done": result.done,
        "partitions": result.count,
        "under_way": [str(name) for name in result.moving],
        "throttles_left": list(result.left),
        "journal": journal,
        "goes_on": goes_on if is_left else None,
    }
    where = "where they were before the plan" if is_back else "where the plan wants them"
    missing = f"; {result.gone} no longer exist{'s' if result.gone == 1 else ''}" if result.gone else ""
    notes = [f"{result.done} of {result.count} partitions are {where}{missing}"]
    if result.reason is not None:
        when = f"at wave {result.wave} of {result.wave_count}" if result.wave else "before the first wave"
        notes.append(f"stopped {when}: {result.reason}")
    if result.moving:
        notes.append(f"{len(result.moving)} still under way in the cluster")
    notes += result.left
    if is_left:
        notes.append(f"go on with: {goes_on}")
    columns = tuple(Column(name) for name in ("outcome", "wave", "waves", "done", "partitions", "reason"))
    table = Table(columns, [tuple(data[column.name] for column in columns)])
    pairs = [(name, value) for name, value in data.items() if value not in (None, [])]
    return Report(data, table, (Section(body=Fields(pairs)),), notes, exit_code=code)


def _progress_data(progress: WaveProgress) -> dict[str, object]:
    return {
        "wave": progress.wave,
        "waves": progress.wave_count,
        "done": progress.done_count,
        "partitions": progress.count,
        "moved_bytes": progress.moved_bytes,
        "total_bytes": progress.total_bytes,
        "rate_bytes": int(progress.rate),
        "left_min_ms": None if progress.left_s_min is None else int(progress.left_s_min * 1000),
        "left_max_ms": None if progress.left_s_max is None else int(progress.left_s_max * 1000),
        "throttle_bytes": progress.throttle,
        "p99_ms": None if progress.p99_s is None else round(progress.p99_s * 1000, 1),
    }


def _left(progress: WaveProgress) -> str:
    least, most = progress.left_s_min, progress.left_s_max
    # What stands still for a dead broker was fast a minute ago, which says nothing about the rest.
    if least is None or int(progress.rate) == 0:
        return ""
    shortest = human_duration(int(least + 1) * 1000)
    longest = None if most is None else human_duration(int(most + 1) * 1000)
    if longest is None:
        return f", at least {shortest} left"
    return f", {shortest} left" if shortest == longest else f", {shortest} to {longest} left"


def plan_status_report(
    standings: Mapping[TopicPartition, Standing],
    holder: Holder | None,
    record: JournalRecord | None,
    *,
    is_back: bool = False,
) -> Report:
    """A figure for each state, then lock and journal. ``is_back``: the standings are those of the rollback."""
    counts = {kind: sum(standing is kind for standing in standings.values()) for kind in Standing}
    last = record.last if record is not None and record.events else None
    direction = "rollback" if is_back else "plan"
    data = {
        "direction": direction,
        "partitions": len(standings),
        **{standing.value: count for standing, count in counts.items()},
        "under_way": [str(name) for name, standing in standings.items() if standing is Standing.MOVING],
        "lock": holder,
        "journal": None if last is None else dict(last),
    }
    columns = (
        Column("partitions", Kind.NUMBER),
        *(Column(standing.value, Kind.NUMBER) for standing in Standing),
        Column("lock"),
        Column("direction"),
    )
    row = (len(standings), *counts.values(), None if holder is None else str(holder), direction)
    others = [
        f"{count} {standing.value}" for standing, count in counts.items() if count and standing is not Standing.DONE
    ]
    line = ", ".join([f"{direction}: {counts[Standing.DONE]} of {len(standings)} done", *others])
    pairs = [("lock", "free" if holder is None else f"{holder}, for {holder.what}")]
    if record is not None and last is not None:
        begun: Mapping[str, Any] = next((event for event in reversed(record.events) if event["event"] == "begun"), {})
        pairs.append(("journal", f"{last['time']} {_event_text(last, str(begun.get('what', '')))}"))
    notes = ["the journal's last line was cut short"] if record is not None and record.is_torn else []
    return Report(data, Table(columns, [row]), (Section(text=(line,), body=Fields(pairs)),), notes)


def _event_text(event: Mapping[str, Any], run: str = "") -> str:
    """Return what an event of a journal says, in words. ``run`` is what its run did: ``rollback plan.json``."""
    match event:
        case {"event": "journal"}:
            return "the journal was started"
        case {"event": "begun", "what": what, "who": who, "waves": int(waves)}:
            return f"{what} was started by {who}: {counted(waves, 'wave')}"
        case {"event": "wave", "wave": wave, "of": of, "partitions": [*names]}:
            return f"wave {wave} of {of} has started: {counted(len(names), 'partition')}"
        case {"event": "throttle", "rate": int(rate), "topics": [*topics], "brokers": [*brokers]}:
            where = f"topics {_listed(topics)}" if topics else ""
            where += f"{' and ' if topics and brokers else ''}brokers {_listed(brokers)}" if brokers else ""
            return f"a throttle of {size_text(rate)}/s was set on {where}"
        case {"event": "moving", "wave": wave}:
            return f"the cluster has begun to move the partitions of wave {wave}"
        case {"event": "asked", "throttle": int(rate)}:
            return f"another operator asked for a throttle of {size_text(rate)}/s"
        case {"event": "wave_done", "wave": wave}:
            return f"wave {wave} is done"
        case {"event": "election", "partitions": [*names]}:
            return f"the election of {counted(len(names), 'preferred leader')} has started"
        case {"event": "done", "throttles_left": [*left]}:
            return "; ".join([f"{run or 'all'} is done", *map(str, left)])
        case {"event": "stopped", "wave": wave, "reason": reason, "throttles_left": [*left]}:
            where = f"in wave {wave}" if wave else "before the first wave"
            stopped = f"{run} stopped" if run else "stopped"
            return "; ".join([f"{stopped} {where}: {reason or 'reason unknown'}", *map(str, left)])
    return str(event["event"])


def _listed(names: Sequence[object]) -> str:
    return ", ".join(map(str, names))
