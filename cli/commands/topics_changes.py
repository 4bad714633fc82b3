"""``klamm topics create``, ``alter`` and ``delete``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from typer._click.exceptions import UsageError

from cli.commands.topics_group import IfExists, TopicOptions, TopicTexts, group
from cli.exit_codes import ExitCode
from cli.framework.completing import complete_topics
from cli.framework.invocation import Invocation
from cli.framework.options import Needs
from cli.output.report import Report

if TYPE_CHECKING:
    from engine.admin.topics.changes import NewTopic

OneTopic = Annotated[
    str | None, typer.Argument(metavar="TOPIC", help="Name of the topic.", autocompletion=complete_topics)
]
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
    needs=Needs(cluster=True, changes=True),
    examples=(
        "klamm topics create orders --partitions 6 --replication-factor 3",
        "klamm topics create orders --replica-assignment 0:1,1:2,2:0 --config retention.ms=3600000",
        "klamm topics create orders --if-not-exists --dry-run",
    ),
)
async def create(
    invocation: Invocation,
    name: OneTopic = None,
    topic: OneTopicOption = None,
    partitions: Partitions = None,
    replication_factor: Annotated[
        int | None, typer.Option("--replication-factor", metavar="N", help="Replicas of each partition.")
    ] = None,
    replica_assignment: Assignment = None,
    config: Configs = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="A topic that exists already is no error.")
    ] = False,
    disable_rack_aware: Annotated[
        bool, typer.Option("--disable-rack-aware", help="Spread replicas without regard to racks (by ZooKeeper only).")
    ] = False,
) -> Report | None:
    """Create a topic.

    Without --partitions and --replication-factor the cluster's defaults are used.
    """
    from cli.framework.cluster_session import open_cluster
    from cli.views.topics_changes import topic_changes_report
    from engine.admin.topics.access import topic_changer
    from engine.admin.topics.changes import NewTopic, check_new_topic, parse_replica_assignment, parse_topic_configs

    wanted = NewTopic(
        one_name(name, topic),
        partitions,
        replication_factor,
        parse_replica_assignment(replica_assignment) if replica_assignment else (),
        parse_topic_configs(config or ()),
    )
    check_new_topic(wanted)
    for warning in wanted.warnings:
        invocation.talk.warn(warning)
    async with open_cluster(invocation, for_change=True) as cluster:
        changer = await topic_changer(cluster, is_rack_aware=not disable_rack_aware)
        # What cannot be done is not announced: a dry run is checked by the cluster first.
        if invocation.is_dry_run:
            change = await changer.create(wanted, if_not_exists=if_not_exists, validate_only=True)
        if invocation.confirm(f"create topic {_summary(wanted)} in {cluster.target.name}"):
            change = await changer.create(wanted, if_not_exists=if_not_exists)
    return topic_changes_report([change])


@group.command(
    "alter",
    needs=Needs(cluster=True, changes=True),
    examples=(
        "klamm topics alter orders --partitions 12",
        "klamm topics alter orders --config retention.ms=3600000 --delete-config cleanup.policy",
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
        list[str] | None, typer.Option("--delete-config", metavar="KEY", help="A setting to be dropped.")
    ] = None,
    if_exists: IfExists = False,
) -> Report | None:
    """Add partitions to a topic, or change its settings.

    Records with a key may go to another partition than before once there are more partitions.
    """
    from cli.framework.cluster_session import open_cluster
    from cli.views.topics_changes import topic_changes_report
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
            return None
        for warning in wanted.warnings:
            invocation.talk.warn(warning)
        if invocation.is_dry_run:
            await changer.alter(wanted, validate_only=True)
        if invocation.confirm(f"alter topic {wanted.summary} in {cluster.target.name}"):
            return topic_changes_report([await changer.alter(wanted)])
    return None


@group.command(
    "delete",
    needs=Needs(cluster=True, changes=True),
    examples=("klamm topics delete orders --yes", "klamm topics delete 'test-.*' --dry-run"),
)
async def delete(
    invocation: Invocation,
    topics: TopicTexts = None,
    topic: TopicOptions = None,
    if_exists: IfExists = False,
    wait: Wait = True,
) -> Report | None:
    """Delete topics with all their records.

    A regular expression never takes Kafka's own topics; name such a topic to delete it.
    """
    from cli.framework.cluster_session import open_cluster
    from cli.views.topics_changes import topic_changes_report
    from engine.admin.topics.access import topic_changer
    from engine.admin.topics.changes import TopicOutcome

    texts = [*(topics or ()), *(topic or ())]
    if not texts:
        raise UsageError("name the topics to be deleted")
    async with open_cluster(invocation, for_change=True) as cluster:
        changer = await topic_changer(cluster)
        names = await changer.to_be_deleted(texts, if_exists=if_exists)
        if not names:
            invocation.talk.say("no such topic, nothing to do")
            return None
        counted = f"topic {names[0]}" if len(names) == 1 else f"{len(names)} topics ({', '.join(names)})"
        if not invocation.confirm(f"delete {counted} in {cluster.target.name}", is_destructive=True):
            return None
        changes, refusals = await changer.delete(names, waits=wait)
    is_under_way = any(change.result is TopicOutcome.MARKED_FOR_DELETION for change in changes)
    if is_under_way and wait:
        invocation.talk.say("replicas of dead brokers hold a deletion up; what is still marked: klamm topics list")
    code = invocation.tell_failures(refusals, ExitCode.UNDER_WAY if is_under_way else ExitCode.DONE)
    return topic_changes_report(changes, exit_code=code)


def one_name(argument: str | None, option: str | None) -> str:
    """Return the topic that was named, as an argument or in Kafka's way as ``--topic``."""
    if (argument is None) == (option is None):
        raise UsageError("name one topic")
    return argument or option or ""


def _summary(topic: NewTopic) -> str:
    if topic.assignment:
        shape = f"{len(topic.assignment)} partitions assigned by hand"
    else:
        count = "default number of" if topic.partition_count is None else str(topic.partition_count)
        factor = "default" if topic.replication_factor is None else str(topic.replication_factor)
        shape = f"{count} partitions, factor {factor}"
    configs = "".join(f", {key}={value}" for key, value in topic.configs.items())
    return f"{topic.name} ({shape}{configs})"
