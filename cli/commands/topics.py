"""``klamm topics``. Options are those of kafka-topics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer
from typer._click.exceptions import UsageError

from cli.exit_codes import ExitCode
from cli.framework.command import CommandGroup
from cli.framework.completing import complete_topics
from cli.framework.invocation import Invocation
from cli.framework.option_values import NamedTopics, TopicOptions, TopicTexts
from cli.framework.options import Needs
from cli.framework.plan_guard import BesidePlan, minds_plan
from cli.framework.watching import Interval, Watch, watch_reports
from cli.output.format import OutputFormat
from cli.output.report import Report
from engine.common.quantities import counted, plural
from engine.common.topic_names import INTERNAL_TOPICS

if TYPE_CHECKING:
    from cli.views.kafka.topics import Settings
    from engine.admin.cluster.connection import Cluster
    from engine.admin.cluster.errors import AdminError
    from engine.admin.topics.access import TopicChanger
    from engine.admin.topics.changes import NewTopic, TopicAlteration, TopicChange
    from engine.admin.topics.describing import TopicDescription
    from engine.admin.topics.selection import TopicSelection


group = CommandGroup(
    "topics",
    "List, describe, create, alter and delete topics.",
    action_flags={f"--{word}": word for word in ("list", "describe", "create", "alter", "delete")},
)

ExcludeInternal = Annotated[bool, typer.Option("--exclude-internal", help="Leave Kafka's own topics out.")]
IfExists = Annotated[bool, typer.Option("--if-exists", help="A topic that does not exist is not an error.")]


@group.command(
    "list",
    needs=Needs(cluster=True, kafka=True),
    examples=("klamm topics list", "klamm topics list 'orders.*' --exclude-internal --bootstrap-server 127.0.0.1:9092"),
)
async def list_topics(
    invocation: Invocation,
    topics: TopicTexts = None,
    topic: TopicOptions = None,
    exclude_internal: ExcludeInternal = False,
) -> Report:
    """List the topics by name, with partitions, replication factor and bytes on disk over all replicas.

    In a pipe it prints only the names; -o csv and the other formats have everything. The brokers report sizes.
    """
    from cli.framework.cluster_session import open_cluster
    from cli.views.topics import topic_list_report
    from engine.admin.log_dirs.describing import note_topics_left_out
    from engine.admin.snapshots.topic_list import with_shapes
    from engine.admin.topics.access import topic_reader
    from engine.admin.topics.describing import list_topics as read_list
    from engine.admin.topics.selection import select_topics

    selection = select_topics([*(topics or ()), *(topic or ())])
    async with open_cluster(invocation) as cluster:
        reader = await topic_reader(cluster, on_unreadable=cluster.complain)
        listed = await read_list(reader, selection, exclude_internal=exclude_internal)
        choose = _choice(selection, exclude_internal)
        if invocation.output is OutputFormat.PLAIN:
            await note_topics_left_out(cluster, [entry.topic for entry in listed], choose)
        elif invocation.output is not OutputFormat.KAFKA:
            listed = await with_shapes(cluster, reader, listed, choose)
    return topic_list_report(listed)


@group.command(
    "describe",
    needs=Needs(cluster=True, kafka=True),
    examples=(
        "klamm topics describe orders",
        "klamm topics describe orders --watch",
        "klamm topics describe --under-replicated-partitions --zookeeper 127.0.0.1:2181",
        "klamm topics describe -o json | jq '.[].partitions[] | select(.leader == -1)'",
    ),
)
async def describe(
    invocation: Invocation,
    topics: TopicTexts = None,
    topic: TopicOptions = None,
    topic_id: Annotated[str | None, typer.Option("--topic-id", metavar="ID", help="The topic with this id.")] = None,
    under_replicated: Annotated[
        bool, typer.Option("--under-replicated-partitions", help="Only partitions with replicas out of sync.")
    ] = False,
    unavailable: Annotated[
        bool, typer.Option("--unavailable-partitions", help="Only partitions without a live leader.")
    ] = False,
    under_min_isr: Annotated[
        bool, typer.Option("--under-min-isr-partitions", help="Only partitions below their min.insync.replicas.")
    ] = False,
    at_min_isr: Annotated[
        bool, typer.Option("--at-min-isr-partitions", help="Only partitions exactly at their min.insync.replicas.")
    ] = False,
    topics_with_overrides: Annotated[
        bool, typer.Option("--topics-with-overrides", help="Only topics with settings of their own, no partitions.")
    ] = False,
    exclude_internal: ExcludeInternal = False,
    if_exists: IfExists = False,
    watch: Watch = False,
    interval: Interval = "2s",
) -> Report:
    """Show partitions with leader, replicas and in-sync replicas.

    With several filters it shows partitions that match any of them.
    """
    from cli.framework.cluster_session import open_cluster
    from cli.views.topics import topic_overrides_report, topics_as_kafka, topics_report
    from engine.admin.cluster.target import Source
    from engine.admin.log_dirs.describing import note_topics_left_out
    from engine.admin.topics.access import topic_reader
    from engine.admin.topics.describing import DescribeOptions, describe_topics
    from engine.admin.topics.selection import PartitionFilter, select_topics

    wanted = {
        PartitionFilter.UNDER_REPLICATED: under_replicated,
        PartitionFilter.UNAVAILABLE: unavailable,
        PartitionFilter.UNDER_MIN_ISR: under_min_isr,
        PartitionFilter.AT_MIN_ISR: at_min_isr,
    }
    filters = tuple(kind for kind, is_wanted in wanted.items() if is_wanted)
    if filters and topics_with_overrides:
        raise UsageError("--topics-with-overrides cannot be used with a filter of partitions")
    is_kafka = invocation.output is OutputFormat.KAFKA
    # To Kafka's tool, a setting in the brokers' files overrides the default, too.
    with_own = topics_with_overrides and not is_kafka
    options = DescribeOptions(filters, with_own, exclude_internal, if_exists, _topic_id(topic_id) if topic_id else None)
    selection = select_topics([*(topics or ()), *(topic or ())])
    async with open_cluster(invocation) as cluster:
        unknown: list[str] = []

        def unknown_settings(text: str) -> None:
            unknown.append(text)
            cluster.complain(text)

        # A named topic must be shown or refused. When all are listed, a damaged one does not hide the others.
        complain = cluster.complain if selection.wants_list else None
        reader = await topic_reader(cluster, on_unreadable=complain, on_unknown_settings=unknown_settings)
        if selection.wants_list and cluster.may_hide_topics and not is_kafka:
            # Once: what is left out of one look is left out of the next.
            listed = [entry.topic for entry in await reader.names()]
            await note_topics_left_out(cluster, listed, _choice(selection, exclude_internal))

        async def read() -> Report:
            described = await describe_topics(reader, selection, options)
            if is_kafka:
                settings = {} if filters else await _shown_settings(cluster, described)
                if topics_with_overrides:
                    described = [topic for topic in described if settings.get(topic.topic)]
                return topics_as_kafka(
                    described, settings, is_filtered=bool(filters), with_partitions=not topics_with_overrides
                )
            if topics_with_overrides:
                return topic_overrides_report(described)
            is_damaged = unknown and cluster.source is Source.ZOOKEEPER
            return topics_report(described, is_filtered=bool(filters)).ending(
                ExitCode.BAD_ANSWER if is_damaged else ExitCode.DONE
            )

        return await (watch_reports(invocation, interval, read) if watch else read())


def _choice(selection: TopicSelection, exclude_internal: bool) -> Callable[[Iterable[str]], list[str]]:
    """Return what picks the topics of a list from the names of all."""
    left_out = INTERNAL_TOPICS if exclude_internal else ()
    return lambda names: [name for name in selection.choose(names) if name not in left_out]


async def _shown_settings(cluster: Cluster, topics: Sequence[TopicDescription]) -> dict[str, Settings]:
    """Return what kafka-topics shows of topics: settings from anywhere but the defaults, as the brokers know them.

    Where ZooKeeper alone is named, the topics' own.
    """
    from cli.views.kafka.topics import settings_shown
    from engine.admin.cluster.target import Side
    from engine.admin.configs.by_wire import read_set_anywhere

    names = [topic.topic for topic in topics]
    if cluster.changes_by is not Side.WIRE or cluster.target.snapshot is not None:
        return {topic.topic: list((topic.configs or {}).items()) for topic in topics}
    settings = await read_set_anywhere(await cluster.wire(), names)
    return {name: settings_shown(entries) for name, entries in settings.items()}


def _topic_id(text: str) -> bytes:
    from engine.common.topic_id import parse_topic_id

    try:
        return parse_topic_id(text)
    except ValueError as error:
        raise UsageError(f"--topic-id: {error}") from None


OneTopic = Annotated[
    str | None, typer.Argument(metavar="TOPIC", help="Name of the topic.", autocompletion=complete_topics)
]
NewTopics = Annotated[list[str] | None, typer.Argument(metavar="TOPIC", help="Names of the topics.")]
OneTopicOption = Annotated[str | None, typer.Option("--topic", hidden=True)]
Partitions = Annotated[int | None, typer.Option("--partitions", metavar="N", help="How many partitions in all.")]
Assignment = Annotated[
    str | None,
    typer.Option(
        "--replica-assignment",
        metavar="B:B,B:B",
        help="The brokers of each partition by hand: one part per partition, the preferred leader first.",
    ),
]
Configs = Annotated[
    list[str] | None, typer.Option("--config", metavar="KEY=VALUE", help="A setting of the topic; may be repeated.")
]
Wait = Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until it is done.")]


@group.command(
    "create",
    needs=Needs(cluster=True, changes=True, kafka=True),
    examples=(
        "klamm topics create orders --partitions 6 --replication-factor 3",
        "klamm topics create orders --replica-assignment 0:1,1:2,2:0 --config retention.ms=3600000",
        "klamm topics create orders payments --partitions 6 --config retention.ms=2d --config segment.bytes=64Mi",
        "klamm topics create orders --if-not-exists --dry-run",
    ),
)
async def create(
    invocation: Invocation,
    names: NewTopics = None,
    topic: TopicOptions = None,
    partitions: Partitions = None,
    replication_factor: Annotated[
        int | None, typer.Option("--replication-factor", metavar="N", help="Replicas of each partition.")
    ] = None,
    replica_assignment: Assignment = None,
    config: Configs = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="A topic that exists already is not an error.")
    ] = False,
    disable_rack_aware: Annotated[
        bool, typer.Option("--disable-rack-aware", help="Spread replicas without regard to racks (ZooKeeper only).")
    ] = False,
) -> Report:
    """Create topics, all with the same partitions, replicas and settings.

    Without --partitions and --replication-factor the cluster's defaults are used. If one
    cannot be created, the others still are. A min.insync.replicas above the number of replicas needs --yes in a script.
    """
    from cli.framework.cluster_session import open_cluster
    from cli.views.topics import topic_changes_report
    from engine.admin.topics.access import topic_changer
    from engine.admin.topics.changes import NewTopic, check_new_topic, parse_replica_assignment, parse_topic_configs

    texts = list(dict.fromkeys([*(names or ()), *(topic or ())]))
    if not texts:
        raise UsageError("name the topics to create")
    assignment = parse_replica_assignment(replica_assignment) if replica_assignment else ()
    configs = parse_topic_configs(config or ())
    wanted = [NewTopic(name, partitions, replication_factor, assignment, configs) for name in texts]
    for new in wanted:
        check_new_topic(new)
    if invocation.output is not OutputFormat.KAFKA:
        for warning in dict.fromkeys(warning for new in wanted for warning in new.warnings):
            invocation.talk.warn(warning)
    changes: list[TopicChange] = []
    async with open_cluster(invocation, for_change=True) as cluster:
        changer = await topic_changer(cluster, is_rack_aware=not disable_rack_aware)
        # Do not announce what cannot be done: the cluster checks a dry run first.
        if invocation.is_dry_run:
            changes = [await changer.create(new, if_not_exists=if_not_exists, validate_only=True) for new in wanted]
        risks = await _min_isr_warnings(changer, wanted[0], if_not_exists=if_not_exists)
        for warning in risks if invocation.output is not OutputFormat.KAFKA else ():
            invocation.talk.warn(warning)
        code = ExitCode.DONE
        if invocation.confirm(f"create {_summary(wanted)} in {cluster.target.title}", is_destructive=bool(risks)):
            changes, refusals = await _create_each(invocation, changer, wanted, if_not_exists=if_not_exists)
            code = invocation.tell_failures(refusals)
    return topic_changes_report(changes, exit_code=code)


async def _min_isr_warnings(changer: TopicChanger, topic: NewTopic, *, if_not_exists: bool) -> tuple[str, ...]:
    """Return what ``min_isr_warnings`` says of a new topic; asks for the cluster's default factor if that counts."""
    from engine.admin.cluster.errors import AdminError
    from engine.admin.topics.values import MIN_ISR, min_isr_warnings

    factor = len(topic.assignment[0]) if topic.assignment else topic.replication_factor
    if factor is None and MIN_ISR in topic.configs:
        with suppress(AdminError):
            factor = (await changer.create(topic, if_not_exists=if_not_exists, validate_only=True)).replication_factor
    return min_isr_warnings(topic.configs, factor)


