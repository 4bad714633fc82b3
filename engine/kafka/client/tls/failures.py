"""What a failed TLS handshake means for a person: what was wrong, and what to do next."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any

from engine.common.model import address_text
from engine.kafka.client.errors import TlsFailed
from engine.kafka.client.tls.context import TlsSettings, client_context, without_host_name

_UNTRUSTED = "no CA in the trust store has signed the certificate"
_VERIFICATIONS = {
    7: (
        "the CA in the trust store has the name of the one that signed the certificate, but another key",
        "put the CA of the broker's certificate into ssl.truststore.location: it may have been renewed",
    ),
    9: ("the certificate is not valid yet", "check this machine's clock and the certificate's dates"),
    10: ("the certificate has expired", "the broker needs a new one; check this machine's clock too"),
    18: (_UNTRUSTED, "add the broker's certificate or its CA to ssl.truststore.location"),
    19: (_UNTRUSTED, "add the CA of the broker's certificate to ssl.truststore.location"),
    20: (_UNTRUSTED, "add the CA of the broker's certificate to ssl.truststore.location"),
    21: (_UNTRUSTED, "add the CA of the broker's certificate to ssl.truststore.location"),
}
"""By OpenSSL's verification code (``X509_V_ERR_…``)."""
_HOST_NAME = (62, 64)

_CLIENT_CERTIFICATE = "the broker refuses this client's certificate, or asks for one and got none"
_ITS_REMEDY = "set ssl.keystore.location to a certificate that its trust store knows"
_ALERTS = {
    "BAD_CERTIFICATE": (_CLIENT_CERTIFICATE, _ITS_REMEDY),
    "CERTIFICATE_UNKNOWN": (_CLIENT_CERTIFICATE, _ITS_REMEDY),
    "CERTIFICATE_REQUIRED": (_CLIENT_CERTIFICATE, _ITS_REMEDY),
    "CERTIFICATE_EXPIRED": ("this client's certificate has expired", "renew it"),
    "UNKNOWN_CA": (_CLIENT_CERTIFICATE, _ITS_REMEDY),
    "PROTOCOL_VERSION": ("no TLS version in common", "check ssl.enabled.protocols here and at the broker"),
    "HANDSHAKE_FAILURE": ("no cipher suite in common", "check ssl.cipher.suites and ssl.enabled.protocols"),
    "UNSUPPORTED_PROTOCOL": ("no TLS version in common", "check ssl.enabled.protocols here and at the broker"),
    "NO_CIPHERS_AVAILABLE": ("no cipher suite is left to use", "check ssl.enabled.protocols and ssl.cipher.suites"),
    "NO_PROTOCOLS_AVAILABLE": ("no TLS version is left to use", "check ssl.enabled.protocols"),
}
_NO_TLS = "what listens there does not speak TLS"
_OTHER_PORT = "set security.protocol to that of the listener, or name the port of the TLS listener"
_NOT_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST", "UNEXPECTED_EOF", "PACKET_LENGTH_TOO_LONG")


async def tls_failure(error: Exception, settings: TlsSettings, host: str, port: int) -> TlsFailed:
    """Return the failure in words. If a name failed the check, this looks which names the certificate has."""
    address = address_text(host, port)
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in _HOST_NAME:
            return await _wrong_name(settings, host, port)
        look = f"look at it: openssl s_client -showcerts -connect {address}"
        refused = f"the certificate is refused: {error.verify_message}"
        message, hint = _VERIFICATIONS.get(error.verify_code, (refused, look))
        return TlsFailed(message, address=address, hint=hint)
    reason = getattr(error, "reason", None) or ""
    for alert, (message, hint) in _ALERTS.items():
        if reason.endswith(alert):
            return TlsFailed(message, address=address, hint=hint)
    if isinstance(error, ConnectionError | EOFError | ssl.SSLEOFError) or any(sign in reason for sign in _NOT_TLS):
        return TlsFailed(_NO_TLS, address=address, hint=_OTHER_PORT)
    return TlsFailed(f"TLS failed ({reason or error})", address=address)


async def _wrong_name(settings: TlsSettings, host: str, port: int) -> TlsFailed:
    names = await _names(settings, host, port)
    listed = f": it has {', '.join(names)}" if names else ""
    return TlsFailed(
        f"the certificate is for another host name{listed}",
        address=address_text(host, port),
        hint="connect by one of its names; ssl.endpoint.identification.algorithm= turns the check off",
    )


async def _names(settings: TlsSettings, host: str, port: int) -> list[str]:
    """Return the names in the certificate. The connection is for that only: nothing is sent."""
    try:
        context = client_context(without_host_name(settings))
        async with asyncio.timeout(5):
            _, writer = await asyncio.open_connection(host, port, ssl=context, server_hostname=host)
            certificate: dict[str, Any] = writer.get_extra_info("peercert") or {}
            writer.close()
            await writer.wait_closed()
    except (OSError, TimeoutError):
        return []
    others = [value for _, value in certificate.get("subjectAltName", ())]
    return others or [v for part in certificate.get("subject", ()) for k, v in part if k == "commonName"]
