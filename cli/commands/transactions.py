"""``klamm transactions``: shows them, finds those that hang, ends them. Options are those of kafka-transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from typer._click.exceptions import UsageError

from cli.framework.command import CommandGroup
from cli.framework.completing import complete_topics, one_of
from cli.framework.invocation import Invocation
from cli.framework.option_values import seconds_option
from cli.framework.options import Asks, Needs
from cli.output.report import Report

if TYPE_CHECKING:
    from engine.admin.cluster.wire import WireCluster
    from engine.admin.transactions.ending import Marker
    from engine.common.model import TopicPartition

group = CommandGroup("transactions", "Transactions: list, describe, find those that hang, and end them.")

_READS = Needs(cluster=True, asks=Asks.BROKERS)
_CHANGES = Needs(cluster=True, changes=True, asks=Asks.BROKERS)
_STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "PrepareEpochFence")

Ids = Annotated[list[str] | None, typer.Argument(metavar="TRANSACTIONAL-ID", help="Transactional ids of producers.")]
IdOptions = Annotated[
    list[str] | None,
    typer.Option("--transactional-id", metavar="ID", help="The same, as in Kafka's tool; may be repeated."),
]
PartitionName = Annotated[str | None, typer.Argument(metavar="TOPIC-PARTITION", help="A partition, such as orders-3.")]
Topic = Annotated[
    str | None,
    typer.Option("--topic", metavar="T", help="The topic, as in Kafka's tool.", autocompletion=complete_topics),
]
Partition = Annotated[
    int | None, typer.Option("--partition", metavar="P", min=0, help="The number of a partition of --topic.")
]
Broker = Annotated[
    int | None,
    typer.Option("--broker-id", "--broker", metavar="ID", help="Ask this broker's replicas instead of the leaders."),
]


@group.command(
    "list",
    needs=_READS,
    examples=(
        "klamm transactions list",
        "klamm transactions list --state Ongoing,PrepareCommit",
        "klamm transactions list --duration-filter 5m -o json",
    ),
)
async def list_transactions(
    invocation: Invocation,
    duration_filter: Annotated[
        str | None,
        typer.Option("--duration-filter", metavar="TIME", help="Only transactions that have been open for longer."),
    ] = None,
    state: Annotated[
        list[str] | None,
        typer.Option("--state", metavar="S[,…]", help="Only these states.", autocompletion=one_of(*_STATES)),
    ] = None,
    producer_id: Annotated[
        list[int] | None,
        typer.Option("--producer-id", metavar="N", min=0, help="Only this producer's; may be repeated."),
    ] = None,
) -> Report:
    """List the transactional ids by name.

    It asks all brokers, because each coordinates some. Exits with 3 or 4 if one does not report its transactions; it
    still shows those of the others.
    """
    from cli.framework.cluster_session import open_cluster
    from cli.views.transactions import list_report
    from engine.admin.transactions.reading import TransactionFilter, parse_states
    from engine.admin.transactions.reading import list_transactions as read

    longer = None if duration_filter is None else int(seconds_option("--duration-filter", duration_filter) * 1000)
    wanted = TransactionFilter(parse_states(state or ()), tuple(producer_id or ()), longer)
    async with open_cluster(invocation) as cluster:
        listed = await read(await cluster.wire(), wanted)
        cluster.may_lack_unseen = cluster.is_somebody
    return list_report(listed.transactions, exit_code=invocation.tell_failures(listed.failures))


@group.command(
    "describe",
    needs=_READS,
    examples=(
        "klamm transactions describe payments-1",
        "klamm transactions describe --transactional-id payments-1 -o json",
    ),
)
async def describe(invocation: Invocation, ids: Ids = None, transactional_id: IdOptions = None) -> Report:
    """Show a transactional id: its producer, state, time-out, and the partitions of its open transaction.

    Of a transaction that is ending, it shows the partitions that still wait for their marker. If an id that you name
    does not exist, it shows the others and exits with 2.
    """
    from cli.framework.cluster_session import open_cluster
    from cli.views.transactions import descriptions_report
    from engine.admin.transactions.reading import TransactionDescription, describe_transactions, transaction_failure

    names = _ids(ids, transactional_id)
    async with open_cluster(invocation) as cluster:
        answers = await describe_transactions(await cluster.wire(), names)
    failures = [
        transaction_failure(name, why) for name, why in answers.items() if not isinstance(why, TransactionDescription)
    ]
    descriptions = [description for description in answers.values() if isinstance(description, TransactionDescription)]
    return descriptions_report(descriptions, exit_code=invocation.tell_failures(failures))


@group.command(
    "producers",
    needs=_READS,
    examples=(
        "klamm transactions producers orders-3",
        "klamm transactions producers --topic orders",
        "klamm transactions producers --topic orders --partition 3 --broker-id 2",
    ),
)
async def producers(
    invocation: Invocation,
    name: PartitionName = None,
    topic: Topic = None,
    partition: Partition = None,
    broker_id: Broker = None,
) -> Report:
    """Show who has written to a partition lately: each producer, and where its open transaction begins.

    With --topic alone, all its partitions. Kafka's name for the command is describe-producers.
    """
    from cli.framework.cluster_session import open_cluster
    from cli.views.transactions import producers_report
    from engine.admin.cluster.errors import Unknown
    from engine.admin.topics.selection import TopicSelection
    from engine.admin.transactions.ending import partition_failure
    from engine.admin.transactions.hanging import partitions_of
    from engine.admin.transactions.reading import describe_producers

    topic, partition = _partition(name, topic, partition)
    async with open_cluster(invocation) as cluster:
        wire = await cluster.wire()
        wanted = await partitions_of(wire, TopicSelection((topic,)), partition)
        answers = await describe_producers(wire, wanted, broker_id=broker_id)
    failures = [partition_failure(name, why) for name, why in answers.items() if isinstance(why, Unknown)]
    by_partition = {name: answer for name, answer in answers.items() if not isinstance(answer, Unknown)}
    return producers_report(by_partition, exit_code=invocation.tell_failures(failures))


@group.command(
    "find-hanging",
    needs=_READS,
    examples=(
        "klamm transactions find-hanging",
        "klamm transactions find-hanging --topic 'orders.*' --max-transaction-timeout 1h",
        "klamm transactions find-hanging --broker-id 2",
    ),
)
async def find_hanging(
    invocation: Invocation,
    broker_id: Broker = None,
    max_transaction_timeout: Annotated[
        str,
        typer.Option(
            "--max-transaction-timeout",
            metavar="TIME",
            help="Leave out those that wrote a record within this time: they may still end.",
        ),
    ] = "15m",
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic", metavar="REGEX", help="Only these topics; may be repeated.", autocompletion=complete_topics
        ),
    ] = None,
    partition: Partition = None,
) -> Report:
    """Find transactions that will never end: open in a partition, but unknown to their coordinator.

    They block readers of committed records, and the log cleaner, forever. It looks at every partition unless --topic or
    --broker-id names some. Exits with 1 if it finds one. End it with: klamm transactions abort
    """
    from cli.framework.cluster_session import open_cluster
    from cli.views.transactions import hanging_report
    from engine.admin.log_dirs.describing import note_topics_left_out
    from engine.admin.topics.selection import select_topics
    from engine.admin.transactions.hanging import find_hanging as find
    from engine.common.acl import AclOperation

    if partition is not None and not topic:
        raise UsageError("--partition needs --topic")
    older_ms = int(seconds_option("--max-transaction-timeout", max_transaction_timeout) * 1000)
    selection = select_topics(topic or [])
    async with open_cluster(invocation) as cluster:
        hanging = await find(
            await cluster.wire(), selection, partition=partition, broker_id=broker_id, older_than_ms=older_ms
        )
        if selection.wants_list and cluster.may_hide_topics:
            # As brokers list them: ZooKeeper lists those too that they hide.
            listed = [entry.name or "" for entry in (await (await cluster.wire()).metadata(None)).topics]
            brokers = None if broker_id is None else [broker_id]
            await note_topics_left_out(cluster, listed, selection.choose, brokers, AclOperation.READ)
    return hanging_report(hanging.transactions, exit_code=invocation.tell_failures(hanging.failures))


@group.command(
    "abort",
    needs=_CHANGES,
    examples=(
        "klamm transactions abort orders-3 --start-offset 1204 --dry-run",
        "klamm transactions abort --topic orders --partition 3 --start-offset 1204 --yes",
        "klamm transactions abort orders-3 --producer-id 4001 --producer-epoch 2 --coordinator-epoch 7 --yes",
    ),
)
async def abort(
    invocation: Invocation,
    name: PartitionName = None,
    topic: Topic = None,
    partition: Partition = None,
    start_offset: Annotated[
        int | None, typer.Option("--start-offset", metavar="N", min=0, help="Where the transaction begins.")
    ] = None,
    producer_id: Annotated[
        int | None, typer.Option("--producer-id", metavar="N", min=0, help="Its producer, instead of --start-offset.")
    ] = None,
    producer_epoch: Annotated[
        int | None, typer.Option("--producer-epoch", metavar="N", min=0, max=32767, help="The producer's epoch.")
    ] = None,
    coordinator_epoch: Annotated[
        int | None,
        typer.Option("--coordinator-epoch", metavar="N", min=0, help="As klamm transactions producers shows it."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Even if its coordinator will end it, or nothing is known about it.")
    ] = False,
) -> Report:
    """End a hanging transaction in one partition: write the marker that its coordinator never will.

    Its records stay in the log; readers of committed records leave them out. klamm refuses if the coordinator still has
    the transaction with this partition: if it were aborted here and committed elsewhere, readers would see part of it.
    """
    from cli.framework.cluster_session import open_cluster
    from cli.views.transactions import aborted_report
    from engine.admin.transactions.ending import EndResult
    from engine.admin.transactions.ending import abort as end

    where = _one_partition(name, topic, partition)
    explicit = (producer_id, producer_epoch, coordinator_epoch)
    if (start_offset is None) == (None in explicit) or (
        start_offset is not None and any(value is not None for value in explicit)
    ):
        raise UsageError("give --start-offset, or all of --producer-id, --producer-epoch and --coordinator-epoch")
    async with open_cluster(invocation, for_change=True) as cluster:
        marker = await _marker(await cluster.wire(), where, start_offset, explicit, is_forced=force)
        change = f"abort the transaction of producer {marker.producer_id} in {where} in {cluster.target.title}"
        if not invocation.confirm(change, is_destructive=True):
            return aborted_report(marker, EndResult.WOULD_BE_ABORTED)
        await end(cluster, marker)
    return aborted_report(marker, EndResult.ABORTED)


async def _marker(
    wire: WireCluster,
    where: TopicPartition,
    start_offset: int | None,
    explicit: tuple[int | None, int | None, int | None],
    *,
    is_forced: bool,
) -> Marker:
    from engine.admin.topics.selection import TopicSelection
    from engine.admin.transactions.ending import marker_for_offset, marker_for_producer
    from engine.admin.transactions.hanging import partitions_of

    await partitions_of(wire, TopicSelection((where.topic,)), where.partition)
    if start_offset is not None:
        return await marker_for_offset(wire, where, start_offset, is_forced=is_forced)
    producer_id, producer_epoch, coordinator_epoch = explicit
    assert producer_id is not None and producer_epoch is not None and coordinator_epoch is not None
    return await marker_for_producer(wire, where, producer_id, producer_epoch, coordinator_epoch, is_forced=is_forced)


@group.command(
    "force-terminate",
    needs=_CHANGES,
    examples=(
        "klamm transactions force-terminate payments-1 --dry-run",
        "klamm transactions force-terminate --transactional-id payments-1 --yes",
    ),
)
async def force_terminate(invocation: Invocation, ids: Ids = None, transactional_id: IdOptions = None) -> Report:
    """End the open transaction of a transactional id, and fence its producer: what it sends later is refused.

    An open transaction is aborted in all its partitions; one that is being committed is committed. A producer that is
    still alive stops with an error, so stop the application first if you can.
    """
    from cli.framework.cluster_session import open_cluster
    from cli.views.transactions import terminated_report, termination_lines
    from engine.admin.transactions.ending import EndResult, describe_to_terminate
    from engine.admin.transactions.ending import force_terminate as end

    names = _ids(ids, transactional_id)
    if len(names) != 1:
        raise UsageError("give one transactional id")
    async with open_cluster(invocation, for_change=True) as cluster:
        before = await describe_to_terminate(await cluster.wire(), names[0])
        change = f"fence the producer of {names[0]} in {cluster.target.title}"
        if not invocation.confirm(change, termination_lines(before), is_destructive=True):
            return terminated_report(before, before, EndResult.WOULD_BE_TERMINATED)
        after = await end(cluster, names[0])
    return terminated_report(before, after, EndResult.TERMINATED)


group.put_in_order("list", "describe", "producers", "find-hanging", "abort", "force-terminate")


def _ids(names: list[str] | None, options: list[str] | None) -> list[str]:
    wanted = list(dict.fromkeys([*(names or ()), *(options or ())]))
    if not wanted or "" in wanted:
        raise UsageError("give a transactional id")
    return wanted


def _partition(name: str | None, topic: str | None, partition: int | None) -> tuple[str, int | None]:
    """Return topic and partition, given as one word or as two options."""
    if (name is None) == (topic is None) or (name is not None and partition is not None):
        raise UsageError("give TOPIC-PARTITION, or --topic and --partition")
    if topic is not None:
        return topic, partition
    assert name is not None
    first, dash, number = name.rpartition("-")
    if not dash or not first or not number.isdecimal():
        raise UsageError(f"{name!r} is not a partition: write TOPIC-PARTITION, such as orders-3, or give --topic")
    return first, int(number)


def _one_partition(name: str | None, topic: str | None, partition: int | None) -> TopicPartition:
    from engine.common.model import TopicPartition

    topic, partition = _partition(name, topic, partition)
    if partition is None:
        raise UsageError("--topic needs --partition")
    return TopicPartition(topic, partition)
