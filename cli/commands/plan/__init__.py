"""``klamm plan``: brings the commands of the group together."""

from __future__ import annotations

from cli.commands.plan import apply, check, making
from cli.commands.plan.shared import group

__all__ = ["apply", "check", "group", "making"]

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
