"""Turns a frame into its changes since the previous one, which are the content of a recording, and back. Pure.

The changes are lines of JSON. They leave out what both frames share, down to single partitions; when they are read
back, that is the same object. Health is not stored, because it follows from the rest.

All of a frame of 50,000 partitions takes a second to encode, and Python's JSON encoder lets no other thread run. So no
line is long, and the objects of a line are freed after it. Reading them back one by one takes little memory, too.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, TypeVar

from engine.admin.watch.frame import Frame, WatchedGroup
from engine.admin.watch.packed_logs import UNKNOWN, WIDTH, LogEnds, Place, ReplicaLogs, Rows
from engine.admin.watch.value_codec import Decoders, encoder, fields_of
from engine.common.snapshot import ClusterSnapshot, PartitionSnapshot, TopicSnapshot
from engine.common.turns import pieces_of


class FrameBuilder:
    """Takes the lines of one frame; ``made`` returns it. It has no health yet.

    Args:
        known: the frame before.
        is_whole: the lines describe the whole frame, not what has changed since ``known``.
        decoders: for the values of the recording; by default, those of this version of klamm.
    """

    def __init__(self, known: Frame | None, *, is_whole: bool, decoders: Decoders | None = None) -> None:
        self._decoders = decoders or Decoders()
        self._fields = self._decoders.fields_of(Frame)
        self._known = known or NO_FRAME
        self._old = NO_FRAME if is_whole else self._known
        self._values: dict[str, Any] = {"health": None}
        self._groups: dict[tuple[str, str], WatchedGroup] | None = None
        self._ends: _Ends | None = None
        self._logs: _Logs | None = None
        self._cluster: _Cluster | None = None

    def take(self, line: Any) -> None:
        """Take a line.

        Raises:
            ValueError, TypeError, KeyError, IndexError, OverflowError: it is not what ``changes_of`` yields.
        """
        kind, *values = line
        self._TAKERS[kind](self, *values)

    def made(self) -> Frame:
        values = self._values
        if self._groups is not None:
            values["groups"] = tuple(self._groups[key] for key in sorted(self._groups))
        if self._ends is not None:
            values["offsets"] = self._ends.made()
        if self._logs is not None:
            values["logs"] = self._logs.made()
        if self._cluster is not None:
            values["cluster"] = self._cluster.made()
        return replace(self._old, **values)

    def _take_fields(self, fields: Mapping[str, Any]) -> None:
        self._values |= self._decoded(Frame, fields)

    def _decoded(self, kind: Any, fields: Mapping[str, Any]) -> dict[str, Any]:
        hints = self._decoders.fields_of(kind)
        return {name: self._decoders.of(hints[name])(value) for name, value in fields.items() if name in hints}

    # Mappings

    def _mapping(self, name: str) -> dict[Any, Any]:
        if name not in self._values:
            self._values[name] = dict(getattr(self._old, name))
        values: dict[Any, Any] = self._values[name]
        return values

    def _take_gone(self, name: str, keys: list[Any]) -> None:
        if name in self._fields:
            decode = self._decoders.of(self._fields[name].__args__[0])
            for key in keys:
                del self._mapping(name)[decode(key)]

    def _take_fresh(self, name: str, pairs: list[Any]) -> None:
        if name in self._fields:
            self._mapping(name).update(self._decoders.of(self._fields[name])(pairs))

    # Groups

    def _known_groups(self) -> dict[tuple[str, str], WatchedGroup]:
        if self._groups is None:
            self._groups = {group_key(group): group for group in self._old.groups}
        return self._groups

    def _take_groups_gone(self, keys: list[list[str]]) -> None:
        for name, kind in keys:
            del self._known_groups()[name, kind]

    def _take_groups(self, groups: list[Any]) -> None:
        for group in map(self._decoders.of(WatchedGroup), groups):
            self._known_groups()[group_key(group)] = group

    # Ends, logs, cluster

    def _all_ends(self) -> _Ends:
        if self._ends is None:
            self._ends = _Ends(LogEnds.of(self._old.offsets), LogEnds.of(self._known.offsets))
        return self._ends

    def _all_logs(self) -> _Logs:
        if self._logs is None:
            self._logs = _Logs(ReplicaLogs.of(self._old.logs), ReplicaLogs.of(self._known.logs))
        return self._logs

    def _whole_cluster(self) -> _Cluster:
        if self._cluster is None:
            decode = self._decoders.of(PartitionSnapshot)
            self._cluster = _Cluster(self._old.cluster, self._known.cluster, decode)
        return self._cluster

    def _take_cluster(self, own: Mapping[str, Any] | None) -> None:
        if own is None:
            self._values["cluster"] = None
        else:
            self._whole_cluster().own = self._decoded(ClusterSnapshot, own)

    def _take_topic(self, name: str, own: Mapping[str, Any], gone: list[int]) -> None:
        self._whole_cluster().begin(name, self._decoded(TopicSnapshot, own), gone)

    _TAKERS: ClassVar[Mapping[str, Callable[..., None]]] = {
        "fields": _take_fields,
        "gone": _take_gone,
        "fresh": _take_fresh,
        "groups_gone": _take_groups_gone,
        "groups": _take_groups,
        "ends_gone": lambda self, topics: self._all_ends().forget(topics),
        "ends": lambda self, topic, rows: self._all_ends().take(topic, rows),
        "places": lambda self, places: self._all_logs().renumber(places),
        "logs_gone": lambda self, topics: self._all_logs().forget(topics),
        "logs": lambda self, topic, changed, rows: self._all_logs().take(topic, changed, rows),
        "cluster": _take_cluster,
        "topics_gone": lambda self, names: self._whole_cluster().forget(names),
        "topic": _take_topic,
        "partitions": lambda self, rows: self._whole_cluster().take(rows),
    }


class _Ends:
    """The ends of the frame that is being made."""

    def __init__(self, old: LogEnds, known: LogEnds) -> None:
        self._topics = dict(old.by_topic)
        self._known = known.by_topic

    def forget(self, topics: list[str]) -> None:
        for topic in topics:
            del self._topics[topic]

    def take(self, topic: str, triples: list[int]) -> None:
        rows = array("q", self._topics.get(topic, ()))
        if 3 * len(rows) == 2 * len(triples) and triples[::3] == list(range(len(triples) // 3)):
            # All have moved.
            rows[::2], rows[1::2] = array("q", triples[1::3]), array("q", triples[2::3])
            self._topics[topic] = rows
            return
        for partition, end, at_ms in zip(triples[::3], triples[1::3], triples[2::3], strict=True):
            if 2 * partition >= len(rows):
                rows.extend([UNKNOWN, 0] * (partition + 1 - len(rows) // 2))
            rows[2 * partition], rows[2 * partition + 1] = end, at_ms
        self._topics[topic] = rows

    def made(self) -> LogEnds:
        known = self._known
        return LogEnds(
            {topic: known[topic] if known.get(topic) == rows else rows for topic, rows in self._topics.items()}
        )


class _Logs:
    """The replicas' logs of the frame that is being made."""

    def __init__(self, old: ReplicaLogs, known: ReplicaLogs) -> None:
        self._places, self._topics = old.places, dict(old.by_topic)
        self._known = known

    def renumber(self, places: list[Any]) -> None:
        self._places, self._topics = tuple(map(_place, places)), {}

    def forget(self, topics: list[str]) -> None:
        for topic in topics:
            del self._topics[topic]

    def take(self, topic: str, changed: list[int], rows: list[int]) -> None:
        known = self._topics.get(topic, array("q"))
        if set(changed).issuperset(known[::WIDTH]):
            self._topics[topic] = array("q", rows)
            return
        by_partition = rows_by_partition(known)
        for partition in changed:
            by_partition.pop(partition, None)
        by_partition |= rows_by_partition(rows)
        self._topics[topic] = array(
            "q", [number for partition in sorted(by_partition) for number in by_partition[partition]]
        )

    def made(self) -> ReplicaLogs:
        known = self._known.by_topic if self._known.places == self._places else {}
        topics = {topic: known[topic] if known.get(topic) == rows else rows for topic, rows in self._topics.items()}
        return ReplicaLogs(self._places, topics)


