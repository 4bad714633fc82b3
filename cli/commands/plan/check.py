"""``klamm plan check`` and ``diff``."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.commands.plan.shared import LoadedPlan, PlanArgument, group, load_plan, read_named
from cli.exit_codes import ExitCode
from cli.framework.failure import Failure
from cli.framework.invocation import Invocation, Stop
from cli.framework.options import Needs
from cli.framework.stdout import data_stream
from cli.output.report import Report

if TYPE_CHECKING:
    from engine.common.snapshot import ClusterSnapshot
    from plans.policy import Policy


_WRITE_POLICY = "write one in TOML: a line [limits], and below it a line such as moves = 100"


class CheckFormat(StrEnum):
    """The form in which findings are printed."""

    GITHUB = "github"
    GITLAB = "gitlab"
    JUNIT = "junit"
    MARKDOWN = "markdown"


@group.command(
    "check",
    needs=Needs(cluster=True),
    examples=(
        "klamm plan check plan.json",
        "klamm plan check plan.json --policy policy.toml --snapshot cluster.json",
        "klamm plan check plan.json --policy policy.toml --format github",
        "klamm plan check plan.json --policy policy.toml --format markdown > comment.md",
    ),
)
async def check(
    invocation: Invocation,
    file: PlanArgument,
    policy: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", allow_dash=True, help="What a plan may do: limits, racks, capacities, what is forbidden."
        ),
    ] = None,
    form: Annotated[
        CheckFormat | None,
        typer.Option("--format", help="Annotations for GitHub, code quality for GitLab, JUnit XML, or a report."),
    ] = None,
) -> Report | ExitCode:
    """Say whether a plan still fits its cluster and keeps to a policy. Changes nothing.

    The cluster is a live one or a --snapshot. Exits with 0 when nothing is wrong, and with 1 when there are findings;
    each names a line of the plan file. A change of the cluster that does not affect the plan is only a note, and so is
    a plan that has already been carried out. -o markdown is the report of --format markdown.
    """
    from cli.output.format import OutputFormat
    from cli.views.plan_check import check_report, errors_of, formatted
    from plans.checking import check_plan
    from plans.findings import plan_lines

    loaded = load_plan(file)
    rules = None if policy is None else _load_policy(policy)
    has_sizes = loaded.plan.names_log_dirs or (rules is not None and rules.needs_sizes)
    snapshot = await _snapshot(invocation, loaded, has_sizes=has_sizes)
    findings = check_plan(loaded.plan, snapshot, rules, plan_lines(loaded.text))
    rule_file = None if policy is None else str(policy)
    if form is None and invocation.output is OutputFormat.MARKDOWN:
        form = CheckFormat.MARKDOWN
    if form is None:
        return check_report(str(file), findings, rules, rule_file)
    with data_stream() as stream:
        stream.write(formatted(form.value, str(file), loaded.plan, findings, rules, rule_file))
    return ExitCode.BAD_ANSWER if errors_of(findings) else ExitCode.DONE


@group.command(
    "show",
    examples=(
        "klamm plan show plan.json",
        "klamm plan show plan.json -o markdown > description.md",
        "klamm plan show plan.json -o json | jq '.[] | select(.leader_from != .leader_to)'",
    ),
)
def show(invocation: Invocation, file: PlanArgument) -> Report | None:
    """Show what a plan does, partition by partition, from its file alone. Asks no cluster.

    The wave is the one in which plan apply moves the partition, without other --wave options. With -o markdown it is
    the description of a pull request.
    """
    from cli.output.format import OutputFormat
    from cli.views.plan import show_report
    from cli.views.plan_check import plan_markdown

    plan = load_plan(file).plan
    if invocation.output is not OutputFormat.MARKDOWN:
        return show_report(plan)
    with data_stream() as stream:
        stream.write(plan_markdown(str(file), plan))
    return None


@group.command("diff", examples=("klamm plan diff old.json new.json", "klamm plan diff old.json new.json -o json"))
def diff(
    invocation: Invocation,
    before: Annotated[Path, typer.Argument(metavar="OLD", allow_dash=True, help="A plan.")],
    after: Annotated[Path, typer.Argument(metavar="NEW", allow_dash=True, help="Another plan.")],
) -> Report:
    """Show how two plans differ, partition by partition and in their figures. Exits with 1 if they do."""
    from cli.views.plan_check import diff_report
    from plans.comparing import compare_plans

    return diff_report(compare_plans(load_plan(before).plan, load_plan(after).plan))


async def _snapshot(invocation: Invocation, loaded: LoadedPlan, *, has_sizes: bool) -> ClusterSnapshot:
    """Return the current cluster; if sizes are wanted, with those that brokers report."""
    from cli.framework.cluster_session import open_cluster
    from engine.admin.cluster.target import Source
    from engine.admin.snapshots.taking import take_snapshot

    async with open_cluster(invocation) as cluster:
        wants = has_sizes and cluster.source is not Source.SNAPSHOT
        taken = await take_snapshot(cluster, has_sizes=wants)
        existing = {topic.name for topic in taken.snapshot.topics}
        absent = sorted({entry.name.topic for entry in loaded.plan.partitions} - existing)
        if (refusal := await cluster.hidden(absent)) is not None:
            raise refusal
    for warning in taken.unknown_sizes:
        invocation.talk.warn(warning)
    return taken.snapshot


def _load_policy(path: Path) -> Policy:
    from plans.policy import BadPolicy, parse_policy

    try:
        return parse_policy(read_named(path, _WRITE_POLICY))
    except BadPolicy as error:
        raise Stop(Failure(ExitCode.USAGE, "usage", str(error), f"{path}:{error.line}", error.hint)) from error
