"""Log dirs: a line per dir above a line per replica, or totals."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from cli.exit_codes import ExitCode
from cli.output.report import Column, Kind, Report, Section, Table, Tone
from cli.views.kafka import brokers as kafka
from engine.admin.log_dirs.describing import DirReplica, DirTotals, LogDir, log_dir_metrics, totals_by_dir

_FULL_PERCENT = 90

SHOWN_MAX = 20
"""Replicas in a table for which no topics were named. A cluster has thousands; a full disk is about the largest."""


def _lag_tone(value: object) -> Tone | None:
    return Tone.WARNING if isinstance(value, int) and value > 0 else None


def _full_tone(value: object) -> Tone | None:
    return Tone.WARNING if isinstance(value, int) and value >= _FULL_PERCENT else None


_REPLICA = (
    Column("broker", Kind.NUMBER),
    Column("log_dir"),
    Column("topic"),
    Column("partition", Kind.NUMBER),
    Column("size_bytes", Kind.BYTES, title="Size"),
    Column("offset_lag", Kind.NUMBER, title="Lag", tone=_lag_tone),
    Column("is_future", Kind.FLAG, title="Future"),
    Column("error", tone=Tone.BAD, falls_below=True),
)
_TOTALS = (
    Column("broker", Kind.NUMBER),
    Column("log_dir"),
    Column("topic"),
    Column("replica_count", Kind.NUMBER, title="Replicas"),
    Column("future_count", Kind.NUMBER, title="Future"),
    Column("size_bytes", Kind.BYTES, title="Size"),
    Column("largest_bytes", Kind.BYTES, title="Largest"),
    Column("offset_lag_max", Kind.NUMBER, title="Max lag", tone=_lag_tone),
    Column("total_bytes", Kind.BYTES, title="Volume"),
    Column("usable_bytes", Kind.BYTES, title="Free"),
    Column("error", tone=Tone.BAD, falls_below=True),
)
_SUBJECTS = {"dir": ("broker", "log_dir"), "broker": ("broker",), "topic": ("topic",)}


def log_dirs_report(
    dirs: Sequence[LogDir], *, order: str, names_topics: bool = True, is_for_people: bool = True
) -> Report:
    """A row per replica; a log dir without replicas, or with an error, has a row of its own.

    If no topics are named, a person sees the largest replicas (or the furthest behind) and a note; machines get all.
    """
    rows: list[tuple[object, ...]] = [
        (log_dir.broker, log_dir.log_dir, r.topic, r.partition, r.size_bytes, r.offset_lag, r.is_future, None)
        for log_dir, r in _ordered([(log_dir, replica) for log_dir in dirs for replica in log_dir.replicas], order)
    ]
    rows += [(d.broker, d.log_dir, None, None, None, None, None, d.error) for d in dirs if not d.replicas]
    replicas = [row[:-1] for row in rows if row[2] is not None]
    notes = _notes(dirs)
    if not names_topics and len(replicas) > SHOWN_MAX and is_for_people:
        column, superlative = (5, "furthest behind") if order == "lag" else (4, "largest")
        notes += (f"the {SHOWN_MAX} {superlative} of {len(replicas)} replicas; all: --topic-list '.*', or -o plain",)
        replicas = heapq.nlargest(SHOWN_MAX, replicas, key=lambda row: cast("int", row[column] or 0))
    dirs = [replace(d, replicas=tuple(r for _, r in _ordered([(d, r) for r in d.replicas], order))) for d in dirs]
    by_dir = totals_by_dir(dirs)
    shown = [Section(body=totals_table(by_dir, "dir"))]
    if replicas:
        # Usually nothing moves.
        shown.append(Section(body=Table(_REPLICA[:-1], replicas).unless_empty("is_future")))
    code = _exit_code([d for d in dirs if d.error])
    return Report(
        dirs, Table(_REPLICA, rows), shown, notes, code, log_dir_metrics(by_dir), lambda: kafka.log_dirs_text(dirs)
    )


def totals_report(totals: Sequence[DirTotals], subject: str, *, order: str, failed: Sequence[LogDir]) -> Report:
    """A row per log dir, broker or topic."""
    ordered = sorted(totals, key=lambda row: _rank(row, order))
    shown = Section(body=totals_table(ordered, subject))
    notes = () if totals else ("no replicas",)
    # Totals of topics contain nothing from a failed broker or log dir, so those are named beside them.
    missing = () if subject != "topic" else tuple(f"missing: {_place(log_dir)}: {log_dir.error}" for log_dir in failed)
    table = Table.of(_TOTALS, ordered)
    return Report(ordered, table, (shown,), notes + missing, _exit_code(failed), log_dir_metrics(ordered))


def totals_table(totals: Sequence[DirTotals], subject: str) -> Table:
    """Return the table of totals that a person sees, without empty columns."""
    full = Column("used_percent", Kind.NUMBER, title="Used %", tone=_full_tone)
    columns = (*_TOTALS[:-1], full, _TOTALS[-1])
    subjects = _SUBJECTS[subject]
    filled = {column.name for column in columns if any(getattr(total, column.name) for total in totals)}
    # What is left of a volume says more than how large it is.
    wanted = (filled - {"broker", "log_dir", "topic", "total_bytes"}) | {*subjects, "replica_count", "size_bytes"}
    if subject != "topic":
        wanted.discard("largest_bytes")
    return Table.of(columns, totals).with_only(wanted)


def _ordered(pairs: list[tuple[LogDir, DirReplica]], order: str) -> list[tuple[LogDir, DirReplica]]:
    if order == "size":
        pairs.sort(key=lambda pair: -pair[1].size_bytes)
    elif order == "lag":
        pairs.sort(key=lambda pair: -(pair[1].offset_lag or 0))
    return pairs


def _rank(totals: DirTotals, order: str) -> tuple[object, ...]:
    first = {"size": -totals.size_bytes, "lag": -(totals.offset_lag_max or 0)}.get(order, 0)
    return (first, -1 if totals.broker is None else totals.broker, totals.log_dir or "", totals.topic or "")


def _place(log_dir: LogDir) -> str:
    return f"broker {log_dir.broker}" if log_dir.log_dir is None else f"{log_dir.log_dir} of broker {log_dir.broker}"


def _notes(dirs: Sequence[LogDir]) -> tuple[str, ...]:
    return () if any(log_dir.replicas for log_dir in dirs) else ("no replicas",)


def _exit_code(failed: Sequence[LogDir]) -> ExitCode:
    return ExitCode.BAD_ANSWER if failed else ExitCode.DONE
