"""What the tests of Spark share: one session, one cluster."""

from __future__ import annotations

from live_cluster import live_cluster, topic_name
from spark_sessions import spark
from topic_program import commands, program

__all__ = ["commands", "live_cluster", "program", "spark", "topic_name"]
