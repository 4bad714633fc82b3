"""``klamm produce``: one record per line of stdin."""

from __future__ import annotations

import sys
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer._click.exceptions import UsageError

from cli.commands.console_tools import client_settings, file_pairs, line_format, pairs
from cli.commands.topics import one_name
from cli.framework.command import single_command
from cli.framework.invocation import Invocation
from cli.framework.option_values import seconds_option
from cli.framework.options import Asks, Needs
from cli.output.format import is_terminal
from cli.output.report import Column, KafkaText, Kind, Report, Table
from engine.common.quantities import counted

if TYPE_CHECKING:
    from engine.admin.records.lines import LineFormat
    from engine.admin.records.produce import PartitionResult, Producer, ProducerOptions
    from engine.admin.transactions.own import OwnTransaction
    from engine.kafka.protocol.records.record import Record

_ACKS = {"all": -1, "-1": -1, "0": 0, "1": 1}

KeySeparator = Annotated[
    str | None, typer.Option("--key-separator", metavar="TEXT", help="What separates key and value.")
]
LineHeaders = Annotated[
    bool, typer.Option("--headers", help="Each line starts with its headers, NAME:VALUE,NAME:VALUE and a tab.")
]
FixedHeaders = Annotated[
    list[str] | None, typer.Option("--header", "-H", metavar="NAME=VALUE", help="A header for every record.")
]
NullMarker = Annotated[
    str | None, typer.Option("--null-marker", metavar="TEXT", help="Send null for a key or value with this text.")
]
InputFormat = Annotated[
    str,
    typer.Option(
        "--input",
        metavar="lines|jsonl",
        help="jsonl: objects as consume -o jsonl prints them; a null value is a tombstone.",
    ),
]
NoIdempotence = Annotated[
    bool, typer.Option("--no-idempotence", help="Ask for no producer id; a retry may store a record twice.")
]
TransactionalId = Annotated[
    str | None,
    typer.Option("--transactional-id", metavar="ID", help="Send all in one transaction: readers see all or nothing."),
]
TransactionTimeout = Annotated[
    str,
    typer.Option("--transaction-timeout", metavar="TIME", help="After this long the cluster aborts the transaction."),
]


