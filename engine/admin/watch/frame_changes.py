"""Turns a frame into its changes since the one before, and back: the content of a recording. Pure.

What both frames share is left out, down to single partitions. Health is not kept: it follows from the rest.

All of a frame of 50,000 partitions takes a second to encode, and Python's JSON encoder lets no other thread run. So the
text is made piece by piece, and what a piece is made of does not outlive it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, TypeVar

from engine.admin.watch.frame import Frame, WatchedGroup
from engine.admin.watch.value_codec import decoder, encoder, fields_of
from engine.common.snapshot import ClusterSnapshot, PartitionSnapshot, TopicSnapshot

Changes = dict[str, Any]
"""Plain JSON: what is new, by field of the frame."""

_FIELDS = fields_of(Frame)
_MAPPINGS = ("read_at_ms", "registrations", "min_isr", "offsets", "logs", "words")
"""Fields that keep only changed entries."""
_ALWAYS = ("sequence", "at_ms")
_APART = ("cluster", "groups", "health", *_MAPPINGS, *_ALWAYS)
_CLUSTER = fields_of(ClusterSnapshot)
_TOPIC = fields_of(TopicSnapshot)
_NO_FRAME = Frame(0, 0)
PIECE_ITEMS = 100
"""This many offsets, groups, or partitions with their replicas are one piece of the text."""
PIECE_TOPICS = 5

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class _List:
    """A list of JSON whose items are encoded when they are written."""

    items: Iterable[Any]
    encode: Callable[[Any], Any]
    piece_items: int = PIECE_ITEMS


def changes_of(before: Frame | None, frame: Frame) -> Iterator[str]:
    """Yield, as JSON in pieces, the changes that turn ``before`` into ``frame`` (None: all of it)."""
    mark = "{"
    for name, value in _found(before, frame).items():
        yield f'{mark}"{name}":'
        yield from _text_of(value)
        mark = ","
    yield "}"


def _text_of(value: Any) -> Iterator[str]:
    """Yield a list of which an item may be a ``_List``, or any plain value."""
    if not isinstance(value, list) or not any(isinstance(one, _List) for one in value):
        yield _dumped(value)
        return
    mark = "["
    for one in value:
        yield mark
        mark = ","
        if isinstance(one, _List):
            yield from _text_of_items(one)
        else:
            yield _dumped(one)
    yield "]"


def _text_of_items(found: _List) -> Iterator[str]:
    items, mark = iter(found.items), "["
    while piece := [found.encode(item) for item in islice(items, found.piece_items)]:
        yield mark + _dumped(piece)[1:-1]
        mark = ","
    yield "[]" if mark == "[" else "]"


def _dumped(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _found(before: Frame | None, frame: Frame) -> Changes:
    old = before or _NO_FRAME
    found: Changes = {name: getattr(frame, name) for name in _ALWAYS}
    for name, hint in _FIELDS.items():
        if name not in _APART and not _is_same(getattr(old, name), getattr(frame, name)):
            found[name] = encoder(hint)(getattr(frame, name))
    for name in _MAPPINGS:
        _note(found, name, _mapping_changes(_FIELDS[name], getattr(old, name), getattr(frame, name)))
    _note(found, "groups", _group_changes(old.groups, frame.groups))
    if old.cluster is not frame.cluster and frame.cluster is not None:
        found["cluster"] = _cluster_changes(old.cluster, frame.cluster)
    elif frame.cluster is None and old.cluster is not None:
        found["cluster"] = None
    return found


def frame_of(before: Frame | None, changes: Changes) -> Frame:
    """Return the frame that ``changes`` make from ``before``; it has no health yet.

    Raises:
        ValueError, TypeError, KeyError: they are not what ``changes_of`` yields.
    """
    old = before or _NO_FRAME
    values: dict[str, Any] = {"health": None}
    for name, told in changes.items():
        if name in _ALWAYS:
            values[name] = told
        elif name == "cluster":
            values[name] = None if told is None else _cluster_of(old.cluster, told)
        elif name == "groups":
            values[name] = _groups_of(old.groups, told)
        elif name in _MAPPINGS:
            values[name] = _mapping_of(_FIELDS[name], getattr(old, name), told)
        else:
            values[name] = decoder(_FIELDS[name])(told)
    return replace(old, **values)


def _is_same(old: object, new: object) -> bool:
    return old is new or old == new


def _note(found: Changes, name: str, changes: Any) -> None:
    if changes is not None:
        found[name] = changes


# Mappings: [keys that are gone, pairs that are new]


def _mapping_changes(hint: Any, old: Mapping[K, V], new: Mapping[K, V]) -> Any:
    if old is new:
        return None
    fresh = {key: value for key, value in new.items() if not _is_same(old.get(key), value)}
    gone = [key for key in old if key not in new] if len(old) + len(fresh) > len(new) else []
    if not gone and not fresh:
        return None
    key_of, value_of = map(encoder, hint.__args__)
    return [[key_of(key) for key in gone], _List(fresh.items(), lambda pair: (key_of(pair[0]), value_of(pair[1])))]


def _mapping_of(hint: Any, old: Mapping[K, V], told: Any) -> dict[K, V]:
    gone = {decoder(_key_hint(hint))(key) for key in told[0]}
    kept = {key: value for key, value in old.items() if key not in gone}
    kept.update(decoder(hint)(told[1]))
    return kept


def _key_hint(hint: Any) -> Any:
    return hint.__args__[0]


def _group_changes(old: tuple[WatchedGroup, ...], new: tuple[WatchedGroup, ...]) -> Any:
    if old is new:
        return None
    known = {_group_key(group): group for group in old}
    fresh = [group for group in new if not _is_same(known.get(_group_key(group)), group)]
    there = {_group_key(group) for group in new}
    gone = [list(key) for key in known if key not in there]
    if not fresh and not gone:
        return None
    return [gone, _List(fresh, encoder(WatchedGroup))]


def _groups_of(old: tuple[WatchedGroup, ...], told: Any) -> tuple[WatchedGroup, ...]:
    gone = {tuple(key) for key in told[0]}
    groups = {_group_key(group): group for group in old if _group_key(group) not in gone}
    for one in told[1]:
        group = decoder(WatchedGroup)(one)
        groups[_group_key(group)] = group
    return tuple(groups[key] for key in sorted(groups))


def _group_key(group: WatchedGroup) -> tuple[str, str]:
    return group.lag.group, "" if group.lag.type is None else group.lag.type.value


# The cluster: its own fields, then topics that are gone, and topics that are new or changed


def _cluster_changes(old: ClusterSnapshot | None, new: ClusterSnapshot) -> Any:
    own = {
        name: encoder(hint)(getattr(new, name))
        for name, hint in _CLUSTER.items()
        if name != "topics" and (old is None or not _is_same(getattr(old, name), getattr(new, name)))
    }
    known = {} if old is None else {topic.name: topic for topic in old.topics}
    there = {topic.name for topic in new.topics}
    gone = [name for name in known if name not in there]
    fresh = [topic for topic in new.topics if known.get(topic.name) is not topic]
    return [own, gone, _List(fresh, lambda topic: _topic_changes(known.get(topic.name), topic), PIECE_TOPICS)]


def _cluster_of(old: ClusterSnapshot | None, told: Any) -> ClusterSnapshot:
    own, gone, fresh = told
    values = {name: decoder(_CLUSTER[name])(value) for name, value in own.items()}
    topics = {} if old is None else {topic.name: topic for topic in old.topics}
    for name in gone:
        del topics[name]
    for name, changes in fresh:
        topics[name] = _topic_of(topics.get(name), name, changes)
    ordered = tuple(topics[name] for name in sorted(topics)) if gone or fresh or old is None else old.topics
    return ClusterSnapshot(**values, topics=ordered) if old is None else replace(old, **values, topics=ordered)


def _topic_changes(old: TopicSnapshot | None, new: TopicSnapshot) -> Any:
    own = {
        name: encoder(hint)(getattr(new, name))
        for name, hint in _TOPIC.items()
        if name not in ("name", "partitions") and (old is None or not _is_same(getattr(old, name), getattr(new, name)))
    }
    known = {} if old is None else {p.partition: p for p in old.partitions}
    fresh = [encoder(PartitionSnapshot)(p) for p in new.partitions if not _is_same(known.get(p.partition), p)]
    there = {p.partition for p in new.partitions}
    return [new.name, [own, [number for number in known if number not in there], fresh]]


def _topic_of(old: TopicSnapshot | None, name: str, told: Any) -> TopicSnapshot:
    own, gone, fresh = told
    values = {field: decoder(_TOPIC[field])(value) for field, value in own.items()}
    partitions = {} if old is None else {p.partition: p for p in old.partitions}
    for number in gone:
        del partitions[number]
    for one in fresh:
        partition = decoder(PartitionSnapshot)(one)
        partitions[partition.partition] = partition
    ordered = tuple(partitions[number] for number in sorted(partitions))
    if old is None:
        return TopicSnapshot(name, ordered, **values)
    return replace(old, **values, partitions=ordered)
