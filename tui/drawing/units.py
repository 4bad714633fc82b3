"""Figures as people read them: short, with a unit, and safe to show. Pure."""

from __future__ import annotations

from datetime import UTC, datetime

from engine.common.quantities import plural, rate_text, scaled_text, size_text, span_text

NOTHING = "—"
"""Shown in place of a figure that is not known."""

_COUNTS = ("", "k", "M", "G", "T")
_ESCAPES = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))} | {9: "\\t", 10: "\\n", 13: "\\r"}


def plain(text: str) -> str:
    """Return ``text`` on one line without control characters, so that data cannot write to the terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else _ESCAPES.get(ord(c), "\N{REPLACEMENT CHARACTER}") for c in text)


def count(value: float | None) -> str:
    """Return a whole number with its thousands separated: ``12 345``."""
    return NOTHING if value is None else f"{round(value):,}".replace(",", " ")


def counted(value: int, noun: str) -> str:
    """Return a number of things with its thousands separated: ``1 topic``, ``12 345 topics``."""
    return f"{count(value)} {plural(noun, value)}"


def at_least(text: str, *, is_least: bool = True) -> str:
    """Return the text of a figure, marked if it is only a lower bound: ``≥12 345``."""
    return f"≥{text}" if is_least and text != NOTHING else text


def short_count(value: float | None) -> str:
    """Return a number in at most five characters: ``950``, ``12.3k``, ``1.2M``."""
    return NOTHING if value is None else scaled_text(value, _COUNTS, "")


def size(value: float | None) -> str:
    """Return bytes as a size: ``1.2 GB``."""
    return NOTHING if value is None else size_text(value)


def rate(value: float | None) -> str:
    """Return a rate per second: ``1.2k/s``."""
    return NOTHING if value is None else f"{short_count(value)}/s"


def byte_rate(value: float | None) -> str:
    """Return bytes a second: ``3.4 MB/s``."""
    return NOTHING if value is None else rate_text(value)


def milliseconds(value: float | None) -> str:
    """Return a short time: ``0``, ``400 µs``, ``12.3 ms``, ``1.2 s``."""
    return NOTHING if value is None else scaled_text(value * 1000, ("µs", "ms", "s"), " ") if value else "0"


def percent(share: float | None) -> str:
    """Return a share of 1 in percent: ``12 %``."""
    return NOTHING if share is None else f"{share * 100:.0f} %"


def span(seconds: float | None) -> str:
    """Return a time span in its two largest units: ``2h 5m``, ``14s``, ``0.3s``."""
    if seconds is None:
        return NOTHING
    sign, left = ("-" if seconds < 0 else ""), abs(seconds)
    return sign + (f"{left:.1f}s" if left < 1 else span_text(int(left)))


def span_left(left_s: float | None, low_s: float | None, high_s: float | None) -> str:
    """Return the time left, with the range that the samples leave; ``high_s`` None: there is no upper end."""
    low, high = span(low_s), span(high_s)
    if left_s is None or low == high:
        return f"{span(left_s)} left"
    return f"at least {low} left" if high_s is None else f"{low} to {high} left"


def clock_time(at_ms: float | None) -> str:
    """Return an instant as time of the day in UTC, to the tenth of a second."""
    if at_ms is None:
        return NOTHING
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%H:%M:%S.%f")[:-5]


def date_time(at_ms: int) -> str:
    """Return an instant in UTC; a number that is not a date stays a number."""
    try:
        return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (OverflowError, ValueError, OSError):
        return f"time {at_ms}"


def ids(values: tuple[int, ...]) -> str:
    """Return broker ids with commas between them."""
    return ",".join(map(str, values)) or NOTHING
