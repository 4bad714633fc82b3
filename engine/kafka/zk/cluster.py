"""The cluster as a whole in ZooKeeper: folders, cluster id, features, blocks of producer ids."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from engine.common.errors import CoordinationError
from engine.kafka.zk.acl_policy import AclPolicy
from engine.kafka.zk.client import ZkClient
from engine.kafka.zk.errors import BadVersion, NodeExists, NoNode
from engine.kafka.zk.reads import read_znode
from engine.kafka.zk.znode_json import Fields, encode_json

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


_log = logging.getLogger("engine.kafka.zk")

PERSISTENT_PATHS = (
    "/consumers",
    "/brokers/ids",
    "/brokers/topics",
    "/config/changes",
    "/admin/delete_topics",
    "/brokers/seqid",
    "/isr_change_notification",
    "/latest_producer_id_block",
    "/log_dir_event_notification",
    "/config/topics",
    "/config/clients",
    "/config/users",
    "/config/brokers",
    "/config/ips",
)
"""The folders that every broker creates at start, in Kafka's order."""


class ClusterZnodes:
    """Reads and writes of the znodes that exist once per cluster."""

    def __init__(self, client: ZkClient, acl_policy: AclPolicy) -> None:
        self._client = client
        self._acl = acl_policy.acl

    async def make_persistent_paths(self) -> None:
        """Create Kafka's missing folders one by one, in Kafka's order."""
        for path in PERSISTENT_PATHS:
            await self._client.ensure_path(path, self._acl(path))

    async def get_cluster_id(self) -> str | None:
        """Return the cluster id, or None if no broker has created one yet."""
        return await read_znode(self._client, ClusterIdZNode.path, lambda data, _: ClusterIdZNode.decode(data))

    async def get_or_create_cluster_id(self, proposed: str) -> str:
        """Return the cluster id; the first broker's proposal becomes it."""
        path = ClusterIdZNode.path
        while True:
            existing = await self.get_cluster_id()
            if existing is not None:
                return existing
            try:
                await self._client.create(path, ClusterIdZNode.encode(proposed), acl=self._acl(path))
                return proposed
            except NoNode:
                await self._client.ensure_path("/cluster", self._acl("/cluster"))
            except NodeExists:
                _log.debug("Another broker created the cluster id first.")

    async def get_features(self) -> FinalizedFeatures | None:
        """Return the finalized features, or None if none were ever written."""
        return await read_znode(self._client, FeatureZNode.path, lambda data, _: FeatureZNode.decode(data))

    async def set_up_features(self, status: FeatureStatus, json_version: int) -> None:
        """Create ``/feature``, or convert it to the controller's inter-broker protocol. Not guarded, as in Kafka.

        Args:
            status: ENABLED from 2.7 on.
            json_version: 2 from 3.3 on, else 1.
        """
        wanted = FinalizedFeatures(status, json_version)
        try:
            data, stat = await self._client.get(FeatureZNode.path)
        except NoNode:
            await self._client.create(FeatureZNode.path, FeatureZNode.encode(wanted), acl=self._acl(FeatureZNode.path))
            return
        existing = FeatureZNode.decode(data)
        if status is FeatureStatus.ENABLED and existing.status is FeatureStatus.ENABLED:
            wanted = FinalizedFeatures(status, json_version, existing.features)
        if wanted != existing:
            await self._client.set(FeatureZNode.path, FeatureZNode.encode(wanted), stat.version)

    async def allocate_producer_id_block(self, broker_id: int) -> ProducerIdBlock:
        """Claim the next 1,000 producer ids for a broker. Conditional on the znode's version, but not guarded, as in
        Kafka.

        Raises:
            CoordinationError: all producer ids have been given out.
        """
        while True:
            data, stat = await self._client.get(ProducerIdBlockZNode.path)
            first = ProducerIdBlockZNode.decode(data).last_producer_id + 1 if data else 0
            if first > LAST_PRODUCER_ID - PRODUCER_IDS_BLOCK_SIZE + 1:
                raise CoordinationError(f"all producer ids have been given out, the last is {first - 1}")
            block = ProducerIdBlock(broker_id, first)
            try:
                await self._client.set(ProducerIdBlockZNode.path, ProducerIdBlockZNode.encode(block), stat.version)
                return block
            except BadVersion:
                _log.debug("Another broker claimed these producer ids first. first=%d", first)
