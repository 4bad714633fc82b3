"""``klamm local up --stdin``: commands from standard input, one per line, and their answers.

For programs such as ``klamm.testing`` that hold a cluster as long as they run. Everything they start is a child of this
one process. A command takes milliseconds; in a process of its own it would take a third of a second.
"""

from __future__ import annotations

import io
import json
import os
import select
import shlex
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from typing import TYPE_CHECKING

from cli.commands.local.shared import holding
from cli.exit_codes import ExitCode
from cli.framework.signals import StopSignals

if TYPE_CHECKING:
    from engine.local.cluster import LocalCluster


def end_with_parent() -> None:
    """Send this process a TERM when its parent is gone.

    The end of the input means the same, but goes unnoticed while a command runs or a forked child holds the pipe.
    """
    parent = os.pidfd_open(os.getppid())

    def wait() -> None:
        select.select([parent], [], [])
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, name="parent", daemon=True).start()


def carry_out_commands(cluster: LocalCluster, signals: StopSignals) -> None:
    """Carry out lines of standard input until it ends, or a signal asks to stop."""
    with holding(cluster):
        for line in _lines(signals):
            try:
                with signals.interrupting():
                    code, written, complaint = _carry_out(line)
            except KeyboardInterrupt:
                return
            sys.stdout.write(json.dumps({"code": int(code), "stdout": written, "stderr": complaint}) + "\n")
            sys.stdout.flush()
            if code == ExitCode.INTERRUPTED:
                return


def _lines(signals: StopSignals) -> Iterator[str]:
    pending, is_over = b"", False
    while not is_over and signals.wait_for_input(sys.stdin.fileno()):
        chunk = os.read(sys.stdin.fileno(), 65_536)
        is_over = not chunk
        *lines, pending = (pending + (chunk or b"\n")).split(b"\n")
        yield from (text for line in lines if (text := line.decode("utf-8", "replace").strip()))


def _carry_out(line: str) -> tuple[int, str, str]:
    from cli.main import main

    with redirect_stdout(io.StringIO()) as written, redirect_stderr(io.StringIO()) as told:
        try:
            code = main(["local", *shlex.split(line)])
        except ValueError as error:
            code = ExitCode.USAGE
            told.write(f"error: not a command line: {error}\n")
    return code, written.getvalue(), told.getvalue()
