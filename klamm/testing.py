"""A real Kafka cluster for your tests: a ZooKeeper and brokers on this machine, which end with the tests.

    from klamm.testing import LocalCluster

    with LocalCluster(3) as cluster:
        connect(cluster.bootstrap_servers)
        cluster.kill_broker(1)
        cluster.start_broker(1)

All calls block. A separate process, ``klamm local up --stdin``, holds the cluster and ends with this one, however this
one ends. Nothing of klamm's internals is imported here.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any

__all__ = ["LocalBroker", "LocalCluster", "LocalZooKeeper", "OperationError"]

_PROGRAM = (sys.executable, "-P", "-m", "klamm", "local")

Settings = Mapping[str, str | int | bool]
"""Settings under Kafka's names."""


class OperationError(Exception):
    """Something could not be done; ``hint`` says what to do about it, if that is known."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(f"{message}\nhint: {hint}" if hint else message)
        self.message = message
        self.hint = hint


class LocalCluster:
    """A ZooKeeper and brokers on this machine. Use as a context manager, or call ``start`` and ``stop``.

    Args:
        brokers: how many, or their ids.
        directory: kept at the end; None means a temporary folder, which ``stop`` removes.
        host: address of all servers; None takes a loopback address of the cluster's own, with Kafka's usual ports.
        zookeeper_port: None takes 2181 if free, else a free one below 32768.
        first_broker_port: the first broker's, the others follow; None takes 9092 … or free ones.
        racks: of the brokers in their order; shorter lists start again, none means no racks.
        config: settings of every broker, under Kafka's names.
        broker_config: settings of single brokers by id, which override ``config``.
        log_dir_count: log dirs of every broker.
        secure: TLS, with a CA, certificates and the users ``admin``, ``alice`` and ``bob`` made for this cluster; needs
            ``klamm[security]``.
        sasl: users of a secured cluster log in by ``plain``, ``scram-sha-256`` or ``scram-sha-512``; None: by
            certificates.
        acls: in a secured cluster only ``admin`` may do everything, others what ACLs allow.
        chroot: the znode under which the cluster keeps everything in ZooKeeper.
        fsync: flush ZooKeeper's transaction log before each answer.
        start_timeout_s: how long ``start`` and the like wait until brokers serve.
    """

    def __init__(
        self,
        brokers: int | Sequence[int] = 3,
        *,
        directory: Path | str | None = None,
        host: str | None = None,
        zookeeper_port: int | None = None,
        first_broker_port: int | None = None,
        racks: Sequence[str] = (),
        config: Settings | None = None,
        broker_config: Mapping[int, Settings] | None = None,
        log_dir_count: int = 1,
        secure: bool = False,
        sasl: str | None = None,
        acls: bool = False,
        chroot: str = "",
        fsync: bool = False,
        start_timeout_s: float = 60.0,
    ) -> None:
        ids = ["--brokers", str(brokers)] if isinstance(brokers, int) else ["--broker-ids", ",".join(map(str, brokers))]
        self._words = [
            *ids,
            *(["--temporary"] if directory is None else ["--dir", str(Path(directory).absolute())]),
            *("--host", host or "own"),
            *_option("--zookeeper-port", zookeeper_port),
            *_option("--port", first_broker_port),
            *_option("--racks", ",".join(racks) or None),
            *_settings("--config", config),
            *(
                word
                for number, settings in (broker_config or {}).items()
                for word in _settings("--broker-config", settings, number)
            ),
            *("--log-dirs", str(log_dir_count)),
            *(["--secure"] if secure else []),
            *_option("--sasl", sasl),
            *(["--acls"] if acls else []),
            *_option("--chroot", chroot or None),
            *(["--fsync"] if fsync else ["--no-fsync"]),
            *("--timeout", str(start_timeout_s)),
        ]
        self._holder: _Holder | None = None
        self._status: dict[str, Any] = {}

    # The whole cluster

    def start(self) -> None:
        """Start ZooKeeper and all brokers; returns when every broker serves and all know each other.

        Raises:
            OperationError: a cluster runs in this folder, something is missing or taken, or a broker ended or did not
                serve in time.
        """
        if self._holder is None:
            self._holder = _Holder(self._words)
            try:
                self._status = self._holder.first_answer()
            except BaseException:
                self.stop()
                raise

    def stop(self) -> None:
        """End everything; a temporary folder is removed, a named one stays. Nothing happens if nothing runs."""
        if self._holder is not None:
            self._holder.close()
            self._holder = None

    def __enter__(self) -> LocalCluster:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def bootstrap_servers(self) -> str:
        """The brokers' addresses, as clients want them."""
        return str(self._known("bootstrap_servers"))

    @property
    def zookeeper_connect(self) -> str:
        """``host:port/chroot``, as Kafka's ``zookeeper.connect``."""
        return str(self._known("zookeeper"))

    @property
    def directory(self) -> Path:
        """The cluster's folder: ``zookeeper/`` and ``broker-<id>/``, each with its logs."""
        return Path(self._known("dir"))

    def client_properties(self, user: str = "admin") -> Path:
        """Return the properties file with which Java's tools and clients log in as a user of a secured cluster.

        Raises:
            OperationError: the cluster is not secured, or has no such user.
        """
        return self._client_file(user, "properties")

    def librdkafka_config(self, user: str = "admin") -> dict[str, str]:
        """Return what ``confluent_kafka`` takes to log in as a user of a secured cluster, addresses included.

        Raises:
            OperationError: the cluster is not secured, or has no such user.
        """
        lines = self._client_file(user, "kcat").read_text("utf-8").splitlines()
        return dict(line.split("=", 1) for line in lines)

    def _client_file(self, user: str, kind: str) -> Path:
        if self._known("command_config") is None:
            raise OperationError("the cluster is not secured", hint="start it with secure=True")
        path = self.directory / f"{'client' if user == 'admin' else user}.{kind}"
        if not path.exists():
            raise OperationError(f"no user {user!r} in this cluster", hint="its users are admin, alice and bob")
        return path

    @property
    def broker_ids(self) -> tuple[int, ...]:
        """The ids of all brokers, including those that do not run."""
        return tuple(broker["id"] for broker in self._known("brokers"))

    @property
    def brokers(self) -> dict[int, LocalBroker]:
        """All brokers by id, including those that do not run."""
        return {broker_id: LocalBroker(self, broker_id) for broker_id in self.broker_ids}

    @property
    def zookeeper(self) -> LocalZooKeeper:
        """The ZooKeeper server."""
        return LocalZooKeeper(self)

    def controller_id(self) -> int | None:
        """Return the controller's broker id as the first broker that answers names it; None if no broker knows one."""
        controller: int | None = self._ask("controller")["controller"]
        return controller

    def wait_until_serving(self, broker_ids: Iterable[int] | None = None) -> None:
        """Wait until brokers serve (None: all), and all running brokers know them.

        Raises:
            OperationError: a broker ended, or the time is up.
        """
        self._change("wait", *map(str, broker_ids or ()))

    # Single brokers

    def broker(self, broker_id: int) -> LocalBroker:
        """Return one broker; raises OperationError if there is none with this id."""
        if broker_id not in self.broker_ids:
            raise OperationError(
                f"no broker {broker_id} in this cluster", hint=f"its brokers are {', '.join(map(str, self.broker_ids))}"
            )
        return LocalBroker(self, broker_id)

    def start_broker(self, broker_id: int, overrides: Settings | None = None) -> None:
        """Start a broker and wait until it serves; nothing happens if it runs already.

        Args:
            overrides: settings for this start alone.
        """
        self._change("start", str(broker_id), *_settings("--config", overrides))

    def stop_broker(self, broker_id: int, timeout_s: float = 30.0) -> bool:
        """End a broker by a controlled shutdown; return False if it had to be killed."""
        return self._change("stop", str(broker_id), "--timeout", str(timeout_s)) == 0

    def kill_broker(self, broker_id: int) -> None:
        """End a broker as a crash does (SIGKILL); nothing happens to one that does not run."""
        if self.broker(broker_id).is_alive:
            self._change("kill", str(broker_id))

    def pause_broker(self, broker_id: int) -> None:
        """Stop a broker's clock (SIGSTOP)."""
        self._change("kill", str(broker_id), "--signal", "STOP")

    def resume_broker(self, broker_id: int) -> None:
        """Resume a paused broker (SIGCONT)."""
        self._change("kill", str(broker_id), "--signal", "CONT")

    def restart_broker(self, broker_id: int, overrides: Settings | None = None) -> None:
        """End a broker by a controlled shutdown and start it again."""
        self.stop_broker(broker_id)
        self.start_broker(broker_id, overrides)

    def add_broker(self, broker_id: int, *, rack: str | None = None, config: Settings | None = None) -> None:
        """Start one more broker with an id of its own, and wait until it serves."""
        self._change("add", str(broker_id), *_option("--rack", rack), *_settings("--config", config))

    # Inside

    def _known(self, name: str) -> Any:
        """Return what the last answer said; it stays available after the end."""
        if not self._status:
            raise OperationError("the cluster has not been started", hint="call start() first")
        return self._status[name]

    def _refresh(self) -> dict[str, Any]:
        self._change("status")
        return self._status

    def _change(self, *words: str) -> int:
        """Carry out a command whose answer says what runs then; return its exit code, 0 or 1."""
        code, self._status = self._running().ask(words)
        return code

    def _ask(self, *words: str) -> Any:
        return self._running().ask(words)[1]

    def _running(self) -> _Holder:
        if self._holder is None:
            raise OperationError(
                "the cluster is not running", hint="call start() first, or use it inside its with block"
            )
        return self._holder


