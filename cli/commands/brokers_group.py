"""The group ``klamm brokers``."""

from __future__ import annotations

from cli.framework.command import CommandGroup

group = CommandGroup(
    "brokers",
    "Who is in the cluster, and what lies on each; take leadership off one.",
    action_flags={"--list": "list"},
)
