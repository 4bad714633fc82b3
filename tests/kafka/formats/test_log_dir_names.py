"""Names of partition folders and of the files in them."""

from __future__ import annotations

import pytest

from engine.common.errors import StorageError
from engine.common.model import TopicPartition
from engine.kafka.formats.log_dir_names import (
    LogDirKind,
    log_dir_name,
    offset_of_file_name,
    parse_log_dir_name,
    segment_file_name,
    suffixed_log_dir_name,
)

UNIQUE = "af3679591fd1434684800313fa806c83"


@pytest.mark.parametrize("topic", ["t", "my-topic", "a.b_c", "t-1", "x-delete", "__consumer_offsets"])
@pytest.mark.parametrize("kind", list(LogDirKind))
def test_names_lead_back_to_the_partition(topic: str, kind: LogDirKind) -> None:
    partition = TopicPartition(topic, 12)
    name = log_dir_name(partition) if kind is LogDirKind.CURRENT else suffixed_log_dir_name(partition, kind, UNIQUE)
    assert parse_log_dir_name(name) == (partition, kind)


def test_the_name_that_kafka_gave_a_deleted_partition() -> None:
    name = "doomed-0.af3679591fd1434684800313fa806c83-delete"
    assert parse_log_dir_name(name) == (TopicPartition("doomed", 0), LogDirKind.DELETE)
    assert suffixed_log_dir_name(TopicPartition("doomed", 0), LogDirKind.DELETE, UNIQUE) == name


def test_long_names_are_cut_to_what_a_file_system_takes() -> None:
    partition = TopicPartition("t" * 249, 0)
    for kind in (LogDirKind.DELETE, LogDirKind.STRAY):
        name = suffixed_log_dir_name(partition, kind, UNIQUE)
        assert len(name) == 255
        assert parse_log_dir_name(name)[1] is kind


@pytest.mark.parametrize("name", ["", "t", "-0", "t-", "t-x", "t-1.5", "lost+found", "t-0.x-y-delete-", "t.abc-delete"])
def test_other_folders_are_no_partitions(name: str) -> None:
    with pytest.raises(StorageError):
        parse_log_dir_name(name)


def test_segment_files_have_twenty_digits() -> None:
    assert segment_file_name(42, ".log") == "00000000000000000042.log"
    assert segment_file_name(2**63 - 1, ".index") == "09223372036854775807.index"
    assert offset_of_file_name("00000000000000000042.timeindex.deleted") == 42
    for name in ("leader-epoch-checkpoint", "partition.metadata", ".log", "x42.log"):
        assert offset_of_file_name(name) is None
