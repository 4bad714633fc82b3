"""How long open-ended tests run: briefly in ``make test``, longer in ``make soak``."""

from __future__ import annotations

import os

SOAK = int(os.environ.get("KLAMM_SOAK", "1"))
"""The factor for all of them."""


def rounds(variable: str, default: int) -> int:
    """Return how many rounds a test runs: the value of its own variable, or its default times ``KLAMM_SOAK``."""
    return int(os.environ.get(variable, 0)) or default * SOAK
