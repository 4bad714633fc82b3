"""``klamm topics``: brings the commands of the group together."""

from __future__ import annotations

from cli.commands.topics import changes, read
from cli.commands.topics.shared import group

__all__ = ["changes", "group", "read"]

group.put_in_order("list", "describe", "create", "alter", "delete")
