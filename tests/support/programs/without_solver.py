"""Pretends that the extra ``plan`` is not installed."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

import plans

EXTRA = re.compile(r"^import (highspy|numpy)", re.MULTILINE)
MODULES = sorted(
    f"plans.{path.stem}"
    for path in Path(plans.__file__).parent.glob("*.py")
    if EXTRA.search(path.read_text(encoding="utf-8"))
)
"""Those that cannot be imported without the extra."""


def hide_solver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no import of the solver succeed until the test ends."""
    for name in MODULES:
        monkeypatch.setitem(sys.modules, name, None)
