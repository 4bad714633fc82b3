"""DescribeUserScramCredentials (50), version 0: which users have SCRAM credentials (KIP-554)."""

from __future__ import annotations

from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.declaration import Request, Response, Struct, field
from engine.kafka.protocol.types import INT8, INT16, INT32, STRING, Array


class UserName(Struct):
    name: str = field(STRING)


class DescribeUserScramCredentialsRequest(Request, key=ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS):
    users: list[UserName] | None = field(Array(UserName), nullable_since=0)
    """None or empty: all."""


class CredentialInfo(Struct):
    """One credential, without its secret."""

    mechanism: int = field(INT8)
    """1 SCRAM-SHA-256, 2 SCRAM-SHA-512."""
    iterations: int = field(INT32)


class DescribeUserScramCredentialsResult(Struct):
    user: str = field(STRING)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, default="", nullable_since=0)
    credential_infos: list[CredentialInfo] = field(Array(CredentialInfo))


class DescribeUserScramCredentialsResponse(Response, key=ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, default="", nullable_since=0)
    results: list[DescribeUserScramCredentialsResult] = field(Array(DescribeUserScramCredentialsResult))
