"""Dumps of damaged files, of unknown files, and with options that leave things out."""

from __future__ import annotations

import json
import random
import shutil
import struct
from dataclasses import asdict
from pathlib import Path

import pytest

from engine.admin.cluster.errors import BadRequest, NotFound
from engine.admin.dump.files import DumpOptions, FileKind, decoder_for, dump_file, files_to_dump, kind_of_file
from engine.admin.dump.payloads import PayloadDecoder
from engine.admin.dump.rows import (
    AbortedTransactionRow,
    BatchRow,
    Finding,
    FindingKind,
    LeaderEpochRow,
    OffsetCheckpointRow,
    OffsetIndexRow,
    ProducerRow,
    PropertyRow,
    RecordRow,
    TimeIndexRow,
    problem_lines,
    row_line,
)
from engine.kafka.formats.index_entries import OFFSET_ENTRY, TIME_ENTRY
from engine.kafka.formats.producer_snapshot import ProducerSnapshotEntry, encode_producer_snapshot
from engine.kafka.protocol.records.attributes import Codec
from engine.kafka.protocol.records.encode import encode_batch
from engine.kafka.protocol.records.legacy import encode_message_set
from engine.kafka.protocol.records.record import Record

DISK = Path(__file__).parents[3] / "fixtures" / "disk"
SEGMENT = "00000000000000000000.log"
DATA = DumpOptions(print_data_log=True)
QUIET = DumpOptions(verify_index_only=True)
SANITY = DumpOptions(index_sanity_check=True)


def batch(offset: int, count: int = 1, **options: object) -> bytes:
    records = [Record(offset + index, 1_000 + offset + index, b"k", b"v") for index in range(count)]
    return encode_batch(records, base_offset=offset, **options)  # type: ignore[arg-type]


def write(folder: Path, name: str, data: bytes) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_bytes(data)
    return path


def findings(path: Path, options: DumpOptions = DATA) -> list[Finding]:
    return [row for row in dump_file(path, options) if isinstance(row, Finding)]


def test_the_name_tells_the_kind() -> None:
    kinds = {
        "00000000000000000007.log": FileKind.SEGMENT,
        "00000000000000000007.log.deleted": FileKind.SEGMENT,
        "00000000000000000007.index.cleaned": FileKind.OFFSET_INDEX,
        "00000000000000000007.timeindex.swap": FileKind.TIME_INDEX,
        "00000000000000000007.txnindex": FileKind.TRANSACTION_INDEX,
        "00000000000000000007.snapshot": FileKind.PRODUCER_SNAPSHOT,
        "leader-epoch-checkpoint": FileKind.LEADER_EPOCH_CHECKPOINT,
        "replication-offset-checkpoint": FileKind.OFFSET_CHECKPOINT,
        "cleaner-offset-checkpoint": FileKind.OFFSET_CHECKPOINT,
        "partition.metadata": FileKind.PARTITION_METADATA,
        "meta.properties": FileKind.META_PROPERTIES,
        ".kafka_cleanshutdown": FileKind.CLEAN_SHUTDOWN,
        "server.log": None,
        "stray.txt": None,
        ".lock": None,
    }
    assert {name: kind_of_file(Path("/d") / name) for name in kinds} == kinds


def test_a_missing_file_and_one_that_is_none_of_kafkas_are_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no such file"):
        list(dump_file(tmp_path / SEGMENT))
    with pytest.raises(NotFound):
        files_to_dump(tmp_path / "nothing")
    with pytest.raises(BadRequest, match="not a file of Kafka's log dirs") as caught:
        list(dump_file(write(tmp_path, "notes.txt", b"x")))
    assert caught.value.hint is not None
    assert ".timeindex" in caught.value.hint
    with pytest.raises(BadRequest):
        list(dump_file(tmp_path))


def test_the_files_of_a_folder() -> None:
    names = [path.name for path in files_to_dump(DISK / "clean" / "data" / "tx-0")]
    assert "leader-epoch-checkpoint" in names
    assert f"{27:020}.txnindex" in names
    assert "stray.txt" not in [path.name for path in files_to_dump(DISK / "clean" / "data")]


