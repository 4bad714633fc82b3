"""The board of ``klamm exporter --print grafana`` against the types that Grafana publishes for dashboards."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from apache_kafka import fetched_once, jars_folder
from klamm_program import in_process
from required_tools import require

PACKAGES = ("@grafana/schema@13.2.3", "typescript@5.9.3")
SETTINGS = {
    "compilerOptions": {
        "strict": True, "noEmit": True, "skipLibCheck": True, "module": "esnext", "moduleResolution": "bundler",
        "target": "es2022", "types": [],
    },
    "files": ["board.ts"],
}  # fmt: skip


def packages() -> Path:
    def fetch(work: Path) -> Path:
        install = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(work), *PACKAGES]
        subprocess.run(install, check=True, capture_output=True, timeout=300)
        return work / "node_modules"

    return fetched_once(jars_folder().with_name("grafana-schema-13.2.3"), fetch)


def complaints(folder: Path, board: object) -> list[str]:
    """Return what the compiler says of a board: missing, misspelt and mistyped keys."""
    text = f"import type {{ Dashboard }} from '@grafana/schema';\nexport const board: Dashboard = {json.dumps(board)};"
    (folder / "board.ts").write_text(text)
    (folder / "tsconfig.json").write_text(json.dumps(SETTINGS))
    ran = subprocess.run(
        ["node", folder / "node_modules/typescript/bin/tsc", "-p", folder], capture_output=True, text=True, timeout=120
    )
    said = ran.stdout.splitlines()
    assert bool(said) == bool(ran.returncode), ran.stderr
    return said


def test_a_board_is_one_of_grafanas(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    require("npm")
    (tmp_path / "node_modules").symlink_to(packages())
    ran = in_process("exporter", "--print", "grafana", capture=capsys)
    board = json.loads(ran.out)
    assert complaints(tmp_path, board) == []
    # The types do refuse something.
    board["panels"][1]["gridPosition"] = board["panels"][1].pop("gridPos")
    board["refresh"] = 30
    assert len(complaints(tmp_path, board)) == 2
