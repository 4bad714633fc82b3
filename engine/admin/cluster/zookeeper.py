"""A cluster's ZooKeeper, opened for a tool. A tool creates no chroot, and gives up sooner than a broker."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from engine.admin.cluster.errors import BadRequest, LoginRefused, Unreachable, ZooKeeperDead
from engine.admin.cluster.remedies import CHECK_NAME, START_IT, UNRESOLVED, Give, Parameter, Part, Phrase
from engine.common.errors import ConfigError
from engine.common.model import SecurityProtocol, address_text
from engine.kafka.zk.client import ZkClient
from engine.kafka.zk.connect_string import server_addresses
from engine.kafka.zk.errors import ConnectTimedOut, NoNode, NotAdmitted, ZooKeeperError
from engine.kafka.zk.security import OPEN, ZkSecurity
from engine.runtime.offload import in_daemon_thread

if TYPE_CHECKING:
    from engine.kafka.zk.brokers import BrokerRegistration

SESSION_TIMEOUT_MS = 10_000
CONNECT_TIMEOUT_MAX_S = 10.0
CONNECT_TIMEOUT_BESIDE_BROKERS_S = 4.0
"""The limit if brokers can be asked instead: long enough for ZooKeeper to elect a leader."""
LISTENING_PATIENCE_S = 1.0
"""After this long without a session, check whether a server listens and answers at all."""
_LOOK_S = 1.5
_LOOK_AGAIN_S = 0.5
_WORD_S = 0.5
_NO_SERVICE = b"This ZooKeeper instance is not currently serving requests"
"""What a server of ZooKeeper 3.4 to 3.9 answers to srvr while it has no leader."""


async def open_zookeeper(
    connect: str,
    *,
    timeout_s: float,
    security: ZkSecurity = OPEN,
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
        LoginRefused: TLS or the login failed.
        BadRequest: a store for TLS cannot be used.
        ZooKeeperDead: each server refuses connections, or none answers in time.
        Unreachable: no way leads there, or the chroot does not exist.
    """
    instead = Phrase("; the brokers may answer: ", Give(Parameter.VIA, "wire")) if has_brokers else Phrase()
    connect_s_max = CONNECT_TIMEOUT_BESIDE_BROKERS_S if has_brokers else CONNECT_TIMEOUT_MAX_S
    opening = asyncio.create_task(
        _open(connect, security, timeout_s, connect_s_max, instead, session_timeout_ms, patience_s),
        name="open-zookeeper",
    )
    try:
        done, _ = await asyncio.wait({opening}, timeout=min(LISTENING_PATIENCE_S, timeout_s * 0.3))
        if not done:
            looked = await look(connect)
            is_shut = security.tls is None and looked.only_closes and await _still_closes(connect)
            is_open = opening.done() or (looked.says_a_word and not is_shut)
            # Without brokers, wait for it, unless no server is there.
            if not is_open and (has_brokers or is_shut or max(looked.found) <= _Found.REFUSAL):
                raise looked.error(connect, instead)
        return await opening
    except BaseException:
        opening.cancel()
        (opened,) = await asyncio.gather(opening, return_exceptions=True)
        if isinstance(opened, ZkClient):
            # It opened just when the caller gave up; nothing else would close it.
            await opened.close()
        raise


class _Found(IntEnum):
    """What a look at a server found."""

    UNRESOLVED = 0
    """Its name cannot be resolved: that says nothing about whether it lives."""
    NO_WAY = 1
    """There is no route to it, which says as little."""
    REFUSAL = 2
    NO_CONNECTION = 3
    """None yet: a firewall drops packets, or a frozen ZooKeeper's queue of connections is full."""
    SILENCE = 4
    """A connection without an answer: the kernel of a frozen server still accepts connections."""
    CLOSED = 5
    """It takes connections and closes them without a word: a port for TLS, or there are too many from this address."""
    NO_SERVICE = 6
    """A live server that gives no session: its ensemble is electing a leader, or it has lost the others."""
    A_WORD = 7
    """A live server."""