def test_batches_alone_and_with_records_and_with_data(tmp_path: Path) -> None:
    path = write(tmp_path, SEGMENT, batch(0, 2) + batch(2, 3, codec=Codec.ZSTD))
    batches = [row for row in dump_file(path) if isinstance(row, BatchRow)]
    assert [(row.base_offset, row.last_offset, row.count, row.codec) for row in batches] == [
        (0, 1, 2, "none"),
        (2, 4, 3, "zstd"),
    ]
    assert not [row for row in dump_file(path) if isinstance(row, RecordRow)]
    deep = [row for row in dump_file(path, DumpOptions(deep_iteration=True)) if isinstance(row, RecordRow)]
    assert [(row.offset, row.key, row.value, row.key_size_bytes) for row in deep] == [
        (n, None, None, 1) for n in range(5)
    ]
    data = [row for row in dump_file(path, DATA) if isinstance(row, RecordRow)]
    assert {(row.key, row.value) for row in data} == {("k", "v")}


def test_every_row_can_be_written_as_json() -> None:
    files = [path for path in sorted((DISK / "clean" / "data").rglob("*")) if path.is_file()]
    rows = [row for path in files if kind_of_file(path) is not None for row in dump_file(path, DATA)]
    assert len({row.kind for row in rows}) > 5
    assert [json.loads(json.dumps(asdict(row)))["kind"] for row in rows] == [row.kind for row in rows]


def test_wrappers_of_old_formats_tell_neither_first_offset_nor_count(tmp_path: Path) -> None:
    records = [Record(5, 1, b"a", b"b"), Record(6, 2, b"c", b"d")]
    path = write(
        tmp_path, SEGMENT, encode_message_set(records, 1, codec=Codec.GZIP) + encode_message_set(records[:1], 0)
    )
    wrapper, single = (row for row in dump_file(path) if isinstance(row, BatchRow))
    assert (wrapper.base_offset, wrapper.last_offset, wrapper.count) == (None, 6, None)
    assert (single.base_offset, single.last_offset, single.count, single.timestamp_type) == (5, 5, 1, "NoTimestampType")
    deep = [row for row in dump_file(path, DATA) if isinstance(row, RecordRow)]
    assert [(row.offset, row.sequence, row.is_valid) for row in deep] == [
        (5, None, True),
        (6, None, True),
        (5, None, True),
    ]


def test_a_batch_larger_than_the_reading_window(tmp_path: Path) -> None:
    large = encode_batch([Record(0, 1, None, bytes(3_000_000))])
    path = write(tmp_path, SEGMENT, large + batch(1) + large[:1_500_000])
    assert [row.size_bytes for row in dump_file(path) if isinstance(row, BatchRow)] == [len(large), len(batch(1))]
    (finding,) = findings(path)
    assert (finding.finding, finding.subject) == (FindingKind.TRAILING_BYTES, 1_500_000)


def test_torn_bytes_at_the_end(tmp_path: Path) -> None:
    path = write(tmp_path, SEGMENT, batch(0) + batch(1)[:30])
    (finding,) = findings(path)
    assert (finding.finding, finding.subject, finding.found) == (FindingKind.TRAILING_BYTES, 30, len(batch(0)))
    assert row_line(finding, path) == f"Found 30 invalid bytes at the end of {SEGMENT}"
    assert not findings(path, DumpOptions(max_bytes=len(batch(0)) + 10))


def test_a_senseless_header_ends_the_dump_and_says_where(tmp_path: Path) -> None:
    path = write(tmp_path, SEGMENT, batch(0) + bytes(40))
    (finding,) = findings(path)
    assert (finding.finding, finding.subject) == (FindingKind.CORRUPT, len(batch(0)))
    (line,) = problem_lines(path, [finding])
    assert line.startswith(f"{path} at position {len(batch(0))}: ")
    assert row_line(finding, path) is None


def test_broken_records_do_not_hide_what_follows(tmp_path: Path) -> None:
    broken = bytearray(batch(1, codec=Codec.GZIP))
    broken[61] ^= 0xFF
    unknown_codec = bytearray(batch(2))
    unknown_codec[22] |= 7
    path = write(tmp_path, SEGMENT, batch(0) + broken + unknown_codec + batch(3))
    rows = list(dump_file(path, DATA))
    assert [(row.is_valid, row.codec) for row in rows if isinstance(row, BatchRow)] == [
        (True, "none"),
        (False, "gzip"),
        (False, "unknown(7)"),
        (True, "none"),
    ]
    assert [row.offset for row in rows if isinstance(row, RecordRow)] == [0, 3]
    kinds = [row.finding for row in rows if isinstance(row, Finding)]
    assert kinds == [FindingKind.CORRUPT, FindingKind.CORRUPT, FindingKind.NON_CONSECUTIVE_OFFSETS]


