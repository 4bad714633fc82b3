"""The group ``klamm cluster``."""

from __future__ import annotations

from cli.framework.command import CommandGroup

group = CommandGroup("cluster", "The cluster as a whole.")