@dataclass(frozen=True, slots=True)
class Look:
    """What a look at all ZooKeeper servers found. It ends with the first answer from one of them."""

    found: Collection[_Found]

    @property
    def says_a_word(self) -> bool:
        """Whether a server is alive. A port for TLS only closes connections that do not begin with TLS."""
        return max(self.found) >= _Found.CLOSED

    @property
    def is_dead(self) -> bool:
        """Whether each server refuses connections or keeps silent: the brokers most likely wait for it, too."""
        return set(self.found) <= {_Found.REFUSAL, _Found.NO_CONNECTION, _Found.SILENCE}

    @property
    def only_closes(self) -> bool:
        """Whether the best that a server does is to close connections."""
        return max(self.found) is _Found.CLOSED

    def error(self, connect: str, instead: Part = "") -> Unreachable:
        """Return the error for a ZooKeeper that does not answer."""
        if set(self.found) == {_Found.REFUSAL}:
            return ZooKeeperDead("ZooKeeper refuses connections", where=connect, hint=Phrase(START_IT, instead))
        if self.only_closes:
            return Unreachable("ZooKeeper closes connections", where=connect, hint=Phrase(_WHY_CLOSED, instead))
        if max(self.found) <= _Found.REFUSAL:
            is_unresolved = _Found.UNRESOLVED in self.found
            where, hint = (f"{connect}{UNRESOLVED}", CHECK_NAME) if is_unresolved else (connect, START_IT)
            return Unreachable("ZooKeeper cannot be reached", where=where, hint=Phrase(hint, instead))
        kind = ZooKeeperDead if self.is_dead else Unreachable
        why = _why_silent(takes_connections=_Found.SILENCE in self.found)
        return kind("ZooKeeper does not answer", where=connect, hint=Phrase(why, instead))


_WHY_CLOSED = Phrase(
    "if this port is for TLS, set zookeeper.ssl.client.enable=true; else a broker listens there (name it with ",
    Parameter.BOOTSTRAP_SERVERS,
    "), or ZooKeeper takes no more connections from this address (maxClientCnxns)",
)


async def _still_closes(connect: str) -> bool:
    """Look again: a server that is only starting closes connections too."""
    await asyncio.sleep(_LOOK_AGAIN_S)
    return (await look(connect)).only_closes


async def look(connect: str) -> Look:
    """Ask every server for a sign of life."""
    looks = [asyncio.create_task(_look_at(*server), name="look-at-zookeeper") for server in server_addresses(connect)]
    servers: list[_Found] = []
    try:
        for look in asyncio.as_completed(looks):
            servers.append(await look)
            if servers[-1] is _Found.A_WORD:
                break
    finally:
        for each in looks:
            each.cancel()
        await asyncio.gather(*looks, return_exceptions=True)
    return Look(servers)


async def servers_down(connect: str, security: ZkSecurity = OPEN) -> tuple[str, ...]:
    """Return which servers of an ensemble do not serve, and why; empty if the caller names one server only.

    A session shows nothing of it: it goes to whichever server answers. With TLS, a server that takes connections counts
    as one that serves: it would log each word that is no TLS as an error.
    """
    count, down = await _down(connect, security)
    return tuple(f"{why}; {count - len(down)} of {count} servers serve" for why in down)


async def _down(connect: str, security: ZkSecurity) -> tuple[int, list[str]]:
    """Return how many servers an ensemble has, and why some of them do not serve."""
    servers = server_addresses(connect)
    if len(servers) < 2:
        return len(servers), []
    says_a_word = security.tls is None
    states = await asyncio.gather(*(_look_at(*server, says_a_word=says_a_word) for server in servers))
    return len(servers), [
        f"{address_text(*server)} {_WHY_DOWN[each]}"
        for server, each in zip(servers, states, strict=True)
        if each in _WHY_DOWN
    ]


_WHY_DOWN = {
    _Found.UNRESOLVED: "has a name that cannot be resolved here",
    _Found.NO_WAY: "cannot be reached from here",
    _Found.REFUSAL: "refuses connections",
    _Found.NO_CONNECTION: "takes no connection",
    _Found.SILENCE: "takes connections and does not answer",
    _Found.NO_SERVICE: "runs without the others: it gives no sessions",
}


async def _look_at(host: str, port: int, *, says_a_word: bool = True) -> _Found:
    try:
        async with asyncio.timeout(_LOOK_S):
            addresses = await _resolve(host, port)
    except socket.gaierror:
        return _Found.UNRESOLVED
    except (OSError, TimeoutError):
        return _Found.NO_WAY
    return max(await asyncio.gather(*(_greet(*address, says_a_word=says_a_word) for address in addresses)))


