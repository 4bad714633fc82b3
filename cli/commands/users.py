"""``klamm users``: users whose passwords the cluster itself stores (SCRAM)."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer
from typer._click.exceptions import UsageError

from cli.framework.command import CommandGroup
from cli.framework.completing import one_of
from cli.framework.invocation import Invocation
from cli.framework.options import Asks, Needs
from cli.output.report import Column, Kind, Report, Table

group = CommandGroup("users", "Users who log in by SCRAM: list them, set and remove their passwords.")

PASSWORD_VARIABLE = "KLAMM_NEW_PASSWORD"
_MECHANISMS = ("scram-sha-256", "scram-sha-512")

User = Annotated[str, typer.Argument(metavar="NAME", help="Name of the user, without User: before it.")]


@group.command(
    "list",
    needs=Needs(cluster=True, asks=Asks.CLUSTER),
    examples=("klamm users list", "klamm users list alice -o json", "klamm users list --zookeeper 127.0.0.1:2181"),
)
async def list_users(
    invocation: Invocation, name: Annotated[str | None, typer.Argument(metavar="NAME", help="Only this user.")] = None
) -> Report:
    """List who can log in by SCRAM, and how. Passwords cannot be shown: they are not stored.

    Users of other mechanisms (PLAIN, OAUTHBEARER, Kerberos, certificates) are not kept in the cluster.
    """
    from cli.framework.cluster_session import open_cluster
    from engine.admin.configs.access import list_credentials

    async with open_cluster(invocation) as cluster:
        credentials = await list_credentials(cluster, name)
    columns = (Column("user"), Column("mechanism"), Column("iterations", Kind.NUMBER))
    return Report(credentials, Table.of(columns, credentials))


@group.command(
    "set",
    needs=Needs(cluster=True, changes=True),
    examples=(
        "klamm users set alice",
        "klamm users set alice --mechanism scram-sha-256 --iterations 16384 --password-file alice.secret",
        "KLAMM_NEW_PASSWORD=… klamm users set alice --zookeeper 127.0.0.1:2181 --yes",
    ),
)
async def set_user(
    invocation: Invocation,
    name: User,
    mechanism: Annotated[
        str,
        typer.Option(
            "--mechanism", metavar="M", help="scram-sha-256 or scram-sha-512.", autocompletion=one_of(*_MECHANISMS)
        ),
    ] = "scram-sha-512",
    iterations: Annotated[
        int | None, typer.Option("--iterations", metavar="N", help="4096 to 16384.  [default: 8192]")
    ] = None,
    password_file: Annotated[
        Path | None,
        typer.Option("--password-file", metavar="FILE", allow_dash=True, help="Its first line; - is stdin."),
    ] = None,
) -> Report:
    """Set or change a user's password for a mechanism. The user need not exist yet.

    klamm asks for the password, twice, unless --password-file or the variable KLAMM_NEW_PASSWORD has it. There is
    no option for it, so that neither the shell's history nor ps shows it. It is salted here and never sent. Existing
    connections stay open.
    """
    from cli.framework.cluster_session import open_cluster
    from engine.admin.configs.credentials import NewCredential, change_credentials, parse_mechanism

    chosen = parse_mechanism(mechanism)
    # A dry run from a script has no password at hand, and needs none.
    password = None if invocation.is_dry_run and password_file is None else _new_password(invocation, password_file)
    wanted = None if password is None else NewCredential.of_password(chosen, password, iterations)
    async with open_cluster(invocation, for_change=True) as cluster:
        if not invocation.confirm(f"set the password of {name} for {chosen} in {cluster.target.title}") or not wanted:
            return _changed(name, [chosen], "would_set")
        await change_credentials(cluster, name, [wanted], [])
    return _changed(name, [chosen], "set")


@group.command(
    "remove",
    needs=Needs(cluster=True, changes=True),
    examples=("klamm users remove alice --dry-run", "klamm users remove alice --mechanism scram-sha-256 --yes"),
)
async def remove(
    invocation: Invocation,
    name: User,
    mechanism: Annotated[
        list[str] | None,
        typer.Option(
            "--mechanism", metavar="M", help="Only this one; all by default.", autocompletion=one_of(*_MECHANISMS)
        ),
    ] = None,
) -> Report:
    """Remove a user's passwords: the user can no longer log in by SCRAM.

    Existing connections stay until they close or have to log in again. Access rules and quotas stay too.
    """
    from cli.framework.cluster_session import open_cluster
    from engine.admin.cluster.errors import NotFound
    from engine.admin.cluster.remedies import Operation, Phrase
    from engine.admin.configs.access import list_credentials
    from engine.admin.configs.credentials import change_credentials, parse_mechanism

    wanted = [parse_mechanism(text) for text in mechanism or ()]
    async with open_cluster(invocation, for_change=True) as cluster:
        present = [credential.mechanism for credential in await list_credentials(cluster, name)]
        chosen = [each for each in present if not wanted or each in wanted]
        if not chosen or len(chosen) < len(set(wanted)):
            hint = Phrase("who has which: ", Operation.LIST_USERS)
            raise NotFound("no such credential", where=f"user {name}", hint=hint)
        change = f"remove the password of {name} for {' and '.join(chosen)} from {cluster.target.title}"
        if not invocation.confirm(change, is_destructive=True):
            return _changed(name, chosen, "would_remove")
        await change_credentials(cluster, name, [], chosen)
    rules = invocation.pasteable(f"klamm acls remove --all-of {shlex.quote(f'User:{name}')}")
    notes = (
        "open connections stay until they close or have to log in again",
        f"access rules stay, too; to remove all that name this user: {rules}",
    )
    return _changed(name, chosen, "removed", notes if len(chosen) == len(present) else ())


def _changed(user: str, mechanisms: list[str], change: str, notes: tuple[str, ...] = ()) -> Report:
    data = [{"user": user, "mechanism": mechanism, "change": change} for mechanism in mechanisms]
    columns = (Column("user"), Column("mechanism"), Column("change"))
    return Report(data, Table(columns, [(user, mechanism, change) for mechanism in mechanisms]), notes=notes)


def _new_password(invocation: Invocation, path: Path | None) -> str:
    """Return the password from a file, the environment, or a person who types it twice.

    Raises:
        UsageError: the session is not interactive, or the two that were typed differ.
    """
    import os

    from engine.runtime.input_files import read_input

    if path is not None:
        return read_input(path).partition("\n")[0].removesuffix("\r")
    if PASSWORD_VARIABLE in os.environ:
        return os.environ[PASSWORD_VARIABLE]
    if not invocation.talk.can_ask:
        raise UsageError(f"no password: give --password-file, or set {PASSWORD_VARIABLE}")
    typed = invocation.talk.ask_secret("New password: ")
    if invocation.talk.ask_secret("The same again: ") != typed:
        raise UsageError("the two passwords differ")
    invocation.restart_deadline()
    return typed


group.put_in_order("list", "set", "remove")
