"""Which Java a worker starts for Hadoop's file systems."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from spark_sessions import SPARK_HOME

from engine.local.java import find_java
from engine.spark.hadoop_jvm import java_of_worker


@pytest.mark.parametrize("by", ["word", "variable"])
def test_that_of_its_executor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str) -> None:
    """YARN names the classes in the environment, the others in the command."""
    java, classes = str(find_java().program.resolve()), f"{SPARK_HOME}/jars/*"
    environment = {key: value for key, value in os.environ.items() if key != "CLASSPATH"}
    opened = "--add-opens=java.base/java.lang=ALL-UNNAMED"
    words = ["-cp", classes] if by == "word" else []
    if by == "variable":
        environment["CLASSPATH"] = classes
    command = [java, *words, opened, "-Xmx64m", "py4j.GatewayServer", "--die-on-broken-pipe", "0"]
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None and process.stdin is not None
        assert process.stdout.readline(), "its port: it runs"
        monkeypatch.setattr(os, "getppid", lambda: process.pid)
        of_worker = java_of_worker()
        process.stdin.close()
        process.wait(60)
    assert (of_worker.program, of_worker.words, of_worker.class_path, of_worker.folder) == (
        java,
        (opened,),
        classes,
        str(tmp_path),
    )


def test_spark_s_own_where_other_processes_cannot_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getppid", lambda: 1)
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.setenv("JAVA_HOME", "/opt/java")
    java = java_of_worker()
    assert (java.program, java.class_path) == ("/opt/java/bin/java", f"{SPARK_HOME}/jars/*")
    monkeypatch.delenv("JAVA_HOME")
    assert java_of_worker().program == "java"
