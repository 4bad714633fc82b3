"""``klamm consume``: a topic's records, one per line."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer._click.exceptions import UsageError

from cli.commands.console_tools import begins_at_oldest, client_settings, file_pairs, group_of, pairs
from cli.framework.command import single_command
from cli.framework.completing import complete_groups, complete_topics
from cli.framework.invocation import Invocation
from cli.framework.option_values import isolation_option
from cli.framework.options import Asks, Needs
from cli.framework.stdout import check_reader, write_bytes
from cli.output.format import OutputFormat
from engine.common.quantities import counted

if TYPE_CHECKING:
    from engine.admin.cluster.connection import Cluster
    from engine.admin.records.consume import Consumer
    from engine.admin.records.fetching import ConsumedRecord, ConsumedRecords
    from engine.admin.records.group_consume import GroupConsumer
    from engine.admin.records.positions import ConsumeOptions

READER_CHECK_S = 0.5

_Lines = Callable[["ConsumedRecords", int | None], tuple[bytes, int, int]]
"""Takes records and how many to print at most (None: all). Returns the lines, their number, and the offset after the
last record that it looked at."""

TopicNames = Annotated[
    list[str] | None,
    typer.Argument(metavar="TOPIC", help="Names, or patterns that match whole names.", autocompletion=complete_topics),
]
StartOffset = Annotated[
    str | None,
    typer.Option(
        "--offset",
        metavar="START[:STOP]",
        help="Start at, stop before: a number, -N before the end, earliest, latest or @TIME. 100:200, @02:00:@02:05.",
    ),
]
StartTime = Annotated[
    str | None, typer.Option("--from-time", metavar="TIME", help="Start at this time: 2026-11-21T12:23Z, 02:00, 2h.")
]
StopTime = Annotated[
    str | None, typer.Option("--to-time", metavar="TIME", help="Stop before the first record of this time or later.")
]
LineFormat = Annotated[
    str | None,
    typer.Option(
        "--format",
        "-f",
        metavar="TEXT",
        help="%t topic, %p partition, %o offset, %T time in ms, %k key, %s value, %h headers, %K %S lengths.",
    ),
]
GroupToJoin = Annotated[
    str | None,
    typer.Option(
        "--group",
        metavar="G",
        help="Join this group: continue at its committed offsets, commit what was printed. A new group starts "
        "where klamm starts without one: at new records, or --from-beginning.",
        autocompletion=complete_groups,
    ),
]
Filters = Annotated[
    list[str] | None,
    typer.Option(
        "--filter",
        metavar="[FIELD=]REGEX",
        help="Only records that match in key or value, or in key=, value= or header.NAME=; may be repeated.",
    ),
]


FormatterProperties = Annotated[
    list[str] | None,
    typer.Option(
        "--property",
        metavar="K=V",
        help="A property of kafka-console-consumer: print.key=true, print.headers=true, key.separator=: and so on.",
    ),
]


@single_command(
    "consume",
    needs=Needs(cluster=True, asks=Asks.BROKERS, bounded=False, streams=True, kafka=True),
    examples=(
        "klamm consume orders --from-beginning --max-messages 10",
        "klamm consume orders --until-end --format '%p %o %k %s\\n'",
        "klamm consume 'orders.*' --group console --filter 'key=^eu-'",
        "klamm consume __consumer_offsets --from-beginning -o jsonl",
        "klamm consume orders --partition 0 --offset -100 -o jsonl | jq .value",
        "klamm consume orders --offset @02:00:@02:05",
    ),
)
async def command(
    invocation: Invocation,
    names: TopicNames = None,
    topic: Annotated[list[str] | None, typer.Option("--topic", "--include", hidden=True)] = None,
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="Start at the oldest record; by default only new ones are printed.")
    ] = False,
    offset: StartOffset = None,
    from_time: StartTime = None,
    to_time: StopTime = None,
    partition: Annotated[
        list[int] | None, typer.Option("--partition", metavar="N", help="Only this partition; may be repeated.")
    ] = None,
    max_messages: Annotated[
        int | None,
        typer.Option("--max-messages", "-n", metavar="N", min=-1, help="Stop after this many records; -1: never."),
    ] = None,
    until_end: Annotated[
        bool, typer.Option("--until-end", "-e", help="Stop at the current end; starts at the oldest record.")
    ] = False,
    timeout_ms: Annotated[
        int | None,
        typer.Option("--timeout-ms", metavar="MS", min=-1, help="Stop after this time without a record; -1: never."),
    ] = None,
    pattern: LineFormat = None,
    isolation: Annotated[
        str | None,
        typer.Option(
            "--isolation", metavar="LEVEL", help="read-uncommitted or read-committed.  [default: read-uncommitted]"
        ),
    ] = None,
    group: GroupToJoin = None,
    only: Filters = None,
    properties: FormatterProperties = None,
    raw: Annotated[bool, typer.Option("--raw", help="Do not decode Kafka's internal topics.")] = False,
    consumer_config: Annotated[Path | None, typer.Option("--consumer.config", hidden=True)] = None,
    consumer_property: Annotated[list[str] | None, typer.Option("--consumer-property", hidden=True)] = None,
    formatter: Annotated[str | None, typer.Option("--formatter", hidden=True)] = None,
    formatter_config: Annotated[Path | None, typer.Option("--formatter-config", hidden=True)] = None,
    key_deserializer: Annotated[str | None, typer.Option("--key-deserializer", hidden=True)] = None,
    value_deserializer: Annotated[str | None, typer.Option("--value-deserializer", hidden=True)] = None,
    skip_on_error: Annotated[bool, typer.Option("--skip-message-on-error", hidden=True)] = False,
) -> None:
    """Print records, one per line: the value, or with -o jsonl all fields.

    It follows the leaders as they move, and waits for an absent one: for --timeout if given, or 30 s with --until-end.
    So it does for a topic that is deleted meanwhile; if it is created again, the new topic is read from its beginning,
    or in a group from where the group begins. Without --group it joins no group and commits nothing. A pattern never
    matches Kafka's internal topics; if you name one, its records are printed decoded, as JSON. Times without a zone are
    UTC; 02:00 is the last time it was 02:00, and 2h is two hours ago. Ends at --max-messages, --until-end, a stop,
    --timeout-ms, Ctrl-C, or when nobody reads the output any more.
    """
    from engine.admin.records.positions import ConsumeOptions

    settings = client_settings(invocation, "--consumer-property", consumer_config, consumer_property)
    level = isolation_option(isolation or settings.get("isolation.level", "read-uncommitted"))
    if sum((from_beginning, offset is not None, from_time is not None)) > 1:
        raise UsageError("--from-beginning, --offset and --from-time exclude each other")
    texts = [*(names or ()), *(topic or ())]
    if not texts:
        raise UsageError("name the topics to read")
    group = group_of(settings, group)
    if not (partition or offset or from_time):
        from_beginning = begins_at_oldest(settings, from_beginning=from_beginning)
    if group is not None and (partition or offset is not None or from_time is not None or to_time is not None):
        raise UsageError("--group continues at the committed offsets: leave out --partition, --offset and times")
    start, end = _start_and_end(offset, from_time, to_time, from_oldest=from_beginning or until_end)
    until_end = until_end or end is not None
    end = end or _Place()
    options = ConsumeOptions(
        tuple(partition or ()),
        start.offset,
        start.tail,
        start.time_ms,
        level,
        until_end,
        None if end.offset < 0 else end.offset,
        end.tail,
        end.time_ms,
        # Like Kafka's consumer, it waits for an absent leader as long as it takes, unless an option says otherwise.
        give_up_s=invocation.timeout_s if until_end or invocation.has_timeout_given else math.inf,
    )
    max_messages, timeout_ms = (None if limit == -1 else limit for limit in (max_messages, timeout_ms))
    deserializers = {"key.deserializer": key_deserializer, "value.deserializer": value_deserializer}
    chosen = {
        **file_pairs(formatter_config),
        **{name: value for name, value in deserializers.items() if value is not None},
        **pairs("--property", properties),
    }
    if pattern is not None and (formatter is not None or chosen):
        raise UsageError("--format excludes --property and what else shapes the lines of kafka-console-consumer")
    wanted = _Wanted(
        texts,
        options,
        group,
        tuple(only or ()),
        pattern,
        max_messages,
        timeout_ms,
        raw,
        chosen,
        formatter,
        skip_on_error,
        commits=settings.get("enable.auto.commit", "true").strip().lower() != "false",
    )
    await _print_records(invocation, wanted)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What to read and print, and when to stop."""

    texts: list[str]
    options: ConsumeOptions
    group: str | None
    filters: tuple[str, ...]
    pattern: str | None
    max_messages: int | None
    timeout_ms: int | None
    is_raw: bool
    properties: Mapping[str, str] = field(default_factory=dict)
    formatter: str | None = None
    skips_undecodable: bool = False
    commits: bool = True

    @property
    def starts_at_end(self) -> bool:
        """Whether nothing said where to start, so that only new records are printed."""
        from engine.common.model import LATEST_TIMESTAMP

        options = self.options
        return options.offset == LATEST_TIMESTAMP and options.tail is None and options.start_time_ms is None


