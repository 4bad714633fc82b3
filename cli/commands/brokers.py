"""``klamm brokers``: brings the commands of the group together."""

from __future__ import annotations

from cli.commands import brokers_log_dirs, brokers_maintenance, brokers_metrics, brokers_read
from cli.commands.brokers_group import group

__all__ = ["brokers_log_dirs", "brokers_maintenance", "brokers_metrics", "brokers_read", "group"]

group.put_in_order("list", "describe", "log-dirs", "metrics", "restart-order", "demote", "restore")
