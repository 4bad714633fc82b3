"""Leader elections: preferred ones, or (unclean) any live replica."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from engine.admin.cluster.connection import Cluster
from engine.admin.elections.running import check_election, preview_election, run_election
from engine.admin.elections.scope_and_result import ElectionResult, ElectionScope, ElectionType, PartitionElection
from engine.common.model import NO_LEADER
from engine.common.quantities import counted
from tui.drawing.cells import Cell
from tui.operations.operation import Operation, Outcome, Prepared, command_text, flow_text, result_cell, shortened

_COLUMNS = ("partition", "before", "after", "preferred", "result", "why")


@dataclass(frozen=True, slots=True)
class Elect(Operation):
    """An election among the partitions of a scope."""

    election: ElectionType
    scope: ElectionScope
    leaders: Mapping[int, int] = field(default_factory=dict, compare=False)
    """How many partitions each broker leads now, as far as that is known."""

    @property
    def title(self) -> str:
        return f"Elect {self.election.value} leaders"

    async def prepare(self, cluster: Cluster) -> Prepared:
        previews = await preview_election(cluster, self.election, self.scope)
        check_election(cluster, self.election)
        needed = [preview for preview in previews if preview.is_needed]
        able = [election for election in needed if election.obstacle is None]
        unable = [election for election in needed if election.obstacle is not None]
        is_unclean = self.election is ElectionType.UNCLEAN
        command = command_text(["elect", self.election.value, *self._options()], cluster.target)
        if not able:
            why = "no replica can be elected" if needed else _not_needed(len(previews), is_unclean=is_unclean)
            return Prepared(why, shortened([str(election) for election in needed]), command=command)

        async def run(cluster: Cluster) -> Outcome:
            results = await run_election(cluster, self.election, needed)
            elected = [(result.before, result.after) for result in results if result.result is ElectionResult.ELECTED]
            sums = (sum_of(elected, self.leaders),) if elected else ()
            return Outcome(self.title, _COLUMNS, tuple(map(_row, results)), sums=sums)

        warnings = ["records that only dead replicas have are lost for good"] if is_unclean else []
        warnings += [f"{counted(len(unable), 'partition')} cannot be elected now"] if unable else []
        return Prepared(
            f"Elect {self.election.value} leaders of {counted(len(able), 'partition')} in {cluster.target.name}?",
            (
                sum_of([(election.before, election.after) for election in able], self.leaders),
                *shortened([str(election) for election in [*able, *unable]]),
            ),
            tuple(warnings),
            command,
            typed=None if not is_unclean else str(able[0].name) if len(able) == 1 else f"{len(able)} partitions",
            run=run,
        )

    def _options(self) -> list[str]:
        if self.scope.is_all:
            return ["--all-topic-partitions"]
        options = []
        for topic, partition in self.scope.wanted:
            options += ["--topic", topic] + ([] if partition is None else ["--partition", str(partition)])
        return options


def sum_of(moved: Sequence[tuple[int, int]], leaders: Mapping[int, int]) -> str:
    """Return what all elections together do, given each leader before and after: who gets leaders, and who loses them.

    ``31 leaders: broker 2 from 1 to 32, broker 0 from 41 to 31, broker 1 from 41 to 31, broker 3 from 42 to 31``
    """
    gained = Counter(after for _, after in moved)
    lost = Counter(before for before, _ in moved if before != NO_LEADER)
    return f"{counted(len(moved), 'leader')}: {flow_text(gained, lost, leaders)}"


def _not_needed(number: int, *, is_unclean: bool) -> str:
    which = "the partition" if number == 1 else f"each of the {counted(number, 'partition')}"
    if is_unclean:
        return f"{which} has a leader: no unclean election is needed"
    return f"{which} is led by its preferred replica already"


def _row(election: PartitionElection) -> tuple[Cell, ...]:
    is_good = election.result in (ElectionResult.ELECTED, ElectionResult.NOT_NEEDED)
    result = result_cell(election.result, is_good=is_good, is_pending=election.result is ElectionResult.UNDER_WAY)
    leaders = ("none" if broker == NO_LEADER else str(broker) for broker in (election.before, election.after))
    return (
        Cell(str(election.name)),
        *map(Cell, leaders),
        Cell(str(election.preferred)),
        result,
        Cell(election.error or ""),
    )
