"""The domain values that every layer shares. Frozen, without behaviour that needs I/O."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from ipaddress import IPv4Address, ip_address
from typing import Final, NamedTuple

NO_LEADER = -1
"""Leader id of a partition without a leader."""

NO_CONTROLLER = -1
"""Controller id of a cluster that has none at the moment."""

UNKNOWN_BROKER_EPOCH = -1
"""Broker epoch of a request from before KIP-380, or of a broker with an unknown registration."""

LEADER_DURING_DELETE = -2
"""Leader id (UpdateMetadata) and leader epoch (StopReplica) of a partition that is being deleted."""

NO_PARTITION_LEADER_EPOCH = -1
"""Leader epoch of a request or a batch that has none."""

CONSUMER_REPLICA_ID = -1
"""Replica id that ordinary consumers send in Fetch and ListOffsets."""

DEBUGGING_REPLICA_ID = -2
"""Replica id of a consumer that may read any replica up to its log end."""

ACKS_ALL = -1
"""A producer's acks: all in-sync replicas must have the records."""

LATEST_TIMESTAMP = -1
"""ListOffsets: the offset of the next record, as far as the reader may see. This and those below are not times."""

EARLIEST_TIMESTAMP = -2
"""ListOffsets: the first offset that still exists."""

MAX_TIMESTAMP = -3
"""ListOffsets: the record with the largest timestamp (KIP-734)."""

EARLIEST_LOCAL_TIMESTAMP = -4
"""ListOffsets: the first offset on the leader's own disk (KIP-405)."""

LATEST_TIERED_TIMESTAMP = -5
"""ListOffsets: the last offset in tiered storage (KIP-1005)."""


class TopicPartition(NamedTuple):
    """A partition's name. A tuple, because it is the key of every hot dictionary."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class IsolationLevel(IntEnum):
    """What a reader may see (KIP-98)."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


READ_COMMITTED: Final = IsolationLevel.READ_COMMITTED
"""For hot paths, as ``NO_ERROR``."""


class LeaderRecoveryState(IntEnum):
    """Whether a leader was elected uncleanly and has not recovered yet (KIP-704)."""

    RECOVERED = 0
    RECOVERING = 1


class SecurityProtocol(IntEnum):
    """Kafka's ids of security protocols, as UpdateMetadata carries them."""

    PLAINTEXT = 0
    SSL = 1
    SASL_PLAINTEXT = 2
    SASL_SSL = 3


def address_text(host: str, port: int | None) -> str:
    """Return ``host:port`` as people write it: an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def address_in_java(address: str) -> str:
    """Return an IP address as Java writes it, and so Kafka: an IPv6 address has all its eight numbers (``::1`` is
    ``0:0:0:0:0:0:0:1``), and one that stands for an IPv4 address is that. Other texts come back as they are.
    """
    try:
        parsed = ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, IPv4Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    numbers = ":".join(f"{number:x}" for number in struct.unpack(">8H", parsed.packed))
    return numbers if parsed.scope_id is None else f"{numbers}%{parsed.scope_id}"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One listener of a broker, as others reach it."""

    host: str
    port: int
    listener_name: str
    security_protocol: SecurityProtocol

    @classmethod
    def of_protocol(cls, host: str, port: int, protocol: SecurityProtocol) -> Endpoint:
        """Return an endpoint whose listener is not known; it is named after its security protocol, as Kafka does."""
        return cls(host, port, protocol.name, protocol)

    def __str__(self) -> str:
        return f"{self.listener_name}://{address_text(self.host, self.port)}"


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    """A live broker as ``/brokers/ids/<id>`` describes it. ``broker_epoch`` is the znode's czxid; -1 is unknown."""

    id: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    broker_epoch: int = UNKNOWN_BROKER_EPOCH

    def endpoints_for(self, listener: str | SecurityProtocol) -> tuple[Endpoint, ...]:
        """Return the endpoints of a listener's name, or those that speak a security protocol."""
        if isinstance(listener, SecurityProtocol):
            return tuple(e for e in self.endpoints if e.security_protocol is listener)
        return tuple(e for e in self.endpoints if e.listener_name == listener)

    def endpoint_for(self, listener: str | SecurityProtocol) -> Endpoint | None:
        """Return the first endpoint of a listener's name or security protocol, or None if the broker has none."""
        return next(iter(self.endpoints_for(listener)), None)


@dataclass(frozen=True, slots=True)
class Node:
    """A broker as a client sees it: one address."""

    id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class ReplicaAssignment:
    """A partition's replicas in preference order, with those a reassignment adds and removes (KIP-455)."""

    replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()

    @property
    def is_being_reassigned(self) -> bool:
        return bool(self.adding_replicas or self.removing_replicas)

    @property
    def target_replicas(self) -> tuple[int, ...]:
        """The replicas once the reassignment is done."""
        return tuple(r for r in self.replicas if r not in self.removing_replicas)

    @property
    def origin_replicas(self) -> tuple[int, ...]:
        """The replicas before the reassignment."""
        return tuple(r for r in self.replicas if r not in self.adding_replicas)

    def reassigned_to(self, target: Sequence[int]) -> ReplicaAssignment:
        """Return the assignment on its way to ``target``: the target first, then the old replicas that are not in it.

        A reassignment that is under way is replaced: the replicas that it was adding no longer count.
        """
        origin, wanted = dict.fromkeys(self.origin_replicas), dict.fromkeys(target)
        replicas = tuple(wanted | origin)
        return ReplicaAssignment(
            replicas=replicas,
            adding_replicas=tuple(r for r in replicas if r not in origin),
            removing_replicas=tuple(r for r in replicas if r not in wanted),
        )

    def without(self, replica: int) -> ReplicaAssignment:
        """Return the assignment without a replica, whichever list names it."""
        return ReplicaAssignment(
            replicas=tuple(r for r in self.replicas if r != replica),
            adding_replicas=tuple(r for r in self.adding_replicas if r != replica),
            removing_replicas=tuple(r for r in self.removing_replicas if r != replica),
        )


@dataclass(frozen=True, slots=True)
class LeaderAndIsr:
    """A partition's leadership. ``partition_epoch`` is the state znode's version; it is 0 in a znode just created."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    leader_recovery_state: LeaderRecoveryState = LeaderRecoveryState.RECOVERED
    partition_epoch: int = 0


@dataclass(frozen=True, slots=True)
class LeaderIsrAndControllerEpoch:
    """What the partition state znode holds: leadership, and the epoch of the controller that last wrote it."""

    leader_and_isr: LeaderAndIsr
    controller_epoch: int
