"""Follows ``/feature``: the finalized features that clients see. Their epoch is the znode's version.

Source: FinalizedFeatureChangeListener and ZkMetadataCache of Kafka 3.9.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from engine.kafka.zk.client import ZkClient
from engine.kafka.zk.cluster import FeatureStatus, FeatureZNode
from engine.kafka.zk.errors import SessionLost, ZnodeFormatError, ZooKeeperError
from engine.kafka.zk.operations import ZnodeStat
from engine.kafka.zk.reads import read_znode
from engine.kafka.zk.watches import WatchEvent
from engine.runtime.supervisor import Supervisor

NO_FEATURES_EPOCH: Final = -1
"""There are no finalized features: the znode is missing, or an IBP before 2.7 disabled it."""

_log = logging.getLogger("kafka.server.FinalizedFeatureChangeListener")


class FinalizedFeaturesListener:
    """Keeps ``features_epoch`` equal to the znode's. Start it before the broker serves; stop it before the client."""

    def __init__(self, client: ZkClient) -> None:
        self.features_epoch = NO_FEATURES_EPOCH
        self._client = client
        self._supervisor = Supervisor("finalized-features")
        self._wake = asyncio.Event()

    async def start(self) -> None:
        """Read the znode and follow its changes.

        Raises:
            CoordinationError: it could not be read.
        """
        self._client.watch_data(FeatureZNode.path, self._on_event)
        await self._read()
        self._supervisor.start(self._follow(), "follow")

    async def stop(self) -> None:
        """Stop following changes."""
        self._client.unwatch(FeatureZNode.path, self._on_event)
        await self._supervisor.stop()

    def _on_event(self, _event: WatchEvent) -> None:
        self._wake.set()

    async def _follow(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._read()
            except SessionLost as error:
                _log.info("The next session will read the finalized features again: %s", error)
            except ZooKeeperError as error:
                _log.error("Cannot read the finalized features; they stay as they were: %s", error)

    async def _read(self) -> None:
        try:
            epoch = await read_znode(self._client, FeatureZNode.path, _epoch_of)
        except ZnodeFormatError as error:
            _log.error("Cannot read the finalized features; they stay as they were: %s", error)
            return
        self.features_epoch = NO_FEATURES_EPOCH if epoch is None else epoch


def _epoch_of(data: bytes, stat: ZnodeStat) -> int:
    is_enabled = FeatureZNode.decode(data).status is FeatureStatus.ENABLED
    return stat.version if is_enabled else NO_FEATURES_EPOCH
