"""``klamm plan STRATEGY``: the commands that make a plan and change nothing. All share their options."""

from __future__ import annotations

import inspect
import shlex
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
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

_SHARED: dict[str, tuple[Any, Any]] = {
    "aim": (str | None, typer.Option("--aim", metavar="LIST", help="What to balance: replicas,leaders,bytes.")),
    "topic": (
        list[str] | None, typer.Option("--topic", metavar="REGEX", help="Only topics whose whole name matches move."),
    ),
    "exclude_topic": (
        list[str] | None,
        typer.Option(
            "--exclude-topic", metavar="REGEX", help="Topics whose whole name matches count as load and do not move."
        ),
    ),
    "exclude_broker": (list[int] | None, typer.Option("--exclude-broker", metavar="B", help="Never a target.")),
    "pin": (list[str] | None, typer.Option("--pin", metavar="TOPIC-PARTITION", help="Stays as it is.")),
    "minimise": (
        str | None,
        typer.Option("--minimise", metavar="moves|bytes", help="What to minimise first.  [default: bytes if known]"),
    ),
    "tolerance": (float, typer.Option("--tolerance", metavar="PERCENT", min=0, help="Allowed deviation of bytes.")),
    "max_moves": (int | None, typer.Option("--max-moves", metavar="N", min=0, help="Make at most N moves.")),
    "max_bytes": (str | None, typer.Option("--max-bytes", metavar="SIZE", help="Copy at most SIZE.")),
    "capacity": (
        Path | None,
        typer.Option(
            "--capacity", metavar="FILE", allow_dash=True, help="TOML: [brokers] 7 = \"2 TB\", [log-dirs] …"
        ),
    ),
    "keep_dead": (bool, typer.Option("--keep-dead", help="Leave the replicas of dead brokers where they are.")),
    "throttle": (str | None, typer.Option("--throttle", metavar="SIZE", help="Bytes a second, to estimate the time.")),
    "time_limit": (
        str | None,
        typer.Option("--time-limit", metavar="TIME", help="Limit the solver to about this much work: 30s, 2m."),
    ),
    "out": (Path | None, typer.Option("--out", metavar="FILE", help="Write the plan there.")),
    "explain": (
        list[str] | None, typer.Option("--explain", metavar="TOPIC-PARTITION", help="Say why it moves or stays."),
    ),
}  # fmt: skip
_WRITE_CAPACITIES = 'write one in TOML: a line [brokers], and below it a line such as 7 = "2 TB"'
_DEFAULTS: dict[str, Any] = {"tolerance": 5.0, "keep_dead": False}

Reading = Callable[[dict[str, Any]], dict[str, Any]]
"""From the values of a strategy's own arguments to fields of PlanOptions."""


def _strategy(name: str, summary: str, examples: Sequence[str], own: dict[str, Any], read: Reading) -> None:
    """Declare the command of one strategy: its own arguments, then those that all share."""

    async def command(invocation: Invocation, **values: Any) -> Report:
        return await _run(invocation, name, read(values), values)

    parameters = [inspect.Parameter("invocation", inspect.Parameter.POSITIONAL_OR_KEYWORD)]
    for key, annotation in own.items():
        kind, default = annotation if isinstance(annotation, tuple) else (annotation, inspect.Parameter.empty)
        parameters.append(inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind))
    for key, (kind, option) in _SHARED.items():
        parameters.append(
            inspect.Parameter(
                key, inspect.Parameter.KEYWORD_ONLY, default=_DEFAULTS.get(key), annotation=Annotated[kind, option]
            )
        )
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__doc__ = summary
    command.__name__ = name.replace("-", "_")
    function: Callable[..., Awaitable[Report]] = command
    group.command(name, needs=Needs(cluster=True), examples=tuple(examples))(function)


async def _run(invocation: Invocation, name: str, own: dict[str, Any], values: dict[str, Any]) -> Report:
    from cli.framework.progress import Activity
    from cli.views.plan import plan_report, sentences
    from plans.errors import Infeasible
    from plans.explaining import explanations
    from plans.options import Strategy
    from plans.planning import make_plan

    strategy = Strategy(name)
    options = _options(own, values)
    _refuse_lost(values["out"])
    cluster_snapshot = await _snapshot(invocation, (*options.topics, *options.exclude_topics))
    started = time.monotonic()
    activity = Activity(invocation.talk, "planning")
    try:
        made = make_plan(cluster_snapshot, strategy, options, progress=activity.update)
        explained = explanations(made, values["explain"] or ())
    except Infeasible as error:
        raise Stop(Failure(ExitCode.BAD_ANSWER, "infeasible", str(error), hint=error.hint)) from error
    finally:
        activity.end()
    for note in made.notes:
        invocation.talk.say(f"note: {note}")
    _write(invocation, made.plan, values["out"])
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