async def _print_records(invocation: Invocation, wanted: _Wanted) -> None:
    from cli.framework.cluster_session import open_cluster
    from cli.views.kafka.records import BadRecord
    from cli.views.records import CSV_HEADER

    lines = _lines(invocation.output, wanted)
    waiting = _waiting(wanted)
    count = 0
    async with open_cluster(invocation) as cluster:
        consumer = await _consumer(invocation, cluster, wanted)
        await consumer.open()
        if invocation.output is OutputFormat.CSV and wanted.pattern is None:
            write_bytes([CSV_HEADER.encode()])

        def tell_waiting() -> None:
            if consumer.has_begun:
                invocation.talk.show(waiting)

        try:
            async for text, number in _limited(consumer, lines, wanted, tell_waiting):
                invocation.talk.clear()
                # At once: the reader of a pipe wants each record when it comes.
                write_bytes([text])
                count += number
        except BadRecord as error:
            count += error.processed
            raise
        finally:
            invocation.talk.clear()
            if invocation.output is OutputFormat.KAFKA:
                invocation.talk.echo(f"Processed a total of {count} messages\n")
            invocation.talk.say(counted(count, "record"))


def _lines(output: OutputFormat, wanted: _Wanted) -> _Lines:
    """Return what makes lines of records.

    Raises:
        ConfigError, BadRequest: the format, a property or a filter cannot be understood.
    """
    from cli.views.kafka.records import is_of_internal_topic
    from cli.views.records import decoding, prints_values, record_printer, value_lines
    from engine.common.topic_names import INTERNAL_TOPICS

    to_bytes = record_printer(output, wanted.pattern, wanted.properties, wanted.formatter)
    if not (wanted.is_raw or is_of_internal_topic(wanted.formatter)):
        to_bytes = decoding(to_bytes, output, wanted.pattern)
    is_wanted = _filter(wanted)
    are_values = prints_values(output, wanted.pattern, wanted.properties, wanted.formatter)
    are_values = are_values and not wanted.filters and wanted.max_messages is None

    def lines(records: ConsumedRecords, left: int | None) -> tuple[bytes, int, int]:
        if are_values and records.name.topic not in INTERNAL_TOPICS:
            values = records.values()
            return value_lines(values), len(values), records.next_offset
        shown = [record for record in records.records if is_wanted(record)][:left]
        is_enough = left is not None and len(shown) == left
        next_offset = shown[-1].record.offset + 1 if is_enough else records.next_offset
        return _joined(to_bytes, shown, skips=wanted.skips_undecodable), len(shown), next_offset

    return lines


