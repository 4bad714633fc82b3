"""``klamm topics``: brings the group's commands together."""

from __future__ import annotations

from cli.commands import topics_changes, topics_read
from cli.commands.topics_group import group

__all__ = ["group", "topics_changes", "topics_read"]

group.put_in_order("list", "describe", "create", "alter", "delete")
