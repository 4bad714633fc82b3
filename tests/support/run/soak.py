"""How long open-ended tests run: briefly in ``make test``, longer in ``make soak``."""

from __future__ import annotations

import os

SOAK = int(os.environ.get("KLAMM_SOAK", "1"))
"""The factor for all of them."""


def rounds(variable: str, default: int, *, soaked: int = 0) -> int:
    """Return how many rounds a test runs: the value of its own variable, or its default times ``KLAMM_SOAK``.

    ``soaked`` replaces the default in a soak, where a round costs so much that ``make test`` runs only a few.
    """
    return int(os.environ.get(variable, 0)) or (soaked or default if SOAK > 1 else default) * SOAK
