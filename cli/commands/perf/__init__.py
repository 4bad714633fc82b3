"""``klamm perf``: brings the commands of the group together."""

from __future__ import annotations

from cli.commands.perf import consumer, producer, suite
from cli.commands.perf.shared import group

__all__ = ["consumer", "group", "producer", "suite"]

group.put_in_order("producer", "consumer", "suite")
