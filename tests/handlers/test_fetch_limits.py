"""What a Fetch answer leaves out for want of room (KIP-74)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from log_folders import data_batch
from replicated_brokers import TOPIC_ID, TP, World, world
from virtual_time import run_virtual

from engine.handlers.fetch import fetch
from engine.protocol.api_keys import ApiKey
from engine.protocol.apis.fetch import FetchPartition, FetchRequest, FetchTopic

BATCH_BYTES = len(data_batch(b"0123456789"))


def asked(partition_max_bytes: int, max_bytes: int, *, min_bytes: int) -> FetchRequest:
    """Ask for the same partition twice, so that the second one is limited by what the first got."""
    wanted = FetchPartition(partition=TP.partition, fetch_offset=0, partition_max_bytes=partition_max_bytes)
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=60_000,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        topics=[FetchTopic(topic=TP.topic, topic_id=TOPIC_ID, partitions=[wanted, wanted])],
    )


def sizes(w: World, version: int, request: FetchRequest) -> list[int]:
    """Return how many bytes each partition got at once."""
    answer: Any = fetch(w.brokers[1].context(ApiKey.FETCH, version), request)
    partitions = answer.responses[0].partitions
    return [getattr(p.records, "size_bytes", 0) for p in partitions]


@pytest.mark.parametrize("version", [4, 12, 17])
def test_only_the_first_batch_of_an_answer_may_exceed_the_limits(tmp_path: Path, version: int) -> None:
    async def check() -> None:
        async with world(tmp_path, 1) as w:
            await w.lead(1)
            for _ in range(3):
                w.partition(1).append_records_to_leader(data_batch(b"0123456789"), 1)
            # A partition's own limit, then the whole answer's: no part of a batch, and no wait for what cannot fit.
            assert sizes(w, version, asked(10, 1_000_000, min_bytes=1)) == [BATCH_BYTES, 0]
            assert sizes(w, version, asked(10, 1_000_000, min_bytes=100_000)) == [BATCH_BYTES, 0]
            whole = 3 * BATCH_BYTES
            assert sizes(w, version, asked(1_000_000, whole + 20, min_bytes=1)) == [whole, 0]
            # Where a whole batch fits, the part behind it may come along, as it lies on the disk.
            assert sizes(w, version, asked(BATCH_BYTES + 5, 1_000_000, min_bytes=1)) == [BATCH_BYTES + 5] * 2

    run_virtual(check)
