"""``klamm groups``: brings the commands of the group together."""

from __future__ import annotations

from cli.commands.groups import delete, read, reset
from cli.commands.groups.shared import group

__all__ = ["delete", "group", "read", "reset"]

group.put_in_order("list", "describe", "reset-offsets", "delete-offsets", "delete")
