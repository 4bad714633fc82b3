"""Where modules are that tests import by their plain name, for programs that run without pytest."""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = [
    str(ROOT / folder)
    for folder in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]["pythonpath"]
]
