"""Delegation tokens in ZooKeeper (KIP-48): ``/delegation_token/tokens``, and notices of their changes."""

from __future__ import annotations

from engine.common.errors import CoordinationError
from engine.kafka.zk.acl_policy import AclPolicy
from engine.kafka.zk.client import ZkClient
from engine.kafka.zk.errors import NoNode
from engine.kafka.zk.reads import children_or_empty, decoded, read_znode
from engine.kafka.zk.znodes.token_znodes import DelegationToken, DelegationTokenChangeZNode, DelegationTokenInfoZNode


class TokenZnodes:
    """Reads and writes of tokens; every write tells all brokers."""

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
        """Add a token."""
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
