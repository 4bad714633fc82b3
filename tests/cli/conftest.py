"""Recorded clusters, loaded unchanged into a real ZooKeeper, and one running cluster."""

from __future__ import annotations

from klamm_program import commands, program
from live_cluster import live_cluster, topic_name
from operated_cluster import by_wire, by_znodes, klamm_by, three_brokers
from znode_trees import recorded

__all__ = [
    "by_wire",
    "by_znodes",
    "commands",
    "klamm_by",
    "live_cluster",
    "program",
    "recorded",
    "three_brokers",
    "topic_name",
]
