"""How transactions look: a row for each transactional id, producer or marker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from cli.exit_codes import ExitCode
from cli.output.report import Column, Kind, Nothing, Report, Table, Tone, cells_of
from cli.output.values import human_duration
from engine.admin.transactions.ending import EndResult, Marker
from engine.admin.transactions.hanging import OpenTransaction
from engine.admin.transactions.reading import ListedTransaction, PartitionProducer, TransactionDescription
from engine.common.listing import first_few
from engine.common.model import TopicPartition
from engine.common.moments import calendar_time
from engine.common.quantities import counted

NOTES_PARTITIONS_MAX = 10


def _state_tone(value: object) -> Tone | None:
    if value == "Ongoing":
        return Tone.GOOD
    return Tone.WARNING if isinstance(value, str) and value.startswith("Prepare") else Tone.QUIET


_ID = Column("transactional_id", title="Transactional id")
_PRODUCER = (Column("producer_id", Kind.NUMBER), Column("producer_epoch", Kind.NUMBER))
_WRITER = (*_PRODUCER, Column("coordinator_epoch", Kind.NUMBER))
_PARTITION = (Column("topic"), Column("partition", Kind.NUMBER))
_LIST = (_ID, Column("coordinator", Kind.NUMBER), _PRODUCER[0], Column("state", tone=_state_tone))
_DESCRIPTION = (
    _ID,
    Column("coordinator", Kind.NUMBER),
    *_PRODUCER,
    Column("state", tone=_state_tone),
    Column("timeout_ms", Kind.DURATION_MS, title="Time-out"),
    Column("start_time", Kind.TIME),
    Column("duration_ms", Kind.DURATION_MS, title="Open for"),
    Column("partitions", Kind.LIST, falls_below=True),
)
_PRODUCERS = (
    *_PARTITION,
    *_WRITER,
    Column("last_sequence", Kind.NUMBER),
    Column("last_timestamp", Kind.TIME),
    Column("start_offset", Kind.NUMBER, title="Open from"),
)
_HANGING = (
    *_PARTITION,
    *_WRITER,
    Column("start_offset", Kind.NUMBER),
    Column("last_timestamp", Kind.TIME),
    Column("age_ms", Kind.DURATION_MS, title="Age"),
    _ID,
)
_ABORTED = (*_PARTITION, *_WRITER, Column("start_offset", Kind.NUMBER))
_RESULT = Column("result")


def list_report(listed: Sequence[ListedTransaction], *, exit_code: ExitCode) -> Report:
    """A row per transactional id."""
    table = Table.of(_LIST, listed)
    notes = () if listed else (Nothing("no transactions"),)
    return Report(table.records(), table, notes=notes, exit_code=exit_code)


def descriptions_report(descriptions: Sequence[TransactionDescription], *, exit_code: ExitCode) -> Report:
    """A row per transactional id, with its partitions."""
    table = Table(_DESCRIPTION, [_described(description) for description in descriptions])
    data = [
        record | {"partitions": [{"topic": name.topic, "partition": name.partition} for name in described.partitions]}
        for record, described in zip(table.records(), descriptions, strict=True)
    ]
    return Report(data, table, exit_code=exit_code)


def producers_report(
    by_partition: Mapping[TopicPartition, Sequence[PartitionProducer]], *, exit_code: ExitCode
) -> Report:
    """A row per producer of each partition."""
    rows = [
        (
            *name,
            *cells_of(_WRITER, producer),
            producer.last_sequence,
            _moment(producer.last_timestamp_ms),
            producer.start_offset,
        )
        for name, producers in by_partition.items()
        for producer in producers
    ]
    notes = () if rows or not by_partition else ("no producers: none has written with an id lately",)
    table = Table(_PRODUCERS, rows)
    return Report(table.records(), table, notes=notes, exit_code=exit_code)


def hanging_report(hanging: Sequence[OpenTransaction], *, exit_code: ExitCode) -> Report:
    """A row per hanging transaction; the code is 1 if there is one and all brokers have answered."""
    rows = [
        (
            *transaction.name,
            *cells_of(_WRITER, transaction.producer),
            transaction.start_offset,
            _moment(transaction.producer.last_timestamp_ms),
            transaction.age_ms,
            transaction.transactional_id,
        )
        for transaction in hanging
    ]
    notes: tuple[str, ...] = (Nothing("no hanging transactions"),)
    if hanging:
        example = f"klamm transactions abort {hanging[0].name} --start-offset {hanging[0].start_offset}"
        notes = (f"{counted(len(hanging), 'hanging transaction')}; end it with: {example}",)
    elif exit_code is not ExitCode.DONE:
        notes = ("no hanging transactions where the brokers have answered",)
    code = ExitCode.BAD_ANSWER if hanging and exit_code is ExitCode.DONE else exit_code
    table = Table(_HANGING, rows)
    return Report(table.records(), table, notes=notes, exit_code=code)


def aborted_report(marker: Marker, result: EndResult) -> Report:
    """The marker, written or only planned."""
    table = Table((*_ABORTED, _RESULT), [(*marker.name, *cells_of(_WRITER, marker), marker.start_offset, result)])
    return Report(table.records(), table)


def termination_lines(before: TransactionDescription) -> list[str]:
    """Say what a fence ends, for the user who has to confirm it."""
    line = f"  producer {before.producer_id}, epoch {before.producer_epoch}: {before.state}"
    if before.duration_ms is None or not before.is_open:
        return [f"{line}; no transaction is open"]
    names = first_few(before.partitions, NOTES_PARTITIONS_MAX)
    return [f"{line} for {human_duration(before.duration_ms)}, in {names or 'no partition'}"]


def terminated_report(before: TransactionDescription, after: TransactionDescription, result: EndResult) -> Report:
    """State before and after the fence."""
    columns = (_ID, *_PRODUCER, Column("before"), Column("after"), _RESULT)
    row = (after.transactional_id, after.producer_id, after.producer_epoch, before.state, after.state, result)
    table = Table(columns, [row])
    return Report(table.records(), table)


def _described(transaction: TransactionDescription) -> tuple[object, ...]:
    return (
        transaction.transactional_id,
        transaction.coordinator,
        transaction.producer_id,
        transaction.producer_epoch,
        transaction.state,
        transaction.timeout_ms,
        _moment(transaction.start_time_ms),
        transaction.duration_ms,
        [str(name) for name in transaction.partitions],
    )


def _moment(timestamp_ms: int | None) -> datetime | int | None:
    return None if timestamp_ms is None else calendar_time(timestamp_ms)
