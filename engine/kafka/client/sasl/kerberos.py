"""SASL GSSAPI (RFC 4752) with Kerberos tickets, by the library ``gssapi``, which uses the system's Kerberos."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine.kafka.client.sasl.exchange import Exchange, SaslError

EXTRA = "pip install 'klamm[kerberos]' (it needs the system's libkrb5; on Debian: apt-get install libkrb5-dev gcc)"
_NO_LAYER = b"\x01\x00\x00\x00"
"""Neither integrity nor encryption: TLS does that."""


def kerberos_exchange(
    service: str, host: str, options: Mapping[str, str], *, server_principal: str | None = None
) -> Exchange:
    """Prove an identity by a ticket for ``service`` at ``host``; both sides prove theirs.

    ``options`` are those of Java's ``Krb5LoginModule``: ``useKeyTab``, ``keyTab``, ``principal``, ``useTicketCache``,
    ``ticketCache``. Reading keytab and cache, and asking the KDC, happen at once and may take a while.

    Raises:
        SaslError: the library is missing, or no ticket can be obtained; later: the server does not prove who it is.
    """
    try:
        library: Any = importlib.import_module("gssapi")
    except ImportError:
        raise SaslError(f"GSSAPI needs the extra kerberos: {EXTRA}") from None
    keytab = options.get("keyTab", "").removeprefix("file:")
    if options.get("useKeyTab", "").lower() == "true" and keytab and not Path(keytab).is_file():
        raise SaslError(f"Kerberos: there is no keytab {keytab}")
    try:
        context = _context(library, service, host, options, server_principal)
        first = context.step() or b""
    except library.exceptions.GSSError as error:
        raise SaslError(_reason(error, service, host, options)) from None
    return _exchange(library, context, first)


def ticket_owner(options: Mapping[str, str]) -> str | None:
    """Return whose the tickets in the cache are, ``anna@EXAMPLE.COM``; None if there are none, or no library."""
    try:
        library: Any = importlib.import_module("gssapi")
        return str(library.Credentials(usage="initiate", store=_store(options) or None).name)
    except ImportError:
        return None
    except library.exceptions.GSSError:
        return None


def _store(options: Mapping[str, str]) -> dict[str, str]:
    """Return where the tickets are, or the keytab that gets them."""
    if options.get("useKeyTab", "").lower() == "true":
        keytab = options.get("keyTab", "").removeprefix("file:")
        # Tickets from a keytab stay in this process: they must not replace those of the person at the terminal.
        cache = {"ccache": f"MEMORY:klamm {options.get('principal')} {keytab}"}
        return cache | ({"client_keytab": f"FILE:{keytab}"} if keytab else {})
    cached = options.get("ticketCache")
    return {"ccache": f"FILE:{cached.removeprefix('FILE:')}"} if cached else {}


def _context(gssapi: Any, service: str, host: str, options: Mapping[str, str], server_principal: str | None) -> Any:
    if server_principal:
        server = gssapi.Name(server_principal.replace("_HOST", host), gssapi.NameType.kerberos_principal)
    else:
        server = gssapi.Name(f"{service}@{host}", gssapi.NameType.hostbased_service)
    principal = options.get("principal")
    name = gssapi.Name(principal, gssapi.NameType.kerberos_principal) if principal else None
    credentials = gssapi.Credentials(name=name, usage="initiate", store=_store(options) or None)
    flags = gssapi.RequirementFlag.mutual_authentication | gssapi.RequirementFlag.out_of_sequence_detection
    return gssapi.SecurityContext(name=server, creds=credentials, usage="initiate", flags=flags)


def _exchange(gssapi: Any, context: Any, token: bytes) -> Exchange:
    try:
        while not context.complete:
            token = context.step((yield token)) or b""
        offer = yield token
        layers = context.unwrap(offer).message
        if not layers or not layers[0] & 1:
            raise SaslError("the server insists on encryption by GSSAPI, which klamm leaves to TLS")
        yield context.wrap(_NO_LAYER, False).message
    except gssapi.exceptions.GSSError as error:
        raise SaslError(f"Kerberos: {reason_of(error)}") from None


def _reason(error: Any, service: str, host: str, options: Mapping[str, str]) -> str:
    """Return why no ticket could be had, and what to look at."""
    text = reason_of(error)
    message, keytab = text.lower(), options.get("keyTab", "")
    if "clock skew" in message or "not yet valid" in message:
        return f"Kerberos: {text}: set this machine's clock by that of the KDC"
    if message.startswith("server ") and "not found in kerberos database" in message:
        return f"Kerberos: the KDC has no principal {service}/{host}: connect by the host's name in Kerberos"
    if "cannot contact any kdc" in message:
        return f"Kerberos: {text}: is the KDC up, and does krb5.conf name it?"
    if options.get("useKeyTab", "").lower() == "true" and any(
        word in message for word in ("keytab", "key table", "cache")
    ):
        principal = options.get("principal")
        return f"Kerberos: the keytab {keytab} has no key of {principal}: klist -k {keytab} shows what it has"
    if "credential" in message or "cache" in message or "expired" in message:
        return f"Kerberos: {text}: get a ticket with kinit, or name a keytab in the JAAS options"
    return f"Kerberos: {text}"


def reason_of(error: Any) -> str:
    """Return what the library says, without the general part."""
    minor: list[str] = error.get_all_statuses(error.min_code, False)
    return "; ".join(text.strip() for text in minor if text.strip()) or str(error)
