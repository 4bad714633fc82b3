"""Throttles as settings: Kafka's own vectors, and the mark that lets anybody remove klamm's throttles."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from engine.admin.cluster.errors import BadRequest
from engine.admin.reassignment import throttles
from engine.admin.reassignment.moves import brokers_of, flows_of
from engine.admin.reassignment.reassignment_file import PartitionMove
from engine.admin.reassignment.throttle_settings import (
    FOLLOWER_RATE,
    FOLLOWER_REPLICAS,
    LEADER_RATE,
    LEADER_REPLICAS,
    LOG_DIRS_RATE,
    Throttle,
    is_marked,
    marked_rates,
    read_list,
    released_settings,
    replica_lists,
    throttled_settings,
    unthrottled_settings,
)
from engine.common.model import ReplicaAssignment, TopicPartition
from engine.common.snapshot import TopicSnapshot
from engine.kafka.config.broker import BrokerConfig
from engine.kafka.config.topic_config_values import usable_overrides, validate_topic_config

RUNNING = {
    TopicPartition("foo", 0): ReplicaAssignment((1, 2, 3, 4), (4,), (3,)),
    TopicPartition("foo", 1): ReplicaAssignment((4, 5, 6, 7, 8), (7, 8), (4, 5)),
} | {TopicPartition("foo", p): ReplicaAssignment((1, 2, 3, 4), (3, 4), (1, 2)) for p in (2, 3, 4, 5)}
PLAN = [
    PartitionMove(TopicPartition(topic, partition), replicas)
    for topic, partition, replicas in (
        ("foo", 0, (1, 2, 5)),
        ("foo", 2, (3, 4)),
        ("foo", 3, (5, 6)),
        ("foo", 4, (3,)),
        ("foo", 5, (3, 4, 5, 6)),
        ("bar", 0, (1, 2, 3)),
    )
]
CURRENT = {TopicPartition("bar", 0): ReplicaAssignment((2, 3, 4))}


def test_who_sends_and_who_receives() -> None:
    flows = flows_of(RUNNING, PLAN, CURRENT)
    assert brokers_of(flows) == {1, 2, 3, 4, 5, 6, 7, 8}
    lists = replica_lists(flows)
    assert ",".join(lists["foo"][LEADER_REPLICAS]) == ("0:1,0:2,0:3,1:4,1:5,1:6,2:1,2:2,3:1,3:2,4:1,4:2,5:1,5:2")
    assert ",".join(lists["foo"][FOLLOWER_REPLICAS]) == "0:5,1:7,1:8,2:3,2:4,3:5,3:6,4:3,5:3,5:4,5:5,5:6"
    assert ",".join(lists["bar"][LEADER_REPLICAS]) == "0:2,0:3,0:4"
    assert ",".join(lists["bar"][FOLLOWER_REPLICAS]) == "0:1"


def test_a_topic_without_anything_to_copy_is_not_throttled() -> None:
    reordered = [PartitionMove(TopicPartition("bar", 0), (4, 3, 2))]
    assert replica_lists(flows_of({}, reordered, CURRENT)) == {}


def test_a_throttle_comes_off_and_leaves_what_others_set() -> None:
    lists = replica_lists(flows_of({}, PLAN[-1:], CURRENT))["bar"]
    present = {LEADER_REPLICAS: "7:9", "retention.ms": "5"}
    settings = throttled_settings("bar", present, lists, Throttle(60_000, 2_000))
    assert settings[LEADER_REPLICAS] == "7:9,2000:2147483646,60000:2147483647,0:2,0:3,0:4"
    assert settings[FOLLOWER_REPLICAS] == "2000:2147483646,60000:2147483647,0:1"
    after = present | settings
    assert is_marked(after) and not is_marked(present)
    assert marked_rates([after]) == {
        LEADER_RATE: {"60000"}, FOLLOWER_RATE: {"60000"}, LOG_DIRS_RATE: {"2000"}
    }  # fmt: skip
    assert unthrottled_settings(after) == ({LEADER_REPLICAS: "7:9"}, (FOLLOWER_REPLICAS,))
    assert unthrottled_settings(present) == ({}, ())


def test_what_has_arrived_comes_off_the_lists_and_the_marks_stay() -> None:
    lists = {LEADER_REPLICAS: ("0:1", "1:1", "10:1"), FOLLOWER_REPLICAS: ("1:3",)}
    present = throttled_settings("t", {LEADER_REPLICAS: "1:9"}, lists, Throttle(50_000))
    released = released_settings(present, {1})
    assert released == {
        LEADER_REPLICAS: "1:9,50000:2147483647,0:1,10:1",
        FOLLOWER_REPLICAS: "50000:2147483647",
    }, "what others have set stays"
    assert marked_rates([released]) == marked_rates([present])
    assert released_settings(present | released, {1}) == {}
    assert released_settings({FOLLOWER_REPLICAS: "1:3"}, {1}) == {}, "no mark says that it is klamm's"


def test_a_second_rate_does_not_hide_the_first() -> None:
    lists = {LEADER_REPLICAS: ("0:1",), FOLLOWER_REPLICAS: ("0:2",)}
    first = throttled_settings("t", {}, lists, Throttle(50_000))
    more = {LEADER_REPLICAS: ("1:1",), FOLLOWER_REPLICAS: ("1:3",)}
    second = throttled_settings("t", first, more, Throttle(60_000))
    assert marked_rates([second])[LEADER_RATE] == {"50000", "60000"}
    assert read_list(second[FOLLOWER_REPLICAS]).ours == ("0:2", "1:3")
    assert throttled_settings("t", second, more, Throttle(60_000)) == second


def test_a_list_of_everything_by_somebody_else_cannot_be_added_to() -> None:
    with pytest.raises(BadRequest, match=re.escape("is set to *, not by klamm")):
        throttled_settings("t", {FOLLOWER_REPLICAS: "*"}, {}, Throttle(50_000))


def test_moves_under_way_keep_a_list_of_everything_by_somebody_else() -> None:
    lists = {LEADER_REPLICAS: ("0:1",), FOLLOWER_REPLICAS: ("0:2",)}
    present = {LEADER_REPLICAS: "*"}
    settings = throttled_settings("t", present, lists, Throttle(50_000), keeps_all=True)
    assert settings.keys() == {FOLLOWER_REPLICAS}, "the rate has to change, and * lists all that moves"
    assert read_list(settings[FOLLOWER_REPLICAS]).ours == ("0:2",)
    assert marked_rates([settings])[LEADER_RATE] == {"50000"}
    both = dict.fromkeys((LEADER_REPLICAS, FOLLOWER_REPLICAS), "*")
    assert throttled_settings("t", both, lists, Throttle(50_000), keeps_all=True) == {}


def test_brokers_take_the_mark() -> None:
    settings = throttled_settings("t", {}, {LEADER_REPLICAS: ("0:1",)}, Throttle(10**12, 5_000))
    validate_topic_config(settings, BrokerConfig.from_properties({"zookeeper.connect": "x"}))
    # A broker that finds them in ZooKeeper accepts them as they are, and logs what it cannot use.
    assert usable_overrides(settings) == (settings, [])
    assert usable_overrides({LEADER_REPLICAS: "0:one"})[1]


def test_a_throttle_that_would_stop_everything_is_refused() -> None:
    for throttle in (Throttle(1023), Throttle(None, 0), Throttle(-1)):
        with pytest.raises(BadRequest, match="below 1024 B/s"):
            throttle.check()
    Throttle(1024).check()
    assert not Throttle().is_set


@pytest.mark.parametrize(("is_znode", "is_kept"), [(False, True), (True, False)])
def test_a_dead_broker_with_a_rate_keeps_the_marks_that_tell_of_it(
    monkeypatch: pytest.MonkeyPatch, is_znode: bool, is_kept: bool
) -> None:
    """Over the wire a dead broker does not report its settings, and ZooKeeper does not list one without settings."""
    marked = TopicSnapshot("t", (), configs=throttled_settings("t", {}, {}, Throttle(50)))
    side = SimpleNamespace(is_znode=is_znode, live_brokers=answering({1, 2}))
    for name, answer in (
        ("_throttled_topics", [marked]),
        ("_brokers_with_settings", {1, 2}),
        ("_rates_of_brokers", {1: {LEADER_RATE: "50"}, 2: {}}),
        ("_broker_rates", {}),
        ("topic_reader", side),
        ("reassignment_changer", side),
        ("delete_broker_settings", None),
        ("alter_entity", None),
    ):
        monkeypatch.setattr(throttles, name, answering(answer))
    rates = Throttle(50).broker_settings
    cleared = asyncio.run(throttles.clear_throttles(cast("Any", None), set(), ["t"], rates, {1, 3}, holds_lock=True))
    warning = ("broker 3: its rate cannot be removed while it is not alive",)
    assert (cleared.brokers, cleared.topics, cleared.left) == (
        (1,),
        () if is_kept else ("t",),
        warning if is_kept else (),
    )


def answering(value: object) -> Callable[..., Awaitable[Any]]:
    async def answer(*args: object, **options: object) -> Any:
        return value

    return answer
