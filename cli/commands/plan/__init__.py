"""The group ``klamm plan`` and what its commands share."""

from __future__ import annotations

from cli.framework.command import CommandGroup

group = CommandGroup("plan", "The smallest safe reassignment: planned, checked, carried out in waves.")


# They register their commands with the group above.
from cli.commands.plan import apply, check, making, status  # noqa: E402

__all__ = ["apply", "check", "making", "status"]

group.put_in_order(
    "rebalance",
    "decommission",
    "replace",
    "expand",
    "racks",
    "factor",
    "move",
    "leaders",
    "log-dirs",
    "show",
    "check",
    "diff",
    "apply",
    "status",
    "verify",
    "resume",
    "rollback",
)
