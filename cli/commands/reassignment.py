"""``klamm reassign``: brings the group's commands together."""

from __future__ import annotations

from cli.commands import reassignment_plan, reassignment_run
from cli.commands.reassignment_group import group

__all__ = ["group", "reassignment_plan", "reassignment_run"]

group.put_in_order("generate", "execute", "verify", "cancel", "list")
