"""Leaders and followers with real logs and real requests, in one process and on virtual time."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from log_folders import stored_batches
from replicated_brokers import NO_TOPIC_ID, TP, World, world
from virtual_time import run_virtual

from engine.common.errors import ErrorCode, KafkaError
from engine.config.log_config import LogConfig
from engine.config.metadata_version import MetadataVersion
from engine.protocol.api_keys import ApiKey
from engine.protocol.apis.fetch import FetchResponse, PartitionData
from engine.replication.settings import ReplicationSettings

HISTORIES = int(os.environ.get("KLAMM_REPLICATION_HISTORIES", "8"))
"""Random histories per protocol version; some hundreds before a release."""


def settings(ibp: MetadataVersion = MetadataVersion.IBP_3_9_IV0) -> ReplicationSettings:
    return ReplicationSettings(0, inter_broker_protocol_version=ibp, replica_lag_time_max_ms=5000)


def test_followers_copy_byte_for_byte_and_learn_the_high_watermark(tmp_path: Path) -> None:
    async def test() -> None:
        async with world(tmp_path, 1, 2, 3) as w:
            await w.lead(1)
            for n in range(20):
                w.produce(1, b"a%d" % n, b"b" * 300)
            await w.until_equal(2, 3)
            assert w.log_bytes(1) == w.log_bytes(2) == w.log_bytes(3) != b""
            assert w.log(2).leader_epochs.entries == w.log(1).leader_epochs.entries

    run_virtual(test)


def test_the_high_watermark_waits_for_the_slowest_in_sync_follower(tmp_path: Path) -> None:
    async def test() -> None:
        async with world(tmp_path, 1, 2, 3) as w:
            await w.lead(1)
            w.produce(1, b"first")
            await w.until_equal(2, 3)
            w.cut.add(frozenset((1, 3)))
            end = w.produce(1, b"second")
            await w.until(lambda: w.log(2).log_end_offset == end, "2 has the record")
            assert w.log(1).high_watermark == 1
            assert w.partition(1).check_enough_replicas_reach_offset(end) == (False, ErrorCode.NONE)
            w.cut.clear()
            await w.until_equal(2, 3)
            assert w.partition(1).check_enough_replicas_reach_offset(end) == (True, ErrorCode.NONE)

    run_virtual(test)


def test_isr_shrinks_by_time_and_expands_when_caught_up(tmp_path: Path) -> None:
    async def test() -> None:
        async with world(tmp_path, 1, 2) as w:
            await w.lead(1)
            w.produce(1, b"first")
            await w.until_equal(2)
            w.cut.add(frozenset((1, 2)))
            end = w.produce(1, b"second")
            await w.until(lambda: w.states[TP].isr == (1,), "2 leaves the ISR")
            assert w.partition(1).isr == (1,)
            assert w.partition(1).partition_epoch == w.states[TP].partition_epoch
            assert w.log(1).high_watermark == end, "nobody holds the high watermark back any more"
            w.cut.clear()
            await w.until(lambda: w.states[TP].isr == (1, 2), "2 comes back")
            await w.until_equal(2)
            assert w.log_bytes(1) == w.log_bytes(2)

    run_virtual(test)


def test_a_follower_at_the_end_stays_in_sync_however_long_nothing_comes(tmp_path: Path) -> None:
    async def test() -> None:
        async with world(tmp_path, 1, 2) as w:
            await w.lead(1)
            w.produce(1, b"first")
            await w.until_equal(2)
            w.cut.add(frozenset((1, 2)))
            await w.let_pass(30_000)
            assert w.states[TP].isr == (1, 2)

    run_virtual(test)


@pytest.mark.parametrize("error", [ErrorCode.INELIGIBLE_REPLICA, ErrorCode.UNKNOWN_SERVER_ERROR])
def test_a_refused_shrink_is_tried_again(tmp_path: Path, error: ErrorCode) -> None:
    async def test() -> None:
        async with world(tmp_path, 1, 2) as w:
            await w.lead(1)
            w.produce(1, b"first")
            await w.until_equal(2)
            w.refuse_isr = error
            w.cut.add(frozenset((1, 2)))
            w.produce(1, b"second")
            await w.until(lambda: len(w.isr_updates) >= 3, "it is asked again")
            assert w.log(1).high_watermark == 1, "a shrink that is not committed does not count"
            w.refuse_isr = None
            await w.until(lambda: w.partition(1).isr == (1,), "2 leaves the ISR")

    run_virtual(test)


def test_a_fenced_isr_change_waits_for_the_controller(tmp_path: Path) -> None:
    async def test() -> None:
        async with world(tmp_path, 1, 2) as w:
            await w.lead(1)
            w.produce(1, b"first")
            await w.until_equal(2)
            w.refuse_isr = ErrorCode.INVALID_UPDATE_VERSION
            w.cut.add(frozenset((1, 2)))
            w.produce(1, b"second")
            await w.until(lambda: len(w.isr_updates) == 1, "it is asked")
            await w.let_pass(20_000)
            assert len(w.isr_updates) == 1
            assert w.partition(1).isr_state.is_pending
            w.refuse_isr = None
            await w.lead(1, isr=(1,))
            assert w.partition(1).isr == (1,)
            assert not w.partition(1).isr_state.is_pending

    run_virtual(test)


def test_acks_all_below_min_isr_is_refused_before_and_after_the_append(tmp_path: Path) -> None:
    async def test() -> None:
        async with world(tmp_path, 1, 2, log_config=LogConfig(min_insync_replicas=2)) as w:
            await w.lead(1)
            end = w.produce(1, b"first", acks=-1)
            await w.until_equal(2)
            w.cut.add(frozenset((1, 2)))
            w.produce(1, b"second", acks=1)
            await w.until(lambda: w.partition(1).isr == (1,), "2 leaves the ISR")
            with pytest.raises(KafkaError) as refused:
                w.produce(1, b"third", acks=-1)
            assert refused.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
            assert w.log(1).log_end_offset == 2, "nothing was written"
            outcome = w.partition(1).check_enough_replicas_reach_offset(end)
            assert outcome == (True, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
            assert w.log(1).high_watermark == 1, "below min.insync.replicas it does not move"

    run_virtual(test)


def test_only_leaders_take_records(tmp_path: Path) -> None:
    async def test() -> None:
        async with world(tmp_path, 1, 2) as w:
            await w.lead(1)
            with pytest.raises(KafkaError) as refused:
                w.produce(2, b"no")
            assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER

    run_virtual(test)


OLD_AND_NEW = [
    MetadataVersion.IBP_0_10_2_IV0,
    MetadataVersion.IBP_0_11_0_IV2,
    MetadataVersion.IBP_2_6_IV0,
    MetadataVersion.IBP_2_7_IV2,
    MetadataVersion.IBP_3_9_IV0,
]


@pytest.mark.parametrize("ibp", OLD_AND_NEW[1:], ids=str)
def test_a_returning_leader_cuts_what_nobody_else_had(tmp_path: Path, ibp: MetadataVersion) -> None:
    """By OffsetForLeaderEpoch before 2.7, by the Fetch answer since; by high watermark the next test."""

    async def test() -> None:
        async with world(tmp_path, 1, 2, 3, settings=settings(ibp)) as w:
            await w.lead(1)
            w.produce(1, b"common")
            await w.until_equal(2, 3)
            w.cut |= {frozenset((1, 2)), frozenset((1, 3))}
            for n in range(5):
                w.produce(1, b"only on 1: %d" % n)
            await w.lead(2, isr=(2, 3), tell=(2, 3))
            w.produce(2, b"after the election")
            await w.until(lambda: w.log(3).log_end_offset == 2, "3 follows 2")
            w.cut.clear()
            await w.tell(1)
            await w.until_equal(1, 3)
            assert w.log_bytes(1) == w.log_bytes(2) == w.log_bytes(3)
            await w.until(lambda: set(w.states[TP].isr) == {1, 2, 3}, "1 is in the ISR again")
            asked = {key for source, _, key, _, _ in w.sent if source == 1}
            assert (ApiKey.OFFSET_FOR_LEADER_EPOCH in asked) == (ibp < MetadataVersion.IBP_2_7_IV1)

    run_virtual(test)


@pytest.mark.parametrize("ibp", OLD_AND_NEW, ids=str)
def test_fetch_is_asked_in_the_version_of_the_inter_broker_protocol(tmp_path: Path, ibp: MetadataVersion) -> None:
    wanted = dict(zip(OLD_AND_NEW, (3, 5, 11, 12, 17), strict=True))[ibp]

    async def test() -> None:
        async with world(tmp_path, 1, 2, settings=settings(ibp)) as w:
            await w.lead(1)
            w.produce(1, b"x")
            await w.until_equal(2)
            assert {version for _, _, key, version, _ in w.sent if key is ApiKey.FETCH} == {wanted}

    run_virtual(test)


def test_topics_without_an_id_are_fetched_by_name(tmp_path: Path) -> None:
    async def test() -> None:
        async with world(tmp_path, 1, 2, topic_id=NO_TOPIC_ID) as w:
            await w.lead(1)
            w.produce(1, b"x")
            await w.until_equal(2)
            assert {version for _, _, key, version, _ in w.sent if key is ApiKey.FETCH} == {12}

    run_virtual(test)


def test_sessions_say_nothing_twice(tmp_path: Path) -> None:
    async def test() -> None:
        async with world(tmp_path, 1, 2) as w:
            await w.lead(1)
            w.produce(1, b"x")
            await w.until_equal(2)
            await w.let_pass(5000)
            idle = [request for _, _, key, _, request in w.sent if key is ApiKey.FETCH][-3:]
            assert all(not request.topics and request.session_epoch > 1 for request in idle)
            assert len({request.session_id for request in idle}) == 1
            assert len(w.sent) < 40, "an idle follower asks twice a second"

    run_virtual(test)


def test_a_follower_that_missed_what_was_deleted_starts_at_the_leaders_start(tmp_path: Path) -> None:
    async def test() -> None:
        async with world(tmp_path, 1, 2, log_config=LogConfig(segment_bytes=1024, retention_ms=-1)) as w:
            await w.lead(1)
            w.produce(1, b"x")
            await w.until_equal(2)
            w.cut.add(frozenset((1, 2)))
            for _ in range(20):
                w.produce(1, b"y" * 200)
            await w.until(lambda: w.partition(1).isr == (1,), "2 leaves the ISR")
            w.log(1).increment_log_start_offset(15)
            w.log(1).delete_old_segments(w.clock.now_ms())
            assert w.log(1).segments[0].base_offset > 2
            w.cut.clear()
            await w.until_equal(2)
            assert w.log(2).log_start_offset == 15
            assert w.log_bytes(2) == w.log_bytes(1)[-len(w.log_bytes(2)) :]

    run_virtual(test)


def test_a_fresh_follower_copes_with_a_start_in_the_middle_of_a_batch(tmp_path: Path) -> None:
    async def test() -> None:
        async with world(tmp_path, 1, 2) as w:
            await w.lead(1, isr=(1,))
            w.cut.add(frozenset((1, 2)))
            w.produce(1, *[b"%d" % n for n in range(10)])
            w.log(1).increment_log_start_offset(4)
            w.cut.clear()
            await w.until_equal(2)
            assert w.log(2).log_start_offset == 4
            assert w.log_bytes(1) == w.log_bytes(2)

    run_virtual(test)


def test_after_an_unclean_election_the_longer_log_is_cut(tmp_path: Path) -> None:
    async def test() -> None:
        async with world(tmp_path, 1, 2) as w:
            await w.lead(1)
            w.produce(1, b"common")
            await w.until_equal(2)
            w.cut.add(frozenset((1, 2)))
            for n in range(5):
                w.produce(1, b"lost %d" % n)
            await w.until(lambda: w.states[TP].isr == (1,), "2 leaves the ISR")
            await w.lead(2, isr=(2,), tell=(2,))
            w.cut.clear()
            await w.tell(1)
            await w.until_equal(1)
            assert w.log(1).log_end_offset == 1
            assert w.log_bytes(1) == w.log_bytes(2)

    run_virtual(test)


def test_a_restarted_broker_goes_on_where_its_log_ends(tmp_path: Path) -> None:
    async def test() -> None:
        async with world(tmp_path, 1, 2) as w:
            await w.lead(1)
            w.produce(1, b"first")
            await w.until_equal(2)
            await w.stop_broker(2)
            w.produce(1, b"second")
            w.start_broker(2)
            await w.lead(1)
            assert w.log(2).high_watermark >= 1
            await w.until_equal(2)
            assert w.log_bytes(1) == w.log_bytes(2)

    run_virtual(test)


def test_delete_of_a_leaders_session_is_healed(tmp_path: Path) -> None:
    async def test() -> None:
        async with world(tmp_path, 1, 2) as w:
            await w.lead(1)
            w.produce(1, b"first")
            await w.until_equal(2)
            w.brokers[1].fetch_sessions._sessions.clear()
            w.produce(1, b"second")
            await w.until_equal(2)

    run_virtual(test)


def committed_batches(w: World, broker_id: int) -> dict[int, tuple[int, int]]:
    """Return checksum and leader epoch of the batches below a replica's high watermark, by base offset."""
    log = w.log(broker_id)
    return {
        header.base_offset: (header.crc, header.partition_leader_epoch)
        for header, _ in stored_batches(log.dir)
        if header.last_offset < log.high_watermark
    }


