"""Recorded clusters, loaded unchanged into a real ZooKeeper, and commands against the running cluster."""

from __future__ import annotations

from klamm_program import commands, program
from znode_trees import recorded

__all__ = ["commands", "program", "recorded"]
