"""The demo stops everything that it started, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

DEMO = Path(__file__).with_name("demo.py")
WAIT_S = 60.0


def processes_in(folder: Path) -> list[str]:
    """Return the command lines that name a folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = process.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
        except OSError:
            continue
        if str(folder) in words:
            found.append(words)
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_leaves_nothing_behind(tmp_path: Path, number: signal.Signals) -> None:
    environment = os.environ | {"TMPDIR": str(tmp_path), "KLAMM_DEMO_RECORDS": "100"}
    demo = subprocess.Popen(
        [sys.executable, "-u", DEMO], env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        start_new_session=True,
    )  # fmt: skip
    assert demo.stdout is not None
    try:
        while "A topic:" not in (line := demo.stdout.readline()):
            assert line, "the demo has ended"
        assert processes_in(tmp_path)
        os.killpg(demo.pid, number)
        said, _ = demo.communicate(timeout=WAIT_S)
    finally:
        demo.kill()
        demo.wait()
    assert (demo.returncode, "interrupted" in said) == (130, True), said
    deadline = time.monotonic() + WAIT_S
    while processes_in(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert processes_in(tmp_path) == []
    assert list(tmp_path.glob("klamm-demo-*")) == []
