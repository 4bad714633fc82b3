"""Finds out what a listener that closes connections without an answer expects: TLS, or a login. Sends no secret."""

from __future__ import annotations

import asyncio
import ssl

from engine.common.errors import RemoteProtocolError
from engine.common.model import SecurityProtocol, address_text
from engine.kafka.client.broker_client import BrokerClient
from engine.kafka.client.errors import ConnectionLost, NetworkError, NotAdmitted
from engine.kafka.client.security import Security
from engine.kafka.protocol.apis.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

_PATIENCE_S = 3.0


async def explained(error: NetworkError, host: str, port: int, security: Security) -> NetworkError:
    """Return why the listener closed a connection that was never served, if that is found out; else the error itself.

    Args:
        error: of a connection with this security.
    """
    is_unspoken = isinstance(error, ConnectionLost) or type(error) is NotAdmitted
    if not is_unspoken:
        return error
    address = address_text(host, port)
    if security.tls is None and await _speaks_tls(host, port):
        known = "SASL_SSL" if security.sasl is not None else "SSL or SASL_SSL"
        return NotAdmitted("what listens there speaks TLS", address=address, hint=f"set security.protocol={known}")
    if security.sasl is None and (mechanisms := await _mechanisms(host, port, security)):
        protocol = SecurityProtocol.SASL_PLAINTEXT if security.tls is None else SecurityProtocol.SASL_SSL
        return NotAdmitted(
            f"this listener asks for a login: it has {', '.join(mechanisms)}",
            address=address,
            hint=f"set security.protocol={protocol.name}, sasl.mechanism and sasl.jaas.config",
        )
    return error


async def _speaks_tls(host: str, port: int) -> bool:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        async with asyncio.timeout(_PATIENCE_S):
            _, writer = await asyncio.open_connection(host, port, ssl=context)
    except ssl.SSLError as error:
        # An alert is TLS, too.
        return "ALERT" in (error.reason or "")
    except (OSError, EOFError, TimeoutError):
        return False
    writer.transport.abort()
    return True


async def _mechanisms(host: str, port: int, security: Security) -> list[str]:
    """Return by which mechanisms a listener lets people log in; none if it asks for no login."""
    client = BrokerClient(host, port, client_id="klamm", security=security)
    try:
        async with asyncio.timeout(_PATIENCE_S):
            answer: SaslHandshakeResponse = await client.send(SaslHandshakeRequest(mechanism=""), 1)
            return list(answer.mechanisms)
    except (NetworkError, RemoteProtocolError, TimeoutError):
        return []
    finally:
        await client.close("it has answered")