def _joined(to_bytes: Callable[[ConsumedRecord], bytes], records: Iterable[ConsumedRecord], *, skips: bool) -> bytes:
    """Return the lines of records. If one cannot be decoded, it first prints those before it, as Kafka's tool does.

    Raises:
        BadRecord: a record cannot be decoded, and is not to be skipped.
    """
    from cli.views.kafka.records import BadRecord

    lines: list[bytes] = []
    for number, record in enumerate(records, 1):
        try:
            lines.append(to_bytes(record))
        except BadRecord as error:
            if not skips:
                write_bytes([b"".join(lines)])
                error.processed, error.next_offset = number, record.record.offset + 1
                raise
    return b"".join(lines)


async def _consumer(invocation: Invocation, cluster: Cluster, wanted: _Wanted) -> Consumer | GroupConsumer:
    from engine.admin.records.consume import Consumer
    from engine.admin.records.group_consume import GroupConsumer

    wire = await cluster.wire()
    topics = await _topics(invocation, cluster, wanted.texts)
    talk = invocation.talk
    if wanted.group is None:
        return Consumer(wire, topics, wanted.options, observe=talk.detail, complain=talk.warn)
    return GroupConsumer(
        wire, wanted.group, topics, wanted.options, commits=wanted.commits, observe=talk.detail, complain=talk.warn
    )


