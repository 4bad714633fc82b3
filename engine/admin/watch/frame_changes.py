"""Turns a frame into its changes since the one before: the content of a recording. Pure.

The changes are lines of JSON; ``frame_building`` makes a frame of them. What both frames share is left out, down to
single partitions. Health is not kept: it follows from the rest.

All of a frame of 50,000 partitions takes a second to encode, and Python's JSON encoder lets no other thread run. So no
line is long, and what a line is made of does not outlive it. Reading them back one by one takes little memory, too.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from engine.admin.watch.frame import Frame, WatchedGroup
from engine.admin.watch.log_ends import UNKNOWN, LogEnds
from engine.admin.watch.replica_logs import WIDTH, ReplicaLogs, Rows
from engine.admin.watch.value_codec import encoder, fields_of
from engine.common.snapshot import ClusterSnapshot, PartitionSnapshot, TopicSnapshot
from engine.common.turns import pieces_of

FIELDS = fields_of(Frame)
CLUSTER = fields_of(ClusterSnapshot)
TOPIC = fields_of(TopicSnapshot)
MAPPINGS = ("read_at_ms", "registrations", "min_isr", "words", "figures", "traffic")
"""Fields that keep only changed entries."""
_ALWAYS = ("sequence", "at_ms")
_APART = ("cluster", "groups", "health", "offsets", "logs", *MAPPINGS)
NO_FRAME = Frame(0, 0)
LINE_ITEMS = 100
"""This many entries, groups, or partitions are in one line."""

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


def changes_of(before: Frame | None, frame: Frame) -> Iterator[str]:
    """Yield the lines that turn ``before`` into ``frame`` (None: all of it)."""
    for line in _lines(before or NO_FRAME, frame):
        yield json.dumps(line, separators=(",", ":")) + "\n"


def _lines(old: Frame, frame: Frame) -> Iterator[list[Any]]:
    """Yield each line: its kind, and its values."""
    yield [
        "fields",
        {
            name: encoder(hint)(getattr(frame, name))
            for name, hint in FIELDS.items()
            if name not in _APART and (name in _ALWAYS or not is_same(getattr(old, name), getattr(frame, name)))
        },
    ]
    for name in MAPPINGS:
        yield from _mapping_changes(name, getattr(old, name), getattr(frame, name))
    yield from _group_changes(old.groups, frame.groups)
    if old.offsets is not frame.offsets:
        yield from _end_changes(LogEnds.of(old.offsets), LogEnds.of(frame.offsets))
    if old.logs is not frame.logs:
        yield from _log_changes(ReplicaLogs.of(old.logs), ReplicaLogs.of(frame.logs))
    if old.cluster is not frame.cluster:
        yield from _cluster_changes(old.cluster, frame.cluster)


def is_same(old: object, new: object) -> bool:
    """Whether they are equal; it looks first whether they are the same object."""
    return old is new or old == new


# Mappings: keys that are gone, and pairs that are new


def _mapping_changes(name: str, old: Mapping[K, V], new: Mapping[K, V]) -> Iterator[list[Any]]:
    if old is new:
        return
    fresh = [(key, value) for key, value in new.items() if not is_same(old.get(key), value)]
    gone = [key for key in old if key not in new] if len(old) + len(fresh) > len(new) else []
    key_of, value_of = map(encoder, FIELDS[name].__args__)
    if gone:
        yield ["gone", name, [key_of(key) for key in gone]]
    for piece in pieces_of(fresh, LINE_ITEMS):
        yield ["fresh", name, [(key_of(key), value_of(value)) for key, value in piece]]


def _group_changes(old: tuple[WatchedGroup, ...], new: tuple[WatchedGroup, ...]) -> Iterator[list[Any]]:
    if old is new:
        return
    known = {group_key(group): group for group in old}
    present = {group_key(group) for group in new}
    gone = [list(key) for key in known if key not in present]
    if gone:
        yield ["groups_gone", gone]
    for piece in pieces_of((group for group in new if not is_same(known.get(group_key(group)), group)), LINE_ITEMS):
        yield ["groups", [encoder(WatchedGroup)(group) for group in piece]]


def group_key(group: WatchedGroup) -> tuple[str, str]:
    """Return what distinguishes groups."""
    return group.lag.group, "" if group.lag.type is None else group.lag.type.value


# Ends: partition, end and time of each that moved, by topic; one that is gone has no end


def _end_changes(old: LogEnds, new: LogEnds) -> Iterator[list[Any]]:
    gone = [topic for topic in old.by_topic if topic not in new.by_topic]
    if gone:
        yield ["ends_gone", gone]
    for topic, rows in new.by_topic.items():
        moved = _moved(old.by_topic.get(topic, ()), rows)
        for piece in pieces_of(moved, LINE_ITEMS):
            yield ["ends", topic, [number for triple in piece for number in triple]]


def _moved(old: Sequence[int], new: Rows) -> Iterator[tuple[int, int, int]]:
    if old is new or (len(old) == len(new) and new == old):
        return
    for place in range(0, len(new), 2):
        if place >= len(old) or old[place] != new[place] or old[place + 1] != new[place + 1]:
            yield place // 2, new[place], new[place + 1]
    for place in range(len(new), len(old), 2):
        yield place // 2, UNKNOWN, 0


# Logs: the partitions that have changed, by topic, and their rows. A new place renumbers all of them


def _log_changes(old: ReplicaLogs, new: ReplicaLogs) -> Iterator[list[Any]]:
    if old.places != new.places:
        yield ["places", new.places]
        old = ReplicaLogs()
    gone = [topic for topic in old.by_topic if topic not in new.by_topic]
    if gone:
        yield ["logs_gone", gone]
    for topic, rows in new.by_topic.items():
        known = old.by_topic.get(topic)
        if known is rows or known == rows:
            continue
        was, now = rows_by_partition(known or ()), rows_by_partition(rows)
        changed = [partition for partition in was.keys() | now.keys() if was.get(partition) != now.get(partition)]
        for piece in pieces_of(sorted(changed), LINE_ITEMS):
            yield ["logs", topic, piece, [number for partition in piece for number in now.get(partition, ())]]


def rows_by_partition(rows: Sequence[int]) -> dict[int, list[int]]:
    """Return the rows of each partition of a topic."""
    by_partition: dict[int, list[int]] = {}
    for at in range(0, len(rows), WIDTH):
        by_partition.setdefault(rows[at], []).extend(rows[at : at + WIDTH])
    return by_partition


# The cluster: its own fields, then topics that are gone, and topics that are new or changed


def _cluster_changes(old: ClusterSnapshot | None, new: ClusterSnapshot | None) -> Iterator[list[Any]]:
    if new is None:
        yield ["cluster", None]
        return
    yield ["cluster", _own(CLUSTER, ("topics",), old, new)]
    known = {} if old is None else {topic.name: topic for topic in old.topics}
    present = {topic.name for topic in new.topics}
    gone = [name for name in known if name not in present]
    if gone:
        yield ["topics_gone", gone]
    for topic in new.topics:
        if known.get(topic.name) is not topic:
            yield from _topic_changes(known.get(topic.name), topic)


def _topic_changes(old: TopicSnapshot | None, new: TopicSnapshot) -> Iterator[list[Any]]:
    known = {} if old is None else {p.partition: p for p in old.partitions}
    present = {p.partition for p in new.partitions}
    gone = [number for number in known if number not in present]
    yield ["topic", new.name, _own(TOPIC, ("name", "partitions"), old, new), gone]
    for piece in pieces_of((p for p in new.partitions if not is_same(known.get(p.partition), p)), LINE_ITEMS):
        yield ["partitions", [encoder(PartitionSnapshot)(p) for p in piece]]


def _own(hints: Mapping[str, Any], apart: tuple[str, ...], old: object, new: object) -> dict[str, Any]:
    """Return the fields that are new, but for those that are written apart."""
    return {
        name: encoder(hint)(getattr(new, name))
        for name, hint in hints.items()
        if name not in apart and (old is None or not is_same(getattr(old, name), getattr(new, name)))
    }
