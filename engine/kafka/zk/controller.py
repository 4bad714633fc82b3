"""Who is the controller: election, resignation, epoch."""

from __future__ import annotations

import logging
from typing import NamedTuple

from engine.common.clock import Clock
from engine.kafka.zk.acl_policy import AclPolicy
from engine.kafka.zk.client import ZkClient
from engine.kafka.zk.errors import BadVersion, MultiFailed, NodeExists, NoNode
from engine.kafka.zk.guarded import raise_first, write_guarded
from engine.kafka.zk.operations import Create, Delete, Operation, SetData, ZnodeStat
from engine.kafka.zk.reads import read_znode
from engine.kafka.zk.znodes.controller_znodes import ControllerEpochZNode, ControllerRegistration, ControllerZNode

_log = logging.getLogger("engine.kafka.zk")


class ControllerEpoch(NamedTuple):
    """A controller's epoch, and the version of its znode, which guards that controller's writes."""

    controller_epoch: int
    epoch_zk_version: int


class ControllerZnodes:
    """Reads and writes of ``/controller`` and ``/controller_epoch``."""

    def __init__(self, client: ZkClient, acl_policy: AclPolicy, clock: Clock) -> None:
        self._client = client
        self._acl = acl_policy.acl
        self._clock = clock

    async def elect_controller(self, broker_id: int) -> ControllerEpoch | None:
        """Try to become the controller: write ``/controller`` and the next epoch in one multi.

        Returns:
            The new epoch, or None if another broker is the controller or wrote an epoch first.
        """
        before = await self.get_controller_epoch() or await self._create_epoch()
        registration = ControllerRegistration(broker_id, self._clock.now_ms())
        epoch = before.controller_epoch + 1
        operations: list[Operation] = [
            Create(
                ControllerZNode.path,
                ControllerZNode.encode(registration),
                ephemeral=True,
                acl=self._acl(ControllerZNode.path),
            ),
            SetData(ControllerEpochZNode.path, ControllerEpochZNode.encode(epoch), before.epoch_zk_version),
        ]
        try:
            results = await self._client.multi(operations)
        except MultiFailed as refusal:
            if isinstance(refusal.error, NodeExists | BadVersion):
                return None
            raise refusal.error from refusal
        stat = results[1]
        assert isinstance(stat, ZnodeStat)
        return ControllerEpoch(epoch, stat.version)

    async def _create_epoch(self) -> ControllerEpoch:
        path = ControllerEpochZNode.path
        try:
            await self._client.create(path, ControllerEpochZNode.encode(0), acl=self._acl(path))
        except NodeExists:
            _log.debug("Another broker created the controller epoch first.")
        epoch = await self.get_controller_epoch()
        return epoch or ControllerEpoch(0, 0)

    async def get_controller_epoch(self) -> ControllerEpoch | None:
        """Return the last controller's epoch, or None before the first election."""
        return await read_znode(
            self._client,
            ControllerEpochZNode.path,
            lambda data, stat: ControllerEpoch(ControllerEpochZNode.decode(data), stat.version),
        )

    async def get_controller_id(self) -> int | None:
        """Return the controller's broker id, or None; arms the data callbacks of ``/controller`` either way."""
        registration = await self.get_controller_registration()
        return None if registration is None else registration.broker_id

    async def controller_exists(self) -> bool:
        return await self._client.exists(ControllerZNode.path) is not None

    async def get_controller_registration(self) -> ControllerRegistration | None:
        """Return the controller's registration, or None if there is no controller."""
        return await read_znode(self._client, ControllerZNode.path, lambda data, _: ControllerZNode.decode(data))

    async def delete_controller(self, epoch_zk_version: int | None) -> None:
        """Remove ``/controller``, which starts an election; it is no error if it is already gone.

        Raises:
            ControllerMoved: another controller has been elected since.
        """
        outcomes = await write_guarded(self._client, [Delete(ControllerZNode.path)], epoch_zk_version)
        raise_first(outcomes, NoNode)
