"""Recorded clusters, loaded unchanged into a real ZooKeeper, and one running cluster."""

from __future__ import annotations

from live_cluster import live_cluster, topic_name
from znode_trees import recorded

__all__ = ["live_cluster", "recorded", "topic_name"]