@single_command(
    "produce",
    needs=Needs(cluster=True, asks=Asks.BROKERS, changes=True, bounded=False, kafka=True),
    examples=(
        "echo hello | klamm produce orders",
        "klamm produce orders --key-separator : --compression lz4 < records.txt",
        "klamm consume a --until-end -o jsonl | klamm produce b --input jsonl",
        "klamm produce orders --transactional-id loader-1 < records.txt",
    ),
)
async def command(
    invocation: Invocation,
    name: Annotated[str | None, typer.Argument(metavar="TOPIC", help="Where the records go.")] = None,
    topic: Annotated[str | None, typer.Option("--topic", hidden=True)] = None,
    key_separator: KeySeparator = None,
    headers: LineHeaders = False,
    header: FixedHeaders = None,
    null_marker: NullMarker = None,
    input_format: InputFormat = "lines",
    partition: Annotated[
        int | None,
        typer.Option("--partition", metavar="N", help="The partition for all records.  [default: by key, as in Kafka]"),
    ] = None,
    acks: Annotated[
        str | None, typer.Option("--acks", metavar="all|1|0", help="Replicas that must have a record.  [default: all]")
    ] = None,
    compression: Annotated[
        str | None,
        typer.Option("--compression", metavar="CODEC", help="none, gzip, snappy, lz4 or zstd.  [default: none]"),
    ] = None,
    no_idempotence: NoIdempotence = False,
    transactional_id: TransactionalId = None,
    transaction_timeout: TransactionTimeout = "60s",
    producer_config: Annotated[Path | None, typer.Option("--producer.config", hidden=True)] = None,
    producer_property: Annotated[list[str] | None, typer.Option("--producer-property", hidden=True)] = None,
    line_reader: Annotated[str | None, typer.Option("--line-reader", hidden=True)] = None,
    reader_config: Annotated[Path | None, typer.Option("--reader-config", hidden=True)] = None,
    reader_property: Annotated[list[str] | None, typer.Option("--property", hidden=True)] = None,
) -> Report:
    """Send each line of stdin as a record, and say where the records went.

    A key decides the partition as in Kafka's own clients. Records without a key go to the partitions in turn, a batch
    to each.

    With --transactional-id, readers of committed records see the records once all of stdin is sent. If a line cannot be
    sent, or klamm ends early, the transaction is aborted and they see none.
    """
    from cli.framework.cluster_session import open_cluster
    from engine.admin.records.produce import Producer
    from engine.admin.transactions.own import OwnTransaction

    settings = client_settings(invocation, "--producer-property", producer_config, producer_property)
    no_idempotence = no_idempotence or settings.get("enable.idempotence", "true").lower() == "false"
    acks, compression = acks or settings.get("acks", "all"), compression or settings.get("compression.type", "none")
    options = _options(acks, compression, invocation.timeout_s, is_idempotent=not no_idempotence)
    properties = {**file_pairs(reader_config), **pairs("--property", reader_property)}
    rules = _line_format(input_format, key_separator, null_marker, header, has_headers=headers)
    if line_reader is not None or properties:
        if input_format != "lines":
            raise UsageError("--property and --line-reader are for --input lines")
        rules = _rules_of_properties(rules, line_reader, properties)
    if transactional_id is not None and (no_idempotence or options.acks != _ACKS["all"]):
        raise UsageError("a transaction needs --acks all, and no --no-idempotence")
    timeout_ms = int(seconds_option("--transaction-timeout", transaction_timeout) * 1000)
    wanted = one_name(name, topic)
    if invocation.target_options.command_config == "-":
        raise UsageError("stdin holds the records: name a file for --command-config")
    async with open_cluster(invocation, for_change=True) as cluster:
        if not invocation.goes_ahead(f"send the records of stdin to topic {wanted} in {cluster.target.title}"):
            return _report((), "nothing was sent")
        wire = await cluster.wire()
        transaction = None
        if transactional_id is not None:
            transaction = OwnTransaction(wire, transactional_id, timeout_ms=timeout_ms, patience_s=invocation.timeout_s)
        producer = Producer(wire, wanted, options, transaction)
        await producer.open()
        if is_terminal(sys.stdin):
            invocation.talk.say("type one record per line; Ctrl-D on a line of its own ends it")
        sending = _send_all(invocation, producer, rules, partition, is_json=input_format == "jsonl")
        sent = await (sending if transaction is None else _in_transaction(invocation, transaction, sending))
    if not (no_idempotence or producer.is_idempotent) and options.acks == _ACKS["all"]:
        invocation.talk.warn("the cluster gave no producer id: what had to be sent again may be stored twice")
    unacknowledged = ", not acknowledged" if options.acks == 0 else ""
    committed = "" if transactional_id is None else ", committed"
    return _report(producer.results, f"{counted(sent, 'record')} sent{unacknowledged}{committed}")


def _options(acks: str, compression: str, timeout_s: float, *, is_idempotent: bool) -> ProducerOptions:
    from engine.admin.records.produce import ProducerOptions
    from engine.kafka.protocol.records.attributes import codec_named

    if acks not in _ACKS:
        raise UsageError(f"--acks must be all, 1 or 0, not {acks!r}")
    try:
        codec = codec_named(compression)
    except ValueError as error:
        raise UsageError(f"--compression: {error}") from None
    return ProducerOptions(_ACKS[acks], codec, is_idempotent=is_idempotent, delivery_timeout_s=timeout_s)


