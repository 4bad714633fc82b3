"""The program decodes files of a log dir; its exit code for damaged ones."""

from __future__ import annotations

import csv
import io
import json
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest
from klamm_program import Ran, in_process

from cli.output.values import iso_time
from engine.admin.dump.files import DumpOptions, dump_file
from engine.admin.dump.rows import RecordRow, TimeIndexRow

DATA = Path(__file__).parents[2] / "fixtures" / "disk" / "running" / "data"
SEGMENT = DATA / "codec-none-0" / "00000000000000000000.log"
Capture = pytest.CaptureFixture[str]


def dump(capsys: Capture, *words: str | Path) -> Ran:
    return in_process("dump", *words, capture=capsys)


def test_kafkas_lines(capsys: Capture) -> None:
    ran = dump(capsys, SEGMENT)
    lines = ran.out.splitlines()
    assert (ran.code, ran.err) == (0, "")
    assert lines[0] == f"Dumping {SEGMENT}"
    assert lines[1] == "Log starting offset: 0"
    assert lines[2].startswith("baseOffset: 0 lastOffset: ")
    assert dump(capsys, "--files", str(SEGMENT)).out == ran.out
    assert in_process("kafka-dump-log", "--files", SEGMENT, capture=capsys).out == ran.out


def test_times_are_readable_but_in_kafkas_own_lines(capsys: Capture) -> None:
    segment = DATA / "compacted-tx-0" / SEGMENT.name
    paths = (segment, segment.with_suffix(".timeindex"))
    rows = [row for path in paths for row in dump_file(path, DumpOptions(print_data_log=True))]
    times = [row.timestamp_ms for row in rows if isinstance(row, (RecordRow, TimeIndexRow))]
    assert len(times) > 1 and min(times) > 0
    texts = [iso_time(datetime.fromtimestamp(time / 1000, UTC)) for time in times]
    words = (*paths, "--print-data-log", "-o")
    said = [json.loads(line) for line in dump(capsys, *words, "jsonl").out.splitlines()]
    assert [row["timestamp"] for row in said if "timestamp" in row] == texts
    assert {row["delete_horizon"] for row in said if row["kind"] == "batch"} == {None}
    table = dump(capsys, *words, "table").out
    assert f"CreateTime: {texts[0]} " in table and f"timestamp: {texts[-1]} " in table
    assert str(times[0]) not in table
    kafkas = dump(capsys, *words, "kafka").out
    assert f"CreateTime: {times[0]} " in kafkas
    assert dump(capsys, *words, "plain").out == kafkas


def test_machine_formats(capsys: Capture) -> None:
    rows = [json.loads(line) for line in dump(capsys, SEGMENT, "--print-data-log", "-o", "jsonl").out.splitlines()]
    assert {row["kind"] for row in rows} == {"segment", "batch", "record"}
    assert all(row["file"] == str(SEGMENT) for row in rows)
    (document,) = dump(capsys, SEGMENT, "--print-data-log", "-o", "json").json
    assert [{"file": document["file"], **row} for row in document["rows"]] == rows
    lines = list(csv.reader(io.StringIO(dump(capsys, SEGMENT, "-o", "csv").out)))
    assert lines[0][:2] == ["file", "kind"]
    headers = [line for line in lines if line[0] == "file"]
    assert len(headers) == 2, "one for segments, one for batches"


def test_a_folder_and_small_files(capsys: Capture) -> None:
    whole = dump(capsys, DATA / "codec-none-0", "-o", "json").json
    assert any(document["file"].endswith(".index") for document in whole)
    small = dump(capsys, DATA / "meta.properties", DATA / "recovery-point-offset-checkpoint", "-o", "json").json
    assert {row["kind"] for document in small for row in document["rows"]} == {"property", "offset_checkpoint"}


def test_damage_is_code_1(capsys: Capture, tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    folder.mkdir()
    copy = folder / SEGMENT.name
    shutil.copy(SEGMENT, copy)
    copy.chmod(0o600)
    data = bytearray(copy.read_bytes())
    data[-1] ^= 0xFF
    copy.write_bytes(data)
    damaged = dump(capsys, copy)
    assert damaged.code == 1
    assert "1 batch with a wrong checksum, the first at offset " in damaged.err
    copy.write_bytes(SEGMENT.read_bytes()[:-5])
    torn = dump(capsys, copy)
    assert torn.code == 1
    assert "invalid bytes at the end" in torn.out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["absent.log"], "no such file or folder: absent.log"),
        ([str(Path(__file__))], "not a file of Kafka's log dirs"),
        ([str(SEGMENT), "--offsets-decoder", "--transaction-log-decoder"], "exclude each other"),
    ],
)
def test_what_cannot_be_dumped(capsys: Capture, words: list[str], message: str) -> None:
    ran = dump(capsys, *words)
    assert ran.code == 2
    assert message in ran.err


def test_a_folder_of_other_things_is_said_to_be_one(capsys: Capture, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")
    ran = dump(capsys, tmp_path)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"error: no file of Kafka's log dirs in the folder: {tmp_path}")


def test_a_missing_file_is_named_and_the_others_are_dumped(capsys: Capture, tmp_path: Path) -> None:
    alone = dump(capsys, SEGMENT)
    absent, too_long = tmp_path / "absent.log", tmp_path / ("x" * 300)
    some = dump(capsys, "--files", f"{absent},{too_long},{__file__},{SEGMENT}")
    assert some.code == 2
    assert alone.out in some.out
    assert f"no such file or folder: {absent}" in some.err
    assert f"cannot be read: File name too long: {too_long}" in some.err
    assert f"not a file of Kafka's log dirs: {__file__}" in some.err
    (document,) = dump(capsys, absent, SEGMENT, "-o", "json").json
    assert document["file"] == str(SEGMENT)


def test_a_missing_file_beside_a_damaged_one_is_code_2(capsys: Capture, tmp_path: Path) -> None:
    torn = tmp_path / SEGMENT.name
    torn.write_bytes(SEGMENT.read_bytes()[:-5])
    ran = dump(capsys, torn, tmp_path / "absent.log")
    assert ran.code == 2
    assert "invalid bytes at the end" in ran.out
