"""What a place says that one typed: there is no such thing, it is down, or it does not answer."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fake_cluster import FakeCluster, small_cluster

from engine.admin.watch.frame import BrokerWords, Frame, Stage, StageStatus
from engine.common.model import TopicPartition
from tui.pages import groups, partitions
from tui.pages.page import Page, View
from tui.state.board import Board
from tui.state.location import Location


def told(frame: Frame, location: Location, page: Page = partitions.PAGE) -> tuple[str, str]:
    """Return what stands above the rows of a place, and what stands there instead of rows."""
    board = Board()
    board.take(frame)
    view = View(board, location)
    return "\n".join("".join(text for text, _ in line) for line in page.summary(view, 120)), page.rows(view).empty


@pytest.fixture
def cluster() -> FakeCluster:
    return small_cluster()


def test_a_broker_that_nobody_knows_is_not_down(cluster: FakeCluster) -> None:
    summary, empty = told(cluster.frame(), Location("partitions", broker=9))
    assert summary == "the cluster has no broker 9: it has 1, 2, 3"
    assert empty == "the cluster has no broker 9"


def test_a_broker_with_replicas_that_is_not_registered_is_down_and_a_silent_one_is_not_up(cluster: FakeCluster) -> None:
    assert told(cluster.frame(), Location("partitions", broker=2))[0].startswith("broker 2 is up   leads ")
    frame = cluster.frame()
    silent = replace(frame, words={2: BrokerWords(trouble="no answer for 3 s")})
    assert told(silent, Location("partitions", broker=2))[0].startswith(
        "broker 2 is silent: no answer for 3 s   leads "
    )
    cluster.kill(2)
    assert told(cluster.frame(), Location("partitions", broker=2))[0].startswith("broker 2 is down   leads ")


def test_a_topic_or_a_partition_that_does_not_exist(cluster: FakeCluster) -> None:
    frame = cluster.frame()
    assert told(frame, Location("partitions", topic="ordres")) == ("", "there is no topic ordres")
    last = len(frame.cluster.topic("orders").partitions) - 1  # type: ignore[union-attr]
    summary, _ = told(frame, Location("partitions", topic="orders", row="orders-99"))
    assert summary.startswith(f"there is no partition orders-99: the topic has 0 to {last}\n")
    summary, _ = told(frame, Location("partitions", topic="orders", row=f"orders-{last}"))
    assert "there is no" not in summary


def test_a_group_that_does_not_exist_or_was_not_read_yet(cluster: FakeCluster) -> None:
    frame = cluster.frame()
    assert told(frame, Location("group", group="biling"), groups.GROUP_PAGE)[1] == "there is no group biling"
    unread = replace(frame, groups=(), stages={**frame.stages, Stage.GROUPS: StageStatus()})
    assert told(unread, Location("group", group="billing"), groups.GROUP_PAGE)[1] == "groups have not been read yet"


def test_a_broker_may_lead_more_than_it_is_preferred_for() -> None:
    cluster = FakeCluster(3, {"orders": 3})
    for number in range(3):
        cluster.move_leader(TopicPartition("orders", number), 1)
    summary, _ = told(cluster.frame(), Location("partitions", broker=1))
    assert "leads 3 partitions, is preferred for 1, " in summary