async def _topics(invocation: Invocation, cluster: Cluster, texts: list[str]) -> list[str]:
    """Return the topics meant. Any text but a topic's name is a pattern, which never matches an internal topic."""
    from engine.admin.log_dirs.describing import note_topics_left_out
    from engine.admin.topics.selection import select_topics, topic_not_found
    from engine.common.acl import AclOperation
    from engine.common.topic_names import INTERNAL_TOPICS

    selection = select_topics(texts)
    if not selection.patterns:
        return sorted(selection.names)
    existing = {topic.name for topic in (await (await cluster.wire()).metadata(None)).topics if topic.name is not None}

    def choose(known: Iterable[str]) -> list[str]:
        return selection.choose(set(known) - (INTERNAL_TOPICS - set(selection.names)))

    matching = choose(existing)
    missing = selection.unmatched(matching)
    if missing:
        raise topic_not_found(missing)
    if invocation.output is not OutputFormat.KAFKA:
        await note_topics_left_out(cluster, matching, choose, operation=AclOperation.READ)
    return matching


def _waiting(wanted: _Wanted) -> str:
    """Return what to show while no record comes."""
    if wanted.options.until_end:
        return "waiting for records"
    where = "" if wanted.group is None else f" in group {wanted.group}"
    more = "; --from-beginning starts at the oldest" if wanted.group is None and wanted.starts_at_end else ""
    return f"waiting for new records{where}{more}; Ctrl-C ends it"


def _filter(wanted: _Wanted) -> Callable[[ConsumedRecord], bool]:
    """Return whether all filters let a record pass; for internal topics they look at what is printed."""
    from cli.views.records import decoded_payload, with_payload
    from engine.admin.records.fetching import parse_record_filter

    filters = [parse_record_filter(text) for text in wanted.filters]

    def is_wanted(consumed: ConsumedRecord) -> bool:
        payload = None if wanted.is_raw else decoded_payload(consumed)
        record = (consumed if payload is None else with_payload(consumed, payload)).record
        return all(matches(record.key, record.value, record.headers) for matches in filters)

    return is_wanted if filters else lambda consumed: True


