"""``klamm groups``: brings the group's commands together."""

from __future__ import annotations

from cli.commands import groups_delete, groups_read, groups_reset
from cli.commands.groups_group import group

__all__ = ["group", "groups_delete", "groups_read", "groups_reset"]

group.put_in_order("list", "describe", "reset-offsets", "delete-offsets", "delete")