def test_bytes_that_are_no_text_are_replaced(tmp_path: Path) -> None:
    path = write(tmp_path, SEGMENT, encode_batch([Record(0, 1, b"\xff", b"a\xc3", [("h", b"\xfe")])]))
    (row,) = (row for row in dump_file(path, DATA) if isinstance(row, RecordRow))
    assert (row.key, row.value, row.headers) == ("\ufffd", "a\ufffd", [{"key": "h", "value": "\ufffd"}])


def test_internal_topics_are_decoded_unless_told_otherwise(tmp_path: Path) -> None:
    source = DISK / "clean" / "data" / "__consumer_offsets-0" / SEGMENT
    assert decoder_for(source, DATA) is PayloadDecoder.OFFSETS
    assert decoder_for(source.parent.with_name("__transaction_state-3") / SEGMENT, DATA) is PayloadDecoder.TRANSACTIONS
    as_text = DumpOptions(decoder=PayloadDecoder.TEXT)
    assert {type(row.key) for row in dump_file(source, as_text) if isinstance(row, RecordRow)} <= {str, type(None)}
    copied = write(tmp_path, SEGMENT, source.read_bytes())
    assert decoder_for(copied, DATA) is PayloadDecoder.TEXT
    rows = [row for row in dump_file(copied, DumpOptions(decoder=PayloadDecoder.OFFSETS)) if isinstance(row, RecordRow)]
    assert rows[0].key == {"type": "2", "data": {"group": "readers"}}
    assert rows[1].value["data"]["offset"] == 10


@pytest.mark.parametrize(
    ("decoder", "key", "value", "reason"),
    [
        (PayloadDecoder.OFFSETS, None, b"", "it has no key"),
        (PayloadDecoder.OFFSETS, b"\0\x07abc", b"", "unknown version 7"),
        (PayloadDecoder.OFFSETS, b"\0\1\0\x63", b"", "OffsetCommitKey"),
        (PayloadDecoder.OFFSETS, b"\0\2\0\1g", b"\0\x09", "version 9"),
        (PayloadDecoder.TRANSACTIONS, b"\0\5\0\1g", b"", "version 5"),
        (PayloadDecoder.TRANSACTIONS, b"\0\0\0\1g", b"\0\0\1", "TransactionLogValue"),
    ],
)
def test_records_that_do_not_belong_into_the_topic_are_shown_without_payload(
    tmp_path: Path, decoder: PayloadDecoder, key: bytes | None, value: bytes, reason: str
) -> None:
    path = write(tmp_path, SEGMENT, encode_batch([Record(0, 1, key, value)]))
    options = DumpOptions(decoder=decoder)
    (finding,) = findings(path, options)
    assert finding.finding is FindingKind.UNDECODABLE
    assert reason in (finding.message or "")
    (row,) = (row for row in dump_file(path, options) if isinstance(row, RecordRow))
    assert (row.offset, row.key, row.value) == (0, None, None)
    (line,) = problem_lines(path, [finding])
    assert "at offset 0" in line


def indexed(folder: Path, offset_entries: bytes, time_entries: bytes = b"") -> Path:
    """A segment of four batches: offsets 10-11, 12-13, 14-15, 16-17, each 1,000 + offset in age."""
    log = b"".join(batch(offset, 2) for offset in (10, 12, 14, 16))
    write(folder, "00000000000000000010.log", log)
    write(folder, "00000000000000000010.index", offset_entries)
    return write(folder, "00000000000000000010.timeindex", time_entries)


STEP = len(batch(10, 2))
RIGHT = OFFSET_ENTRY.pack(3, STEP) + OFFSET_ENTRY.pack(7, 3 * STEP)


def test_right_indexes_and_their_preallocated_tails(tmp_path: Path) -> None:
    time_index = indexed(
        tmp_path, RIGHT + bytes(80), TIME_ENTRY.pack(1_013, 3) + TIME_ENTRY.pack(1_017, 7) + bytes(120)
    )
    index = time_index.with_suffix(".index")
    assert list(dump_file(index)) == [OffsetIndexRow(13, STEP), OffsetIndexRow(17, 3 * STEP)]
    assert list(dump_file(time_index)) == [TimeIndexRow(1_013, 13), TimeIndexRow(1_017, 17)]
    for path in (index, time_index):
        assert list(dump_file(path, QUIET)) == []
    assert findings(index, SANITY) == [Finding(FindingKind.SANE)]
    (row,) = findings(time_index, SANITY)
    assert row.finding is FindingKind.CORRUPT, "Kafka's check takes the last zeros for the last entry"
    assert row.message == (
        "the last timestamp (0) is below the first (1013): the file ends in zeros, as it does while a broker uses it"
    )


