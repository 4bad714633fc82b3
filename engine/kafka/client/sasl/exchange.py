"""What all SASL mechanisms share: an exchange is a generator that yields what to send and is sent the answers."""

from __future__ import annotations

from collections.abc import Generator

from engine.common.errors import KlammError

Exchange = Generator[bytes, bytes, None]
"""Yields the client's tokens; each ``yield`` returns the server's answer. It ends when the client is done."""


class SaslError(KlammError):
    """The server's answer is wrong, or a token cannot be had. The text holds no secret."""
