"""``klamm state-changes``: brings the group's commands together."""

from __future__ import annotations

from cli.commands import state_changes_check, state_changes_merge
from cli.commands.state_changes_group import group

__all__ = ["group", "state_changes_check", "state_changes_merge"]

group.put_in_order("merge", "check")
