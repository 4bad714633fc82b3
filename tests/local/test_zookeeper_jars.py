"""Where ZooKeeper's jars come from, and the message when there are none. The jars and mvn are stand-ins here."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

from engine.common.errors import OperationError
from engine.local import zookeeper_jars
from engine.local.zookeeper_jars import FOLDER_VARIABLE, _Artifact, find_zookeeper_jars, zookeeper_classpath

GOOD = b"a jar"
BRINGS = "mkdir jars; printf '%s' '{text}' > jars/zookeeper-3.9.jar"


@pytest.fixture
def without_pyspark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zookeeper_jars.importlib.util, "find_spec", lambda name: None)


@pytest.fixture
def environ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A cache and a PATH of the test's own. One jar is wanted."""
    wanted = _Artifact("org.apache.zookeeper", "zookeeper", "3.9", hashlib.sha256(GOOD).hexdigest())
    monkeypatch.setattr(zookeeper_jars, "_ARTIFACTS", (wanted,))
    (tmp_path / "bin").mkdir()
    return {"XDG_CACHE_HOME": str(tmp_path / "cache"), "PATH": str(tmp_path / "bin")}


def make_mvn(tmp_path: Path, script: str) -> Path:
    """Write an ``mvn`` that runs a script and counts its calls in the returned file."""
    calls, program = tmp_path / "calls", tmp_path / "bin" / "mvn"
    program.write_text(f"#!/bin/sh\nPATH=/usr/bin:/bin\necho called >> {calls}\n{script}\n")
    program.chmod(0o755)
    return calls


def names(classpath: str) -> list[str]:
    return [Path(jar).name for jar in classpath.split(":")]


def test_pyspark_has_them_and_is_not_imported() -> None:
    jars = names(zookeeper_classpath())
    assert any(name.startswith("zookeeper-3.") for name in jars)
    assert any(name.startswith("zookeeper-jute-") for name in jars)
    code = (
        "import sys; from engine.local.zookeeper_jars import zookeeper_classpath as jars; jars();"
        "sys.exit('pyspark' in sys.modules)"
    )
    # Run in a separate process, because other tests import PySpark into this one.
    subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2], check=True, timeout=60)


def test_a_named_folder_wins(tmp_path: Path) -> None:
    for name in ("zookeeper-3.8.4.jar", "logback-1.jar", "README"):
        (tmp_path / name).touch()
    assert names(zookeeper_classpath({FOLDER_VARIABLE: str(tmp_path)})) == ["logback-1.jar", "zookeeper-3.8.4.jar"]


def test_a_named_folder_without_zookeeper_is_refused(tmp_path: Path) -> None:
    (tmp_path / "zookeeper-jute-3.9.jar").touch()
    with pytest.raises(OperationError, match=f"{FOLDER_VARIABLE} names .* which has no zookeeper"):
        zookeeper_classpath({FOLDER_VARIABLE: str(tmp_path)})


@pytest.mark.usefixtures("without_pyspark")
def test_mvn_fetches_them_once_and_says_so(
    tmp_path: Path, environ: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    calls = make_mvn(tmp_path, BRINGS.format(text=GOOD.decode()))
    assert find_zookeeper_jars(environ) == []
    assert not calls.exists(), "only a start fetches"
    assert names(zookeeper_classpath(environ)) == ["zookeeper-3.9.jar"]
    assert "fetching ZooKeeper" in caplog.text
    assert [jar.read_bytes() for jar in find_zookeeper_jars(environ)] == [GOOD]
    zookeeper_classpath(environ)
    assert calls.read_text().split() == ["called"]


@pytest.mark.usefixtures("without_pyspark")
@pytest.mark.parametrize(
    ("script", "expected"),
    [
        (BRINGS.format(text="another jar"), "is not the file it should be: its SHA-256 is"),
        ("mkdir jars", "mvn did not fetch zookeeper-3.9.jar"),
        ("echo '[ERROR] no route to host'; exit 1", r"could not fetch .*no route to host"),
        ("exit 3", "could not fetch .*exit code 3"),
    ],
)
def test_what_mvn_did_not_do_right_is_refused_and_not_kept(
    tmp_path: Path, environ: dict[str, str], script: str, expected: str
) -> None:
    make_mvn(tmp_path, script)
    with pytest.raises(OperationError, match=expected) as caught:
        zookeeper_classpath(environ)
    assert FOLDER_VARIABLE in (caught.value.hint or "")
    assert [path.name for path in (tmp_path / "cache" / "klamm").iterdir()] == ["zookeeper.lock"]


@pytest.mark.usefixtures("without_pyspark")
def test_without_pyspark_and_mvn_the_ways_to_get_them_are_named(environ: dict[str, str]) -> None:
    with pytest.raises(OperationError, match="PySpark, which carries them, is not installed, and neither is mvn") as e:
        find_zookeeper_jars(environ)
    for way in ("pip install 'klamm[spark]'", "apt-get install maven", FOLDER_VARIABLE):
        assert way in (e.value.hint or "")
