"""Who is told what is asked of whom (``--verbose``)."""

from __future__ import annotations

from collections.abc import Callable

Observer = Callable[[str], None]
"""Is told, in one line each, what is asked of whom."""


def tell_nobody(line: str) -> None:
    """The observer of a caller who does not want to know."""
