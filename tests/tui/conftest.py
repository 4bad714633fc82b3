"""Three running brokers, for what the dashboard does to a cluster."""

from __future__ import annotations

from operated_cluster import by_wire, three_brokers

__all__ = ["by_wire", "three_brokers"]
