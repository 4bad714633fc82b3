"""``klamm tokens``: delegation tokens. Options are those of kafka-delegation-tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer
from typer._click.exceptions import UsageError

from cli.framework.command import CommandGroup
from cli.framework.invocation import Invocation
from cli.framework.options import Asks, Needs
from cli.output.report import Column, Kind, Nothing, Report, Table, cells_of

if TYPE_CHECKING:
    from engine.admin.acls.tokens import Token
    from engine.admin.cluster.connection import Cluster

group = CommandGroup(
    "tokens",
    "Delegation tokens: passwords that expire by themselves, for jobs that have none of their own.",
    action_flags={"--create": "create", "--renew": "renew", "--expire": "expire", "--describe": "list"},
)

TokenId = Annotated[str | None, typer.Argument(metavar="TOKEN-ID", help="Which token; klamm looks up its HMAC.")]
Hmac = Annotated[str | None, typer.Option("--hmac", metavar="TEXT", help="Its HMAC instead; others can see it in ps.")]


@group.command(
    "list",
    needs=Needs(cluster=True, asks=Asks.BROKERS),
    examples=("klamm tokens list", "klamm tokens list --owner-principal User:etl -o json"),
)
async def list_tokens(
    invocation: Invocation,
    owner_principal: Annotated[
        list[str] | None, typer.Option("--owner-principal", metavar="P", help="Only tokens that it owns or may renew.")
    ] = None,
    show_hmac: Annotated[
        bool, typer.Option("--show-hmac", help="Also show the HMACs, with which their users log in.")
    ] = False,
) -> Report:
    """List the tokens that you may see: yours, those that you may renew, and those that a rule lets you describe."""
    from cli.framework.cluster_session import open_cluster
    from engine.admin.acls import tokens

    async with open_cluster(invocation) as cluster:
        listed = await tokens.list_tokens(cluster, owner_principal or ())
    report = _report(listed if show_hmac else [token.without_hmac() for token in listed], has_hmac=show_hmac)
    return report if listed else replace(report, notes=(Nothing("no tokens"),))


@group.command(
    "create",
    needs=Needs(cluster=True, changes=True, asks=Asks.BROKERS),
    examples=(
        "klamm tokens create --max-life-time-period 2d --renewer-principal User:scheduler",
        "klamm tokens create --owner-principal User:etl -o json",
    ),
)
async def create(
    invocation: Invocation,
    max_life_time_period: Annotated[
        str | None,
        typer.Option(
            "--max-life-time-period",
            metavar="TIME",
            help="How long it may live, renewals included.  [default: the brokers']",
        ),
    ] = None,
    renewer_principal: Annotated[
        list[str] | None, typer.Option("--renewer-principal", metavar="P", help="Who may renew it besides its owner.")
    ] = None,
    owner_principal: Annotated[
        str | None, typer.Option("--owner-principal", metavar="P", help="Whose it is; yours by default.")
    ] = None,
) -> Report:
    """Make a token, and print its HMAC: the password of whoever logs in with it.

    A client logs in by SCRAM with the token's id as user, the HMAC as password and tokenauth=true. To make a token for
    somebody else you need create-tokens on that user.
    """
    from cli.framework.cluster_session import open_cluster
    from engine.admin.acls import tokens
    from engine.admin.acls.values import parse_principal

    limit = _period("--max-life-time-period", max_life_time_period)
    for principal in (*(renewer_principal or ()), *([owner_principal] if owner_principal else ())):
        parse_principal(principal)
    async with open_cluster(invocation, for_change=True) as cluster:
        if not invocation.goes_ahead(f"make a token for {owner_principal or 'you'} in {cluster.target.title}"):
            # Brokers without tokens say so when they are asked for them.
            await tokens.list_tokens(cluster)
            return _report([])
        token = await tokens.create_token(
            cluster, owner=owner_principal, renewers=renewer_principal or (), max_lifetime_ms=limit
        )
    return _report([token], has_hmac=True)


@group.command(
    "renew",
    needs=Needs(cluster=True, changes=True, asks=Asks.BROKERS),
    examples=("klamm tokens renew gk3fXo0tQ8mI2eV", "klamm tokens renew gk3fXo0tQ8mI2eV --renew-time-period 12h"),
)
async def renew(
    invocation: Invocation,
    token_id: TokenId = None,
    hmac: Hmac = None,
    renew_time_period: Annotated[
        str | None,
        typer.Option("--renew-time-period", metavar="TIME", help="How long from now.  [default: the brokers']"),
    ] = None,
) -> Report:
    """Extend the life of a token, up to its maximum. Its owner and its renewers may do that."""
    from cli.framework.cluster_session import open_cluster
    from engine.admin.acls import tokens

    period = _period("--renew-time-period", renew_time_period)
    _check_one(token_id, hmac)
    async with open_cluster(invocation, for_change=True) as cluster:
        text = await _hmac(cluster, token_id, hmac)
        if not invocation.goes_ahead(f"renew the token in {cluster.target.title}"):
            return _expiry(token_id, None)
        return _expiry(token_id, await tokens.renew_token(cluster, text, period))


@group.command(
    "expire",
    needs=Needs(cluster=True, changes=True, asks=Asks.BROKERS),
    examples=(
        "klamm tokens expire gk3fXo0tQ8mI2eV --yes",
        "klamm tokens expire gk3fXo0tQ8mI2eV --expiry-time-period 1h --yes",
    ),
)
async def expire(
    invocation: Invocation,
    token_id: TokenId = None,
    hmac: Hmac = None,
    expiry_time_period: Annotated[
        str | None, typer.Option("--expiry-time-period", metavar="TIME", help="After how long.  [default: at once]")
    ] = None,
) -> Report:
    """Expire a token, at once or after a time. Connections that logged in with it stay open."""
    from cli.framework.cluster_session import open_cluster
    from engine.admin.acls import tokens

    period = _period("--expiry-time-period", expiry_time_period)
    _check_one(token_id, hmac)
    async with open_cluster(invocation, for_change=True) as cluster:
        text = await _hmac(cluster, token_id, hmac)
        if not invocation.confirm(f"expire the token in {cluster.target.title}", is_destructive=True):
            return _expiry(token_id, None)
        return _expiry(token_id, await tokens.expire_token(cluster, text, period))


def _period(option: str, text: str | None) -> int:
    """Return milliseconds; -1, as in Kafka's tool, leaves it to the brokers, or is at once."""
    from cli.framework.option_values import seconds_option

    return -1 if text in (None, "-1") else int(seconds_option(option, text or "") * 1000)


