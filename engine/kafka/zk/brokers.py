"""Brokers in ZooKeeper: their registrations, and generated ids for those that have none."""

from __future__ import annotations

import logging

from engine.common.clock import Clock
from engine.common.errors import CoordinationError, OperationError
from engine.common.model import BrokerInfo
from engine.kafka.zk.acl_policy import AclPolicy
from engine.kafka.zk.client import ZkClient
from engine.kafka.zk.errors import MultiFailed, NodeExists, NoNode, ZnodeFormatError
from engine.kafka.zk.operations import Create, Operation, SetData, ZnodeStat
from engine.kafka.zk.reads import Decode, children_or_empty, decoded, or_raise, read_znode, wait_until_gone
from engine.kafka.zk.znodes.broker_znodes import (
    BrokerIdsZNode,
    BrokerIdZNode,
    BrokerRegistration,
    BrokerSequenceIdZNode,
)

_log = logging.getLogger("engine.kafka.zk")

_WAIT_BEYOND_SESSION_MS = 2_000


class BrokerZnodes:
    """Reads and writes below ``/brokers/ids``."""

    def __init__(self, client: ZkClient, acl_policy: AclPolicy, clock: Clock) -> None:
        self._client = client
        self._acl = acl_policy.acl
        self._clock = clock
        self._own_sessions: set[int] = set()

    async def register_broker(self, registration: BrokerRegistration, *, wait_ms: int | None = None) -> int:
        """Create the broker's ephemeral znode and return the broker epoch (its czxid).

        A znode from an old session of this broker disappears within that session's time-out, so this method waits for
        that. It replaces a znode that this client created in a session that it has lost since (KAFKA-7165).

        Args:
            wait_ms: how long to wait for another session's znode; None is the session time-out and 2 s.

        Raises:
            OperationError: another session still holds the id; the text says which.
        """
        path = BrokerIdZNode.path(registration.broker.id)
        if wait_ms is None:
            wait_ms = self._client.session_timeout_ms + _WAIT_BEYOND_SESSION_MS
        operations: list[Operation] = [
            Create(path, None, ephemeral=True, acl=self._acl(path)),
            SetData(path, BrokerIdZNode.encode(registration), 0),
        ]
        deadline_ms = self._clock.monotonic_ms() + wait_ms
        while True:
            try:
                stat = (await self._client.multi(operations))[1]
            except MultiFailed as refusal:
                if not isinstance(refusal.error, NodeExists):
                    raise refusal.error from refusal
                stat = await self._take_over(registration.broker.id, deadline_ms)
            if isinstance(stat, ZnodeStat):
                self._own_sessions.add(self._client.session_id)
                return stat.czxid

    async def _take_over(self, broker_id: int, deadline_ms: int) -> ZnodeStat | None:
        """Handle an existing registration: return it if it is ours, or None once it is gone."""
        path = BrokerIdZNode.path(broker_id)
        try:
            data, stat = await self._client.get(path)
        except NoNode:
            return None
        if stat.ephemeral_owner == self._client.session_id:
            return stat
        holder = _describe(broker_id, data, stat)
        if stat.ephemeral_owner in self._own_sessions:
            _log.warning("Replacing this broker's own registration from a lost session. %s", holder)
            await self._delete_if_there(path)
            return None
        _log.warning("Waiting for the broker id, which is still registered. %s", holder)
        left_ms = deadline_ms - self._clock.monotonic_ms()
        if not await wait_until_gone(self._client, path, left_ms / 1000):
            raise OperationError(
                f"broker id {broker_id} is already registered in ZooKeeper: {holder}",
                hint="another broker with this id is running: stop it, or give this one another broker.id",
            )
        return None

    async def _delete_if_there(self, path: str) -> None:
        try:
            await self._client.delete(path)
        except NoNode:
            _log.debug("The registration disappeared by itself. path=%s", path)

    async def update_broker_registration(self, registration: BrokerRegistration) -> None:
        """Write new content, such as new listeners, to the broker's znode; the broker epoch stays the same."""
        await self._client.set(BrokerIdZNode.path(registration.broker.id), BrokerIdZNode.encode(registration))

    async def get_broker_ids(self) -> list[int]:
        """Return the ids of the registered brokers, ascending; arms the children callbacks of ``/brokers/ids``."""
        names = await children_or_empty(self._client, BrokerIdsZNode.path)
        return sorted(int(name) for name in names if name.isdecimal())

    async def get_broker_registrations(self) -> dict[int, BrokerRegistration]:
        """Return all registrations in order of id. Log and leave out those that cannot be decoded."""
        registrations = {}
        for broker_id, read in (await self.read_broker_registrations()).items():
            if isinstance(read, ZnodeFormatError):
                _log.error("Leaving out a broker's registration: %s", read)
            else:
                registrations[broker_id] = or_raise(read)
        return registrations

    async def read_broker_registrations(self) -> dict[int, BrokerRegistration | CoordinationError]:
        """Like ``get_broker_registrations``, but return an error for each that cannot be read or decoded."""
        broker_ids = await self.get_broker_ids()
        found = await self._client.read_many(
            map(BrokerIdZNode.path, broker_ids),
            lambda position, outcome: decoded(outcome, _registration_of(broker_ids[position])),
        )
        return {broker_id: read for broker_id, read in zip(broker_ids, found, strict=True) if read is not None}

    async def get_all_brokers_with_epochs(self) -> dict[int, BrokerInfo]:
        """Return all registered brokers in order of id; ``broker_epoch`` is each registration's czxid."""
        registrations = await self.get_broker_registrations()
        return {broker_id: registration.broker for broker_id, registration in registrations.items()}

    async def get_broker(self, broker_id: int) -> BrokerInfo | None:
        """Return one registered broker, or None; arms the data callbacks of its znode.

        Raises:
            ZnodeFormatError: its registration cannot be understood.
        """
        registration = await read_znode(self._client, BrokerIdZNode.path(broker_id), _registration_of(broker_id))
        return None if registration is None else registration.broker

    async def generate_broker_id(self, reserved_broker_max_id: int) -> int:
        """Return a new id above the reserved ones (``broker.id.generation.enable``)."""
        try:
            stat = await self._client.set(BrokerSequenceIdZNode.path, b"")
        except NoNode:
            await self._client.ensure_path(BrokerSequenceIdZNode.path, self._acl(BrokerSequenceIdZNode.path))
            stat = await self._client.set(BrokerSequenceIdZNode.path, b"")
        return reserved_broker_max_id + stat.version


def _registration_of(broker_id: int) -> Decode[BrokerRegistration]:
    return lambda data, stat: BrokerIdZNode.decode(broker_id, data, broker_epoch=stat.czxid)


def _describe(broker_id: int, data: bytes, stat: ZnodeStat) -> str:
    try:
        broker = BrokerIdZNode.decode(broker_id, data).broker
        listeners = ",".join(str(endpoint) for endpoint in broker.endpoints)
    except ZnodeFormatError:
        listeners = "unknown"
    return f"session=0x{stat.ephemeral_owner:x} listeners={listeners}"
