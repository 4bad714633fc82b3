"""Runs a small Java source of ``tests/recording/java`` with the classes of Apache Kafka 3.9.1."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from apache_kafka import fetch_jars

from engine.local.java import find_java

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