def _place(row: list[Any]) -> Place:
    broker, is_future, log_dir = row
    return int(broker), bool(is_future), str(log_dir)


class _Cluster:
    """The cluster of the frame that is being made; partitions belong to the topic that was begun last."""

    def __init__(
        self, old: ClusterSnapshot | None, known: ClusterSnapshot | None, decode: Callable[[Any], PartitionSnapshot]
    ) -> None:
        self._old, self._decode = old, decode
        self._known = {} if known is None else {topic.name: topic for topic in known.topics}
        self._topics = {} if old is None else {topic.name: topic for topic in old.topics}
        self._name = ""
        self._topic_own: dict[str, Any] = {}
        self._partitions: dict[int, PartitionSnapshot] = {}
        self._has_new_topics = old is None
        self.own: dict[str, Any] = {}

    def forget(self, names: list[str]) -> None:
        self._has_new_topics = True
        for name in names:
            del self._topics[name]

    def begin(self, name: str, own: Mapping[str, Any], gone: list[int]) -> None:
        self._end()
        known = self._topics.get(name)
        self._name, self._topic_own = name, dict(own)
        self._partitions = {} if known is None else {p.partition: p for p in known.partitions}
        for number in gone:
            del self._partitions[number]

    def take(self, rows: list[Any]) -> None:
        for partition in map(self._decode, rows):
            self._partitions[partition.partition] = partition

    def made(self) -> ClusterSnapshot:
        self._end()
        old = self._old
        if not self._has_new_topics and old is not None:
            return replace(old, **self.own)
        ordered = tuple(self._topics[name] for name in sorted(self._topics))
        return ClusterSnapshot(**self.own, topics=ordered) if old is None else replace(old, **self.own, topics=ordered)

    def _end(self) -> None:
        """Finish the topic that was begun; if it is equal to the one before, that one stays."""
        if not self._name:
            return
        name, self._name, self._has_new_topics = self._name, "", True
        partitions = tuple(self._partitions[number] for number in sorted(self._partitions))
        old = self._topics.get(name)
        if old is None:
            topic = TopicSnapshot(name, partitions, **self._topic_own)
        else:
            topic = replace(old, **self._topic_own, partitions=partitions)
        known = self._known.get(name)
        self._topics[name] = known if known is not None and known == topic else topic


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
