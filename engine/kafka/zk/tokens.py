"""Delegation tokens in ZooKeeper (KIP-48): ``/delegation_token/tokens``, and notices of their changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from engine.common.errors import CoordinationError
from engine.kafka.zk.acl_policy import AclPolicy
from engine.kafka.zk.client import ZkClient
from engine.kafka.zk.configs import desanitized, sanitized
from engine.kafka.zk.errors import NoNode
from engine.kafka.zk.reads import children_or_empty, decoded, read_znode
from engine.kafka.zk.znode_json import Fields, decode_text, encode_json


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """The stored part of a token, without its HMAC, which is computed. Principals look like ``User:alice``.

    Attributes:
        token_requester: the user who requested it; before Kafka 3.3 always the owner.
    """

    token_id: str
    owner: str
    token_requester: str
    renewers: tuple[str, ...]
    issue_timestamp_ms: int
    expiry_timestamp_ms: int
    max_timestamp_ms: int


class DelegationTokenInfoZNode:
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


class TokenZnodes:
    """Reads and writes of tokens; every write notifies all brokers."""

    def __init__(self, client: ZkClient, acl_policy: AclPolicy) -> None:
        self._client = client
        self._acl = acl_policy.acl

    async def make_paths(self) -> None:
        """Make the folders of tokens and notices, as brokers with tokens do: only what exists can be watched."""
        for path in (DelegationTokenChangeZNode.parent_path, DelegationTokenInfoZNode.parent_path):
            await self._client.ensure_path(path, self._acl(path))

    async def get_all(self) -> dict[str, DelegationToken | CoordinationError]:
        """Return all tokens by id; what cannot be read or understood is an error."""
        names = sorted(await children_or_empty(self._client, DelegationTokenInfoZNode.parent_path))
        read = await self._client.read_many(
            map(DelegationTokenInfoZNode.path, names),
            lambda position, outcome: decoded(
                outcome, lambda data, _: DelegationTokenInfoZNode.decode(names[position], data)
            ),
        )
        return {name: token for name, token in zip(names, read, strict=True) if token is not None}

    async def get(self, token_id: str) -> DelegationToken | None:
        """Return a token; None if there is none.

        Raises:
            ZnodeFormatError: it cannot be understood.
        """
        return await read_znode(
            self._client,
            DelegationTokenInfoZNode.path(token_id),
            lambda data, _: DelegationTokenInfoZNode.decode(token_id, data),
        )

    async def create(self, token: DelegationToken) -> None:
        path = DelegationTokenInfoZNode.path(token.token_id)
        await self._client.create(path, DelegationTokenInfoZNode.encode(token), acl=self._acl(path))
        await self._tell_brokers(token.token_id)

    async def set(self, token: DelegationToken) -> bool:
        """Replace a token; return False if it is gone: then it stays so, where Kafka would make it again."""
        try:
            await self._client.set(
                DelegationTokenInfoZNode.path(token.token_id), DelegationTokenInfoZNode.encode(token)
            )
        except NoNode:
            return False
        await self._tell_brokers(token.token_id)
        return True

    async def delete(self, token_id: str) -> None:
        """Remove a token; it is no error if it is already gone."""
        try:
            await self._client.delete(DelegationTokenInfoZNode.path(token_id))
        except NoNode:
            return
        await self._tell_brokers(token_id)

    async def _tell_brokers(self, token_id: str) -> None:
        path = DelegationTokenChangeZNode.create_path
        data = DelegationTokenChangeZNode.encode(token_id)
        await self._client.create(path, data, sequential=True, acl=self._acl(path))
