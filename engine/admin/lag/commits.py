"""Which readers just commit rarely: what they have committed lately and when, from the end of ``__consumer_offsets``.

Coordinators tell what is committed, but not when; the topic tells both. A user who may not read it learns nothing here.
It includes commits of transactions that do not count yet, and may never count.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import Final

from engine.admin.cluster.asking import FAILURES, ask_all, beside_limit_s
from engine.admin.cluster.unknown import Unknown
from engine.admin.cluster.wire import WireCluster
from engine.admin.lag.pace import Commit, is_within_pace, steps_of
from engine.admin.lag.unread import Place, UnreadRecord, read_times
from engine.admin.offsets.listing import end_offsets, leaders_of, offsets_at
from engine.admin.records.fetching import FetchFrom, fetch
from engine.common.errors import KafkaError
from engine.common.model import TopicPartition
from engine.common.topic_names import GROUP_METADATA_TOPIC
from engine.kafka.formats.consumer_offsets import (
    OffsetCommitKey,
    OffsetCommitValue,
    decode_value,
    encode_offset_key,
    partition_for,
)
from engine.kafka.protocol.records.header import iter_batches
from engine.kafka.protocol.records.iterate import iter_batch_records
from engine.kafka.protocol.records.record import Record

Reader = tuple[str, TopicPartition]
"""A group, and a partition that it reads."""

Commits = dict[Reader, list[Commit]]

_WINDOW_MS: Final = 3_600_000
_READERS_MAX: Final = 1_000
_RECORDS_MAX: Final = 200_000
"""At most this many records are read, which takes about a second."""

_ANSWER_BYTES: Final = 1024 * 1024

_KEY = OffsetCommitKey()


async def readers_within_pace(
    wire: WireCluster,
    committed: Mapping[Reader, int],
    now_ms: int,
    *,
    patience_s: float,
    unowned: Collection[Reader] = (),
) -> frozenset[Reader]:
    """Return the readers whose next commit is not late, of those that seem to stand still where they have committed.

    The result is an extra: if the commits cannot be read in time, it is empty. If there are very many readers, it
    checks only some. Nobody reads those that are ``unowned``.
    """
    some = dict(list(committed.items())[:_READERS_MAX])
    if not some:
        return frozenset()
    try:
        async with asyncio.timeout(beside_limit_s(wire)):
            commits = await _read_commits(wire, some, now_ms, patience_s)
            steps = {reader: found for reader in commits if (found := steps_of(commits[reader], some[reader]))}
            places = {
                Place(name, commit.offset) for (_, name), found in steps.items() for step in found for commit in step
            }
            times = await read_times(wire, places, patience_s=patience_s)
    except (*FAILURES, TimeoutError):
        return frozenset()
    came_ms: dict[TopicPartition, dict[int, int]] = {}
    for (name, offset), record in times.items():
        if isinstance(record, UnreadRecord) and record.timestamp_ms is not None:
            came_ms.setdefault(name, {})[offset] = record.timestamp_ms
    return frozenset(
        reader
        for reader, found in steps.items()
        if is_within_pace(found, came_ms.get(reader[1], {}), now_ms, is_owned=reader not in unowned)
    )


async def _read_commits(wire: WireCluster, readers: Collection[Reader], now_ms: int, patience_s: float) -> Commits:
    """Return what readers have committed in the last hour, in order, as far as it can be read."""
    keys = await _keys(wire, readers)
    begins = await offsets_at(wire, dict.fromkeys(keys, now_ms - _WINDOW_MS), patience_s=patience_s)
    ends = await end_offsets(wire, keys, patience_s=patience_s)
    each = _RECORDS_MAX // max(1, len(keys))
    spans = {
        home: (max(begin, end - each), end)
        for home in keys
        # -1: nothing has been written since.
        if isinstance(begin := begins[home], int) and begin >= 0 and isinstance(end := ends[home], int)
    }

    async def homes(wanted: list[TopicPartition]) -> Mapping[TopicPartition, int | Unknown]:
        return await leaders_of(wire, wanted)

    async def ask(broker_id: int, some: list[TopicPartition]) -> Mapping[TopicPartition, Commits | Unknown]:
        return {home: await _read(wire, broker_id, home, spans[home], keys[home]) for home in some}

    told = await ask_all(wire, spans, homes, ask, batch=len(spans) or 1, patience_s=patience_s)
    found: Commits = {}
    for commits in told.values():
        if not isinstance(commits, Unknown):
            found.update(commits)
    return found


async def _keys(wire: WireCluster, readers: Collection[Reader]) -> dict[TopicPartition, dict[bytes, Reader]]:
    """Return the keys of the readers' records, by the partition that they are in."""
    metadata = await wire.metadata([GROUP_METADATA_TOPIC])
    count = sum(len(topic.partitions) for topic in metadata.topics)
    keys: dict[TopicPartition, dict[bytes, Reader]] = {}
    for group, name in readers if count else ():
        home = TopicPartition(GROUP_METADATA_TOPIC, partition_for(group, count))
        keys.setdefault(home, {})[encode_offset_key(group, *name)] = (group, name)
    return keys


async def _read(
    wire: WireCluster, broker_id: int, home: TopicPartition, span: tuple[int, int], keys: Mapping[bytes, Reader]
) -> Commits | Unknown:
    commits: Commits = {}
    position, end = span
    while position < end:
        wanted = {home: FetchFrom(position, _ANSWER_BYTES)}
        data = (await fetch(wire, broker_id, wanted, max_bytes=_ANSWER_BYTES))[home]
        if isinstance(data, Unknown):
            return data
        before = position
        try:
            for place, header in iter_batches(data.records or b""):
                if not header.is_control:
                    for record in iter_batch_records(data.records or b"", place, header):
                        _take(record, keys, commits)
                position = header.next_offset
        except KafkaError as error:
            return Unknown(str(error), error.code)
        if position == before:
            return Unknown("the broker returns no whole batch")
    return commits


def _take(record: Record, keys: Mapping[bytes, Reader], commits: Commits) -> None:
    reader = keys.get(bytes(record.key or b""))
    if reader is None:
        return
    value = decode_value(_KEY, None if record.value is None else bytes(record.value))
    if isinstance(value, OffsetCommitValue):
        commits.setdefault(reader, []).append(Commit(value.commit_timestamp, value.offset))
    else:
        # Deleted: earlier commits say nothing about later ones.
        commits.pop(reader, None)
