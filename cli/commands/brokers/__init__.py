"""The group ``klamm brokers``."""

from __future__ import annotations

from cli.framework.command import CommandGroup

group = CommandGroup(
    "brokers",
    "The brokers and what each holds; take leadership away from one.",
    action_flags={"--list": "list"},
)


# They register their commands with the group above.
from cli.commands.brokers import log_dirs, maintenance, metrics, read  # noqa: E402

__all__ = ["log_dirs", "maintenance", "metrics", "read"]

group.put_in_order("list", "describe", "log-dirs", "metrics", "restart-order", "demote", "restore")
