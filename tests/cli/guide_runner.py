"""Carries out a guide's own commands in a shell, in a folder with a cluster in its environment."""

from __future__ import annotations

import os
import pty
import shlex
import subprocess
from pathlib import Path

from klamm_program import PROGRAM, environment

WAIT_S = 120


class Runner:
    """A machine with klamm on its path: a person's, or a code host's after a checkout."""

    def __init__(self, folder: Path, bootstrap_servers: str) -> None:
        self.folder = folder
        self._environment = environment(
            folder,
            PATH=f"{PROGRAM.parent}{os.pathsep}{os.environ['PATH']}",
            KLAMM_BOOTSTRAP_SERVER=bootstrap_servers,
            GITHUB_STEP_SUMMARY=str(folder / "summary.md"),
        )

    def __call__(self, line: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            _command(line), cwd=self.folder, env=self._environment, capture_output=True, text=True,
            timeout=WAIT_S, check=False,
        )  # fmt: skip

    def at_terminal(self, line: str) -> str:
        """Run a line as a person does, who answers every question with yes; return all that the terminal shows."""
        ours, theirs = pty.openpty()
        variables = self._environment | {"COLUMNS": "120", "NO_COLOR": "1"}
        with subprocess.Popen(
            _command(line), cwd=self.folder, env=variables, stdin=theirs, stdout=theirs, stderr=theirs
        ) as process:
            os.close(theirs)
            os.write(ours, b"y\n")
            shown = b""
            try:
                while chunk := os.read(ours, 65536):
                    shown += chunk
            except OSError:
                # Linux raises EIO if the other side of a terminal is closed.
                pass
            finally:
                os.close(ours)
                try:
                    process.wait(WAIT_S)
                finally:
                    process.kill()
        text = shown.decode("utf-8", "replace").replace("\r\n", "\n")
        assert process.returncode == 0, (line, text)
        return text


def _command(line: str) -> list[str | Path]:
    """Return a program and its arguments; a shell where the line has more than these."""
    if line.startswith("klamm ") and not set("|&;<>$`*?~#(){}[]\\").intersection(line):
        return [PROGRAM, *shlex.split(line)[1:]]
    return ["bash", "-e", "-c", line]
