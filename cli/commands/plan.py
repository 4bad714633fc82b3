"""``klamm plan``: brings the group's commands together."""

from __future__ import annotations

from cli.commands import plan_apply, plan_check, plan_making, plan_status
from cli.commands.plan_group import group

__all__ = ["group", "plan_apply", "plan_check", "plan_making", "plan_status"]

group.put_in_order(
    "rebalance", "decommission", "replace", "expand", "racks", "factor", "move", "leaders", "log-dirs",
    "show", "check", "diff", "apply", "status", "verify", "resume", "rollback",
)  # fmt: skip
