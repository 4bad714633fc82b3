"""Topic names: what Kafka allows, in its own words."""

import pytest

from engine.common.errors import ErrorCode, KafkaError
from engine.common.topic_names import check_topic_name, colliding, has_collision_chars, invalid_topic_name


@pytest.mark.parametrize("name", ["a", "A-b_c.9", "x" * 249, "...", "__consumer_offsets"])
def test_names_that_are_allowed(name: str) -> None:
    assert invalid_topic_name(name) is None
    check_topic_name(name)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "the empty string is not allowed"),
        (".", "'.' is not allowed"),
        ("..", "'..' is not allowed"),
        ("x" * 250, f"the length of '{'x' * 250}' is longer than the max allowed length 249"),
        ("a b", "'a b' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"),
        ("é", "'é' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"),
        ("a\n", "'a\n' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"),
    ],
)
def test_names_that_are_not_allowed(name: str, reason: str) -> None:
    with pytest.raises(KafkaError) as refused:
        check_topic_name(name)
    assert refused.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert refused.value.message == f"Topic name is invalid: {reason}"


def test_dots_and_underscores_collide() -> None:
    assert colliding("a.b", ["a_b", "a-b", "a_b_", "c", "a.b"]) == ["a_b", "a.b"]
    assert has_collision_chars("a.b")
    assert has_collision_chars("a_b")
    assert not has_collision_chars("a-b")
