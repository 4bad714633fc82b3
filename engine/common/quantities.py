"""Sizes, rates and durations as people write and read them: ``500 GB``, ``3.0 MB/s``, ``2h 5m``. Pure.

There is one system of prefixes: k, M and G are powers of 1,000, typed or printed; ``Ki``, ``Mi``, ``Gi`` can be typed.
Users can type what klamm prints; it then means the same, to the precision of the printed digits.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_NUMBER = r"(\d+(?:\.\d+)?)"
_SIZE = re.compile(rf"{_NUMBER}\s*([kmgtp]?)(i?)b?", re.IGNORECASE)
_DURATION = re.compile(rf"{_NUMBER}\s*(µs|us|ms|s|m|min|h|d|w)?", re.IGNORECASE)
_SPAN = re.compile(r"(?=\d)(?:(\d+)d)?\s*+(?:(\d+)h)?\s*+(?:(\d+)m)?\s*+(?:(\d+)s)?", re.IGNORECASE)
_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")
_SPANS = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
_SECONDS = {
    None: 1.0,
    "µs": 1e-6,
    "us": 1e-6,
    "ms": 0.001,
    "s": 1.0,
    "m": 60.0,
    "min": 60.0,
    "h": 3600.0,
    "d": 86400.0,
    "w": 604800.0,
}


def parse_size(text: str) -> int:
    """Return the bytes that ``text`` means: ``k``, ``M``, ``G``, ``T`` count in thousands, ``Ki`` and so on in 1,024s.

    Raises:
        ValueError: it is not a size.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None or (match[3] and not match[2]):
        raise ValueError(f"not a size: {text!r}; write 500 GB, 50M or a number of bytes")
    unit: int = (1024 if match[3] else 1000) ** _POWERS[match[2].lower()]
    return round(float(match[1]) * unit)


def parse_rate(text: str) -> int:
    """Return the bytes a second that ``text`` means: a size, with or without ``/s``.

    Raises:
        ValueError: it is not a rate.
    """
    return parse_size(text.strip().removesuffix("/s"))


def parse_duration_s(text: str) -> float:
    """Return the seconds that ``text`` means: one figure, or a span such as ``2h 5m``, the largest unit first.

    Raises:
        ValueError: it is not a duration.
    """
    if (span := _SPAN.fullmatch(text.strip())) is not None:
        return float(sum(int(amount or 0) * length for amount, (_, length) in zip(span.groups(), _SPANS, strict=True)))
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"not a duration: {text!r}; write 30s, 5m, 2h or a number of seconds")
    return float(match[1]) * _SECONDS[match[2].lower() if match[2] else None]


def counted(count: int, noun: str) -> str:
    """Return a count with its noun: ``1 topic``, ``3 topics``."""
    return f"{count} {plural(noun, count)}"


def plural(noun: str, count: float) -> str:
    """Return the noun for that many: ``topic``, ``topics``, ``query``, ``queries``."""
    many = f"{noun[:-1]}ies" if noun.endswith("ry") else f"{noun}s"
    return noun if count == 1 else many


def size_text(size_bytes: float) -> str:
    """Return a size as klamm always shows it: ``1.2 GB``."""
    return scaled_text(size_bytes, _UNITS, " ")


def exact_size_text(size_bytes: int) -> str:
    """Return a size in 1,024s if it is a whole number of them, as many of Kafka's settings are: ``1 GiB``."""
    if not size_bytes or size_bytes % 1024:
        return size_text(size_bytes)
    power = 0
    while size_bytes % 1024 == 0 and power < 5:
        size_bytes, power = size_bytes // 1024, power + 1
    return f"{size_bytes} {'KMGTP'[power - 1]}iB"


def rate_text(bytes_per_s: float) -> str:
    """Return a rate in the units of sizes: ``47.7 MB/s``."""
    return f"{size_text(bytes_per_s)}/s"


def span_text(seconds: int) -> str:
    """Return a span in its two largest units: ``7d``, ``2h 5m``, ``14s``; nothing for none."""
    parts = []
    for unit, length in _SPANS:
        amount, seconds = divmod(seconds, length)
        if amount:
            parts.append(f"{amount}{unit}")
    return " ".join(parts[:2])


def scaled_text(value: float, units: Sequence[str], gap: str) -> str:
    """Return a figure in the largest unit that it fills, each 1,000 of the one before: ``12.3k``."""
    size, power = float(abs(value)), 0
    # A value that would print as one whole next unit becomes that unit.
    while size >= 999.5 and power < len(units) - 1:
        size, power = size / 1000, power + 1
    digits = 0 if power == 0 or size >= 99.95 else 1
    sign = "-" if value < 0 else ""
    return f"{sign}{size:.{digits}f}{gap if units[power] else ''}{units[power]}"
