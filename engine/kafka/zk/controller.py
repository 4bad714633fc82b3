"""Which broker is the controller: election, resignation, epoch; and ``write_guarded``, for writes of all subjects."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from engine.common.clock import Clock
from engine.kafka.zk.acl_policy import AclPolicy
from engine.kafka.zk.client import ZkClient
from engine.kafka.zk.errors import BadVersion, ControllerMoved, MultiFailed, NodeExists, NoNode, ZooKeeperError
from engine.kafka.zk.operations import Check, Create, Delete, Operation, OperationResult, SetData, ZnodeStat
from engine.kafka.zk.reads import read_znode
from engine.kafka.zk.znode_json import Fields, decode_number, encode_json

NO_KRAFT_EPOCH = -1
"""``kraftControllerEpoch`` of a ZooKeeper-based controller."""


@dataclass(frozen=True, slots=True)
class ControllerRegistration:
    """Who is the controller. ``kraft_controller_epoch`` is None if Kafka before 3.4 wrote it."""

    broker_id: int
    timestamp_ms: int
    kraft_controller_epoch: int | None = NO_KRAFT_EPOCH


class ControllerZNode:
    """The controller's ephemeral znode: the broker that creates it is the controller."""

    path: Final = "/controller"

    @staticmethod
    def encode(registration: ControllerRegistration) -> bytes:
        """Return the JSON of version 2 (Kafka 3.4 and newer)."""
        return encode_json(
            {
                "version": 2,
                "brokerid": registration.broker_id,
                "timestamp": str(registration.timestamp_ms),
                "kraftControllerEpoch": registration.kraft_controller_epoch,
            }
        )

    @staticmethod
    def decode(data: bytes) -> ControllerRegistration:
        """Read version 1 or 2, or the bare broker id of Kafka 0.7."""
        if data.strip().isdigit():
            return ControllerRegistration(decode_number(ControllerZNode.path, data), -1, None)
        fields = Fields.parse(ControllerZNode.path, data)
        return ControllerRegistration(
            fields.integer("brokerid"),
            fields.number_in_text("timestamp") if "timestamp" in fields else -1,
            fields.integer("kraftControllerEpoch") if "kraftControllerEpoch" in fields else None,
        )


class ControllerEpochZNode:
    """The epoch of the last controller; its version guards every write of that controller."""

    path: Final = "/controller_epoch"

    @staticmethod
    def encode(controller_epoch: int) -> bytes:
        return b"%d" % controller_epoch

    @staticmethod
    def decode(data: bytes) -> int:
        return decode_number(ControllerEpochZNode.path, data)


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


WriteOutcome = OperationResult | ZooKeeperError
"""The result of a successful write, or the reason for its refusal."""


async def write_guarded(
    client: ZkClient, operations: Iterable[Operation], epoch_zk_version: int | None
) -> list[WriteOutcome]:
    """Do each write only if the controller epoch's znode has the given version: a deposed controller writes nothing.

    Each znode has its own multi, and all multis of a call are in flight at once: one stale version does not fail the
    others. Source: KAFKA-6082 (Kafka 2.2).

    Args:
        epoch_zk_version: version of ``/controller_epoch`` from the controller's election; None does not check.

    Returns:
        Each write's result, or the error of that znode alone.

    Raises:
        ControllerMoved: the check failed for at least one write; others may have succeeded before.
        SessionLost: the session ended before the answer.
    """
    if epoch_zk_version is None:
        return await client.write_many(operations)
    guard = Check(ControllerEpochZNode.path, epoch_zk_version)
    outcomes = await client.multi_many([guard, operation] for operation in operations)
    results: list[WriteOutcome] = []
    for outcome in outcomes:
        if isinstance(outcome, MultiFailed):
            if outcome.index == 0:
                raise ControllerMoved(f"/controller_epoch no longer has version {epoch_zk_version}: there is a new one")
            results.append(outcome.error)
        elif isinstance(outcome, ZooKeeperError):
            results.append(outcome)
        else:
            results.append(outcome[-1])
    return results


def raise_first(outcomes: Iterable[WriteOutcome], *tolerated: type[ZooKeeperError]) -> None:
    """Raise the first error that is not of a tolerated type."""
    for outcome in outcomes:
        if isinstance(outcome, ZooKeeperError) and not isinstance(outcome, tolerated):
            raise outcome