async def _create_each(
    invocation: Invocation, changer: TopicChanger, wanted: Sequence[NewTopic], *, if_not_exists: bool
) -> tuple[list[TopicChange], list[AdminError]]:
    from engine.admin.cluster.errors import NotFound, Refused

    changes: list[TopicChange] = []
    refusals: list[AdminError] = []
    for topic in wanted:
        # Those before it are done, so that only this one may still be created if the deadline comes.
        done = f"{len(changes)} of {len(wanted)} topics exist now; for the others run it again with --if-not-exists"
        invocation.left_running[:] = [done] if changes else []
        try:
            changes.append(await changer.create(topic, if_not_exists=if_not_exists))
        except (NotFound, Refused) as refusal:
            if len(wanted) == 1:
                raise
            refusals.append(refusal)
    return changes, refusals


@group.command(
    "alter",
    needs=Needs(cluster=True, changes=True, kafka=True),
    examples=(
        "klamm topics alter orders --partitions 12",
        "klamm topics alter orders --config retention.ms=1h --delete-config cleanup.policy --yes",
    ),
)
async def alter(
    invocation: Invocation,
    name: OneTopic = None,
    topic: OneTopicOption = None,
    partitions: Partitions = None,
    replica_assignment: Assignment = None,
    config: Configs = None,
    delete_config: Annotated[
        list[str] | None, typer.Option("--delete-config", metavar="KEY", help="A setting to drop.")
    ] = None,
    if_exists: IfExists = False,
    force: BesidePlan = False,
) -> Report:
    """Add partitions to a topic, or change its settings.

    With more partitions, records with a key may go to another partition than before, and no partition can be removed.
    So adding partitions needs --yes in a script, as does a setting that may lose records, or a min.insync.replicas
    above the number of replicas.
    """
    from cli.framework.cluster_session import open_cluster
    from cli.views.topics import topic_changes_report
    from engine.admin.reassignment.throttle_settings import THROTTLE_SETTINGS
    from engine.admin.topics.access import topic_changer
    from engine.admin.topics.changes import TopicAlteration, parse_replica_assignment, parse_topic_configs

    wanted = TopicAlteration(
        one_name(name, topic),
        partitions,
        parse_replica_assignment(replica_assignment) if replica_assignment else None,
        parse_topic_configs(config or ()),
        tuple(delete_config or ()),
    )
    wanted.check()
    async with open_cluster(invocation, for_change=True) as cluster:
        changer = await topic_changer(cluster)
        if not await changer.exists(wanted.name, if_exists=if_exists):
            invocation.talk.say(f"topic {wanted.name} does not exist, nothing to do")
            return topic_changes_report([])
        present = await _present_count(cluster, wanted)
        adds_none = present is not None and wanted.partition_count is not None and wanted.partition_count <= present
        if invocation.is_dry_run or adds_none or not invocation.is_confirmed:
            # The cluster refuses what cannot be done before the user reads of effects or is asked.
            change = await changer.alter(wanted, validate_only=True)
        lines, warnings, is_destructive = await _alteration_lines(cluster, wanted, present)
        for warning in warnings if invocation.output is not OutputFormat.KAFKA else ():
            invocation.talk.warn(warning)
        if wanted.is_irreversible or not THROTTLE_SETTINGS.isdisjoint((*wanted.additions, *wanted.deletions)):
            is_destructive |= await minds_plan(invocation, cluster, [wanted.name], is_forced=force)
        sentence = f"alter topic {wanted.name} in {cluster.target.title}"
        if invocation.confirm(sentence, lines if invocation.tells_details else (), is_destructive=is_destructive):
            change = await changer.alter(wanted)
    return topic_changes_report([change])


