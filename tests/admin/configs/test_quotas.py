"""Users, clients, addresses and their quotas as values."""

from __future__ import annotations

import pytest

from engine.admin.cluster.errors import BadRequest
from engine.admin.configs.quotas import check_dropped, entity_of, parse_quotas, parts_of, user_and_client
from engine.admin.configs.values import Entity, EntityType


def test_users_clients_and_addresses_there_and_back() -> None:
    pair = user_and_client("CN=a/b", None)
    assert (pair.name, str(pair)) == ("CN%3Da%2Fb/<default>", "client <default> of user CN%3Da%2Fb")
    assert parts_of(pair) == [("user", "CN=a/b"), ("client-id", None)]
    for entity in (pair, Entity(EntityType.USER, None), Entity(EntityType.CLIENT, "c"), Entity(EntityType.IP, "::1")):
        assert entity_of(parts_of(entity)) == entity
    assert entity_of([("group", "g")]) is None


def test_quotas_are_checked_before_they_are_sent() -> None:
    user, address = Entity(EntityType.USER, "u"), Entity(EntityType.IP, "h")
    assert parse_quotas(user, {"producer_byte_rate": "5", "request_percentage": "0.5"}) == {
        "producer_byte_rate": 5.0,
        "request_percentage": 0.5,
    }
    # As kafka-configs does, and Kafka's brokers.
    assert parse_quotas(user, {"producer_byte_rate": "0"}) == {"producer_byte_rate": 0.0}
    assert parse_quotas(user, {"request_percentage": "-1"}) == {"request_percentage": -1.0}
    for entity, key, text, message in (
        (user, "producer_byte_rate", "1.5", "whole number"),
        (user, "producer_byte_rate", "-1", "whole number"),
        (user, "producer_byte_rate", "abc", "cannot parse"),
        (user, "request_percentage", "nan", "must be a number"),
        (user, "request_percentage", "inf", "must be a number"),
        (address, "connection_creation_rate", "-1", "0 or more"),
        (user, "connection_creation_rate", "1", "only quotas can be set for users"),
        (address, "producer_byte_rate", "1", "only quotas can be set for ips"),
        (user, "SCRAM-SHA-512", "[password=x]", "credentials cannot be altered"),
    ):
        with pytest.raises(BadRequest, match=message):
            parse_quotas(entity, {key: text})
    with pytest.raises(BadRequest, match="not set"):
        check_dropped(user, ["producer_byte_rate"], [])
    with pytest.raises(BadRequest, match="credentials cannot be altered"):
        check_dropped(user, ["SCRAM-SHA-256"], ["SCRAM-SHA-256"])
