"""The work of a large cluster's frame comes in turns, so that the event loop does other things in between."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fake_cluster import FakeCluster, big_cluster

from engine.admin.analysis import clocks_and_epochs, tallies
from engine.admin.health import topic_checks
from engine.admin.watch.diff import diff, diff_in_turns
from engine.admin.watch.judging import HealthMemory
from engine.admin.watch.knowledge import Knowledge
from engine.common.snapshot import SnapshotSource, TopicSnapshot
from engine.common.turns import SLICE, at_once, topics_in_turns
from tui.state.board import Board

TOPICS, PARTITIONS = 60, 6_000 * 2
TURNS = PARTITIONS // SLICE


@pytest.fixture(scope="module")
def cluster() -> FakeCluster:
    return big_cluster(6, TOPICS, PARTITIONS)


def test_a_turn_ends_after_so_many_partitions_that_took_work(cluster: FakeCluster) -> None:
    topics = cluster.frame().cluster.topics  # type: ignore[union-attr]
    assert len(list(topics_in_turns(topics, lambda topic: True))) == TURNS
    assert list(topics_in_turns(topics, lambda topic: False)) == []


def test_health_is_found_in_turns_and_nothing_is_left_to_check(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame, memory = cluster.frame(), HealthMemory()
    wanted = HealthMemory().judge(frame)
    assert len(list(memory.turns(frame))) == TURNS
    monkeypatch.setattr(topic_checks, "_topic", None)
    assert memory.judge(frame) == wanted
    assert list(memory.turns(frame)) == [], "it is known already"


def test_the_dashboard_counts_in_turns_and_nothing_is_left_to_count(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame, at_once_counted, board = cluster.frame(), Board(), Board()
    at_once_counted.take(frame)
    assert len(list(board.turns(frame))) == 2 * TURNS
    monkeypatch.setattr(tallies, "tally_of", None)
    monkeypatch.setattr(clocks_and_epochs, "_look_at", None)
    board.take(frame)
    assert board.total == at_once_counted.total
    assert board.findings == at_once_counted.findings
    assert list(board.turns(frame)) == []


def test_the_events_of_a_lost_broker_are_found_in_turns() -> None:
    cluster = big_cluster(6, TOPICS, PARTITIONS)
    before = cluster.frame()
    cluster.kill(3)
    cluster.advance()
    after = cluster.frame()
    events = diff(before, after)
    turns = diff_in_turns(before, after)
    assert len(list(turns)) == len(events) // 1_000 > 1
    assert at_once(diff_in_turns(before, after)) == events


def test_a_frame_holds_what_was_known_when_it_was_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    def two_turns(topics: tuple[TopicSnapshot, ...], look: object) -> Iterator[None]:
        yield
        yield

    knowledge = Knowledge(SnapshotSource.WIRE)
    knowledge.take_members([], {}, 1, 1, "cluster")
    monkeypatch.setattr(HealthMemory, "turns", lambda *_: two_turns((), None))
    making = knowledge.frame_in_turns(1, {}, {})
    next(making)
    knowledge.take_members([], {}, 2, 2, "cluster")
    frame = at_once(making)
    assert frame.cluster is not None and frame.cluster.controller_id == 1
    assert knowledge.frame(2, {}, {}).cluster.controller_id == 2  # type: ignore[union-attr]
