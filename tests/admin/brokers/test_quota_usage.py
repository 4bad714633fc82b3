"""What MBeans say about quotas, beside the limits that count for whom they name."""

from __future__ import annotations

import pytest

from engine.admin.brokers.metrics import bean_of, beans_of_page
from engine.admin.brokers.quota_usage import QuotaUsage, usages_of
from engine.admin.brokers.reading_metrics import BrokerReading
from engine.admin.configs.quota_reading import DEFAULT, OwnedQuota

QUOTAS = [
    OwnedQuota("alice@corp", None, None, "producer_byte_rate", 1000.0),
    OwnedQuota(DEFAULT, None, None, "producer_byte_rate", 50.0),
    OwnedQuota(None, DEFAULT, None, "consumer_byte_rate", 200.0),
    OwnedQuota("bob", "app/1", None, "request_percentage", 10.0),
    OwnedQuota(None, "app/1", None, "request_percentage", 99.0),
    OwnedQuota("carol", None, None, "controller_mutation_rate", "no number"),
]


@pytest.mark.parametrize(
    ("name", "attributes", "usage"),
    [
        (
            "kafka.server:type=Produce,user=alice%40corp",
            {"byte-rate": 900.0, "throttle-time": 12.5},
            QuotaUsage(1, "alice@corp", None, "producer_byte_rate", 900.0, 1000.0, 12.5),
        ),
        (
            "kafka.server:type=Produce,user=dave",
            {"byte-rate": 0.0, "throttle-time": 0.0},
            QuotaUsage(1, "dave", None, "producer_byte_rate", 0.0, 50.0, None),
        ),
        (
            'kafka.server:type=Fetch,client-id="a,b"',
            {"byte-rate": 100.0},
            QuotaUsage(1, None, "a,b", "consumer_byte_rate", 100.0, 200.0, None),
        ),
        (
            'kafka.server:client-id="app/1",type=Request,user=bob',
            {"request-time": 2.5},
            QuotaUsage(1, "bob", "app/1", "request_percentage", 2.5, 10.0, None),
        ),
        (
            "kafka.server:type=ControllerMutation,user=carol",
            {"mutation-rate": 3.0, "tokens": 9.0},
            QuotaUsage(1, "carol", None, "controller_mutation_rate", 3.0, None, None),
        ),
    ],
)
def test_whose_use_it_is(name: str, attributes: dict[str, float], usage: QuotaUsage) -> None:
    bean = bean_of(name)
    assert bean is not None
    assert list(usages_of(BrokerReading(1, beans={bean: attributes}), QUOTAS)) == [usage]


def test_how_near_the_limit_is() -> None:
    near = QuotaUsage(1, "u", None, "producer_byte_rate", 900.0, 1000.0, None)
    assert near.used_percent == 90.0
    assert QuotaUsage(1, "u", None, "producer_byte_rate", 900.0, None, None).used_percent is None
    assert QuotaUsage(1, "u", None, "producer_byte_rate", 900.0, 0.0, None).used_percent is None


def test_what_is_nobodys_use() -> None:
    whole = bean_of("kafka.server:type=Produce")
    other = bean_of("kafka.server:type=ReplicaManager,name=UnderReplicatedPartitions")
    assert whole is not None and other is not None
    assert list(usages_of(BrokerReading(1, beans={whole: {"queue-size": 0.0}, other: {"Value": 0.0}}), QUOTAS)) == []


def test_a_page_for_prometheus() -> None:
    page = (
        'kafka_server_quota_byte_rate{resource="Produce",user="alice%40corp",clientId=""} 7.0\n'
        'kafka_server_quota_throttle_time{resource="Produce",user="alice%40corp",clientId=""} 3.0\n'
    )
    (usage,) = usages_of(BrokerReading(1, beans=beans_of_page(page)), QUOTAS)
    assert (usage.user, usage.client_id, usage.used, usage.throttled_ms) == ("alice@corp", None, 7.0, 3.0)
