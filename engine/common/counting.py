"""How many of something there are, in words."""

from __future__ import annotations


def counted(count: int, noun: str) -> str:
    """Return a number of things: ``1 topic``, ``2 topics``."""
    return f"{count} {noun}{'' if count == 1 else 's'}"
