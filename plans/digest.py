"""Digests of a planner's input, which must not have changed when the plan is carried out, and of a plan file."""

from __future__ import annotations

import hashlib
import json

from engine.common.snapshot import ClusterSnapshot, TopicSnapshot
from engine.common.topic_id import topic_id_text


def input_digest(snapshot: ClusterSnapshot) -> str:
    """Return ``sha256:`` and the digest of cluster id, live brokers with racks, and topics with ids and replica lists.

    It leaves out sizes, leaders, ISRs and times, because they may drift. A reassignment under way counts as finished,
    so that its end changes nothing.
    """
    digest = hashlib.sha256()
    brokers = sorted((broker.id, broker.rack) for broker in snapshot.brokers)
    digest.update(_line({"cluster_id": snapshot.cluster_id, "brokers": brokers}))
    for topic in sorted(snapshot.topics, key=lambda topic: topic.name):
        digest.update(_line(_topic(topic)))
    return f"sha256:{digest.hexdigest()}"


def plan_digest(text: str) -> str:
    """Return ``sha256:`` and the digest of a plan file's text, by which a journal recognises its plan."""
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def _topic(topic: TopicSnapshot) -> dict[str, object]:
    return {
        "topic": topic.name,
        "id": None if topic.topic_id is None else topic_id_text(topic.topic_id),
        "replicas": [
            [partition.partition, *partition.assignment.target_replicas]
            for partition in sorted(topic.partitions, key=lambda partition: partition.partition)
        ],
    }


def _line(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode("ascii") + b"\n"
