"""A user's SCRAM credential as Kafka keeps it among the user's settings in ZooKeeper. The password is not in it."""

from __future__ import annotations

import binascii
import hashlib
import hmac
from base64 import b64decode, b64encode
from dataclasses import dataclass, field

HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
ITERATIONS_MIN, ITERATIONS_MAX = 4096, 16384
"""Limits of Kafka's tools and brokers for new credentials."""


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """What a server needs to check that a client knows a password (RFC 5802)."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int

    @classmethod
    def of_salted_password(cls, mechanism: str, salt: bytes, salted: bytes, iterations: int) -> ScramCredential:
        """Return the credential of a password that the client has salted."""
        hash_name = HASHES[mechanism]
        client_key = hmac.digest(salted, b"Client Key", hash_name)
        stored_key = hashlib.new(hash_name, client_key).digest()
        return cls(salt, stored_key, hmac.digest(salted, b"Server Key", hash_name), iterations)

    @classmethod
    def of_password(cls, mechanism: str, password: str, salt: bytes, iterations: int) -> ScramCredential:
        """Return the credential of a password. It takes a while: thousands of rounds of hashing."""
        salted = hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, iterations)
        return cls.of_salted_password(mechanism, salt, salted, iterations)

    @classmethod
    def decode(cls, text: str) -> ScramCredential:
        """Read the setting's text.

        Raises:
            ValueError: it is malformed.
        """
        fields = dict(part.partition("=")[::2] for part in text.split(","))
        try:
            keys = [b64decode(fields[key], validate=True) for key in ("salt", "stored_key", "server_key")]
            return cls(keys[0], keys[1], keys[2], int(fields["iterations"]))
        except (KeyError, binascii.Error):
            raise ValueError("no SCRAM credential") from None

    def encode(self) -> str:
        """Return the setting's text."""
        texts = (b64encode(each).decode() for each in (self.salt, self.stored_key, self.server_key))
        return "salt={},stored_key={},server_key={},iterations={}".format(*texts, self.iterations)
