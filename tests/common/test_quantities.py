"""Sizes and durations as people write them."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.common.quantities import (
    exact_size_text,
    parse_duration_s,
    parse_rate,
    parse_size,
    rate_text,
    size_text,
    span_text,
)


@pytest.mark.parametrize(
    ("text", "size"),
    [("0", 0), ("1500", 1500), ("50M", 50_000_000), ("2 TB", 2 * 10**12), ("500 GB", 5 * 10**11), ("1.5k", 1500),
     ("1KiB", 1024), ("2Mi", 2 * 1024**2), (" 10 b ", 10)],
)  # fmt: skip
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "M", "-1", "1x", "1i", "1 0", "1e3"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ValueError, match="not a size"):
        parse_size(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 30),
        ("30s", 30),
        ("250ms", 0.25),
        ("1.5m", 90),
        ("2h", 7200),
        ("1d", 86400),
        ("1m 30s", 90),
        ("1m30s", 90),
        ("2D 5M", 2 * 86400 + 300),
        ("500 µs", 0.0005),
        ("12.3 ms", 0.0123),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration_s(text) == seconds


@pytest.mark.parametrize("text", ["", "h", "-1s", "1y", "30s 1m", "1m 1m", "1.5h 3m", "1h 5"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="not a duration"):
        parse_duration_s(text)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (999_499, "999 kB"),
        (999_500, "1.0 MB"),
        (100 * 10**9 - 1, "100 GB"),
        (1536, "1.5 kB"),
        (123_400_000, "123 MB"),
        (-2048, "-2.0 kB"),
    ],
)
def test_sizes_as_klamm_shows_them(size: int, text: str) -> None:
    assert size_text(size) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1024, "1 KiB"),
        (1 << 30, "1 GiB"),
        (3 << 19, "1536 KiB"),
        (1 << 60, "1024 PiB"),
        (50_000_000, "50.0 MB"),
    ],
)
def test_sizes_that_are_whole_in_1024s_can_be_shown_as_such(size: int, text: str) -> None:
    assert exact_size_text(size) == text
    assert parse_size(text) == size


@given(st.integers(0, 10**17))
def test_a_size_or_a_rate_that_is_shown_can_be_typed_and_means_the_same(size: int) -> None:
    """To the digits that are printed: half of the last one may be lost."""
    text = size_text(size)
    number, unit = text.split(" ")
    last_digit = Decimal(10) ** int(Decimal(number).as_tuple().exponent) * parse_size(f"1 {unit}")
    assert abs(parse_size(text) - size) <= last_digit / 2
    assert size_text(parse_size(text)) == text, "and prints the same again"
    assert parse_rate(rate_text(size)) == parse_size(text)


@given(st.integers(1, 10**10))
def test_a_span_that_is_shown_can_be_typed_and_means_the_same(seconds: int) -> None:
    text = span_text(seconds)
    lengths = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
    left = seconds - parse_duration_s(text)
    assert 0 <= left < lengths[text[-1]], "less than one of the last unit is left out"
    assert span_text(round(parse_duration_s(text))) == text
