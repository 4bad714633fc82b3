"""The ``ssl.*`` properties of Kafka's clients, and the ``ssl.SSLContext`` for them; what a failed handshake means."""

from __future__ import annotations

import asyncio
import os
import ssl
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from engine.common.errors import ConfigError
from engine.common.model import address_text
from engine.kafka.client.errors import TlsFailed
from engine.kafka.client.tls.store_formats import EXTRA, Store, read_pem, read_store
from engine.kafka.config.values import java_trim

_VERSIONS = {
    "TLSV1": ssl.TLSVersion.TLSv1,
    "TLSV1.1": ssl.TLSVersion.TLSv1_1,
    "TLSV1.2": ssl.TLSVersion.TLSv1_2,
    "TLSV1.3": ssl.TLSVersion.TLSv1_3,
}
_TOO_WEAK = {
    "CA_MD_TOO_WEAK": "is signed with SHA-1 or MD5, which OpenSSL refuses: have it signed with SHA-256",
    "CA_KEY_TOO_SMALL": "has a key that is too short for OpenSSL: renew it, with 2,048 bits of RSA at least",
    "EE_KEY_TOO_SMALL": "has a key that is too short for OpenSSL: renew it, with 2,048 bits of RSA at least",
}
"""What OpenSSL refuses in a certificate, by its own word; Java takes SHA-1 and RSA keys of 1,024 bits."""


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """The ``ssl.*`` properties by name; they hold passwords and stay out of ``repr``."""

    entries: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @property
    def checks_host_name(self) -> bool:
        return dict(self.entries).get("ssl.endpoint.identification.algorithm", "https").lower() == "https"


def tls_settings(entries: Mapping[str, str]) -> TlsSettings:
    """Return the ``ssl.*`` properties among the entries, without the blanks around them, as Kafka reads them."""
    own = ((key, java_trim(value)) for key, value in entries.items() if key.startswith("ssl."))
    return TlsSettings(tuple(sorted(own)))


@lru_cache(maxsize=8)
def client_context(settings: TlsSettings) -> ssl.SSLContext:
    """Return the context for connections to brokers. Reads the stores; made once for the same settings.

    Raises:
        ConfigError: a store cannot be read, a password is wrong, or a value is not known. It names the property.
    """
    entries = dict(settings.entries)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = settings.checks_host_name
    # As in Java, any certificate in the trust store is trusted, not only roots.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    _set_versions(context, entries)
    _set_ciphers(context, entries)
    _trust(context, entries)
    _present(context, entries)
    return context


def server_context(settings: TlsSettings, client_auth: str) -> ssl.SSLContext:
    """Return the context for a listener. ``client_auth``: ``required``, ``requested`` or ``none``, as Kafka spells it.

    Raises:
        ConfigError: a store is missing or cannot be used, the certificate is not valid now, or no client could connect.
    """
    entries = dict(settings.entries)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.options |= ssl.OP_NO_RENEGOTIATION
    _set_versions(context, entries)
    _set_ciphers(context, entries)
    if not _present(context, entries):
        raise ConfigError("ssl.keystore.location is missing: a listener with TLS needs a key and a certificate")
    # Before it asks for certificates: the trial connection here has none.
    _try_out(context, own_chain(settings), _origin(entries, "ssl.keystore"))
    if client_auth != "none":
        _trust(context, entries)
        context.verify_mode = ssl.CERT_REQUIRED if client_auth == "required" else ssl.CERT_OPTIONAL
    return context


def own_chain(settings: TlsSettings) -> tuple[bytes, ...]:
    """Return the key store's certificates in DER, this side's first. Raises ConfigError: it cannot be read."""
    store = _store(dict(settings.entries), "ssl.keystore", "ssl.keystore.key")
    pem = "" if store is None else store.chain
    end = "-----END CERTIFICATE-----"
    return tuple(ssl.PEM_cert_to_DER_cert(part.lstrip() + end) for part in pem.split(end)[:-1])


def trusted_pem(settings: TlsSettings) -> str:
    """Return the certificates to trust; none if no store names any. Raises ConfigError: the store cannot be read."""
    store = _store(dict(settings.entries), "ssl.truststore", "ssl.truststore.certificates")
    return "" if store is None else store.trusted


