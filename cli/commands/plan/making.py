"""``klamm plan STRATEGY``: the commands that make a plan and change nothing. All share their options."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from typer._click.exceptions import UsageError

from cli.commands.plan.shared import group, read_named
from cli.exit_codes import ExitCode
from cli.framework.failure import Failure
from cli.framework.invocation import Invocation, Stop
from cli.framework.option_values import seconds_option
from cli.framework.options import Needs
from cli.output.format import OutputFormat
from cli.output.report import Report
from engine.runtime.input_files import name_of

if TYPE_CHECKING:
    from engine.common.snapshot import ClusterSnapshot
    from plans.options import PlanOptions, Replacement
    from plans.plan_file import PlanFile

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningOptions:
    """The options of every command that makes a plan."""

    aim: Annotated[
        str | None, typer.Option("--aim", metavar="LIST", help="What to balance: replicas,leaders,bytes.")
    ] = None
    topic: Annotated[
        list[str] | None, typer.Option("--topic", metavar="REGEX", help="Only topics whose whole name matches move.")
    ] = None
    exclude_topic: Annotated[
        list[str] | None,
        typer.Option(
            "--exclude-topic", metavar="REGEX", help="Topics whose whole name matches count as load and do not move."
        ),
    ] = None
    exclude_broker: Annotated[
        list[int] | None, typer.Option("--exclude-broker", metavar="B", help="Never a target.")
    ] = None
    pin: Annotated[list[str] | None, typer.Option("--pin", metavar="TOPIC-PARTITION", help="Stays as it is.")] = None
    minimise: Annotated[
        str | None,
        typer.Option("--minimise", metavar="moves|bytes", help="What to minimise first.  [default: bytes if known]"),
    ] = None
    tolerance: Annotated[
        float, typer.Option("--tolerance", metavar="PERCENT", min=0, help="Allowed deviation of bytes.")
    ] = 5.0
    max_moves: Annotated[int | None, typer.Option("--max-moves", metavar="N", min=0, help="Make at most N moves.")] = (
        None
    )
    max_bytes: Annotated[str | None, typer.Option("--max-bytes", metavar="SIZE", help="Copy at most SIZE.")] = None
    capacity: Annotated[
        Path | None,
        typer.Option("--capacity", metavar="FILE", allow_dash=True, help='TOML: [brokers] 7 = "2 TB", [log-dirs] …'),
    ] = None
    keep_dead: Annotated[
        bool, typer.Option("--keep-dead", help="Leave the replicas of dead brokers where they are.")
    ] = False
    throttle: Annotated[
        str | None, typer.Option("--throttle", metavar="SIZE", help="Bytes a second, to estimate the time.")
    ] = None
    time_limit: Annotated[
        str | None,
        typer.Option("--time-limit", metavar="TIME", help="Limit the solver to about this much work: 30s, 2m."),
    ] = None
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write the plan there.")] = None
    explain: Annotated[
        list[str] | None, typer.Option("--explain", metavar="TOPIC-PARTITION", help="Say why it moves or stays.")
    ] = None

    def of_planner(self) -> PlanOptions:
        """Return what they mean to the planner.

        Raises:
            UsageError: a text means nothing.
        """
        from plans.options import PlanOptions, aims, parse_capacities
        from plans.options import minimise as figure

        brokers, log_dirs = (
            parse_capacities(read_named(self.capacity, _WRITE_CAPACITIES), name_of(self.capacity))
            if self.capacity
            else ((), ())
        )
        return PlanOptions(
            aim=None if self.aim is None else _read(aims, self.aim, "--aim"),
            topics=tuple(self.topic or ()),
            exclude_topics=tuple(self.exclude_topic or ()),
            exclude_brokers=tuple(sorted(set(self.exclude_broker or ()))),
            pins=tuple(self.pin or ()),
            minimise=None if self.minimise is None else _read(figure, self.minimise, "--minimise"),
            tolerance_percent=self.tolerance,
            max_moves=self.max_moves,
            max_bytes=_size("--max-bytes", self.max_bytes),
            broker_capacities=brokers,
            log_dir_capacities=log_dirs,
            keep_dead=self.keep_dead,
            throttle=_size("--throttle", self.throttle) or None,
            time_limit_s=None if self.time_limit is None else seconds_option("--time-limit", self.time_limit),
        )


_WRITE_CAPACITIES = 'write one in TOML: a line [brokers], and below it a line such as 7 = "2 TB"'


async def _run(invocation: Invocation, name: str, options: PlanningOptions, **own: Any) -> Report:
    """Make a plan. ``own`` are the fields of PlanOptions that the strategy's own arguments set."""
    from cli.framework.progress import Activity
    from cli.views.plan import plan_report, sentences
    from plans.errors import Infeasible
    from plans.explaining import explanations
    from plans.options import Strategy
    from plans.planning import make_plan

    wanted = replace(options.of_planner(), **own)
    _refuse_lost(options.out)
    cluster_snapshot = await _snapshot(invocation, (*wanted.topics, *wanted.exclude_topics))
    started = time.monotonic()
    activity = Activity(invocation.talk, "planning")
    try:
        made = make_plan(cluster_snapshot, Strategy(name), wanted, progress=activity.update)
        explained = explanations(made, options.explain or ())
    except Infeasible as error:
        raise Stop(Failure(ExitCode.BAD_ANSWER, "infeasible", str(error), hint=error.hint)) from error
    finally:
        activity.end()
    for note in made.notes:
        invocation.talk.say(f"note: {note}")
    _write(invocation, made.plan, options.out)
    invocation.talk.say(f"planned in {time.monotonic() - started:.1f} s")
    if invocation.output not in (OutputFormat.TABLE, OutputFormat.MARKDOWN):
        for sentence in sentences(made, explained):
            invocation.talk.say(sentence)
    return plan_report(made, explained)


