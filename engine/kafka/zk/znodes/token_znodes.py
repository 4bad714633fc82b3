"""Znodes of delegation tokens (KIP-48), below ``/delegation_token``. Codecs only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from engine.kafka.zk.configs import desanitized, sanitized
from engine.kafka.zk.znodes.fields import Fields, decode_text, encode_json


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """The stored part of a token, without its HMAC, which is computed. Principals look like ``User:alice``.

    Attributes:
        token_requester: who asked for it; before Kafka 3.3 always the owner.
    """

    token_id: str
    owner: str
    token_requester: str
    renewers: tuple[str, ...]
    issue_timestamp_ms: int
    expiry_timestamp_ms: int
    max_timestamp_ms: int


class DelegationTokenInfoZNode:
    """One token."""

    parent_path: Final = "/delegation_token/tokens"

    @staticmethod
    def path(token_id: str) -> str:
        return f"{DelegationTokenInfoZNode.parent_path}/{token_id}"

    @staticmethod
    def encode(token: DelegationToken) -> bytes:
        """Return the JSON of version 3, in Kafka 3.9.1's order of keys."""
        return encode_json(
            {
                "issueTimestamp": token.issue_timestamp_ms,
                "renewers": [sanitized(renewer) for renewer in token.renewers],
                "tokenRequester": sanitized(token.token_requester),
                "tokenId": token.token_id,
                "owner": sanitized(token.owner),
                "expiryTimestamp": token.expiry_timestamp_ms,
                "maxTimestamp": token.max_timestamp_ms,
                "version": 3,
            }
        )

    @staticmethod
    def decode(token_id: str, data: bytes) -> DelegationToken:
        """Read version 1, 2 or 3."""
        fields = Fields.parse(DelegationTokenInfoZNode.path(token_id), data)
        if not 1 <= fields.integer("version") <= 3:
            raise fields.complaint("version", "1, 2 or 3")
        owner = desanitized(fields.text("owner"))
        requester = fields.optional_text("tokenRequester")
        return DelegationToken(
            fields.text("tokenId"),
            owner,
            owner if requester is None else desanitized(requester),
            tuple(desanitized(renewer) for renewer in fields.texts("renewers")),
            fields.integer("issueTimestamp"),
            fields.integer("expiryTimestamp"),
            fields.integer("maxTimestamp"),
        )


class DelegationTokenChangeZNode:
    """Tells every broker that a token changed: the token's id, bare."""

    parent_path: Final = "/delegation_token/token_changes"
    create_path: Final = "/delegation_token/token_changes/token_change_"

    @staticmethod
    def encode(token_id: str) -> bytes:
        return token_id.encode("utf-8")

    @staticmethod
    def decode(name: str, data: bytes) -> str:
        return decode_text(f"{DelegationTokenChangeZNode.parent_path}/{name}", data)
