"""SASL DIGEST-MD5 (RFC 2831), the mechanism of ZooKeeper's ``DigestLoginModule``. Authentication only: no layers."""

from __future__ import annotations

import hashlib
import re
import secrets

from engine.kafka.client.sasl.exchange import Exchange, SaslError

_SERVER_NAME = "zk-sasl-md5"
"""ZooKeeper's servers have this name, whatever their host (``SecurityUtils`` of ZooKeeper)."""

_FIELD = re.compile(r'[\s,]*+([\w-]++)\s*+=\s*+(?:"((?:\\.|[^"\\])*+)"|([^,\s]*+))\s*+(?:,|$)')


def digest_md5_exchange(username: str, password: str) -> Exchange:
    """Prove that the password is known, and check that the server knows it too.

    Raises:
        SaslError: the server's messages are malformed, or it does not know the password.
    """
    challenge = _fields((yield b"").decode("utf-8", "replace"))
    if not challenge:
        raise SaslError("the server sent no challenge: it is not set up for such logins")
    nonce, realm = challenge.get("nonce", ""), challenge.get("realm", _SERVER_NAME)
    if not nonce or "auth" not in challenge.get("qop", "auth").split(","):
        raise SaslError("the server's DIGEST-MD5 challenge is malformed, or asks for encryption")
    cnonce, uri = secrets.token_urlsafe(24), f"zookeeper/{_SERVER_NAME}"
    secret = _md5(b":".join(map(_text, (username, realm, password))))
    a1 = _md5(b":".join((secret, nonce.encode(), cnonce.encode()))).hex()

    def proof(method: str) -> str:
        a2 = _md5(f"{method}:{uri}".encode()).hex()
        return _md5(f"{a1}:{nonce}:00000001:{cnonce}:auth:{a2}".encode()).hex()

    fields = {"username": username, "realm": realm, "nonce": nonce, "cnonce": cnonce, "digest-uri": uri}
    quoted = ",".join(f"{name}={_quoted(value)}" for name, value in fields.items())
    answer = f"charset=utf-8,{quoted},nc=00000001,qop=auth,maxbuf=65536,response={proof('AUTHENTICATE')}"
    final = _fields((yield answer.encode()).decode("utf-8", "replace"))
    if not secrets.compare_digest(final.get("rspauth", ""), proof("")):
        raise SaslError("the server does not prove that it knows the password")


def _md5(content: bytes) -> bytes:
    return hashlib.md5(content, usedforsecurity=False).digest()


def _text(text: str) -> bytes:
    """Encode as RFC 2831 hashes texts: in Latin-1 where that can spell them."""
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return text.encode()


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _fields(message: str) -> dict[str, str]:
    """Return the fields before the first malformed one. A search behind it would take the square of the length."""
    fields, end = {}, 0
    while match := _FIELD.match(message, end):
        name, quoted, plain = match.groups()
        fields[name] = re.sub(r"\\(.)", r"\1", quoted) if quoted else plain or ""
        end = match.end()
    return fields
