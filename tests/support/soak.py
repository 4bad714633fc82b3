"""How long tests go on that could go on for ever: briefly in ``make test``, longer in ``make soak``."""

from __future__ import annotations

import os

SOAK = int(os.environ.get("KLAMM_SOAK", "1"))
"""By how much all of them are multiplied."""


def rounds(variable: str, default: int) -> int:
    """Return how many rounds a test takes: what a variable of its own says, else its default times ``KLAMM_SOAK``."""
    return int(os.environ.get(variable, 0)) or default * SOAK
