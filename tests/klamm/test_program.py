"""The public program, in a checkout. tests/package tries the installed wheel."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from klamm_program import PROGRAM, environment

from engine.common.version import VERSION


@pytest.mark.parametrize(
    "command", [(PROGRAM,), (sys.executable, "-m", "klamm"), (sys.executable, "-P", "-m", "klamm")]
)
def test_it_is_klamms_own_code_that_runs(command: tuple[str, ...], tmp_path: Path) -> None:
    for name in ("cli", "engine", "plans", "tui"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise ImportError('not ours')\n")
    ran = subprocess.run(
        [*command, "--version"],
        cwd=tmp_path,
        env=environment(tmp_path, PYTHONPATH=str(tmp_path)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, f"klamm {VERSION}\n", "")