def _check_one(token_id: str | None, hmac: str | None) -> None:
    if (token_id is None) == (hmac is None):
        raise UsageError("name the token: its id, or --hmac")


async def _hmac(cluster: Cluster, token_id: str | None, hmac: str | None) -> str:
    from engine.admin.acls.tokens import hmac_of

    return hmac if hmac is not None else await hmac_of(cluster, token_id or "")


def _expiry(token_id: str | None, expires_ms: int | None) -> Report:
    expires = None if expires_ms is None else _moment(expires_ms)
    columns = (Column("token_id"), Column("expires", Kind.TIME))
    return Report({"token_id": token_id, "expires": expires}, Table(columns, [(token_id, expires)]))


def _moment(time_ms: int) -> datetime:
    return datetime.fromtimestamp(time_ms / 1000, UTC)


def _report(listed: Sequence[Token], *, has_hmac: bool = False) -> Report:
    columns = (
        Column("token_id"),
        Column("owner"),
        Column("requester", is_dispensable=True),
        Column("renewers", Kind.LIST),
        Column("issued", Kind.TIME),
        Column("expires", Kind.TIME),
        Column("ends", Kind.TIME, title="Ends at last"),
        Column("hmac"),
    )
    rows = [
        (
            *cells_of(columns[:4], token),
            *map(_moment, (token.issue_timestamp_ms, token.expiry_timestamp_ms, token.max_timestamp_ms)),
            token.hmac,
        )
        for token in listed
    ]
    table = Table(columns, rows)
    shown = table if has_hmac else table.with_only([column.name for column in columns[:-1]])
    return Report(table.records(), shown)


group.put_in_order("list", "create", "renew", "expire")
