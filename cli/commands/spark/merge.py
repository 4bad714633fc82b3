"""``klamm spark merge``."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from cli.commands.spark.shared import SessionOptions, group, open_spark, path_of, tasks_shown
from cli.commands.state_changes import LineOptions
from cli.framework.invocation import Invocation
from cli.framework.options import Needs
from cli.output.report import Column, Kind, Report, Table

if TYPE_CHECKING:
    from engine.spark.log_merge import MergeResult

_PARTS = (Column("path"), Column("size_bytes", Kind.NUMBER))

Places = Annotated[
    list[str] | None,
    typer.Argument(metavar="FILE|FOLDER", help="Logs, also gzipped, or folders with state-change.log files."),
]


@group.command(
    "merge",
    needs=Needs(bounded=False),
    examples=(
        "klamm spark merge /mnt/logs --out /mnt/merged",
        "klamm spark merge /mnt/logs --out night.log --single --master 'local[8]'",
        "klamm spark merge /mnt/logs --out orders.log --single --topic orders --start '2026-11-21 02:00'",
        "klamm spark merge /mnt/logs --out /mnt/merged --master spark://head:7077 --conf spark.executor.memory=2g",
        "klamm spark merge s3a://lake/logs --out s3a://lake/merged --master spark://head:7077",
        "klamm spark merge hdfs:///logs --out hdfs:///merged --master yarn",
    ),
)
def merge(
    invocation: Invocation,
    *,
    paths: Places = None,
    out: Annotated[str | None, typer.Option("--out", metavar="FOLDER", help="A folder that does not exist.")] = None,
    single: Annotated[bool, typer.Option("--single", help="Write one file, not a folder of parts.")] = False,
    lines: LineOptions,
    session: SessionOptions,
) -> Report:
    """Merge the state-change logs of many brokers by time, as a Spark job.

    It writes what klamm state-changes merge writes in a pipe, byte for byte, with the same filters; read the parts in
    the order of their names. Executors must see logs and output under the same paths: mounted ones, s3a://, gs://,
    abfs://, hdfs:// or whatever else Spark reads. klamm state-changes merge reads the result, too.
    """
    from cli.framework.failure import Failure
    from cli.framework.invocation import Stop
    from cli.views.state_changes import tell_problems
    from engine.admin.lag.stores import needs_spark
    from engine.admin.state_changes.log_files import find_logs, look_at_logs
    from engine.admin.state_changes.merge import plan_merge
    from engine.spark.log_merge import merge_logs, refuse_existing

    if out is None:
        from cli.exit_codes import ExitCode

        raise Stop(Failure(ExitCode.USAGE, "usage", "no place to write is given", hint="give --out FOLDER"))
    places, wish = paths or [], lines.wish()
    opening = open_spark(invocation, session, name="klamm spark merge")
    with ExitStack() as stack:
        # Otherwise what is wrong with logs or output is known before Spark has started.
        spark = stack.enter_context(opening) if any(map(needs_spark, [*places, out])) else None
        target = path_of(out)
        refuse_existing(target)
        plan = plan_merge(look_at_logs(find_logs([path_of(place) for place in places])), wish)
        spark = spark or stack.enter_context(opening)
        with tasks_shown(invocation, spark):
            result = merge_logs(spark, plan, target, is_single=single)
        report = _merge_report(result)
    return replace(report, exit_code=tell_problems(invocation, result.problems))


def _merge_report(result: MergeResult) -> Report:
    """A row for each part, in reading order."""
    rows = [(str(path), path.stat().st_size) for path in result.parts]
    value = [{"path": path, "size_bytes": size} for path, size in rows]
    why = () if result.reason is None else (f"merged by one task: {result.reason}",)
    return Report(value, Table(_PARTS, rows), notes=(f"merged {result.size_bytes} bytes", *why))
