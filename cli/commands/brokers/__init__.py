"""``klamm brokers``: brings the commands of the group together."""

from __future__ import annotations

from cli.commands.brokers import log_dirs, maintenance, metrics, read
from cli.commands.brokers.shared import group

__all__ = ["group", "log_dirs", "maintenance", "metrics", "read"]

group.put_in_order("list", "describe", "log-dirs", "metrics", "restart-order", "demote", "restore")
