"""A broker's release, guessed from the APIs that it offers: brokers do not tell their version.

An API, or a version of one, that a release was the first to have identifies it. A release that added nothing cannot be
told from the one before.
"""

from __future__ import annotations

from collections.abc import Mapping

from engine.kafka.protocol.api_keys import ApiKey

_MARKS: tuple[tuple[str, ApiKey, int], ...] = (
    ("4.2", ApiKey.OFFSET_FETCH, 10),
    ("4.1", ApiKey.FETCH, 18),
    ("4.0", ApiKey.METADATA, 13),
    ("3.9", ApiKey.FETCH, 17),
    ("3.8", ApiKey.LIST_GROUPS, 5),
    ("3.7", ApiKey.FETCH, 16),
    ("3.5", ApiKey.FETCH, 15),
    ("3.4", ApiKey.LEADER_AND_ISR, 7),
    ("3.3", ApiKey.DESCRIBE_LOG_DIRS, 4),
    ("3.2", ApiKey.LEADER_AND_ISR, 6),
    ("3.1", ApiKey.FETCH, 13),
    ("3.0", ApiKey.LIST_OFFSETS, 7),
    ("2.8", ApiKey.DESCRIBE_CLUSTER, 0),
    ("2.7", ApiKey.FETCH, 12),
    ("2.6", ApiKey.DESCRIBE_CLIENT_QUOTAS, 0),
    ("2.5", ApiKey.SASL_AUTHENTICATE, 2),
    ("2.4", ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0),
    ("2.3", ApiKey.INCREMENTAL_ALTER_CONFIGS, 0),
    ("2.2", ApiKey.ELECT_LEADERS, 0),
    ("2.1", ApiKey.FETCH, 10),
    ("2.0", ApiKey.FETCH, 8),
    ("1.1", ApiKey.FETCH, 7),
    ("1.0", ApiKey.FETCH, 6),
    ("0.11", ApiKey.FETCH, 5),
    ("0.10.2", ApiKey.CREATE_TOPICS, 1),
    ("0.10.1", ApiKey.CREATE_TOPICS, 0),
    ("0.10.0", ApiKey.API_VERSIONS, 0),
)
"""From new to old. Sources: the request schemas of Kafka, whose comments name the release or the KIP."""


def release_of(offered: Mapping[int, tuple[int, int]]) -> str | None:
    """Return the release that offers these APIs, (lowest, highest) by API key; None if none is known to."""
    for release, key, version in _MARKS:
        if offered.get(int(key), (0, -1))[1] >= version:
            return release
    return None