async def random_history(w: World, rng: random.Random, steps: int) -> dict[int, tuple[int, int]]:
    """Elections among the ISR, cuts, restarts and records, as a controller and an operator could bring about.

    Return what any leader has ever called committed.
    """
    await w.lead(1)
    committed: dict[int, tuple[int, int]] = {}
    for _ in range(steps):
        leader = w.states[TP].leader
        committed |= committed_batches(w, leader)
        match rng.choice(["produce", "produce", "elect", "cut", "heal", "restart"]):
            case "produce":
                for _ in range(rng.randrange(1, 6)):
                    w.produce(leader, b"v" * rng.randrange(1, 400))
            case "elect":
                candidates = [b for b in w.states[TP].isr if b in w.brokers and b != leader]
                if candidates:
                    await w.lead(rng.choice(candidates))
            case "cut":
                w.cut.add(frozenset(rng.sample([1, 2, 3], 2)))
            case "heal":
                w.cut.clear()
            case "restart":
                broker_id = rng.choice([1, 2, 3])
                others = [b for b in w.states[TP].isr if b != broker_id]
                if broker_id == leader and not others:
                    continue
                await w.stop_broker(broker_id, cleanly=rng.random() < 0.5)
                if broker_id == leader:
                    await w.lead(rng.choice(others), isr=others)
                w.start_broker(broker_id)
                await w.lead(w.states[TP].leader)
        await w.let_pass(rng.choice([1, 30, 300, 8000]))
    return committed


