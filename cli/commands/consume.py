"""``klamm consume``: a topic's records, one a line."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, AsyncIterator
from typing import TYPE_CHECKING, Annotated

import typer
from typer._click.exceptions import UsageError

from cli.commands.topics_changes import one_name
from cli.framework.command import single_command
from cli.framework.invocation import Invocation
from cli.framework.options import Asks, Needs
from cli.framework.stdout import OutputClosed, check_reader
from cli.output.format import OutputFormat

if TYPE_CHECKING:
    from engine.admin.records.consume import ConsumedRecord, ConsumeOptions, Consumer

_ISOLATIONS = {"read-uncommitted": 0, "read_uncommitted": 0, "read-committed": 1, "read_committed": 1}

READER_CHECK_S = 0.5


@single_command(
    "consume",
    needs=Needs(cluster=True, asks=Asks.BROKERS, bounded=False, streams=True),
    examples=(
        "klamm consume orders --from-beginning --max-messages 10",
        "klamm consume orders --until-end --format '%p %o %k %s\\n'",
        "klamm consume orders --partition 0 --offset -100 -o jsonl | jq .value",
    ),
)
async def command(
    invocation: Invocation,
    name: Annotated[str | None, typer.Argument(metavar="TOPIC", help="The topic to read.")] = None,
    topic: Annotated[str | None, typer.Option("--topic", hidden=True)] = None,
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="Start at the oldest record; by default only new ones come.")
    ] = False,
    offset: Annotated[
        str | None,
        typer.Option("--offset", metavar="OFFSET", help="Start at: a number, -N before the end, earliest or latest."),
    ] = None,
    from_time: Annotated[
        str | None, typer.Option("--from-time", metavar="TIME", help="Start at this time (ISO 8601, or milliseconds).")
    ] = None,
    partition: Annotated[
        list[int] | None, typer.Option("--partition", metavar="N", help="Only this partition; may be repeated.")
    ] = None,
    max_messages: Annotated[
        int | None, typer.Option("--max-messages", "-n", metavar="N", help="Stop after so many records.")
    ] = None,
    until_end: Annotated[
        bool, typer.Option("--until-end", "-e", help="Stop at what is the end now; starts at the oldest record.")
    ] = False,
    timeout_ms: Annotated[
        int | None, typer.Option("--timeout-ms", metavar="MS", help="Stop when nothing has come for so long.")
    ] = None,
    pattern: Annotated[
        str | None,
        typer.Option(
            "--format",
            "-f",
            metavar="TEXT",
            help="%t topic, %p partition, %o offset, %T time in ms, %k key, %s value, %h headers, %K %S lengths.",
        ),
    ] = None,
    isolation: Annotated[
        str, typer.Option("--isolation", metavar="LEVEL", help="read-uncommitted or read-committed.")
    ] = "read-uncommitted",
) -> None:
    """Print records, one a line: the value, or with -o jsonl all fields.

    Follows the leaders as they move, joins no group and commits nothing. Ends at --max-messages, --until-end,
    --timeout-ms, Ctrl-C, or when nobody reads the output any more.
    """
    from engine.admin.records.consume import ConsumeOptions
    from engine.common.model import IsolationLevel

    if isolation not in _ISOLATIONS:
        raise UsageError(f"--isolation wants read-uncommitted or read-committed, not {isolation!r}")
    if sum((from_beginning, offset is not None, from_time is not None)) > 1:
        raise UsageError("--from-beginning, --offset and --from-time exclude each other")
    start, tail = _start(offset, is_earliest=from_beginning or (until_end and offset is None))
    options = ConsumeOptions(
        tuple(partition or ()),
        start,
        tail,
        None if from_time is None else _time_ms(from_time),
        IsolationLevel(_ISOLATIONS[isolation]),
        until_end,
        give_up_s=invocation.timeout_s,
    )
    await _print_records(invocation, one_name(name, topic), options, pattern, max_messages, timeout_ms)


async def _print_records(
    invocation: Invocation,
    topic: str,
    options: ConsumeOptions,
    pattern: str | None,
    max_messages: int | None,
    timeout_ms: int | None,
) -> None:
    from cli.framework.cluster_session import open_cluster
    from cli.views.records import CSV_HEADER, record_printer
    from engine.admin.records.consume import Consumer

    to_bytes = record_printer(invocation.output, pattern)
    count = 0
    async with open_cluster(invocation) as cluster:
        consumer = Consumer(await cluster.wire(), topic, options, observe=invocation.talk.detail)
        await consumer.open()
        if invocation.output is OutputFormat.CSV and pattern is None:
            _write(CSV_HEADER.encode())
        try:
            async for records in _limited(consumer, max_messages, timeout_ms):
                _write(b"".join(map(to_bytes, records)))
                count += len(records)
        finally:
            invocation.talk.say(f"{count} record{'' if count == 1 else 's'}")


async def _limited(
    consumer: Consumer, max_messages: int | None, timeout_ms: int | None
) -> AsyncIterator[list[ConsumedRecord]]:
    """Yield what the consumer reads until there are enough records, or none has come for too long."""
    import asyncio
    from contextlib import aclosing

    left = max_messages
    async with aclosing(consumer.batches()) as batches:
        while left is None or left > 0:
            try:
                async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                    records = await _next_read(batches)
            except (StopAsyncIteration, TimeoutError):
                return
            if left is not None:
                records = records[:left]
                left -= len(records)
            yield records


async def _next_read(batches: AsyncGenerator[list[ConsumedRecord], None]) -> list[ConsumedRecord]:
    """Return the next records, and look meanwhile whether anybody still reads the output."""
    import asyncio

    async def following() -> list[ConsumedRecord]:
        return await anext(batches)

    reading = asyncio.create_task(following(), name="next-records")
    try:
        while not (await asyncio.wait({reading}, timeout=READER_CHECK_S))[0]:
            check_reader()
    except BaseException:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        raise
    return reading.result()


def _start(offset: str | None, *, is_earliest: bool) -> tuple[int, int | None]:
    """Return the offset to start at, and how far before the end."""
    from engine.common.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP

    words = {
        None: EARLIEST_TIMESTAMP if is_earliest else LATEST_TIMESTAMP,
        "earliest": EARLIEST_TIMESTAMP,
        "beginning": EARLIEST_TIMESTAMP,
    }
    words |= {"latest": LATEST_TIMESTAMP, "end": LATEST_TIMESTAMP}
    if offset in words:
        return words[offset], None
    try:
        number = int(offset or "")
    except ValueError:
        raise UsageError(f"--offset wants a number, earliest or latest, not {offset!r}") from None
    return (number, None) if number >= 0 else (LATEST_TIMESTAMP, -number)


def _time_ms(text: str) -> int:
    from datetime import UTC, datetime

    if text.isdigit():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"--from-time wants ISO 8601 or milliseconds, not {text!r}") from None
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def _write(data: bytes) -> None:
    """Write to stdout at once; whoever reads a pipe wants each record when it comes."""
    try:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except BrokenPipeError as error:
        raise OutputClosed from error
