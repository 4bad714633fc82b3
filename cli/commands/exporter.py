"""``klamm exporter``: the metrics of any cluster for Prometheus, from one process."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import typer
from typer._click.exceptions import UsageError

from cli.exit_codes import ExitCode
from cli.framework.command import single_command
from cli.framework.completing import one_of
from cli.framework.invocation import Invocation
from cli.framework.option_values import Checkpoints, EventLogs, address_option, seconds_option
from cli.framework.options import Asks, Needs
from cli.framework.stdout import data_stream

if TYPE_CHECKING:
    from engine.admin.analysis.exporter_metrics import FrameMetrics
    from engine.admin.cluster.target import ClusterTarget
    from engine.admin.watch.frame import Frame
    from engine.common.metric import Metric

_GROUPS_PER_READING = 400
"""No screen waits for it, so it may be more than in the dashboard."""
PRINTED = ("grafana", "alerts", "scrape")


@dataclass(frozen=True, slots=True)
class Page:
    """What a server of metrics answers from now on.

    Attributes:
        make: makes the metrics when a scraper asks for them, in the scraper's thread.
        trouble: why the cluster does not answer; empty if it does.
        read_at_s: when the data were read, by the wall clock; None: now.
    """

    make: Callable[[], list[Metric]]
    trouble: str = ""
    read_at_s: float | None = None


@single_command(
    "exporter",
    needs=Needs(cluster=True, asks=Asks.CLUSTER, bounded=False),
    examples=(
        "klamm exporter -b kafka1:9092",
        "klamm exporter --cluster prod --listen :9308 --group 'billing|orders-.*'",
        "klamm exporter --cluster prod --once | grep kafka_consumergroup_group_sum_lag",
        "klamm exporter --print grafana > klamm-board.json",
        "klamm exporter --print alerts > klamm-alerts.yml",
        "klamm exporter --print scrape >> prometheus.yml",
    ),
)
async def command(
    invocation: Invocation,
    listen: Annotated[
        str, typer.Option("--listen", metavar="[HOST]:PORT", help="Serve there; without HOST, to every machine.")
    ] = "127.0.0.1:9308",
    topic: Annotated[
        list[str] | None, typer.Option("--topic", metavar="REGEX", help="Series of these topics only; may be repeated.")
    ] = None,
    group: Annotated[
        list[str] | None, typer.Option("--group", metavar="REGEX", help="Series of these groups only; may be repeated.")
    ] = None,
    checkpoint: Checkpoints = None,
    event_log: EventLogs = None,
    partitions: Annotated[
        bool, typer.Option("--partitions", help="Series for each partition, too: there may be very many.")
    ] = False,
    series_max: Annotated[
        int, typer.Option("--series-max", metavar="N", min=1, help="At most this many series of one metric.")
    ] = 50_000,
    interval: Annotated[
        str, typer.Option("--interval", metavar="TIME", help="Time between two readings: 500ms to 10s.")
    ] = "10s",
    once: Annotated[bool, typer.Option("--once", help="Read everything once, print it, and end.")] = False,
    printed: Annotated[
        str | None,
        typer.Option(
            "--print",
            metavar="grafana|alerts|scrape",
            help="Print a board, alert rules or a scrape job, and end.",
            autocompletion=one_of(*PRINTED),
        ),
    ] = None,
) -> ExitCode | None:
    """Serve a cluster's metrics to Prometheus, until Ctrl-C.

    One process watches the cluster as the dashboard does: brokers, controller, partitions, sizes, disks, the lag of
    groups and of Spark's queries with klamm's status, reassignments, transactions, and what klamm cluster health finds.
    It works with any Kafka cluster.

    A scrape costs the cluster nothing: it gets what was read last. A reading that takes long is repeated less often,
    and a broker that does not answer delays nothing else. Figures that are too old are left out. While nobody answers,
    klamm_cluster_up is 0 and there are no figures. /healthz says how old the figures are, or, with status 503, why
    there are none. /metrics returns 503 until there is a first answer. With --once, a cluster whose brokers do not
    answer ends it with 3, after what ZooKeeper knows.
    """
    if printed is not None:
        _print_text(printed, listen)
        return None
    from engine.admin.analysis.exporter_metrics import FrameMetrics, MetricsScope
    from engine.admin.topics.selection import select_topics

    address, interval_s = address_option("--listen", listen), seconds_option("--interval", interval)
    if not 0.5 <= interval_s <= 10:
        raise UsageError("--interval must be 500ms to 10s; what takes long is read less often by itself")
    scope = MetricsScope(select_topics(topic or []), _patterns(group or []), partitions, series_max)
    target = invocation.target()
    if checkpoint or event_log:
        target = replace(target, checkpoints=tuple(checkpoint or ()), event_logs=tuple(event_log or ()))
    maker = FrameMetrics(scope)
    if once:
        return await _print_once(invocation, target, maker)
    note = f"updated every {interval_s:g} s"
    await serve(invocation, "--listen", address, note, _pages(invocation, target, interval_s, maker))
    return None


async def serve(
    invocation: Invocation, option: str, address: tuple[str, int], how_often: str, pages: AsyncIterator[Page]
) -> None:
    """Answer Prometheus with the last page, until Ctrl-C; say once when the cluster falls silent and when it is back.

    Raises:
        UsageError: the address that ``option`` gave cannot be listened on.
    """
    from engine.common.metric import prometheus_text
    from engine.runtime.metrics_server import MetricsServer

    try:
        listening = MetricsServer(address)
    except OSError as error:
        where = f"{address[0]}:{address[1]}"
        raise UsageError(f"{option} cannot listen at {where}: {error.strerror}; name another port") from error
    trouble = ""
    with listening as server:
        invocation.talk.say(f"serving {server.address}, {how_often}; Ctrl-C ends it")
        invocation.is_ended_by_interrupt = True
        async for page in pages:
            if bool(page.trouble) != bool(trouble):
                if page.trouble:
                    invocation.talk.warn(f"the cluster does not answer: {page.trouble}")
                else:
                    invocation.talk.say("the cluster answers again")
            trouble = page.trouble
            server.show(lambda page=page: prometheus_text(page.make()), trouble=trouble, read_at_s=page.read_at_s)  # type: ignore[misc]


async def _pages(
    invocation: Invocation, target: ClusterTarget, interval_s: float, maker: FrameMetrics
) -> AsyncIterator[Page]:
    from engine.admin.analysis.exporter_metrics import read_at_ms, trouble_of
    from engine.admin.watch.live_feed import LiveFeed

    feed = LiveFeed(target, interval_s=interval_s, groups_per_reading=_GROUPS_PER_READING)
    await feed.start()
    try:
        async for frame in feed.frames():
            if not frame.has_tried_links:
                continue
            invocation.tell_hidden_so_far(frame.denied, frame.principal)
            at_ms = read_at_ms(frame)
            yield Page(_making(maker, frame), trouble_of(frame), None if at_ms is None else at_ms / 1000)
    finally:
        await feed.close()


def _making(maker: FrameMetrics, frame: Frame) -> Callable[[], list[Metric]]:
    return lambda: [*maker.of_frame(frame), *_of_process()]


def _of_process() -> list[Metric]:
    """Return what this process itself costs, under the names of Prometheus' own libraries."""
    import resource
    import time

    from engine.common.metric import Metric

    cpu = Metric("process_cpu_seconds_total", "CPU of the exporter.", [({}, time.process_time())], "counter")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return [cpu, Metric("process_resident_memory_max_bytes", "The most memory it took (Linux).", [({}, peak)])]


