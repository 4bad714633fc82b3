"""``klamm state-changes``: brings the commands of the group together."""

from __future__ import annotations

from cli.commands.state_changes import check, merge
from cli.commands.state_changes.shared import group

__all__ = ["check", "group", "merge"]

group.put_in_order("merge", "check")
