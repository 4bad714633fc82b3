"""Recorded clusters, loaded unchanged into a real ZooKeeper."""

from __future__ import annotations

from znode_trees import recorded

__all__ = ["recorded"]
