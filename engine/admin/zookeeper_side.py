"""The ZooKeeper side of a cluster, opened for a tool. A tool makes no chroot and gives up sooner than a broker."""

from __future__ import annotations

from engine.admin.errors import Unreachable
from engine.common.model import SecurityProtocol
from engine.zk.client import ZkClient
from engine.zk.errors import ConnectTimedOut, NoNode, ZooKeeperError
from engine.zk.kafka_client import KafkaZkClient

SESSION_TIMEOUT_MS = 10_000
CONNECT_TIMEOUT_MAX_S = 10.0


async def open_zookeeper(connect: str, *, timeout_s: float) -> KafkaZkClient:
    """Open a session and return the client.

    Raises:
        Unreachable: nobody answers in time, or the chroot does not exist.
    """
    try:
        client = await ZkClient.connect(
            connect,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            connection_timeout_ms=int(min(timeout_s, CONNECT_TIMEOUT_MAX_S) * 1000),
            client_name="klamm",
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
    return KafkaZkClient(client)


async def registered_addresses(zk: KafkaZkClient) -> tuple[tuple[str, int], ...]:
    """Return the addresses that the live brokers take plain connections at."""
    return tuple(
        (endpoint.host, endpoint.port)
        for broker in await zk.brokers()
        for endpoint in broker.endpoints
        if endpoint.security_protocol is SecurityProtocol.PLAINTEXT
    )
