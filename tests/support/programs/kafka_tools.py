"""Kafka's command-line tools in one JVM, one after the other: most of a tool's CPU goes into the start of its own.

``run_tool`` of ``apache_kafka`` starts one for a tool. ``run_java`` runs a source of our own with Kafka's classes.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from threading import Lock, Timer
from typing import Any

from apache_kafka import KAFKA_VERSION, compiled, short_lived_java

PATIENCE_S = 120.0

_one_at_a_time = Lock()
_running: dict[str, subprocess.Popen[bytes]] = {}
"""By release, the JVM of this process. It ends with its input, so at the latest with this process."""


def run_tool(
    main_class: str, *arguments: str, text_input: str = "", version: str = KAFKA_VERSION
) -> subprocess.CompletedProcess[str]:
    """Run a tool of Kafka and return its output."""
    typed = text_input.encode()
    with _one_at_a_time:
        process = _jvm(version)
        given, pipes = process.stdin, process.stdout
        assert given is not None and pipes is not None
        end = Timer(PATIENCE_S, process.kill)
        end.start()
        try:
            given.write("\t".join((f"{len(typed)}", main_class, *arguments)).encode() + b"\n" + typed)
            given.flush()
            head = pipes.readline().split()
            if not head:
                raise RuntimeError(f"Kafka's tool hung or took the JVM along: {main_class} {' '.join(arguments)}")
            code, *sizes = map(int, head)
            out, errors = (pipes.read(size).decode() for size in sizes)
        finally:
            end.cancel()
    return subprocess.CompletedProcess([main_class, *arguments], code, out, errors)


def _jvm(version: str) -> subprocess.Popen[bytes]:
    if version not in _running or _running[version].poll() is not None:
        java = short_lived_java("-Xmx256m", version=version, more_classes=[compiled("Tools")])
        _running[version] = subprocess.Popen([*java, "Tools"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    return _running[version]


def mbeans(address: str, pattern: str) -> dict[str, dict[str, Any]]:
    """Return what a process registers with JMX under such names: by name, the values of its attributes."""
    ran = run_tool("MBeans", address, pattern)
    assert ran.returncode == 0, ran.stderr
    rows = map(json.loads, ran.stdout.splitlines())
    return {row["mbean"]: row["attributes"] for row in rows}


def run_java(source: str, *arguments: str, rows: Iterable[dict[str, Any]] = ()) -> list[dict[str, Any]]:
    """Run a source; give it the rows as JSON, one a line, and return those that it prints."""
    said = subprocess.run(
        [*short_lived_java("-Xmx512m", more_classes=[compiled(source)]), source, *arguments],
        input="".join(json.dumps(row) + "\n" for row in rows),
        stdout=subprocess.PIPE,
        encoding="utf-8",
        timeout=600,
        check=True,
    ).stdout
    # Kafka may log to stdout, too.
    return [json.loads(line) for line in said.split("\n") if line.startswith("{")]