async def _present_count(cluster: Cluster, wanted: TopicAlteration) -> int | None:
    """Return how many partitions the topic has, if their number is to change and is known."""
    from engine.admin.topics.access import topic_reader

    if wanted.partition_count is None:
        return None
    shape = (await (await topic_reader(cluster)).shapes([wanted.name])).get(wanted.name)
    return None if shape is None else shape[0]


async def _alteration_lines(
    cluster: Cluster, wanted: TopicAlteration, present: int | None
) -> tuple[list[str], list[str], bool]:
    """Return what changes into what, line by line, warnings, and whether it is risky or cannot be undone."""
    from engine.admin.configs.changes import read_changes
    from engine.admin.configs.values import Entity, EntityType
    from engine.admin.topics.access import with_warnings

    lines = []
    if wanted.partition_count is not None:
        lines.append(f"  partitions: {'unknown' if present is None else present} → {wanted.partition_count}")
    if not wanted.changes_configs:
        return lines, [*wanted.warnings], wanted.is_irreversible
    entity = Entity(EntityType.TOPIC, wanted.name)
    changes = await read_changes(cluster, entity, wanted.additions, list(wanted.deletions), tells_inherited=True)
    changes = await with_warnings(cluster, entity, changes)
    warnings = [*wanted.warnings, *(warning for change in changes for warning in change.warnings)]
    is_risky = any(change.is_risky for change in changes)
    return lines + [f"  {change}" for change in changes], warnings, wanted.is_irreversible or is_risky


