"""``klamm state-changes merge``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.commands.state_changes.shared import (
    Brokers,
    End,
    Logs,
    LogsRegex,
    Partitions,
    Paths,
    Start,
    Topics,
    Zones,
    group,
    named_paths,
    zones_of,
)
from cli.exit_codes import ExitCode
from cli.framework.invocation import Invocation
from cli.framework.options import Needs
from engine.common.quantities import counted


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
    paths: Paths = None,
    logs: Logs = None,
    logs_regex: LogsRegex = None,
    start: Start = None,
    end: End = None,
    topic: Topics = None,
    partition: Partitions = None,
    broker: Brokers = None,
    tz: Zones = None,
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
    from engine.admin.state_changes.log_files import find_logs, look_at_logs
    from engine.admin.state_changes.merge import MergeWish, plan_merge

    wish = MergeWish(start, end, topic or (), partition or (), broker or (), zones_of(tz))
    plan = plan_merge(look_at_logs(find_logs(named_paths(paths, logs), logs_regex)), wish)
    if parquet is None:
        print_merge(invocation, plan)
    else:
        from engine.admin.state_changes.parquet_file import write_parquet

        count = write_parquet(parquet, merged_rows(invocation, plan))
        invocation.talk.say(f"wrote {parquet}: {counted(count, 'row')}")
    return tell_problems(invocation, plan.problems)
