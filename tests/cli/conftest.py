"""Recorded clusters, loaded unchanged into a real ZooKeeper, and commands against the running cluster."""

from __future__ import annotations

from klamm_program import alone, commands, own_folder, program
from znode_trees import recorded

__all__ = ["alone", "commands", "own_folder", "program", "recorded"]