async def _limited(
    consumer: Consumer | GroupConsumer, lines: _Lines, wanted: _Wanted, on_wait: Callable[[], None]
) -> AsyncIterator[tuple[bytes, int]]:
    """Yield lines and their number as records come, until there are enough, or none has come for too long."""
    import asyncio
    from contextlib import aclosing

    from cli.views.kafka.records import BadRecord
    from engine.admin.records.group_consume import GroupConsumer

    left, timeout_s = wanted.max_messages, None if wanted.timeout_ms is None else wanted.timeout_ms / 1000
    async with aclosing(consumer.batches()) as batches:
        while left is None or left > 0:
            try:
                async with asyncio.timeout(timeout_s):
                    records = await _next_read(batches, on_wait)
            except (StopAsyncIteration, TimeoutError):
                return
            try:
                text, count, next_offset = lines(records, left)
            except BadRecord as error:
                # As in Kafka's tool: a later member of the group does not meet it again.
                if isinstance(consumer, GroupConsumer):
                    consumer.took(records.name, error.next_offset)
                raise
            left = None if left is None else left - count
            yield text, count
            if isinstance(consumer, GroupConsumer):
                consumer.took(records.name, next_offset)


async def _next_read(batches: AsyncGenerator[ConsumedRecords, None], on_wait: Callable[[], None]) -> ConsumedRecords:
    """Return the next records; while there are none, say so, and check that the output is still read."""
    import asyncio

    async def following() -> ConsumedRecords:
        return await anext(batches)

    reading = asyncio.create_task(following(), name="next-records")
    try:
        while not (await asyncio.wait({reading}, timeout=READER_CHECK_S))[0]:
            check_reader()
            on_wait()
    except BaseException:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        raise
    return reading.result()


@dataclass(frozen=True, slots=True)
class _Place:
    """Where to start or to stop: an offset (-1: the end, -2: the beginning), so far before the end, or a time."""

    offset: int = -1
    tail: int | None = None
    time_ms: int | None = None


def _start_and_end(
    offset: str | None, from_time: str | None, to_time: str | None, *, from_oldest: bool
) -> tuple[_Place, _Place | None]:
    """Return where to start, and where to stop if that is said.

    ``from_oldest``: whether to start at the oldest record if no start is said. With a stop, that is always so.
    """
    from engine.common.model import EARLIEST_TIMESTAMP

    first, stop = _range(offset)
    if stop is not None and to_time is not None:
        raise UsageError("--offset names a stop: leave out --to-time")
    first, stop = first if from_time is None else f"@{from_time}", stop if to_time is None else f"@{to_time}"
    start = _place("--offset" if from_time is None else "--from-time", first)
    if first is None and (from_oldest or stop is not None):
        start = _Place(EARLIEST_TIMESTAMP)
    return start, None if stop is None else _place("--offset" if to_time is None else "--to-time", stop)


def _range(text: str | None) -> tuple[str | None, str | None]:
    """Return both sides of ``START:STOP``; a time has colons of its own, so a stop that is a time begins with ``@``."""
    if text is None:
        return None, None
    first, colon, stop = text.rpartition(":@")
    if colon:
        return first or None, f"@{stop}"
    if text.startswith("@"):
        return text, None
    first, colon, stop = text.partition(":")
    return first or None, stop if colon else None


def _place(option: str, text: str | None) -> _Place:
    from datetime import UTC, datetime

    from engine.common.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
    from engine.common.moments import HINT, moment_ms

    words = {"earliest": EARLIEST_TIMESTAMP, "beginning": EARLIEST_TIMESTAMP}
    words |= {"latest": LATEST_TIMESTAMP, "end": LATEST_TIMESTAMP}
    if text is None or text in words:
        return _Place(LATEST_TIMESTAMP if text is None else words[text])
    if text.startswith("@"):
        try:
            return _Place(time_ms=moment_ms(text[1:], now=datetime.now(UTC)))
        except ValueError as error:
            raise UsageError(f"{option}: {error}; write {HINT}") from None
    try:
        number = int(text)
    except ValueError:
        raise UsageError(f"{option} must be a number, earliest, latest or @TIME, not {text!r}") from None
    return _Place(number) if number >= 0 else _Place(tail=-number)