async def _print_once(invocation: Invocation, target: ClusterTarget, maker: FrameMetrics) -> ExitCode:
    import asyncio

    from cli.framework.cluster_session import open_cluster
    from engine.admin.cluster.errors import Unreachable
    from engine.admin.cluster.remedies import START_IT
    from engine.admin.cluster.target import Side
    from engine.admin.watch.frame import LinkState, Stage
    from engine.admin.watch.live_feed import first_frame_with
    from engine.common.metric import prometheus_lines

    async with open_cluster(invocation) as cluster, asyncio.timeout(invocation.timeout_s):
        frame = await first_frame_with(target, tuple(Stage), note_denied=cluster.note_denied)
    with data_stream() as stream:
        stream.writelines(prometheus_lines(maker.of_frame(frame)))
    wire = frame.link(Side.WIRE)
    if wire.state not in (LinkState.LOST, LinkState.DENIED):
        return ExitCode.DONE
    who, hint = ("answers", START_IT) if wire.state is LinkState.LOST else ("lets klamm in", None)
    message = f"no broker {who}, so what only brokers know is missing: {wire.cause}"
    return invocation.tell_failures([Unreachable(message, hint=hint)])


def _print_text(what: str, listen: str) -> None:
    from cli.views.exporter import PRINTERS

    if what not in PRINTED:
        raise UsageError(f"--print must be one of {', '.join(PRINTED)}, not {what!r}")
    host, port = address_option("--listen", listen)
    shown = f"[{host}]" if ":" in host else host or "localhost"
    with data_stream() as stream:
        stream.write(PRINTERS[what](f"{shown}:{port}"))


def _patterns(texts: list[str]) -> tuple[re.Pattern[str], ...]:
    patterns = []
    for text in texts:
        try:
            patterns.append(re.compile(text))
        except re.error as error:
            raise UsageError(f"--group: {text!r} is not a regular expression ({error})") from error
    return tuple(patterns)
