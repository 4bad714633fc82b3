"""klamm's processes on this machine: started so that none is left behind, ended only if still the same.

A child gets its own session (a terminal's Ctrl-C does not reach it), and the kernel kills it when this process dies,
unless it is started free. A process is named by its pid and start time together, so a reused pid is never signalled.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import IO

from engine.common.errors import OperationError

_LAUNCHER = Path(__file__).with_name("launch.py")


@dataclass(frozen=True, slots=True)
class ProcessId:
    """A process that cannot be mistaken for a later one: its pid, and its start time in clock ticks since boot."""

    pid: int
    start_ticks: int


def refuse_unless_linux() -> None:
    """Check that this system has what the processes here need: pidfds, death signals, /proc, and all of 127/8.

    Raises:
        OperationError: it is not Linux.
    """
    if sys.platform != "linux":
        raise OperationError(
            f"klamm local and klamm zookeeper need Linux, and this is {sys.platform}",
            hint="use a Linux machine or a container; commands for a cluster that runs elsewhere work here",
        )


class LocalProcess:
    """A process that can be watched and ended, even if another process started it."""

    def __init__(self, identity: ProcessId, child: subprocess.Popen[bytes] | None = None) -> None:
        self.identity = identity
        self._child = child

    @property
    def pid(self) -> int:
        return self.identity.pid

    @property
    def is_alive(self) -> bool:
        """Whether this very process still runs, even if only with some of its threads; a zombie does not."""
        if self._child is not None:
            return self._child.poll() is None
        return not self.wait(0)

    @property
    def is_paused(self) -> bool:
        """Whether each of its threads is frozen (SIGSTOP), or has ended."""
        return self.is_alive and all(state in "TtZX" for state in _thread_states(self.pid))

    @property
    def exit_code(self) -> int | None:
        """Exit code (negative: the signal) of a child that has ended; None while it runs or when it is no child."""
        return None if self._child is None else self._child.poll()

    def send_signal(self, signal_number: signal.Signals) -> bool:
        """Send a signal; False when the process is gone."""
        try:
            pid_fd = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return False
        try:
            if not self.is_alive:
                return False
            signal.pidfd_send_signal(pid_fd, signal_number)
        except ProcessLookupError:
            return False
        finally:
            os.close(pid_fd)
        return True

    def wait(self, timeout_s: float) -> bool:
        """Wait until it has ended with all its threads; False when it still runs after ``timeout_s`` seconds."""
        try:
            pid_fd = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return True
        try:
            # Compare after opening: from here on the descriptor means this process and no later one.
            if _start_ticks(self.pid) != self.identity.start_ticks:
                return True
            # Use the descriptor, not /proc: there a process is a zombie while its threads still hold its sockets.
            poller = select.poll()
            poller.register(pid_fd, select.POLLIN)
            has_ended = bool(poller.poll(timeout_s * 1000))
        finally:
            os.close(pid_fd)
        if has_ended and self._child is not None:
            self._child.wait()
        return has_ended

    def stop(self, timeout_s: float = 10.0) -> bool:
        """TERM, and KILL after ``timeout_s`` seconds; True when TERM was enough. A paused process is continued."""
        self.send_signal(signal.SIGTERM)
        self.send_signal(signal.SIGCONT)
        if self.wait(timeout_s):
            return True
        self.kill()
        return False

    def pause(self, timeout_s: float = 10.0) -> bool:
        """Stop the process (SIGSTOP) and wait until each of its threads is frozen."""
        self.send_signal(signal.SIGSTOP)
        deadline = time.monotonic() + timeout_s
        while self.is_alive and not self.is_paused:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.001)
        return self.is_alive

    def resume(self) -> None:
        """Let a paused process continue (SIGCONT)."""
        self.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """KILL, and wait until it is gone."""
        self.send_signal(signal.SIGKILL)
        self.wait(10.0)


def start_process(
    command: Sequence[str | Path],
    *,
    output: Path,
    environ: Mapping[str, str] | None = None,
    stdin: int = subprocess.DEVNULL,
    free: bool = False,
) -> LocalProcess:
    """Start a program with its output appended to a file.

    Args:
        output: where stdout and stderr go.
        environ: its whole environment; None is this process's own.
        stdin: a file descriptor that it reads from.
        free: it outlives this process. Otherwise it is killed with it.
    """
    words = [str(word) for word in command]
    with output.open("ab") as sink:
        if free:
            return _start_free(words, stdin, sink, environ)
        return _spawner.call(lambda: _start_tied(words, stdin, sink, environ))


def find_process(identity: ProcessId) -> LocalProcess | None:
    """Return the process if it still runs, else None."""
    process = LocalProcess(identity)
    return process if process.is_alive else None


def _start_tied(words: list[str], stdin: int, sink: IO[bytes], environ: Mapping[str, str] | None) -> LocalProcess:
    launch = [sys.executable, "-I", "-S", str(_LAUNCHER), "tied", str(os.getpid()), *words]
    child = subprocess.Popen(launch, stdin=stdin, stdout=sink, stderr=sink, env=environ, start_new_session=True)
    return LocalProcess(ProcessId(child.pid, _start_ticks(child.pid) or 0), child)


def _start_free(words: list[str], stdin: int, sink: IO[bytes], environ: Mapping[str, str] | None) -> LocalProcess:
    launch = [sys.executable, "-I", "-S", str(_LAUNCHER), "free", "0", *words]
    launched = subprocess.run(
        launch, stdin=stdin, stdout=subprocess.PIPE, stderr=sink, env=environ, start_new_session=True, check=True
    )
    pid = int(launched.stdout)
    return LocalProcess(ProcessId(pid, _start_ticks(pid) or 0))


def _start_ticks(pid: int) -> int | None:
    """Return a process's start time; None if there is none."""
    fields = _stat_fields(Path(f"/proc/{pid}/stat"))
    return int(fields[19]) if fields else None


def _thread_states(pid: int) -> list[str]:
    """Return the state letter of each thread of a process."""
    return [fields[0] for path in Path(f"/proc/{pid}/task").glob("*/stat") if (fields := _stat_fields(path))]


def _stat_fields(path: Path) -> list[str]:
    """Return the fields of a ``stat`` file of ``/proc`` from the third (the state) on; none when it is gone."""
    try:
        text = path.read_text("utf-8", "replace")
    except (FileNotFoundError, ProcessLookupError):
        return []
    # The second field is the program's name in brackets, which may hold blanks and brackets.
    return text.rpartition(")")[2].split()


class _Spawner:
    """Starts children from one thread that never ends.

    The kernel ties a child's death signal to the *thread* that forked it: a child started from a worker thread would be
    killed when that thread ends.
    """

    def __init__(self) -> None:
        self._owner_pid = 0
        self._orders: SimpleQueue[tuple[Callable[[], LocalProcess], Future[LocalProcess]]] = SimpleQueue()
        self._starting = threading.Lock()

    def call(self, start: Callable[[], LocalProcess]) -> LocalProcess:
        with self._starting:
            if self._owner_pid != os.getpid():
                self._owner_pid = os.getpid()
                self._orders = SimpleQueue()
                threading.Thread(target=self._serve, args=(self._orders,), name="klamm-spawner", daemon=True).start()
        done: Future[LocalProcess] = Future()
        self._orders.put((start, done))
        return done.result()

    @staticmethod
    def _serve(orders: SimpleQueue[tuple[Callable[[], LocalProcess], Future[LocalProcess]]]) -> None:
        while True:
            start, done = orders.get()
            try:
                done.set_result(start())
            except BaseException as error:
                done.set_exception(error)


_spawner = _Spawner()
