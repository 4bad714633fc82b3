"""What the tests of Spark share: one session, one cluster."""

from __future__ import annotations

from klamm_program import commands, program
from live_cluster import live_cluster, topic_name
from spark_sessions import spark

__all__ = ["commands", "live_cluster", "program", "spark", "topic_name"]
