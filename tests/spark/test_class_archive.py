"""The archive of Spark's classes: another Java or other jars have their own, and Java runs without one."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import class_archive
import pytest
from class_archive import SHORT_LIVED, archive_of, short_lived_with_archive

from engine.local.java import find_java


def test_an_archive_belongs_to_a_java_and_its_jars(tmp_path: Path) -> None:
    java, jars = tmp_path / "java", [tmp_path / "a.jar", tmp_path / "b.jar"]
    for file in (java, *jars):
        file.write_text("1")
        os.utime(file, (1, 1))
    archive = archive_of(java, jars)
    assert archive_of(java, reversed(jars)) == archive
    assert archive_of(java, jars[:1]) != archive
    for file in (java, *jars):
        os.utime(file, (2, 2))
        assert archive_of(java, jars) != archive, "made anew at the same time"
        file.write_text("12")
        os.utime(file, (1, 1))
        assert archive_of(java, jars) != archive, "another size"
        file.write_text("1")
        os.utime(file, (1, 1))


def test_an_archive_that_does_not_fit_is_no_news(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tmp_path / "spark.jsa"
    monkeypatch.setattr(class_archive, "_archive", lambda: archive)
    assert short_lived_with_archive() == SHORT_LIVED
    archive.write_bytes(b"no archive" * 1000)
    words = short_lived_with_archive().split()
    assert f"-XX:SharedArchiveFile={archive}" in words
    ran = subprocess.run([find_java().program, *words, "--version"], capture_output=True, text=True, check=True)
    assert (ran.stderr, "[" in ran.stdout) == ("", False)
