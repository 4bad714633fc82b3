"""Jolokia's protocol over a few MBeans."""

from __future__ import annotations

import json
from typing import Any

import pytest

from engine.broker.metrics.jolokia import answer, asks_for_partitions, requests_of
from engine.broker.metrics.mbean import MBean

TOPICS = "kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec"
MBEANS = [
    MBean("kafka.server", "BrokerTopicMetrics", "BytesInPerSec", (), {"Count": 7, "EventType": "bytes"}),
    MBean("kafka.server", "BrokerTopicMetrics", "BytesInPerSec", (("topic", "a"),), {"Count": 3, "EventType": "bytes"}),
    MBean(
        "kafka.server", "BrokerTopicMetrics", "BytesOutPerSec", (("topic", "a"),), {"Count": 2, "OneMinuteRate": 0.5}
    ),
    MBean("kafka.log", "LogManager", "LogDirectoryOffline", (("logDirectory", "/data/a"),), {"Value": 0}),
    MBean("kafka.network", "SocketServer", "Idle", (), {"Value": float("nan")}),
]


def asked(path: str = "", body: Any = None) -> Any:
    return json.loads(answer(requests_of(path, None if body is None else json.dumps(body).encode()), MBEANS, "0"))


def test_read_one_attribute_some_or_all() -> None:
    attribute = asked(f"/read/{TOPICS}/Count")
    assert (attribute["status"], attribute["value"]) == (200, 7)
    assert attribute["request"] == {"type": "read", "mbean": TOPICS, "attribute": "Count"}
    assert isinstance(attribute["timestamp"], int)
    assert asked(f"/read/{TOPICS}")["value"] == {"Count": 7, "EventType": "bytes"}
    assert asked(f"/read/{TOPICS}/Count,EventType")["value"] == {"Count": 7, "EventType": "bytes"}
    assert asked("", {"type": "read", "mbean": TOPICS, "attribute": ["Count"]})["value"] == {"Count": 7}


def test_properties_come_in_any_order() -> None:
    assert asked("/read/kafka.server:name=BytesInPerSec,type=BrokerTopicMetrics/Count")["value"] == 7


@pytest.mark.parametrize(
    ("pattern", "count"),
    [
        ("kafka.server:type=BrokerTopicMetrics,*", 3),
        ("kafka.server:type=BrokerTopicMetrics,name=*", 1),
        ("kafka.server:type=BrokerTopicMetrics,name=Bytes?nPerSec,topic=*", 1),
        ("kafka.*:*", 5),
        ("k*f*a.*e*r:*", 3),
        ("*kafka.server*:*", 3),
        ("kafka.server*server:*", 0),
        ("*a.s?r*r:name=*In*,*", 2),
        ("*:type=LogManager,*", 1),
        ("kafka.server:topic=a,*", 2),
        ("nothing:*", 0),
    ],
)
def test_search_finds_what_a_pattern_means(pattern: str, count: int) -> None:
    assert len(asked(f"/search/{pattern}")["value"]) == count


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "name",
    [
        "kafka.server:" + "a" * 900_000,
        "kafka.server:type=" + "*" * 900_000,
        "kafka.server:type=" + "*e" * 400 + "*x,*",
        "*" * 900 + "x:*",
    ],
    ids=["no property", "stars", "stars and letters", "stars of a domain"],
)
def test_a_name_that_fits_nothing_is_soon_refused(name: str) -> None:
    """A regular expression holds the whole broker while it looks."""
    assert asked("", {"type": "read", "mbean": name})["status"] == 404
    assert asks_for_partitions({"type": "read", "mbean": name}) in (True, False)


def test_read_of_a_pattern_gives_each_that_has_the_attribute() -> None:
    attributes = asked("/read/kafka.server:type=BrokerTopicMetrics,*/OneMinuteRate")["value"]
    assert attributes == {"kafka.server:type=BrokerTopicMetrics,name=BytesOutPerSec,topic=a": {"OneMinuteRate": 0.5}}


