"""Kafka's JSON files of reassignments: topics to move, and partitions with their replicas. Pure.

Read strictly, with Kafka's texts where it has one; written as Kafka 3.9 writes them: compact, ordered by topic and
partition, ``log_dirs`` always there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.admin.cluster.errors import BadRequest
from engine.admin.cluster.json_files import check_version, parse_document
from engine.admin.cluster.remedies import Parameter
from engine.common.collection import collector_paused
from engine.common.listing import repeated
from engine.common.model import TopicPartition

ANY_LOG_DIR = "any"

_PLAN_EXAMPLE = 'write {"version":1,"partitions":[{"topic":"orders","partition":0,"replicas":[1,2]}]}'
_TOPICS_EXAMPLE = 'write {"version":1,"topics":[{"topic":"orders"}]}'


@dataclass(frozen=True, slots=True)
class PartitionMove:
    """Where one partition's replicas should be. ``log_dirs`` is empty, or names a directory or "any" per replica."""

    name: TopicPartition
    replicas: tuple[int, ...]
    log_dirs: tuple[str, ...] = ()

    @property
    def wanted_dirs(self) -> dict[int, str]:
        """The log dir of each broker that has one named."""
        return {b: d for b, d in zip(self.replicas, self.log_dirs, strict=False) if d != ANY_LOG_DIR}


def parse_plan(text: str, where: str) -> tuple[PartitionMove, ...]:
    """Return the partitions of a reassignment file, by name.

    Raises:
        BadRequest: it is not of Kafka's form, is empty, or names a partition or a replica twice.
    """
    document = _document(text, where, _PLAN_EXAMPLE)
    moves = [_move(entry, where) for entry in _entries(document, "partitions", where, _PLAN_EXAMPLE)]
    if not moves:
        raise BadRequest("partition reassignment list cannot be empty", where=where, hint=_PLAN_EXAMPLE)
    twice = repeated(move.name for move in moves)
    if twice:
        message = f"partition reassignment contains duplicate topic partitions: {', '.join(map(str, twice))}"
        raise BadRequest(message, where=where)
    return tuple(sorted(moves, key=lambda move: move.name))


def planned_cluster_id(text: str) -> str | None:
    """Return the id of the cluster that a reassignment file was written for; None if it does not say."""
    try:
        envelope = json.loads(text).get("klamm")
    except (ValueError, AttributeError):
        return None
    cluster_id = envelope.get("cluster_id") if isinstance(envelope, dict) else None
    return cluster_id if isinstance(cluster_id, str) else None


def parse_topics_to_move(text: str, where: str) -> tuple[str, ...]:
    """Return the topics of a topics-to-move file.

    Raises:
        BadRequest: it is not of Kafka's form, is empty, or names a topic twice.
    """
    document = _document(text, where, _TOPICS_EXAMPLE)
    topics = []
    for entry in _entries(document, "topics", where, _TOPICS_EXAMPLE):
        topic = entry.get("topic") if isinstance(entry, dict) else None
        if not isinstance(topic, str):
            raise BadRequest(f"not a topic: {json.dumps(entry)}", where=where, hint=_TOPICS_EXAMPLE)
        topics.append(topic)
    if not topics:
        raise BadRequest("the list of topics to reassign is empty", where=where, hint=_TOPICS_EXAMPLE)
    twice = repeated(topics)
    if twice:
        message = f"list of topics to reassign contains duplicate entries: {', '.join(twice)}"
        raise BadRequest(message, where=where)
    return tuple(topics)


def parse_broker_list(text: str) -> tuple[int, ...]:
    """Return the broker ids of ``0,1,2``.

    Raises:
        BadRequest: a part is not a broker id, or one occurs twice.
    """
    try:
        brokers = [int(part) for part in text.split(",")]
    except ValueError:
        raise BadRequest(
            f"not a list of broker ids: {text!r}", where=Parameter.BROKER_LIST, hint="write 0,1,2"
        ) from None
    twice = repeated(brokers)
    if twice:
        message = f"broker list contains duplicate entries: {', '.join(map(str, twice))}"
        raise BadRequest(message, where=Parameter.BROKER_LIST)
    return tuple(brokers)


def plan_document(
    assignments: Mapping[TopicPartition, Sequence[int]],
    *,
    log_dirs: Mapping[TopicPartition, Sequence[str]] | None = None,
    cluster_id: str | None = None,
) -> dict[str, Any]:
    """Return assignments in the form of a reassignment file.

    Args:
        log_dirs: the dir of each replica, for partitions where that matters.
        cluster_id: written into the file; Kafka's tool ignores it.
    """
    known_dirs = log_dirs or {}
    with collector_paused():
        partitions = [
            {
                "topic": name.topic,
                "partition": name.partition,
                "replicas": list(replicas),
                "log_dirs": list(known_dirs.get(name) or [ANY_LOG_DIR] * len(replicas)),
            }
            for name, replicas in sorted(assignments.items())
        ]
    envelope = {} if cluster_id is None else {"klamm": {"cluster_id": cluster_id}}
    return {"version": 1, "partitions": partitions, **envelope}


def plan_text(document: Mapping[str, Any]) -> str:
    """Return a document as Kafka's tool prints it: on one line, without blanks."""
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False)


def _document(text: str, where: str, example: str) -> dict[str, Any]:
    document = parse_document(text, where, example)
    check_version(document, where)
    return document


def _entries(document: dict[str, Any], key: str, where: str, example: str) -> list[Any]:
    entries = document.get(key)
    if not isinstance(entries, list):
        raise BadRequest(f"no list called {key!r} in it", where=where, hint=example)
    return entries


def _move(entry: object, where: str) -> PartitionMove:
    fields: dict[str, Any] = entry if isinstance(entry, dict) else {}
    topic, replicas = fields.get("topic"), fields.get("replicas")
    partition: Any = fields.get("partition")
    if not isinstance(topic, str) or not _is_id(partition) or not _is_list(replicas, _is_id):
        message = f"not a partition with its replicas: {json.dumps(entry)}"
        raise BadRequest(message, where=where, hint=_PLAN_EXAMPLE)
    name = TopicPartition(topic, partition)
    if not replicas:
        raise BadRequest(f"partition replica list cannot be empty: {name}", where=where)
    twice = repeated(replicas)
    if twice:
        listed = ", ".join(map(str, twice))
        message = f"partition replica lists may not contain duplicate entries: {name} contains multiple entries for"
        raise BadRequest(f"{message} {listed}", where=where)
    log_dirs = fields.get("log_dirs") or []
    if not _is_list(log_dirs, lambda log_dir: isinstance(log_dir, str)):
        raise BadRequest(f"log_dirs is not a list of directories: {name}", where=where, hint=_PLAN_EXAMPLE)
    if log_dirs and len(log_dirs) != len(replicas):
        message = f"size of replicas list {replicas} is different from size of log dirs list {log_dirs}"
        raise BadRequest(f"{message} for partition {name}", where=where)
    return PartitionMove(name, tuple(replicas), tuple(log_dirs))


def _is_id(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_list(value: object, is_element: Any) -> bool:
    return isinstance(value, list) and all(is_element(item) for item in value)
