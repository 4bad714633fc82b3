"""The resources whose settings a request names: topics, brokers, loggers. DescribeConfigs and the alter APIs share
it.
"""

from __future__ import annotations

from enum import IntEnum

from engine.broker.handlers.context import Broker
from engine.common.errors import ErrorCode, KafkaError
from engine.kafka.config.values import java_integer


class ResourceType(IntEnum):
    """Types of resources that have settings, by their numbers on the wire."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16


def resource_type(code: int) -> ResourceType:
    """Return the type; a number that Kafka does not know is UNKNOWN."""
    try:
        return ResourceType(code)
    except ValueError:
        return ResourceType.UNKNOWN


def resource_text(code: int, name: str) -> str:
    """Return a resource as Kafka names it in its messages."""
    return f"ConfigResource(type={resource_type(code).name}, name='{name}')"


def invalid_request(message: str) -> KafkaError:
    """Return the error for a request that makes no sense to this broker."""
    return KafkaError(ErrorCode.INVALID_REQUEST, message)


def parse_broker_id(name: str, noun: str) -> int:
    """Parse a broker id, as Java parses an int; if it is not one, the error message begins with ``noun``."""
    broker_id = java_integer(name)
    if broker_id is None:
        raise invalid_request(f"{noun} must be an integer, but it is: {name}")
    return broker_id


async def topic_exists(broker: Broker, topic: str) -> bool:
    """Return whether the topic exists. Until the broker has metadata, this asks ZooKeeper.

    A client takes "unknown" for the truth, and does not ask again. Raises CoordinationError.
    """
    cache = broker.metadata_cache
    return topic in cache.topics or (not cache.alive_brokers and await broker.zk.topics.topic_exists(topic))
