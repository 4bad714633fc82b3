"""Ctrl-C at any moment of the real program: one line, code 130, never a traceback."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from klamm_program import PROGRAM, environment

from cli.exit_codes import ExitCode
from cli.framework.early import INTERRUPTED

_SITE = """\
import os, signal, sys
at = int(os.environ["INTERRUPT_AT_IMPORT"])
count, begun = 0, False
def hook(event, args):
    global count, begun
    if event != "import":
        return
    begun = begun or args[0] == "cli.main"
    count += begun
    if begun and count == at:
        os.kill(os.getpid(), signal.SIGINT)
sys.addaudithook(hook)
"""
"""Python itself loads it before the program: it sends a signal to its own process at one of its imports."""


def run(folder: Path, *words: str, at_import: int) -> subprocess.CompletedProcess[str]:
    (folder / "sitecustomize.py").write_text(_SITE)
    extra = {"PYTHONPATH": str(folder), "INTERRUPT_AT_IMPORT": str(at_import)}
    return subprocess.run(
        [PROGRAM, *words],
        cwd=folder,
        env=environment(folder, **extra),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("at_import", [1, 3, 12, 40, 90, 180, 190, 220])
def test_while_modules_are_loaded(tmp_path: Path, at_import: int) -> None:
    ran = run(tmp_path, "topics", "list", "-b", "127.0.0.1:1", at_import=at_import)
    assert (ran.returncode, ran.stdout, ran.stderr) == (ExitCode.INTERRUPTED, "", "error: interrupted\n")


def test_at_a_question() -> None:
    """An event loop takes the first Ctrl-C for itself, and a question keeps the loop from running."""
    code = (
        "import asyncio; from cli.framework.talk import Talk\n"
        "async def main(): Talk().ask('really?', is_yes_default=False)\n"
        "try: asyncio.run(main())\n"
        "except KeyboardInterrupt: print('interrupted')\n"
    )
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stdout=pipe, stderr=pipe) as process:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        assert process.stderr.read(len("really? [y/N] ")) == b"really? [y/N] "
        process.send_signal(signal.SIGINT)
        try:
            assert process.stdout.read() == b"interrupted\n"
        finally:
            process.kill()


def test_in_json_mode_it_is_an_object(tmp_path: Path) -> None:
    ran = run(tmp_path, "topics", "list", "-b", "127.0.0.1:1", "-o", "json", at_import=3)
    assert (ran.returncode, ran.stdout) == (130, "")
    assert json.loads(ran.stderr)["error"] == {
        "code": 130,
        "kind": "interrupted",
        "message": "interrupted",
        "hint": None,
    }


def test_after_the_last_import_nothing_is_interrupted(tmp_path: Path) -> None:
    """In the tests above the signal ends the program, not the hook."""
    ran = run(tmp_path, "topics", "list", "-b", "127.0.0.1:1", at_import=100_000)
    assert ran.returncode == ExitCode.UNREACHABLE


@pytest.mark.parametrize(
    ("number", "code", "expected"), [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "ended by TERM")]
)
@pytest.mark.parametrize("option", ["--bootstrap-server", "--zookeeper"])
def test_while_a_silent_server_is_waited_for(
    tmp_path: Path, option: str, number: signal.Signals, code: int, expected: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        process = subprocess.Popen(
            [PROGRAM, "topics", "list", option, address],
            cwd=tmp_path,
            env=environment(tmp_path),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        server.settimeout(30)
        connection, _ = server.accept()
        with connection:
            connection.settimeout(30)
            assert connection.recv(1), "it has asked, and waits"
            process.send_signal(number)
            out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (code, "", f"error: {expected}\n")


@pytest.mark.parametrize(
    ("words", "whom"),
    [
        ("topics list -b", ""),
        ("topics list --zookeeper", "ZooKeeper "),
        ("cluster health -b", ""),
        ("cluster health --zookeeper", "ZooKeeper "),
        ("consume t -b", ""),
    ],
)
def test_on_a_terminal_a_command_says_whom_it_waits_for(tmp_path: Path, words: str, whom: str) -> None:
    ours, theirs = os.openpty()
    with socket.create_server(("127.0.0.1", 0)) as server, open(ours, "rb", buffering=0) as screen:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        command = [PROGRAM, *words.split(), address, "--timeout", "60"]
        with subprocess.Popen(
            command, cwd=tmp_path, env=environment(tmp_path), stderr=theirs, stdout=subprocess.PIPE
        ) as it:
            os.close(theirs)
            output = b""
            while f"waiting for {whom}{address}, silent for ".encode() not in output:
                output += screen.read(1000)
            it.send_signal(signal.SIGINT)
            assert it.wait(30) == ExitCode.INTERRUPTED


def test_an_ignored_signal_stays_ignored(tmp_path: Path) -> None:
    """A shell without job control starts background commands like this."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        process = subprocess.Popen(
            [PROGRAM, "topics", "list", "-b", address, "--timeout", "1"],
            cwd=tmp_path,
            env=environment(tmp_path),
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
        )
        server.settimeout(30)
        connection, _ = server.accept()
        with connection:
            process.send_signal(signal.SIGINT)
            started = time.monotonic()
            _, err = process.communicate(timeout=30)
    assert process.returncode == ExitCode.UNREACHABLE, err
    assert time.monotonic() - started < 20


def test_where_ctrl_c_is_ignored_term_cancels_and_raises_nothing_between_two_lines() -> None:
    """A script's background jobs ignore it. An exception from within a callback shows tracebacks."""
    code = (
        "import asyncio, os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "from cli.framework.execution import execute; from cli.framework.invocation import Invocation\n"
        "from cli.framework.talk import Talk; from cli.output.format import OutputFormat\n"
        "async def work(invocation):\n"
        "    try:\n"
        "        os.kill(os.getpid(), signal.SIGTERM); print('goes on')\n"
        "        await asyncio.sleep(60)\n"
        "    except BaseException as error: print(type(error).__name__); raise\n"
        "sys.exit(execute(Invocation(OutputFormat.PLAIN, Talk()), work, {}, is_bounded=True))\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    told = (ExitCode.TERMINATED, "goes on\nCancelledError\n", "error: ended by TERM\n")
    assert (ran.returncode, ran.stdout, ran.stderr) == told


def test_the_code_is_that_of_the_list() -> None:
    assert INTERRUPTED == ExitCode.INTERRUPTED
