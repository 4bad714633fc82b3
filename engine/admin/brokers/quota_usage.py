"""Who uses how much of a quota on each broker, who is throttled, and for how long.

Source: the MBeans of ``ClientQuotaManager`` and its kin in Kafka 3.9. They exist while a client is active and an hour
longer. Their tags name the level of the quota that counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote_plus

from engine.admin.brokers.metrics import QUOTA_TYPES, quota_patterns
from engine.admin.brokers.metrics_sources import ReadJmx
from engine.admin.brokers.reading_metrics import BrokerReading, read_beans
from engine.admin.cluster.connection import Cluster
from engine.admin.configs.quota_reading import OwnedQuota, all_quotas, in_force
from engine.admin.configs.quotas import user_and_client
from engine.admin.configs.values import Entity, EntityType

_KEYS: Final = dict(
    zip(
        QUOTA_TYPES,
        (
            ("producer_byte_rate", "byte-rate"),
            ("consumer_byte_rate", "byte-rate"),
            ("request_percentage", "request-time"),
            ("controller_mutation_rate", "mutation-rate"),
        ),
        strict=True,
    )
)
"""The quota that each type is about, and the attribute that says how much is used."""


@dataclass(frozen=True, slots=True)
class QuotaUsage:
    """What one client uses of one quota on one broker.

    Attributes:
        user, client_id: None if the quota that counts is not about it.
        used: in the quota's unit: bytes a second, percent of a thread, or partitions a second; None if not reported.
        limit: what counts; None if nothing limits it.
        throttled_ms: the mean time for which its answers were held back lately; None if none was.
    """

    broker: int
    user: str | None
    client_id: str | None
    quota: str
    used: float | None
    limit: float | None
    throttled_ms: float | None

    @property
    def used_percent(self) -> float | None:
        """How much of the limit is used."""
        return None if self.used is None or not self.limit else 100 * self.used / self.limit


@dataclass(frozen=True, slots=True)
class UsageOfBrokers:
    """All uses, the nearest to its limit first, and why a broker reports none."""

    usages: Sequence[QuotaUsage]
    troubles: Sequence[tuple[int, str]]
    has_quotas: bool
    """Some are set, or may be where ZooKeeper hides them."""


async def read_usage(
    cluster: Cluster, read_jmx: ReadJmx, ids: Sequence[int] = (), *, pattern: str | None = None
) -> UsageOfBrokers:
    """Return which clients use how much of their quotas on the named live brokers (none named: all).

    Raises:
        BadRequest: the pattern is not the address of metrics.
        NotFound: no live broker has one of the ids.
    """
    quotas = await all_quotas(cluster)
    answers = await read_beans(cluster, read_jmx, quota_patterns(), ids, pattern=pattern)
    return UsageOfBrokers(
        sorted((usage for answer in answers for usage in usages_of(answer, quotas)), key=_rank),
        [(answer.broker, answer.trouble) for answer in answers if answer.trouble is not None],
        bool(quotas or cluster.hidden_znodes),
    )


def usages_of(reading: BrokerReading, quotas: Sequence[OwnedQuota]) -> Iterator[QuotaUsage]:
    """Yield what one broker's MBeans say, beside the limits that are set."""
    for (kind, tag), attributes in (reading.beans or {}).items():
        if kind not in _KEYS or tag == "/":
            continue
        encoded, _, client_id = tag.partition("/")
        user = unquote_plus(encoded)
        key, attribute = _KEYS[kind]
        limits = {quota.quota: quota.value for quota in in_force(_entity(user, client_id), quotas)}
        limit = limits.get(key)
        yield QuotaUsage(
            reading.broker,
            user or None,
            client_id or None,
            key,
            attributes.get(attribute),
            limit if isinstance(limit, float) else None,
            attributes.get("throttle-time") or None,
        )


def _entity(user: str, client_id: str) -> Entity:
    if user and client_id:
        return user_and_client(user, client_id)
    return Entity(EntityType.USER, user) if user else Entity(EntityType.CLIENT, client_id)


def _rank(usage: QuotaUsage) -> tuple[float, ...]:
    return (-(usage.throttled_ms or 0), -(usage.used_percent or 0), -(usage.used or 0), usage.broker)
