"""A power failure took the end of a segment, and not the segment after it: who cuts the log there, and who does not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from event_loop import staged
from log_folders import stored_batches, write_checkpoints
from replicated_brokers import TP, World, world
from virtual_time import run_virtual

from engine.broker.replication.settings import ReplicationSettings
from engine.kafka.config.log_config import LogConfig
from engine.kafka.config.metadata_version import MetadataVersion
from engine.kafka.formats.clean_shutdown import CLEAN_SHUTDOWN_FILE

SIZES = {"segment_bytes": 600, "index_interval_bytes": 64}
DELETED = LogConfig(**SIZES)  # type: ignore[arg-type]
COMPACTED = LogConfig(**SIZES, cleanup_policy=("compact",))  # type: ignore[arg-type]


async def two_with_a_gap(w: World) -> int:
    """Fill two replicas, and leave a gap in that of broker 2, which is down; return the first missing offset."""
    await w.lead(1)
    for number in range(12):
        w.produce(1, b"%d" % number + bytes(100))
    await w.until_equal(1, 2)
    first, second, *_ = w.log(2).segments
    *_, (position, last) = first.iter_batches()
    path = first.path
    await w.stop_broker(2, cleanly=False)
    path.write_bytes(path.read_bytes()[:position])
    assert last.base_offset < second.base_offset
    return last.base_offset


def offsets(w: World, broker_id: int) -> list[int]:
    return [header.base_offset for header, _ in stored_batches(w.log(broker_id).dir)]


def run(then: Callable, config: LogConfig, *, tmp_path: Path, **options: object) -> None:  # type: ignore[type-arg]
    async def test() -> None:
        async with world(tmp_path, 1, 2, log_config=config, **options) as w:
            missing = await two_with_a_gap(w)
            await then(w, missing)

    run_virtual(test)


@pytest.mark.parametrize("ibp", [MetadataVersion.IBP_2_6_IV0, MetadataVersion.IBP_3_9_IV0], ids=str)
@pytest.mark.parametrize(("config", "isr"), [(DELETED, (1,)), (DELETED, (1, 2)), (COMPACTED, (1,))])
def test_a_follower_fetches_again_what_is_missing_and_what_follows(
    tmp_path: Path, config: LogConfig, isr: tuple[int, ...], ibp: MetadataVersion
) -> None:
    async def then(w: World, _missing: int) -> None:
        w.start_broker(2)
        await w.lead(1, isr=isr)
        await w.until(lambda: w.states[TP].isr == (1, 2) and offsets(w, 2) == list(range(12)), "the gap is gone")
        assert w.log_bytes(1) == w.log_bytes(2)

    settings = ReplicationSettings(0, inter_broker_protocol_version=ibp, replica_lag_time_max_ms=5000)
    run(then, config, tmp_path=tmp_path, settings=settings)


@staged(run, DELETED)
async def test_it_keeps_everything_until_the_leader_has_answered(w: World, missing: int, /) -> None:
    """Until then its records may be the last ones of their kind."""
    w.start_broker(2)
    w.cut.add(frozenset((1, 2)))
    await w.lead(1)
    await w.let_pass(5000)
    assert offsets(w, 2) == [n for n in range(12) if n != missing]
    w.cut.clear()
    await w.until(lambda: offsets(w, 2) == list(range(12)), "the gap is gone")


@pytest.mark.parametrize("is_orderly", [True, False], ids=["orderly", "crash"])
@staged(run, DELETED)
async def test_a_restart_before_the_leader_has_answered_forgets_no_gap(
    w: World, missing: int, /, tmp_path: Path, is_orderly: bool
) -> None:
    """The follower used to join the ISR without those records."""
    w.start_broker(2)
    w.cut.add(frozenset((1, 2)))
    await w.lead(1)
    w.log(2).flush()
    write_checkpoints(w.brokers[2].log_manager)
    await w.stop_broker(2, cleanly=is_orderly)
    w.start_broker(2)
    await w.lead(1)
    assert offsets(w, 2) == [n for n in range(12) if n != missing]
    w.cut.clear()
    await w.until(lambda: offsets(w, 2) == list(range(12)), "the gap is gone")
    await w.stop_broker(2)
    assert (tmp_path / "broker-2-0" / CLEAN_SHUTDOWN_FILE).exists()


@staged(run, COMPACTED)
async def test_a_member_of_the_isr_keeps_a_gap_that_a_cleaning_may_have_made(w: World, missing: int, /) -> None:
    """What follows such a gap may have been flushed, and promised."""
    w.start_broker(2)
    await w.lead(1, isr=(1, 2))
    w.produce(1, b"more")
    await w.until_equal(2)
    assert offsets(w, 2) == [n for n in range(13) if n != missing]


@staged(run, DELETED)
async def test_who_has_led_with_a_gap_never_cuts_there(w: World, missing: int, /) -> None:
    """The other replica has copied what was appended since, and both may be in the ISR."""
    w.start_broker(2)
    await w.stop_broker(1)
    await w.lead(2, isr=(2,))
    w.produce(2, b"more")
    w.start_broker(1)
    await w.lead(2)
    await w.until(lambda: w.states[TP].isr == (1, 2) or w.states[TP].isr == (2, 1), "both are in the ISR")
    await w.lead(1)
    w.produce(1, b"and more")
    await w.until_equal(1, 2)
    assert offsets(w, 2) == [n for n in range(14) if n != missing]
    assert w.log(2).truncation_count == 0
