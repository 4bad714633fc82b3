"""The table finds a topic's logs without looking at all others, whatever was added and removed."""

from __future__ import annotations

from typing import cast

import pytest

from engine.broker.log.log import Log
from engine.broker.log.log_table import LogTable
from engine.common.model import TopicPartition


def a_log() -> Log:
    return cast("Log", object())


def test_logs_of_a_topic_follow_every_change() -> None:
    table = LogTable()
    first, second, other, newer = a_log(), a_log(), a_log(), a_log()
    table[TopicPartition("t", 0)] = first
    assert table.setdefault(TopicPartition("t", 1), second) is second
    assert table.setdefault(TopicPartition("t", 1), newer) is second
    table[TopicPartition("u", 0)] = other
    assert table.of_topic("t") == [first, second]
    table[TopicPartition("t", 0)] = newer
    assert table.of_topic("t") == [newer, second]
    del table[TopicPartition("t", 0)]
    assert table.of_topic("t") == [second]
    assert table.pop(TopicPartition("t", 1)) is second
    assert table.of_topic("t") == []
    assert list(table) == [TopicPartition("u", 0)]


def test_a_log_that_is_not_there() -> None:
    table = LogTable()
    absent = TopicPartition("t", 0)
    assert table.of_topic("t") == []
    assert table.pop(absent) is None
    with pytest.raises(KeyError):
        del table[absent]
