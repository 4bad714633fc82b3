"""Recorded clusters that stand still in a real ZooKeeper, and one that lives."""

from __future__ import annotations

from live_cluster import live_cluster, topic_name
from operated_cluster import by_wire, by_znodes, klamm_by, three_brokers
from znode_trees import recorded

__all__ = ["by_wire", "by_znodes", "klamm_by", "live_cluster", "recorded", "three_brokers", "topic_name"]
