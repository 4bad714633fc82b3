"""Runs the real program as a user does: its own process, its own environment, nothing of the machine's."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cli.main import main
from engine.local.cluster import LocalCluster

ROOT = Path(__file__).parents[3]
PROGRAM = Path(sys.executable).parent / "klamm"
_KEPT = ("PATH", "HOME", "LANG", "JAVA_HOME", "SYSTEMROOT")


@dataclass(frozen=True)
class Ran:
    """The result of a run."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def error(self) -> Any:
        """The error that JSON mode prints as the last line of stderr."""
        return json.loads(self.err.splitlines()[-1])["error"]

    @property
    def rows(self) -> list[list[str]]:
        return [line.split("\t") for line in self.out.splitlines()]


def environment(folder: Path, **extra: str) -> dict[str, str]:
    """Return an environment that names no cluster. Profiles are looked for in ``folder``."""
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    own = {"XDG_CONFIG_HOME": str(folder / "config"), "XDG_STATE_HOME": str(folder / "state")}
    return kept | own | {"TERM": "xterm-256color"} | extra


def in_process(*arguments: str | Path, capture: pytest.CaptureFixture[str], stdin: str | bytes = b"") -> Ran:
    """Run the program's ``main`` in this process: as ``klamm``, without the cost of a process."""
    capture.readouterr()
    before, files = sys.stdin, _files_of_the_repository()
    with tempfile.TemporaryFile("w+b") as file, io.TextIOWrapper(file) as text:
        file.write(stdin.encode() if isinstance(stdin, str) else stdin)
        file.seek(0)
        sys.stdin = text
        try:
            code = main([str(argument) for argument in arguments])
        finally:
            sys.stdin = before
    said = capture.readouterr()
    left = _files_of_the_repository() - files
    assert not left, f"klamm {' '.join(map(str, arguments))} left {sorted(left)} in the repository: give it a folder"
    return Ran(code, said.out, said.err)


def _files_of_the_repository() -> set[str]:
    """Return what is in the root of the repository, but caches and files of tools, which begin with a dot, and what
    ``make demo`` and ``make site`` leave there, which other tests may run at the same time.
    """
    return {name for name in os.listdir(ROOT) if not name.startswith(".") and name != "build"}


def klamm(
    *arguments: str | Path,
    folder: Path,
    stdin: str | bytes = b"",
    env: Mapping[str, str] | None = None,
    timeout_s: float = 120,
) -> Ran:
    """Run ``klamm`` in ``folder`` and wait for its end."""
    ran = subprocess.run(
        [PROGRAM, *map(str, arguments)],
        cwd=folder,
        env=environment(folder, **(env or {})),
        input=stdin.encode() if isinstance(stdin, str) else stdin,
        capture_output=True,
        timeout=timeout_s,
        check=False,
    )
    return Ran(ran.returncode, ran.stdout.decode("utf-8", "replace"), ran.stderr.decode("utf-8", "replace"))


def properties_file(folder: Path, properties: Mapping[str, str]) -> Path:
    """Write a client's properties into a new file of the folder; dots in names may be given as underscores."""
    path = folder / f"client-{len(list(folder.glob('client-*')))}.properties"
    lines = (f"{name.replace('_', '.')}={value}\n" for name, value in properties.items())
    path.write_text("".join(lines), encoding="latin-1")
    return path


Program = Callable[..., Ran]


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which this process runs: empty, and no cluster is named in the environment or by a profile."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("KLAMM_") and name != "KLAMM_WRITE_GOLDEN"]:
        monkeypatch.delenv(name)
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    return tmp_path


@pytest.fixture
def alone(own_folder: Path, capsys: pytest.CaptureFixture[str]) -> Program:
    """Runs commands in an empty folder, with no cluster named."""
    return lambda *words: in_process(*words, capture=capsys)


@pytest.fixture
def commands(
    live_cluster: LocalCluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Program:
    """Runs commands against the cluster, in an empty folder."""
    monkeypatch.setenv("KLAMM_BOOTSTRAP_SERVER", live_cluster.bootstrap_servers)
    monkeypatch.chdir(tmp_path)
    return lambda *words: in_process(*words, capture=capsys)


@pytest.fixture
def program(commands: Program, topic_name: str) -> Program:
    """Runs commands against the cluster, which has a topic of two partitions."""
    assert commands("topics", "create", topic_name, "--partitions", "2", "--replication-factor", "1").code == 0
    return commands
