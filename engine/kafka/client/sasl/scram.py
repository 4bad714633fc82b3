"""SASL SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, 7677) as Kafka speaks them: no SASLprep, no channel binding.

A delegation token logs in the same way with ``tokenauth=true`` (KIP-48): its id is the name, its HMAC the password.
"""

from __future__ import annotations

import binascii
import hashlib
import hmac
import secrets
from base64 import b64decode, b64encode
from functools import lru_cache

from engine.kafka.client.sasl.exchange import Exchange, SaslError

HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}

ITERATIONS_MIN = 4096
"""Kafka's lower limit. Fewer would let a false server try passwords more cheaply."""
ITERATIONS_MAX = 1_000_000
"""More would let a false server keep a processor busy for minutes; Kafka itself stores at most 16,384."""


def scram_exchange(
    mechanism: str, username: str, password: str, *, is_token: bool, nonce: str | None = None
) -> Exchange:
    """Prove that the password is known, and check that the server knows it too.

    Raises:
        SaslError: the server's messages are malformed, or it does not know the password.
    """
    hash_name = HASHES[mechanism]
    nonce = nonce or b64encode(secrets.token_bytes(24)).decode()
    own_first = f"n={_name(username)},r={nonce}{',tokenauth=true' if is_token else ''}"
    server_first = yield f"n,,{own_first}".encode()
    full_nonce, salt, iterations = _server_first(server_first, nonce)
    own_final = f"c=biws,r={full_nonce}"
    auth_message = f"{own_first},{server_first.decode()},{own_final}".encode()
    salted = _salted(hash_name, password, salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", hash_name)
    signature = hmac.digest(hashlib.new(hash_name, client_key).digest(), auth_message, hash_name)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    server_final = yield f"{own_final},p={b64encode(proof).decode()}".encode()
    expected = hmac.digest(hmac.digest(salted, b"Server Key", hash_name), auth_message, hash_name)
    if not hmac.compare_digest(_signature_in(server_final), expected):
        raise SaslError("the server does not prove that it knows the password")


def _name(username: str) -> str:
    return username.replace("=", "=3D").replace(",", "=2C")


def _server_first(message: bytes, nonce: str) -> tuple[str, bytes, int]:
    """Return nonce, salt and iterations."""
    fields = _fields(message)
    try:
        full_nonce, salt, iterations = fields["r"], b64decode(fields["s"], validate=True), int(fields["i"])
    except (KeyError, ValueError, binascii.Error):
        raise SaslError("the server's first SCRAM message is malformed") from None
    if not full_nonce.startswith(nonce) or full_nonce == nonce:
        raise SaslError("the server's SCRAM nonce does not continue the client's")
    if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        raise SaslError(f"the server asks for {iterations} iterations, not {ITERATIONS_MIN} to {ITERATIONS_MAX}")
    return full_nonce, salt, iterations


def _signature_in(message: bytes) -> bytes:
    fields = _fields(message)
    if "e" in fields:
        raise SaslError(f"the server says {fields['e']}")
    try:
        return b64decode(fields["v"], validate=True)
    except (KeyError, binascii.Error):
        raise SaslError("the server's last SCRAM message is malformed") from None


def _fields(message: bytes) -> dict[str, str]:
    parts = message.decode("utf-8", "replace").split(",")
    return {name: value for name, equals, value in (part.partition("=") for part in parts) if equals}


@lru_cache(maxsize=16)
def _salted(hash_name: str, password: str, salt: bytes, iterations: int) -> bytes:
    """Return the salted password; a cluster's brokers share the salt, so all but the first login are cheap."""
    return hashlib.pbkdf2_hmac(hash_name, password.encode(), salt, iterations)
