"""Znodes of the controller: ``/controller`` and ``/controller_epoch``. Codecs only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from engine.kafka.zk.znodes.fields import Fields, decode_number, encode_json

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
