"""The group ``klamm cluster``, which its commands share."""

from __future__ import annotations

from cli.framework.command import CommandGroup

group = CommandGroup("cluster", "The cluster as a whole.")
