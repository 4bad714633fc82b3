"""Znodes of the whole cluster: its id, features, producer ids, and a migration to KRaft. Codecs only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from engine.kafka.zk.znodes.fields import Fields, encode_json

PRODUCER_IDS_BLOCK_SIZE = 1000
"""Producer ids that a broker gets in one block (KIP-730)."""

LAST_PRODUCER_ID = (1 << 63) - 1


class ClusterIdZNode:
    """The cluster's id: 22 characters, created once by its first broker."""

    path: Final = "/cluster/id"

    @staticmethod
    def encode(cluster_id: str) -> bytes:
        return encode_json({"version": "1", "id": cluster_id})

    @staticmethod
    def decode(data: bytes) -> str:
        return Fields.parse(ClusterIdZNode.path, data).text("id")


class FeatureStatus(IntEnum):
    """Whether the finalized features apply (KIP-584); below inter-broker protocol 2.7 they do not."""

    DISABLED = 0
    ENABLED = 1


@dataclass(frozen=True, slots=True)
class FinalizedFeatures:
    """Maximum finalized version of each feature; ``json_version`` 1 also has the minimum (IBP before 3.3)."""

    status: FeatureStatus
    json_version: int = 2
    features: Mapping[str, int] = field(default_factory=dict)


class FeatureZNode:
    """Finalized features of the cluster. Each new controller writes them if they are missing or in the wrong form."""

    path: Final = "/feature"

    @staticmethod
    def encode(finalized: FinalizedFeatures) -> bytes:
        features: dict[str, dict[str, int]] = {}
        for name, highest in finalized.features.items():
            features[name] = {"max_version_level": highest}
            if finalized.json_version == 1:
                features[name]["min_version_level"] = highest
        return encode_json({"features": features, "version": finalized.json_version, "status": int(finalized.status)})

    @staticmethod
    def decode(data: bytes) -> FinalizedFeatures:
        fields = Fields.parse(FeatureZNode.path, data)
        json_version, status = fields.integer("version"), fields.integer("status")
        if json_version not in (1, 2):
            raise fields.complaint("version", "1 or 2")
        if status not in set(FeatureStatus):
            raise fields.complaint("status", "0 or 1")
        features = fields.child("features")
        highest = {name: features.child(name).integer("max_version_level") for name in features.values}
        return FinalizedFeatures(FeatureStatus(status), json_version, highest)


@dataclass(frozen=True, slots=True)
class ProducerIdBlock:
    """Producer ids given to one broker: ``first_producer_id`` and the ``size - 1`` that follow."""

    broker_id: int
    first_producer_id: int
    size: int = PRODUCER_IDS_BLOCK_SIZE

    @property
    def last_producer_id(self) -> int:
        return self.first_producer_id + self.size - 1


class ProducerIdBlockZNode:
    """The last block of producer ids given out; empty before the first."""

    path: Final = "/latest_producer_id_block"

    @staticmethod
    def encode(block: ProducerIdBlock) -> bytes:
        return encode_json(
            {
                "version": 1,
                "broker": block.broker_id,
                "block_start": str(block.first_producer_id),
                "block_end": str(block.last_producer_id),
            }
        )

    @staticmethod
    def decode(data: bytes) -> ProducerIdBlock:
        fields = Fields.parse(ProducerIdBlockZNode.path, data)
        first, last = fields.number_in_text("block_start"), fields.number_in_text("block_end")
        if not 0 <= first <= last <= LAST_PRODUCER_ID:
            raise fields.complaint("block_end", "an id that can follow block_start")
        return ProducerIdBlock(fields.integer("broker"), first, last - first + 1)


@dataclass(frozen=True, slots=True)
class MigrationState:
    """How far a KRaft controller has taken over the cluster (Kafka 3.4 and newer)."""

    kraft_controller_id: int
    kraft_controller_epoch: int
    kraft_metadata_offset: int
    kraft_metadata_epoch: int


class MigrationZNode:
    """Only KRaft controllers write it; klamm reads it."""

    path: Final = "/migration"

    @staticmethod
    def decode(data: bytes) -> MigrationState:
        fields = Fields.parse(MigrationZNode.path, data)
        if fields.integer("version") != 0:
            raise fields.complaint("version", "0")
        return MigrationState(
            fields.integer("kraft_controller_id"),
            fields.integer("kraft_controller_epoch"),
            fields.integer("kraft_metadata_offset"),
            fields.integer("kraft_metadata_epoch"),
        )
