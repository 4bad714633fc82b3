"""The group ``klamm plan`` and what its commands share."""

from __future__ import annotations

from cli.framework.command import CommandGroup

group = CommandGroup("plan", "The smallest safe reassignment: planned, checked, carried out in waves.")
