"""``klamm state-changes``: merges the state-change logs of brokers, and says what happened."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta, tzinfo
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer._click.exceptions import UsageError

from cli.exit_codes import ExitCode
from cli.framework.command import CommandGroup
from cli.framework.invocation import Invocation
from cli.framework.options import Needs
from cli.output.report import Report
from engine.common.quantities import counted

if TYPE_CHECKING:
    from engine.admin.state_changes.check import StateChangeCheck
    from engine.admin.state_changes.log_files import FoundLogs
    from engine.admin.state_changes.merge import MergeWish

group = CommandGroup("state-changes", "Merge brokers' state-change logs, and see what happened.")


@dataclass(frozen=True, slots=True, kw_only=True)
class LineOptions:
    """The options that say which lines of state-change logs are meant."""

    start: Annotated[
        str | None,
        typer.Option(
            "--start", "--start-time", metavar="TIME", help="From this time: 2026-11-21 12:23:04,866, or 2h ago."
        ),
    ] = None
    end: Annotated[
        str | None, typer.Option("--end", "--end-time", metavar="TIME", help="Up to this time, inclusive.")
    ] = None
    topic: Annotated[list[str] | None, typer.Option("--topic", metavar="NAME", help="Only lines about this topic.")] = (
        None
    )
    partition: Annotated[
        list[str] | None,
        typer.Option("--partition", "--partitions", metavar="N,…", help="Only these partitions of the topic."),
    ] = None
    broker: Annotated[
        list[str] | None, typer.Option("--broker", metavar="ID,…", help="Only lines of these brokers.")
    ] = None
    tz: Annotated[
        list[str] | None,
        typer.Option(
            "--tz", metavar="[ID=]ZONE", help="The zone of the logs' times, or one broker's.  [default: local]"
        ),
    ] = None

    def wish(self) -> MergeWish:
        from engine.admin.state_changes.merge import MergeWish

        return MergeWish(
            self.start, self.end, self.topic or (), self.partition or (), self.broker or (), zones_of(self.tz)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """The options that say which logs are meant, and which of their lines."""

    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="FILE|FOLDER",
            allow_dash=True,
            help="Logs, also gzipped; folders with state-change.log files; - is stdin.",
        ),
    ] = None
    logs: Annotated[str | None, typer.Option("--logs", metavar="A,B", help="Logs, as in StateChangeLogMerger.")] = None
    logs_regex: Annotated[
        str | None,
        typer.Option("--logs-regex", metavar="FOLDER/REGEX", help="Files of a folder, as in StateChangeLogMerger."),
    ] = None
    lines: LineOptions

    def found(self) -> FoundLogs:
        """Find the logs, and look at each."""
        from engine.admin.state_changes.log_files import find_logs, look_at_logs

        return look_at_logs(find_logs(named_paths(self.paths, self.logs), self.logs_regex))


@group.command(
    "merge",
    needs=Needs(bounded=False, streams=True),
    examples=(
        "klamm state-changes merge broker-1/state-change.log broker-2/state-change.log.2026-11-21-13.gz",
        "klamm state-changes merge /var/log/collected --topic orders --start 2h",
        "klamm state-changes merge logs -o jsonl | jq 'select(.level == \"ERROR\")'",
        "klamm state-changes merge logs --parquet night.parquet --tz 3=Europe/Berlin --tz UTC",
    ),
)
def merge(
    invocation: Invocation,
    logs: LogOptions,
    parquet: Annotated[
        Path | None, typer.Option("--parquet", metavar="FILE", help="Write Parquet to this file, nothing to stdout.")
    ] = None,
) -> ExitCode:
    """Merge the state-change logs of many brokers by time.

    Reads the lines of every Kafka since 0.8.2, also behind ISO times, as JSON, and wrapped by Docker, Kubernetes or
    journald.
    In a pipe it puts the broker before each line and changes nothing else; the other formats split lines into
    fields. Lines with the same millisecond are ordered by broker; the lines of one broker keep the order of its
    log. A log may be out of order by up to an hour. Exits with 1 if a log is damaged, a line cannot be parsed, or
    no log belongs to the broker or names the topic, and with 2 if a log cannot be read; it still merges the rest.
    """
    from cli.views.state_changes import merged_rows, print_merge, tell_problems
    from engine.admin.state_changes.merge import plan_merge

    wish = logs.lines.wish()
    plan = plan_merge(logs.found(), wish)
    if parquet is None:
        print_merge(invocation, plan)
    else:
        from engine.admin.state_changes.merged_rows import write_parquet

        count = write_parquet(parquet, merged_rows(invocation, plan))
        invocation.talk.say(f"wrote {parquet}: {counted(count, 'row')}")
    return tell_problems(invocation, plan.problems)


@group.command(
    "check",
    needs=Needs(cluster=True, bounded=False),
    examples=(
        "klamm state-changes check /var/log/collected",
        "klamm state-changes check broker-*/state-change.log* --start '2026-11-21 02:00' --end '2026-11-21 05:00'",
        "klamm state-changes check logs --zookeeper 127.0.0.1:2181/kafka -o json | jq '.findings[].check'",
    ),
)
def check(
    invocation: Invocation,
    logs: LogOptions,
    window: Annotated[
        str, typer.Option("--window", metavar="DURATION", help="A change that recurs within this time is flapping.")
    ] = "10m",
    examples: Annotated[int, typer.Option("--examples", metavar="N", min=0, help="How many of each kind to show.")] = 3,
    fail_on: Annotated[
        str, typer.Option("--fail-on", metavar="warning|critical", help="What makes the exit code 1.")
    ] = "warning",
) -> Report:
    """Say what happened, from the state-change logs of all brokers.

    Names unclean elections, partitions without a leader, ISRs that flap, leadership that goes back and forth,
    controllers that kept working after they were replaced, changes that a broker missed, failed log dirs, clocks that
    disagree. If an option names a cluster, the last states in the logs are compared with it. Since Kafka 2.6, brokers
    by default do not log that a leader has changed its ISR; you see it in the controller's next line about the
    partition.
    """
    import asyncio

    from cli.views.state_changes import check_report, tell_problems, with_progress
    from engine.admin.state_changes.check import StateChangeCheck
    from engine.admin.state_changes.findings import Severity
    from engine.admin.state_changes.merge import plan_merge
    from engine.admin.state_changes.merged_rows import row_tag
    from engine.common.quantities import parse_duration_s

    if fail_on not in (Severity.WARNING, Severity.CRITICAL):
        raise UsageError(f"--fail-on must be warning or critical, not {fail_on!r}")
    try:
        duration = timedelta(seconds=parse_duration_s(window))
    except (ValueError, OverflowError):
        raise UsageError(f"--window must be a duration such as 10m, not {window!r}") from None
    wish, logs_found = logs.lines.wish(), logs.found()
    plan = plan_merge(logs_found, wish)
    # Read without an event loop: it would keep Ctrl-C waiting.
    checking = StateChangeCheck(window=duration, examples_max=examples)
    clock = plan.utc_clock()
    for batch in with_progress(invocation, plan, plan.merge(row_tag), verb="checked"):
        checking.feed(batch, clock)
    checking.end_logs()
    if _names_a_cluster(invocation):
        asyncio.run(_compare(invocation, checking))
    code = tell_problems(invocation, plan.problems)
    report = check_report(
        checking.result(), Severity(fail_on), log_count=len(plan.files), has_logs=bool(logs_found.files)
    )
    return report.ending(code)


def _names_a_cluster(invocation: Invocation) -> bool:
    """Whether an option names one: logs are often read on machines that reach no cluster."""
    options = invocation.target_options
    return any((options.zookeeper, options.bootstrap_server, options.cluster, options.snapshot))


async def _compare(invocation: Invocation, checking: StateChangeCheck) -> None:
    import asyncio

    from cli.framework.cluster_session import open_cluster
    from engine.admin.log_dirs.describing import note_hidden_topics
    from engine.admin.state_changes.cluster_comparison import compare_with_cluster
    from engine.admin.topics.access import topic_reader

    async with asyncio.timeout(invocation.timeout_s), open_cluster(invocation) as cluster:
        reader = await topic_reader(cluster, on_unknown_settings=cluster.observe)
        find_hidden = partial(note_hidden_topics, cluster)
        await compare_with_cluster(checking.states, reader, checking.book, find_hidden)


def named_paths(paths: list[Path] | None, logs: str | None) -> list[Path]:
    """Return the logs that were named, in either way."""
    return [*(paths or ()), *(Path(name.strip()) for name in (logs or "").split(",") if name.strip())]


def zones_of(texts: list[str] | None) -> dict[int | None, tzinfo | None]:
    """Return brokers' zones; None is the key of all other brokers' zone."""
    from engine.admin.state_changes.zones import parse_zone

    zones: dict[int | None, tzinfo | None] = {}
    for text in texts or ():
        broker, has_broker, zone = text.partition("=")
        is_brokers = bool(has_broker) and broker.isdecimal()
        zones[int(broker) if is_brokers else None] = parse_zone(zone if is_brokers else text)
    return zones


group.put_in_order("merge", "check")
