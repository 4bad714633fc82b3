"""Settings that are quotas: those of users, client ids and addresses, as Kafka 3.9 defines them."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from engine.kafka.config.values import ConfigType, java_integer


class QuotaKey(StrEnum):
    """A quota's name in ``/config/users``, ``/config/clients`` and ``/config/ips``."""

    PRODUCE = "producer_byte_rate"
    FETCH = "consumer_byte_rate"
    REQUEST = "request_percentage"
    CONTROLLER_MUTATION = "controller_mutation_rate"
    CONNECTION_RATE = "connection_creation_rate"

    @property
    def is_whole(self) -> bool:
        """Whether only whole numbers are allowed."""
        return self in (QuotaKey.PRODUCE, QuotaKey.FETCH, QuotaKey.CONNECTION_RATE)

    @property
    def highest(self) -> float:
        """The highest value that a broker holds; it also means that there is no limit."""
        return {QuotaKey.PRODUCE: 2**63 - 1, QuotaKey.FETCH: 2**63 - 1}.get(self, 2**31 - 1)


CLIENT_QUOTAS: Final = (QuotaKey.PRODUCE, QuotaKey.FETCH, QuotaKey.REQUEST, QuotaKey.CONTROLLER_MUTATION)
"""What users and client ids can have."""

IP_QUOTAS: Final = (QuotaKey.CONNECTION_RATE,)
"""What addresses can have."""


def parse_quota(key: QuotaKey, text: str) -> float:
    """Return the value of a znode.

    Raises:
        ValueError: it is not a number of this quota's type.
    """
    if key.is_whole:
        number = java_integer(text, ConfigType.INT if key is QuotaKey.CONNECTION_RATE else ConfigType.LONG)
        if number is None:
            raise ValueError("not a whole number of its type")
        return float(number)
    value = float(text)
    if value != value:
        raise ValueError("not a number")
    return value
