"""The epoch of the finalized features is the version of ``/feature``, from the start and after each change."""

from __future__ import annotations

from event_loop import in_event_loop

from engine.kafka.zk.cluster import FeatureStatus, FeatureZNode, FinalizedFeatures
from engine.kafka.zk.finalized_features import FinalizedFeaturesListener

ENABLED = FeatureZNode.encode(FinalizedFeatures(FeatureStatus.ENABLED, 2))
DISABLED = FeatureZNode.encode(FinalizedFeatures(FeatureStatus.DISABLED, 2))


@in_event_loop
async def test_the_epoch_follows_the_znode(connect, until) -> None:
    async with connect() as client, connect() as other:
        features = FinalizedFeaturesListener(client)
        await features.start()
        assert features.features_epoch == -1
        await other.create("/feature", ENABLED)
        await until(lambda: features.features_epoch == 0)
        await other.set("/feature", ENABLED)
        await until(lambda: features.features_epoch == 1)
        await other.set("/feature", DISABLED)
        await until(lambda: features.features_epoch == -1)
        await other.set("/feature", ENABLED)
        await until(lambda: features.features_epoch == 3)
        await other.delete("/feature")
        await until(lambda: features.features_epoch == -1)
        await features.stop()


@in_event_loop
async def test_what_is_no_feature_znode_leaves_the_epoch_as_it_was(connect, until) -> None:
    async with connect() as client, connect() as other:
        await other.create("/feature", ENABLED)
        features = FinalizedFeaturesListener(client)
        await features.start()
        await other.set("/feature", b"no JSON")
        await other.set("/feature", ENABLED)
        await until(lambda: features.features_epoch == 2)
        await features.stop()
