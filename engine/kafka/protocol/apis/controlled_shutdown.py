"""ControlledShutdown (7), versions 0–3: a broker asks the controller to move its leaderships before it stops.

The request of version 0 has the old header without client id.

Version notes
* 1: ordinary header   * 2: broker epoch (KIP-380)   * 3: flexible
"""

from __future__ import annotations

from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.declaration import Request, Response, Struct, field
from engine.kafka.protocol.types import INT16, INT32, INT64, STRING, Array


class ControlledShutdownRequest(Request, key=ApiKey.CONTROLLED_SHUTDOWN):
    """Move this broker's leaderships to others."""

    broker_id: int = field(INT32)
    broker_epoch: int = field(INT64, since=2, default=-1)
    """czxid of its registration; -1: not checked."""


class RemainingPartition(Struct):
    """A partition that the broker still leads."""

    topic_name: str = field(STRING)
    partition_index: int = field(INT32)


class ControlledShutdownResponse(Response, key=ApiKey.CONTROLLED_SHUTDOWN):
    """The partitions that remain; if there are none, the broker may stop."""

    error_code: int = field(INT16)
    remaining_partitions: list[RemainingPartition] = field(Array(RemainingPartition))
