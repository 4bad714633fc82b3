"""``klamm configs``: settings of topics, brokers and broker loggers. Options are those of kafka-configs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer._click.exceptions import UsageError

from cli.framework.command import CommandGroup
from cli.framework.invocation import Invocation
from cli.framework.options import Needs
from cli.output.report import Report

if TYPE_CHECKING:
    from engine.admin.configs import Entity, EntityType

group = CommandGroup(
    "configs",
    "Describe and alter settings of topics and brokers.",
    action_flags={"--describe": "describe", "--alter": "alter"},
)

EntityTypeName = Annotated[
    str | None, typer.Option("--entity-type", metavar="TYPE", help="topics, brokers or broker-loggers.")
]
EntityName = Annotated[
    str | None, typer.Option("--entity-name", metavar="NAME", help="A topic's name or a broker's id.")
]
EntityDefault = Annotated[bool, typer.Option("--entity-default", help="What holds for all brokers.")]
Topic = Annotated[str | None, typer.Option("--topic", metavar="NAME", help="Short for --entity-type topics and name.")]
Broker = Annotated[str | None, typer.Option("--broker", metavar="ID", help="Short for --entity-type brokers and id.")]
BrokerDefaults = Annotated[bool, typer.Option("--broker-defaults", help="Short for brokers and --entity-default.")]
BrokerLogger = Annotated[
    str | None, typer.Option("--broker-logger", metavar="ID", help="Short for --entity-type broker-loggers and id.")
]


@group.command(
    "describe",
    needs=Needs(cluster=True),
    examples=(
        "klamm configs describe --topic orders",
        "klamm configs describe --topic orders --all -o json",
        "klamm configs describe --broker-defaults",
    ),
)
async def describe(
    invocation: Invocation,
    entity_type: EntityTypeName = None,
    entity_name: EntityName = None,
    entity_default: EntityDefault = False,
    topic: Topic = None,
    broker: Broker = None,
    broker_defaults: BrokerDefaults = False,
    broker_logger: BrokerLogger = None,
    show_all: Annotated[
        bool, typer.Option("--all", help="All that holds, with where it comes from; not only what is set.")
    ] = False,
) -> Report:
    """Show settings and where each comes from.

    With only a type, those of all topics or brokers that have any.
    """
    from cli.framework.cluster_session import open_cluster
    from cli.views.configs import configs_report
    from engine.admin.configs import Entity, EntityType
    from engine.admin.reading_configs import config_reader

    kind, name, is_default = _chosen(
        entity_type, entity_name, entity_default, topic, broker, broker_defaults, broker_logger
    )
    async with open_cluster(invocation) as cluster:
        reader = await config_reader(cluster)
        if name is not None or is_default:
            entities = [_checked(kind, name)]
        else:
            entities = [Entity(kind, one) for one in await reader.names(kind)]
            if kind is EntityType.BROKER:
                entities.append(Entity(kind, None))
        found = [await reader.describe(entity, include_all=show_all) for entity in entities]
    return configs_report(found, is_single=name is not None or is_default)


@group.command(
    "alter",
    needs=Needs(cluster=True, changes=True),
    examples=(
        "klamm configs alter --topic orders --add-config retention.ms=3600000,cleanup.policy=[compact,delete]",
        "klamm configs alter --broker 0 --delete-config log.cleaner.threads",
        "klamm configs alter --broker-defaults --add-config-file defaults.properties --dry-run",
    ),
)
async def alter(
    invocation: Invocation,
    entity_type: EntityTypeName = None,
    entity_name: EntityName = None,
    entity_default: EntityDefault = False,
    topic: Topic = None,
    broker: Broker = None,
    broker_defaults: BrokerDefaults = False,
    broker_logger: BrokerLogger = None,
    add_config: Annotated[
        list[str] | None,
        typer.Option("--add-config", metavar="K=V,…", help="What to set; values with commas in brackets: k=[a,b]."),
    ] = None,
    add_config_file: Annotated[
        Path | None, typer.Option("--add-config-file", metavar="FILE", help="A properties file of what to set.")
    ] = None,
    delete_config: Annotated[
        list[str] | None, typer.Option("--delete-config", metavar="K,…", help="What to drop.")
    ] = None,
) -> None:
    """Set and drop settings, all or none."""
    from cli.framework.cluster_session import open_cluster
    from engine.admin.changing_configs import alter_entity
    from engine.admin.configs import parse_additions

    kind, name, is_default = _chosen(
        entity_type, entity_name, entity_default, topic, broker, broker_defaults, broker_logger
    )
    if name is None and not is_default:
        raise UsageError(f"an entity name must be given to alter {kind.value}")
    entity = _checked(kind, name)
    additions: dict[str, str] = {}
    if add_config_file is not None:
        additions |= _properties(add_config_file)
    for text in add_config or ():
        additions |= parse_additions(text)
    deletions = [key.strip() for text in delete_config or () for key in text.split(",") if key.strip()]
    summary = [f"{key}={value}" for key, value in additions.items()] + [f"without {key}" for key in deletions]
    async with open_cluster(invocation, for_change=True) as cluster:
        await alter_entity(cluster, entity, additions, deletions, validate_only=True)
        if invocation.confirm(f"alter {entity} in {cluster.target.name}: {', '.join(summary)}"):
            await alter_entity(cluster, entity, additions, deletions)
            invocation.talk.say(f"altered {entity}")


def _chosen(
    entity_type: str | None,
    entity_name: str | None,
    entity_default: bool,
    topic: str | None,
    broker: str | None,
    broker_defaults: bool,
    broker_logger: str | None,
) -> tuple[EntityType, str | None, bool]:
    """Return type, name, and whether the default is meant; one way of saying it is allowed."""
    from engine.admin.configs import EntityType

    shortcuts = [
        (EntityType.TOPIC, topic, False, topic is not None),
        (EntityType.BROKER, broker, False, broker is not None),
        (EntityType.BROKER, None, True, broker_defaults),
        (EntityType.BROKER_LOGGER, broker_logger, False, broker_logger is not None),
    ]
    said = [(kind, name, default) for kind, name, default, is_said in shortcuts if is_said]
    if entity_type is not None:
        try:
            kind = EntityType(entity_type)
        except ValueError:
            known = ", ".join(EntityType)
            raise UsageError(f"--entity-type wants one of {known}, not {entity_type!r}") from None
        if entity_name is not None and entity_default:
            raise UsageError("--entity-name and --entity-default exclude each other")
        said.append((kind, entity_name, entity_default))
    if len(said) != 1:
        raise UsageError("say whose settings: --topic, --broker, --broker-defaults, --broker-logger or --entity-type")
    return said[0]


def _checked(kind: EntityType, name: str | None) -> Entity:
    from engine.admin.configs import Entity

    entity = Entity(kind, name)
    entity.check()
    return entity


def _properties(path: Path) -> dict[str, str]:
    from engine.config.properties import parse_properties

    return parse_properties(path.read_text(encoding="latin-1"))
