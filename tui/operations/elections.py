"""Leader elections: preferred ones, or (unclean) any live replica."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from engine.admin.cluster.connection import Cluster
from engine.admin.elections.running import check_election, preview_election, run_election
from engine.admin.elections.values import (
    ElectionPreview,
    ElectionResult,
    ElectionScope,
    ElectionType,
    PartitionElection,
)
from engine.common.model import NO_LEADER
from engine.common.quantities import counted
from tui.cells import Cell
from tui.operations.operation import Outcome, Prepared, command_text, result_cell, shortened

_COLUMNS = ("partition", "before", "after", "preferred", "result", "why")


@dataclass(frozen=True, slots=True)
class Elect:
    """An election among the partitions of a scope."""

    election: ElectionType
    scope: ElectionScope
    asks: bool = True

    @property
    def title(self) -> str:
        return f"Elect {self.election.value} leaders"

    async def prepare(self, cluster: Cluster) -> Prepared:
        previews = await preview_election(cluster, self.election, self.scope)
        await check_election(cluster, self.election)
        needed = [one for one in previews if one.is_needed]
        able = [one for one in needed if one.obstacle is None]
        is_unclean = self.election is ElectionType.UNCLEAN
        command = command_text(["elect", self.election.value, *self._options()], cluster.target)
        if not able:
            why = "nobody can be elected" if needed else _not_needed(len(previews), is_unclean=is_unclean)
            return Prepared(why, shortened([str(one) for one in needed]), command=command)

        async def run(cluster: Cluster) -> Outcome:
            return _outcome(self.title, await run_election(cluster, self.election, needed))

        stuck = len(needed) - len(able)
        warnings = ["records that only dead replicas have are lost for good"] if is_unclean else []
        warnings += [f"{counted(stuck, 'partition')} cannot be elected now"] if stuck else []
        return Prepared(
            f"Elect {self.election.value} leaders of {counted(len(able), 'partition')} in {cluster.target.name}?",
            (
                sum_of(able),
                *shortened([str(one) for one in [*able, *(one for one in needed if one.obstacle is not None)]]),
            ),
            tuple(warnings),
            command,
            typed=_word(able) if is_unclean else None,
            run=run,
        )

    def _options(self) -> list[str]:
        if self.scope.is_all:
            return ["--all-topic-partitions"]
        options = []
        for topic, partition in self.scope.wanted:
            options += ["--topic", topic] + ([] if partition is None else ["--partition", str(partition)])
        return options


def sum_of(able: Sequence[ElectionPreview]) -> str:
    """Return what all elections together do: who gets how many leaders, and who gives them."""
    gained = Counter(one.after for one in able)
    lost = Counter(one.before for one in able if one.before != NO_LEADER)
    gained, lost = gained - lost, lost - gained
    told = [f"broker {broker} gets {count}" for broker, count in sorted(gained.items())]
    told += [f"broker {broker} gives {count}" for broker, count in sorted(lost.items())]
    return f"{counted(len(able), 'leader')}: {', '.join(told) or 'each broker has as many as before'}"


def _word(able: list[ElectionPreview]) -> str:
    return str(able[0].name) if len(able) == 1 else f"{len(able)} partitions"


def _not_needed(count: int, *, is_unclean: bool) -> str:
    which = "the partition" if count == 1 else f"each of the {counted(count, 'partition')}"
    if is_unclean:
        return f"{which} has a leader: no unclean election is needed"
    return f"{which} is led by its preferred replica already"


def _outcome(title: str, results: list[PartitionElection]) -> Outcome:
    good = (ElectionResult.ELECTED, ElectionResult.NOT_NEEDED)
    rows = tuple(
        (
            Cell(str(one.name)),
            Cell(_leader(one.before)),
            Cell(_leader(one.after)),
            Cell(str(one.preferred)),
            result_cell(one.result, is_good=one.result in good, is_pending=one.result is ElectionResult.UNDER_WAY),
            Cell(one.error or ""),
        )
        for one in results
    )
    return Outcome(title, _COLUMNS, rows)


def _leader(broker: int) -> str:
    return "none" if broker == NO_LEADER else str(broker)
