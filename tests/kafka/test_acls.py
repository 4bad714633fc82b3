"""What access rules say: who may do what, which rules a filter means. Expectations are Kafka 3.9.1's."""

from __future__ import annotations

import pytest

from engine.common.acl import AclOperation, ResourceType
from engine.kafka.acls import (
    ANYBODY,
    AclBinding,
    AclEntry,
    AclFilter,
    PatternType,
    Permission,
    ResourcePattern,
    decide,
    may_on_any,
    operation_of,
    type_code,
)

ALICE, HOST = "User:alice", "10.0.0.1"


def rules(*texts: str) -> dict[ResourcePattern, list[AclEntry]]:
    """Rules for topics as ``allow WHO OPERATION NAME [HOST]``; a name that ends with ``~`` is a prefix."""
    rules_of: dict[ResourcePattern, list[AclEntry]] = {}
    for text in texts:
        permission, who, operation, name, *host = text.split()
        kind = PatternType.PREFIXED if name.endswith("~") else PatternType.LITERAL
        pattern = ResourcePattern(ResourceType.TOPIC, name.removesuffix("~"), kind)
        spelled = operation_of(operation)
        assert spelled is not None
        entry = AclEntry(f"User:{who}", host[0] if host else "*", spelled, Permission(permission.title()))
        rules_of.setdefault(pattern, []).append(entry)
    return rules_of


@pytest.mark.parametrize(
    ("said", "operation", "is_allowed"),
    [
        ((), "Read", False),
        (("allow alice Read orders",), "Read", True),
        (("allow alice Read orders",), "Write", False),
        (("allow alice Read order",), "Read", False),
        (("allow alice Read order~",), "Read", True),
        (("allow alice Read *",), "Read", True),
        (("allow alice All orders",), "Write", True),
        (("allow * Read orders",), "Read", True),
        (("allow bob Read orders",), "Read", False),
        (("allow alice Read orders 10.0.0.1",), "Read", True),
        (("allow alice Read orders 10.0.0.2",), "Read", False),
        (("allow alice Read *", "deny alice Read orders"), "Read", False),
        (("allow alice Read orders", "deny * All o~"), "Read", False),
        (("allow alice Read orders", "deny alice Read orders 10.0.0.2"), "Read", True),
        # What is implied, and that a denial beats it but does not spread.
        (("allow alice Read orders",), "Describe", True),
        (("allow alice Write orders",), "Describe", True),
        (("allow alice Delete orders",), "Describe", True),
        (("allow alice Alter orders",), "Describe", True),
        (("allow alice Create orders",), "Describe", False),
        (("allow alice AlterConfigs orders",), "DescribeConfigs", True),
        (("allow alice AlterConfigs orders",), "Describe", False),
        (("allow alice Read orders", "deny alice Describe orders"), "Describe", False),
        (("allow alice Read orders", "deny alice Describe orders"), "Read", True),
        (("allow alice Write orders", "deny alice Read orders"), "Describe", True),
    ],
)
def test_who_may(said: tuple[str, ...], operation: str, is_allowed: bool) -> None:
    asked = operation_of(operation)
    assert asked is not None
    assert decide(rules(*said), ALICE, HOST, asked, ResourceType.TOPIC, "orders").is_allowed is is_allowed


def test_without_any_rule_a_setting_decides() -> None:
    def may(*said: str) -> bool:
        asked = (AclOperation.READ, ResourceType.TOPIC, "orders")
        return decide(rules(*said), ALICE, HOST, *asked, allows_without_rules=True).is_allowed

    assert may()
    assert may("allow bob Read other")
    assert not may("allow bob Read orders")
    assert not may("allow bob Read ord~")


def test_a_decision_names_the_rule_and_the_others_that_match() -> None:
    said = rules("allow alice Read orders", "allow * All o~", "deny bob Read orders")
    decision = decide(said, ALICE, HOST, AclOperation.READ, ResourceType.TOPIC, "orders")
    assert decision.rule == AclBinding(next(iter(said)), said[next(iter(said))][0])
    assert [rule.entry.principal for rule in decision.matching] == [ALICE, ANYBODY]
    nothing = decide(said, "User:bob", "9.9.9.9", AclOperation.READ, ResourceType.TOPIC, "else")
    assert (nothing.rule, nothing.matching, nothing.has_rules) == (None, (), False)
    denied = decide(said, "User:bob", HOST, AclOperation.READ, ResourceType.TOPIC, "orders")
    assert denied.rule is not None and denied.rule.entry.permission is Permission.DENY
    assert len(denied.matching) == 2


@pytest.mark.parametrize(
    ("said", "is_allowed"),
    [
        ((), False),
        (("allow alice Write orders",), True),
        (("allow alice Write ord~",), True),
        (("allow bob Write orders",), False),
        (("allow alice Write *", "deny alice Write *"), False),
        (("allow alice Write *", "deny alice Write orders"), True),
        (("allow alice Write orders", "deny alice Write orders"), False),
        (("allow alice Write orders", "deny alice Write ord~"), False),
        (("allow alice Write ord~", "deny alice Write orders~"), True),
        (("allow alice Write orders~", "deny alice Write ord~"), False),
    ],
)
def test_whether_there_is_a_topic_to_write_to(said: tuple[str, ...], is_allowed: bool) -> None:
    assert may_on_any(rules(*said), ALICE, HOST, AclOperation.WRITE, ResourceType.TOPIC) is is_allowed


def test_the_setting_opens_any_topic_unless_all_are_denied() -> None:
    def may(*said: str) -> bool:
        asked = (AclOperation.WRITE, ResourceType.TOPIC)
        return may_on_any(rules(*said), ALICE, HOST, *asked, allows_without_rules=True)

    assert may("deny alice Write orders")
    assert not may("deny alice Write *")


def test_which_rules_a_filter_means() -> None:
    said = rules(
        "allow alice Read orders", "allow bob Read ord~", "deny alice Write *", "allow alice All other 1.2.3.4"
    )
    all_rules = [AclBinding(pattern, entry) for pattern, entries in said.items() for entry in entries]

    def taken(wanted: AclFilter) -> set[str]:
        return {rule.pattern.name for rule in all_rules if wanted.takes(rule)}

    assert taken(AclFilter(pattern_type=None)) == {"orders", "ord", "*", "other"}
    assert taken(AclFilter()) == {"orders", "*", "other"}
    assert taken(AclFilter(name="orders", pattern_type=None)) == {"orders"}
    assert taken(AclFilter(name="orders", matches_name=True)) == {"orders", "ord", "*"}
    assert taken(AclFilter(pattern_type=PatternType.PREFIXED)) == {"ord"}
    assert taken(AclFilter(principal=ALICE, permission=Permission.ALLOW)) == {"orders", "other"}
    assert taken(AclFilter(operation=AclOperation.WRITE)) == {"*"}
    assert taken(AclFilter(host="1.2.3.4")) == {"other"}
    assert taken(AclFilter(resource_type=ResourceType.GROUP)) == set()


def test_codes() -> None:
    assert [type_code(each) for each in ResourceType] == [2, 3, 4, 5, 6, 7]
    assert (PatternType.LITERAL.code, PatternType.PREFIXED.code) == (3, 4)
    assert (Permission.DENY.code, Permission.ALLOW.code) == (2, 3)
