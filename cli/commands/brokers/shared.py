"""The group ``klamm brokers``."""

from __future__ import annotations

from cli.framework.command import CommandGroup

group = CommandGroup(
    "brokers",
    "The brokers and what each holds; take leadership away from one.",
    action_flags={"--list": "list"},
)