def _line_format(
    input_format: str,
    key_separator: str | None,
    null_marker: str | None,
    headers: Sequence[str] | None,
    *,
    has_headers: bool,
) -> LineFormat:
    """Return how to read a line; of it, JSON lines use the fixed headers alone."""
    from engine.admin.records.lines import LineFormat, parse_header

    if input_format not in ("lines", "jsonl"):
        raise UsageError(f"--input must be lines or jsonl, not {input_format!r}")
    if input_format == "jsonl" and (has_headers or key_separator is not None or null_marker is not None):
        raise UsageError("--headers, --key-separator and --null-marker are for --input lines")
    if key_separator == "":
        raise UsageError("--key-separator is empty: give the text between key and value")
    return LineFormat(
        None if key_separator is None else key_separator.encode(),
        has_headers,
        None if null_marker is None else null_marker.encode(),
        tuple(parse_header(text) for text in headers or ()),
    )


def _rules_of_properties(rules: LineFormat, reader: str | None, properties: Mapping[str, str]) -> LineFormat:
    """Return how to read a line by the properties of Kafka's tool, which has no option for it."""
    from engine.admin.records.lines import LineFormat

    if rules != LineFormat(fixed_headers=rules.fixed_headers):
        raise UsageError("--property excludes --headers, --key-separator and --null-marker")
    return replace(line_format(reader, properties), fixed_headers=rules.fixed_headers)


async def _in_transaction(
    invocation: Invocation, transaction: OwnTransaction, sending: Coroutine[Any, Any, int]
) -> int:
    """Send, then commit; whatever ends it early aborts the transaction, so that readers need not wait for its end."""
    try:
        sent = await sending
    except BaseException:
        if await transaction.try_to_abort():
            invocation.talk.say("the transaction is aborted: readers of committed records see none of it")
        else:
            invocation.talk.warn("the transaction is open until its time-out: then the cluster aborts it")
        raise
    await transaction.end(commit=True)
    return sent


async def _send_all(
    invocation: Invocation, producer: Producer, rules: LineFormat, partition: int | None, *, is_json: bool
) -> int:
    """Send stdin chunk by chunk, so that what a person types goes at once; return the number of records.

    A line that cannot be sent ends it; all lines before it have been sent then.
    """
    import time

    from cli.framework.progress import Progress
    from engine.admin.cluster.errors import BadRequest
    from engine.admin.records.lines import parse_json_line, parse_line, read_chunks, split_lines

    def parse(line: bytes, number: int, now_ms: int) -> tuple[Record, int | None]:
        if is_json:
            return parse_json_line(line, number, now_ms, rules.fixed_headers)
        return parse_line(line, number, rules, now_ms), None

    number, rest = 0, b""
    progress = Progress(invocation.talk, "sent", "records")
    is_typed = is_terminal(sys.stdin)

    async def send(lines: list[bytes]) -> None:
        nonlocal number
        now_ms = time.time_ns() // 1_000_000
        try:
            for line in lines:
                record, own_partition = parse(line, number + 1, now_ms)
                producer.add(record, own_partition if partition is None else partition)
                number += 1
        except BadRequest:
            await producer.flush()
            invocation.talk.say(f"{counted(number, 'record')} sent before the line that cannot be sent")
            raise
        await producer.flush()
        if not is_typed:
            progress.update(number)

    try:
        async for chunk in read_chunks(sys.stdin.fileno()):
            lines, rest = split_lines(chunk, rest)
            await send(lines)
        if rest:
            await send([rest])
    except BadRequest:
        raise
    except BaseException:
        progress.end()
        stored = sum(result.record_count for result in producer.results)
        if number and not producer.is_transactional:
            how = "known to be stored" if producer.is_acknowledged else "sent, not acknowledged"
            invocation.talk.say(f"{stored} of {counted(number, 'record')} {how}")
        raise
    finally:
        progress.end()
    return number


def _report(results: Sequence[PartitionResult], note: str) -> Report:
    columns = (
        Column("topic"),
        Column("partition", Kind.NUMBER),
        Column("record_count", Kind.NUMBER, title="Records"),
        Column("first_offset", Kind.NUMBER),
        Column("last_offset", Kind.NUMBER),
    )
    # Kafka's tool is silent.
    return Report(results, Table.of(columns, results), notes=(note,), as_kafka=lambda: KafkaText(""))