def own_pkcs12(settings: TlsSettings, password: str) -> bytes:
    """Return this side's key with its certificates in a store for Java; nothing if there is none.

    Raises:
        ConfigError: it cannot be read, or a library is missing.
    """
    entries = dict(settings.entries)
    store = _store(entries, "ssl.keystore", "ssl.keystore.key")
    if store is None:
        return b""
    try:
        from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, load_pem_private_key
        from cryptography.hazmat.primitives.serialization.pkcs12 import serialize_key_and_certificates
        from cryptography.x509 import load_pem_x509_certificates
    except ImportError:
        raise ConfigError(f"to hand a key to Java, klamm needs the package cryptography: {EXTRA}") from None
    key_password = entries.get("ssl.key.password", "").encode() if store.is_key_encrypted else None
    key = load_pem_private_key(store.key.encode(), key_password)
    own, *others = load_pem_x509_certificates(store.chain.encode())
    sealed = BestAvailableEncryption(password.encode())
    # A key of a kind that no store can hold is of no use for TLS either.
    return serialize_key_and_certificates(b"own", key, own, others, sealed)  # type: ignore[arg-type]


def check_trusts_itself(settings: TlsSettings) -> None:
    """Check that a broker accepts its own certificate, as brokers with these settings connect to each other.

    Raises:
        ConfigError: it does not.
    """
    entries = dict(settings.entries)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _set_versions(context, entries)
    _present(context, entries)
    client = client_context(without_host_name(settings))
    problem = _refusal(client, context)
    if problem is not None:
        raise ConfigError(
            f"{_origin(entries, 'ssl.truststore')} does not trust {_origin(entries, 'ssl.keystore')} ({problem}), "
            "but brokers use both among themselves"
        )


def _try_out(context: ssl.SSLContext, chain: tuple[bytes, ...], where: str) -> None:
    """Shake hands with a client that trusts whatever is in the key store."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    client.load_verify_locations(cadata=b"".join(chain))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        client.minimum_version, client.maximum_version = context.minimum_version, context.maximum_version
    client.set_ciphers("ALL")
    problem = _refusal(client, context)
    if problem is not None:
        raise ConfigError(f"no client could connect with the certificate in {where}: {problem}")


def _refusal(client: ssl.SSLContext, server: ssl.SSLContext) -> str | None:
    """Return why a client and a server that asks for no certificate do not agree; None if they do."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = client.wrap_bio(to_client, to_server), server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLCertVerificationError as error:
                return error.verify_message
            except ssl.SSLError as error:
                return (error.reason or "TLS failed").lower().replace("_", " ")
            if end is ends[0]:
                return None
    return "the handshake does not end"


def without_host_name(settings: TlsSettings) -> TlsSettings:
    """Return the settings without the check of the host's name, for reading the certificate that failed it."""
    key = "ssl.endpoint.identification.algorithm"
    return tls_settings({**dict(settings.entries), key: ""})


def _set_versions(context: ssl.SSLContext, entries: Mapping[str, str]) -> None:
    names = [n.strip() for n in entries.get("ssl.enabled.protocols", "TLSv1.2,TLSv1.3").split(",") if n.strip()]
    known = [_VERSIONS[name.upper()] for name in names if name.upper() in _VERSIONS]
    if not known:
        raise ConfigError(f"ssl.enabled.protocols={','.join(names)} names none of TLSv1.2 and TLSv1.3")
    with warnings.catch_warnings():
        # Python warns of TLS 1.0 and 1.1; this property names them on purpose.
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version, context.maximum_version = min(known), max(known)


def _set_ciphers(context: ssl.SSLContext, entries: Mapping[str, str]) -> None:
    """Limit the suites of TLS 1.2. Those of 1.3 are fixed in Python; none of them is weak."""
    names = [name.strip() for name in entries.get("ssl.cipher.suites", "").split(",") if name.strip()]
    if not names:
        return
    older = [_openssl_name(name) for name in names if "_WITH_" in name or not name.startswith("TLS_")]
    if not older:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        return
    if len(older) == len(names):
        context.maximum_version = min(context.maximum_version, ssl.TLSVersion.TLSv1_2)
    try:
        context.set_ciphers(":".join(older))
    except ssl.SSLError:
        raise ConfigError(f"ssl.cipher.suites={','.join(names)} names no suite that OpenSSL knows") from None


