"""The ZooKeeper side of a cluster, opened for a tool. A tool makes no chroot and gives up sooner than a broker."""

from __future__ import annotations

import asyncio
import socket
from enum import IntEnum
from typing import TYPE_CHECKING

from engine.admin.cluster.errors import Unreachable, ZooKeeperSilent
from engine.admin.cluster.remedies import CHECK_NAME, START_IT, UNRESOLVED, Give, Parameter, Phrase
from engine.common.model import SecurityProtocol
from engine.zk.client import ZkClient, server_addresses
from engine.zk.errors import ConnectTimedOut, NoNode, ZooKeeperError

if TYPE_CHECKING:
    from engine.zk.znodes.broker_znodes import BrokerRegistration

SESSION_TIMEOUT_MS = 10_000
CONNECT_TIMEOUT_MAX_S = 10.0
CONNECT_TIMEOUT_BESIDE_BROKERS_S = 4.0
"""The limit if brokers can be asked instead: long enough for ZooKeeper to elect a leader."""
LISTENING_PATIENCE_S = 1.0
"""After this long without a session, check whether anybody listens and answers at all."""
_LOOK_S = 1.5


async def open_zookeeper(
    connect: str,
    *,
    timeout_s: float,
    has_brokers: bool = False,
    session_timeout_ms: int = SESSION_TIMEOUT_MS,
    patience_s: float | None = None,
) -> ZkClient:
    """Open a session and return the client.

    Args:
        has_brokers: the caller could ask brokers instead; the error says so.
        patience_s: how long after ZooKeeper falls silent calls end with SessionLost; None: they wait for its return.
        session_timeout_ms: how long ZooKeeper keeps the session of a client that is gone, and its ephemeral znodes.

    Raises:
        ZooKeeperSilent: nobody answers in time.
        Unreachable: nobody is there, or the chroot does not exist.
    """
    instead = Phrase("; the brokers may answer: ", Give(Parameter.VIA, "wire")) if has_brokers else Phrase()
    connect_s_max = CONNECT_TIMEOUT_BESIDE_BROKERS_S if has_brokers else CONNECT_TIMEOUT_MAX_S
    opening = asyncio.create_task(
        _open(connect, timeout_s, connect_s_max, instead, session_timeout_ms, patience_s), name="open-zookeeper"
    )
    try:
        done, _ = await asyncio.wait({opening}, timeout=min(LISTENING_PATIENCE_S, timeout_s * 0.3))
        if not done:
            unknown: list[str] = []
            found = await _look(connect, unknown)
            if found is _Found.NOBODY:
                where, hint = (f"{connect}{UNRESOLVED}", CHECK_NAME) if unknown else (connect, START_IT)
                raise Unreachable("ZooKeeper cannot be reached", where=where, hint=Phrase(hint, instead))
            if found is not _Found.SOMEBODY and has_brokers and not opening.done():
                raise _silent(connect, instead, takes_connections=found is _Found.SILENCE)
        return await opening
    finally:
        opening.cancel()
        await asyncio.gather(opening, return_exceptions=True)


class _Found(IntEnum):
    """What a look at the servers has found; the largest counts."""

    NOBODY = 0
    NO_CONNECTION = 1
    """None yet: a firewall drops packets, or a frozen ZooKeeper's queue of connections is full."""
    SILENCE = 2
    """A connection without an answer: the kernel of a frozen server still accepts connections."""
    SOMEBODY = 3
    """A live server. One that is electing a leader answers, but gives no session."""


async def _look(connect: str, unknown: list[str]) -> _Found:
    """Ask every server for an answer; ``unknown`` gets the names that cannot be resolved."""

    async def look(host: str, port: int) -> _Found:
        writer = None
        try:
            async with asyncio.timeout(_LOOK_S):
                reader, writer = await asyncio.open_connection(host, port)
                writer.write(b"srvr")
                await reader.read(1)
        except TimeoutError:
            return _Found.NO_CONNECTION if writer is None else _Found.SILENCE
        except socket.gaierror:
            unknown.append(host)
            return _Found.NOBODY
        except OSError:
            return _Found.NOBODY if writer is None else _Found.SOMEBODY
        finally:
            if writer is not None:
                writer.close()
        return _Found.SOMEBODY

    return max(await asyncio.gather(*(look(host, port) for host, port in server_addresses(connect))))


def _silent(connect: str, instead: Phrase, *, takes_connections: bool = True) -> ZooKeeperSilent:
    who = Phrase("a ZooKeeper that hangs, or a broker (name it with ", Parameter.BOOTSTRAP_SERVERS, ")")
    told = Phrase("somebody listens there: ", who) if takes_connections else Phrase("it hangs, or a firewall blocks it")
    return ZooKeeperSilent("ZooKeeper does not answer", where=connect, hint=Phrase(told, instead))


async def _open(
    connect: str,
    timeout_s: float,
    connect_s_max: float,
    instead: Phrase,
    session_timeout_ms: int,
    patience_s: float | None,
) -> ZkClient:
    try:
        return await ZkClient.connect(
            connect,
            session_timeout_ms=session_timeout_ms,
            # Less than the operation has, so that it can say who did not answer; giving up takes a second more.
            connection_timeout_ms=int(min(timeout_s * 0.6, connect_s_max) * 1000),
            client_name="klamm",
            make_chroot=False,
            patience_ms=None if patience_s is None else int(patience_s * 1000),
        )
    except ConnectTimedOut as error:
        raise _silent(connect, instead) from error
    except NoNode as error:
        hint = "a cluster's brokers create it: check the part after the slash"
        raise Unreachable("the chroot does not exist in ZooKeeper", where=connect, hint=hint) from error
    except ZooKeeperError as error:
        raise Unreachable(str(error), where=connect) from error


async def read_brokers(zk: ZkClient) -> list[BrokerRegistration]:
    """Return the live brokers by id; a broker whose znode ZooKeeper does not return is left out.

    Raises:
        ZnodeFormatError: what a broker registered cannot be understood.
    """
    from engine.zk.kafka_client import KafkaZkClient
    from engine.zk.reads import or_raise

    found = (await KafkaZkClient(zk).brokers.read_broker_registrations()).values()
    return [or_raise(read) for read in found if not isinstance(read, ZooKeeperError)]


async def registered_addresses(zk: ZkClient) -> tuple[tuple[str, int], ...]:
    """Return the addresses at which the live brokers accept plain connections."""
    return tuple(
        (endpoint.host, endpoint.port)
        for registration in await read_brokers(zk)
        for endpoint in registration.broker.endpoints
        if endpoint.security_protocol is SecurityProtocol.PLAINTEXT
    )
