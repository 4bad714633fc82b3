"""Where a cleaning begins and ends: what is already clean, what one round covers, and what a crash leaves."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest
from cleaning import changed, clean_once, close_segment, new_log, pairs_of, prepare, put, work

from engine.broker.log.cleaner.cleaning import GROUP_SEGMENTS_MAX, clean, remove_leftovers
from engine.broker.log.cleaner.key_map import LOOK_KEYS, KeyMap
from engine.broker.log.cleaner.messages import CleaningPlan, Finished, GroupCleaned, Indexed, Report, SegmentToClean
from engine.broker.log.log import Log
from engine.common.errors import CorruptFileError
from engine.kafka.protocol.records.header import iter_batches


def plan_of(log: Log, **changes: object) -> CleaningPlan:
    return replace(prepare(log).plan, **changes)  # type: ignore[arg-type]


def reports_of(plan: CleaningPlan) -> list[Report]:
    """Clean into ``.cleaned`` files that nobody takes over."""
    reports: list[Report] = []
    clean(plan, reports.append)
    return reports


def groups_of(reports: list[Report]) -> list[tuple[int, ...]]:
    return [report.base_offsets for report in reports if isinstance(report, GroupCleaned)]


def test_files_that_a_cut_off_cleaning_left_are_gone_before_the_next(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    put(log, (b"a", b"1"))
    close_segment(log)
    left = [tmp_path / "t-0" / f"{99:020d}.{kind}.cleaned" for kind in ("log", "index", "timeindex", "txnindex")]
    for path in left:
        path.write_bytes(b"half")
    clean_once(log)
    assert [path.name for path in left if path.exists()] == []
    assert list((tmp_path / "t-0").glob("*.cleaned")) == []
    assert pairs_of(log) == [(0, b"a", b"1")]
    remove_leftovers(tmp_path / "t-0")


def test_the_broker_hears_how_many_keys_were_found_and_up_to_where(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    put(log, (b"a", b"1"), (b"b", b"1"), (b"a", b"2"))
    close_segment(log)
    assert [report for report in reports_of(plan_of(log)) if isinstance(report, Indexed)] == [Indexed(3, 2)]


@pytest.mark.parametrize("first_dirty", range(5))
def test_a_batch_that_is_partly_clean_gives_the_keys_of_its_dirty_part_only(tmp_path: Path, first_dirty: int) -> None:
    log = new_log(tmp_path, changed(segment_bytes=100_000))
    put(log, (b"a", b"0"), (b"b", b"0"), (b"c", b"0"), (b"d", b"0"))
    put(log, (b"e", b"0"))
    close_segment(log)
    indexed = next(
        report for report in reports_of(plan_of(log, first_dirty_offset=first_dirty)) if isinstance(report, Indexed)
    )
    assert indexed == Indexed(5, 5 - first_dirty)


def test_records_without_key_are_counted_in_the_dirty_part_only(tmp_path: Path) -> None:
    config = changed(segment_bytes=100_000)
    log = new_log(tmp_path, replace(config, cleanup_policy=("delete",)))
    put(log, (None, b"0"), (None, b"1"), (None, b"2"), (b"a", b"3"))
    close_segment(log)
    log.update_config(config)
    finished = reports_of(plan_of(log, first_dirty_offset=1))[-1]
    assert isinstance(finished, Finished)
    assert finished.stats.invalid_messages_read == 2 + 3, "two on the way to the keys, all three while it copies"


def test_segments_before_the_dirty_part_are_not_read_for_keys(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    put(log, (b"a", b"1"))
    log.roll()
    put(log, (b"b", b"1"))
    close_segment(log)
    plan = plan_of(log, first_dirty_offset=1)
    assert plan.segments == (SegmentToClean(0, 1), SegmentToClean(1, 2))
    finished = reports_of(plan)[-1]
    assert isinstance(finished, Finished)
    assert finished.stats.map_bytes_read == (tmp_path / "t-0" / f"{1:020d}.log").stat().st_size
    assert finished.stats.map_messages_read == 1


def test_damage_in_the_clean_part_or_beyond_the_map_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pass that maps keys does not come there, so the one that copies has to look."""
    monkeypatch.setattr(KeyMap, "is_full", lambda keys: len(keys.places) == 2)
    log = new_log(tmp_path, changed(segment_bytes=100_000))
    keys = [b"key-%d" % number for number in range(5)]
    for key in keys:
        put(log, (key, b"1"))
        if key == keys[0]:
            log.roll()
    close_segment(log)
    plan = plan_of(log, first_dirty_offset=1)
    for number, key in enumerate(keys):
        path = log.segment_of(number).path
        whole = path.read_bytes()
        path.write_bytes(whole.replace(key, b"k0y-0"))
        with pytest.raises(CorruptFileError, match=f"batch at offset {number} has a wrong checksum"):
            reports_of(plan)
        path.write_bytes(whole)


@pytest.mark.parametrize(("wrong_at", "offset"), [(1, 0), (3, 0), (3, 2), (3, 4), (3, 9)])
@pytest.mark.parametrize("first_dirty", [0, 5])
def test_an_offset_that_another_batch_may_have_is_damage(
    tmp_path: Path, wrong_at: int, offset: int, first_dirty: int
) -> None:
    """No checksum covers it. The batch that really has it would be cut where the other one's records begin."""
    log = new_log(tmp_path, changed(segment_bytes=100_000))
    put(log, (b"zero", b"1"))
    log.roll()
    put(log, (b"a", b"1"), (b"b", b"1"))
    put(log, (b"longer", b"1"), (b"too", b"1"))
    close_segment(log)
    put(log, (b"last", b"1"))
    path = log.segment_of(wrong_at).path
    data = bytearray(path.read_bytes())
    position = next(position for position, header in iter_batches(data) if header.base_offset == wrong_at)
    data[position : position + 8] = offset.to_bytes(8, "big")
    path.write_bytes(data)
    with pytest.raises(CorruptFileError, match=f"offset {offset} cannot follow offset {wrong_at - 1}"):
        reports_of(plan_of(log, first_dirty_offset=first_dirty))


