"""``klamm exporter`` and ``klamm lag --serve`` as programs that serve pages."""

from __future__ import annotations

import re
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from klamm_program import PROGRAM, environment


@contextmanager
def serving(folder: Path, *words: str) -> Iterator[str]:
    """Serve, until an interrupt at the end; yield the address."""
    process = subprocess.Popen(
        [PROGRAM, *words],
        stderr=subprocess.PIPE, cwd=folder, env=environment(folder), text=True,
    )  # fmt: skip
    assert process.stderr is not None
    try:
        (address,) = re.findall(r"serving (http://\S+)/metrics", process.stderr.readline())
        yield address
    finally:
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
    assert (process.returncode, "error" in said) == (130, False), said


def until(address: str, status: int, text: str) -> None:
    """Wait for an answer with this text."""
    answer, deadline = (0, ""), time.monotonic() + 60
    while not (answer[0] == status and text in answer[1]):
        assert time.monotonic() < deadline, answer
        try:
            with urllib.request.urlopen(address, timeout=30) as page:
                answer = page.status, page.read().decode()
        except urllib.error.HTTPError as error:
            answer = error.code, error.read().decode()
        except urllib.error.URLError as error:
            answer = 0, str(error)
        time.sleep(0.05)
