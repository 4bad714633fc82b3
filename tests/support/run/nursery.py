"""Starts the tests' brokers and ``klamm`` from processes that have already loaded their code. A pytest plugin.

Loading the same modules takes most of the CPU of a start, and a run starts more than a thousand of them. So each
process of a run keeps up to two nurseries, which fork a program off for each start. From then on it is as any other: a
child of the process that runs the tests, with a session of its own, its own output, environment and folder.

The processes that run the tests themselves come from a nursery, too: one that has collected the tests, so that the
files of tests and what these import are loaded once in a run.

Programs start on their own in tests of the start itself (``OF_THE_START``), in other programs that tests start, and
where an environment variable that Python reads when it starts is neither as in the run nor left out.
"""

from __future__ import annotations

import atexit
import ctypes
import fcntl
import gc
import importlib
import inspect
import json
import os
import pkgutil
import runpy
import signal
import socket
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

ROOT = Path(__file__).parents[3]
OF_THE_START = (
    "tests/local/test_cluster.py::test_life_of_a_cluster", "tests/local/test_cluster.py::test_broker_that_cannot_start",
    "tests/klamm/test_testing.py::test_life_of_a_cluster", "tests/klamm/test_testing.py::test_nothing_outlives",
    "tests/klamm/test_program.py", "tests/package/",
    "tests/cli/test_program.py::test_version", "tests/cli/test_program.py::test_nothing_named",
    "tests/cli/test_interrupt.py",
)  # fmt: skip

_KLAMM = Path(sys.executable).parent / "klamm"
_BROKER = (sys.executable, "-P", str(ROOT / "engine" / "runtime" / "own_process.py"), "engine.broker.server")
_SCRIPTS = {
    str(ROOT / "tests" / "support" / "programs" / "killed_at_step.py"): "klamm",
    str(ROOT / "tests" / "cluster" / "killable_broker.py"): "broker",
}
_LAUNCHER = str(ROOT / "engine" / "local" / "launch.py")
_WORKER = (sys.executable, "-u", "-c")
"""What pytest-xdist starts, with one line of Python, which reads the rest."""
_LOADED = ("cli", "engine.admin", "engine.kafka", "engine.local", "tui")
"""Packages whose modules ``klamm`` loads, each command some of them."""

_REQUEST_BYTES_MAX = 1 << 20
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_INHERITED: dict[signal.Signals, Any] = {signal.SIGHUP: signal.SIG_DFL, signal.SIGINT: signal.default_int_handler}
"""Signals that a program goes on to ignore if the process that starts it does, and how it handles them otherwise."""


