"""What a follower takes over from a leader's answer into its own log."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from log_folders import data_batch, open_log

from engine.broker.log.log import Log
from engine.broker.log.log_append import UnexpectedAppendOffset
from engine.broker.replication.follower import append_fetched, truncate
from engine.broker.replication.partition import Partition
from engine.broker.replication.truncation import Truncation
from engine.common.errors import ErrorCode, KafkaError
from engine.common.model import TopicPartition
from engine.kafka.protocol.apis.fetch import PartitionData


class Replica:
    """A follower's partition with a real log; counts how often it wakes who waits for news."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.topic_partition = log.topic_partition
        self.wakes = 0

    def changed(self) -> None:
        self.wakes += 1

    def take(self, fetch_offset: int, records: memoryview | None = None, **told: int) -> int:
        """Use an answer of a leader."""
        data = PartitionData(**{"high_watermark": 0, "log_start_offset": 0, "records": records, **told})
        return append_fetched(cast("Partition", self), fetch_offset, 0, data)


def replica(folder: Path, *, records: int = 0, high_watermark: int = 0) -> Replica:
    """Return a follower's replica with batches of one record each, of leader epoch 0."""
    dir_ = folder / "orders-0"
    dir_.mkdir()
    follower = Replica(open_log(dir_))
    for offset in range(records):
        follower.take(offset, batch(offset), high_watermark=high_watermark)
    follower.wakes = 0
    return follower


def batch(base_offset: int, *, leader_epoch: int = 0) -> memoryview:
    return data_batch(b"v", base_offset=base_offset, partition_leader_epoch=leader_epoch)


@pytest.mark.parametrize(
    ("announced", "expected", "wakes"),
    [
        pytest.param(3, 3, 1, id="it rises"),
        pytest.param(9, 4, 1, id="to the log's end at most"),
        pytest.param(2, 2, 0, id="it stays"),
        pytest.param(0, 0, 1, id="a leader that lost its checkpoint begins with none"),
        pytest.param(-1, 2, 0, id="the leader did not say"),
    ],
)
def test_the_high_watermark_is_the_leaders(tmp_path: Path, announced: int, expected: int, wakes: int) -> None:
    """Consumers may read from followers, and wait there: each move wakes them."""
    follower = replica(tmp_path, records=4, high_watermark=2)
    assert follower.take(4, high_watermark=announced) == 4
    assert (follower.log.high_watermark, follower.wakes) == (expected, wakes)


def test_records_are_taken_only_where_the_log_ends(tmp_path: Path) -> None:
    follower = replica(tmp_path, records=2)
    for offset in (1, 3):
        with pytest.raises(KafkaError) as refused:
            follower.take(offset, batch(offset))
        assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert follower.take(2, batch(2)) == 3
    assert follower.take(3, memoryview(b"")) == 3, "nothing came"


def test_a_log_that_is_cut_wakes_who_waits(tmp_path: Path) -> None:
    follower = replica(tmp_path, records=4)
    truncate(cast("Partition", follower), Truncation(4, True), "[test]")
    assert (follower.log.log_end_offset, follower.wakes) == (4, 0)
    truncate(cast("Partition", follower), Truncation(2, True), "[test]")
    assert (follower.log.log_end_offset, follower.wakes) == (2, 1)


def test_a_replica_without_a_log_takes_nothing() -> None:
    gone: Any = SimpleNamespace(log=None, topic_partition=TopicPartition("orders", 0))
    for partition in (gone, None):
        with pytest.raises(KafkaError) as refused:
            append_fetched(partition, 0, 0, PartitionData())
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR


def test_an_empty_log_begins_anew_only_where_its_first_batch_begins_earlier(tmp_path: Path) -> None:
    """All records were deleted, and their files are still there: what follows continues them."""
    follower = replica(tmp_path, records=3, high_watermark=3)
    follower.take(3, high_watermark=3, log_start_offset=3)
    assert (follower.log.log_start_offset, follower.log.log_end_offset) == (3, 3)
    follower.take(3, batch(3), high_watermark=3, log_start_offset=3)
    assert [segment.base_offset for segment in follower.log.segments] == [0]
    assert follower.log.leader_epochs.entries[0].start_offset == 3


def test_an_empty_log_begins_with_the_batch_that_covers_the_leaders_start(tmp_path: Path) -> None:
    follower = replica(tmp_path)
    follower.log.truncate_fully_and_start_at(5)
    covering = data_batch(b"v", b"w", base_offset=4, partition_leader_epoch=0)
    follower.take(5, covering, high_watermark=6, log_start_offset=4)
    assert [segment.base_offset for segment in follower.log.segments] == [4]
    assert (follower.log.log_start_offset, follower.log.log_end_offset, follower.log.high_watermark) == (4, 6, 6)


@pytest.mark.parametrize(
    "refused",
    [
        pytest.param(batch(4), id="it ends before the log does"),
        pytest.param(data_batch(b"v", b"w", base_offset=4, partition_leader_epoch=1), id="of a later leader epoch"),
    ],
)
def test_an_empty_log_begins_anew_with_no_other_batch(tmp_path: Path, refused: memoryview) -> None:
    follower = replica(tmp_path)
    follower.log.truncate_fully_and_start_at(5)
    with suppress(UnexpectedAppendOffset):
        follower.take(5, refused)
    assert [segment.base_offset for segment in follower.log.segments] == [5]


def test_batches_of_a_later_leader_epoch_than_was_asked_for_are_left_out(tmp_path: Path) -> None:
    """The leader became a follower, cut its log and fetched while it sent: offsets may be missing between its batches.

    Kafka 3.9.1 leaves them out (KAFKA-18723).
    """
    follower = replica(tmp_path, records=1)
    records = bytes(batch(1)) + bytes(batch(3, leader_epoch=1)) + bytes(batch(4))
    assert follower.take(1, memoryview(records), high_watermark=5) == 2
    assert (follower.log.high_watermark, follower.log.leader_epochs.entries) == (2, ((0, 0),))
    assert follower.take(2, memoryview(bytes(batch(2, leader_epoch=1))), high_watermark=5) == 2