def test_an_empty_tail_counts_as_cleaned_to_its_end(tmp_path: Path) -> None:
    """Otherwise a segment whose last offsets an earlier cleaning removed would stay dirty forever."""
    log = new_log(tmp_path)
    put(log, (b"a", b"1"))
    close_segment(log)
    plan = plan_of(log)
    longer = replace(plan, segments=(replace(plan.segments[0], end_offset=9),))
    assert next(report for report in reports_of(longer) if isinstance(report, Indexed)).end_offset == 9


def test_nothing_dirty_ends_where_it_began(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    put(log, (b"a", b"1"))
    close_segment(log)
    reports = reports_of(plan_of(log, first_dirty_offset=1, segments=()))
    assert reports[0] == Indexed(1, 0)
    assert groups_of(reports) == []


def write_segments(log: Log, count: int = 3) -> None:
    """Write segments of one batch each, all of the same size."""
    for number in range(count):
        put(log, (b"%d" % number, b"x"))
        log.roll()
    close_segment(log)


@pytest.mark.parametrize(("spare", "groups"), [(0, [(0, 1), (2,)]), (-1, [(0,), (1,), (2,)])])
def test_a_group_may_be_as_large_as_a_segment_and_no_larger(
    tmp_path: Path, spare: int, groups: list[tuple[int, ...]]
) -> None:
    log = new_log(tmp_path)
    write_segments(log)
    plan = plan_of(log)
    size = (tmp_path / "t-0" / f"{0:020d}.log").stat().st_size
    limits = replace(plan.limits, segment_bytes=2 * size + spare)
    assert groups_of(reports_of(replace(plan, limits=limits))) == groups


@pytest.mark.parametrize("kind", ["index", "timeindex"])
@pytest.mark.parametrize(("spare", "groups"), [(0, [(0, 1), (2,)]), (-1, [(0,), (1,), (2,)])])
def test_the_indexes_of_a_group_fit_into_one(
    tmp_path: Path, kind: str, spare: int, groups: list[tuple[int, ...]]
) -> None:
    log = new_log(tmp_path)
    write_segments(log)
    for base_offset in range(3):
        (tmp_path / "t-0" / f"{base_offset:020d}.{kind}").write_bytes(bytes(240))
    plan = plan_of(log)
    assert groups_of(reports_of(replace(plan, limits=replace(plan.limits, segment_index_bytes=480 + spare)))) == groups


@pytest.mark.parametrize(("spare", "groups"), [(0, [(1, 2)]), (1, [(1,), (2,)])])
def test_no_group_reaches_further_than_an_index_counts(
    tmp_path: Path, spare: int, groups: list[tuple[int, ...]]
) -> None:
    log = new_log(tmp_path)
    write_segments(log)
    plan = plan_of(log)
    last = replace(plan.segments[2], end_offset=1 + 2**31 + spare)
    assert groups_of(reports_of(replace(plan, segments=(plan.segments[1], last)))) == groups


def test_a_group_has_no_more_segments_than_the_event_loop_can_swap(tmp_path: Path) -> None:
    log = new_log(tmp_path, changed(segment_bytes=100_000, segment_index_bytes=100_000))
    write_segments(log, GROUP_SEGMENTS_MAX + 1)
    assert [len(group) for group in groups_of(reports_of(plan_of(log)))] == [GROUP_SEGMENTS_MAX, 1]


def test_a_segment_behind_a_full_map_waits_for_the_next_round(tmp_path: Path) -> None:
    """The map knows nothing of its keys: cleaning it would throw all its records away."""
    log = new_log(tmp_path, changed(segment_bytes=100_000))
    put(log, *((b"%d" % number, b"x") for number in range(LOOK_KEYS)))
    log.roll()
    put(log, (b"behind", b"x"))
    close_segment(log)
    plan = plan_of(log)
    reports = reports_of(replace(plan, limits=replace(plan.limits, map_bytes=1)))
    assert reports[0] == Indexed(LOOK_KEYS, LOOK_KEYS)
    assert groups_of(reports) == [(0,)]


def test_the_figures_that_the_log_tells_are_those_of_the_cleaning(tmp_path: Path) -> None:
    log = new_log(tmp_path, replace(changed(segment_bytes=100_000), cleanup_policy=("delete",)))
    put(log, (None, b"1"), (b"a", b"1"), (None, b"2"))
    put(log, (b"a", b"2"))
    close_segment(log)
    log.update_config(changed(segment_bytes=100_000))
    size = (tmp_path / "t-0" / f"{0:020d}.log").stat().st_size
    begun_s, begun_cpu_s = time.monotonic(), time.process_time()
    stats = work(prepare(log)).stats
    assert (stats.map_bytes_read, stats.map_messages_read, stats.invalid_messages_read) == (size, 4, 2)
    assert (stats.bytes_read, stats.messages_read, stats.messages_written) == (size, 4, 1)
    assert 0 <= stats.index_s <= stats.elapsed_s <= time.monotonic() - begun_s, "in this process"
    assert 0 <= stats.cpu_s <= time.process_time() - begun_cpu_s
    assert stats.bytes_written == (tmp_path / "t-0" / f"{0:020d}.log").stat().st_size
    assert 0 < stats.map_utilization < 1