def test_slashes_are_escaped_as_jolokia_does() -> None:
    name = 'kafka.log:type=LogManager,name=LogDirectoryOffline,logDirectory="!/data!/a"'
    assert asked(f"/read/{name}/Value")["value"] == 0


def test_several_requests_of_a_post_are_answered_in_their_order() -> None:
    answers = asked(
        "", [{"type": "read", "mbean": TOPICS, "attribute": "Count"}, {"type": "version"}, {"type": "exec"}]
    )
    assert [answer["status"] for answer in answers] == [200, 200, 400]
    assert answers[1]["value"]["info"]["product"] == "klamm"


def test_list_shows_the_tree_or_a_part_of_it() -> None:
    tree = asked("/list")["value"]
    assert tree["kafka.server"]["type=BrokerTopicMetrics,name=BytesInPerSec"]["attr"]["Count"]["type"] == "long"
    assert set(asked("/list/kafka.log")["value"]) == {'type=LogManager,name=LogDirectoryOffline,logDirectory="/data/a"'}
    assert asked("/list/no.such")["status"] == 404


def test_what_json_has_no_number_for_is_text() -> None:
    assert asked("/read/kafka.network:type=SocketServer,name=Idle/Value")["value"] == "NaN"


@pytest.mark.parametrize(
    ("path", "status", "java_class"),
    [
        ("/read/kafka.server:type=Nothing", 404, "javax.management.InstanceNotFoundException"),
        ("/read/kafka.server:type=Nothing,*", 404, "javax.management.InstanceNotFoundException"),
        (f"/read/{TOPICS}/Nothing", 404, "javax.management.AttributeNotFoundException"),
        ("/read/nonsense", 400, "javax.management.MalformedObjectNameException"),
        ("/read", 400, "javax.management.MalformedObjectNameException"),
        ("/write/a:b=c/Value/1", 400, "java.lang.IllegalArgumentException"),
    ],
)
def test_refusals_name_the_class_that_java_would(path: str, status: int, java_class: str) -> None:
    refusal = asked(path)
    assert (refusal["status"], refusal["error_type"]) == (status, java_class)
    assert "value" not in refusal


@pytest.mark.parametrize(
    "body",
    [
        b"no json",
        b"7",
        b"null",
        b'"text"',
        b"[7, null]",
        b'{"type": 3}',
        b"[" * 100_000,
        b'{"type": Infinity, "mbean": 1e400}',
    ],
)
def test_senseless_bodies_are_refused(body: bytes) -> None:
    refusal = json.loads(answer(requests_of("", body), MBEANS, "0"))
    assert all(answer["status"] == 400 for answer in (refusal if isinstance(refusal, list) else [refusal]))


@pytest.mark.parametrize("attribute", [7, True, [["Count"]], ["Count", 7], {"Count": 1}])
def test_attributes_without_a_name_are_refused(attribute: object) -> None:
    answer = asked("", {"type": "read", "mbean": TOPICS, "attribute": attribute})
    assert answer["status"] == 400


@pytest.mark.parametrize(
    ("request_", "is_asked"),
    [
        ({"type": "read", "mbean": TOPICS}, False),
        ({"type": "read", "mbean": "kafka.server:type=BrokerTopicMetrics,*"}, False),
        ({"type": "search", "mbean": "kafka.log:type=LogManager,*"}, False),
        ({"type": "read", "mbean": "kafka.log:type=Log,name=Size,topic=a,partition=0"}, True),
        ({"type": "read", "mbean": "kafka.log:name=Size,*"}, True),
        ({"type": "read", "mbean": "kafka.c*:type=P?rtition,*"}, True),
        ({"type": "read", "mbean": "*:*"}, True),
        ([{"type": "read", "mbean": TOPICS}, {"type": "read", "mbean": "kafka.server:type=Fetcher*,*"}], True),
        ({"type": "list"}, True),
        ("nonsense", True),
    ],
)
def test_only_who_asks_for_partitions_makes_a_broker_collect_them(request_: Any, is_asked: bool) -> None:
    assert asks_for_partitions(request_) is is_asked