def _options(own: dict[str, Any], values: dict[str, Any]) -> PlanOptions:
    from plans.capacity_file import parse_capacities
    from plans.option_texts import aims
    from plans.option_texts import minimise as figure
    from plans.options import PlanOptions

    capacity: Path | None = values["capacity"]
    brokers, log_dirs = (
        parse_capacities(read_named(capacity, _WRITE_CAPACITIES), name_of(capacity)) if capacity else ((), ())
    )
    aim, minimise, limit = values["aim"], values["minimise"], values["time_limit"]
    return PlanOptions(
        aim=None if aim is None else _read(aims, aim, "--aim"),
        topics=tuple(values["topic"] or ()),
        exclude_topics=tuple(values["exclude_topic"] or ()),
        exclude_brokers=tuple(sorted(set(values["exclude_broker"] or ()))),
        pins=tuple(values["pin"] or ()),
        minimise=None if minimise is None else _read(figure, minimise, "--minimise"),
        tolerance_percent=values["tolerance"],
        max_moves=values["max_moves"],
        max_bytes=_size("--max-bytes", values["max_bytes"]),
        broker_capacities=brokers,
        log_dir_capacities=log_dirs,
        keep_dead=values["keep_dead"],
        throttle=_size("--throttle", values["throttle"]) or None,
        time_limit_s=None if limit is None else seconds_option("--time-limit", limit),
        **own,
    )


def _read(parse: Callable[[str, str], T], text: str, option: str) -> T:
    """Return what an option's text means; one that means nothing is wrong use."""
    from plans.errors import BadOption

    try:
        return parse(text, option)
    except BadOption as error:
        raise UsageError(str(error)) from error


def _size(option: str, text: str | None) -> int | None:
    from plans.option_texts import size

    return None if text is None else _read(size, text, option)


def _ids(text: str, what: str) -> tuple[int, ...]:
    from plans.option_texts import broker_ids

    return _read(broker_ids, text, what)


def _replacements(text: str) -> tuple[Replacement, ...]:
    from plans.option_texts import replacements

    return _read(replacements, text, "replace")


_Brokers = Annotated[str, typer.Argument(metavar="BROKER[,…]", help="Ids of brokers.")]

_strategy(
    "rebalance",
    """Level replicas and leaders over the brokers, or bytes, with the fewest bytes or moves.

    Partitions with two replicas in one rack are repaired, and dead brokers are emptied first.
    """,
    (
        "klamm plan rebalance --out plan.json",
        "klamm plan rebalance --aim replicas,leaders,bytes --throttle 50M",
        "klamm plan rebalance --max-bytes 200GB --exclude-topic 'logs.*'",
    ),
    {},
    lambda values: {},
)
_strategy(
    "decommission",
    """Empty brokers, alive or dead, so that they can be removed.

    Without --aim only what must move moves; with it, the other brokers are levelled too.
    """,
    ("klamm plan decommission 7 --out plan.json", "klamm plan decommission 7 --aim replicas,leaders"),
    {"brokers": _Brokers},
    lambda values: {"brokers": _ids(values["brokers"], "decommission")},
)
_strategy(
    "replace",
    """Move all of a broker's replicas to another one. Where racks forbid that, the plan uses others, and says so.""",
    ("klamm plan replace 7=8 --out plan.json",),
    {"pairs": Annotated[str, typer.Argument(metavar="OLD=NEW[,…]", help="Which broker takes whose place.")]},
    lambda values: {"replacements": _replacements(values["pairs"])},
)
_strategy(
    "expand",
    """Fill new brokers. Data moves onto these only, not between the others.""",
    ("klamm plan expand 4,5 --out plan.json", "klamm plan expand 4,5 --aim replicas,leaders --minimise moves"),
    {"brokers": _Brokers},
    lambda values: {"brokers": _ids(values["brokers"], "expand")},
)
_strategy(
    "racks",
    """Repair partitions that span fewer racks than they could. Dead brokers are emptied first.""",
    ("klamm plan racks --out plan.json",),
    {},
    lambda values: {},
)
_strategy(
    "factor",
    """Raise or lower the replication factor.""",
    ("klamm plan factor 3 --topic 'orders.*' --out plan.json",),
    {"factor": Annotated[int, typer.Argument(metavar="N", min=1, help="Replicas of each partition.")]},
    lambda values: {"replication_factor": values["factor"]},
)
_strategy(
    "move",
    """Move topics to a list of brokers, with the fewest moves: what is there already stays.""",
    ("klamm plan move --topic orders --brokers 4,5,6 --out plan.json",),
    {"brokers": Annotated[str, typer.Option("--brokers", metavar="LIST", help="Brokers to hold the topics.")]},
    lambda values: {"brokers": _ids(values["brokers"], "--brokers")},
)
_strategy(
    "leaders",
    """Level the leaders by putting replica lists in another order. Nothing is copied.""",
    ("klamm plan leaders --out plan.json",),
    {},
    lambda values: {},
)
_strategy(
    "log-dirs",
    """Level the disks inside each broker.""",
    ("klamm plan log-dirs --out plan.json", "klamm plan log-dirs --broker 7 --tolerance 10"),
    {
        "broker": (
            Annotated[list[int] | None, typer.Option("--broker", metavar="B", help="Only these brokers.")],
            None,
        )
    },
    lambda values: {"brokers": tuple(sorted(set(values["broker"] or ())))},
)
