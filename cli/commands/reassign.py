"""``klamm reassign``: brings the group's commands together."""

from __future__ import annotations

from cli.commands import reassign_plan, reassign_run
from cli.commands.reassign_group import group

__all__ = ["group", "reassign_plan", "reassign_run"]

group.put_in_order("generate", "execute", "verify", "cancel", "list")