class Nursery:
    """One nursery of this process. It starts with its first program."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._asking = threading.Lock()
        self._socket: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._owner_pid = 0

    def fork(self, asked: dict[str, Any], streams: list[int]) -> int | None:
        """Return the pid of a new child of this process; None if there is none."""
        with self._asking:
            if self._socket is None or self._owner_pid != os.getpid():
                self._start(asked)
            assert self._socket is not None
            # The nursery's child ends at once, and the program, an orphan then, becomes a child of this process.
            _prctl(_PR_SET_CHILD_SUBREAPER, 1)
            try:
                socket.send_fds(self._socket, [json.dumps(asked).encode()], streams)
                return int(self._socket.recv(_REQUEST_BYTES_MAX)) or None
            finally:
                _prctl(_PR_SET_CHILD_SUBREAPER, 0)

    def _start(self, asked: Mapping[str, Any]) -> None:
        self._owner_pid = os.getpid()
        self._socket, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with other:
            # It ends when nobody holds the other socket any more.
            self._process = subprocess.Popen(
                [sys.executable, "-P", __file__, self._kind, *asked["collected"]],
                stdin=other,
                env=asked["environ"],
                # Ctrl-C reaches the processes of a run, as it does those that pytest-xdist starts.
                start_new_session=self._kind != "worker",
            )


class Nurseries:
    """The nurseries of this process, behind ``subprocess.Popen``."""

    def __init__(self) -> None:
        self.is_open = True
        self.collected: Sequence[str] | None = None
        """The arguments of this run of pytest; None if it starts no processes that run tests."""
        self._is_installed = False
        # Tests give a program the environment of the run, or little of it. In most runs both are the same to Python.
        own = _of_python(os.environ)
        usual = (own, {name: value for name, value in own.items() if name == "LANG"})
        self._nurseries = {
            (kind, frozenset(python.items())): Nursery(kind)
            for kind in ("broker", "klamm", "worker")
            for python in usual
        }

    def install(self) -> None:
        """Let ``subprocess.Popen`` take our programs from here."""
        if self._is_installed:
            return
        self._is_installed = True
        execute_itself = subprocess.Popen._execute_child  # type: ignore[attr-defined]
        signature = inspect.signature(execute_itself)

        def execute(popen: Any, *given: Any) -> None:
            call = signature.bind(popen, *given).arguments
            pid = self._forked(call) if self.is_open else None
            if pid is None:
                execute_itself(popen, *given)
                return
            popen.pid, popen._child_created = pid, True
            ends = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
            popen._close_pipe_fds(*(call[name] for name in ends))

        subprocess.Popen._execute_child = execute  # type: ignore[attr-defined]

    def _forked(self, call: Mapping[str, Any]) -> int | None:
        is_plain = not call["shell"] and call["preexec_fn"] is None and not call["pass_fds"]
        if not is_plain or isinstance(call["args"], str | bytes | os.PathLike):
            return None
        kind, words = _program([os.fspath(word) for word in call["args"]])
        if not kind or (kind == "worker" and self.collected is None):
            return None
        streams = [call["p2cread"], call["c2pwrite"], call["errwrite"]]
        asked = {
            "kind": kind,
            "collected": self.collected or (),
            "words": words,
            "environ": {name: os.fspath(value) for name, value in (call["env"] or os.environ).items()},
            "folder": os.path.abspath(call["cwd"] or "."),
            "parent": os.getpid(),
            "ignored": [number for number in _INHERITED if signal.getsignal(number) is signal.SIG_IGN],
            "has_own_session": call["start_new_session"],
        }
        nursery = self._nurseries.get((kind, frozenset(_of_python(asked["environ"]).items())))
        if nursery is None:
            return None
        return nursery.fork(asked, [own if given < 0 else given for own, given in enumerate(streams)])


def _program(words: list[str]) -> tuple[str, list[str]]:
    """Return which nursery has the program, and its words; nothing for another program."""
    if words[3:5] == [_LAUNCHER, "tied"]:
        words = words[6:]
    if words[0] == str(_KLAMM):
        return "klamm", words
    if tuple(words[:-1]) == _WORKER:
        return "worker", words[-2:]
    if words[0] == sys.executable and words[1] in _SCRIPTS:
        return _SCRIPTS[words[1]], words[1:]
    return ("broker", words[len(_BROKER) - 1 :]) if tuple(words[: len(_BROKER)]) == _BROKER else ("", [])


def _of_python(environ: Mapping[str, str]) -> dict[str, str]:
    """Return what Python reads when it starts; to it, empty is as good as left out."""
    return {name: value for name, value in environ.items() if value and name.startswith(("PYTHON", "LC_", "LANG"))}


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


NURSERIES = Nurseries()


def pytest_configure(config: Any) -> None:
    if sys.platform == "linux":
        NURSERIES.install()
        if config.getoption("numprocesses", None) and not hasattr(config, "workerinput"):
            NURSERIES.collected = config.invocation_params.args


def pytest_runtest_setup(item: Any) -> None:
    NURSERIES.is_open = not item.nodeid.startswith(OF_THE_START)


def _serve(requests: socket.socket) -> list[str]:
    """Fork a program off for each request. Return, in the program, its words."""
    while True:
        data, streams, _, _ = socket.recv_fds(requests, _REQUEST_BYTES_MAX, 3)
        if not data:
            os._exit(0)
        reading, writing = os.pipe()
        between = os.fork()
        if not between:
            between = os.getpid()
            if os.fork():
                os._exit(0)
            for unused in (reading, requests.detach()):
                os.close(unused)
            asked = json.loads(data)
            _become_program(between, asked, streams)
            os.write(writing, b"%d" % os.getpid())
            os.close(writing)
            return asked["words"]  # type: ignore[no-any-return]
        for given in (writing, *streams):
            os.close(given)
        os.waitpid(between, 0)
        # Whoever starts a program may send it a signal at once, so it is ready before its pid is known.
        requests.send(os.read(reading, 20) or b"0")
        os.close(reading)


def _become_program(between: int, asked: dict[str, Any], streams: list[int]) -> None:
    """Do what ``fork`` and ``execve`` do for a program that starts on its own, and what ``launch.py`` does."""
    while (parent := os.getppid()) == between:
        time.sleep(0.0002)
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if parent != asked["parent"] or os.getppid() != parent:
        os._exit(1)
    if asked["kind"] != "worker":
        os.setsid()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    if asked["has_own_session"] and os.isatty(0):
        # As a login shell gives its terminal to a program.
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    for number, handler in _INHERITED.items():
        signal.signal(number, signal.SIG_IGN if number in asked["ignored"] else handler)
    os.environ.clear()
    os.environ.update(asked["environ"])
    os.chdir(asked["folder"])
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", closefd=False, buffering=1, errors="backslashreplace")


def _load_broker() -> Callable[[], object]:
    from engine.broker.handlers.registry import all_handlers

    importlib.import_module("engine.broker.server.process")
    all_handlers()
    return lambda: runpy.run_module("engine.broker.server", run_name="__main__", alter_sys=True)


def _load_klamm() -> Callable[[], object]:
    importlib.import_module("klamm._path")
    from cli.start import run

    for name in _LOADED:
        package = importlib.import_module(name)
        for module in pkgutil.walk_packages(package.__path__, f"{name}."):
            if not module.name.endswith(("__main__", "cli.reference")):
                importlib.import_module(module.name)
    return run


class _Broken:
    """Forgets a module that cannot be imported: pytest would take the part that is there, without tests, for all."""

    def pytest_exception_interact(self, node: Any) -> None:
        for name, module in [*sys.modules.items()]:
            if getattr(module, "__file__", None) == str(node.path):
                del sys.modules[name]


def _collect(arguments: Sequence[str]) -> Callable[[], object]:
    """Import what a run of pytest with these arguments imports. A worker collects again, for a quarter of the CPU."""
    import pytest

    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        pytest.main([*arguments, "--numprocesses=0", "--collect-only"], plugins=[_Broken()])

    def work() -> None:
        # As with ``python -c``: what a test starts by ``spawn`` imports no main module.
        main = sys.modules["__main__"] = ModuleType("__main__")
        exec(sys.argv.pop(), main.__dict__)

    return work


def _main(kind: str, arguments: Sequence[str]) -> NoReturn:
    requests = socket.socket(fileno=os.dup(0))
    if kind == "worker":
        run = _collect(arguments)
        # Ctrl-C is for the processes of the run.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    else:
        sys.path.insert(0, str(ROOT))
        run = _load_klamm() if kind == "klamm" else _load_broker()
    gc.collect()
    gc.freeze()
    words = _serve(requests)
    sys.argv[:] = words
    code: object = 1
    try:
        if words[0] in _SCRIPTS:
            sys.path.insert(0, str(Path(words[0]).parent))
            runpy.run_path(words[0], run_name="__main__")
        else:
            run()
        code = 0
    except SystemExit as ended:
        code = ended.code
    except BaseException:
        sys.excepthook(*sys.exc_info())
    # All that Python does at its end but to take every module apart.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code if isinstance(code, int) else code is not None)


if __name__ == "__main__":
    _main(sys.argv[1], sys.argv[2:])
