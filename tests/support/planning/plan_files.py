"""Plan files made by hand, in the envelope of a given cluster; and klamm without the extra ``plan``."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

import plans
from engine.common.model import TopicPartition
from engine.common.snapshot import ClusterSnapshot
from engine.common.snapshot_json import snapshot_from_json
from plans.digest import input_digest
from plans.options import PlanOptions, Strategy
from plans.plan_file import Envelope, PlanEntry, PlanFile, encode_plan
from plans.score import Bounds, Measures, Score

Replicas = Mapping[TopicPartition, Sequence[int]]
NOT_MEASURED = Measures(0, 0, None, 0, 0)


def plan_of(snapshot: ClusterSnapshot, targets: Replicas, *, throttle: int | None = None) -> PlanFile:
    """Return the plan that leads from a snapshot to these replicas, with correct figures."""
    before = {
        TopicPartition(topic.name, partition.partition): partition.assignment.target_replicas
        for topic in snapshot.topics
        for partition in topic.partitions
    }
    moves = sum(broker not in before[name] for name, replicas in targets.items() for broker in replicas)
    changes = sum(before[name][0] != replicas[0] for name, replicas in targets.items())
    reordered = sum(
        set(before[name]) == set(replicas) and before[name] != tuple(replicas) for name, replicas in targets.items()
    )
    score = Score(
        moves=moves,
        bytes=None,
        leader_changes=changes,
        reordered=reordered,
        remaining_moves=0,
        lower_bound=Bounds(moves, None, changes),
        gap=0.0,
        is_optimal=True,
        solver="by hand",
        makespan_s=None,
        before=NOT_MEASURED,
        after=NOT_MEASURED,
    )
    envelope = Envelope(
        format=1,
        cluster_id=snapshot.cluster_id,
        input_digest=input_digest(snapshot),
        strategy=Strategy.MOVE,
        options=PlanOptions(),
        score=score,
        rollback=entries({name: before[name] for name in targets}),
        throttle=throttle,
    )
    return PlanFile(1, entries(targets), envelope)


def entries(replicas: Replicas) -> tuple[PlanEntry, ...]:
    return tuple(
        PlanEntry(*name, tuple(replica), ("any",) * len(replica)) for name, replica in sorted(replicas.items())
    )


def write_plan(path: Path, snapshot: Path, targets: Replicas, *, throttle: int | None = None) -> Path:
    """Write the plan that leads from the snapshot in a file to these replicas."""
    taken = snapshot_from_json(snapshot.read_text(encoding="utf-8"))
    path.write_text(encode_plan(plan_of(taken, targets, throttle=throttle)), encoding="utf-8")
    return path


_OF_THE_EXTRA = re.compile(r"^import (highspy|numpy)", re.MULTILINE)
SOLVER_MODULES = sorted(
    f"plans.{path.stem}"
    for path in Path(plans.__file__).parent.glob("*.py")
    if _OF_THE_EXTRA.search(path.read_text(encoding="utf-8"))
)
"""Those that cannot be imported without the extra."""


def hide_solver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no import of the solver succeed until the test ends."""
    for name in SOLVER_MODULES:
        monkeypatch.setitem(sys.modules, name, None)
