"""Which quota a client has: Kafka's eight levels. test_quotas_on_kafka compares them with Apache Kafka's."""

from __future__ import annotations

import pytest

from engine.broker.quotas.limits import ANYBODY, Limits, Owner, entity_of

LEVELS = (
    (("alice", "app"), Owner("alice", "app")),
    (("alice", ANYBODY), Owner("alice", "app")),
    (("alice", ""), Owner("alice", "")),
    ((ANYBODY, "app"), Owner("alice", "app")),
    ((ANYBODY, ANYBODY), Owner("alice", "app")),
    ((ANYBODY, ""), Owner("alice", "")),
    (("", "app"), Owner("", "app")),
    (("", ANYBODY), Owner("", "app")),
)


def test_the_first_of_eight_levels_counts_and_says_who_shares_it() -> None:
    limits = Limits()
    for number, (entity, _) in enumerate(LEVELS):
        assert limits.set(entity, float(number))
    for number, (entity, owner) in enumerate(LEVELS):
        assert limits.of("alice", "app") == (owner, number)
        assert limits.set(entity, None)
    assert limits.of("alice", "app") is None
    assert not limits


def test_a_client_without_a_client_id_has_its_users_quota_at_most() -> None:
    limits = Limits()
    for entity in ((ANYBODY, ANYBODY), ("", ANYBODY), ("alice", ANYBODY)):
        limits.set(entity, 1.0)
    assert limits.of("alice", "") is None
    limits.set((ANYBODY, ""), 2.0)
    assert limits.of("alice", "") == (Owner("alice", ""), 2.0)


def test_a_change_is_told() -> None:
    limits = Limits()
    assert [limits.set(("", "a"), limit) for limit in (1.0, 1.0, 2.0, None, None)] == [True, False, True, True, False]


@pytest.mark.parametrize(
    ("folder", "name", "entity"),
    [
        ("clients", "app", ("", "app")),
        ("clients", "<default>", ("", ANYBODY)),
        ("clients", "a%2Fb%7E", ("", "a/b~")),
        ("users", "al+ice", ("al ice", "")),
        ("users", "<default>", (ANYBODY, "")),
        ("users", "alice/clients/app", ("alice", "app")),
        ("users", "<default>/clients/<default>", (ANYBODY, ANYBODY)),
        ("users", "a%2Fclients%2Fb", ("a/clients/b", "")),
    ],
)
def test_znodes_name_entities(folder: str, name: str, entity: tuple[str | None, str | None]) -> None:
    assert entity_of(folder, name) == entity
