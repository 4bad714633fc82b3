"""Files of Spark's checkpoints: as Spark 3.5, 4.0 and 4.3 wrote them, of unknown versions, and damaged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spark_traces import RECORDED, WITHOUT_KAFKA, encode_offsets

from engine.common.errors import CorruptFileError
from engine.common.model import TopicPartition
from engine.kafka.formats.spark_checkpoints import (
    ForeignVersion,
    batch_id_of,
    check_commit_log,
    decode_initial_offsets,
    decode_metadata,
    decode_offset_log,
    kafka_offsets,
)

OFFSET_FILES = sorted(RECORDED.glob("*/*/*/offsets/*"))
COMMIT_FILES = sorted(RECORDED.glob("*/*/*/commits/*"))
METADATA = '{"batchWatermarkMs":0,"batchTimestampMs":1795365469522,"conf":{}}'


def test_there_are_files_of_every_version() -> None:
    def versions(files: list[Path]) -> set[tuple[str, str]]:
        return {(path.relative_to(RECORDED).parts[0], path.read_text().partition("\n")[0]) for path in files}

    assert versions(OFFSET_FILES) == {("3.5.1", "v1"), ("4.0.0", "v1"), ("4.3.0", "v1"), ("4.3.0", "v2")}
    commits = {("3.5.1", "v1"), ("4.0.0", "v1"), ("4.3.0", "v1"), ("4.3.0", "v2"), ("4.3.0", "v3")}
    assert versions(COMMIT_FILES) == commits
    assert len(OFFSET_FILES) > 40
    assert len(COMMIT_FILES) > 40


@pytest.mark.parametrize("version", ["3.5.1", "4.0.0", "4.3.0"])
def test_every_recorded_file_is_read(version: str) -> None:
    for path in OFFSET_FILES:
        if version in path.parts:
            entry = decode_offset_log(path.read_text(), str(path))
            assert entry.batch_ms is not None
            assert entry.batch_ms > 1_700_000_000_000
            assert any(entry.sources.values()) or WITHOUT_KAFKA.intersection(path.parts)
    for path in COMMIT_FILES:
        check_commit_log(path.read_text(), str(path))
    for path in RECORDED.glob(f"{version}/*/*/metadata"):
        assert len(decode_metadata(path.read_text(), str(path))) == 36


def test_sources_by_position_and_by_name() -> None:
    by_position = decode_offset_log((RECORDED / "4.0.0/beside-files/beside-files/offsets/0").read_text(), "x")
    assert list(by_position.sources) == ["0", "1", "2"]
    kafka, rate, files = by_position.sources.values()
    assert kafka is not None
    assert sum(kafka.values()) == 10
    assert (rate, files) == (None, None)
    by_name = decode_offset_log((RECORDED / "4.3.0/named-sources/named-sources/offsets/2").read_text(), "x")
    assert dict(by_name.sources) == {
        "rate_src": None,
        "orders_src": {TopicPartition("orders", 0): 10, TopicPartition("orders", 1): 5},
    }


def test_a_source_without_offset_and_a_batch_without_metadata() -> None:
    entry = decode_offset_log('v1\n\n-\n{"t":{"0":3}}', "x")
    assert entry.batch_ms is None
    assert dict(entry.sources) == {"0": None, "1": {TopicPartition("t", 0): 3}}
    assert dict(decode_offset_log("v2\n\na:-\nb:7", "x").sources) == {"a": None, "b": None}


def test_a_name_of_a_source_ends_at_the_first_colon() -> None:
    assert dict(decode_offset_log('v2\n{}\ns:{"a:b":{"0":1}}', "x").sources) == {"s": {TopicPartition("a:b", 0): 1}}


def test_where_a_source_began() -> None:
    for path in RECORDED.glob("*/stateless/stateless/sources/0/0"):
        assert path.read_bytes()[:1] == b"\0"
        assert decode_initial_offsets(path.read_text(), "x") == {
            TopicPartition("orders", 0): 0,
            TopicPartition("orders", 1): 0,
        }
    rate = RECORDED / "4.3.0/named-sources/named-sources/sources/rate_src/0"
    assert decode_initial_offsets(rate.read_text(), "x") is None
    assert decode_initial_offsets('{"t":{"0":4}}', "x") == {TopicPartition("t", 0): 4}, "as Spark 2.1.0 wrote it"


@pytest.mark.parametrize(
    ("decode", "text", "message"),
    [
        (
            decode_offset_log,
            f"v3\n{METADATA}\n1",
            "x: version 3 of Spark's offset log; only versions 1 to 2 can be read",
        ),
        (decode_offset_log, f"v0\n{METADATA}\n1", "x: version 0 of"),
        (check_commit_log, "v4\n{}", "x: version 4 of Spark's commit log; only versions 1 to 3 can be read"),
        (decode_initial_offsets, "\0v2\n{}", "x: version 2 of Spark's initial offsets; only version 1 can be read"),
    ],
)
def test_foreign_versions_are_refused_by_name(decode, text: str, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ForeignVersion) as caught:
        decode(text, "x")
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    "text", ["", "v1", f"v1\n{METADATA}", "v1\n{\n1", f'v1\n{METADATA}\n{{"t":{{"0":1', "orders 3"]
)
def test_cut_off_and_other_files(text: str) -> None:
    with pytest.raises(CorruptFileError, match=r"^x: ") as caught:
        decode_offset_log(text, "x")
    assert not isinstance(caught.value, ForeignVersion)


@pytest.mark.parametrize("text", ["", "{}", '{"id":3}', "[]", '{"id":'])
def test_metadata_that_is_none(text: str) -> None:
    with pytest.raises(CorruptFileError, match=r"^x: "):
        decode_metadata(text, "x")


@pytest.mark.parametrize(
    ("name", "batch"),
    [("0", 0), ("10", 10), (".1.crc", None), ("_1", None), (".1.a0b1.tmp", None), ("9.compact", None), ("-1", None)],
)
def test_which_files_are_batches(name: str, batch: int | None) -> None:
    assert batch_id_of(name) == batch


@pytest.mark.parametrize(
    "value",
    [None, 5, "None", "-", [], '{"logOffset":0}', '{"0":{"value":1,"runTimeMs":2}}', {"t": {"0": "1"}}, {"t": {"x": 1}},
     {"t": {"0": 1.5}}, {"t": {"0": True}}, '{"t":'],
)  # fmt: skip
def test_what_is_not_kafkas(value: object) -> None:
    assert kafka_offsets(value) is None


@given(
    st.dictionaries(
        st.tuples(st.text(min_size=1), st.integers(0, 2**31 - 1)).map(lambda pair: TopicPartition(*pair)),
        st.integers(0, 2**63 - 1),
    )
)
def test_offsets_come_back_in_every_encoding(offsets: dict[TopicPartition, int]) -> None:
    text = encode_offsets(offsets)
    assert kafka_offsets(text) == kafka_offsets(json.loads(text)) == offsets
    assert decode_offset_log(f"v1\n{METADATA}\n{text}", "x").sources == {"0": offsets}
    assert decode_offset_log(f"v2\n{METADATA}\nmine:{text}", "x").sources == {"mine": offsets}
