"""Sizes and durations as people write them."""

import pytest

from engine.common.quantities import parse_duration_s, parse_size, size_text


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
    ("text", "seconds"), [("30", 30), ("30s", 30), ("250ms", 0.25), ("1.5m", 90), ("2h", 7200), ("1d", 86400)]
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration_s(text) == seconds


@pytest.mark.parametrize("text", ["", "h", "-1s", "1y", "1m30s"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="not a duration"):
        parse_duration_s(text)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1_048_575, "1.0 MiB"),
        (100 * 1024**3 - 1, "100 GiB"),
        (1536, "1.5 KiB"),
        (123 * 1024**2, "123 MiB"),
        (-2048, "-2.0 KiB"),
    ],
)
def test_sizes_as_klamm_shows_them(size: int, text: str) -> None:
    assert size_text(size) == text
