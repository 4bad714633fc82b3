"""``klamm spark``: brings the commands of the group together."""

from __future__ import annotations

from cli.commands.spark import history, jobs, lag, merge, package, verify
from cli.commands.spark.shared import group

__all__ = ["group", "history", "jobs", "lag", "merge", "package", "verify"]
