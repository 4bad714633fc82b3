"""``klamm perf consumer``: how fast the cluster serves records."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer._click.exceptions import UsageError

from cli.commands.perf.shared import (
    ENDLESS,
    Duration,
    Partitions,
    ReportingInterval,
    StartAt,
    group,
    refuse,
    use_bootstrap,
    use_security,
    wait_for_start,
)
from cli.exit_codes import ExitCode
from cli.framework.invocation import Invocation
from cli.framework.option_values import seconds_option
from cli.framework.options import Asks, Needs
from cli.output.format import OutputFormat

if TYPE_CHECKING:
    from engine.admin.perf.consumer import ReadLoad

_IDLE_S = 10.0


ConsumerConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--consumer.config",
        "--consumer-config",
        metavar="FILE",
        allow_dash=True,
        help="Take bootstrap.servers from this file.",
    ),
]


@group.command(
    "consumer",
    needs=Needs(cluster=True, asks=Asks.BROKERS, bounded=False, streams=True, kafka=True),
    examples=(
        "klamm perf consumer --topic orders --messages 1000000",
        "klamm perf consumer --topic orders --messages 1000000 --show-detailed-stats --reporting-interval 1000",
        "klamm perf consumer --topic orders --messages 1000000 --decode -o json",
    ),
)
async def consumer(
    invocation: Invocation,
    name: Annotated[str | None, typer.Argument(metavar="TOPIC", help="The topic to read.")] = None,
    topic: Annotated[str | None, typer.Option("--topic", metavar="TOPIC", help="The topic to read.")] = None,
    messages: Annotated[
        int | None, typer.Option("--messages", metavar="N", min=1, help="Stop after this many records.")
    ] = None,
    duration: Duration = None,
    start_at: StartAt = None,
    partition: Partitions = None,
    from_latest: Annotated[
        bool, typer.Option("--from-latest", help="Start at the end; by default at the oldest record.")
    ] = False,
    fetch_size: Annotated[
        int, typer.Option("--fetch-size", metavar="BYTES", min=1, help="Maximum bytes of a partition per fetch.")
    ] = 1_048_576,
    group_id: Annotated[
        str | None,
        typer.Option("--group", metavar="G", help="Join this group, so that several runs share the partitions."),
    ] = None,
    decode: Annotated[
        bool, typer.Option("--decode", help="Decode every record; MB then count keys and values.")
    ] = False,
    show_detailed_stats: Annotated[
        bool,
        typer.Option("--show-detailed-stats", help="Print a line per reporting interval instead of one at the end."),
    ] = False,
    reporting_interval: ReportingInterval = 5000,
    hide_header: Annotated[bool, typer.Option("--hide-header", help="Print no header.")] = False,
    consumer_config: ConsumerConfigFile = None,
    threads: Annotated[int | None, typer.Option("--threads", "--num-fetch-threads", hidden=True)] = None,
    socket_buffer_size: Annotated[int | None, typer.Option("--socket-buffer-size", hidden=True)] = None,
    date_format: Annotated[str | None, typer.Option("--date-format", hidden=True)] = None,
    print_metrics: Annotated[bool, typer.Option("--print-metrics", hidden=True)] = False,
) -> ExitCode:
    """Read a topic as fast as possible, and report rates.

    Columns are those of kafka-consumer-perf-test. The tool counts records by the headers of their batches, and MB as
    received; with --decode it decompresses every batch and decodes every record. With --group it begins at the
    committed offsets and commits what it has read. rebalance.time.ms is the time to join, or to find leaders and first
    offsets. Exits with 1 if no record arrives for --timeout seconds (10) before there are enough.
    """
    refuse(date_format, "--date-format", "times have the form of kafka-consumer-perf-test, or ISO 8601")
    refuse(print_metrics, "--print-metrics", "the metrics are those of the Java client; -o json has all figures")
    for option, value in (("--threads", threads), ("--socket-buffer-size", socket_buffer_size)):
        if value is not None:
            invocation.talk.warn(f"{option} has no effect here")
    if group_id is not None and (partition or not group_id):
        raise UsageError("--group needs a name, and excludes --partition: the group decides which partitions to read")
    _use_config(invocation, consumer_config)
    from engine.admin.perf.consumer import ReadLoad

    load = ReadLoad(
        _the_topic(name, topic),
        ENDLESS if messages is None and duration is not None else _needed(messages),
        tuple(sorted(set(partition or ()))),
        from_latest,
        fetch_size,
        decode,
        invocation.timeout_s if invocation.has_timeout_given else _IDLE_S,
        reporting_interval / 1000,
        group_id,
        invocation.timeout_s,
        None if duration is None else seconds_option("--duration", duration),
    )
    return await _read(invocation, load, start_at, is_detailed=show_detailed_stats, has_header=not hide_header)


def _use_config(invocation: Invocation, file: Path | None) -> None:
    """Take the brokers from a file of consumer settings."""
    if file is not None:
        from engine.admin.cluster.client_properties import load_client_properties

        entries = load_client_properties(file).entries
        use_bootstrap(invocation, entries)
        use_security(invocation, file, entries)


def _the_topic(name: str | None, topic: str | None) -> str:
    if name is not None and topic is not None and name != topic:
        raise UsageError("two topics are named; give one")
    wanted = name or topic
    if wanted is None:
        raise UsageError("no topic is named: give --topic TOPIC")
    return wanted


def _needed(messages: int | None) -> int:
    if messages is None:
        raise UsageError("how many records? give --messages N, or --duration TIME")
    return messages


async def _read(
    invocation: Invocation, load: ReadLoad, start_at: float | None, *, is_detailed: bool, has_header: bool
) -> ExitCode:
    from cli.framework.cluster_session import open_cluster
    from cli.framework.progress import Progress
    from cli.views.perf import ConsumePrinter
    from engine.admin.perf.consumer import PerfConsumer

    async with open_cluster(invocation) as cluster:
        test = PerfConsumer(await cluster.wire(), load, observe=invocation.talk.detail)
        await wait_for_start(start_at)
        count = None if load.record_count == ENDLESS else load.record_count
        progress = Progress(invocation.talk, "read", "records", count)
        printer = ConsumePrinter(invocation.output, progress, is_detailed=is_detailed, has_header=has_header)
        is_kafka = invocation.output is OutputFormat.KAFKA
        is_enough = is_short = False
        try:
            is_enough = await test.run(printer.window, progress.update)
            is_short = not is_enough
        finally:
            progress.end()
            if is_enough or test.totals.consumed_records or (is_short and is_kafka):
                printer.end(test.totals, load.idle_s if is_short else None)
    if is_enough or is_kafka:
        return ExitCode.DONE
    got = f"{test.totals.consumed_records} of {load.record_count} records came, then none for {load.idle_s:g} s"
    invocation.talk.warn(f"{got}; --timeout SECONDS waits longer")
    return ExitCode.BAD_ANSWER
