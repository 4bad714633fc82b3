"""Operations on the data of partitions: deletes old records, ends hanging transactions, compares replicas."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import AdminError, BadRequest
from engine.admin.records.deletion import DeletionResult, RecordsDeletion, delete_records, preview_deletion
from engine.admin.replicas.verification import PartitionVerification, verify_topics
from engine.admin.topics.selection import select_topics
from engine.admin.transactions.ending import EndResult, Marker, abort, marker_for_offset
from engine.admin.transactions.hanging import OpenTransaction, find_holding
from engine.common.model import TopicPartition
from engine.common.quantities import counted
from tui.drawing.cells import NO_DATA, Cell
from tui.drawing.units import count, size
from tui.operations.operation import (
    Operation,
    Outcome,
    Prepared,
    command_text,
    failure_text,
    failure_texts,
    repeated,
    result_cell,
    shortened,
)
from tui.operations.topics import whole_number

_GOOD = (DeletionResult.DELETED, DeletionResult.NOTHING_TO_DO)


@dataclass(frozen=True, slots=True)
class DeleteRecords(Operation):
    """Deletes all records before an offset; -1 means all that are committed."""

    names: tuple[TopicPartition, ...]
    before_offset: int
    title: str = "Delete records"

    @staticmethod
    def of(names: tuple[TopicPartition, ...], before: str) -> DeleteRecords:
        """Return the operation that a form asks for; raises BadRequest if it is no offset."""
        offset = whole_number("the offset", before)
        if offset is None or offset < -1:
            raise BadRequest("give an offset, or -1 for all that are committed")
        return DeleteRecords(names, offset)

    async def prepare(self, cluster: Cluster) -> Prepared:
        previews = await preview_deletion(cluster, dict.fromkeys(self.names, self.before_offset))
        going = [preview for preview in previews if preview.result is DeletionResult.WOULD_BE_DELETED]
        if not going:
            return Prepared("there is no record before this offset")
        records = sum(deletion.records for deletion in going)

        async def run(cluster: Cluster) -> Outcome:
            rows = tuple(_row(deletion) for deletion in await delete_records(cluster, previews))
            return Outcome(self.title, ("partition", "before", "records", "result", "why"), rows)

        return Prepared(
            f"Delete {count(records)} records of {counted(len(going), 'partition')} in {cluster.target.name}?",
            shortened([_line(deletion) for deletion in going]),
            ("deleted records are gone for good, on every replica",),
            "; ".join(self._commands(cluster)),
            typed=str(going[0].name) if len(going) == 1 else f"{len(going)} partitions",
            run=run,
        )

    def _commands(self, cluster: Cluster) -> list[str]:
        """Return a command for each topic: the command takes one."""
        commands = []
        for topic in dict.fromkeys(name.topic for name in self.names):
            partitions = repeated("--partition", (name.partition for name in self.names if name.topic == topic))
            words = ["records", "delete", "--topic", topic, *partitions, "--before-offset", str(self.before_offset)]
            commands.append(command_text(words, cluster.target))
        return commands


@dataclass(frozen=True, slots=True)
class AbortHanging(Operation):
    """Ends the transactions that hold partitions up and that no coordinator will ever end."""

    names: tuple[TopicPartition, ...]
    title: str = "Abort hanging transactions"

    async def prepare(self, cluster: Cluster) -> Prepared:
        wire = await cluster.wire()
        holding = await find_holding(wire, self.names)
        hanging = [transaction for transaction in holding.transactions if transaction.is_hanging]
        others = tuple(_hanging_line(transaction) for transaction in holding.transactions if not transaction.is_hanging)
        if not hanging:
            return Prepared("no transaction hangs here", (*others, *failure_texts(holding.failures)))
        markers = [await marker_for_offset(wire, transaction.name, transaction.start_offset) for transaction in hanging]

        async def run(cluster: Cluster) -> Outcome:
            cluster.check_may_change()
            rows = [await _aborted(cluster, marker) for marker in markers]
            return Outcome(self.title, ("partition", "begins at", "producer", "result", "why"), tuple(rows))

        begun = [(str(transaction.name), "--start-offset", str(transaction.start_offset)) for transaction in hanging]
        commands = [["transactions", "abort", *words] for words in begun]
        return Prepared(
            f"Abort {counted(len(hanging), 'hanging transaction')} in {cluster.target.name}?",
            shortened([_hanging_line(transaction) for transaction in hanging]) + others,
            (
                "its records stay in the log; readers of committed records leave them out",
                *failure_texts(holding.failures),
            ),
            "; ".join(command_text(words, cluster.target) for words in commands),
            typed=str(hanging[0].name) if len(hanging) == 1 else f"{len(hanging)} transactions",
            run=run,
        )


def _hanging_line(transaction: OpenTransaction) -> str:
    begun = (
        f"{transaction.name}  producer {transaction.producer.producer_id} from offset {count(transaction.start_offset)}"
    )
    if transaction.is_hanging or transaction.description is None:
        return f"{begun}: no coordinator knows it"
    return (
        f"{begun}: {transaction.transactional_id} is {transaction.description.state}, and its coordinator will end it"
    )


async def _aborted(cluster: Cluster, marker: Marker) -> tuple[Cell, ...]:
    why = ""
    try:
        await abort(cluster, marker)
    except AdminError as error:
        why = failure_text(error)
    start = NO_DATA if marker.start_offset is None else Cell(count(marker.start_offset))
    result = result_cell("failed" if why else EndResult.ABORTED, is_good=not why)
    return Cell(str(marker.name)), start, Cell(str(marker.producer_id)), result, Cell(why)


def _line(deletion: RecordsDeletion) -> str:
    about = "" if deletion.estimated_bytes is None else f", about {size(deletion.estimated_bytes)}"
    offsets = f"{count(deletion.start_offset)} → {count(deletion.before_offset)}"
    return f"{deletion.name}  {offsets}: {counted(deletion.records, 'record')}{about}"


def _row(deletion: RecordsDeletion) -> tuple[Cell, ...]:
    return (
        Cell(str(deletion.name)),
        NO_DATA if deletion.low_watermark is None else Cell(count(deletion.low_watermark)),
        Cell(count(deletion.records)),
        result_cell(
            deletion.result, is_good=deletion.result in _GOOD, is_pending=deletion.result is DeletionResult.UNDER_WAY
        ),
        Cell(deletion.error or ""),
    )


@dataclass(frozen=True, slots=True)
class VerifyReplicas(Operation):
    """The replicas of all partitions of some topics, or of ``only`` one, for which there is no command."""

    topics: tuple[str, ...]
    only: TopicPartition | None = None
    title: str = "Verify replicas"
    asks: ClassVar[bool] = False

    async def prepare(self, cluster: Cluster) -> Prepared:
        words = ["replicas", "verify", *repeated("--topic", self.topics)]
        subject = self.topics[0] if len(self.topics) == 1 else counted(len(self.topics), "topic")
        command = "" if self.only else command_text(words, cluster.target)
        return Prepared(f"Compare the replicas of {self.only or subject}", command=command, run=self._run)

    async def _run(self, cluster: Cluster) -> Outcome:
        results = await verify_topics(cluster, select_topics(self.topics), lambda compared: None, only=self.only)
        rows = tuple(_verified_row(result) for result in results)
        bad = sum(not result.is_good for result in results)
        note = f"{counted(bad, 'partition')} differ or cannot be read" if bad else "all replicas agree"
        return Outcome(self.title, ("partition", "from", "to", "result", "replicas"), rows, (), (note,))


def _verified_row(verified: PartitionVerification) -> tuple[Cell, ...]:
    words = []
    for replica in verified.replicas:
        verdict = replica.error or ("agrees" if replica.agrees else "differs")
        words.append(f"{replica.broker} {verdict}")
    return (
        Cell(str(TopicPartition(verified.topic, verified.partition))),
        NO_DATA if verified.from_offset is None else Cell(count(verified.from_offset)),
        NO_DATA if verified.to_offset is None else Cell(count(verified.to_offset)),
        result_cell("agree" if verified.is_good else "differ", is_good=verified.is_good),
        Cell("; ".join(words)),
    )
