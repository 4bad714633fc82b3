"""The plan lock as an ephemeral znode, ``/klamm/plan-lock``, in a session of its own."""

from __future__ import annotations

import asyncio

from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import BadRequest, Unreachable
from engine.admin.cluster.remedies import NAME_ZOOKEEPER
from engine.admin.cluster.zookeeper import open_zookeeper
from engine.admin.reassignment.lock_holder import Holder, LockHeld
from engine.kafka.zk.client import ZkClient
from engine.kafka.zk.errors import NodeExists, NoNode, SessionLost

PATH = "/klamm/plan-lock"
_PARENT = "/klamm"
_PAUSE_S = 0.1


class ZnodeLock:
    """Holds the lock while its session lives."""

    def __init__(self, cluster: Cluster, holder: Holder, session_timeout_s: float) -> None:
        self._cluster = cluster
        self._holder = holder
        self._session_timeout_ms = int(session_timeout_s * 1000)
        self._zk: ZkClient | None = None
        self._sessions: set[int] = set()
        """In which it was taken. ZooKeeper may end one later than the client does, as after its own restart."""

    async def take(self) -> None:
        """Take it. If an earlier session of mine holds it still, wait until ZooKeeper has ended that one."""
        zk = await self._client()
        try:
            await zk.ensure_path(_PARENT)
            while True:
                if await self._create(zk):
                    return
                await asyncio.sleep(_PAUSE_S)
        except SessionLost as error:
            raise Unreachable(str(error), where=self._cluster.target.zookeeper) from error

    async def _create(self, zk: ZkClient) -> bool:
        """Create the znode; return False while an earlier session of mine holds it."""
        self._sessions.add(zk.session_id)
        try:
            await zk.create(PATH, self._holder.encode(), ephemeral=True)
        except NodeExists as error:
            holder, stat = await self.holder(), await zk.exists(PATH)
            if stat is None:
                return False
            if stat.ephemeral_owner not in self._sessions:
                raise LockHeld(holder or Holder.decode(b"")) from error
            return stat.ephemeral_owner == zk.session_id
        return True

    async def is_mine(self) -> bool:
        zk = await self._client()
        try:
            stat = await zk.exists(PATH)
        except SessionLost:
            return False
        return stat is not None and stat.ephemeral_owner == zk.session_id

    async def holder(self) -> Holder | None:
        zk = await self._client()
        try:
            return Holder.decode((await zk.get(PATH))[0])
        except NoNode:
            return None
        except SessionLost as error:
            raise Unreachable(str(error), where=self._cluster.target.zookeeper) from error

    async def give_back(self) -> None:
        zk, self._zk = self._zk, None
        if zk is not None:
            await zk.close()

    async def _client(self) -> ZkClient:
        if self._zk is None:
            connect = self._cluster.target.zookeeper
            if connect is None:
                raise BadRequest("this needs ZooKeeper", hint=NAME_ZOOKEEPER)
            self._zk = await open_zookeeper(
                connect,
                security=self._cluster.target.zookeeper_security,
                timeout_s=self._cluster.timeout_s,
                session_timeout_ms=self._session_timeout_ms,
                patience_s=self._cluster.timeout_s,
            )
        return self._zk
