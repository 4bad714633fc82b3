"""``klamm profiles``: named clusters in ``clusters.toml``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from typer._click.exceptions import UsageError

from cli.framework.command import CommandGroup
from cli.framework.completing import one_of
from cli.framework.invocation import Invocation
from cli.framework.option_values import Checkpoints, EventLogs, StateChangeLogs
from cli.framework.options import Needs
from cli.output.report import Column, Kind, Report, Section, Table
from engine.common.quantities import counted

if TYPE_CHECKING:
    from engine.admin.cluster.profiles import Profiles

group = CommandGroup("profiles", "Named clusters: type a name instead of addresses.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the profile.")]
_COLUMNS = (
    Column("name"),
    Column("default", Kind.FLAG),
    Column("zookeeper"),
    Column("bootstrap_servers"),
    Column("read_only", Kind.FLAG),
    Column("command_config"),
    Column("checkpoints", Kind.LIST, is_dispensable=True),
    Column("event_logs", Kind.LIST, is_dispensable=True),
    Column("logs", Kind.LIST, is_dispensable=True),
    Column("label", is_dispensable=True),
    Column("colour", is_dispensable=True),
    Column("metrics", is_dispensable=True),
    Column("jaas_config", is_dispensable=True),
)
_RARELY_USED_FROM = 6
"""A person sees the columns from here on if a profile has something in them."""


@group.command("list", examples=("klamm profiles list",))
def list_profiles(invocation: Invocation) -> Report:
    """List the profiles and where their file is."""
    from engine.admin.cluster.profiles import without_login

    profiles = _load()
    rows = [
        (
            p.name,
            p.is_default,
            p.zookeeper,
            p.bootstrap_servers,
            p.read_only,
            p.command_config,
            p.checkpoints,
            p.event_logs,
            p.logs,
            p.label,
            p.colour,
            None if p.metrics is None else without_login(p.metrics),
            p.jaas_config,
        )
        for p in profiles.profiles
    ]
    data = [dict(zip((column.name for column in _COLUMNS), row, strict=True)) for row in rows]
    note = f"{counted(len(rows), 'profile')} in {profiles.path}" if rows else f"no profiles yet in {profiles.path}"
    used = [index for index in range(len(_COLUMNS)) if index < _RARELY_USED_FROM or any(row[index] for row in rows)]
    shown = Table(tuple(_COLUMNS[index] for index in used), [[row[index] for index in used] for row in rows])
    return Report(data, Table(_COLUMNS, rows), (Section(body=shown),), notes=(note,))


@group.command(
    "add",
    needs=Needs(changes=True),
    examples=(
        "klamm profiles add dev --zookeeper 127.0.0.1:2181 --bootstrap-server 127.0.0.1:9092",
        "klamm profiles add prod --zookeeper zk1:2181,zk2:2181/kafka --read-only",
    ),
)
def add(
    invocation: Invocation,
    name: Name,
    zookeeper: Annotated[str | None, typer.Option(metavar="HOST:PORT[,…][/chroot]", help="Its ZooKeeper.")] = None,
    bootstrap_server: Annotated[
        str | None, typer.Option("--bootstrap-server", "-b", metavar="HOST:PORT[,…]", help="Some of its brokers.")
    ] = None,
    command_config: Annotated[
        str | None, typer.Option(metavar="FILE", help="A Kafka client's properties file.")
    ] = None,
    jaas_config: Annotated[
        str | None, typer.Option(metavar="FILE", help="A JAAS file: KafkaClient for brokers, Client for ZooKeeper.")
    ] = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="Refuse all changes.")] = False,
    default: Annotated[bool, typer.Option("--default", help="Use it when you name no cluster.")] = False,
    checkpoint: Checkpoints = None,
    event_log: EventLogs = None,
    logs: StateChangeLogs = None,
    metrics: Annotated[
        str | None,
        typer.Option(
            "--metrics", metavar="URL", help="Where each broker serves its metrics: http://{host}:7071/metrics."
        ),
    ] = None,
    label: Annotated[
        str | None, typer.Option("--label", metavar="TEXT", help="Text that is shown beside its name.")
    ] = None,
    colour: Annotated[
        str | None,
        typer.Option(
            "--colour",
            metavar="green|yellow|red|blue",
            help="Its colour in the dashboard.",
            autocompletion=one_of("green", "yellow", "red", "blue"),
        ),
    ] = None,
) -> Report:
    """Add a profile; the first one becomes the default."""
    from engine.admin.brokers.metrics_sources import check_pattern
    from engine.admin.cluster.profiles import Colour, Profile, add_profile
    from engine.admin.cluster.target import parse_addresses

    if zookeeper:
        parse_addresses(zookeeper.partition("/")[0], default_port=2181)
    if bootstrap_server:
        parse_addresses(bootstrap_server)
    if metrics is not None:
        check_pattern(metrics)
    if colour is not None and colour not in set(Colour):
        raise UsageError(f"--colour must be one of {', '.join(Colour)}, not {colour!r}")
    profiles = _load()
    if not invocation.goes_ahead(f"add profile {name} to {profiles.path}"):
        return _changed(name, "would_be_added")
    profile = Profile(
        name,
        zookeeper,
        bootstrap_server,
        command_config,
        read_only,
        default,
        checkpoints=tuple(checkpoint or ()),
        event_logs=tuple(event_log or ()),
        logs=tuple(logs or ()),
        metrics=metrics,
        label=label,
        colour=None if colour is None else Colour(colour),
        jaas_config=jaas_config,
    )
    add_profile(profiles, profile)
    return _changed(name, "added", f"added profile {name} to {profiles.path}")


@group.command("default", needs=Needs(changes=True), examples=("klamm profiles default dev",))
def default(invocation: Invocation, name: Name) -> Report:
    """Make a profile the default, which is used when you name no cluster."""
    from engine.admin.cluster.profiles import set_default

    profiles = _load()
    profiles.named(name)
    if not invocation.goes_ahead(f"make {name} the default in {profiles.path}"):
        return _changed(name, "would_be_default")
    set_default(profiles, name)
    return _changed(name, "default", f"default profile: {name}")


@group.command(
    "remove", needs=Needs(changes=True), examples=("klamm profiles remove dev", "klamm profiles remove dev --yes")
)
def remove(invocation: Invocation, name: Name) -> Report:
    """Remove a profile; the clusters and other profiles stay as they are."""
    from engine.admin.cluster.profiles import remove_profile

    profiles = _load()
    profile = profiles.named(name)
    where = profile.zookeeper or profile.bootstrap_servers
    if not invocation.confirm(f"remove profile {name} ({where}) from {profiles.path}"):
        return _changed(name, "would_be_removed")
    remove_profile(profiles, name)
    left = "; no profile is the default now" if profile.is_default else ""
    return _changed(name, "removed", f"removed profile {name} from {profiles.path}{left}")


def _changed(name: str, result: str, *notes: str) -> Report:
    table = Table((Column("name"), Column("result")), [(name, result)])
    return Report({"name": name, "result": result}, table, (), notes)


def _load() -> Profiles:
    import os

    from engine.admin.cluster.profiles import load_profiles, profiles_path

    return load_profiles(profiles_path(os.environ))
