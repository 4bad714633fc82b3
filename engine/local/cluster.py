"""A whole cluster on this machine: a real ZooKeeper and N broker processes. For trying things out, and for tests.

    with LocalCluster(3) as cluster:
        connect(cluster.bootstrap_servers)
        cluster.kill_broker(1)
        cluster.start_broker(1)

All calls block. When it ends it ends what it started: brokers first, because they wait for ZooKeeper. The kernel kills
everything when this process is killed. Only a detached cluster survives; ``LocalCluster.attach`` finds it again by
``local.json``.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from engine.common.errors import OperationError
from engine.common.model import address_text
from engine.kafka.client.security import PLAINTEXT, security_of
from engine.kafka.config.properties import parse_properties
from engine.local.addresses import FIRST_BROKER_PORT, PortReservations, own_loopback_address
from engine.local.cluster_record import FILE_NAME, ClusterRecord, broker_directory
from engine.local.local_broker import BROKER_COMMAND, METRICS_LISTENER, BrokerStatus, LocalBroker, LocalBrokerSpec
from engine.local.probe import controller_id, four_letter_word, known_broker_ids
from engine.local.processes import refuse_unless_linux
from engine.local.zookeeper import EmbeddedZooKeeper

if TYPE_CHECKING:
    # Only secured clusters load what makes certificates and users.
    from engine.local.security import LocalSecurity

_POLL_S = 0.01


FIRST_METRICS_PORT = 7071
"""Where guides and examples for Kafka have the JMX exporter."""


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """A local cluster, as ``klamm local status`` shows it."""

    zookeeper: str
    zookeeper_alive: bool
    bootstrap_servers: str
    dir: str
    brokers: tuple[BrokerStatus, ...]
    zookeeper_pid: int | None = None
    zookeeper_paused: bool = False
    command_config: str | None = None
    """The properties file of the administrator; None: the cluster is not secured."""


class LocalCluster:
    """A ZooKeeper and brokers on this machine. Use as a context manager, or call ``start`` and ``stop``.

    Args:
        brokers: how many, or their ids.
        directory: kept after the end; None is a temporary folder, removed by ``stop``.
        host: address of all servers; None takes a loopback address of the cluster's own, with Kafka's usual ports.
        zookeeper_port: None takes 2181 if free, else a free one below 32768.
        first_broker_port: the first broker's, the others follow; None takes 9092 … as far as they are free.
        racks: of the brokers in their order; a shorter list starts again, an empty one means no racks.
        config: settings of every broker, under Kafka's names.
        broker_config: settings of single brokers by id; they win.
        log_dir_count: log dirs of every broker.
        secure: the brokers' listener speaks TLS; certificates, users and their files are made at the start.
        sasl: users of a secured cluster log in by this mechanism; None: by certificates.
        acls: a secured cluster's users may do only what ACLs allow.
        commands: other programs than ours by broker id, such as Apache Kafka's; the properties file is appended.
        chroot: the path in ZooKeeper that holds everything.
        metrics: each broker serves its metrics, at a port of its own: 7071 … as far as they are free.
        fsync: flush ZooKeeper's transaction log before each answer.
        detached: everything outlives this process; ``stop`` after ``attach`` ends it.
        start_timeout_s: how long ``start`` and similar methods wait until brokers serve.
    """

    def __init__(
        self,
        brokers: int | Sequence[int] = 3,
        *,
        directory: Path | None = None,
        host: str | None = None,
        zookeeper_port: int | None = None,
        first_broker_port: int | None = None,
        racks: Sequence[str] = (),
        config: Mapping[str, str] | None = None,
        broker_config: Mapping[int, Mapping[str, str]] | None = None,
        log_dir_count: int = 1,
        secure: bool = False,
        sasl: str | None = None,
        acls: bool = False,
        commands: Mapping[int, Sequence[str]] | None = None,
        chroot: str = "",
        metrics: bool = False,
        fsync: bool = False,
        detached: bool = False,
        start_timeout_s: float = 60.0,
    ) -> None:
        refuse_unless_linux()
        self.broker_ids = tuple(range(brokers)) if isinstance(brokers, int) else tuple(brokers)
        self.host = own_loopback_address() if host is None else host
        self.chroot = chroot
        self.brokers: dict[int, LocalBroker] = {}
        self._is_temporary = directory is None
        self._directory = None if directory is None else directory.absolute()
        self._zookeeper_port = zookeeper_port
        self._first_broker_port = first_broker_port
        self._racks = tuple(racks)
        self._settings = _default_settings(len(self.broker_ids)) | dict(config or {})
        self._broker_config = dict(broker_config or {})
        self._log_dir_count = log_dir_count
        self._commands = dict(commands or {})
        self._has_metrics = metrics
        self._fsync = fsync
        self._detached = detached
        self.start_timeout_s = start_timeout_s
        self._zookeeper: EmbeddedZooKeeper | None = None
        self._secure, self._sasl, self._acls = secure, sasl, acls
        self._protocol = "PLAINTEXT"
        self._client_security = PLAINTEXT
        self._command_config: Path | None = None

    @classmethod
    def attach(cls, directory: Path, *, start_timeout_s: float = 60.0) -> LocalCluster:
        """Find a cluster that an earlier process started detached in a folder.

        Raises:
            OperationError: there is none, or its record cannot be read.
        """
        record = ClusterRecord.read(directory.absolute())
        servers, slash, chroot = record.zookeeper.partition("/")
        host, _, port = servers.rpartition(":")
        cluster = cls(
            list(record.brokers),
            directory=directory,
            host=host.removeprefix("[").removesuffix("]"),
            zookeeper_port=int(port),
            chroot=slash + chroot,
            fsync=record.fsync,
            config=record.settings,
            log_dir_count=max((spec.log_dir_count for spec, _ in record.brokers.values()), default=1),
            detached=True,
            start_timeout_s=start_timeout_s,
        )
        cluster._zookeeper = cluster._make_zookeeper()
        if record.command_config is not None:
            cluster._connect_with(Path(record.command_config))
        if record.zookeeper_process is not None:
            cluster._zookeeper.attach(record.zookeeper_process)
        for broker_id, (spec, process) in record.brokers.items():
            broker = LocalBroker(spec)
            broker.attach(process)
            cluster.brokers[broker_id] = broker
            cluster._has_metrics = cluster._has_metrics or METRICS_LISTENER in spec.overrides
        return cluster

    # The whole

    def start(self) -> None:
        """Start ZooKeeper and all brokers; returns when every broker serves and all know each other.

        Raises:
            OperationError: a cluster runs in this folder, something is missing or taken, or a broker ended or did not
                serve in time.
        """
        self._refuse_if_running()
        if self._directory is None:
            self._directory = Path(tempfile.mkdtemp(prefix="klamm-local-"))
        directory, is_new = self.directory, not self.directory.exists()
        directory.mkdir(parents=True, exist_ok=True)
        try:
            with PortReservations() as ports:
                self._start_all(ports)
        except BaseException:
            self.stop()
            if is_new:
                # Keep the logs: they say why it did not start.
                with suppress(OSError):
                    directory.rmdir()
            raise

    def _start_all(self, ports: PortReservations) -> None:
        self._zookeeper = self._make_zookeeper()
        self._zookeeper.launch()
        security = self._make_security() if self._secure else None
        self._choose_ports(ports)
        if security is not None:
            self._connect_with(security.write_clients(self.bootstrap_servers))
        if not self._commands:
            # klamm's brokers load their code while ZooKeeper starts.
            self._launch_brokers(self.broker_ids, {}, held=True)
        self._zookeeper.wait_until_serving()
        if security is not None:
            asyncio.run(security.make_users(self.zookeeper_connect))
        if self._commands:
            self._launch_brokers(self.broker_ids, {})
        for broker in self.brokers.values():
            broker.let_go()
        self.wait_until_serving(self.broker_ids)

    def stop(self, timeout_s: float = 15.0) -> None:
        """End the brokers (TERM, then KILL), then ZooKeeper. A temporary cluster is killed, and its folder removed."""
        if self._is_temporary:
            # Its logs are not read again, so nothing needs an orderly close.
            self.kill()
        else:
            self._end_brokers(timeout_s)
            if self._zookeeper is not None:
                self._zookeeper.stop()
        if self._directory is not None:
            (self._directory / FILE_NAME).unlink(missing_ok=True)
            if self._command_config is not None:
                from engine.local.security import remove_security

                remove_security(self._directory)
            if self._is_temporary:
                shutil.rmtree(self._directory, ignore_errors=True)
                self._directory = None

    def kill(self) -> None:
        """End everything as a crash does (SIGKILL)."""
        for broker in self.brokers.values():
            broker.kill()
        if self._zookeeper is not None:
            self._zookeeper.kill()

    def _end_brokers(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        # A broker asks the controller for a controlled shutdown, and waits long for one that is gone: end the
        # controller last.
        last = self.controller_id()
        for broker in self.brokers.values():
            if broker.id != last:
                broker.request_stop()
        for broker in sorted(self.brokers.values(), key=lambda each: each.id == last):
            broker.stop(max(deadline - time.monotonic(), 0.1))

    def __enter__(self) -> LocalCluster:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def directory(self) -> Path:
        """Folder of everything: ``zookeeper/``, ``broker-<id>/`` and ``local.json``."""
        if self._directory is None:
            raise OperationError("the cluster's temporary folder is created when it starts", hint="call start() first")
        return self._directory

    @property
    def zookeeper(self) -> EmbeddedZooKeeper:
        if self._zookeeper is None:
            raise OperationError("the cluster has not been started", hint="call start() first")
        return self._zookeeper

    @property
    def zookeeper_connect(self) -> str:
        """``host:port/chroot``, as Kafka's ``zookeeper.connect``."""
        return self.zookeeper.connect_string + self.chroot

    @property
    def bootstrap_servers(self) -> str:
        """The brokers' addresses, as clients want them."""
        return ",".join(broker.address for broker in self.brokers.values())

    def controller_id(self) -> int | None:
        """Return the controller's broker id from the first broker that answers; None if no broker knows one."""
        for broker in self.brokers.values():
            if broker.is_alive and not broker.is_paused:
                controller = controller_id(broker.spec.host, broker.spec.port, security=self._client_security)
                if controller is not None:
                    return controller
        return None

    def status(self) -> ClusterStatus:
        server = self.zookeeper.process
        return ClusterStatus(
            self.zookeeper_connect,
            self.zookeeper.is_running,
            self.bootstrap_servers,
            str(self.directory),
            tuple(broker.status() for broker in self.brokers.values()),
            None if server is None or not server.is_alive else server.pid,
            server is not None and server.is_paused,
            None if self._command_config is None else str(self._command_config),
        )

    # Its ZooKeeper

    def start_zookeeper(self) -> None:
        """Start the ZooKeeper that was stopped or killed, on the same data and port, and wait until it serves."""
        self.zookeeper.start()
        self.write_record()

    def stop_zookeeper(self, timeout_s: float = 10.0) -> bool:
        """End ZooKeeper (TERM, then KILL); False when it had to be killed."""
        was_enough = self.zookeeper.stop(timeout_s)
        self.write_record()
        return was_enough

    def kill_zookeeper(self) -> None:
        """End ZooKeeper as a crash does (SIGKILL)."""
        self.zookeeper.kill()
        self.write_record()

    # Single brokers

    def broker(self, broker_id: int) -> LocalBroker:
        """Return one broker; raises OperationError if there is none with this id."""
        if broker_id not in self.brokers:
            ids = ", ".join(map(str, self.brokers)) or "none"
            raise OperationError(f"no broker {broker_id} in this cluster", hint=f"its brokers are {ids}")
        return self.brokers[broker_id]

    def start_broker(self, broker_id: int, overrides: Mapping[str, str] | None = None) -> None:
        """Start a broker that is not running, and wait until it serves; do nothing if it is running.

        Args:
            overrides: settings for this start only.
        """
        self.start_brokers([broker_id], overrides)

    def start_brokers(self, broker_ids: Iterable[int], overrides: Mapping[str, str] | None = None) -> None:
        """Start the brokers that are not running, all at once, and wait until they serve."""
        stopped = [broker_id for broker_id in broker_ids if not self.broker(broker_id).is_alive]
        if stopped:
            self._launch_brokers(stopped, overrides or {})
            self.wait_until_serving(stopped)

    def stop_broker(self, broker_id: int, timeout_s: float = 30.0) -> bool:
        """End a broker by a controlled shutdown; False when it had to be killed."""
        was_enough = self.broker(broker_id).stop(timeout_s)
        self.write_record()
        return was_enough

    def kill_broker(self, broker_id: int) -> None:
        """End a broker as a crash does (SIGKILL)."""
        self.broker(broker_id).kill()
        self.write_record()

    def pause_broker(self, broker_id: int) -> None:
        """Freeze a broker (SIGSTOP)."""
        self.broker(broker_id).pause()

    def resume_broker(self, broker_id: int) -> None:
        """Let a paused broker continue (SIGCONT)."""
        self.broker(broker_id).resume()

    def restart_broker(self, broker_id: int, overrides: Mapping[str, str] | None = None) -> None:
        """End a broker by a controlled shutdown and start it again."""
        self.stop_broker(broker_id)
        self.start_broker(broker_id, overrides)

    def add_broker(self, broker_id: int, *, rack: str | None = None, config: Mapping[str, str] | None = None) -> None:
        """Start one more broker with an id of its own, and wait until it serves."""
        if broker_id in self.brokers:
            raise OperationError(f"broker {broker_id} is in this cluster already", hint="choose another id")
        last = max((broker.spec.port for broker in self.brokers.values()), default=FIRST_BROKER_PORT - 1)
        with PortReservations() as ports:
            for broker in self.brokers.values():
                # A broker that is stopped keeps its port.
                ports.take(self.host, broker.spec.port)
            port = self._broker_port(last + 1, ports)
            self._broker_config[broker_id] = dict(config or {})
            self._choose_metrics_port(broker_id, ports)
            self.brokers[broker_id] = LocalBroker(self._spec(broker_id, port, rack))
            self.broker_ids = tuple(self.brokers)
            self._launch_brokers([broker_id], {})
            self.wait_until_serving([broker_id])

    def wait_until_serving(self, broker_ids: Iterable[int] | None = None) -> None:
        """Wait until brokers serve: each is registered and answers, and all running ones know them.

        Raises:
            OperationError: one ended, or the time is up.
        """
        wanted = list(self.brokers if broker_ids is None else broker_ids)
        deadline = time.monotonic() + self.start_timeout_s
        waiting = list(wanted)
        while waiting := [each for each in waiting if not self._is_serving(self.broker(each))]:
            self._pause_or_give_up(deadline, f"did not serve within {self.start_timeout_s:.0f} s", waiting)
        unaware = list(self.brokers.values())
        # One that was not asked for may die, or be paused, while klamm waits for it.
        while unaware := [
            broker
            for broker in unaware
            if broker.id in wanted or (broker.is_alive and not broker.is_paused)
            if not self._knows(broker, wanted)
        ]:
            for broker_id in wanted:
                self._is_serving(self.broker(broker_id))
            ids = [broker.id for broker in unaware]
            self._pause_or_give_up(deadline, f"did not learn of all others within {self.start_timeout_s:.0f} s", ids)

    def write_record(self) -> None:
        """Record in ``local.json`` what runs now; the methods of this class call it."""
        server = self.zookeeper.process
        record = ClusterRecord(
            self.zookeeper_connect,
            None if server is None else server.identity,
            self._fsync,
            self._settings,
            {
                broker.id: (broker.spec, None if broker.process is None else broker.process.identity)
                for broker in self.brokers.values()
            },
            None if self._command_config is None else str(self._command_config),
        )
        record.write(self.directory)

    # Inside

    def _refuse_if_running(self) -> None:
        if self._directory is None or not (self._directory / FILE_NAME).exists():
            return
        earlier = LocalCluster.attach(self._directory)
        if earlier.zookeeper.is_running or any(broker.is_alive for broker in earlier.brokers.values()):
            raise OperationError(
                f"a local cluster already runs in {self._directory}",
                hint="use it, end it with klamm local down, or choose another folder",
            )

    def _make_zookeeper(self) -> EmbeddedZooKeeper:
        return EmbeddedZooKeeper(
            self.directory / "zookeeper",
            host=self.host,
            port=self._zookeeper_port,
            fsync=self._fsync,
            detached=self._detached,
        )

    def _make_security(self) -> LocalSecurity:
        from engine.local.security import LocalSecurity

        security = LocalSecurity(self.directory, self.host, self._sasl, has_acls=self._acls)
        security.write_stores()
        self._settings = security.broker_settings() | self._settings
        self._protocol = security.protocol
        return security

    def _connect_with(self, command_config: Path) -> None:
        """Ask secured brokers as their administrator."""
        self._command_config = command_config
        self._protocol = self._settings["security.inter.broker.protocol"]
        # Somebody may have removed the file; the cluster can be ended all the same.
        with suppress(OSError):
            self._client_security = security_of(parse_properties(command_config.read_text("ascii")))

    def _choose_ports(self, ports: PortReservations) -> None:
        first = FIRST_BROKER_PORT if self._first_broker_port is None else self._first_broker_port
        for position, broker_id in enumerate(self.broker_ids):
            port = self._broker_port(first + position, ports)
            self._choose_metrics_port(broker_id, ports, position)
            rack = self._racks[position % len(self._racks)] if self._racks else None
            self.brokers[broker_id] = LocalBroker(self._spec(broker_id, port, rack))

    def _broker_port(self, preferred: int, ports: PortReservations) -> int:
        return preferred if self._first_broker_port is not None else ports.take_any(self.host, preferred)

    def _choose_metrics_port(self, broker_id: int, ports: PortReservations, position: int = 0) -> None:
        if self._has_metrics:
            listener = address_text(self.host, ports.take_any(self.host, FIRST_METRICS_PORT + position))
            self._broker_config[broker_id] = {METRICS_LISTENER: listener, **self._broker_config.get(broker_id, {})}

    def _spec(self, broker_id: int, port: int, rack: str | None) -> LocalBrokerSpec:
        listener = f"{self._protocol}://{address_text(self.host, port)}"
        own = {} if self._protocol == "PLAINTEXT" else {"listeners": listener, "advertised.listeners": listener}
        return LocalBrokerSpec(
            broker_id,
            self.host,
            port,
            broker_directory(self.directory, broker_id),
            rack,
            self._log_dir_count,
            own | dict(self._broker_config.get(broker_id, {})),
            tuple(self._commands.get(broker_id, BROKER_COMMAND)),
        )

    def _launch_brokers(self, broker_ids: Sequence[int], overrides: Mapping[str, str], *, held: bool = False) -> None:
        """Start the brokers' processes, which do not serve yet."""
        settings = {"zookeeper.connect": self.zookeeper_connect} | self._settings
        try:
            for broker_id in broker_ids:
                self.broker(broker_id).start(settings, overrides, detached=self._detached, held=held)
        finally:
            # Write it before they serve: an interrupted command then leaves nothing that cannot be found.
            self.write_record()

    def _is_serving(self, broker: LocalBroker) -> bool:
        return broker.has_started(self._client_security) and self._is_registered(broker.id)

    def _is_registered(self, broker_id: int) -> bool:
        path = f"{self.chroot}/brokers/ids/{broker_id}"
        try:
            sessions = four_letter_word(self.zookeeper.host, self.zookeeper.port, "dump")
        except OSError:
            return False
        return path in sessions.split()

    def _knows(self, broker: LocalBroker, broker_ids: Iterable[int]) -> bool:
        spec = broker.spec
        return known_broker_ids(spec.host, spec.port, security=self._client_security) >= set(broker_ids)

    def _pause_or_give_up(self, deadline: float, reason: str, broker_ids: Sequence[int]) -> None:
        if time.monotonic() > deadline:
            names = ", ".join(f"broker {broker_id}" for broker_id in broker_ids)
            words = "; ".join(self.broker(broker_id).last_words() for broker_id in broker_ids)
            raise OperationError(f"{names} {reason}: {words}", hint=f"see the logs in {self.directory}")
        time.sleep(_POLL_S)


def _default_settings(broker_count: int) -> dict[str, str]:
    """What a small cluster on one machine needs: internal topics that fit it, no waiting for further members."""
    replicas = str(min(3, broker_count))
    return {
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": str(min(2, broker_count)),
        "group.initial.rebalance.delay.ms": "0",
        # A killed broker's id is free again after this time; Kafka's 18 s suit networks.
        "zookeeper.session.timeout.ms": "6000",
        # The last brokers of a cluster have no other broker to hand their partitions to; Kafka would try three times
        # for 5 s.
        "controlled.shutdown.retry.backoff.ms": "500",
    }
