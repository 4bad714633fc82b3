"""Which replica a consumer should read from (KIP-392): pure. Source: Kafka 3.9's selectors.

A selector runs on the leader, for consumers that may read from followers (Fetch 11 and later).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from engine.common.errors import ConfigError


class ReplicaView(NamedTuple):
    """A replica that has the wanted offset and is in sync."""

    broker_id: int
    rack: str | None
    log_end_offset: int
    ms_since_caught_up: int


ReplicaSelector = Callable[[str, ReplicaView, Sequence[ReplicaView]], int]
"""(the consumer's rack, the leader, all candidates with the leader) -> broker id to read from."""


def select_by_rack(rack: str, leader: ReplicaView, replicas: Sequence[ReplicaView]) -> int:
    """Return the leader if it shares the consumer's rack or nobody does; else the most caught-up one that does."""
    near = [replica for replica in replicas if replica.rack == rack]
    if not rack or not near or leader.rack == rack:
        return leader.broker_id
    return max(near, key=lambda r: (r.log_end_offset, -r.ms_since_caught_up, -r.broker_id)).broker_id


def replica_selector(class_name: str | None) -> ReplicaSelector | None:
    """Return the selector that ``replica.selector.class`` names; None means always the leader.

    Raises:
        ConfigError: it is not one of Kafka's own selectors; klamm cannot load a third-party class.
    """
    match (class_name or "").rpartition(".")[2]:
        case "" | "LeaderSelector":
            return None
        case "RackAwareReplicaSelector":
            return select_by_rack
    raise ConfigError(
        f"replica.selector.class={class_name} is not known here; allowed are "
        "org.apache.kafka.common.replica.RackAwareReplicaSelector and org.apache.kafka.common.replica.LeaderSelector",
        key="replica.selector.class",
    )
