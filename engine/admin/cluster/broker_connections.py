"""Connections to the brokers of one cluster: each opens when first needed, and stays open until the command ends."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress

from engine.admin.cluster.errors import AdminError, LoginRefused, Unreachable
from engine.admin.cluster.remedies import CHECK_NAME, START_IT, UNRESOLVED
from engine.admin.cluster.waits import Complain, Observer, Waits
from engine.admin.cluster.wire_failures import unreachable
from engine.common.errors import ErrorCode
from engine.common.model import address_text
from engine.kafka.client.broker_client import BrokerClient
from engine.kafka.client.errors import NetworkError
from engine.kafka.client.listener_probe import explained
from engine.kafka.client.security import ANONYMOUS, Security
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.describe_delegation_token import DescribeDelegationTokenRequest

Address = tuple[str, int]
"""A broker's host and port."""

FindAddresses = Callable[[], Awaitable[Sequence[Address]]]
"""Finds further brokers of the cluster."""

CONNECT_TIMEOUT_MAX_S = 10.0
GREETING_PATIENCE_S = 1.0
"""After this long without an answer from one bootstrap broker, try the next as well."""


class BrokerConnections:
    """The connections by address. ``WireCluster`` decides which broker to ask; this opens, finds and closes them."""

    def __init__(
        self,
        *,
        client_id: str,
        security: Security,
        connect_timeout_s: float,
        request_timeout_ms: int,
        observe: Observer,
        complain: Complain,
        find_more: FindAddresses | None,
        waits: Waits,
    ) -> None:
        self._client_id = client_id
        self._security = security
        self._connect_timeout_ms = int(min(connect_timeout_s, CONNECT_TIMEOUT_MAX_S) * 1000)
        self._request_timeout_ms = request_timeout_ms
        self._observe = observe
        self._complain = complain
        self._find_more = find_more
        self._waits = waits
        self._clients: dict[Address, BrokerClient] = {}
        self._connecting: dict[Address, asyncio.Lock] = {}
        self.served: set[Address] = set()
        """Where a request was answered: their listeners ask for nothing more."""
        self.seen_as: dict[str | None, str | None] = {}
        """Who a certificate's subject is to the brokers, once they were asked; None: they do not say."""

    def get(self, address: Address) -> BrokerClient | None:
        """Return the connection to an address, open or broken; None if there was none yet."""
        return self._clients.get(address)

    async def client(self, address: Address) -> BrokerClient:
        """Return an open connection.

        Raises:
            Unreachable: the address accepts no connection.
        """
        client = self._clients.get(address)
        if client is None:
            client = BrokerClient(
                *address,
                client_id=self._client_id,
                connect_timeout_ms=self._connect_timeout_ms,
                request_timeout_ms=self._request_timeout_ms,
                security=self._security,
            )
            self._clients[address] = client
        # One caller connects; others that want the same broker wait for it.
        async with self._connecting.setdefault(address, asyncio.Lock()):
            if not client.is_connected:
                try:
                    with self._waits.on(client.address):
                        await client.connect()
                except NetworkError as error:
                    raise unreachable(await self.explained(error, client)) from error
                self._observe(f"connected to {client.address}")
        return client

    async def version(self, client: BrokerClient, key: ApiKey) -> int:
        """Return the version that a request to this broker will have."""
        try:
            with self._waits.on(client.address):
                return await client.version_for(key)
        except NetworkError as error:
            raise unreachable(await self.explained(error, client)) from error

    async def explained(self, error: NetworkError, client: BrokerClient) -> NetworkError:
        """Return what is wrong with a connection; if it was never served, its listener may ask for TLS or a login."""
        address = (client.host, client.port)
        return error if address in self.served else await explained(error, *address, self._security)

    async def close(self, reason: str) -> None:
        """Close all; requests that wait for an answer fail with the reason."""
        clients, self._clients = list(self._clients.values()), {}
        for client in clients:
            await client.close(reason)

    async def first_to_greet(self, addresses: Iterable[Address]) -> BrokerClient:
        """Return the first broker that says what it offers; try the next while one is silent.

        A frozen broker's kernel still accepts connections, so an open connection proves nothing. If none of the
        addresses answers, look for others.
        """
        waiting = list(addresses)
        absent: list[str] = []
        failure: Exception | None = None
        has_looked_further = False
        attempts: dict[asyncio.Task[BrokerClient | None], Address] = {}
        try:
            while waiting or attempts or self._find_more is not None:
                if not waiting and self._find_more is not None:
                    waiting = await self._look_further(addresses, absent)
                    has_looked_further = True
                if waiting:
                    address = waiting.pop(0)
                    attempts[asyncio.create_task(self._greet(address, absent), name="greeting")] = address
                if not attempts:
                    break
                patience_s = GREETING_PATIENCE_S if waiting or self._find_more is not None else None
                done, _ = await asyncio.wait(attempts, timeout=patience_s, return_when=asyncio.FIRST_COMPLETED)
                for attempt in done:
                    del attempts[attempt]
                    error = attempt.exception()
                    if isinstance(error, Exception):
                        failure = error
                    elif (client := attempt.result()) is not None:
                        # The newest attempt has only begun.
                        silent = [address_text(*tried) for tried in attempts.values() if tried != address]
                        if (absent or silent) and not has_looked_further:
                            self._complain(f"no answer from {', '.join((*absent, *silent))}: asking {client.address}")
                        return client
        finally:
            await self._give_up(attempts)
        if failure is not None:
            raise failure
        raise Unreachable(
            "no broker can be reached",
            where=", ".join(absent) or None,
            hint=CHECK_NAME if absent and all(reason.endswith(UNRESOLVED) for reason in absent) else START_IT,
        )

    async def _look_further(self, tried: Iterable[Address], absent: list[str]) -> list[Address]:
        """Return brokers that were not tried yet, from ``find_more``, which is called only once."""
        find_more, self._find_more = self._find_more, None
        assert find_more is not None
        silent = ", ".join(address_text(host, port) for host, port in tried)
        try:
            addresses = await find_more()
        except AdminError as error:
            absent.append(f"{error.where}")
            return []
        self._complain(f"no answer from {silent}: asking the brokers that ZooKeeper names")
        known = set(tried)
        return [address for address in addresses if address not in known]

    async def _greet(self, address: Address, absent: list[str]) -> BrokerClient | None:
        """Return a broker that has answered; note one that refuses the connection."""
        try:
            client = await self.client(address)
        except LoginRefused:
            raise
        except Unreachable as error:
            is_unknown = isinstance(getattr(error.__cause__, "__cause__", None), socket.gaierror)
            absent.append(f"{error.where}{UNRESOLVED if is_unknown else ''}")
            return None
        await self.version(client, ApiKey.METADATA)
        if self._security.names_by_certificate and not self.seen_as:
            await self._ask_who_this_is(client)
        return client

    async def _ask_who_this_is(self, client: BrokerClient) -> None:
        """Find out whether the broker has seen this client's certificate: a listener may ask for none.

        With TLS alone, a broker refuses to describe tokens to anonymous clients, and to no others. It decides that
        first, even if it has no tokens at all. The request names no owner, so it reads none.
        """
        named = self._security.principal
        if named == ANONYMOUS:
            return
        self.seen_as[named] = None
        with suppress(NetworkError):
            answer = await client.call(DescribeDelegationTokenRequest(owners=[]))
            is_anonymous = answer.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
            self.seen_as[named] = ANONYMOUS if is_anonymous else named

    async def _give_up(self, attempts: Mapping[asyncio.Task[BrokerClient | None], Address]) -> None:
        for attempt in attempts:
            attempt.cancel()
        await asyncio.gather(*attempts, return_exceptions=True)
        for address in attempts.values():
            client = self._clients.pop(address, None)
            if client is not None:
                await client.close("it does not answer")
