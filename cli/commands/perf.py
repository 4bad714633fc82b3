"""``klamm perf``: brings the group's commands together."""

from __future__ import annotations

from cli.commands import perf_consumer, perf_producer, perf_suite
from cli.commands.perf_group import group

__all__ = ["group", "perf_consumer", "perf_producer", "perf_suite"]

group.put_in_order("producer", "consumer", "suite")
