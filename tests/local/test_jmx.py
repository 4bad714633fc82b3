"""The program that reads JMX is compiled once, where there is a place for it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from engine.admin.brokers.metrics import Teller
from engine.admin.brokers.metrics_sources import Source
from engine.local import jmx
from engine.local.java import Java, find_java
from engine.local.jmx import read_jmx

NOBODY = {7: Source(Teller.JMX, "127.0.0.1", 1)}
"""Nothing listens at this port."""


def read() -> str:
    values = asyncio.run(read_jmx(NOBODY, ["kafka*:*"], 10.0, 60.0))[7]
    assert isinstance(values, str)
    return values


def test_its_classes_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert "refused" in read()
    (kept,) = (tmp_path / "klamm").iterdir()
    assert (kept.name[:11], (kept / "JmxReader.class").is_file()) == ("jmx-reader-", True)
    monkeypatch.setattr(jmx, "_compile", lambda *_: pytest.fail("it is compiled already"))
    monkeypatch.setattr(Java, "has_module", lambda *_: False)
    assert "refused" in read()


def test_a_cache_that_was_cleaned_is_filled_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert "refused" in read()
    (kept,) = (tmp_path / "klamm").iterdir()
    for file in kept.iterdir():
        file.unlink()
    assert "refused" in read()
    assert (kept / "JmxReader.class").is_file()


def test_without_a_compiler_it_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(Java, "has_module", lambda *_: False)
    assert read() == f"{find_java().program} has no compiler, which reading JMX needs: set JAVA_HOME"


@pytest.mark.parametrize("place", ["file", "relative"])
def test_without_a_place_for_them_it_reads_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file") if place == "file" else place)
    assert "refused" in read()
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_java_that_takes_too_long_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert asyncio.run(read_jmx(NOBODY, ["kafka*:*"], 10.0, 0.01))[7] == "Java did not end within 0.01 s"
