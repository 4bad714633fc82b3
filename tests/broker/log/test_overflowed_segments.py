"""Segments whose offsets are too far apart for indexes, as old Kafkas wrote them (KAFKA-6264): read, split, cleaned."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from cleaning import CONFIG, clean_once, pairs_of, work
from cleaning import prepare as prepare_cleaning
from log_folders import StandIn, data_batch, folder_content, marker_batch, open_log, values_of
from time_lookups import offset_for_timestamp

from engine.admin.dump.files import DumpOptions, dump_file
from engine.broker.log import segment_swap
from engine.broker.log.cleaner.messages import GroupCleaned, Report
from engine.broker.log.log import Log
from engine.broker.log.segment import LogSegment
from engine.kafka.config.log_config import LogConfig
from engine.kafka.formats.index_entries import TIME_ENTRY, AbortedTransaction, encode_aborted_transaction
from engine.kafka.protocol.records.attributes import Codec
from engine.kafka.protocol.records.legacy import encode_message_set
from engine.kafka.protocol.records.record import Record

FAR = 2**31
OFFSETS = (0, 7, FAR - 1, FAR, FAR + 3, 2 * FAR + 9)
BASES = [0, FAR, 2 * FAR + 9]
NEXT = 3 * FAR
PRODUCER = 1000


def at(batch: memoryview, offset: int) -> bytes:
    """Return a batch as a log stores it."""
    stored = bytearray(batch)
    struct.pack_into(">q", stored, 0, offset)
    return bytes(stored)


def batches(offsets: tuple[int, ...] = OFFSETS) -> bytes:
    return b"".join(at(data_batch(b"v%d" % n, key=b"k%d" % n, timestamp_ms=1000 + n), o) for n, o in enumerate(offsets))


def folder_of(tmp_path: Path, first: bytes, *, with_indexes: bool, next_base: int | None = NEXT) -> Path:
    """Write a partition whose first segment begins at 0, with one more segment behind it if wanted."""
    folder = tmp_path / "t-0"
    folder.mkdir()
    segments = {0: first}
    if next_base is not None:
        segments[next_base] = at(data_batch(b"next", key=b"next"), next_base)
    for base, data in segments.items():
        (folder / f"{base:020d}.log").write_bytes(data)
        if with_indexes:
            (folder / f"{base:020d}.index").touch()
            (folder / f"{base:020d}.timeindex").touch()
    return folder


def expected(offsets: tuple[int, ...] = OFFSETS) -> list[tuple[int, bytes | None]]:
    return [(offset, b"v%d" % n) for n, offset in enumerate(offsets)]


def bases_of(log: Log) -> list[int]:
    return [segment.base_offset for segment in log.segments]


@pytest.mark.parametrize("clean", [True, False])
def test_a_recovery_splits_what_its_indexes_cannot_count(tmp_path: Path, clean: bool) -> None:
    """Nothing is lost: neither what is behind the overflow, nor the segments that follow."""
    folder, environment = folder_of(tmp_path, batches(), with_indexes=False), StandIn()
    log = open_log(folder, LogConfig(), environment, clean=clean)
    assert bases_of(log) == [*BASES, NEXT]
    assert values_of(log) == [*expected(), (NEXT, b"next")]
    assert [log.segment_of(offset).base_offset for offset in OFFSETS] == [0, 0, 0, FAR, FAR, BASES[2]]
    assert values_of(log, FAR + 1) == [*expected()[4:], (NEXT, b"next")]
    assert offset_for_timestamp(log, 1004)[0] == FAR + 3
    assert log.append_as_leader(data_batch(b"more"), 0).first_offset == NEXT + 1
    log.flush()
    log.close()
    environment.delete_now()
    assert folder_content(folder, ".deleted", ".cleaned", ".swap") == {}
    again = open_log(folder)
    assert values_of(again)[:-1] == [*expected(), (NEXT, b"next")]
    for path in sorted(folder.glob("*.log")):
        rows = [str(row) for row in dump_file(path, DumpOptions())]
        assert len(rows) > 1


def test_a_segment_that_was_closed_in_order_is_read_as_it_is(tmp_path: Path) -> None:
    """As in Kafka: a clean start does not read all segments to look for an overflow."""
    folder = folder_of(tmp_path, batches(), with_indexes=True, next_base=None)
    (folder / f"{0:020d}.timeindex").write_bytes(TIME_ENTRY.pack(1000, 0))
    log = open_log(folder)
    assert bases_of(log) == [0]
    assert values_of(log) == expected()
    assert values_of(log, FAR) == expected()[3:]
    assert log.append_as_leader(data_batch(b"more"), 0).first_offset == OFFSETS[-1] + 1
    assert bases_of(log) == [0, OFFSETS[-1] + 1]
    assert log.truncate_to(FAR + 3)
    assert values_of(log) == expected()[:4]
    assert log.append_as_leader(data_batch(b"more"), 0).first_offset == FAR + 3
    assert bases_of(log) == [0, FAR + 3]
    log.close()


def test_the_first_piece_may_be_empty(tmp_path: Path) -> None:
    """The log still begins where it began."""
    offsets = (FAR + 5, FAR + 6)
    log = open_log(folder_of(tmp_path, batches(offsets), with_indexes=False, next_base=None), clean=False)
    assert bases_of(log) == [0, FAR + 5]
    assert (log.log_start_offset, log.log_end_offset) == (0, FAR + 7)
    assert values_of(log) == expected(offsets)


def test_a_torn_tail_behind_an_overflow_is_cut_and_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    data = batches()
    log = open_log(folder_of(tmp_path, data + data[:70], with_indexes=True), clean=False)
    assert values_of(log) == expected()
    assert bases_of(log) == BASES
    assert "cut_bytes=70" in caplog.text


@pytest.mark.parametrize("offsets", [(0, 7, FAR + 3, 8), (0, 7, NEXT)], ids=["less after it", "beyond the next"])
def test_an_offset_that_was_damaged_is_no_overflow(tmp_path: Path, offsets: tuple[int, ...]) -> None:
    log = open_log(folder_of(tmp_path, batches(offsets), with_indexes=True), clean=False)
    assert values_of(log) == [(0, b"v0"), (7, b"v1")]
    assert bases_of(log) == [0]


def test_wrappers_of_the_old_formats_are_found_by_their_first_record(tmp_path: Path) -> None:
    wrapped = [Record(offset=FAR + n, timestamp_ms=1, key=b"k", value=b"%d" % n) for n in range(3)]
    data = at(data_batch(b"first"), 5) + encode_message_set(wrapped, magic=1, codec=Codec.GZIP)
    log = open_log(folder_of(tmp_path, data, with_indexes=False, next_base=None), clean=False)
    assert bases_of(log) == [0, FAR]
    assert values_of(log, FAR + 1) == [(FAR + 1, b"1"), (FAR + 2, b"2")]


def aborted_far_away() -> bytes:
    sent = data_batch(b"gone", key=b"x", producer=(PRODUCER, 0, 0), transactional=True)
    return batches((3,)) + at(sent, FAR + 1) + at(marker_batch(PRODUCER, 0, commit=False), FAR + 2)


def test_aborted_transactions_are_known_after_a_split(tmp_path: Path) -> None:
    log = open_log(folder_of(tmp_path, aborted_far_away(), with_indexes=False), recovery_point=NEXT)
    assert bases_of(log) == [0, FAR + 1, NEXT]
    (aborted,) = log.collect_aborted_transactions(0, NEXT)
    assert (aborted.producer_id, aborted.first_offset, aborted.last_offset) == (PRODUCER, FAR + 1, FAR + 2)


class PowerCut(Exception):
    """The machine loses power here."""


@pytest.mark.parametrize("renames", range(10))
def test_a_crash_during_a_split_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, renames: int) -> None:
    """Three logs become ``.swap``, the old one and its indexes ``.deleted``. Three get their names: nine renames."""
    folder = folder_of(tmp_path, batches(), with_indexes=False)
    left = renames
    rename = Path.rename

    def failing(path: Path, target: Path) -> Path:
        nonlocal left
        if not path.exists():
            raise FileNotFoundError(path)
        if not left:
            raise PowerCut
        left -= 1
        return rename(path, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", failing)
        if renames < 9:
            with pytest.raises(PowerCut):
                open_log(folder, clean=False)
        else:
            open_log(folder, clean=False)
    log = open_log(folder, clean=False)
    assert bases_of(log) == [*BASES, NEXT]
    assert values_of(log) == [*expected(), (NEXT, b"next")]
    assert folder_content(folder, ".cleaned", ".swap") == {}


def compacted(tmp_path: Path, data: bytes, transaction_index: bytes = b"") -> Log:
    folder = folder_of(tmp_path, data, with_indexes=True)
    if transaction_index:
        (folder / f"{0:020d}.txnindex").write_bytes(transaction_index)
    log = open_log(folder, CONFIG)
    log.update_high_watermark(log.log_end_offset)
    return log


def test_a_cleaning_splits_what_its_indexes_cannot_count(tmp_path: Path) -> None:
    """Kafka splits first, and cleans later. Here a cleaning writes as many segments as it needs."""
    again = (*OFFSETS, 2 * FAR + 10)
    data = batches() + at(data_batch(b"new", key=b"k3"), again[-1])
    log = compacted(tmp_path, data)
    swaps: list[GroupCleaned] = []
    work(prepare_cleaning(log), lambda report: swaps.append(report) if isinstance(report, GroupCleaned) else None)
    kept = [(o, b"k%d" % n, b"v%d" % n) for n, o in enumerate(OFFSETS) if n != 3] + [(again[-1], b"k3", b"new")]
    assert pairs_of(log)[:-1] == kept
    assert bases_of(log) == [0, FAR + 3, BASES[2], NEXT]
    assert [segment.base_offset for segment in swaps[0].new] == [0, FAR + 3, BASES[2]]
    assert not log.cleaning.is_uncleanable
    assert log.cleaning.first_dirty_offset == NEXT
    assert values_of(open_log(log.dir, CONFIG)) == [(offset, value) for offset, _, value in pairs_of(log)]


def test_a_cleaning_keeps_aborted_transactions_where_their_markers_are(tmp_path: Path) -> None:
    entry = encode_aborted_transaction(AbortedTransaction(PRODUCER, FAR + 1, FAR + 2, FAR + 3))
    log = compacted(tmp_path, aborted_far_away(), entry)
    clean_once(log)
    assert [value for _, _, value in pairs_of(log)][::2] == [b"v0", b"next"]
    assert bases_of(log) == [0, FAR + 2, NEXT]
    assert folder_content(log.dir, ".txnindex") == {f"{FAR + 2:020d}.txnindex": entry}


def test_a_crash_between_the_swaps_of_a_cleaning_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = compacted(tmp_path, batches())
    change_suffix = LogSegment.change_suffix

    def failing(segment: LogSegment, suffix: str) -> None:
        if segment.base_offset == FAR and not suffix:
            raise PowerCut
        change_suffix(segment, suffix)

    with monkeypatch.context() as patched:
        patched.setattr(segment_swap.LogSegment, "change_suffix", failing)
        with pytest.raises(PowerCut):
            clean_once(log)
    again = open_log(log.dir, CONFIG, clean=False)
    assert bases_of(again) == [*BASES, NEXT]
    assert values_of(again) == [*expected(), (NEXT, b"next")]


def test_a_cleaning_refuses_an_offset_of_the_next_segment(tmp_path: Path) -> None:
    log = compacted(tmp_path, batches((0, 7, NEXT)))
    reports: list[Report] = []
    with pytest.raises(Exception, match=f"offset {NEXT} cannot follow offset 7"):
        work(prepare_cleaning(log), reports.append)
    assert bases_of(log) == [0, NEXT]
