"""Requested changes of topics, checked before anything is sent."""

from __future__ import annotations

import pytest

from engine.admin.cluster.errors import BadRequest
from engine.admin.configs.values import Entity, EntityType, parse_additions
from engine.admin.topics.changes import (
    NewTopic,
    TopicAlteration,
    check_new_topic,
    parse_replica_assignment,
    parse_topic_configs,
)


def test_an_assignment_by_hand() -> None:
    assert parse_replica_assignment("0:1,1:2,2:0") == ((0, 1), (1, 2), (2, 0))
    assert parse_replica_assignment("5") == ((5,),)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0:0", "partition replica lists may not contain duplicate entries: 0"),
        ("0:1,2", r"partition 1 has different replication factor: \[2\]"),
        ("a:b", "not a list of broker ids: 'a:b'"),
        ("0:1,", "not a list of broker ids"),
    ],
)
def test_an_assignment_that_is_none(text: str, message: str) -> None:
    with pytest.raises(BadRequest, match=message):
        parse_replica_assignment(text)


@pytest.mark.parametrize(
    ("topic", "message"),
    [
        (NewTopic("a/b"), "one or more characters other than"),
        (NewTopic("."), "'.' is not allowed"),
        (NewTopic("x" * 250), "longer than the max allowed length 249"),
        (NewTopic("t", 0), "the partitions must be greater than 0"),
        (NewTopic("t", 1, 0), "between 1 and 32767"),
        (NewTopic("t", 1, 32768), "between 1 and 32767"),
        (NewTopic("t", 1, None, ((0,),)), "cannot be used with"),
    ],
)
def test_a_topic_that_cannot_be(topic: NewTopic, message: str) -> None:
    with pytest.raises(BadRequest, match=message):
        check_new_topic(topic)


def test_names_that_metrics_confuse_are_warned_of() -> None:
    assert NewTopic("a.b").warnings and NewTopic("a_b").warnings
    assert not NewTopic("a-b").warnings


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (TopicAlteration("t"), "nothing to alter"),
        (TopicAlteration("t", 3, ((0,), (1,))), "assigns 2 partitions"),
        (TopicAlteration("t", additions={"a": "1"}, deletions=("a",)), "both set and deleted: a"),
        (TopicAlteration("t", -1), "greater than 0"),
    ],
)
def test_an_alteration_that_makes_no_sense(wanted: TopicAlteration, message: str) -> None:
    with pytest.raises(BadRequest, match=message):
        wanted.check()


def test_the_assignment_of_new_partitions_is_what_lies_beyond_the_present_ones() -> None:
    wanted = TopicAlteration("t", 3, ((0, 1), (1, 2), (2, 0)))
    wanted.check()
    assert wanted.assignment_after(2) == ((2, 0),)
    assert TopicAlteration("t", 3).assignment_after(2) is None


def test_settings_with_commas_stand_in_brackets() -> None:
    assert parse_additions("retention.ms=1,cleanup.policy=[compact,delete],a=") == {
        "retention.ms": "1",
        "cleanup.policy": "compact,delete",
        "a": "",
    }
    for bad in ("retention.ms", "=1", "a=1,,b=2"):
        with pytest.raises(BadRequest, match="not KEY=VALUE"):
            parse_additions(bad)
    assert parse_topic_configs(["a=b=c"]) == {"a": "b=c"}
    with pytest.raises(BadRequest):
        parse_topic_configs(["a"])


@pytest.mark.parametrize(
    "entity",
    [
        Entity(EntityType.TOPIC, None),
        Entity(EntityType.BROKER, "x"),
        Entity(EntityType.BROKER_LOGGER, None),
    ],
)
def test_entities_that_cannot_be(entity: Entity) -> None:
    with pytest.raises(BadRequest):
        entity.check()
