"""``klamm spark``: brings the group's commands together."""

from __future__ import annotations

from cli.commands import spark_history, spark_jobs, spark_lag, spark_merge, spark_package
from cli.commands.spark_group import group

__all__ = ["group", "spark_history", "spark_jobs", "spark_lag", "spark_merge", "spark_package"]
