"""Whose settings a request is about: a topic, a broker, its loggers. What DescribeConfigs and the alter APIs share."""

from __future__ import annotations

from enum import IntEnum

from engine.common.errors import ErrorCode, KafkaError


class ResourceType(IntEnum):
    """Kinds of resources that have settings, by their numbers on the wire."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16


def resource_type(code: int) -> ResourceType:
    """Return the kind; a number that Kafka does not know is UNKNOWN."""
    try:
        return ResourceType(code)
    except ValueError:
        return ResourceType.UNKNOWN


def resource_text(code: int, name: str) -> str:
    """Return a resource as Kafka names it in its messages."""
    return f"ConfigResource(type={resource_type(code).name}, name='{name}')"


def invalid_request(message: str) -> KafkaError:
    """Return the error of a request that makes no sense to this broker."""
    return KafkaError(ErrorCode.INVALID_REQUEST, message)


def parse_broker_id(name: str, what: str) -> int:
    """Read a broker id; ``what`` begins the message if it is none."""
    digits = name.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()):
        raise invalid_request(f"{what} must be an integer, but it is: {name}")
    return int(name)
