"""The plan that is open in the dashboard: made here, or read from a file; or why it cannot be read. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from engine.admin.cluster.errors import AdminError
from engine.admin.reassignment.plan_runs import moves_between
from engine.admin.reassignment.reassignment_file import PartitionMove, parse_plan
from engine.admin.reassignment.waves import WaveCaps, WaveMove, waves_of
from engine.common.model import TopicPartition
from plans.digest import plan_digest
from plans.errors import BadPlanFile
from plans.explaining import explanations, lines_of_file
from plans.plan_file import MadePlan, PlanFile, decode_plan, encode_plan
from plans.summary import PlannedMove, moves_of
from tui.operations.plan_commands import making_words
from tui.remedies import planner_words

NO_ENVELOPE = "klamm: missing"
"""How the planner's error about a plain reassignment file of Kafka begins."""


@dataclass(frozen=True, slots=True)
class OpenedPlan:
    """A plan. One without ``file`` is a plain reassignment file of Kafka, which has targets alone.

    Attributes:
        path: None until it is saved.
        text: the content of the file, now or once it is saved.
        targets: where the plan wants each partition.
        moves: the same with where each comes from; empty without ``file``.
        wave_of: the wave of each partition, with the default caps.
        made: what the planner knew; None for a plan from a file.
        error: why it cannot be read.
        capacity_file: the file with the capacities of a plan that was made here.
    """

    path: Path | None = None
    text: str = ""
    targets: tuple[PartitionMove, ...] = ()
    file: PlanFile | None = None
    moves: tuple[WaveMove, ...] = ()
    planned: tuple[PlannedMove, ...] = ()
    wave_of: Mapping[TopicPartition, int] = field(default_factory=dict)
    wave_count: int = 0
    made: MadePlan | None = None
    error: str = ""
    capacity_file: Path | None = None

    @property
    def name(self) -> str:
        """Its name: that of its file, or its strategy."""
        if self.path is not None:
            return self.path.name
        return "a new plan" if self.file is None else f"a new {self.file.klamm.strategy} plan"

    @property
    def notes(self) -> tuple[str, ...]:
        return () if self.made is None else self.made.notes

    @property
    def digest(self) -> str:
        return plan_digest(self.text)

    @property
    def making_words(self) -> list[str]:
        """The words of the command that makes the same plan; none if they are not known."""
        if self.file is None:
            return []
        return making_words(self.file.klamm.strategy, self.file.klamm.options, self.path, self.capacity_file)

    def explained(self, name: TopicPartition) -> tuple[str, ...]:
        """Return why a partition of the plan moves, as far as it is known."""
        if self.made is not None:
            return explanations(self.made, (str(name),))
        if self.file is not None:
            return lines_of_file(self.file, name)
        target = next((partition for partition in self.targets if partition.name == name), None)
        return () if target is None else (f"{name}: becomes {', '.join(map(str, target.replicas))}",)


def plan_made(made: MadePlan, capacity_file: Path | None = None) -> OpenedPlan:
    sizes = {partition.name: partition.size for partition in made.problem.partitions}
    return replace(_opened(None, encode_plan(made.plan), made.plan, sizes, made), capacity_file=capacity_file)


def read_plan_file(path: Path) -> OpenedPlan:
    """Read a plan, klamm's own or Kafka's; ``error`` says what is wrong with it."""
    try:
        text = path.read_text(encoding="utf-8")
        try:
            return _opened(path, text, decode_plan(text), {}, None)
        except BadPlanFile as error:
            if not str(error).startswith(NO_ENVELOPE):
                return OpenedPlan(path, error=planner_words(f"{error} — {error.hint}" if error.hint else str(error)))
            return OpenedPlan(path, text, parse_plan(text, str(path)))
    except OSError as error:
        return OpenedPlan(path, error=f"{path} cannot be read: {error.strerror or error}")
    except (UnicodeDecodeError, AdminError) as error:
        return OpenedPlan(path, error=str(error))


def _opened(
    path: Path | None, text: str, file: PlanFile, sizes: Mapping[TopicPartition, int | None], made: MadePlan | None
) -> OpenedPlan:
    moves = tuple(
        replace(move, size_bytes=sizes.get(move.name)) for move in moves_between(file.klamm.rollback, file.partitions)
    )
    waves = waves_of(moves, WaveCaps())
    targets, planned = tuple(move.move for move in moves), tuple(moves_of(file, sizes))
    wave_of = {move.name: number for number, wave in enumerate(waves, 1) for move in wave}
    return OpenedPlan(path, text, targets, file, moves, planned, wave_of, len(waves), made)