def _refuse_lost(out: Path | None) -> None:
    """Refuse a plan that could not be written, or only over one that has begun, before the work that makes it.

    Raises:
        UsageError: the folder does not exist.
        BadRequest: the file's plan has begun: without it nobody can resume it or roll it back.
    """
    from engine.admin.reassignment.plan_runs import refuse_overwriting

    if out is None:
        return
    if not out.parent.is_dir():
        raise UsageError(f"--out: no such folder: {out.parent}")
    refuse_overwriting(out)


def _write(invocation: Invocation, plan: PlanFile, out: Path | None) -> None:
    from plans.plan_file import encode_plan

    if out is not None:
        out.write_text(encode_plan(plan), encoding="utf-8")
        invocation.talk.say(f"wrote {out}")
        if plan.partitions:
            check, apply = (
                invocation.pasteable(shlex.join(["klamm", "plan", verb, str(out)])) for verb in ("check", "apply")
            )
            invocation.talk.say(f"next: {check}, then: {apply}")


async def _snapshot(invocation: Invocation, patterns: Sequence[str]) -> ClusterSnapshot:
    """Return the cluster to plan for. A pattern that matches hidden topics alone is refused: they are not in there."""
    from cli.framework.cluster_session import open_cluster
    from engine.admin.cluster.errors import BadRequest
    from engine.admin.log_dirs.describing import hidden_matches
    from engine.admin.snapshots.taking import take_for_planning
    from engine.admin.topics.selection import select_topics

    async with open_cluster(invocation) as cluster:
        taken = await take_for_planning(cluster, invocation.talk.warn)
        # What is no pattern at all, the planner refuses.
        with suppress(BadRequest):
            unmatched = select_topics(patterns).unmatched(topic.name for topic in taken.topics)
            unmatched += await hidden_matches(cluster, unmatched)
            if (refusal := await cluster.hidden(unmatched)) is not None:
                raise refusal
        return taken


def _read(parse: Callable[[str, str], T], text: str, option: str) -> T:
    """Return what an option's text means; one that means nothing is wrong use."""
    from plans.errors import BadOption

    try:
        return parse(text, option)
    except BadOption as error:
        raise UsageError(str(error)) from error


def _size(option: str, text: str | None) -> int | None:
    from plans.options import size

    return None if text is None else _read(size, text, option)


def _ids(text: str, option: str) -> tuple[int, ...]:
    from plans.options import broker_ids

    return _read(broker_ids, text, option)


def _replacements(text: str) -> tuple[Replacement, ...]:
    from plans.options import replacements

    return _read(replacements, text, "replace")


_Brokers = Annotated[str, typer.Argument(metavar="BROKER[,…]", help="Ids of brokers.")]
_NEEDS = Needs(cluster=True)


