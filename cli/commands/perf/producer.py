"""``klamm perf producer``: how fast the cluster accepts records."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from uuid import uuid4

import typer
from typer._click.exceptions import UsageError

from cli.commands.perf.shared import (
    ENDLESS,
    Duration,
    Partitions,
    PrintMetrics,
    ReportingInterval,
    StartAt,
    Topics,
    group,
    use_bootstrap,
    use_security,
    wait_for_start,
    words_and_properties,
)
from cli.framework.invocation import Invocation
from cli.framework.option_values import seconds_option
from cli.framework.options import Asks, Needs
from cli.output.format import OutputFormat
from engine.common.quantities import counted

if TYPE_CHECKING:
    from engine.admin.perf.producer import Load
    from engine.admin.perf.producer_settings import ProducerSettings
    from engine.admin.perf.templates import Templates


_TRANSACTION_MS = 3000
"""Default of kafka-producer-perf-test for an id without a duration."""

RecordSize = Annotated[
    int | None,
    typer.Option("--record-size", metavar="BYTES", min=1, help="Length of the values, which are random letters."),
]
PayloadFile = Annotated[
    Path | None,
    typer.Option("--payload-file", metavar="FILE", allow_dash=True, help="Take values at random from this file."),
]
CountingValues = Annotated[
    bool, typer.Option("--payload-monotonic", help="Send values 0, 1, 2 …; this encodes every batch, which is slower.")
]
EncodedAnew = Annotated[
    bool,
    typer.Option("--fresh", help="Encode every record by itself, as an application does; this measures the tool too."),
]
Linger = Annotated[
    int | None, typer.Option("--linger-ms", metavar="MS", help="How long a batch waits for more records.  [default: 0]")
]
TransactionalId = Annotated[
    str | None,
    typer.Option(
        "--transactional-id",
        metavar="ID",
        help="Send in transactions of this id.  [default: one of its own, if a duration is given]",
    ),
]
TransactionDuration = Annotated[
    int | None,
    typer.Option(
        "--transaction-duration-ms",
        metavar="MS",
        min=1,
        help="Commit a transaction after this long.  [default: 3000, if an id is given]",
    ),
]
ProducerSettingsGiven = Annotated[
    list[str] | None,
    typer.Option("--producer-props", metavar="NAME=VALUE…", help="Producer settings, by Kafka's names."),
]
ProducerConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--producer.config", "--producer-config", metavar="FILE", allow_dash=True, help="A file of producer settings."
    ),
]


@group.command(
    "producer",
    needs=Needs(cluster=True, changes=True, asks=Asks.BROKERS, bounded=False, streams=True, kafka=True),
    examples=(
        "klamm perf producer --topic orders --num-records 1000000 --record-size 100",
        "klamm perf producer --topic orders --num-records 600000 --record-size 1000 --throughput 10000 --acks 1",
        "klamm perf producer --topic orders --duration 30s --record-size 1000 --fresh",
        "klamm perf producer --topic orders --num-records 100000 --record-size 100 --transaction-duration-ms 100",
        "klamm perf producer --topic a --topic b --num-records 50000 --payload-file in.txt --compression zstd -o json",
    ),
)
async def producer(
    invocation: Invocation,
    words: Annotated[list[str] | None, typer.Argument(metavar="TOPIC", help="Where the records go.")] = None,
    topic: Topics = None,
    partition: Partitions = None,
    num_records: Annotated[
        int | None, typer.Option("--num-records", metavar="N", min=1, help="How many records to send in all.")
    ] = None,
    record_size: RecordSize = None,
    payload_file: PayloadFile = None,
    payload_delimiter: Annotated[
        str, typer.Option("--payload-delimiter", metavar="TEXT", help="What separates values in that file.")
    ] = "\\n",
    payload_monotonic: CountingValues = False,
    fresh: EncodedAnew = False,
    duration: Duration = None,
    start_at: StartAt = None,
    throughput: Annotated[
        float, typer.Option("--throughput", metavar="N", help="Records a second at most; -1 for no limit.")
    ] = -1,
    acks: Annotated[
        str | None, typer.Option("--acks", metavar="all|1|0", help="Replicas that must have a record.  [default: all]")
    ] = None,
    compression: Annotated[
        str | None, typer.Option("--compression", metavar="CODEC", help="none, gzip, snappy, lz4 or zstd.")
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option("--batch-size", metavar="BYTES", help="Before compression.  [default: 16384]")
    ] = None,
    linger_ms: Linger = None,
    producer_props: ProducerSettingsGiven = None,
    producer_config: ProducerConfigFile = None,
    reporting_interval: ReportingInterval = 5000,
    print_metrics: PrintMetrics = False,
    transactional_id: TransactionalId = None,
    transaction_duration_ms: TransactionDuration = None,
) -> None:
    """Send records as fast as the cluster takes them, or at a given rate, and report rates and latencies.

    Lines, settings and defaults are those of kafka-producer-perf-test. The tool makes batches once and sends them again
    and again, to one partition after the other, so that it measures the cluster and not itself. A record's latency ends
    with its batch's acknowledgement; with --throughput it begins when the record was due. In transactions, nothing is
    sent while one is committed.
    """
    named, properties = words_and_properties(words, producer_props)
    if num_records is None and duration is not None:
        num_records = ENDLESS
    settings = _settings(
        invocation,
        producer_config,
        properties,
        {
            "acks": acks,
            "compression.type": compression,
            "batch.size": batch_size,
            "linger.ms": linger_ms,
            "transactional.id": transactional_id,
        },
    )
    if transaction_duration_ms is not None and settings.transactional_id is None:
        settings = replace(settings, transactional_id=f"performance-producer-{uuid4()}")
    load = _load(invocation, [*named, *(topic or ())], partition, num_records, throughput, reporting_interval)
    if duration is not None:
        load = replace(load, duration_s=seconds_option("--duration", duration))
    load = replace(load, transaction_s=(transaction_duration_ms or _TRANSACTION_MS) / 1000)
    values = (record_size, payload_file, payload_delimiter, payload_monotonic)
    is_kafka = invocation.output is OutputFormat.KAFKA
    templates = _templates(settings, *values, is_fresh=fresh, is_kafka=is_kafka)
    await _run(invocation, load, settings, templates, print_metrics, start_at)


async def _run(
    invocation: Invocation,
    load: Load,
    settings: ProducerSettings,
    templates: Templates,
    has_metrics: bool,
    start_at: float | None,
) -> None:
    from cli.framework.cluster_session import open_cluster
    from cli.framework.progress import Progress
    from cli.views.perf import SendPrinter
    from engine.admin.perf.producer import PerfProducer

    count = None if load.record_count == ENDLESS else load.record_count
    progress = Progress(invocation.talk, "sent", "records", count)
    printer = SendPrinter(invocation.output, progress)
    async with open_cluster(invocation, for_change=True) as cluster:
        where = f"{', '.join(load.topics)} in {cluster.target.title}"
        count_text = "records" if load.record_count == ENDLESS else counted(load.record_count, "record")
        if not invocation.goes_ahead(f"send {count_text} to {where}"):
            printer.planned(load.topics, load.record_count)
            return
        given = cluster.target.client_properties.entries.get("client.id")
        client_id = settings.client_id or given or "perf-producer-client"
        client = replace(cluster.target.client_properties, client_id=client_id)
        cluster.target = replace(cluster.target, client_properties=client)
        test = PerfProducer(await cluster.wire(), load, settings, templates, observe=invocation.talk.detail)
        await test.open()
        await wait_for_start(start_at)
        try:
            await test.run(printer.window, progress.update)
        finally:
            progress.end()
            if test.totals.records_sent:
                printer.end(test.totals, test.metrics if has_metrics else None)


def _settings(
    invocation: Invocation, path: Path | None, properties: dict[str, str], options: dict[str, object]
) -> ProducerSettings:
    """Merge the settings: options win over --producer-props, which win over the file."""
    from engine.admin.cluster.client_properties import load_client_properties
    from engine.admin.perf.producer_settings import SECURITY_PREFIXES, settings_from

    from_file = load_client_properties(path).entries if path is not None else {}
    if path is not None:
        use_security(invocation, path, from_file)
    if inline := [name for name in properties if name.startswith(SECURITY_PREFIXES)]:
        raise UsageError(f"{inline[0]} belongs in a file, where other users cannot see it: give --producer.config FILE")
    given = {name: str(value) for name, value in options.items() if value is not None}
    merged = {**from_file, **properties, **given}
    use_bootstrap(invocation, merged)
    settings = settings_from(merged)
    for name in settings.ignored:
        invocation.talk.warn(f"{name} has no effect here")
    return settings


def _load(
    invocation: Invocation,
    topics: list[str],
    partitions: list[int] | None,
    record_count: int | None,
    throughput: float,
    interval_ms: int,
) -> Load:
    from engine.admin.perf.producer import Load

    if not topics:
        raise UsageError("no topic is named: give --topic TOPIC")
    if record_count is None:
        raise UsageError("how many records? give --num-records N, or --duration TIME")
    if throughput != -1 and not throughput > 0:
        raise UsageError("--throughput must be a number above 0, or -1 for no limit")
    return Load(
        tuple(dict.fromkeys(topics)),
        record_count,
        tuple(sorted(set(partitions or ()))),
        None if throughput == -1 else throughput,
        invocation.timeout_s,
        interval_ms / 1000,
    )


def _templates(
    settings: ProducerSettings,
    record_size: int | None,
    file: Path | None,
    delimiter: str,
    is_monotonic: bool,
    *,
    is_fresh: bool,
    is_kafka: bool,
) -> Templates:
    from engine.admin.perf.templates import (
        FreshTemplates,
        TemplatePool,
        drawn_from,
        random_letters,
        read_payloads,
        rising_numbers,
    )

    if sum((record_size is not None, file is not None, is_monotonic)) != 1:
        raise UsageError("give one of --record-size, --payload-file and --payload-monotonic")
    if is_monotonic:
        return FreshTemplates(rising_numbers(), settings.batch_bytes, settings.codec, settings.level)
    if record_size is not None:
        values = random_letters(record_size)
    else:
        assert file is not None
        payloads = read_payloads(file, delimiter)
        if is_kafka:
            from cli.views.perf import print_payloads

            print_payloads(file, len(payloads))
        values = drawn_from(payloads)
    if is_fresh:
        return FreshTemplates(values, settings.batch_bytes, settings.codec, settings.level)
    return TemplatePool(values, settings.batch_bytes, settings.codec, settings.level)