def _openssl_name(name: str) -> str:
    """Return OpenSSL's name of a suite that is named as in Java: ``TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256``."""
    exchange, with_, cipher = name.removeprefix("TLS_").partition("_WITH_")
    if not with_:
        return name
    cipher = cipher.replace("AES_", "AES").replace("CAMELLIA_", "CAMELLIA").replace("_CBC", "").replace("_", "-")
    cipher = cipher.replace("CHACHA20-POLY1305-SHA256", "CHACHA20-POLY1305").replace("3DES-EDE", "DES-CBC3")
    prefix = "" if exchange == "RSA" else exchange.replace("_", "-") + "-"
    return prefix + cipher


def _trust(context: ssl.SSLContext, entries: Mapping[str, str]) -> None:
    store = _store(entries, "ssl.truststore", "ssl.truststore.certificates")
    if store is None:
        context.set_default_verify_paths()
        return
    if not store.trusted:
        raise ConfigError(f"the trust store holds no certificate: {_origin(entries, 'ssl.truststore')}")
    try:
        context.load_verify_locations(cadata=store.trusted)
    except ssl.SSLError:
        raise ConfigError(f"a certificate in {_origin(entries, 'ssl.truststore')} is malformed") from None


def _present(context: ssl.SSLContext, entries: Mapping[str, str]) -> bool:
    """Load this side's certificate; return whether there is one."""
    store = _store(entries, "ssl.keystore", "ssl.keystore.key")
    if store is None:
        return False
    where = _origin(entries, "ssl.keystore")
    if not store.key or not store.chain:
        raise ConfigError(f"{where} holds no private key with its certificate")
    password = entries.get("ssl.key.password") or ""
    if store.is_key_encrypted and not password:
        raise ConfigError(f"the key in {where} is encrypted: give ssl.key.password")
    with _readable(f"{store.key}{store.chain}".encode()) as path:
        try:
            context.load_cert_chain(path, password=lambda: password)
        except (ssl.SSLError, ValueError) as error:
            reason = getattr(error, "reason", None) or "malformed"
            if reason in _TOO_WEAK:
                raise ConfigError(f"a certificate in {where} {_TOO_WEAK[reason]}") from None
            if store.is_key_encrypted:
                raise ConfigError(f"the password of the key in {where} is wrong (ssl.key.password)") from None
            if reason == "KEY_VALUES_MISMATCH":
                raise ConfigError(f"the key in {where} does not belong to its certificate") from None
            raise ConfigError(f"the key in {where} cannot be used: {reason}") from None
    return True


def _store(entries: Mapping[str, str], prefix: str, inline_key: str) -> Store | None:
    location = entries.get(f"{prefix}.location")
    inline = entries.get(inline_key)
    if inline:
        if entries.get(f"{prefix}.type", "PEM").upper() != "PEM":
            raise ConfigError(f"{inline_key} is PEM: set {prefix}.type=PEM")
        if location:
            raise ConfigError(f"give {prefix}.location or {inline_key}, not both")
        return read_pem(f"{inline}\n{entries.get(f'{prefix}.certificate.chain', '')}", inline_key)
    if not location:
        return None
    where = f"{prefix}.location={location}"
    store_type = entries.get(f"{prefix}.type", "JKS")
    if store_type.upper() not in ("JKS", "PKCS12", "PEM"):
        raise ConfigError(f"{prefix}.type={store_type} is not one of JKS, PKCS12, PEM")
    try:
        content = Path(location).read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot be read ({(error.strerror or str(error)).lower()}): {where}") from None
    return read_store(content, store_type, entries.get(f"{prefix}.password"), entries.get("ssl.key.password"), where)


def _origin(entries: Mapping[str, str], prefix: str) -> str:
    location = entries.get(f"{prefix}.location")
    return f"{prefix}.location={location}" if location else f"the PEM text of {prefix}"


@contextmanager
def _readable(content: bytes) -> Iterator[str]:
    """Give a path from which OpenSSL can read a key, and which only this process can; nothing is left of it."""
    if sys.platform == "linux":
        descriptor = os.memfd_create("klamm")
        try:
            os.write(descriptor, content)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    descriptor, path = tempfile.mkstemp()
    try:
        os.write(descriptor, content)
        os.close(descriptor)
        yield path
    finally:
        with suppress(FileNotFoundError):
            Path(path).unlink()


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