@group.command(
    "rebalance",
    needs=_NEEDS,
    examples=(
        "klamm plan rebalance --out plan.json",
        "klamm plan rebalance --aim replicas,leaders,bytes --throttle 50M",
        "klamm plan rebalance --max-bytes 200GB --exclude-topic 'logs.*'",
    ),
)
async def rebalance(invocation: Invocation, options: PlanningOptions) -> Report:
    """Level replicas and leaders over the brokers, or bytes, with the fewest bytes or moves.

    Partitions with two replicas in one rack are repaired, and dead brokers are emptied first.
    """
    return await _run(invocation, "rebalance", options)


@group.command(
    "decommission",
    needs=_NEEDS,
    examples=("klamm plan decommission 7 --out plan.json", "klamm plan decommission 7 --aim replicas,leaders"),
)
async def decommission(invocation: Invocation, brokers: _Brokers, options: PlanningOptions) -> Report:
    """Empty brokers, alive or dead, so that they can be removed.

    Without --aim only what must move moves; with it, the other brokers are levelled too.
    """
    return await _run(invocation, "decommission", options, brokers=_ids(brokers, "decommission"))


@group.command("replace", needs=_NEEDS, examples=("klamm plan replace 7=8 --out plan.json",))
async def replace_brokers(
    invocation: Invocation,
    pairs: Annotated[str, typer.Argument(metavar="OLD=NEW[,…]", help="Which broker takes whose place.")],
    options: PlanningOptions,
) -> Report:
    """Move all of a broker's replicas to another one. Where racks forbid that, the plan uses others, and says so."""
    return await _run(invocation, "replace", options, replacements=_replacements(pairs))


@group.command(
    "expand",
    needs=_NEEDS,
    examples=("klamm plan expand 4,5 --out plan.json", "klamm plan expand 4,5 --aim replicas,leaders --minimise moves"),
)
async def expand(invocation: Invocation, brokers: _Brokers, options: PlanningOptions) -> Report:
    """Fill new brokers. Data moves onto these only, not between the others."""
    return await _run(invocation, "expand", options, brokers=_ids(brokers, "expand"))


@group.command("racks", needs=_NEEDS, examples=("klamm plan racks --out plan.json",))
async def racks(invocation: Invocation, options: PlanningOptions) -> Report:
    """Repair partitions that span fewer racks than they could. Dead brokers are emptied first."""
    return await _run(invocation, "racks", options)


@group.command("factor", needs=_NEEDS, examples=("klamm plan factor 3 --topic 'orders.*' --out plan.json",))
async def factor(
    invocation: Invocation,
    factor: Annotated[int, typer.Argument(metavar="N", min=1, help="Replicas of each partition.")],
    options: PlanningOptions,
) -> Report:
    """Raise or lower the replication factor."""
    return await _run(invocation, "factor", options, replication_factor=factor)


@group.command("move", needs=_NEEDS, examples=("klamm plan move --topic orders --brokers 4,5,6 --out plan.json",))
async def move(
    invocation: Invocation,
    brokers: Annotated[str, typer.Option("--brokers", metavar="LIST", help="Brokers to hold the topics.")],
    options: PlanningOptions,
) -> Report:
    """Move topics to a list of brokers, with the fewest moves: what is there already stays."""
    return await _run(invocation, "move", options, brokers=_ids(brokers, "--brokers"))


@group.command("leaders", needs=_NEEDS, examples=("klamm plan leaders --out plan.json",))
async def leaders(invocation: Invocation, options: PlanningOptions) -> Report:
    """Level the leaders by putting replica lists in another order. Nothing is copied."""
    return await _run(invocation, "leaders", options)


@group.command(
    "log-dirs",
    needs=_NEEDS,
    examples=("klamm plan log-dirs --out plan.json", "klamm plan log-dirs --broker 7 --tolerance 10"),
)
async def log_dirs(
    invocation: Invocation,
    *,
    broker: Annotated[list[int] | None, typer.Option("--broker", metavar="B", help="Only these brokers.")] = None,
    options: PlanningOptions,
) -> Report:
    """Level the disks inside each broker."""
    return await _run(invocation, "log-dirs", options, brokers=tuple(sorted(set(broker or ()))))
