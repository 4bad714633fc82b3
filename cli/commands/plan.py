"""``klamm plan``: brings the group's commands together."""

from __future__ import annotations

from cli.commands import plan_making
from cli.commands.plan_group import group

__all__ = ["group", "plan_making"]

group.put_in_order(
    "rebalance", "decommission", "replace", "expand", "racks", "factor", "move", "leaders", "log-dirs"
)  # fmt: skip
