"""AlterUserScramCredentials (51), version 0: set or delete SCRAM credentials (KIP-554)."""

from __future__ import annotations

from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.declaration import Request, Response, Struct, field
from engine.kafka.protocol.types import BYTES, INT8, INT16, INT32, STRING, Array


class ScramCredentialDeletion(Struct):
    name: str = field(STRING)
    mechanism: int = field(INT8)
    """1 SCRAM-SHA-256, 2 SCRAM-SHA-512."""


class ScramCredentialUpsertion(Struct):
    name: str = field(STRING)
    mechanism: int = field(INT8)
    """1 SCRAM-SHA-256, 2 SCRAM-SHA-512."""
    iterations: int = field(INT32)
    salt: bytes = field(BYTES)
    salted_password: bytes = field(BYTES)
    """The client salts it: the password itself does not travel."""


class AlterUserScramCredentialsRequest(Request, key=ApiKey.ALTER_USER_SCRAM_CREDENTIALS):
    deletions: list[ScramCredentialDeletion] = field(Array(ScramCredentialDeletion))
    upsertions: list[ScramCredentialUpsertion] = field(Array(ScramCredentialUpsertion))


class AlterUserScramCredentialsResult(Struct):
    user: str = field(STRING)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, default="", nullable_since=0)


class AlterUserScramCredentialsResponse(Response, key=ApiKey.ALTER_USER_SCRAM_CREDENTIALS):
    throttle_time_ms: int = field(INT32)
    results: list[AlterUserScramCredentialsResult] = field(Array(AlterUserScramCredentialsResult))
