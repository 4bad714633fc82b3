"""``klamm configs``: settings of topics, brokers and broker loggers, quotas. Options are those of kafka-configs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer._click.exceptions import UsageError

from cli.framework.command import CommandGroup
from cli.framework.completing import complete_brokers, complete_topics, one_of
from cli.framework.invocation import Invocation
from cli.framework.options import Needs
from cli.framework.plan_guard import BesidePlan, minds_plan
from cli.output.format import OutputFormat
from cli.output.report import Report
from engine.runtime.input_files import read_input

if TYPE_CHECKING:
    from engine.admin.cluster.connection import Cluster
    from engine.admin.configs.values import ConfigChange, Entity, EntityType


Shortcut = tuple[str, str | None, bool]
"""A type, the name that was given, and whether the default was asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ByType:
    """An entity as kafka-configs names it."""

    entity_type: Annotated[
        list[str] | None,
        typer.Option(
            "--entity-type",
            metavar="TYPE",
            help="topics, brokers, broker-loggers, clients, users or ips; users and clients may be given together.",
            autocompletion=one_of("topics", "brokers", "broker-loggers", "clients", "users", "ips"),
        ),
    ] = None
    entity_name: Annotated[
        list[str] | None,
        typer.Option(
            "--entity-name", metavar="NAME", help="The name, the broker's id or the address; one for each type."
        ),
    ] = None
    entity_default: Annotated[
        bool, typer.Option("--entity-default", help="The type's defaults, for entities without settings of their own.")
    ] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Clients:
    """Shortcuts for what may have quotas."""

    client: Annotated[str | None, typer.Option("--client", metavar="ID", help="Quotas of a client id.")] = None
    client_defaults: Annotated[bool, typer.Option("--client-defaults", help="Quotas of all client ids.")] = False
    user: Annotated[str | None, typer.Option("--user", metavar="NAME", help="Quotas and credentials of a user.")] = None
    user_defaults: Annotated[bool, typer.Option("--user-defaults", help="Quotas of all users.")] = False
    ip: Annotated[str | None, typer.Option("--ip", metavar="HOST", help="Quotas of an IP address.")] = None
    ip_defaults: Annotated[bool, typer.Option("--ip-defaults", help="Quotas of all IP addresses.")] = False

    @property
    def shortcuts(self) -> tuple[Shortcut, ...]:
        """Those that may have been given."""
        return (
            ("clients", self.client, self.client_defaults),
            ("users", self.user, self.user_defaults),
            ("ips", self.ip, self.ip_defaults),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """The options that say whose quotas are meant."""

    by_type: ByType
    clients: Clients

    def entity(self) -> Entity:
        """Return whose quotas are meant.

        Raises:
            UsageError: no entity is named, all of a kind are, or the named one has no quotas.
        """
        shortcuts = self.clients.shortcuts
        if not self.by_type.entity_type and not any(name is not None or default for _, name, default in shortcuts):
            raise UsageError("say whose quotas: --user, --client, --ip or the default of all of them, or --entity-type")
        chosen = chosen_entity(self.by_type, shortcuts)
        if not chosen.kind.is_of_clients:
            raise UsageError(f"{chosen.kind.value} have no quotas; users, clients and ips have")
        if chosen.entity is None:
            raise UsageError(f"say which of the {chosen.kind.value}, or --entity-default")
        return chosen.entity


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityOptions:
    """The options that say whose settings are meant."""

    by_type: ByType
    topic: Annotated[
        str | None,
        typer.Option(
            "--topic",
            metavar="NAME",
            help="Short for --entity-type topics and its name.",
            autocompletion=complete_topics,
        ),
    ] = None
    broker: Annotated[
        str | None,
        typer.Option(
            "--broker",
            metavar="ID",
            help="Short for --entity-type brokers and its id.",
            autocompletion=complete_brokers,
        ),
    ] = None
    broker_defaults: Annotated[
        bool, typer.Option("--broker-defaults", help="Short for --entity-type brokers --entity-default.")
    ] = False
    broker_logger: Annotated[
        str | None,
        typer.Option("--broker-logger", metavar="ID", help="Short for --entity-type broker-loggers and its id."),
    ] = None
    clients: Clients

    def chosen(self) -> Chosen:
        """Return whose settings are meant."""
        shortcuts: tuple[Shortcut, ...] = (
            ("topics", self.topic, False),
            ("brokers", self.broker, self.broker_defaults),
            ("broker-loggers", self.broker_logger, False),
        )
        return chosen_entity(self.by_type, shortcuts + self.clients.shortcuts)


Said = tuple[str, str | None, bool]
"""A type, a name, and whether the options name an entity or the default at all."""

_CLIENT_PAIR = {"users", "clients"}


@dataclass(frozen=True, slots=True)
class Chosen:
    """Whose settings are meant: one entity's, or (``entity`` None) all of a kind.

    ``user`` and ``client`` narrow a search for clients of users to those of one user, or to one client of all users.
    They are written as the parts of an entity's name are.
    """

    kind: EntityType
    entity: Entity | None
    user: str | None = None
    client: str | None = None

    def takes(self, entity_name: str | None) -> bool:
        """Whether an entity of the kind is meant."""
        user, _, client = (entity_name or "").partition("/")
        return self.user in (None, user) and self.client in (None, client)


def chosen_entity(by_type: ByType, shortcuts: Sequence[Shortcut]) -> Chosen:
    """Return whose settings are meant."""
    said: list[Said] = [(kind, name, True) for kind, name, default in shortcuts if name is not None or default]
    said += _by_types(by_type.entity_type or (), by_type.entity_name or (), by_type.entity_default)
    kinds = [kind for kind, _, _ in said]
    if not said:
        raise UsageError("say whose settings: --topic, --broker, --user, --client, --ip, … or --entity-type")
    if len(said) > 1 and (len(said) > 2 or set(kinds) != _CLIENT_PAIR):
        raise UsageError("give only one kind of entity, or a user with a client")
    return _pair({kind: (name, is_one) for kind, name, is_one in said}) if len(said) == 2 else _single(*said[0])


def _by_types(types: Sequence[str], names: Sequence[str], is_default: bool) -> list[Said]:
    """Like Kafka's tool, pair names with types in the order given; a type without a name means all of it."""
    if not types and (names or is_default):
        raise UsageError("--entity-name and --entity-default need an --entity-type")
    if len(names) + is_default > len(types):
        raise UsageError("more names than types: --entity-name and --entity-default exclude each other")
    if names and is_default:
        raise UsageError("say which type has the default: use --user, --client, --user-defaults, --client-defaults")
    given: list[str | None] = [None] if is_default else list(names)
    return [(kind, given[i] if i < len(given) else None, i < len(given)) for i, kind in enumerate(types)]


def _single(kind: str, name: str | None, is_one: bool) -> Chosen:
    from engine.admin.configs.values import Entity, EntityType

    known = [entity_type for entity_type in EntityType if entity_type is not EntityType.USER_CLIENT]
    entity_type = next((entity_type for entity_type in known if entity_type.value == kind), None)
    if entity_type is None:
        raise UsageError(f"--entity-type must be one of {', '.join(known)}, not {kind!r}")
    if not is_one:
        return Chosen(entity_type, None)
    entity = Entity(entity_type, name)
    entity.check()
    return Chosen(entity_type, entity)


def _pair(said: dict[str, tuple[str | None, bool]]) -> Chosen:
    from engine.admin.configs.quotas import user_and_client, written
    from engine.admin.configs.values import EntityType

    (user, is_user), (client, is_client) = said["users"], said["clients"]
    kind = EntityType.USER_CLIENT
    if is_user and is_client:
        return Chosen(kind, user_and_client(user, client))
    return Chosen(kind, None, written(user) if is_user else None, written(client) if is_client else None)


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
    from engine.kafka.config.broker import unknown_settings

    for name, near in unknown_settings(additions).items():
        meant = "" if near is None else f"; did you mean {near}?"
        invocation.talk.warn(f"brokers know no setting {name}, and keep it for plug-ins only{meant}")
