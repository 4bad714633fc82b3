"""What all SASL mechanisms share, and the simplest of them, PLAIN.

An exchange is a generator: it yields the messages to send, and gets the answers through ``send``.
"""

from __future__ import annotations

from collections.abc import Generator

from engine.common.errors import KlammError

Exchange = Generator[bytes, bytes, None]
"""Yields the client's tokens; each ``yield`` returns the server's answer. It ends when the client is done."""


class SaslError(KlammError):
    """The server's answer is wrong, or a token cannot be obtained. The text holds no secret."""


def plain_exchange(username: str, password: str) -> Exchange:
    """Send name and password in clear, in one message (SASL PLAIN, RFC 4616): only TLS protects them.

    Kafka takes an authorization id only if it is the name.
    """
    yield f"\0{username}\0{password}".encode()
