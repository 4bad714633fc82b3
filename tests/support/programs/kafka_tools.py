"""Kafka's command-line tools in one JVM, one after the other: most of a tool's CPU goes into the start of its own.

Some need one all the same, and ``run_tool`` of ``apache_kafka``: those that read input, have settings of Java, or leave
something behind in their classes, as the console consumer does.

``run_java`` runs a source of our own with Kafka's classes.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from pathlib import Path
from threading import Lock, Timer
from typing import Any

from apache_kafka import KAFKA_VERSION, SHORT_LIVED, ClassArchive, fetch_jars

from engine.local.java import find_java

PATIENCE_S = 120.0

_one_at_a_time = Lock()
_started: list[subprocess.Popen[bytes]] = []
"""The JVMs of this process, the running one last. Each ends with its input, so at the latest with this process."""


def run_tool(main_class: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a tool of Kafka and return its output."""
    with _one_at_a_time:
        process = _running()
        given, told = process.stdin, process.stdout
        assert given is not None and told is not None
        end = Timer(PATIENCE_S, process.kill)
        end.start()
        try:
            given.write("\t".join((main_class, *arguments)).encode() + b"\n")
            given.flush()
            head = told.readline().split()
            if not head:
                raise RuntimeError(f"Kafka's tool hung or took the JVM along: {main_class} {' '.join(arguments)}")
            code, *sizes = map(int, head)
            out, errors = (told.read(size).decode() for size in sizes)
        finally:
            end.cancel()
    return subprocess.CompletedProcess([main_class, *arguments], code, out, errors)


def _running() -> subprocess.Popen[bytes]:
    if not _started or _started[-1].poll() is not None:
        classes = ["-cp", f"{fetch_jars()}/*", *ClassArchive(KAFKA_VERSION).to_map()]
        java = [find_java().program, "-Xmx256m", *SHORT_LIVED, *classes, SOURCES / "Tools.java"]
        _started.append(subprocess.Popen(java, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
    return _started[-1]


SOURCES = Path(__file__).parents[2] / "recording" / "java"


def run_java(source: str, *arguments: str, rows: Iterable[dict[str, Any]] = ()) -> list[dict[str, Any]]:
    """Compile and run a source; give it the rows as JSON, one a line, and return those that it prints."""
    java = find_java(user="the recorder")
    if not java.has_module("jdk.compiler"):
        raise SystemExit(f"error: {java.program} has no compiler\nhint: install a JDK and set JAVA_HOME")
    said = subprocess.run(
        [java.program, "-Xmx512m", "-cp", f"{fetch_jars()}/*", SOURCES / f"{source}.java", *arguments],
        input="".join(json.dumps(row) + "\n" for row in rows),
        stdout=subprocess.PIPE,
        encoding="utf-8",
        timeout=600,
        check=True,
    ).stdout
    # Kafka may log to stdout, too.
    return [json.loads(line) for line in said.split("\n") if line.startswith("{")]
