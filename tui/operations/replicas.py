"""Replicas compared, batch by batch. It only reads, so it asks for no confirmation."""

from __future__ import annotations

from dataclasses import dataclass

from engine.admin.cluster.connection import Cluster
from engine.admin.replicas.verification import PartitionVerification, verify_topics
from engine.admin.topics.selection import select_topics
from engine.common.model import TopicPartition
from engine.common.quantities import counted
from tui.cells import NO_DATA, Cell
from tui.operations.operation import Outcome, Prepared, command_text, result_cell
from tui.units import count


@dataclass(frozen=True, slots=True)
class VerifyReplicas:
    """The replicas of all partitions of some topics, or of ``only`` one, for which there is no command."""

    topics: tuple[str, ...]
    only: TopicPartition | None = None
    title: str = "Verify replicas"
    asks: bool = False

    async def prepare(self, cluster: Cluster) -> Prepared:
        words = ["replicas", "verify"]
        for topic in self.topics:
            words += ["--topic", topic]
        what = self.topics[0] if len(self.topics) == 1 else counted(len(self.topics), "topic")
        command = "" if self.only else command_text(words, cluster.target)
        return Prepared(f"Compare the replicas of {self.only or what}", command=command, run=self._run)

    async def _run(self, cluster: Cluster) -> Outcome:
        results = await verify_topics(cluster, select_topics(self.topics), lambda compared: None, only=self.only)
        rows = tuple(_row(one) for one in results)
        bad = sum(not one.is_good for one in results)
        note = f"{counted(bad, 'partition')} differ or cannot be read" if bad else "all replicas agree"
        return Outcome(self.title, ("partition", "from", "to", "result", "replicas"), rows, (), (note,))


def _row(one: PartitionVerification) -> tuple[Cell, ...]:
    words = []
    for replica in one.replicas:
        verdict = replica.error or ("agrees" if replica.agrees else "differs")
        words.append(f"{replica.broker} {verdict}")
    return (
        Cell(str(TopicPartition(one.topic, one.partition))),
        NO_DATA if one.from_offset is None else Cell(count(one.from_offset)),
        NO_DATA if one.to_offset is None else Cell(count(one.to_offset)),
        result_cell("agree" if one.is_good else "differ", is_good=one.is_good),
        Cell("; ".join(words)),
    )
