"""``klamm configs``: settings of topics, brokers and broker loggers, quotas. Options are those of kafka-configs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer._click.exceptions import UsageError

from cli.commands.configs_entities import EntityOptions
from cli.framework.command import CommandGroup
from cli.framework.invocation import Invocation
from cli.framework.options import Needs
from cli.framework.plan_guard import BesidePlan, minds_plan
from cli.output.format import OutputFormat
from cli.output.report import Report
from engine.runtime.input_files import read_input

if TYPE_CHECKING:
    from engine.admin.cluster.connection import Cluster
    from engine.admin.configs.values import ConfigChange, Entity

group = CommandGroup(
    "configs",
    "Describe and alter settings of topics and brokers, quotas of users, clients and addresses.",
    action_flags={"--describe": "describe", "--alter": "alter"},
)


@group.command(
    "describe",
    needs=Needs(cluster=True, kafka=True),
    examples=(
        "klamm configs describe --topic orders",
        "klamm configs describe --topic orders --all -o json",
        "klamm configs describe --broker-defaults",
        "klamm configs describe --entity-type users",
    ),
)
async def describe(
    invocation: Invocation,
    entity: EntityOptions,
    show_all: Annotated[
        bool, typer.Option("--all", help="Show every setting in force and its source, not only those that are set.")
    ] = False,
) -> Report:
    """Show settings and where each comes from.

    If you name only a type, it shows every entity of that type that has settings. Quotas and credentials are listed
    like settings; only the iterations of a credential are shown.
    """
    from cli.framework.cluster_session import open_cluster
    from cli.views.configs import configs_report
    from engine.admin.configs.access import describe_entities, describe_entity
    from engine.admin.configs.values import EntityType
    from engine.admin.log_dirs.describing import note_topics_left_out

    chosen = entity.chosen()
    may_lack_some = False
    async with open_cluster(invocation) as cluster:
        if chosen.entity is not None:
            entities = [await describe_entity(cluster, chosen.entity, include_all=show_all)]
        else:
            entities = await describe_entities(cluster, chosen.kind, include_all=show_all)
            entities = [described for described in entities if chosen.takes(described.entity_name)]
            if chosen.kind is EntityType.TOPIC and invocation.output is not OutputFormat.KAFKA:
                listed = [described.entity_name or "" for described in entities]
                await note_topics_left_out(cluster, listed)
                may_lack_some = cluster.may_hide_topics
    return configs_report(
        entities, is_single=chosen.entity is not None, shows_all=show_all, may_lack_some=may_lack_some
    )


@group.command(
    "alter",
    needs=Needs(cluster=True, changes=True, kafka=True),
    examples=(
        "klamm configs alter --topic orders --add-config segment.bytes=64Mi,cleanup.policy=[compact,delete]",
        "klamm configs alter --topic orders --add-config retention.ms=1h --yes",
        "klamm configs alter --broker 0 --delete-config log.cleaner.threads",
        "klamm configs alter --broker-defaults --add-config-file defaults.properties --dry-run",
        "klamm configs alter --user alice --client app --add-config producer_byte_rate=1048576",
    ),
)
async def alter(
    invocation: Invocation,
    entity: EntityOptions,
    add_config: Annotated[
        list[str] | None,
        typer.Option("--add-config", metavar="K=V,…", help="What to set; values with commas in brackets: k=[a,b]."),
    ] = None,
    add_config_file: Annotated[
        Path | None,
        typer.Option("--add-config-file", metavar="FILE", allow_dash=True, help="A properties file of what to set."),
    ] = None,
    delete_config: Annotated[
        list[str] | None, typer.Option("--delete-config", metavar="K,…", help="What to drop.")
    ] = None,
    force: BesidePlan = False,
) -> Report:
    """Set and drop settings, all of them or none, and show each one before and after.

    A change that may lose records, such as a shorter retention, needs --yes in a script, as does a min.insync.replicas
    above the number of replicas.

    Set passwords with klamm users set, which prompts or reads a file: other users can see this command line in ps.
    """
    from cli.framework.cluster_session import open_cluster
    from cli.views.configs import altered_report

    chosen = entity.chosen()
    altered = chosen.entity
    if altered is None:
        raise UsageError(f"an entity name must be given to alter {chosen.kind.value}")
    additions = _additions(add_config_file, add_config or ())
    deletions = [key.strip() for text in delete_config or () for key in text.split(",") if key.strip()]
    async with open_cluster(invocation, for_change=True) as cluster:
        changes, is_done = await _alter(invocation, cluster, altered, additions, deletions, is_forced=force)
    return altered_report(altered, changes, is_dry_run=not is_done, by_shortcuts=not entity.by_type.entity_type)


async def _alter(
    invocation: Invocation,
    cluster: Cluster,
    entity: Entity,
    additions: Mapping[str, str],
    deletions: Sequence[str],
    *,
    is_forced: bool,
) -> tuple[Sequence[ConfigChange], bool]:
    """Have the change checked, confirmed and made. Return what changes, and whether it was made."""
    from engine.admin.configs.access import alter_entity
    from engine.admin.configs.changes import read_changes
    from engine.admin.configs.values import EntityType
    from engine.admin.reassignment.throttle_settings import THROTTLE_SETTINGS
    from engine.admin.topics.access import with_warnings

    await alter_entity(cluster, entity, additions, deletions, validate_only=True)
    changes = await read_changes(cluster, entity, additions, deletions, tells_inherited=invocation.tells_details)
    changes = await with_warnings(cluster, entity, changes)
    is_destructive = any(change.is_risky for change in changes)
    for warning in (
        () if invocation.output is OutputFormat.KAFKA else [w for change in changes for w in change.warnings]
    ):
        invocation.talk.warn(warning)
    if not THROTTLE_SETTINGS.isdisjoint((*additions, *deletions)):
        names = [entity.name or ""] if entity.type is EntityType.TOPIC else None
        is_destructive |= await minds_plan(invocation, cluster, names, is_forced=is_forced)
    if entity.type is EntityType.BROKER:
        _warn_of_unknown(invocation, additions)
    is_wanted = invocation.confirm(
        f"alter {entity} in {cluster.target.title}",
        [f"  {change}" for change in changes] if invocation.tells_details else (),
        is_destructive=is_destructive,
    )
    if is_wanted:
        await alter_entity(cluster, entity, additions, deletions)
        invocation.talk.say(f"altered {entity}")
    return changes, is_wanted


def _additions(path: Path | None, texts: Sequence[str]) -> dict[str, str]:
    """Return what to set: the words of the command line win over the file."""
    from engine.admin.configs.values import parse_additions
    from engine.kafka.config.properties import parse_properties

    additions = {} if path is None else parse_properties(read_input(path, "latin-1"))
    for text in texts:
        additions |= parse_additions(text)
    return additions


def _warn_of_unknown(invocation: Invocation, additions: Mapping[str, str]) -> None:
    from engine.kafka.config.broker_warnings import unknown_settings

    for name, near in unknown_settings(additions).items():
        meant = "" if near is None else f"; did you mean {near}?"
        invocation.talk.warn(f"brokers know no setting {name}, and keep it for plug-ins only{meant}")
