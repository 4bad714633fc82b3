"""Transactions that hang: open in a partition, and unknown to the coordinator, so nothing will ever end them.

Such a transaction holds the last stable offset back forever: readers of committed records stop before it, and so does
the cleaner. The rules are those of ``kafka-transactions find-hanging`` (KIP-664). A transaction does not count as
hanging because something could not be read: the answer reports that as a failure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from engine.admin.cluster.errors import AdminError, NotFound, Unknown
from engine.admin.cluster.remedies import Operation, Phrase
from engine.admin.cluster.wire import WireCluster
from engine.admin.cluster.wire_failures import refuse
from engine.admin.groups.scope import as_error
from engine.admin.offsets.listing import end_offsets
from engine.admin.topics.selection import TopicSelection, topic_not_found
from engine.admin.transactions.reading import (
    PartitionProducer,
    TransactionDescription,
    TransactionFilter,
    describe_producers,
    describe_transactions,
    list_transactions,
    transaction_failure,
)
from engine.common.clock import SystemClock
from engine.common.errors import ErrorCode
from engine.common.listing import first_few
from engine.common.model import IsolationLevel, TopicPartition

MAX_TRANSACTION_TIMEOUT_MS = 900_000
"""Kafka's default of ``transaction.max.timeout.ms``: no transaction may be silent for longer."""


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction that is open in a partition, and what its coordinator says about it.

    Attributes:
        age_ms: how long ago its producer's last batch came, by the batch's time; None if the replica does not know.
        transactional_id: None if no coordinator knows the producer.
        description: of the transactional id; None if no coordinator knows it.
    """

    name: TopicPartition
    producer: PartitionProducer
    start_offset: int
    age_ms: int | None
    transactional_id: str | None = None
    description: TransactionDescription | None = None

    @property
    def is_hanging(self) -> bool:
        """Whether the coordinator will never write its marker."""
        known = self.description
        return known is None or known.producer_id != self.producer.producer_id or self.name not in known.partitions


@dataclass(frozen=True, slots=True)
class OpenTransactions:
    """The open transactions by partition and offset, and what could not be read."""

    transactions: tuple[OpenTransaction, ...]
    failures: tuple[AdminError, ...] = ()


async def find_hanging(
    wire: WireCluster,
    topics: TopicSelection,
    *,
    partition: int | None = None,
    broker_id: int | None = None,
    older_than_ms: int = MAX_TRANSACTION_TIMEOUT_MS,
) -> OpenTransactions:
    """Return the transactions that hang in these partitions, and have had no record for ``older_than_ms``.

    Args:
        partition: only the partitions with this number.
        broker_id: only partitions with a replica on this broker, which is asked instead of their leaders.

    Raises:
        NotFound: a named topic does not exist.
        Unreachable: no broker answers.
    """
    names = await partitions_of(wire, topics, partition, broker_id)
    open_ones = await _open_in(wire, names, broker_id)
    old = [
        transaction
        for transaction in open_ones.transactions
        if transaction.age_ms is None or transaction.age_ms >= older_than_ms
    ]
    judged = await explained(wire, old)
    still_open = await _still_open(wire, judged.transactions, broker_id)
    hanging = tuple(transaction for transaction in still_open if transaction.is_hanging)
    return OpenTransactions(hanging, open_ones.failures + judged.failures)


async def find_holding(wire: WireCluster, names: Collection[TopicPartition]) -> OpenTransactions:
    """Return, for each partition whose last stable offset is held back, the first open transaction: the one that holds.

    Only those partitions are asked for their producers where committed and other records end at different offsets.
    """
    ends = await end_offsets(wire, names)
    stable = await end_offsets(wire, names, isolation=IsolationLevel.READ_COMMITTED)
    behind = [
        name
        for name in names
        if isinstance(end := ends[name], int) and isinstance(last := stable[name], int) and last < end
    ]
    open_ones = await _open_in(wire, behind, None)
    first: dict[TopicPartition, OpenTransaction] = {}
    for transaction in open_ones.transactions:
        first.setdefault(transaction.name, transaction)
    judged = await explained(wire, first.values())
    still_open = await _still_open(wire, judged.transactions, None)
    return OpenTransactions(still_open, open_ones.failures + judged.failures)


async def explained(wire: WireCluster, transactions: Iterable[OpenTransaction]) -> OpenTransactions:
    """Return the transactions with what their coordinators say; those about which too little is known are left out."""
    transactions = list(transactions)
    if not transactions:
        return OpenTransactions(())
    producers = tuple(dict.fromkeys(transaction.producer.producer_id for transaction in transactions))
    listed = await list_transactions(wire, TransactionFilter(producer_ids=producers))
    ids = {transaction.producer_id: transaction for transaction in listed.transactions}
    coordinators = {transaction.transactional_id: transaction.coordinator for transaction in listed.transactions}
    described = await describe_transactions(wire, coordinators, coordinators=coordinators)
    failures = list(listed.failures)
    judged = []
    for transaction in transactions:
        known = ids.get(transaction.producer.producer_id)
        if known is None:
            if not listed.failures:
                judged.append(transaction)
            continue
        description = described[known.transactional_id]
        if isinstance(description, TransactionDescription):
            judged.append(replace(transaction, transactional_id=known.transactional_id, description=description))
        elif description.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            judged.append(transaction)
        else:
            failures.append(transaction_failure(known.transactional_id, description))
    return OpenTransactions(tuple(judged), tuple(failures))


async def _still_open(
    wire: WireCluster, judged: Collection[OpenTransaction], broker_id: int | None
) -> tuple[OpenTransaction, ...]:
    """Leave out hanging ones that ended between two questions: their coordinators have just forgotten them."""
    hanging = {transaction.name for transaction in judged if transaction.is_hanging}
    again = await _open_in(wire, hanging, broker_id)
    still = {
        (transaction.name, transaction.producer.producer_id, transaction.start_offset)
        for transaction in again.transactions
    }
    return tuple(
        transaction
        for transaction in judged
        if not transaction.is_hanging
        or (transaction.name, transaction.producer.producer_id, transaction.start_offset) in still
    )


async def _open_in(wire: WireCluster, names: Iterable[TopicPartition], broker_id: int | None) -> OpenTransactions:
    described = await describe_producers(wire, sorted(names), broker_id=broker_id)
    now_ms = SystemClock().now_ms()
    transactions = [
        OpenTransaction(
            name,
            producer,
            producer.start_offset,
            None if producer.last_timestamp_ms is None else max(0, now_ms - producer.last_timestamp_ms),
        )
        for name, producers in described.items()
        if not isinstance(producers, Unknown)
        for producer in producers
        if producer.start_offset is not None
    ]
    transactions.sort(key=lambda opened: (opened.name, opened.start_offset))
    return OpenTransactions(tuple(transactions), tuple(_failures(described)))


def _failures(described: Mapping[TopicPartition, object]) -> list[AdminError]:
    """Return a failure for each reason, with the first of its partitions: a dead broker takes many along."""
    by_reason: dict[str, tuple[Unknown, list[TopicPartition]]] = {}
    for name, why in described.items():
        if isinstance(why, Unknown):
            by_reason.setdefault(str(why), (why, []))[1].append(name)
    return [as_error(why, f"partition {first_few(names, 1)}") for why, names in by_reason.values()]


async def partitions_of(
    wire: WireCluster, topics: TopicSelection, partition: int | None, broker_id: int | None = None
) -> list[TopicPartition]:
    """Return the partitions of topics, or only those with a number or with a replica on a broker.

    Raises:
        NotFound: a topic does not exist, or none has a partition of this number.
    """
    metadata = await wire.metadata(None if topics.wants_list else topics.names)
    known = [topic for topic in metadata.topics if topic.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    for topic in known:
        if topic.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            refuse(topic.error_code, None, f"topic {topic.name}")
    if missing := topics.unmatched(topic.name or "" for topic in known):
        raise topic_not_found(missing, [topic.name or "" for topic in known])
    chosen = set(topics.choose(topic.name or "" for topic in known))
    replicas_of = {
        TopicPartition(topic.name or "", entry.partition_index): entry.replica_nodes
        for topic in known
        if topic.name in chosen
        for entry in topic.partitions
        if partition is None or entry.partition_index == partition
    }
    if partition is not None and not replicas_of:
        message = f"{', '.join(sorted(chosen))}: there is no partition {partition}"
        hint = Phrase("see them with: ", Operation.DESCRIBE_TOPICS)
        raise NotFound(message, hint=hint, topics=sorted(chosen))
    return sorted(name for name, replicas in replicas_of.items() if broker_id is None or broker_id in replicas)
