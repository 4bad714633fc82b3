"""What the tests of Spark share: one session, one cluster."""

from __future__ import annotations

from live_cluster import live_cluster, topic_name
from spark_sessions import spark

__all__ = ["live_cluster", "spark", "topic_name"]
