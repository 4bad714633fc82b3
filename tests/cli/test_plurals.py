"""A number before a noun: one thing is singular everywhere."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from cli.commands.reassignment.run import _summary
from cli.views.spark import compacted_report, history_report
from engine.admin.lag.history_reading import CompactedDay, LagHistory, ReaderHistory
from engine.admin.lag.verdicts import LagStatus
from engine.admin.reassignment.prepare import PreparedReassignment
from engine.admin.reassignment.reassignment_file import PartitionMove
from engine.common.model import TopicPartition
from plans.capping import cap_note

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)
READER = ReaderHistory(
    "prod",
    "group",
    "billing",
    None,
    None,
    None,
    None,
    1,
    NOON,
    NOON,
    LagStatus.OK,
    0,
    0,
    0.0,
    0,
    None,
    0.0,
    0.0,
    0.0,
    (),
)


@pytest.mark.parametrize(("count", "expected"), [(1, "1 sample, 1 reader"), (2, "2 samples, 2 readers")])
def test_samples_and_readers(count: int, expected: str) -> None:
    history = LagHistory((READER,) * count, count, None)
    assert history_report(history, top=5, has_plot=False).notes == (expected,)


@pytest.mark.parametrize(("after", "expected"), [(9, "1 file fewer"), (8, "2 files fewer")])
def test_files(after: int, expected: str) -> None:
    assert compacted_report([CompactedDay("2026-11-22", 10, after)]).notes == (expected,)


@pytest.mark.parametrize(("left", "expected"), [(1, "1 move is left"), (2, "2 moves are left")])
def test_moves(left: int, expected: str) -> None:
    assert cap_note(left) == f"a cap ends the plan early: {expected} of the whole plan"


@pytest.mark.parametrize(("count", "expected"), [(1, "of 1 partition in"), (2, "of 2 partitions in")])
def test_partitions(count: int, expected: str) -> None:
    moves = tuple(PartitionMove(TopicPartition("t", n), (0, 1)) for n in range(count))
    prepared = PreparedReassignment(moves, (), {move.name: (0, 1) for move in moves}, {}, None, frozenset())
    assert expected in _summary(prepared, "here")