@pytest.mark.parametrize("ibp", [MetadataVersion.IBP_2_6_IV0, MetadataVersion.IBP_3_9_IV0], ids=str)
@pytest.mark.parametrize("seed", range(HISTORIES))
def test_replicas_are_equal_after_any_history_and_keep_what_was_committed(
    tmp_path: Path, seed: int, ibp: MetadataVersion
) -> None:
    async def test() -> None:
        async with world(tmp_path, 1, 2, 3, settings=settings(ibp)) as w:
            rng = random.Random(seed)
            committed = await random_history(w, rng, 30)
            w.cut.clear()
            await w.lead(w.states[TP].leader)
            w.produce(w.states[TP].leader, b"last")
            await w.until(lambda: len(w.states[TP].isr) == 3, "the ISR is full")
            await w.until_equal(1, 2, 3)
            assert w.log_bytes(1) == w.log_bytes(2) == w.log_bytes(3)
            assert all(not b.replica_manager.fetchers.failed for b in w.brokers.values())
            assert committed
            assert committed.items() <= committed_batches(w, 1).items()

    run_virtual(test)


def test_a_throttled_follower_outside_the_isr_keeps_to_its_rate(tmp_path: Path) -> None:
    async def test() -> None:
        small = replace(settings(), replica_fetch_max_bytes=5000)
        async with world(tmp_path, 1, 2, log_config=LogConfig(), settings=small) as w:
            await w.lead(1)
            w.produce(1, b"x")
            await w.until_equal(2)
            w.cut.add(frozenset((1, 2)))
            for _ in range(200):
                w.produce(1, b"y" * 1000)
            await w.until(lambda: w.states[TP].isr == (1,), "2 leaves the ISR")
            quota = w.brokers[2].replica_manager.follower_quota
            quota.throttle(TP.topic, {0})
            quota.rate_bytes_max = 10_000
            w.cut.clear()
            await w.until(lambda: w.log(2).log_end_offset > 1, "it begins")
            await w.let_pass(5000)
            assert len(w.log_bytes(2)) < 10_000 * 6 + 5000
            quota.throttle(TP.topic, ())
            await w.until_equal(2)

    run_virtual(test)


def test_who_asked_for_a_state_change_may_go_away(tmp_path: Path) -> None:
    async def test() -> None:
        async with world(tmp_path, 1, 2) as w:
            await w.lead(1, tell=(1,))
            w.brokers[2].replica_manager.update_metadata(w.update_metadata(), correlation_id=1)
            asking = asyncio.create_task(w.tell(2))
            await asyncio.sleep(0)
            asking.cancel()
            w.produce(1, b"x")
            await w.until(lambda: TP in w.brokers[2].replica_manager.partitions, "the change is carried out")
            await w.until_equal(2)

    run_virtual(test)


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