@group.command(
    "delete",
    needs=Needs(cluster=True, changes=True, kafka=True),
    examples=("klamm topics delete orders --yes", "klamm topics delete 'test-.*' --dry-run"),
)
async def delete(
    invocation: Invocation,
    topics: NamedTopics = None,
    topic: TopicOptions = None,
    if_exists: IfExists = False,
    wait: Wait = True,
    force: BesidePlan = False,
) -> Report:
    """Delete topics with all their records.

    A regular expression never matches Kafka's own topics; name such a topic to delete it.
    """
    from cli.framework.cluster_session import open_cluster
    from cli.views.topics import topic_changes_report
    from engine.admin.topics.access import topic_changer
    from engine.admin.topics.changes import TopicChange, TopicOutcome, deletion_obstacles, deletion_warnings
    from engine.common.acl import AclOperation

    texts = [*(topics or ()), *(topic or ())]
    if not texts:
        raise UsageError("name the topics to delete")
    async with open_cluster(invocation, for_change=True) as cluster:
        changer = await topic_changer(cluster)
        names = await changer.to_be_deleted(texts, if_exists=if_exists)
        if invocation.is_dry_run and (refusal := await cluster.hidden(names)) is not None:
            raise refusal
        if invocation.output is not OutputFormat.KAFKA:
            await _note_hidden(cluster, texts, names)
        lacking = await cluster.lacking(AclOperation.DELETE, names) if invocation.is_dry_run else {}
        names = [name for name in names if name not in lacking]
        if lacking and not names:
            return topic_changes_report([], exit_code=invocation.tell_failures([*lacking.values()]))
        if not names:
            invocation.talk.say(f"no such topic{invocation.as_seen_by}, nothing to do")
            return topic_changes_report([])
        subject = f"topic {names[0]}" if len(names) == 1 else counted(len(names), "topic")
        listed = [f"  {name}" for name in names] if len(names) > 1 else []
        for warning in deletion_warnings(names):
            invocation.talk.warn(warning)
        await minds_plan(invocation, cluster, names, is_forced=force)
        if not invocation.confirm(f"delete {subject} in {cluster.target.title}", listed, is_destructive=True):
            would_be = [TopicChange(name, TopicOutcome.WOULD_BE_DELETED) for name in names]
            return topic_changes_report(would_be, exit_code=invocation.tell_failures([*lacking.values()]))
        changes, refusals = await changer.delete(names, waits=wait)
    is_under_way = any(change.result is TopicOutcome.MARKED_FOR_DELETION for change in changes)
    for reason in deletion_obstacles(changes) if wait else ():
        invocation.talk.say(f"the deletion goes on: it {reason}")
    code = invocation.tell_failures(refusals, ExitCode.UNDER_WAY if is_under_way else ExitCode.DONE)
    return topic_changes_report(changes, exit_code=code)


