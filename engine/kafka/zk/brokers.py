"""Brokers in ZooKeeper: their registrations, and generated ids for those that have none."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from engine.common.clock import Clock
from engine.common.errors import CoordinationError, OperationError
from engine.common.model import BrokerInfo, Endpoint, SecurityProtocol
from engine.kafka.zk.acl_policy import AclPolicy
from engine.kafka.zk.client import ZkClient
from engine.kafka.zk.errors import MultiFailed, NodeExists, NoNode, ZnodeFormatError
from engine.kafka.zk.operations import Create, Operation, SetData, ZnodeStat
from engine.kafka.zk.reads import Decode, children_or_empty, decoded, or_raise, read_znode, wait_until_gone
from engine.kafka.zk.znode_json import Fields, encode_json

_ENDPOINT = re.compile(r"(?P<listener>[^:/]+)://(?:\[(?P<ipv6>[^\]]*)\]|(?P<host>[^\[\]]*)):(?P<port>-?\d+)")


class BrokerIdsZNode:
    """Parent of the live brokers' registrations; the controller watches its children."""

    path: Final = "/brokers/ids"


class BrokerSequenceIdZNode:
    """Its version counts the generated broker ids; it has no data."""

    path: Final = "/brokers/seqid"


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """What a broker registers about itself.

    Attributes:
        json_version: the version of its format.
        timestamp_ms: when it was written, by the broker's own clock; -1: it does not say.
        modified_ms: the same by ZooKeeper's clock, if it was read there.
        features: the minimum and maximum version of each supported feature.
    """

    broker: BrokerInfo
    timestamp_ms: int
    json_version: int = 5
    jmx_port: int = -1
    features: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    modified_ms: int | None = None

    @property
    def clock_apart_ms(self) -> int | None:
        """How far the broker's clock was ahead of ZooKeeper's when it wrote this; None if unknown.

        ZooKeeper writes milliseconds after the broker has looked at its clock, or seconds on a machine with much to do.
        """
        if self.modified_ms is None or self.timestamp_ms < 0:
            return None
        return self.timestamp_ms - self.modified_ms


class BrokerIdZNode:
    """A live broker's registration: ephemeral, so it goes with the broker's session. Its czxid is the broker epoch."""

    @staticmethod
    def path(broker_id: int) -> str:
        return f"{BrokerIdsZNode.path}/{broker_id}"

    @staticmethod
    def encode(registration: BrokerRegistration) -> bytes:
        """Return the JSON in Kafka's key order; host and port, for old clients, are those of the first plain
        listener.
        """
        broker, version = registration.broker, registration.json_version
        plain = broker.endpoint_for(SecurityProtocol.PLAINTEXT)
        values: dict[str, Any] = {}
        if version >= 5:
            values["features"] = {name: dict(versions) for name, versions in registration.features.items()}
        if version >= 4:
            protocols = {e.listener_name: e.security_protocol.name for e in broker.endpoints}
            values["listener_security_protocol_map"] = protocols
        if version >= 2:
            values["endpoints"] = [str(endpoint) for endpoint in broker.endpoints]
        if version >= 3 and broker.rack is not None:
            values["rack"] = broker.rack
        values |= {
            "jmx_port": registration.jmx_port,
            "port": -1 if plain is None else plain.port,
            "host": None if plain is None else plain.host,
            "version": version,
            "timestamp": str(registration.timestamp_ms),
        }
        return encode_json(values)

    @staticmethod
    def decode(
        broker_id: int, data: bytes, broker_epoch: int = -1, modified_ms: int | None = None
    ) -> BrokerRegistration:
        """Read a registration of any version from 1 on.

        Args:
            broker_epoch: the znode's czxid.
            modified_ms: the znode's time of modification.

        Raises:
            ZnodeFormatError: it has version 0 or bad content.
        """
        fields = Fields.parse(BrokerIdZNode.path(broker_id), data)
        version = fields.integer("version")
        if version < 1:
            raise ZnodeFormatError(fields.path, f"version {version} is not supported")
        endpoints = _only_endpoint(fields) if version == 1 else _endpoints(fields)
        broker = BrokerInfo(broker_id, endpoints, fields.optional_text("rack"), broker_epoch)
        return BrokerRegistration(
            broker,
            timestamp_ms=fields.number_in_text("timestamp") if "timestamp" in fields else -1,
            json_version=version,
            jmx_port=fields.integer("jmx_port") if "jmx_port" in fields else -1,
            features=_features(fields),
            modified_ms=modified_ms,
        )


def _only_endpoint(fields: Fields) -> tuple[Endpoint, ...]:
    return (Endpoint.of_protocol(fields.text("host"), fields.integer("port"), SecurityProtocol.PLAINTEXT),)


def _endpoints(fields: Fields) -> tuple[Endpoint, ...]:
    if "listener_security_protocol_map" in fields:
        protocols = {name.upper(): value for name, value in fields.text_map("listener_security_protocol_map").items()}
    else:
        # Before version 4, a listener's name is its security protocol.
        protocols = {protocol.name: protocol.name for protocol in SecurityProtocol}
    return tuple(_endpoint(fields.path, text, protocols) for text in fields.texts("endpoints"))


def _endpoint(path: str, text: str, protocols: Mapping[str, str]) -> Endpoint:
    match = _ENDPOINT.fullmatch(text)
    if match is None:
        raise ZnodeFormatError(path, f"not an endpoint: {text!r}")
    listener_name = match["listener"].upper()
    protocol = protocols.get(listener_name)
    if protocol is None or protocol.upper() not in SecurityProtocol.__members__:
        raise ZnodeFormatError(path, f"no known security protocol for listener {listener_name}: {protocol!r}")
    host = match["ipv6"] if match["ipv6"] is not None else match["host"]
    return Endpoint(host, int(match["port"]), listener_name, SecurityProtocol[protocol.upper()])


def _features(fields: Fields) -> dict[str, dict[str, int]]:
    features = fields.optional_child("features")
    versions = {name: features.child(name) for name in features.values}
    return {name: {key: feature.integer(key) for key in feature.values} for name, feature in versions.items()}


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

    async def update_broker(self, registration: BrokerRegistration) -> None:
        """Write the broker's new addresses; the controller tells the others."""
        path = BrokerIdZNode.path(registration.broker.id)
        await self._client.set(path, BrokerIdZNode.encode(registration), -1)

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
        registrations = await self._client.read_many(
            map(BrokerIdZNode.path, broker_ids),
            lambda position, outcome: decoded(outcome, _registration_of(broker_ids[position])),
        )
        return {broker_id: read for broker_id, read in zip(broker_ids, registrations, strict=True) if read is not None}

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
    return lambda data, stat: BrokerIdZNode.decode(broker_id, data, stat.czxid, stat.mtime_ms)


def _describe(broker_id: int, data: bytes, stat: ZnodeStat) -> str:
    try:
        broker = BrokerIdZNode.decode(broker_id, data).broker
        listeners = ",".join(str(endpoint) for endpoint in broker.endpoints)
    except ZnodeFormatError:
        listeners = "unknown"
    return f"session=0x{stat.ephemeral_owner:x} listeners={listeners}"
