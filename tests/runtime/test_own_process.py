"""A process of klamm's own runs klamm's own code, wherever it starts and whatever else has the same name."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import engine
from engine.runtime.own_process import module_command

CODE = str(Path(engine.__file__).parents[1])


def run(module: str, *arguments: str, folder: Path, path: str = "") -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "PYTHONPATH": path}
    return subprocess.run(
        [*module_command(module), *arguments], cwd=folder, env=environ, capture_output=True, text=True, check=False
    )


def test_an_engine_of_the_current_folder_or_of_the_path_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "engine").mkdir()
    (tmp_path / "engine" / "__init__.py").write_text("raise ImportError('not ours')\n")
    ran = run("engine.broker.server", "--help", folder=tmp_path, path=f":{tmp_path}")
    assert (ran.returncode, "server.properties" in ran.stdout) == (0, True), ran.stderr


def test_klamms_code_comes_first_on_the_path_and_the_file_itself_adds_nothing(tmp_path: Path) -> None:
    # The standard library's module prints the path that it runs with.
    listed = [line.strip(" ',") for line in run("site", folder=tmp_path).stdout.splitlines() if line.startswith("    ")]
    assert listed[0] == CODE
    assert not [entry for entry in listed if "runtime" in entry or entry in ("", str(tmp_path))]


def test_arguments_and_exit_code_are_those_of_the_module(tmp_path: Path) -> None:
    ran = run("engine.broker.server", "absent.properties", folder=tmp_path)
    assert (ran.returncode, ran.stderr) == (2, "error: cannot read absent.properties: No such file or directory\n")
