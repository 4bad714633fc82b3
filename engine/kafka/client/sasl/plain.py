"""SASL PLAIN (RFC 4616): user name and password in clear, so only TLS protects them."""

from __future__ import annotations

from engine.kafka.client.sasl.exchange import Exchange


def plain_exchange(username: str, password: str) -> Exchange:
    """Send name and password in one message; Kafka takes an authorization id only if it is the name."""
    yield f"\0{username}\0{password}".encode()
