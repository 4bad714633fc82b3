"""``klamm reassign``: brings the commands of the group together."""

from __future__ import annotations

from cli.commands.reassignment import generate, run
from cli.commands.reassignment.shared import group

__all__ = ["generate", "group", "run"]

group.put_in_order("generate", "execute", "verify", "cancel", "list")
