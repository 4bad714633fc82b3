"""One broker process of a local cluster: its files, its start and its end. Does not know other brokers."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from engine.common.errors import OperationError
from engine.common.model import address_text
from engine.kafka.client.security import PLAINTEXT, Security
from engine.kafka.config.listeners import parse_csv
from engine.kafka.config.properties import format_properties
from engine.local.addresses import is_free
from engine.local.probe import answers_api_versions
from engine.local.processes import LocalProcess, ProcessId, find_process, start_process
from engine.runtime.own_process import module_command

BROKER_COMMAND = module_command("engine.broker.server")
"""Runs a klamm broker; the properties file follows."""

METRICS_LISTENER = "klamm.metrics.listener"

_ROOM_FOR_WORDS = 4096
"""A block of a file system: with less, nothing more can be written to a file."""
_STARTED = b"started broker "
"""What a klamm broker prints on stderr once it serves and is registered."""


@dataclass(frozen=True, slots=True)
class LocalBrokerSpec:
    """How to start a broker.

    Attributes:
        directory: its ``server.properties``, ``broker.out``, ``logs/`` and log dirs.
        overrides: settings of this broker only; they win over the cluster's.
        command: the program that takes the properties file as its last argument.
    """

    id: int
    host: str
    port: int
    directory: Path
    rack: str | None = None
    log_dir_count: int = 1
    overrides: Mapping[str, str] = field(default_factory=dict)
    command: Sequence[str] = BROKER_COMMAND

    @property
    def log_dirs(self) -> tuple[Path, ...]:
        """``data``, or ``data-0``, ``data-1`` … if there are several; or what its own settings name."""
        if "log.dirs" in self.overrides:
            return tuple(Path(path.strip()) for path in self.overrides["log.dirs"].split(",") if path.strip())
        if self.log_dir_count == 1:
            return (self.directory / "data",)
        return tuple(self.directory / f"data-{number}" for number in range(self.log_dir_count))


@dataclass(frozen=True, slots=True)
class BrokerStatus:
    """One broker of a local cluster, as ``klamm local status`` shows it."""

    id: int
    pid: int | None
    host: str
    port: int
    rack: str | None
    log_dirs: tuple[str, ...]
    alive: bool
    paused: bool
    """It is alive, but frozen (SIGSTOP)."""
    metrics: str | None
    """Where it serves its metrics over HTTP; None: nowhere."""


class LocalBroker:
    """A broker process, running or not, started by this process or by an earlier ``klamm local up``."""

    def __init__(self, spec: LocalBrokerSpec, process: LocalProcess | None = None) -> None:
        self.spec = spec
        self.process = process
        self._output_offset = 0
        self._held_by: int | None = None

    @property
    def id(self) -> int:
        return self.spec.id

    @property
    def address(self) -> str:
        return address_text(self.spec.host, self.spec.port)

    @property
    def is_alive(self) -> bool:
        """Whether its process exists; a paused one does."""
        return self.process is not None and self.process.is_alive

    @property
    def is_paused(self) -> bool:
        return self.process is not None and self.process.is_paused

    @property
    def pid(self) -> int | None:
        return self.process.pid if self.process is not None and self.process.is_alive else None

    @property
    def output_path(self) -> Path:
        """What it prints: nothing but errors and the line that it has started, if it writes its logs to ``logs/``."""
        return self.spec.directory / "broker.out"

    @property
    def logs_path(self) -> Path:
        """Folder of server.log, controller.log and state-change.log."""
        return self.spec.directory / "logs"

    def status(self) -> BrokerStatus:
        spec = self.spec
        log_dirs = tuple(str(path) for path in spec.log_dirs)
        listener = spec.overrides.get(METRICS_LISTENER)
        metrics = None if listener is None else f"http://{listener}/metrics"
        is_paused, is_alive = self.is_paused, self.is_alive
        return BrokerStatus(spec.id, self.pid, spec.host, spec.port, spec.rack, log_dirs, is_alive, is_paused, metrics)

    def attach(self, identity: ProcessId | None) -> None:
        """Take over a process that was started earlier, if it still runs."""
        self.process = None if identity is None else find_process(identity)

    def start(
        self, settings: Mapping[str, str], overrides: Mapping[str, str], *, detached: bool, held: bool = False
    ) -> None:
        """Write ``server.properties`` and start the process; it does not serve yet.

        Args:
            settings: those of every broker of the cluster.
            overrides: those of this start only; they win over all others.
            held: it loads its code and waits for ``let_go``; only for klamm brokers.

        Raises:
            OperationError: its port is taken, or no listener has it.
        """
        if self.is_alive:
            return
        merged = self._own_settings() | dict(settings) | dict(self.spec.overrides) | dict(overrides)
        self._check_listeners(merged["listeners"])
        if not is_free(self.spec.host, self.spec.port):
            raise OperationError(
                f"broker {self.id} cannot listen on {self.address}: the address is taken, or is not this machine's",
                hint="stop what listens there, or choose another port",
            )
        for folder in (*self.spec.log_dirs, self.logs_path):
            folder.mkdir(parents=True, exist_ok=True)
        properties = self.spec.directory / "server.properties"
        # It may hold passwords.
        write_private(properties, format_properties(merged))
        self._output_offset = self.output_path.stat().st_size if self.output_path.exists() else 0
        command: list[str | Path] = [*self.spec.command, *(["--hold"] if held else []), properties]
        stdin = self._held_stdin() if held else subprocess.DEVNULL
        try:
            self.process = start_process(
                command, output=self.output_path, environ=_environment(self.logs_path), stdin=stdin, free=detached
            )
        finally:
            if held:
                os.close(stdin)

    def let_go(self) -> None:
        """Let a broker that was started held continue; do nothing for any other."""
        if self._held_by is not None:
            os.close(self._held_by)
            self._held_by = None

    def has_started(self, security: Security = PLAINTEXT) -> bool:
        """Whether it serves: it answers, and (a klamm broker) has said so since its last start.

        Raises:
            OperationError: its process has ended.
        """
        if not self.is_alive:
            raise OperationError(f"broker {self.id} ended: {self.last_words()}", hint=f"see {self.spec.directory}")
        if self.spec.command == BROKER_COMMAND and _STARTED not in self._new_output():
            return False
        return answers_api_versions(self.spec.host, self.spec.port, security=security)

    def request_stop(self) -> None:
        """TERM, without waiting."""
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)

    def stop(self, timeout_s: float) -> bool:
        """TERM (a controlled shutdown), then KILL; True when TERM was enough, or it was not running."""
        if self.process is None:
            return True
        self.let_go()
        was_enough = self.process.stop(timeout_s)
        self.process = None
        return was_enough

    def kill(self) -> None:
        """KILL, as a crash. Its registration stays until its session ends."""
        if self.process is not None:
            self.process.kill()
        self.process = None
        self.let_go()

    def pause(self) -> None:
        """Freeze it (SIGSTOP): it keeps its connections and answers nothing."""
        if self.process is not None:
            self.process.pause()

    def resume(self) -> None:
        """Let it continue (SIGCONT)."""
        if self.process is not None:
            self.process.resume()

    def last_words(self) -> str:
        """The last line it printed since its start, or that there is none."""
        lines = [line for line in self._new_output().decode("utf-8", "replace").splitlines() if line.strip()]
        errors = [line.removeprefix("error: ") for line in lines if line.startswith("error:")]
        return (errors or lines or [self._why_silent()])[-1]

    def _why_silent(self) -> str:
        """Say why there may be no last words: there was no room for them."""
        free_bytes = shutil.disk_usage(self.spec.directory).free
        if free_bytes >= _ROOM_FOR_WORDS:
            return "it left no message"
        return f"it left no message: the disk of {self.spec.directory} is full"

    def _own_settings(self) -> dict[str, str]:
        spec = self.spec
        own = {
            "broker.id": str(spec.id),
            "listeners": f"PLAINTEXT://{self.address}",
            "advertised.listeners": f"PLAINTEXT://{self.address}",
            "log.dirs": ",".join(str(path) for path in spec.log_dirs),
        }
        return own | ({} if spec.rack is None else {"broker.rack": spec.rack})

    def _check_listeners(self, text: str) -> None:
        """Refuse listeners at which this cluster would wait for the broker forever."""
        if all(entry.rpartition(":")[2] != str(self.spec.port) for entry in parse_csv(text)):
            raise OperationError(
                f"broker {self.id} is expected on port {self.spec.port}, but its listeners have no such port: {text}",
                hint=f"let listeners name port {self.spec.port}, or give the first broker's port with --port",
            )

    def _held_stdin(self) -> int:
        """Return the reading end of a pipe that stays open until ``let_go``."""
        reading, self._held_by = os.pipe()
        return reading

    def _new_output(self) -> bytes:
        if not self.output_path.exists():
            return b""
        with self.output_path.open("rb") as output:
            output.seek(self._output_offset)
            return output.read()


def _environment(logs_path: Path) -> dict[str, str]:
    return {**os.environ, "LOG_DIR": str(logs_path)}


def write_private(path: Path, text: str) -> None:
    """Write a file that nobody but its owner can read at any moment."""
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
