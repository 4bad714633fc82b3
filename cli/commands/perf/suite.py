"""``klamm perf suite``: measures what a cluster can carry."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer._click.exceptions import UsageError

from cli.commands.perf.shared import group
from cli.exit_codes import ExitCode
from cli.framework.failure import Failure
from cli.framework.invocation import Invocation, Stop
from cli.framework.option_values import seconds_option
from cli.framework.options import Asks, Needs
from cli.output.report import Report
from engine.common.quantities import counted
from engine.runtime.input_files import name_of, read_input

if TYPE_CHECKING:
    from engine.admin.cluster.connection import Cluster
    from engine.admin.perf.suite import Experiment
    from engine.admin.perf.suite_run import Suite, WorkerFailed, WorkerFigures

_QUICK_S, _LONG_S = 2.0, 10.0
_QUICK_DEADLINE_S = 105.0
"""The last case and the deletion of its topic end within two minutes."""


ExperimentNames = Annotated[
    list[str] | None,
    typer.Option(
        "--experiment",
        metavar="NAME",
        help="producers, record-size, partitions, replicas, consumers or pair; may be repeated.  [default: all]",
    ),
]
SecondsEach = Annotated[
    str | None,
    typer.Option("--seconds", metavar="TIME", help="How long each case loads the cluster.  [default: 10s; 2s]"),
]
ProducerBytes = Annotated[
    int, typer.Option("--producer-bytes", metavar="BYTES", min=1, help="Maximum bytes that a producer sends in a case.")
]
MinFree = Annotated[
    int, typer.Option("--min-free", metavar="PERCENT", min=1, max=99, help="Stop if less of a broker's disk is free.")
]
EarlierRun = Annotated[
    Path | None,
    typer.Option(
        "--compare", metavar="FILE", allow_dash=True, help="Compare the rates with those of an earlier run (-o json)."
    ),
]
PlotFile = Annotated[
    Path | None, typer.Option("--plot", metavar="FILE", help="Also draw the rates into a .svg or .html file.")
]


@group.command(
    "suite",
    needs=Needs(cluster=True, changes=True, asks=Asks.BROKERS, bounded=False),
    examples=(
        "klamm perf suite --quick",
        "klamm perf suite --plot before.html -o json --yes > before.json",
        "klamm perf suite --compare before.json --plot now.svg",
        "klamm perf suite --experiment replicas --experiment record-size --seconds 30s --dry-run",
    ),
)
async def suite(
    invocation: Invocation,
    quick: Annotated[bool, typer.Option("--quick", help="Run fewer and shorter cases, within two minutes.")] = False,
    experiment: ExperimentNames = None,
    seconds: SecondsEach = None,
    producer_bytes: ProducerBytes = 2_000_000_000,
    min_free: MinFree = 10,
    compare: EarlierRun = None,
    plot: PlotFile = None,
) -> Report:
    """Measure what a cluster can carry, one experiment after the other, each with its own topic.

    One to three producers; records of 10 bytes to 10 kB; one to nine partitions; one to three replicas; one to three
    consumers; a producer and a consumer at once. Each producer and consumer is a process of its own on this machine,
    so watch this machine's CPU too. Rates are sums; latencies are those of the slowest producer. If all brokers run on
    this machine and are visible, the suite shows their CPU. Beside three cases stand the rates that the articles
    published: three brokers on machines of eight cores each, and clients on machines of their own.

    It loads the cluster as much as it can, so use a cluster without other load. It first says what it will do. It
    leaves out a case that may write more than a broker's disk has room for above --min-free; for room that earlier
    cases took, it waits until brokers have deleted their files. It stops when a disk gets full or fails, or a broker
    goes away. It deletes its topics at the end, even after Ctrl-C, and names those that it could not delete. Exits with
    1 if it stopped early, a case failed or was left out, or a topic is left. It ends at once if a right is missing.
    """
    from cli.framework.cluster_session import open_cluster
    from cli.views.perf import planned_report, preview_lines, suite_report, write_plot
    from engine.admin.perf.suite import WatchedDisks, experiments, rates_of
    from engine.admin.perf.suite_run import Suite, SuiteOptions, old_topics

    if plot is not None and plot.suffix not in (".svg", ".html"):
        raise UsageError("--plot must be a file that ends with .svg or .html")
    seconds_each = seconds_option("--seconds", seconds) if seconds is not None else _QUICK_S if quick else _LONG_S
    try:
        before = None if compare is None else rates_of(json.loads(read_input(compare)))
    except ValueError as error:
        raise UsageError(f"--compare: {name_of(compare or Path())}: {error}") from error
    async with open_cluster(invocation, for_change=not invocation.is_dry_run) as cluster:
        wire = await cluster.wire()
        nodes = await wire.nodes()
        chosen = experiments(len(nodes), is_quick=quick, names=experiment or ())
        options = SuiteOptions(seconds_each, producer_bytes, min_free / 100, _QUICK_DEADLINE_S if quick else None)
        old = await old_topics(cluster)
        if old:
            invocation.talk.warn(f"an earlier run left {counted(len(old), 'topic')}: klamm topics delete {old[0]}")
        facts: dict[str, object] = {
            "cluster_id": wire.cluster_id,
            "broker_count": len(nodes),
            "seconds_per_case": seconds_each,
        }
        cases = sum(len(experiment.cases) for experiment in chosen)
        disks = await WatchedDisks.open(cluster, options.free_share_min)
        question = f"load {cluster.target.title} as heavily as possible, in {counted(cases, 'case')}"
        if not invocation.confirm(question, preview_lines(chosen, options, len(nodes), disks), is_destructive=True):
            return planned_report(chosen, facts)
        run = Suite(cluster, _Processes(invocation, cluster), disks, options)
        await _run(invocation, run, chosen)
    if run.stopped is not None:
        invocation.talk.warn(f"stopped: {run.stopped}")
    if plot is not None:
        write_plot(plot, chosen, run.results, before)
        invocation.talk.say(f"wrote {plot}")
    failed = run.stopped is not None or any(result.error is not None for result in run.results)
    code = ExitCode.BAD_ANSWER if failed or run.left_topics else ExitCode.DONE
    facts |= {"left_topics": run.left_topics, "topics_that_may_appear": run.topics_that_may_appear}
    return suite_report(chosen, run.results, facts, run.stopped, before, exit_code=code)


async def _run(invocation: Invocation, run: Suite, chosen: Sequence[Experiment]) -> None:
    """Run the experiments; however that ends, name the topics that are left."""
    from engine.admin.perf.suite_run import WorkerFailed

    try:
        await run.run(chosen, invocation.talk.say)
    except WorkerFailed as error:
        names = ("hint", "principal", "operation", "resource")
        details = {name: (error.lacks or {}).get(name) for name in names}
        raise Stop(Failure(ExitCode.REFUSED, "authorization", str(error), **details)) from None
    finally:
        if left := run.left_topics:
            count = counted(len(left), "topic")
            invocation.talk.warn(f"could not delete {count}: klamm topics delete {' '.join(left)}")
        if uncertain := run.topics_that_may_appear:
            count = counted(len(uncertain), "topic")
            invocation.talk.warn(f"{count} may still appear: klamm topics delete {' '.join(uncertain)}")


class _Processes:
    """Producers and consumers as ``klamm perf`` processes, which find the cluster as this one does."""

    def __init__(self, invocation: Invocation, cluster: Cluster) -> None:
        options = invocation.target_options
        given = {
            "--zookeeper": options.zookeeper,
            "--bootstrap-server": options.bootstrap_server,
            "--cluster": options.cluster,
            "--command-config": options.command_config,
            "--jaas-config": options.jaas_config,
            "--zk-tls-config-file": options.zk_tls_config_file,
            "--timeout": f"{cluster.timeout_s:g}",
        }
        self._words = [word for name, value in given.items() if value is not None for word in (name, value)]

    async def produce(
        self, topic: str, record_bytes: int, duration_s: float, record_count_max: int, start_at_s: float
    ) -> WorkerFigures:
        figures = await self._run(
            "producer", "--topic", topic, "--record-size", str(record_bytes), "--num-records", str(record_count_max),
            "--duration", f"{duration_s:g}s", "--start-at", str(start_at_s),
        )  # fmt: skip
        from engine.admin.perf.suite_run import WorkerFigures

        latencies = (figures[f"{name}_latency_ms"] for name in ("p50", "p95", "p99", "p999"))
        return WorkerFigures(figures["records_sent"], figures["records_per_sec"], figures["mb_per_sec"], *latencies)

    async def consume(self, topic: str, record_count: int, duration_s: float, start_at_s: float) -> WorkerFigures:
        figures = await self._run(
            "consumer", "--topic", topic, "--messages", str(record_count), "--duration", f"{duration_s:g}s",
            "--start-at", str(start_at_s),
        )  # fmt: skip
        from engine.admin.perf.suite_run import WorkerFigures

        return WorkerFigures(figures["consumed_records"], figures["fetch_records_per_sec"], figures["fetch_mb_per_sec"])

    async def _run(self, *words: str) -> dict[str, Any]:
        import asyncio
        import sys

        # A session of its own: Ctrl-C is for the suite, which ends its processes and deletes the topics.
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "klamm", "perf", *words, *self._words, "-o", "json",
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )  # fmt: skip
        try:
            out, err = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        try:
            figures: dict[str, Any] = json.loads(out)
        except ValueError:
            raise _failed(err.decode("utf-8", "replace"), words[0]) from None
        return figures


def _failed(output: str, worker: str) -> WorkerFailed:
    """Return the last error on a process's stderr."""
    from engine.admin.perf.suite_run import WorkerFailed

    for line in reversed(output.splitlines()):
        try:
            error = json.loads(line)["error"]
            message = f"{worker}: {error['message']}"
        except (ValueError, KeyError, TypeError):
            continue
        return WorkerFailed(message, error if "resource" in error else None)
    return WorkerFailed(f"a {worker} ended without figures")
