"""What a person sees of a running job, on a terminal and in a pipe: klamm's messages, and none of Spark's."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from klamm_program import PROGRAM, environment
from spark_sessions import SETTINGS
from wire_client import create_topic

from engine.local.cluster import LocalCluster

pytestmark = pytest.mark.timeout(900)

WAITS = r"spark: starting, \d+ s"
PROGRESS = r"done \d+ of \d+ tasks .*\d+/s(, \d+ s left)?"
CLEARED = "\r\x1b[K"
"""Erases a progress line on a terminal."""
CONF = [word for name, value in SETTINGS for word in ("--conf", f"{name}={value}")]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "state-change.log"
    path.write_text("[2026-11-21 06:00:00,000] INFO [Broker id=1] x (logger)\n")
    return path


def on_terminal(words: Sequence[str | Path], folder: Path) -> tuple[bytes, str]:
    """Run the program with its stderr on a terminal; return its stdout and what the terminal got."""
    ours, theirs = pty.openpty()
    written: list[bytes] = []

    def read() -> None:
        try:
            while chunk := os.read(ours, 4096):
                written.append(chunk)
        except OSError:
            """Linux raises EIO if the other side of a terminal is closed."""

    reader = threading.Thread(target=read)
    reader.start()
    try:
        ran = subprocess.run(
            [PROGRAM, *words], cwd=folder, env=environment(folder), stdout=subprocess.PIPE, stderr=theirs, check=True
        )
    finally:
        os.close(theirs)
        reader.join(60)
        os.close(ours)
    return ran.stdout, b"".join(written).decode()


def in_pipe(words: Sequence[str | Path], folder: Path) -> tuple[str, list[str]]:
    """Run the program; return its stdout, and the lines on stderr that are not progress."""
    ran = subprocess.run([PROGRAM, *words], cwd=folder, env=environment(folder), capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout, [line for line in ran.stderr.splitlines() if not re.fullmatch(f"{WAITS}|{PROGRESS}", line)]


def test_a_terminal_shows_how_far_it_is(log: Path, tmp_path: Path) -> None:
    words = ["spark", "merge", log.name, "--out", "out", "--master", "local[1]", *CONF]
    out, err = on_terminal(words, tmp_path)
    before, *shown, last = err.split(CLEARED)
    assert out.startswith(b"out/part-00000.log\t")
    assert (before, last) == ("", "merged 67 bytes\r\n")
    assert re.fullmatch(PROGRESS, next(line for line in reversed(shown) if line)), "the task waits for Python to start"
    assert re.fullmatch(WAITS, shown[0]), "Spark takes seconds to start"
    assert all(re.fullmatch(f"{WAITS}|{PROGRESS}|", line) for line in shown), shown


def test_a_pipe_gets_klamms_words_alone(log: Path, live_cluster: LocalCluster, topic_name: str, tmp_path: Path) -> None:
    create_topic(live_cluster.bootstrap_servers.split(",")[0], topic_name)
    spark, servers = ["--master", "local[1]", *CONF], ["-b", live_cluster.bootstrap_servers]
    out, errors = in_pipe(["spark", "verify", "--topic", topic_name, *servers, *spark], tmp_path)
    assert out.startswith(f"{topic_name}\t")
    assert errors == ["1 partition, 1 replica, 0 offsets: 0 differ, 0 could not be compared, max lag 0"]
