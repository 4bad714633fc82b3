"""Reading a large partition of ``__consumer_offsets`` holds the event loop only for moments."""

from __future__ import annotations

import asyncio
import gc
import time

from coordinator_world import CoordinatorWorld, offset_records

from engine.broker.coordinator.groups.commit_form import CommittedOffset
from engine.broker.coordinator.groups.records import batch_of
from engine.common.errors import ErrorCode
from engine.common.model import TopicPartition
from engine.common.turns import at_once
from engine.kafka.config.metadata_version import parse_metadata_version
from engine.kafka.protocol.records.attributes import Codec

E = ErrorCode
IBP = parse_metadata_version("3.9")


def test_a_large_partition_is_loaded_beside_other_work() -> None:
    """50,000 commits, half of them of groups of their own: no turn of the event loop is held for long."""

    async def test() -> None:
        # Collections of what other tests have left would be held against this one.
        gc.freeze()
        world = CoordinatorWorld()
        for start in range(0, 500, 10):
            for group in (f"new-{start}", "same"):
                for of in range(10):
                    offsets = {TopicPartition("read", p): CommittedOffset(start + of, "", 0, 1) for p in range(50)}
                    world.partition.log.append(batch_of(offset_records(f"{group}-{of}", offsets, 1, IBP), Codec.NONE))
        longest_ms = turns = 0.0
        await world.lead(waits=False)
        while world.coordinator.groups.is_loading:
            begin = time.thread_time()
            assert world.coordinator.offsets.fetch("same-3", None)[0] is E.COORDINATOR_LOAD_IN_PROGRESS
            await asyncio.sleep(0)
            longest_ms, turns = max(longest_ms, (time.thread_time() - begin) * 1000), turns + 1
        assert longest_ms < 50, f"{longest_ms:.0f} ms of CPU in one turn"
        assert turns > 10
        _, fetched = world.coordinator.offsets.fetch("same-3", None)
        assert {value.offset for value in fetched.values() if isinstance(value, CommittedOffset)} == {493}
        assert len(at_once(world.coordinator.list_groups())[1]) == 510
        await world.stop()

    try:
        asyncio.run(test())
    finally:
        gc.unfreeze()
