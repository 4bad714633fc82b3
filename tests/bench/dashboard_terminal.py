"""A ``klamm top`` in a terminal of its own, and what it costs."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

COLUMNS, LINES = 140, 45


class DashboardTerminal:
    """The process and its terminal. Read the output all the time: a full terminal holds the dashboard up."""

    def __init__(self, words: list[str], home: Path) -> None:
        self.process, self.terminal = pty.fork()
        if self.process == 0:
            os.environ |= {"TERM": "xterm-256color", "HOME": str(home), "XDG_CONFIG_HOME": str(home)}
            os.execvp(sys.executable, [sys.executable, "-m", "klamm", "top", *words])
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))

    def press(self, keys: bytes) -> None:
        os.write(self.terminal, keys)

    def read(self, wait_s: float) -> bytes:
        """Return what the dashboard wrote; nothing once it has ended."""
        if not select.select([self.terminal], [], [], wait_s)[0]:
            return b""
        try:
            return os.read(self.terminal, 65536)
        except OSError:
            return b""

    def read_for(self, seconds: float) -> None:
        """Read and drop what the dashboard writes."""
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            self.read(0.1)

    @property
    def resident_mb(self) -> float:
        resident = re.search(r"VmRSS:\s+(\d+)", self._told("status"))
        return int(resident[1]) / 1024 if resident else 0.0

    @property
    def cpu_s(self) -> float:
        fields = self._told("stat").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    @property
    def waited_s(self) -> float:
        """How long its main thread has waited for a processor so far."""
        return int(self._told(f"task/{self.process}/schedstat").split()[1]) / 1e9

    @property
    def open_files(self) -> int:
        return len(os.listdir(f"/proc/{self.process}/fd"))

    def close(self) -> None:
        os.kill(self.process, signal.SIGKILL)
        os.waitpid(self.process, 0)
        os.close(self.terminal)

    def _told(self, name: str) -> str:
        return Path(f"/proc/{self.process}/{name}").read_text(encoding="ascii")


@contextmanager
def dashboard_terminal(words: list[str], home: Path) -> Iterator[DashboardTerminal]:
    """Open a dashboard, and end it afterwards."""
    opened = DashboardTerminal(words, home)
    try:
        yield opened
    finally:
        opened.close()
