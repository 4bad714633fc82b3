"""``klamm acls``: who may do what. Options are those of kafka-acls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.framework.command import CommandGroup
from cli.framework.completing import complete_topics, one_of
from cli.framework.invocation import Invocation
from cli.framework.options import Asks, Needs
from cli.output.report import Report
from engine.common.quantities import counted

if TYPE_CHECKING:
    from engine.admin.acls.values import Wish
    from engine.admin.cluster.connection import Cluster
    from engine.kafka.acls import AclBinding

group = CommandGroup(
    "acls",
    "Who may do what: list, add, remove, explain and check access rules, and keep them as a file.",
    action_flags={f"--{word}": word for word in ("list", "add", "remove")},
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceOptions:
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", metavar="T", help="A topic; * is every topic.", autocompletion=complete_topics),
    ] = None
    group: Annotated[list[str] | None, typer.Option("--group", metavar="ID", help="A group; * is every group.")] = None
    cluster_resource: Annotated[
        bool, typer.Option("--cluster-resource", help="The cluster (--cluster of kafka-acls).")
    ] = False
    transactional_id: Annotated[
        list[str] | None, typer.Option("--transactional-id", metavar="ID", help="A transactional id.")
    ] = None
    delegation_token: Annotated[
        list[str] | None, typer.Option("--delegation-token", metavar="ID", help="A delegation token.")
    ] = None
    user_principal: Annotated[
        list[str] | None,
        typer.Option(
            "--user-principal", metavar="USER", help="A user whose tokens the rule is about, such as User:bob."
        ),
    ] = None
    resource_pattern_type: Annotated[
        str,
        typer.Option(
            "--resource-pattern-type",
            metavar="TYPE",
            help="literal or prefixed; to list and remove also match (whatever covers the name) and any.",
            autocompletion=one_of("literal", "prefixed", "match", "any"),
        ),
    ] = "literal"

    def wish(self, principals: Sequence[str] = ()) -> Wish:
        """Return the wish for rules on these resources, of these principals or of anybody."""
        from engine.admin.acls.values import Wish
        from engine.common.acl import ResourceType
        from engine.kafka.acls import CLUSTER_NAME

        kinds = (
            (ResourceType.TOPIC, self.topic),
            (ResourceType.CLUSTER, [CLUSTER_NAME] if self.cluster_resource else None),
            (ResourceType.GROUP, self.group),
            (ResourceType.TRANSACTIONAL_ID, self.transactional_id),
            (ResourceType.DELEGATION_TOKEN, self.delegation_token),
            (ResourceType.USER, self.user_principal),
        )
        resources = tuple((kind, name) for kind, names in kinds for name in names or ())
        return Wish(resources, self.resource_pattern_type.lower(), principals=tuple(principals))


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleOptions:
    """The options that describe rules: who may or may not do what, with which resources, from where."""

    allow_principal: Annotated[
        list[str] | None, typer.Option("--allow-principal", metavar="P", help="Who may, such as User:alice or User:*.")
    ] = None
    deny_principal: Annotated[list[str] | None, typer.Option("--deny-principal", metavar="P", help="Who may not.")] = (
        None
    )
    operation: Annotated[
        list[str] | None,
        typer.Option("--operation", metavar="OP", help="read, write, describe-configs, …; all if you name none."),
    ] = None
    resources: ResourceOptions
    allow_host: Annotated[
        list[str] | None,
        typer.Option("--allow-host", metavar="IP", help="The address that they may come from.  [default: any]"),
    ] = None
    deny_host: Annotated[
        list[str] | None, typer.Option("--deny-host", metavar="IP", help="The address that they may not come from.")
    ] = None
    producer: Annotated[
        bool,
        typer.Option(
            "--producer",
            help="What producers need: write, describe and create on topics; write and describe on transactional ids.",
        ),
    ] = False
    consumer: Annotated[
        bool, typer.Option("--consumer", help="What consumers need: read and describe on topics, read on groups.")
    ] = False
    idempotent: Annotated[
        bool, typer.Option("--idempotent", help="With --producer: also idempotent-write, which old brokers ask for.")
    ] = False

    def wish(self) -> Wish:
        from engine.admin.acls.values import parse_operation

        return replace(
            self.resources.wish(),
            operations=tuple(parse_operation(operation) for operation in self.operation or ()),
            allow_principals=tuple(self.allow_principal or ()),
            deny_principals=tuple(self.deny_principal or ()),
            allow_hosts=tuple(self.allow_host or ()),
            deny_hosts=tuple(self.deny_host or ()),
            is_producer=self.producer,
            is_consumer=self.consumer,
            is_idempotent=self.idempotent,
        )

    @property
    def names_operations(self) -> bool:
        """Whether they name operations, or no principals: then all rules on the resources are meant."""
        names_nobody = not (self.allow_principal or self.deny_principal)
        return bool(self.operation) or self.producer or self.consumer or names_nobody


RuleFile = Annotated[
    Path, typer.Argument(metavar="FILE", allow_dash=True, help="YAML as acls export prints it; - is stdin.")
]


@group.command(
    "list",
    needs=Needs(cluster=True, asks=Asks.CLUSTER, kafka=True),
    examples=(
        "klamm acls list",
        "klamm acls list --topic orders --resource-pattern-type match",
        "klamm acls list --principal User:alice -o json",
        "klamm acls list --zookeeper 127.0.0.1:2181",
    ),
)
async def list_acls(
    invocation: Invocation,
    *,
    principal: Annotated[
        list[str] | None, typer.Option("--principal", metavar="P", help="Only rules that name this principal.")
    ] = None,
    resources: ResourceOptions,
) -> Report:
    """List access rules, all of them or those on the named resources.

    This lists rules; klamm acls explain says who may do what.
    """
    from cli.framework.cluster_session import open_cluster
    from cli.views.acls import rules_report
    from engine.admin.acls.access import read_acls

    filters = resources.wish(principal or ()).filters()
    async with open_cluster(invocation) as cluster:
        return rules_report(await read_acls(cluster, filters), principal or ())


@group.command(
    "add",
    needs=Needs(cluster=True, changes=True, kafka=True),
    examples=(
        "klamm acls add --allow-principal User:alice --operation read --topic orders",
        "klamm acls add --producer --allow-principal User:etl --topic raw- --resource-pattern-type prefixed",
        "klamm acls add --consumer --allow-principal User:bob --topic orders --group readers --dry-run",
        "klamm acls add --deny-principal User:eve --deny-host 10.0.0.9 --cluster-resource --operation all",
    ),
)
async def add(invocation: Invocation, rule: RuleOptions) -> Report:
    """Allow or deny something. A rule that already exists is not an error.

    Without rules on a resource only super users may use it, unless the brokers have allow.everyone.if.no.acl.found.
    The first rule on a resource ends that.
    """
    from cli.framework.cluster_session import open_cluster
    from cli.views.acls import changes_report
    from engine.admin.acls.access import add_acls

    rules = rule.wish().rules()
    async with open_cluster(invocation, for_change=True) as cluster:
        if not invocation.confirm(f"add {_counted(rules)} to {cluster.target.title}", _lines(rules)):
            return changes_report({"would_add": rules})
        refusals = await add_acls(cluster, rules)
        return changes_report({"added": rules}, invocation.tell_failures(refusals))


@group.command(
    "remove",
    needs=Needs(cluster=True, changes=True, kafka=True),
    examples=(
        "klamm acls remove --allow-principal User:alice --operation read --topic orders --yes",
        "klamm acls remove --topic orders --resource-pattern-type any --dry-run",
        "klamm acls remove --consumer --allow-principal User:bob --topic orders --group readers --yes",
        "klamm acls remove --all-of User:bob --dry-run",
    ),
)
async def remove(
    invocation: Invocation,
    *,
    all_of: Annotated[
        list[str] | None,
        typer.Option(
            "--all-of", metavar="P", help="All rules that name this principal, on the named resources or any."
        ),
    ] = None,
    rule: RuleOptions,
) -> Report:
    """Remove rules: those described, or, with no principal, all rules on the named resources.

    Before it asks, klamm shows the rules that it will remove, and it removes only those. A rule that covers the same in
    other words (all instead of read) is another rule and stays. If none matches, klamm lists
    the rules of these principals that cover the resources.
    """
    from cli.framework.cluster_session import open_cluster
    from cli.views.acls import nothing_removed_report
    from engine.admin.acls.access import read_acls

    wish = replace(rule.wish(), principals=tuple(all_of or ()))
    filters = wish.removals()
    async with open_cluster(invocation, for_change=True) as cluster:
        rules = await read_acls(cluster, filters)
        if not rules:
            return nothing_removed_report(await read_acls(cluster, wish.near()), names_operations=rule.names_operations)
        return await _removed(invocation, cluster, rules)


async def _removed(invocation: Invocation, cluster: Cluster, rules: Sequence[AclBinding]) -> Report:
    from cli.views.acls import changes_report
    from engine.admin.acls.access import remove_acls

    change = f"remove {_counted(rules)} from {cluster.target.title}"
    if not invocation.confirm(change, _lines(rules), is_destructive=True):
        return changes_report({"would_remove": rules})
    return changes_report({"removed": await remove_acls(cluster, rules)})


@group.command(
    "explain",
    needs=Needs(cluster=True, asks=Asks.CLUSTER),
    examples=(
        "klamm acls explain User:alice read topic:orders",
        "klamm acls explain User:etl create cluster --host 10.0.0.9",
        "klamm acls explain User:bob write transactional-id:billing -o json",
    ),
)
async def explain(
    invocation: Invocation,
    principal: Annotated[str, typer.Argument(metavar="PRINCIPAL", help="Who, such as User:alice.")],
    operation: Annotated[str, typer.Argument(metavar="OPERATION", help="Does what, such as read or describe-configs.")],
    resource: Annotated[
        str, typer.Argument(metavar="RESOURCE", help="To what: topic:T, group:G, cluster, transactional-id:X, …")
    ],
    host: Annotated[str, typer.Option("--host", metavar="IP", help="From which address.")] = "127.0.0.1",
) -> Report:
    """Say whether a principal may do something, which rule decides that, and which others match.

    It decides as AclAuthorizer does: a denial wins, read and others imply describe. Exits with 1 if it is not allowed.
    Super users are named only in the brokers' files: Kafka's brokers tell whether there are any, but not who.
    """
    from cli.framework.cluster_session import open_cluster
    from cli.views.acls import explanation_report
    from engine.admin.acls import checks
    from engine.admin.acls.access import read_acls, read_authorizer_files
    from engine.admin.acls.values import parse_operation, parse_principal, parse_resource
    from engine.kafka.acls import AclFilter

    who, operation_asked = parse_principal(principal), parse_operation(operation)
    kind, name = parse_resource(resource)
    async with open_cluster(invocation) as cluster:
        rules = await read_acls(cluster, [AclFilter(kind, name, matches_name=True)])
        files = await read_authorizer_files(cluster)
    return explanation_report(checks.explain(rules, who, host, operation_asked, kind, name, files))


@group.command(
    "lint",
    needs=Needs(cluster=True, asks=Asks.CLUSTER),
    examples=("klamm acls lint", "klamm acls lint --file acls.yaml -o json"),
)
async def lint(
    invocation: Invocation,
    file: Annotated[
        Path | None, typer.Option("--file", metavar="FILE", allow_dash=True, help="Check a file of rules instead.")
    ] = None,
) -> Report:
    """Find rules that never match, that others shadow or make redundant, or that open everything to everybody.

    Exits with 1 if it finds one.
    """
    from cli.framework.cluster_session import open_cluster
    from cli.views.acls import lint_report
    from engine.admin.acls import checks
    from engine.admin.acls.access import read_acls
    from engine.admin.acls.files import read_acl_file
    from engine.kafka.acls import AclFilter

    if file is not None:
        return lint_report(checks.lint(read_acl_file(file)))
    async with open_cluster(invocation) as cluster:
        return lint_report(checks.lint(await read_acls(cluster, [AclFilter(pattern_type=None)])))


@group.command(
    "export",
    needs=Needs(cluster=True, asks=Asks.CLUSTER),
    examples=("klamm acls export > acls.yaml", "klamm acls export --out acls.yaml --zookeeper 127.0.0.1:2181"),
)
async def export(
    invocation: Invocation,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write it there.")] = None,
) -> Report | None:
    """Print all rules as a file for a repository: YAML, in a fixed order, so that only changes of rules change it."""
    from cli.framework.cluster_session import open_cluster
    from cli.framework.stdout import write_bytes
    from cli.output.format import OutputFormat
    from cli.views.acls import rules_report
    from engine.admin.acls.access import read_acls
    from engine.admin.acls.files import file_text
    from engine.kafka.acls import AclFilter

    async with open_cluster(invocation) as cluster:
        rules = await read_acls(cluster, [AclFilter(pattern_type=None)])
    if out is not None:
        out.write_text(file_text(rules), encoding="utf-8")
        invocation.talk.say(f"{_counted(rules)} written to {out}")
        return rules_report(rules)
    if invocation.output in (OutputFormat.JSON, OutputFormat.JSONL):
        return rules_report(rules)
    write_bytes([file_text(rules).encode()])
    return None


@group.command(
    "diff",
    needs=Needs(cluster=True, asks=Asks.CLUSTER),
    examples=("klamm acls diff acls.yaml", "klamm acls diff acls.yaml -o json"),
)
async def diff(invocation: Invocation, file: RuleFile) -> Report:
    """Compare the rules of a file with those of the cluster. Exits with 1 if they differ: a check for CI."""
    from cli.exit_codes import ExitCode
    from cli.framework.cluster_session import open_cluster
    from cli.views.acls import changes_report
    from engine.admin.acls.access import read_acls
    from engine.admin.acls.files import compare, read_acl_file
    from engine.kafka.acls import AclFilter

    wanted = read_acl_file(file)
    async with open_cluster(invocation) as cluster:
        differences = compare(wanted, await read_acls(cluster, [AclFilter(pattern_type=None)]))
    code = ExitCode.BAD_ANSWER if differences.missing or differences.extra else ExitCode.DONE
    changes = {"missing": differences.missing, "extra": differences.extra}
    return changes_report(changes, code, nothing="the cluster has the rules of the file, and no others")


@group.command(
    "apply",
    needs=Needs(cluster=True, changes=True),
    examples=(
        "klamm acls apply acls.yaml --dry-run",
        "klamm acls apply acls.yaml --yes",
        "klamm acls apply acls.yaml --prune --yes",
    ),
)
async def apply(
    invocation: Invocation,
    file: RuleFile,
    prune: Annotated[bool, typer.Option("--prune", help="Also remove rules that are not in the file.")] = False,
) -> Report:
    """Give the cluster the rules of a file. New rules are added before others are removed.

    klamm shows what would change before it asks; with --dry-run that is all.
    """
    from cli.framework.cluster_session import open_cluster
    from cli.views.acls import changes_report
    from engine.admin.acls.access import add_acls, read_acls, remove_acls
    from engine.admin.acls.files import compare, read_acl_file
    from engine.kafka.acls import AclFilter

    wanted = read_acl_file(file)
    async with open_cluster(invocation, for_change=True) as cluster:
        differences = compare(wanted, await read_acls(cluster, [AclFilter(pattern_type=None)]))
        extra = differences.extra if prune else ()
        if not differences.missing and not extra:
            return changes_report({}, nothing="the cluster has all rules of the file already")
        change = f"add {_counted(differences.missing)} and remove {len(extra)} in {cluster.target.title}"
        lines = [*_lines(differences.missing, "+ "), *_lines(extra, "- ")]
        if not invocation.confirm(change, lines, is_destructive=True):
            return changes_report({"would_add": differences.missing, "would_remove": extra})
        refusals = await add_acls(cluster, differences.missing) if differences.missing else []
        # Until the missing rule is added, the extra one may be all that lets a client work.
        removed = await remove_acls(cluster, extra) if extra and not refusals else []
        return changes_report({"added": differences.missing, "removed": removed}, invocation.tell_failures(refusals))


def _counted(rules: Sequence[AclBinding]) -> str:
    return counted(len(rules), "rule")


def _lines(rules: Sequence[AclBinding], mark: str = "") -> list[str]:
    from engine.admin.acls.values import AclRow

    return [f"{mark}{AclRow.of(rule)}" for rule in rules]


group.put_in_order("list", "add", "remove", "explain", "lint", "export", "diff", "apply")
