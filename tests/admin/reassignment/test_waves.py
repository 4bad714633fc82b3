"""Waves: every prefix is as safe as its ends, caps hold, leaders move last; the state of a plan's partition."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.admin.reassignment.journal import JournalRecord
from engine.admin.reassignment.lock_holder import Holder
from engine.admin.reassignment.moves import status_of
from engine.admin.reassignment.reassignment_file import PartitionMove
from engine.admin.reassignment.wave_standings import AS_BEFORE, ELSEWHERE, NOT_REACHED, seen_from_before
from engine.admin.reassignment.waves import Standing, WaveCaps, WaveMove, standing_of, turned_round, waves_of
from engine.common.model import ReplicaAssignment, TopicPartition
from engine.common.snapshot import PartitionSnapshot

BROKERS = range(9)
RACKS = {broker: broker // 3 for broker in BROKERS}


def spread(seed: int, factor: int) -> tuple[int, ...]:
    """Return replicas in ``factor`` racks."""
    return tuple(3 * ((seed + rack) % 3) + (seed // 3 + rack) % 3 for rack in range(factor))


@st.composite
def plans(draw: st.DrawFn) -> list[WaveMove]:
    moves = []
    for index in range(draw(st.integers(1, 12))):
        factor = draw(st.integers(1, 3))
        before, target = (spread(draw(st.integers(0, 8)), factor) for _ in "ab")
        size = draw(st.one_of(st.none(), st.integers(0, 100)))
        moves.append(WaveMove(PartitionMove(TopicPartition("t", index), target), before, size))
    return moves


CAPS = st.builds(WaveCaps, st.one_of(st.none(), st.integers(1, 5)), st.one_of(st.none(), st.integers(1, 150)))


def copied(wave: tuple[WaveMove, ...], unknown: int) -> Mapping[tuple[int, str], list[int]]:
    """Return the bytes copied into and out of each broker; an unknown size counts as ``unknown``."""
    copies: dict[tuple[int, str], list[int]] = {}
    for move in wave:
        size = unknown if move.size_bytes is None else move.size_bytes
        for broker in move.adding:
            for end in ((broker, "in"), (move.before[0], "out")):
                copies.setdefault(end, []).append(size)
    return copies


@given(plans(), CAPS)
def test_every_prefix_of_waves_is_rack_safe_and_keeps_the_factor(moves: list[WaveMove], caps: WaveCaps) -> None:
    present = {move.name: move.before for move in moves}
    factor = {move.name: len(move.before) for move in moves}
    for wave in waves_of(moves, caps):
        assert wave
        for move in wave:
            assert present[move.name] == move.before, "a partition moves once"
            present[move.name] = move.target
        for name, replicas in present.items():
            assert len(replicas) == factor[name]
            assert len({RACKS[broker] for broker in replicas}) == len(replicas)
    assert present == {move.name: move.target for move in moves}


@given(plans(), CAPS)
def test_no_broker_is_above_a_cap_but_by_a_single_partition(moves: list[WaveMove], caps: WaveCaps) -> None:
    for wave in waves_of(moves, caps):
        for (broker, way), sizes in copied(wave, unknown=caps.size_bytes or 0).items():
            users = [
                move for move in wave if move.adding and broker in (move.adding if way == "in" else move.before[:1])
            ]
            if len(users) > 1:
                assert caps.replicas is None or len(sizes) <= caps.replicas
                assert caps.size_bytes is None or sum(sizes) <= caps.size_bytes


@given(plans(), CAPS)
def test_leaders_move_last(moves: list[WaveMove], caps: WaveCaps) -> None:
    order = [move.changes_leader for wave in waves_of(moves, caps) for move in wave]
    assert order == sorted(order)
    for wave in waves_of(moves, caps):
        assert len({move.changes_leader for move in wave}) == 1


@given(plans(), CAPS)
def test_the_order_of_the_moves_changes_nothing(moves: list[WaveMove], caps: WaveCaps) -> None:
    assert waves_of(moves, caps) == waves_of(list(reversed(moves)), caps)


@given(plans())
def test_without_caps_there_is_a_wave_for_each_kind_of_change(moves: list[WaveMove]) -> None:
    assert len(waves_of(moves, WaveCaps(None, None))) <= 3


def test_waves_are_as_few_as_the_caps_allow() -> None:
    moves = [WaveMove(PartitionMove(TopicPartition("t", n), (0, 2)), (0, 1), 10) for n in range(7)]
    assert [len(wave) for wave in waves_of(moves, WaveCaps(3, None))] == [3, 3, 1]
    assert [len(wave) for wave in waves_of(moves, WaveCaps(None, 25))] == [2, 2, 2, 1]


def test_a_move_between_log_dirs_counts_at_its_broker() -> None:
    moves = [WaveMove(PartitionMove(TopicPartition("t", n), (0, 1), ("/b", "any")), (0, 1), 10) for n in range(4)]
    assert [len(wave) for wave in waves_of(moves, WaveCaps(3, None))] == [3, 1]


@given(plans())
def test_turned_round_leads_back(moves: list[WaveMove]) -> None:
    back = turned_round(moves)
    assert [(move.before, move.target) for move in back] == [(move.target, move.before) for move in moves]


MOVE = WaveMove(PartitionMove(TopicPartition("t", 0), (2, 1)), (0, 1))


@pytest.mark.parametrize(
    ("assignment", "listed", "standing"),
    [
        (ReplicaAssignment((2, 1)), None, Standing.DONE),
        (ReplicaAssignment((0, 1)), None, Standing.WAITING),
        (ReplicaAssignment((1, 0)), None, Standing.WAITING),
        (ReplicaAssignment((1, 2)), None, Standing.WAITING),
        (ReplicaAssignment((1, 3)), None, Standing.DRIFTED),
        (ReplicaAssignment((0, 1, 2)), None, Standing.DRIFTED),
        (ReplicaAssignment((2, 1, 0), (2,), (0,)), None, Standing.MOVING),
        (ReplicaAssignment((0, 1, 2), (0,), (2,)), None, Standing.WAITING),
        (ReplicaAssignment((3, 1, 0), (3,), (0,)), None, Standing.DRIFTED),
        (ReplicaAssignment((0, 1)), (2, 1), Standing.MOVING),
        (ReplicaAssignment((0, 1)), (3, 1), Standing.DRIFTED),
        (None, None, Standing.GONE),
    ],
)
def test_where_a_partition_stands(
    assignment: ReplicaAssignment | None, listed: tuple[int, ...] | None, standing: Standing
) -> None:
    partition = None if assignment is None else PartitionSnapshot(0, assignment)
    assert standing_of(MOVE, partition, listed) is standing


BEGUN = JournalRecord(({"event": "begun", "what": "apply plan.json"}, {"event": "stopped"}))
CARRIED_OUT = JournalRecord(({"event": "begun", "what": "apply plan.json"}, {"event": "done"}))
ROLLED_BACK = JournalRecord((*BEGUN.events, {"event": "begun", "what": "rollback plan.json"}, {"event": "done"}))


def test_what_is_not_at_its_new_place_is_told_by_its_old_one() -> None:
    first, second = (WaveMove(PartitionMove(TopicPartition("t", index), (2, 3)), (1, 2)) for index in range(2))

    def told(
        record: JournalRecord | None, *replicas: tuple[int, ...], holder: Holder | None = None
    ) -> list[tuple[str, str | None]]:
        partitions = [PartitionSnapshot(index, ReplicaAssignment(replica)) for index, replica in enumerate(replicas)]
        statuses = [status_of(move.move, seen) for move, seen in zip((first, second), partitions, strict=True)]
        return [
            (status.state.value, status.reason)
            for status in seen_from_before(statuses, (first, second), record, holder)
        ]

    assert told(None, (1, 2), (1, 2)) == [("not_begun", AS_BEFORE)] * 2
    assert told(ROLLED_BACK, (1, 2), (1, 2)) == [("rolled_back", AS_BEFORE)] * 2
    assert told(BEGUN, (1, 2), (1, 2)) == [("not_begun", NOT_REACHED)] * 2, "it was stopped before the first wave"
    assert told(CARRIED_OUT, (1, 2), (1, 2)) == [("failed", AS_BEFORE)] * 2, "its journal tells of a whole run"
    assert told(None, (1, 2), (2, 3)) == [("not_begun", AS_BEFORE), ("complete", None)], (
        "no run is known to have failed"
    )
    assert told(None, (1, 2), (1, 4)) == [("not_begun", AS_BEFORE), ("failed", ELSEWHERE)]
    assert told(ROLLED_BACK, (1, 2), (1, 4)) == [("failed", AS_BEFORE), ("failed", ELSEWHERE)]

    bo = Holder("bo@elsewhere (pid 1)", "2026-01-01T00:00:00Z", "apply plan.json", ("t",))
    waits = ("waiting", "bo@elsewhere (pid 1) has not come to it yet")
    assert told(BEGUN, (1, 2), (1, 2), holder=bo) == [waits] * 2, "between two waves"
    assert told(None, (1, 2), (2, 3), holder=bo) == [waits, ("complete", None)]
    assert told(None, (1, 4), (1, 2), holder=bo)[0][0] == "failed", "no run moves it there from elsewhere"
    assert told(BEGUN, (1, 2), (1, 2), holder=replace(bo, topics=("u",))) == [("not_begun", NOT_REACHED)] * 2
    assert told(BEGUN, (1, 2), (1, 2), holder=replace(bo, what="rollback plan.json")) == [("failed", AS_BEFORE)] * 2

    first_wave = {"event": "wave", "wave": 1, "of": 2, "partitions": ["t-0"]}
    begun, back = ({"event": "begun", "what": f"{verb} plan.json"} for verb in ("apply", "rollback"))
    not_reached = ("not_begun", NOT_REACHED)
    for end in ((), ({"event": "stopped"},)):
        cut_short = JournalRecord((begun, first_wave, *end))
        assert told(cut_short, (2, 3), (1, 2)) == [("complete", None), not_reached]
        assert told(cut_short, (1, 2), (1, 2)) == [("failed", AS_BEFORE), not_reached], "its own move was undone"
        assert told(cut_short, (2, 3), (1, 4)) == [("complete", None), ("failed", ELSEWHERE)]
        half_back = JournalRecord((*CARRIED_OUT.events, back, first_wave, *end))
        assert told(half_back, (1, 2), (2, 3)) == [("rolled_back", AS_BEFORE), ("complete", None)]
        again = JournalRecord((*ROLLED_BACK.events, begun, *end))
        assert told(again, (1, 2), (1, 2)) == [not_reached] * 2, "waves of older runs do not count"
