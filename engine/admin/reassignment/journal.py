"""The journal of a plan's execution: one JSON line per event, on disk before the next event begins.

It shows people what was done and when. Resuming does not need it: the plan file and the cluster are enough.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

from engine.admin.cluster.errors import AdminError, BadRequest
from engine.admin.cluster.rollback_file import sync_folder

FORMAT = 1

_UNKNOWN = "—"
_HINT = "move it away and resume: the plan file and the cluster are enough, and a new journal starts"


@dataclass(frozen=True, slots=True)
class JournalRecord:
    """The content of a journal. ``is_torn``: the last line was cut short by a kill, and is left out."""

    events: tuple[Mapping[str, Any], ...]
    is_torn: bool = False

    @property
    def last(self) -> Mapping[str, Any]:
        return self.events[-1]

    @property
    def is_under_way(self) -> bool:
        """Whether a wave has started, and no run has ended well since."""
        is_begun = False
        for event in self.events:
            is_begun = event["event"] == "wave" or (is_begun and event["event"] != "done")
        return is_begun

    @property
    def last_run(self) -> tuple[Mapping[str, Any], ...]:
        """The events of the last run; none if no run has begun."""
        starts = [index for index, event in enumerate(self.events) if event["event"] == "begun"]
        return self.events[starts[-1] :] if starts else ()

    @property
    def is_of_rollback(self) -> bool:
        """Whether the last run was a rollback."""
        run = self.last_run
        return bool(run) and str(run[0].get("what")).startswith("rollback")

    @property
    def is_unfinished(self) -> bool:
        """Whether the last run has not completed: it was stopped or killed, or is still running."""
        run = self.last_run
        return bool(run) and run[-1]["event"] != "done"

    @property
    def has_moved(self) -> bool:
        """Whether it tells of moves by the plan itself, since a run of it last followed a rollback."""
        has_moved = is_back = False
        for event in self.events:
            if event["event"] == "begun":
                was_back, is_back = is_back, str(event.get("what")).startswith("rollback")
                has_moved = has_moved and (is_back or not was_back)
            has_moved = has_moved or (event["event"] in ("moving", "wave_done") and not is_back)
        return has_moved

    @property
    def reached(self) -> frozenset[str]:
        """The partitions whose wave the last run has begun."""
        waves = [event for event in self.last_run if event["event"] == "wave"]
        return frozenset(name for wave in waves for name in wave.get("partitions", ()))

    @property
    def is_rolled_back(self) -> bool:
        """Whether the last run was a rollback that ended well."""
        return self.is_of_rollback and self.last["event"] == "done"


class Journal:
    """Writes one journal. Open it with ``open_journal``; each ``write`` returns when the line is on disk."""

    def __init__(self, file: BinaryIO, path: Path) -> None:
        self.path = path
        self._file = file

    def write(self, event: str, **fields: Any) -> None:
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line = json.dumps({"time": now, "event": event, **fields}, ensure_ascii=False)
        self._file.write(f"{line}\n".encode())
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


def open_journal(path: Path, plan_digest: str) -> Journal:
    """Open the journal of a plan to append to it, or create it. Remove a torn last line.

    Raises:
        BadRequest: it is damaged, of another format, or of another plan.
        OSError: it cannot be written.
    """
    is_new = not path.exists() or path.stat().st_size == 0
    if not is_new:
        record = read_journal(path)
        if record.events and record.events[0]["plan"] != plan_digest:
            hint = "name another file for the journal, or move this one away"
            raise BadRequest("the journal belongs to another plan", where=str(path), hint=hint)
        is_new = not record.events
    file = path.open("ab")
    try:
        _cut_torn_line(path, file)
        journal = Journal(file, path)
        if is_new:
            journal.write("journal", format=FORMAT, plan=plan_digest)
            sync_folder(path.parent)
    except BaseException:
        file.close()
        raise
    return journal


def read_journal(path: Path) -> JournalRecord:
    """Return the content of a journal.

    Raises:
        BadRequest: it is damaged, or of another format.
        OSError: it cannot be read.
    """
    data = path.read_bytes()
    lines = data.split(b"\n")
    is_torn = lines.pop() != b""
    events = tuple(_event(line, f"{path}:{number}") for number, line in enumerate(lines, 1))
    if events and events[0]["event"] != "journal":
        raise BadRequest("not a journal: its first line is missing", where=str(path), hint=_HINT)
    if events and events[0].get("format") != FORMAT:
        format_text = json.dumps(events[0].get("format"))
        raise BadRequest(
            f"this klamm reads journals of format {FORMAT}, not {format_text}", where=str(path), hint=_HINT
        )
    return JournalRecord(events, is_torn)


def throttle_of_last_run(path: Path, plan_digest: str) -> int | None:
    """Return the bytes a second that somebody chose last for a plan's last run; 0 if none, None if unknown.

    Raises:
        BadRequest, OSError: as ``read_journal``.
    """
    record = read_journal(path) if path.exists() else JournalRecord(())
    if not record.events or record.events[0].get("plan") != plan_digest:
        return None
    chosen = [event.get("throttle") for event in record.events if event["event"] in ("begun", "asked")]
    return chosen[-1] if chosen and isinstance(chosen[-1], int) else None


@dataclass(frozen=True, slots=True)
class PastRun:
    """One run of a plan, from its journal."""

    plan: str
    began: str
    who: str
    what: str
    waves: int
    waves_done: int
    ended: str
    outcome: str
    """``done``, ``stopped`` with the reason, or that no end is recorded."""


NO_END = "no end is recorded: killed, or still under way"


def past_runs(journals: Sequence[tuple[Path, JournalRecord]]) -> list[PastRun]:
    """Return all runs in the journals, the newest first."""
    runs = [run for path, record in journals for run in _runs_of(path, record.events)]
    return sorted(runs, key=lambda run: run.began, reverse=True)


def _runs_of(path: Path, events: Sequence[Mapping[str, Any]]) -> list[PastRun]:
    """A run is everything from one ``begun`` to the next."""
    starts = [index for index, event in enumerate(events) if event["event"] == "begun"]
    runs = []
    for start, end in pairwise([*starts, len(events)]):
        begun, rest = events[start], events[start + 1 : end]
        last = next((event for event in reversed(rest) if event["event"] in ("done", "stopped")), None)
        outcome, ended = NO_END, _UNKNOWN
        if last is not None:
            reason = last.get("reason")
            outcome, ended = f"stopped: {reason}" if reason else str(last["event"]), str(last.get("time", _UNKNOWN))
        runs.append(
            PastRun(
                path.name.removesuffix(".journal"),
                str(begun.get("time", _UNKNOWN)),
                str(begun.get("who", _UNKNOWN)),
                str(begun.get("what", _UNKNOWN)),
                int(begun.get("waves", 0)),
                sum(event["event"] == "wave_done" for event in rest),
                ended,
                outcome,
            )
        )
    return runs


def _event(line: bytes, where: str) -> Mapping[str, Any]:
    try:
        event = json.loads(line)
    except ValueError as error:
        raise BadRequest(f"the journal is damaged: {error}", where=where, hint=_HINT) from error
    if not isinstance(event, dict) or not isinstance(event.get("event"), str):
        raise BadRequest("the journal is damaged: not an event", where=where, hint=_HINT)
    return event


def _cut_torn_line(path: Path, file: BinaryIO) -> None:
    data = path.read_bytes()
    whole = data.rfind(b"\n") + 1
    if whole < len(data):
        file.truncate(whole)


@dataclass(frozen=True, slots=True)
class UnfinishedPlan:
    """A plan that was begun and is neither done nor rolled back.

    Attributes:
        path: its file.
        wave: the wave of ``waves`` that its last run began; None: not known.
        reason: why that run stopped; empty if it goes on or was killed.
        written_ms: when its journal was written last.
    """

    path: Path
    wave: int | None
    waves: int | None
    reason: str
    written_ms: int


def unfinished_plans(folders: Sequence[Path]) -> list[UnfinishedPlan]:
    """Return the plans in these folders that were not finished, the newest first, as far as their files are there."""
    plans = []
    for path, record in read_journals(folders)[0]:
        plan = path.with_name(path.name.removesuffix(".journal"))
        if record.is_under_way and not record.is_rolled_back and plan.is_file():
            wave = next(event for event in reversed(record.events) if event["event"] == "wave")
            reason = record.last.get("reason") if record.last["event"] == "stopped" else None
            plans.append(
                UnfinishedPlan(plan, _number(wave, "wave"), _number(wave, "of"), str(reason or ""), _written_ms(record))
            )
    return sorted(plans, key=lambda entry: -entry.written_ms)


def _number(event: Mapping[str, Any], name: str) -> int | None:
    value = event.get(name)
    return value if isinstance(value, int) else None


def _written_ms(record: JournalRecord) -> int:
    try:
        return round(datetime.fromisoformat(str(record.last.get("time"))).timestamp() * 1000)
    except ValueError:
        return 0


def read_journals(folders: Sequence[Path]) -> tuple[list[tuple[Path, JournalRecord]], list[str]]:
    """Return the journals of folders, and what is wrong with those that cannot be read."""
    records, errors = [], []
    for path in sorted({path.resolve() for folder in folders for path in folder.glob("*.journal")}):
        try:
            records.append((path, read_journal(path)))
        except (OSError, AdminError) as error:
            errors.append(str(error))
    return records, errors