@pytest.mark.parametrize("tail", [b"", bytes(96)])
def test_empty_indexes(tmp_path: Path, tail: bytes) -> None:
    time_index = indexed(tmp_path, tail, tail)
    for path in (time_index, time_index.with_suffix(".index")):
        for options in (DATA, QUIET):
            assert list(dump_file(path, options)) == [Finding(FindingKind.EMPTY)]
    assert row_line(Finding(FindingKind.EMPTY), time_index) == f"{time_index} is empty."


@pytest.mark.parametrize(
    ("suffix", "data", "expected"),
    [
        (".index", b"", FindingKind.EMPTY),
        (".index", b"abc", FindingKind.EMPTY),
        (".index", bytes(1024), FindingKind.SANE),
        (".index", OFFSET_ENTRY.pack(7, STEP) + OFFSET_ENTRY.pack(3, STEP), FindingKind.SANE),
        (".index", OFFSET_ENTRY.pack(-1, 1), FindingKind.CORRUPT),
        (".index", RIGHT + b"x", FindingKind.CORRUPT),
        (".timeindex", b"", FindingKind.SANE),
        (".timeindex", b"abc", FindingKind.CORRUPT),
        (".timeindex", bytes(1020), FindingKind.SANE),
        (".timeindex", TIME_ENTRY.pack(9, 3) + TIME_ENTRY.pack(5, 7), FindingKind.CORRUPT),
        (".timeindex", TIME_ENTRY.pack(9, -1), FindingKind.CORRUPT),
        (".timeindex", TIME_ENTRY.pack(9, 3) + b"x", FindingKind.CORRUPT),
    ],
)
def test_the_sanity_check_is_kafkas(tmp_path: Path, suffix: str, data: bytes, expected: FindingKind) -> None:
    """Each case was put to the tool of Kafka 3.9.1, which said the same: ``CORRUPT`` where it ended with an error."""
    path = write(tmp_path, f"00000000000000000010{suffix}", data)
    assert [each.finding for each in findings(path, SANITY)] == [expected]


def test_entries_that_contradict_the_segment_are_named(tmp_path: Path) -> None:
    entries = [(3, 0), (5, 2 * STEP), (6, 3 * STEP), (7, 3 * STEP + 1), (9, 99 * STEP)]
    index = indexed(tmp_path, b"".join(OFFSET_ENTRY.pack(*entry) for entry in entries)).with_suffix(".index")
    mismatches = [(each.subject, each.found) for each in findings(index, QUIET)]
    assert mismatches == [(13, 11), (16, 17), (17, -1), (19, -1)]
    lines = list(problem_lines(index, findings(index, QUIET)))
    assert lines[:2] == [f"Mismatches in :{index}", "  Index offset: 13, log offset: 11"]


def test_times_that_contradict_the_segment_are_named(tmp_path: Path) -> None:
    entries = [(1_011, 1), (1_012, 3), (1_012, 4), (1_015, 5), (1_014, 7), (1_099, 20)]
    time_index = indexed(tmp_path, RIGHT, b"".join(TIME_ENTRY.pack(*entry) for entry in entries))
    assert [(each.finding, each.subject, each.found) for each in findings(time_index, QUIET)] == [
        (FindingKind.TIMESTAMP_MISMATCH, 1_012, 1_013),
        (FindingKind.OFFSET_NOT_FOUND, 14, 15),
        (FindingKind.TIMESTAMP_MISMATCH, 1_014, 1_017),
        (FindingKind.TIMESTAMP_OUT_OF_ORDER, 1_014, 1_015),
        (FindingKind.OFFSET_NOT_FOUND, 30, -1),
    ]


def test_without_its_segment_an_index_is_shown_but_not_verified(tmp_path: Path) -> None:
    time_index = indexed(tmp_path, RIGHT, TIME_ENTRY.pack(1_013, 3))
    time_index.with_suffix(".log").unlink()
    for path, entry in (
        (time_index, TimeIndexRow(1_013, 13)),
        (time_index.with_suffix(".index"), OffsetIndexRow(13, STEP)),
    ):
        rows = list(dump_file(path))
        assert entry in rows
        assert [row.finding for row in rows if isinstance(row, Finding)] == [FindingKind.UNVERIFIED]


