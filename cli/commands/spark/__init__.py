"""``klamm spark``: brings the commands of the group together."""

from __future__ import annotations

from cli.commands.spark import jobs, lag, merge, package, verify
from cli.commands.spark.shared import group

__all__ = ["group", "jobs", "lag", "merge", "package", "verify"]

group.put_in_order("jobs", "commit", "lag", "history", "merge", "verify", "package")
