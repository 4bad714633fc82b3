"""Everything in ``fixtures`` says where it comes from, and what was recorded names a recorder that exists."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
FIXTURES = ROOT / "fixtures"
MADE_HERE = {"cli", "dashboard", "plans", "snapshots"}
"""Made by klamm's own tests or by hand, not recorded."""
COMMAND = re.compile(r"`python (tests/recording/\w+\.py)(?: ([\w-]+))?`")


def commands() -> dict[str, list[tuple[str, str]]]:
    """Return, for each folder, the recorders that it names, with what they are asked to record."""
    folders = sorted(path for path in FIXTURES.iterdir() if path.is_dir())
    return {folder.name: COMMAND.findall((folder / "SOURCE.md").read_text("utf-8")) for folder in folders}


def test_every_recorded_folder_names_its_recorder() -> None:
    without = {folder for folder, recorder in commands().items() if not recorder}
    assert without == MADE_HERE


def test_the_recorders_exist_and_know_these_names() -> None:
    asked = {folder: recorder for folder, recorder in commands().items() if recorder}
    for folder, ((script, name),) in asked.items():
        assert (ROOT / script).is_file(), folder
        assert name == ("" if folder == "spark" else folder)
    words = [sys.executable, ROOT / "tests" / "recording" / "record_kafka.py", "--help"]
    wide = {**os.environ, "COLUMNS": "1000"}
    ran = subprocess.run(words, env=wide, capture_output=True, text=True, timeout=60, check=True)
    (known,) = re.findall(r"^  NAME +(.+)$", ran.stdout, re.MULTILINE)
    assert set(known.split()) == set(asked) - {"spark"}
