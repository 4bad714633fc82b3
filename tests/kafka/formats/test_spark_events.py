"""Event logs of Spark: recorded ones in every codec, cut off anywhere, and lines that are no events."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from spark_traces import RECORDED, WITHOUT_KAFKA

from engine.common.errors import CorruptFileError
from engine.common.model import TopicPartition
from engine.kafka.formats.spark_events import (
    QueryProgress,
    QueryStarted,
    QueryTerminated,
    codec_of,
    decode_query_event,
    files_in_order,
    is_by_listener,
    is_query_event,
    whole_lines,
)

LOGS = [path for path in sorted(RECORDED.glob("*/*/events/**/*")) if path.is_file() and "appstatus" not in path.name]
PREFIX = "org.apache.spark.sql.streaming.StreamingQueryListener$"


def lines_of(path: Path) -> list[bytes]:
    return whole_lines(path.read_bytes(), path.name)


def test_every_codec_was_recorded() -> None:
    assert {codec_of(path.name) for path in LOGS} == {None, "zstd", "lz4", "snappy"}
    assert any(path.name.endswith(".inprogress") for path in LOGS)


@pytest.mark.parametrize("path", LOGS, ids=lambda path: "/".join(path.relative_to(RECORDED).parts[:2]))
def test_every_recorded_log_is_read(path: Path) -> None:
    lines = lines_of(path)
    assert json.loads(lines[0])["Event"] == "SparkListenerLogStart"
    events = [decode_query_event(line, "x") for line in lines if is_query_event(line)]
    assert sum("StreamingQueryListener$Query" in json.loads(line)["Event"] for line in lines) == len(events)
    assert isinstance(events[0], QueryStarted)
    finished = [event for event in events if isinstance(event, QueryProgress)]
    assert finished
    assert all(event.duration_ms > 0 for event in finished)
    has_ends = any(source.end for event in finished for source in event.sources)
    assert has_ends is not bool(WITHOUT_KAFKA.intersection(path.parts))
    assert not any(is_by_listener(line) for line in lines)


@pytest.mark.parametrize("codec", [None, "zstd", "lz4", "snappy"])
def test_a_log_that_is_cut_off_anywhere_gives_the_lines_that_are_whole(codec: str | None) -> None:
    path = next(path for path in LOGS if codec_of(path.name) == codec)
    content, lines = path.read_bytes(), lines_of(path)
    lengths = set()
    for end in [*range(64), *range(64, len(content), max(1, len(content) // 200)), len(content)]:
        whole = whole_lines(content[:end], path.name)
        assert whole == lines[: len(whole)], end
        lengths.add(len(whole))
    assert {0, len(lines)} <= lengths


def test_what_a_progress_says() -> None:
    (path,) = (path for path in LOGS if "4.0.0/join/" in str(path))
    started, *events = (decode_query_event(line, "x") for line in lines_of(path) if is_query_event(line))
    assert isinstance(started, QueryStarted)
    assert started.name == "join"
    second = [event for event in events if isinstance(event, QueryProgress)][1]
    assert (second.name, second.batch_id, second.query_id) == ("join", 1, started.query_id)
    left, right = second.sources
    assert left.description == "KafkaV2[Subscribe[left]]"
    assert (left.start, left.end) == ({TopicPartition("left", 0): 10}, {TopicPartition("left", 0): 10})
    assert (right.start, right.end) == ({TopicPartition("right", 0): 10}, {TopicPartition("right", 0): 20})
    assert right.latest == right.end
    assert isinstance(events[-1], QueryTerminated) or events[-1] is None


def test_the_first_line_of_what_a_query_failed_with() -> None:
    line = json.dumps({"Event": f"{PREFIX}QueryTerminatedEvent", "id": "q", "runId": "r", "exception": "boom\n\tat x"})
    assert decode_query_event(line.encode(), "x") == QueryTerminated("q", "r", "boom")
    idle = json.dumps({"Event": f"{PREFIX}QueryIdleEvent", "id": "q", "runId": "r", "timestamp": ""})
    assert decode_query_event(idle.encode(), "x") is None


@pytest.mark.parametrize("line", [b"{", b"[]", b"{}", b'{"Event":"%sQueryProgressEvent"}' % PREFIX.encode()])
def test_lines_that_are_none(line: bytes) -> None:
    with pytest.raises(CorruptFileError, match=r"^there: not an event of a query"):
        decode_query_event(line, "there")


def test_files_of_a_rolling_log_in_order() -> None:
    names = ["events_10_a.zstd", "events_2_a.zstd", "appstatus_a", ".events_1_a.crc", "events_3_a"]
    assert files_in_order(names) == ["events_2_a.zstd", "events_3_a", "events_10_a.zstd"]
    compacted = ["events_1_a", "events_2_a.compact", "events_2_a", "events_3_a"]
    assert files_in_order(compacted) == ["events_2_a.compact", "events_3_a"], "it has what was in those before it"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("events_1_a.lzf", b"ZV", "event logs in lzf cannot be read; zstd, lz4 and snappy can"),
        ("events_1_a.zstd", b"not zstd at all", "damaged: no zstd frame"),
        ("events_1_a.lz4", b"not lz4 at all, really not", "damaged: no lz4 block at 0"),
        ("events_1_a.snappy", b"\x82SNAPPY\0" + bytes(8) + b"\0\0\0\2\xff\xff", "damaged: "),
    ],
)
def test_what_cannot_be_decompressed(name: str, content: bytes, message: str) -> None:
    with pytest.raises(CorruptFileError, match=f"^{name}: {message}"):
        whole_lines(content, name)
