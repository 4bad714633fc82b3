"""Starts the tests' brokers from a process that has already loaded their code. A pytest plugin, and that process.

Half a second of CPU of a broker's start goes into loading the same modules, and a run starts hundreds of brokers. So
each process of a run keeps one nursery, which forks a broker off for each start. From then on it is as any broker:
a session of its own, its own output, environment and folder, killed with the process that runs the tests.

Brokers start on their own in tests of the start itself: those of ``tests/local``, of ``BrokerProgram``, of programs
that start clusters, and those that change an environment variable which Python reads when it starts.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import runpy
import signal
import socket
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).parents[3]

_REQUEST_BYTES_MAX = 1 << 20
_PR_SET_PDEATHSIG = 1


class _ForkedBroker:
    """What ``LocalProcess`` needs of a child. It is a child of the nursery, and a zombie until it is waited for."""

    def __init__(self, nursery: Nursery, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._nursery = nursery

    def poll(self) -> int | None:
        return self._ended(os.WNOHANG)

    def wait(self) -> int | None:
        return self._ended(0)

    def _ended(self, options: int) -> int | None:
        if self.returncode is None:
            self.returncode = self._nursery.ask({"wait": self.pid, "options": options})
        return self.returncode


class Nursery:
    """The nursery of this process. It starts with its first broker."""

    def __init__(self) -> None:
        self.is_open = True
        self._asking = threading.Lock()
        self._socket: socket.socket | None = None
        self._process: Any = None
        self._python: dict[str, str] = {}
        self._owner_pid = 0

    def install(self) -> None:
        """Let ``start_process`` take klamm's brokers from here."""
        from engine.local import processes
        from engine.local.local_broker import BROKER_COMMAND

        start_itself = processes._start_tied

        def start(words: list[str], stdin: int, sink: IO[bytes], environ: Mapping[str, str] | None) -> Any:
            new = dict(os.environ if environ is None else environ)
            if not self.is_open or tuple(words[:-1]) not in {BROKER_COMMAND, (*BROKER_COMMAND, "--hold")}:
                return start_itself(words, stdin, sink, environ)
            if self._socket is None or self._owner_pid != os.getpid():
                self._owner_pid = os.getpid()
                self._socket, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                with other:
                    self._process = start_itself(
                        [sys.executable, "-P", str(Path(__file__))], other.fileno(), sink, None
                    )
                self._python = _of_python(os.environ)
            if _of_python(new) != self._python:
                return start_itself(words, stdin, sink, environ)
            asked = {"arguments": words[len(BROKER_COMMAND) :], "environ": new, "folder": os.getcwd()}
            with open(os.devnull, "rb") as nothing:
                given = nothing.fileno() if stdin < 0 else stdin
                pid = self.ask(asked, [given, sink.fileno()])
            identity = processes.ProcessId(pid, processes._start_ticks(pid) or 0)
            return processes.LocalProcess(identity, _ForkedBroker(self, pid))  # type: ignore[arg-type]

        processes._start_tied = start

    def ask(self, question: dict[str, Any], descriptors: list[int] | None = None) -> Any:
        """Send a request to the nursery; return its answer."""
        assert self._socket is not None
        with self._asking:
            socket.send_fds(self._socket, [json.dumps(question).encode()], descriptors or [])
            return json.loads(self._socket.recv(_REQUEST_BYTES_MAX))


def _of_python(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environ.items() if name.startswith(("PYTHON", "LC_", "LANG"))}


NURSERY = Nursery()


def pytest_configure() -> None:
    if sys.platform == "linux":
        NURSERY.install()


def pytest_runtest_setup(item: Any) -> None:
    NURSERY.is_open = not item.nodeid.startswith("tests/local/")


def _serve(requests: socket.socket) -> list[str]:
    """Answer requests until nobody asks any more. Return in each broker that was forked off, with its arguments."""
    while True:
        data, descriptors, _, _ = socket.recv_fds(requests, _REQUEST_BYTES_MAX, 2)
        if not data:
            os._exit(0)
        asked = json.loads(data)
        if "wait" in asked:
            pid, status = os.waitpid(asked["wait"], asked["options"])
            answer = os.waitstatus_to_exitcode(status) if pid else None
        else:
            nursery = os.getpid()
            answer = os.fork()
            if not answer:
                requests.close()
                _become_broker(nursery, asked, *descriptors)
                return asked["arguments"]  # type: ignore[no-any-return]
            for descriptor in descriptors:
                os.close(descriptor)
        requests.send(json.dumps(answer).encode())


def _become_broker(nursery: int, asked: dict[str, Any], stdin: int, sink: int) -> None:
    """Do what ``launch.py`` and ``execve`` do for a broker that starts on its own."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != nursery:
        os._exit(1)
    os.setsid()
    for given, number in ((stdin, 0), (sink, 1), (sink, 2)):
        os.dup2(given, number)
    os.close(stdin)
    os.close(sink)
    os.environ.clear()
    os.environ.update(asked["environ"])
    os.chdir(asked["folder"])


def _main() -> None:
    requests = socket.socket(fileno=os.dup(0))
    sys.path.insert(0, str(ROOT))
    from engine.broker.handlers.registry import all_handlers
    from engine.broker.server import process

    assert Path(process.__file__).is_relative_to(ROOT)
    all_handlers()
    gc.collect()
    arguments = _serve(requests)
    sys.argv[:] = ["engine.broker.server", *arguments]
    runpy.run_module("engine.broker.server", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _main()