async def _resolve(host: str, port: int) -> list[tuple[str, int]]:
    """Return each address of a server: asyncio does not say why, if it can connect to none of several.

    A name server may be silent for half a minute, and others need asyncio's few threads: a name has a thread of its
    own, which all who look it up meanwhile wait for.
    """
    lookups = _LOOKUPS.setdefault(asyncio.get_running_loop(), {})
    lookup = lookups.get(host)
    if lookup is None:
        lookup = lookups[host] = in_daemon_thread(
            lambda: socket.getaddrinfo(host, None, type=socket.SOCK_STREAM), f"look up {host}"
        )
        lookup.add_done_callback(lambda _: lookups.pop(host, None))
    return list(dict.fromkeys((str(info[4][0]), port) for info in await asyncio.shield(lookup)))


_LOOKUPS: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, asyncio.Future[list[Any]]]] = WeakKeyDictionary()
"""Names that are being looked up."""


async def _greet(address: str, port: int, *, says_a_word: bool) -> _Found:
    writer = None
    try:
        async with asyncio.timeout(_LOOK_S):
            reader, writer = await asyncio.open_connection(address, port)
            if not says_a_word:
                return _Found.CLOSED
            writer.write(b"srvr")
            with suppress(TimeoutError):
                async with asyncio.timeout(_WORD_S):
                    return _understood(await reader.read(len(_NO_SERVICE)))
            # A port for TLS waits for the fifth byte of a record, and sees by it that this is none.
            writer.write(b"\n")
            return _understood(await reader.read(len(_NO_SERVICE)))
    except TimeoutError:
        return _Found.NO_CONNECTION if writer is None else _Found.SILENCE
    except ConnectionRefusedError:
        return _Found.REFUSAL
    except OSError:
        return _Found.NO_WAY if writer is None else _Found.CLOSED
    finally:
        if writer is not None:
            writer.close()


def _understood(answer: bytes) -> _Found:
    if not answer:
        return _Found.CLOSED
    return _Found.NO_SERVICE if answer == _NO_SERVICE else _Found.A_WORD


def _why_silent(*, takes_connections: bool) -> Part:
    who = Phrase(
        "a ZooKeeper that hangs or lacks its majority, or a broker (name it with ", Parameter.BOOTSTRAP_SERVERS, ")"
    )
    return Phrase("a server listens there: ", who) if takes_connections else "it hangs, or a firewall blocks it"


async def _open(
    connect: str,
    security: ZkSecurity,
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
            security=security,
            make_chroot=False,
            patience_ms=None if patience_s is None else int(patience_s * 1000),
        )
    except ConnectTimedOut as error:
        _, down = await _down(connect, security)
        why = "; ".join(down) or _why_silent(takes_connections=True)
        raise ZooKeeperDead("ZooKeeper does not answer", where=connect, hint=Phrase(why, instead)) from error
    except NoNode as error:
        hint = (
            "a cluster's first broker creates it: check the part after the slash; to set something before a broker "
            f"starts, create it with ZooKeeper's own tool: zkCli.sh create {error.path}"
        )
        raise Unreachable("the chroot does not exist in ZooKeeper", where=connect, hint=hint) from error
    except NotAdmitted as error:
        raise LoginRefused(str(error), where=connect, hint=error.hint) from error
    except ConfigError as error:
        raise BadRequest(str(error)) from error
    except ZooKeeperError as error:
        raise Unreachable(str(error), where=connect) from error


async def read_brokers(zk: ZkClient) -> list[BrokerRegistration]:
    """Return the live brokers by id; a broker whose znode ZooKeeper does not return is left out.

    Raises:
        ZnodeFormatError: what a broker registered cannot be understood.
    """
    from engine.kafka.zk.kafka_client import KafkaZkClient
    from engine.kafka.zk.reads import or_raise

    registrations = (await KafkaZkClient(zk).brokers.read_broker_registrations()).values()
    return [or_raise(read) for read in registrations if not isinstance(read, ZooKeeperError)]


async def registered_addresses(zk: ZkClient, protocol: SecurityProtocol) -> tuple[tuple[str, int], ...]:
    """Return the addresses at which the live brokers speak a security protocol."""
    return tuple(
        (endpoint.host, endpoint.port)
        for registration in await read_brokers(zk)
        for endpoint in registration.broker.endpoints_for(protocol)
    )