class LocalBroker:
    """One broker of a cluster; each property is read anew."""

    def __init__(self, cluster: LocalCluster, broker_id: int) -> None:
        self.id = broker_id
        self._cluster = cluster

    @property
    def address(self) -> str:
        """``host:port``."""
        broker = self._found()
        return f"{broker['host']}:{broker['port']}"

    @property
    def pid(self) -> int | None:
        """Its process; None if it does not run."""
        pid: int | None = self._found()["pid"]
        return pid

    @property
    def is_alive(self) -> bool:
        """Whether its process exists; a paused one does."""
        return bool(self._found()["alive"])

    @property
    def logs_path(self) -> Path:
        """Folder of server.log, controller.log and state-change.log."""
        return self._cluster.directory / f"broker-{self.id}" / "logs"

    def _found(self) -> dict[str, Any]:
        brokers: list[dict[str, Any]] = self._cluster._refresh()["brokers"]
        return next(broker for broker in brokers if broker["id"] == self.id)


class LocalZooKeeper:
    """The ZooKeeper of a cluster; each property is read anew."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster

    @property
    def connect_string(self) -> str:
        """``host:port``, without the cluster's chroot."""
        return self._cluster.zookeeper_connect.partition("/")[0]

    @property
    def is_running(self) -> bool:
        """Whether its process exists; a paused one does."""
        return bool(self._cluster._refresh()["zookeeper_alive"])

    def start(self) -> None:
        """Start it on the same data and port, and wait until it serves; nothing happens if it runs."""
        self._cluster._change("start", "zookeeper")

    def stop(self, timeout_s: float = 10.0) -> bool:
        """End it (TERM, then KILL); return False if it had to be killed."""
        return self._cluster._change("stop", "zookeeper", "--timeout", str(timeout_s)) == 0

    def kill(self) -> None:
        """End it as a crash does (SIGKILL); nothing happens if it does not run."""
        if self.is_running:
            self._cluster._change("kill", "zookeeper")

    def restart(self) -> None:
        """End it (TERM) and start it again."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """Stop its clock (SIGSTOP): it keeps its connections and answers nothing."""
        self._cluster._change("kill", "zookeeper", "--signal", "STOP")

    def resume(self) -> None:
        """Resume it (SIGCONT)."""
        self._cluster._change("kill", "zookeeper", "--signal", "CONT")


class _Holder:
    """The process that holds a cluster. It reads commands from standard input, and ends with it."""

    def __init__(self, words: Sequence[str]) -> None:
        self._asking = threading.Lock()
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  (as long as the process)
        self._process = subprocess.Popen(
            [*_PROGRAM, "up", *words, "--stdin", "-o", "jsonl"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            # A Ctrl-C in the terminal is for the tests, which then end the cluster.
            start_new_session=True,
        )

    def first_answer(self) -> dict[str, Any]:
        """Wait until the cluster serves and return what runs."""
        return self._answer()

    def ask(self, words: Sequence[str]) -> tuple[int, Any]:
        """Carry out one command of ``klamm local``; return its exit code, 0 or 1, and its answer.

        Raises:
            OperationError: the command failed, or the process has ended.
        """
        line = shlex.join([*words, "-o", "json"])
        if "\n" in line:
            raise OperationError(f"a line break in a setting or a name: {line!r}")
        assert self._process.stdin is not None
        with self._asking:
            try:
                self._process.stdin.write(line.encode() + b"\n")
                self._process.stdin.flush()
            except BrokenPipeError:
                raise self._end() from None
            answer = self._answer()
        if answer["code"] > 1:
            raise _error(answer["stderr"])
        return answer["code"], json.loads(answer["stdout"])

    def close(self) -> None:
        """Close the input, and wait until the whole cluster has ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        # A line that can no longer be written is not needed.
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        # While the cluster starts, the process does not read the input.
        self._process.terminate()
        self._process.wait()
        self._process.stdout.close()
        self._errors.close()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise self._end()
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _end(self) -> OperationError:
        """Return why the process has ended."""
        self._process.wait()
        self._errors.seek(0)
        return _error(self._errors.read().decode("utf-8", "replace"))


def _error(printed: str) -> OperationError:
    """Return the error that a command printed on stderr: its last line, a JSON object."""
    last = printed.strip().rpartition("\n")[2]
    try:
        error = json.loads(last)["error"]
        return OperationError(error["message"], hint=error["hint"])
    except (ValueError, KeyError, TypeError):
        return OperationError(last or "the process that holds the cluster has ended without a message")


def _option(name: str, value: object) -> list[str]:
    return [] if value is None else [name, str(value)]


def _settings(option: str, settings: Settings | None, broker_id: int | None = None) -> list[str]:
    """Return settings as options: ``K=V``, or ``ID:K=V`` for those of one broker."""
    prefix = "" if broker_id is None else f"{broker_id}:"
    words = []
    for key, value in (settings or {}).items():
        text = str(value).lower() if isinstance(value, bool) else str(value)
        words += [option, f"{prefix}{key}={text}"]
    return words
