"""A cluster, open: its ZooKeeper side and its wire side, each connected when it is first needed.

    async with Cluster(target, observe=print) as cluster:
        wire = await cluster.wire()
        zk = await cluster.zookeeper()
"""

from __future__ import annotations

from types import TracebackType

from engine.admin.errors import AdminError, BadRequest, Unreachable
from engine.admin.target import ClusterTarget, Side
from engine.admin.wire import Observer, WireCluster, tell_nobody
from engine.zk.client import ZkClient
from engine.zk.errors import ConnectTimedOut, NoNode, ZooKeeperError
from engine.zk.kafka_client import KafkaZkClient

CLIENT_NAME = "klamm"
ZOOKEEPER_TIMEOUT_MS = 10_000


class Cluster:
    """One cluster for the time of an operation. Use it from one event loop."""

    def __init__(self, target: ClusterTarget, *, observe: Observer = tell_nobody, timeout_s: float = 30.0) -> None:
        self.target = target
        self.observe = observe
        self.timeout_s = timeout_s
        self._zk: KafkaZkClient | None = None
        self._wire: WireCluster | None = None

    async def __aenter__(self) -> Cluster:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def reads_from(self) -> Side:
        return self.target.reads_from

    @property
    def changes_by(self) -> Side:
        return self.target.changes_by

    async def zookeeper(self) -> KafkaZkClient:
        """Return the client of the cluster's ZooKeeper.

        Raises:
            BadRequest: no ZooKeeper is named.
            Unreachable: it does not answer.
        """
        if self._zk is not None:
            return self._zk
        connect = self.target.zookeeper
        if connect is None:
            raise BadRequest("this needs ZooKeeper", hint="give --zookeeper HOST:PORT[/chroot]")
        timeout_ms = int(min(self.timeout_s * 1000, ZOOKEEPER_TIMEOUT_MS))
        try:
            client = await ZkClient.connect(
                connect,
                session_timeout_ms=ZOOKEEPER_TIMEOUT_MS,
                connection_timeout_ms=timeout_ms,
                client_name=CLIENT_NAME,
                make_chroot=False,
            )
        except ConnectTimedOut as error:
            hint = "is it running there? look at the address, or start one here: klamm local up"
            raise Unreachable("ZooKeeper cannot be reached", where=connect, hint=hint) from error
        except NoNode as error:
            hint = "a cluster's brokers make it: look at the part after the slash"
            raise Unreachable("the chroot does not exist in ZooKeeper", where=connect, hint=hint) from error
        except ZooKeeperError as error:
            raise Unreachable(str(error), where=connect) from error
        self.observe(f"connected to ZooKeeper {connect}")
        self._zk = KafkaZkClient(client)
        return self._zk

    async def wire(self) -> WireCluster:
        """Return the cluster's brokers: those named, or else those registered in ZooKeeper.

        Raises:
            Unreachable: nobody is named or registered.
        """
        if self._wire is None:
            bootstrap = self.target.bootstrap or await self._registered()
            self._wire = WireCluster(bootstrap, properties=self.target.client_properties, observe=self.observe)
        return self._wire

    async def close(self) -> None:
        """Close what is open."""
        wire, self._wire = self._wire, None
        zk, self._zk = self._zk, None
        try:
            if wire is not None:
                await wire.close()
        finally:
            if zk is not None:
                await zk.close()

    async def _registered(self) -> tuple[tuple[str, int], ...]:
        zk = await self.zookeeper()
        found = []
        for broker in await zk.brokers():
            plain = [e for e in broker.endpoints if e.security_protocol.name == "PLAINTEXT"]
            found += [(endpoint.host, endpoint.port) for endpoint in plain]
        if not found:
            raise Unreachable("no broker is registered", where=self.target.zookeeper, hint="start the cluster's brokers")
        self.observe(f"brokers found in ZooKeeper: {', '.join(f'{host}:{port}' for host, port in found)}")
        return tuple(found)


def zookeeper_failure(error: ZooKeeperError, connect: str | None) -> AdminError:
    """Return how a failure of ZooKeeper is told to a person."""
    return Unreachable(str(error), where=connect)
