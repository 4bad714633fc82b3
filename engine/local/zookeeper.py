"""A real Apache ZooKeeper server as a child process. Standalone: no ensemble, not meant for production.

``engine.local.zookeeper_jars`` finds its jars, ``engine.local.java`` its Java.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from engine.common.errors import OperationError
from engine.common.model import address_text
from engine.local.addresses import ZOOKEEPER_PORT, PortReservations
from engine.local.java import find_java
from engine.local.probe import four_letter_word, opens_session
from engine.local.processes import LocalProcess, ProcessId, find_process, refuse_unless_linux, start_process
from engine.local.zookeeper_jars import zookeeper_classpath

_MAIN_CLASS = "org.apache.zookeeper.server.ZooKeeperServerMain"
_ENSEMBLE_CLASS = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
_ENSEMBLE_KEYS = ("server.", "dynamicConfigFile")
"""The other main class ignores them, and each server of the ensemble would serve data of its own."""
_START_TIMEOUT_S = 60.0
_POLL_S = 0.01
_PROBE_TIMEOUT_S = 0.5
"""A starting server may accept a connection and never answer it."""
_SIMPLE_LOG = "org.apache.logging.log4j.simplelog"


class EmbeddedZooKeeper:
    """One ZooKeeper server. Use as a context manager, or call ``start`` and ``stop``.

    Args:
        data_dir: kept after the end; None is a temporary folder, removed by ``stop``.
        host: address to listen on.
        port: port to listen on; None takes 2181 if free, else a free one below 32768.
        tick_time_ms: ZooKeeper's unit of time; sessions may be as short as two ticks.
        fsync: flush the transaction log before each answer. Without it a power cut, not a kill, loses writes.
        settings: further lines of ``zoo.cfg``, by key; they win over what is set here. With ``server.1=…`` and so on,
            this is one server of an ensemble, and serves when a majority runs.
        java_options: further options of Java, such as ``-Djava.security.auth.login.config=FILE``.
        detached: the server outlives this process.
    """

    def __init__(
        self,
        data_dir: Path | None = None,
        *,
        host: str = "127.0.0.1",
        port: int | None = None,
        tick_time_ms: int = 500,
        fsync: bool = True,
        settings: Mapping[str, str] | None = None,
        java_options: Sequence[str] = (),
        detached: bool = False,
    ) -> None:
        refuse_unless_linux()
        self.host = host
        self._is_temporary = data_dir is None
        self._data_dir = None if data_dir is None else data_dir.absolute()
        self._port = port
        self._reserved = PortReservations()
        self._tick_time_ms = tick_time_ms
        self._fsync = fsync
        self._settings = dict(settings or {})
        self._more_java_options = tuple(java_options)
        self._detached = detached
        self._process: LocalProcess | None = None
        self._output_offset = 0

    @property
    def port(self) -> int:
        """The port it listens on; known once it was started, or when it was given."""
        if self._port is None:
            raise OperationError("ZooKeeper's port is chosen when it starts", hint="call start() first, or give a port")
        return self._port

    @property
    def data_dir(self) -> Path:
        """Folder of its data, configuration and log; known once it was started, or when it was given."""
        if self._data_dir is None:
            raise OperationError("ZooKeeper's temporary folder is created when it starts", hint="call start() first")
        return self._data_dir

    @property
    def log_path(self) -> Path:
        """What the server logs and prints; restarts add to it."""
        return self.data_dir / "zookeeper.log"

    @property
    def connect_string(self) -> str:
        """``host:port``, as clients want it."""
        return address_text(self.host, self.port)

    @property
    def process(self) -> LocalProcess | None:
        """The server's process, or None before the start and after the end."""
        return self._process

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.is_alive

    def start(self) -> None:
        """Start the server and wait until it serves, about half a second.

        Raises:
            OperationError: as ``launch`` and ``wait_until_serving``.
        """
        if not self.is_running:
            self.launch()
            self.wait_until_serving()

    def launch(self) -> None:
        """Start the server's process, which does not serve yet. Until ``wait_until_serving`` its port is reserved.

        Raises:
            OperationError: Java or ZooKeeper's jars are missing, or the port is taken.
        """
        java, classpath = find_java(), zookeeper_classpath()
        self._reserve_port()
        if self._data_dir is None:
            self._data_dir = Path(tempfile.mkdtemp(prefix="klamm-zookeeper-"))
        self.data_dir.mkdir(parents=True, exist_ok=True)
        main_class = _ENSEMBLE_CLASS if any(key.startswith(_ENSEMBLE_KEYS) for key in self._settings) else _MAIN_CLASS
        command: list[str | Path] = [java.program, *self._java_options(), "-cp", classpath, main_class]
        command.append(self._write_configuration())
        self._output_offset = self.log_path.stat().st_size if self.log_path.exists() else 0
        self._process = start_process(command, output=self.log_path, free=self._detached)

    def wait_until_serving(self) -> None:
        """Wait until the server names its mode and a session opens. End a server that does not get that far.

        Raises:
            OperationError: it has ended, or did not serve in time.
        """
        deadline = time.monotonic() + _START_TIMEOUT_S
        try:
            while not self._is_serving():
                if not self.is_running:
                    raise OperationError(f"ZooKeeper ended while starting: {self._last_words()}", hint=self._log_hint())
                if time.monotonic() > deadline:
                    message = f"ZooKeeper did not serve within {_START_TIMEOUT_S:.0f} s"
                    raise OperationError(message, hint=self._log_hint())
                time.sleep(_POLL_S)
        except BaseException:
            self.stop()
            raise
        self._reserved.release()

    def attach(self, identity: ProcessId) -> bool:
        """Take over a detached server that an earlier process started; False when it is gone."""
        self._process = find_process(identity)
        return self._process is not None

    def stop(self, timeout_s: float = 10.0) -> bool:
        """End the server (TERM, then KILL); False when it had to be killed. Also remove a temporary folder.

        End brokers first, because they wait for it.
        """
        was_enough = True
        self._reserved.release()
        if self._process is not None:
            was_enough = self._process.stop(timeout_s)
            self._process = None
        if self._is_temporary and self._data_dir is not None:
            shutil.rmtree(self._data_dir, ignore_errors=True)
            self._data_dir = None
        return was_enough

    def kill(self) -> None:
        """End the server by KILL, as a crash does; data stays, ``start`` brings it back on the same port."""
        self._reserved.release()
        if self._process is not None:
            self._process.kill()
            self._process = None

    def restart(self) -> None:
        """End the server (TERM) and start it again on the same data and port."""
        if self._process is not None:
            self._process.stop()
            self._process = None
        self.start()

    def pause(self) -> None:
        """Freeze the server (SIGSTOP): it keeps its connections and answers nothing."""
        if self._process is not None:
            self._process.pause()

    def resume(self) -> None:
        """Let a paused server continue (SIGCONT)."""
        if self._process is not None:
            self._process.resume()

    def __enter__(self) -> EmbeddedZooKeeper:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _reserve_port(self) -> None:
        if self._port is None:
            self._port = self._reserved.take_any(self.host, ZOOKEEPER_PORT)
        elif not self._reserved.take(self.host, self._port):
            raise OperationError(
                f"ZooKeeper cannot listen on {address_text(self.host, self._port)}: the address is taken, or is not "
                "this machine's",
                hint="stop what listens there, or choose another port",
            )

    def _java_options(self) -> list[str]:
        return [
            "-Xmx256m",
            # The server is small and short-lived: less compilation and a simple collector halve its start time.
            "-XX:TieredStopAtLevel=1",
            "-XX:+UseSerialGC",
            "-XX:-UsePerfData",
            "-Djava.awt.headless=true",
            # Transaction logs grow by 64 KB instead of 64 MB.
            "-Dzookeeper.preAllocSize=64",
            f"-Dzookeeper.forceSync={'yes' if self._fsync else 'no'}",
            "-Dzookeeper.jmx.log4j.disable=true",
            # log4j would take a fifth of the start time; this logger writes to stderr.
            "-Dlog4j2.loggerContextFactory=org.apache.logging.log4j.simple.SimpleLoggerContextFactory",
            f"-D{_SIMPLE_LOG}.level=INFO",
            f"-D{_SIMPLE_LOG}.showdatetime=true",
            f"-D{_SIMPLE_LOG}.dateTimeFormat=[yyyy-MM-dd HH:mm:ss,SSS]",
            *self._more_java_options,
        ]

    def _write_configuration(self) -> Path:
        settings = {
            "tickTime": str(self._tick_time_ms),
            "dataDir": str(self.data_dir),
            "clientPort": str(self.port),
            "clientPortAddress": self.host,
            "maxClientCnxns": "0",
            # The default of twenty ticks would cut the 18 s that brokers ask for.
            "maxSessionTimeout": "120000",
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "*",
        } | self._settings
        path = self.data_dir / "zoo.cfg"
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), "utf-8")
        return path

    def _is_serving(self) -> bool:
        try:
            if "Mode:" not in four_letter_word(self.host, self.port, "srvr", _PROBE_TIMEOUT_S):
                return False
        except OSError:
            return False
        return opens_session(self.host, self.port, _PROBE_TIMEOUT_S)

    def _last_words(self) -> str:
        """Return what it said since its last start: the innermost cause of an exception, else its last line."""
        with self.log_path.open("rb") as log:
            log.seek(self._output_offset)
            lines = log.read().decode("utf-8", "replace").splitlines()
        shown = [line for line in lines if line.strip() and not line.startswith("\t")]
        causes = [line for line in shown if line.startswith("Caused by: ")]
        return (causes or shown or ["it left no message"])[-1]

    def _log_hint(self) -> str:
        return "it was temporary; give a data dir to keep its log" if self._is_temporary else f"see {self.data_dir}"