def test_transaction_indexes(tmp_path: Path) -> None:
    entry = struct.pack(">hqqqq", 0, 9, 1, 6, 0)
    path = write(tmp_path, "00000000000000000000.txnindex", entry)
    assert list(dump_file(path)) == [AbortedTransactionRow(0, 9, 1, 6, 0)]
    assert list(dump_file(path, SANITY)) == [Finding(FindingKind.SANE)]
    path.write_bytes(entry + b"\0")
    assert [each.finding for each in findings(path)] == [FindingKind.CORRUPT]
    path.write_bytes(struct.pack(">hqqqq", 1, 9, 1, 6, 0))
    assert [each.finding for each in findings(path)] == [FindingKind.CORRUPT]
    path.write_bytes(b"")
    assert list(dump_file(path)) == [Finding(FindingKind.EMPTY)]


def test_producer_snapshots(tmp_path: Path) -> None:
    entries = [
        ProducerSnapshotEntry(4, 1, 2, 9, 3, 55, -1, -1),
        ProducerSnapshotEntry(5, 0, -1, -1, 0, 66, 7, 3),
    ]
    path = write(tmp_path, "00000000000000000010.snapshot", encode_producer_snapshot(entries))
    wrapped, marked = list(dump_file(path))
    assert wrapped == ProducerRow(4, 1, -1, None, 55, 2**31 - 1, 2, 9, 3)
    assert isinstance(marked, ProducerRow)
    assert (marked.current_txn_first_offset, marked.first_sequence) == (3, -1)
    assert row_line(marked, path) == (
        "producerId: 5 producerEpoch: 0 coordinatorEpoch: 7 currentTxnFirstOffset: OptionalLong[3] lastTimestamp: 66 "
    )
    path.write_bytes(path.read_bytes()[:-1] + b"\xff")
    assert [each.finding for each in findings(path)] == [FindingKind.CORRUPT]


def test_small_files(tmp_path: Path) -> None:
    checkpoint = write(tmp_path, "replication-offset-checkpoint", b"0\n2\nt 0 12\nu 3 4\n")
    assert list(dump_file(checkpoint)) == [OffsetCheckpointRow("t", 0, 12), OffsetCheckpointRow("u", 3, 4)]
    epochs = write(tmp_path, "leader-epoch-checkpoint", b"0\n1\n5 1234\n")
    assert list(dump_file(epochs)) == [LeaderEpochRow(5, 1234)]
    shutdown = write(tmp_path, ".kafka_cleanshutdown", b'{"version":0,"brokerEpoch":-1}')
    assert list(dump_file(shutdown)) == [PropertyRow("broker_epoch", -1)]
    for name in ("partition.metadata", "replication-offset-checkpoint", "leader-epoch-checkpoint", "meta.properties"):
        broken = write(tmp_path, name, b"version=x\nbroken\n\xff")
        assert [each.finding for each in findings(broken)] == [FindingKind.CORRUPT]
        (line,) = problem_lines(broken, findings(broken))
        assert name in line


def test_a_file_that_a_broker_is_deleting_is_read(tmp_path: Path) -> None:
    source = DISK / "clean" / "data" / "tx-0"
    shutil.copy(source / SEGMENT, tmp_path / f"{SEGMENT}.deleted")
    assert any(isinstance(row, BatchRow) for row in dump_file(tmp_path / f"{SEGMENT}.deleted"))


@pytest.mark.parametrize("folder", ["tx-0", "__consumer_offsets-0", "__transaction_state-0", "codec-librdkafka-0"])
def test_damaged_files_are_dumped_as_far_as_they_go(tmp_path: Path, folder: str) -> None:
    """Bytes of every kind of file are overwritten at random: rows and findings, never an exception."""
    noise, line_count, finding_count = random.Random(folder), 0, 0
    target = tmp_path / folder
    for _ in range(20):
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(DISK / "clean" / "data" / folder, target)
        for path in files_to_dump(target):
            data = bytearray(path.read_bytes())
            for _ in range(3 if data else 0):
                data[noise.randrange(len(data))] = noise.randrange(256)
            path.write_bytes(data[: noise.randrange(len(data) + 1)] if noise.random() < 0.2 else data)
        for path in files_to_dump(target):
            lines = [row_line(row, path, decoder_for(path, DATA)) for row in dump_file(path, DATA)]
            rows = findings(path)
            lines += list(problem_lines(path, rows))
            line_count += sum(map(bool, lines))
            finding_count += sum(each.finding is not FindingKind.EMPTY for each in rows)
    assert (line_count > finding_count, finding_count > 20) == (True, True), "rows beside findings"
