"""Answers of a leader that a follower cannot use: broken, too large, or without sense."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from replicated_brokers import World, world
from virtual_time import run_virtual

from engine.config.metadata_version import MetadataVersion
from engine.protocol.apis.fetch import FetchResponse, PartitionData
from engine.replication.settings import ReplicationSettings


def settings(ibp: MetadataVersion = MetadataVersion.IBP_3_9_IV0) -> ReplicationSettings:
    return ReplicationSettings(0, inter_broker_protocol_version=ibp, replica_lag_time_max_ms=5000)


def tampered(w: World, change: Callable[[PartitionData], None]) -> None:
    """Have every partition of a Fetch answer changed on its way."""

    def tamper(response: Any) -> None:
        if isinstance(response, FetchResponse):
            for topic in response.responses:
                for data in topic.partitions:
                    change(data)

    w.tamper = tamper


def test_a_message_above_the_old_fetch_limit_is_told_and_tried_slowly(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Before Fetch 3 a leader cuts a batch that is larger than asked for; nothing can be appended then."""

    async def test() -> None:
        async with world(tmp_path, 1, 2) as w:
            await w.lead(1)
            w.produce(1, b"small")
            await w.until_equal(2)

            def cut(data: PartitionData) -> None:
                data.records = None if data.records is None else data.records[:100]

            tampered(w, cut)
            w.sent.clear()
            w.produce(1, b"y" * 1000)
            await w.let_pass(4000)
            assert w.log(2).log_end_offset == 1
            assert len(w.sent) < 20

    run_virtual(test)
    assert any("greater than replica.fetch.max.bytes" in r.getMessage() for r in caplog.records)


def test_records_broken_on_the_way_are_fetched_again(tmp_path: Path) -> None:
    async def test() -> None:
        async with world(tmp_path, 1, 2) as w:
            await w.lead(1)
            broken = 0

            def flip_a_bit(data: PartitionData) -> None:
                nonlocal broken
                if data.records and broken < 3:
                    broken += 1
                    spoilt = bytearray(data.records)
                    spoilt[-1] ^= 1
                    data.records = memoryview(bytes(spoilt))

            tampered(w, flip_a_bit)
            w.produce(1, b"x" * 100)
            await w.until_equal(2)
            assert broken == 3
            assert w.log_bytes(1) == w.log_bytes(2)

    run_virtual(test)


def test_an_answer_that_makes_no_sense_pauses_and_harms_nothing(tmp_path: Path) -> None:
    async def test() -> None:
        async with world(tmp_path, 1, 2) as w:
            await w.lead(1)
            spoilt = 0

            def unknown_error(data: PartitionData) -> None:
                nonlocal spoilt
                if spoilt < 3:
                    spoilt += 1
                    data.error_code = 12345

            tampered(w, unknown_error)
            w.produce(1, b"x")
            await w.until_equal(2)
            assert spoilt == 3

    run_virtual(test)
