"""What a machine lacks, and the exit code of the command that reports it."""

from __future__ import annotations

from pathlib import Path

import pytest
from klamm_program import in_process

from cli.exit_codes import ExitCode
from engine.common.errors import OperationError
from engine.local.addresses import own_loopback_address
from engine.local.doctor import Check, CheckStatus, examine
from engine.local.java import Java


def missing() -> str:
    raise OperationError("there is none", hint="get one")


def checks(folder: Path) -> dict[str, Check]:
    return {check.name: check for check in examine(folder)}


def test_what_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.local.doctor.find_java", lambda: Java(Path("/j/bin/java"), 17, "JAVA_HOME"))
    jars = [Path("/jars/slf4j-2.jar"), Path("/jars/zookeeper-3.9.jar")]
    monkeypatch.setattr("engine.local.doctor.find_zookeeper_jars", lambda: jars)
    rows = checks(tmp_path / "not" / "yet")
    needed_for = "local up, zookeeper start"
    assert rows["java"] == Check("java", CheckStatus.OK, "17 (/j/bin/java, from JAVA_HOME)", needed_for)
    assert rows["zookeeper jars"] == Check("zookeeper jars", CheckStatus.OK, "zookeeper-3.9.jar (/jars)", needed_for)
    assert rows["python"].status is CheckStatus.OK
    assert str(tmp_path) in rows["disk"].found
    assert all(check.how_to_get is None for check in rows.values() if check.status is CheckStatus.OK)
    assert all(check.how_to_get for check in rows.values() if check.status is not CheckStatus.OK)


def test_what_is_missing_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("engine.local.doctor.find_java", missing)
    monkeypatch.setattr("engine.local.doctor.find_zookeeper_jars", missing)
    rows = checks(tmp_path)
    for name in ("java", "zookeeper jars"):
        facts = (rows[name].status, rows[name].found, rows[name].how_to_get)
        assert facts == (CheckStatus.MISSING, "there is none", "get one")
    assert rows["kcat"].status is CheckStatus.OPTIONAL
    assert rows["kcat"].how_to_get == "apt install kcat"


def test_jars_that_mvn_will_fetch_are_not_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.local.doctor.find_zookeeper_jars", list)
    check = checks(tmp_path)["zookeeper jars"]
    assert (check.status, "mvn fetches them" in check.found) == (CheckStatus.OK, True)


def test_the_exit_code(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert in_process("doctor", capture=capsys).code == 0
    monkeypatch.setattr("engine.local.doctor.find_java", missing)
    ran = in_process("doctor", "-o", "json", capture=capsys)
    assert ran.code == 1
    assert [check["status"] for check in ran.json if check["name"] == "java"] == ["missing"]


def test_libraries_that_some_things_need_are_named_with_their_extra(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    rows = checks(tmp_path)
    for package, extra in (("highspy", "plan"), ("pyarrow", "spark"), ("pyspark", "spark")):
        assert rows[package].status is CheckStatus.OPTIONAL
        assert rows[package].how_to_get == f"pip install 'klamm[{extra}]'"


def test_a_walk_to_a_cluster_ends_with_the_code_of_the_step_that_failed(capsys: pytest.CaptureFixture[str]) -> None:
    where = f"{own_loopback_address()}:9092"
    ran = in_process("doctor", "-b", where, "-o", "json", capture=capsys)
    assert ran.code == ExitCode.UNREACHABLE
    assert [(step["name"], step["status"], step["needed_for"]) for step in ran.json] == [
        ("broker name", "ok", where),
        ("broker port", "failed", where),
    ]
    assert ran.json[1]["how_to_get"] == "is it running there? check the address, or start one here: klamm local up"
    assert "is it running there?" in in_process("doctor", "-b", where, "-o", "table", capture=capsys).out
