"""Which processes hang: a frozen one keeps its port, while one that has ended refuses connections."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from engine.admin.cluster.client_properties import ClientProperties
from engine.admin.cluster.target import ClusterTarget
from engine.common.errors import RemoteProtocolError
from engine.common.model import BrokerInfo, address_text

_AFTER_S, _SHARE = 2.0, 0.1


def hung_after_s(timeout_s: float) -> float:
    """Return after which silence a process hangs, for a command that has ``timeout_s``."""
    return min(_AFTER_S, timeout_s * _SHARE)


async def hung_brokers(brokers: Iterable[BrokerInfo], properties: ClientProperties, limit_s: float) -> frozenset[int]:
    """Return which of these registered brokers hang."""
    asked = {
        broker.id: endpoint for broker in brokers if (endpoint := broker.endpoint_for(properties.security_protocol))
    }
    hang = await asyncio.gather(*(hangs((at.host, at.port), properties, limit_s) for at in asked.values()))
    return frozenset(broker for broker, is_hung in zip(asked, hang, strict=True) if is_hung)


def absent_addresses(target: ClusterTarget, live: Iterable[BrokerInfo]) -> list[tuple[str, int]]:
    """Return the addresses that the caller named, but for those of live brokers; none if it asks ZooKeeper only."""
    known = {(endpoint.host, endpoint.port) for broker in live for endpoint in broker.endpoints}
    return [address for address in target.bootstrap if target.may_ask_brokers and address not in known]


async def hung_addresses(target: ClusterTarget, live: Iterable[BrokerInfo], limit_s: float) -> tuple[str, ...]:
    """Return which of the addresses that the caller named hang, but for those of live brokers."""
    absent = absent_addresses(target, live)
    hang = await asyncio.gather(*(hangs(address, target.client_properties, limit_s) for address in absent))
    return tuple(address_text(*address) for address, is_hung in zip(absent, hang, strict=True) if is_hung)


async def hangs(address: tuple[str, int], properties: ClientProperties, limit_s: float) -> bool:
    """Whether an address takes connections, and answers nothing: no TLS handshake, no login and no request."""
    from engine.kafka.client.broker_client import BrokerClient
    from engine.kafka.client.errors import NetworkError
    from engine.kafka.protocol.api_keys import ApiKey

    # The time ends here, so that the client's own limits do not hide how far it came.
    limit_ms = int(limit_s * 2000)
    client = BrokerClient(
        *address,
        client_id=properties.client_id,
        connect_timeout_ms=limit_ms,
        request_timeout_ms=limit_ms,
        security=properties.security,
    )
    is_taken = False
    try:
        async with asyncio.timeout(limit_s):
            _, writer = await asyncio.open_connection(*address)
            writer.close()
            is_taken = True
            await client.connect()
            await client.version_for(ApiKey.METADATA)
    except TimeoutError:
        return is_taken
    except (NetworkError, RemoteProtocolError, OSError):
        return False
    finally:
        await client.close()
    return False
