"""Reading and writing values, compared with the results of Kafka's ConfigDef for the same texts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.common.errors import ConfigError
from engine.kafka.config.values import (
    ConfigType,
    GzipLevel,
    ListOf,
    NonEmpty,
    NonNull,
    OneOf,
    OneOfAnyCase,
    Password,
    ThrottledReplicas,
    Validator,
    Value,
    at_least,
    between,
    display_text,
    double_text,
    parse_value,
    value_text,
)

FIXTURES = Path(__file__).parents[3] / "fixtures" / "config"
VALUES = json.loads((FIXTURES / "kafka-3.9.1-values.json").read_text())
DOUBLES = json.loads((FIXTURES / "kafka-3.9.1-doubles.json").read_text())

# Java accepts every Unicode digit in a number, we accept only ASCII. Java overflows to infinity, as Python does.
ODD_TEXTS = {"١", "0x10"}


def parsed(text: str, type_: ConfigType) -> object:
    try:
        value = parse_value("the.key", text, type_)
    except ConfigError as error:
        assert error.key == "the.key"
        return f"error: {error}"
    return [*value] if isinstance(value, tuple) else value_text(value, type_)


def test_parses_as_kafka() -> None:
    ours, kafkas = {}, {}
    for case in VALUES:
        text, type_ = case["text"], ConfigType[case["type"]]
        name, parsed_value = f"{case['type']} {text!r}", parsed(text, type_)
        if "value" in case and text in ODD_TEXTS and type_ in (ConfigType.INT, ConfigType.SHORT, ConfigType.LONG):
            assert str(parsed_value).startswith("error: "), name
        else:
            ours[name], kafkas[name] = parsed_value, f"error: {case['error']}" if "error" in case else case["value"]
    assert ours == kafkas
    assert len(ours) > 300


@pytest.mark.parametrize(("hexadecimal", "text"), DOUBLES.items())
def test_doubles_are_written_as_java_writes_them(hexadecimal: str, text: str) -> None:
    assert double_text(float.fromhex(hexadecimal)) == text


@given(st.floats(allow_nan=False))
def test_doubles_read_back(value: float) -> None:
    assert parse_value("k", double_text(value), ConfigType.DOUBLE) == value


@given(st.integers(-(2**63), 2**63 - 1))
def test_longs_read_back(value: int) -> None:
    assert parse_value("k", value_text(value, ConfigType.LONG), ConfigType.LONG) == value


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        ("a" + " " * 500_000 + "b", ConfigType.LIST, ("a" + " " * 500_000 + "b",)),
        ("a" + " " * 500_000 + ",b", ConfigType.LIST, ("a", "b")),
        ("1" * 500_000 + "x", ConfigType.DOUBLE, None),
        ("1" * 500_000 + "x", ConfigType.LONG, None),
    ],
    ids=["blanks", "blanks before a comma", "digits of a double", "digits of a long"],
)
def test_a_long_value_is_soon_read(text: str, kind: ConfigType, expected: tuple[str, ...] | None) -> None:
    """A client that may change a topic's settings sends such values, and the event loop reads them."""
    if expected is None:
        with pytest.raises(ConfigError):
            parse_value("k", text, kind)
    else:
        assert parse_value("k", text, kind) == expected


def test_no_value_stays_none() -> None:
    assert parse_value("k", None, ConfigType.INT) is None
    assert value_text(None, ConfigType.INT) is None
    assert display_text(None) == "null"


def test_secrets_do_not_print() -> None:
    secret = parse_value("k", "geheim", ConfigType.PASSWORD)
    assert isinstance(secret, Password)
    assert secret.secret == "geheim"
    assert "geheim" not in repr(secret) + str(secret) + f"{secret}" + display_text(secret)
    assert secret == Password("geheim") != Password("other")


@pytest.mark.parametrize(
    ("validator", "value", "message"),
    [
        (at_least(14), -5, "Invalid value -5 for configuration k: Value must be at least 14"),
        (at_least(1), None, "Invalid value null for configuration k: Value must be non-null"),
        (between(0, 1), 1.5, "Invalid value 1.5 for configuration k: Value must be no more than 1"),
        (between(0, 0.5), 0.75, "Invalid value 0.75 for configuration k: Value must be no more than 0.5"),
        (OneOf(("a", "b")), "c", "Invalid value c for configuration k: String must be one of: a, b"),
        (OneOf(("a",)), None, "Invalid value null for configuration k: String must be one of: a"),
        (
            OneOfAnyCase(("A", "b")),
            "c",
            "Invalid value c for configuration k: String must be one of (case insensitive): A, b",
        ),
        (ListOf(("a", "b")), ("a", "x"), "Invalid value x for configuration k: String must be one of: a, b"),
        (NonNull(), None, "Invalid value null for configuration k: entry must be non null"),
        (NonEmpty(), "", "Invalid value  for configuration k: String must be non-empty"),
        (GzipLevel(), 0, "Invalid value 0 for configuration k: Value must be between 1 and 9 or equal to -1"),
        (
            ThrottledReplicas(),
            ("0:1", "x"),
            "Invalid value [0:1, x] for configuration k: k must be the literal '*' or a list of replicas in the "
            "following format: [partitionId]:[brokerId],[partitionId]:[brokerId],...",
        ),
    ],
)
def test_refuses_in_kafkas_words(validator: Validator, value: Value, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        validator.ensure_valid("k", value)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("validator", "value"),
    [
        (at_least(14), 14),
        (between(1, 17), 17),
        (OneOf(("a",)), "a"),
        (OneOfAnyCase(("DISABLED",)), "disabled"),
        (ListOf(("a", "b")), ()),
        (NonEmpty(), None),
        (GzipLevel(), -1),
        (ThrottledReplicas(), ("*",)),
        (ThrottledReplicas(), ()),
        (ThrottledReplicas(), ("0:1", "12:3")),
    ],
)
def test_accepts_what_is_allowed(validator: Validator, value: Value) -> None:
    validator.ensure_valid("k", value)
