"""What is missing on a machine, and the exit code of the command that says so."""

from __future__ import annotations

from pathlib import Path

import pytest
from klamm_program import in_process

from engine.common.errors import OperationError
from engine.local.doctor import Check, CheckStatus, Probes, examine


def missing() -> str:
    raise OperationError("there is none", hint="get one")


def checks(probes: Probes, folder: Path) -> dict[str, Check]:
    return {check.name: check for check in examine(probes, folder)}


def test_what_is_there(tmp_path: Path) -> None:
    found = checks(Probes(lambda: "17", lambda: "zookeeper.jar"), tmp_path / "not" / "yet")
    assert found["java"] == Check("java", CheckStatus.OK, "17", "local up, zookeeper start")
    assert found["python"].status is CheckStatus.OK
    assert str(tmp_path) in found["disk"].found
    assert all(check.how_to_get is None for check in found.values() if check.status is CheckStatus.OK)
    assert all(check.how_to_get for check in found.values() if check.status is not CheckStatus.OK)


def test_what_is_missing_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = checks(Probes(missing, missing), tmp_path)
    assert (found["java"].status, found["java"].found, found["java"].how_to_get) == (
        CheckStatus.MISSING,
        "there is none",
        "get one",
    )
    assert found["kcat"].status is CheckStatus.OPTIONAL
    assert found["kcat"].how_to_get == "apt install kcat"


def test_the_exit_code(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert in_process("doctor", capture=capsys).code == 0
    monkeypatch.setattr("engine.local.java.find_java", missing)
    ran = in_process("doctor", "-o", "json", capture=capsys)
    assert ran.code == 1
    assert [check["status"] for check in ran.json if check["name"] == "java"] == ["missing"]
