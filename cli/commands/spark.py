"""``klamm spark``: the jobs that run on Spark."""

from __future__ import annotations

from cli.commands import spark_jobs, spark_merge, spark_package
from cli.commands.spark_group import group

__all__ = ["group", "spark_jobs", "spark_merge", "spark_package"]
