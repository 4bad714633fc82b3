"""How connections are protected: ``security.protocol`` and related keys, read from a client's properties."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from engine.common.errors import ConfigError
from engine.common.model import SecurityProtocol

if TYPE_CHECKING:
    # Most connections are plain: their programs start without what TLS and SASL import.
    from engine.kafka.client.jaas import LoginModule
    from engine.kafka.client.sasl.settings import SaslSettings
    from engine.kafka.client.tls.context import TlsSettings

ANONYMOUS = "User:ANONYMOUS"
_TLS = (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)
_SASL = (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


@dataclass(frozen=True, slots=True)
class Security:
    """The security of connections. It can be pickled, compared and shown: no secret is in its ``repr``."""

    protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    tls: TlsSettings | None = field(default=None, repr=False)
    """None: no TLS."""
    sasl: SaslSettings | None = None
    """None: no login."""

    @property
    def names_by_certificate(self) -> bool:
        """Whether a certificate alone says who this is, if it has one and the listener asks for it."""
        return self.sasl is None and self.tls is not None

    @property
    def principal(self) -> str | None:
        """Who this is to the brokers, unless they have rules that change names; None if only they know.

        Raises:
            ConfigError: the key store cannot be read.
        """
        if self.sasl is not None:
            return self.sasl.principal
        if self.tls is None:
            return ANONYMOUS
        from engine.kafka.client.tls.certificate import subject_of
        from engine.kafka.client.tls.context import own_chain

        chain = own_chain(self.tls)
        return f"User:{subject_of(chain[0])}" if chain else ANONYMOUS


PLAINTEXT = Security()


def plaintext() -> Security:
    """Return no security, where a callable is expected that is asked at each connection."""
    return PLAINTEXT


def security_of(entries: Mapping[str, str], jaas: LoginModule | None = None) -> Security:
    """Return what a client's properties say. Stores are read when the first connection opens.

    Raises:
        ConfigError: a value is unknown, malformed or missing; the message holds no secret.
    """
    name = entries.get("security.protocol", "PLAINTEXT").strip().upper()
    try:
        protocol = SecurityProtocol[name]
    except KeyError:
        known = ", ".join(protocol.name for protocol in SecurityProtocol)
        raise ConfigError(f"security.protocol={name} is not one of {known}") from None
    if protocol is SecurityProtocol.PLAINTEXT:
        return PLAINTEXT
    from engine.kafka.client.sasl.settings import sasl_settings
    from engine.kafka.client.tls.context import tls_settings
    from engine.kafka.config.values import java_trim

    # As Kafka does: a line of a properties file, or a file with a password, often ends in a blank.
    trimmed = {key: java_trim(value) for key, value in entries.items()}
    return Security(
        protocol,
        tls_settings(trimmed) if protocol in _TLS else None,
        sasl_settings(trimmed, jaas) if protocol in _SASL else None,
    )