async def _note_hidden(cluster: Cluster, texts: Sequence[str], names: Sequence[str]) -> None:
    """Let the cluster note the topics that patterns among the texts would choose if they were not hidden."""
    from engine.admin.log_dirs.describing import note_topics_left_out
    from engine.admin.topics.selection import TopicSelection, select_topics
    from engine.common.acl import AclOperation
    from engine.common.topic_names import INTERNAL_TOPICS

    if patterns := select_topics(texts).patterns:
        choose = TopicSelection(patterns=patterns).choose
        await note_topics_left_out(
            cluster, names, lambda known: choose(set(known) - INTERNAL_TOPICS), operation=AclOperation.DELETE
        )


def one_name(argument: str | None, option: str | None) -> str:
    """Return the topic that was named, as an argument or in Kafka's way as ``--topic``."""
    if (argument is None) == (option is None):
        raise UsageError("name one topic")
    return argument or option or ""


def _summary(topics: Sequence[NewTopic]) -> str:
    from engine.common.listing import first_few

    topic = topics[0]
    if topic.assignment:
        shape = f"{counted(len(topic.assignment), 'partition')} assigned by hand"
    else:
        count = "default number of" if topic.partition_count is None else str(topic.partition_count)
        factor = "default" if topic.replication_factor is None else str(topic.replication_factor)
        shape = f"{count} partition{'' if count == '1' else 's'}, factor {factor}"
    configs = "".join(f", {key}={value}" for key, value in topic.configs.items())
    named = f"{plural('topic', len(topics))} {first_few(topic.name for topic in topics)}"
    return f"{named} ({shape}{configs}{'' if len(topics) == 1 else ', each'})"


group.put_in_order("list", "describe", "create", "alter", "delete")
