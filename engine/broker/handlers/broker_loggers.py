"""Reads and changes the levels of this process's loggers, in log4j's words, while the broker runs (KIP-412).

Changes last until the process ends. The names are Python's; for parts that Kafka also has, they are Kafka's own.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from engine.broker.handlers.config_resources import invalid_request
from engine.common.errors import ErrorCode, KafkaError
from engine.kafka.config.alter import AlterOperation, ConfigChange
from engine.runtime.log_files import TRACE

ROOT: Final = "root"
LEVELS: Final = {
    "DEBUG": logging.DEBUG,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
    "INFO": logging.INFO,
    "TRACE": TRACE,
    "WARN": logging.WARNING,
}

logger = logging.getLogger("kafka.server.logger.RuntimeLoggerManager")


def logger_levels() -> dict[str, str]:
    """Return each logger's effective level."""
    levels = {ROOT: level_name(logging.getLogger().level)}
    for name in sorted(logging.root.manager.loggerDict):
        levels[name] = level_name(logging.getLogger(name).getEffectiveLevel())
    return levels


def level_name(level: int) -> str:
    """Return log4j's word for a level; a level between two words gets the lower one."""
    fitting = [name for name, value in sorted(LEVELS.items(), key=lambda item: item[1]) if value <= level]
    return fitting[-1] if fitting else "TRACE"


def check_logger_changes(changes: Iterable[ConfigChange]) -> None:
    """Check all changes before making the first.

    Raises:
        KafkaError: INVALID_CONFIG for a logger or level that does not exist, INVALID_REQUEST for an impossible change.
    """
    for change in changes:
        match change.operation:
            case AlterOperation.SET:
                _check_exists(change.name)
                _check_level(change)
            case AlterOperation.DELETE:
                _check_exists(change.name)
                if change.name == ROOT:
                    raise invalid_request("Removing the log level of the root logger is not allowed")
            case AlterOperation.APPEND | AlterOperation.SUBTRACT as operation:
                raise invalid_request(
                    f"{AlterOperation(operation).name} operation is not allowed for the BROKER_LOGGER resource"
                )
            case unknown:
                raise invalid_request(f"Unknown operation type {unknown} is not allowed for the BROKER_LOGGER resource")


def change_loggers(changes: Iterable[ConfigChange]) -> None:
    """Apply checked changes."""
    for change in changes:
        target = logging.getLogger() if change.name == ROOT else logging.getLogger(change.name)
        if change.operation == AlterOperation.DELETE:
            target.setLevel(logging.NOTSET)
            logger.warning("Unset the log level of %s", change.name)
        else:
            target.setLevel(LEVELS[change.value or ""])
            logger.warning("Updated the log level of %s to %s", change.name, change.value)


def _check_exists(name: str) -> None:
    if name != ROOT and name not in logging.root.manager.loggerDict:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Logger {name} does not exist!")


def _check_level(change: ConfigChange) -> None:
    if change.value not in LEVELS:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"Cannot set the log level of {change.name} to {change.value} as it is not a supported log level. "
            f"Valid log levels are {', '.join(sorted(LEVELS))}",
        )
