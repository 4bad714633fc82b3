"""Answers from a leader that a follower cannot use: broken, too large, or senseless."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from replicated_brokers import TP, World, world
from virtual_time import in_virtual_time, run_virtual

from engine.broker.log.log import Log
from engine.broker.replication.fetch_table import InitialFetchState
from engine.broker.replication.settings import ReplicationSettings
from engine.kafka.config.metadata_version import MetadataVersion
from engine.kafka.protocol.apis.fetch import FetchResponse, PartitionData
from engine.kafka.protocol.apis.offset_for_leader_epoch import OffsetForLeaderEpochResponse


def settings(ibp: MetadataVersion = MetadataVersion.IBP_3_9_IV0) -> ReplicationSettings:
    return ReplicationSettings(0, inter_broker_protocol_version=ibp, replica_lag_time_max_ms=5000)


def tampered(w: World, change: Callable[[PartitionData], None]) -> None:
    """Change every partition of a Fetch answer on its way."""

    def tamper(response: Any) -> None:
        if isinstance(response, FetchResponse):
            for topic in response.responses:
                for data in topic.partitions:
                    change(data)

    w.tamper = tamper


def test_a_message_above_the_old_fetch_limit_is_told_and_tried_slowly(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Before Fetch 3 a leader truncates a batch that is larger than requested, and nothing can be appended."""

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


@in_virtual_time
async def test_records_broken_on_the_way_are_fetched_again(tmp_path: Path) -> None:
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


def cut_to_nothing(log: Log, data: PartitionData, initial: InitialFetchState) -> InitialFetchState:
    log.truncate_to(0)
    return initial._replace(fetch_offset=0)


def cut_in_part(log: Log, data: PartitionData, initial: InitialFetchState) -> InitialFetchState:
    log.truncate_to(2)
    return initial._replace(fetch_offset=2)


def copied_elsewhere(log: Log, data: PartitionData, initial: InitialFetchState) -> InitialFetchState:
    log.append_as_follower(memoryview(bytearray(data.records or b"")))
    return initial._replace(fetch_offset=log.log_end_offset)


def elected_anew(log: Log, data: PartitionData, initial: InitialFetchState) -> InitialFetchState:
    return initial._replace(leader_epoch=initial.leader_epoch + 1)


@pytest.mark.parametrize("change", [cut_to_nothing, cut_in_part, copied_elsewhere, elected_anew])
def test_an_answer_to_a_question_that_is_no_more_asked_is_not_used(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    change: Callable[[Log, PartitionData, InitialFetchState], InitialFetchState],
) -> None:
    """Its records begin where the log ended then, in the leader epoch of then: they might leave a gap."""

    async def test() -> None:
        async with world(tmp_path, 1, 2) as w:
            await w.lead(1)
            w.produce(1, b"0", b"1")
            w.produce(1, b"2")
            await w.until_equal(2)
            w.produce(1, b"3")
            fetchers, seen = w.brokers[2].replica_manager.fetchers, []

            def change_meanwhile(data: PartitionData) -> None:
                if not seen and data.records:
                    ((_, initial),) = fetchers.remove([TP]).items()
                    fetchers.add({TP: change(w.log(2), data, initial)})
                    seen.append(w.log(2).log_end_offset)
                elif len(seen) == 1:
                    seen.append(w.log(2).log_end_offset)

            tampered(w, change_meanwhile)
            await w.until(lambda: len(seen) == 2, "it is asked again")
            assert seen[0] == seen[1]
            assert not fetchers.failed
            await w.lead(1)
            await w.until_equal(2)
            assert w.log_bytes(2) == w.log_bytes(1)

    run_virtual(test)
    assert "failed unexpectedly" not in caplog.text


@pytest.mark.parametrize("goes_on", [True, False])
def test_a_log_that_is_to_be_cut_first_takes_no_answer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, goes_on: bool
) -> None:
    """The marks in it may cover records that are about to be cut. A log that is no longer fetched takes none either."""

    async def test() -> None:
        async with world(tmp_path, 1, 2, settings=settings(MetadataVersion.IBP_2_6_IV0)) as w:
            await w.lead(1)
            w.produce(1, b"0")
            await w.until_equal(2)
            fetchers, before = w.brokers[2].replica_manager.fetchers, []

            def tamper(response: Any) -> None:
                if isinstance(response, FetchResponse) and not before and response.responses[0].partitions[0].records:
                    removed = fetchers.remove([TP])
                    before.append(w.log(2).log_end_offset)
                    if goes_on:
                        fetchers.add(removed)
                elif isinstance(response, OffsetForLeaderEpochResponse):
                    before.append(w.log(2).log_end_offset)

            w.tamper = tamper
            w.produce(1, b"1")
            await w.let_pass(2_000)
            assert before == ([1, 1] if goes_on else [1])
            assert w.log(2).log_end_offset == (2 if goes_on else 1)

    run_virtual(test)
    assert "failed unexpectedly" not in caplog.text


@in_virtual_time
async def test_an_answer_that_makes_no_sense_pauses_and_harms_nothing(tmp_path: Path) -> None:
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
