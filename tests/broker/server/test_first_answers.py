"""A broker answers as Kafka does: as controller, and if no controller tells it anything.

The requests are the recorded ones. The comparison leaves out cluster id, addresses and topic ids.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
from broker_program import BrokerProgram, settings
from guest_cluster import GuestCluster
from wire_client import ConnectionClosed, WireClient, create_topic, wait_until_led
from znode_writer import znode_writer

from engine.broker.handlers.registry import all_handlers
from engine.common.errors import ErrorCode
from engine.kafka.formats.consumer_offsets import partition_for
from engine.kafka.protocol.api_keys import API_SPECS, ApiKey
from engine.kafka.protocol.apis.api_versions import ApiVersionsRequest
from engine.kafka.protocol.apis.describe_configs import DescribeConfigsResourceResult
from engine.kafka.protocol.apis.find_coordinator import FindCoordinatorRequest
from engine.kafka.protocol.apis.metadata import MetadataRequest
from engine.kafka.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from engine.kafka.protocol.declaration import Struct
from engine.kafka.protocol.frames import decode_response
from engine.local.addresses import own_loopback_address
from engine.local.zookeeper import EmbeddedZooKeeper

FIXTURES = Path(__file__).parents[3] / "fixtures" / "first-answers"
CONTROLLER, UNTOLD = "controller-with-metadata", "started-but-no-update-metadata"
OF_ONE_CLUSTER = {"cluster_id", "host", "port", "topic_id"}


def exchanges(name: str) -> list[dict[str, Any]]:
    """Return the recorded requests that one of our handlers answers. ApiVersions' list has a test of its own."""
    lines = [json.loads(line) for line in (FIXTURES / f"{name}.jsonl").read_text().splitlines()]
    wanted = set(all_handlers())
    return [e for e in lines if e.get("key") in wanted and (e["key"] != ApiKey.API_VERSIONS or e["version"] == 99)]


def ask_all(address: str, name: str) -> dict[str, bytes | None]:
    """Send every request on its own connection; return the answers, None for a closed connection."""
    answers: dict[str, bytes | None] = {}
    # The request that creates a topic comes last: klamm may list the topic at once, and Kafka did not have it yet.
    for exchange in sorted(exchanges(name), key=lambda each: "absent" in each["api"]):
        with WireClient(address, timeout_s=60) as client:
            client.socket.sendall(bytes.fromhex(exchange["request"]))
            try:
                answers[exchange["api"]] = client.read_frame()
            except ConnectionClosed:
                answers[exchange["api"]] = None
    return answers


@pytest.fixture(scope="module")
def answers(
    zookeeper: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, dict[str, bytes | None]]]:
    """What a controller answers, and what a broker answers that started after the controller was paused."""
    folder, host = tmp_path_factory.mktemp("second"), own_loopback_address()
    with GuestCluster(zookeeper, 1, config={"zookeeper.session.timeout.ms": "60000"}) as cluster:
        create_topic(cluster.bootstrap_servers, "t1")
        wait_until_led(cluster.bootstrap_servers, "t1")
        of_controller = ask_all(cluster.bootstrap_servers, CONTROLLER)
        cluster.pause_broker(0)
        own = settings(folder, host, cluster.zookeeper_connect, broker_id="1")
        with BrokerProgram(folder, own) as second:
            second.wait_until_started()
            of_second = ask_all(f"{host}:9092", UNTOLD)
            assert second.terminate() == 0
            assert "Cannot handle a request" not in second.server_log
        cluster.resume_broker(0)
        yield {CONTROLLER: of_controller, UNTOLD: of_second}


@pytest.mark.parametrize(
    ("name", "exchange"),
    [(name, exchange) for name in (CONTROLLER, UNTOLD) for exchange in exchanges(name)],
    ids=lambda value: value if isinstance(value, str) else value["api"],
)
def test_as_recorded(answers: dict[str, dict[str, bytes | None]], name: str, exchange: dict[str, Any]) -> None:
    answer = answers[name][exchange["api"]]
    if exchange["response"] is None:
        assert answer is None
        return
    assert answer is not None
    recorded = bytes.fromhex(exchange["response"])[4:]
    key = ApiKey(exchange["key"])
    version = exchange["version"] if API_SPECS[key].supports(exchange["version"]) else 0
    ours, kafkas = (comparable(decode_response(frame, key, version)[1]) for frame in (answer, recorded))
    assert ours == kafkas


def test_who_asks_before_the_controller_tells_is_told_of_all_brokers(
    zookeeper: EmbeddedZooKeeper, tmp_path: Path
) -> None:
    """Kafka has no brokers to tell of then, and librdkafka gives up all its connections."""
    host = own_loopback_address()
    with GuestCluster(zookeeper, 1, config={"zookeeper.session.timeout.ms": "60000"}) as cluster:
        own = settings(tmp_path, host, cluster.zookeeper_connect, broker_id="1")
        cluster.pause_broker(0)
        with BrokerProgram(tmp_path, own) as second:
            second.wait_until_started()
            with WireClient(f"{host}:9092") as client, WireClient(f"{host}:9092") as other:
                client.send(MetadataRequest(topics=[]), 12)
                other.ask(ApiVersionsRequest(), 0)
                cluster.resume_broker(0)
                answer = client.answer(ApiKey.METADATA, 12)
            assert ({broker.node_id for broker in answer.brokers}, answer.controller_id) == ({0, 1}, 0)
            assert second.terminate() == 0


def test_a_commit_before_the_controller_tells_does_not_hear_that_its_topic_is_gone(
    zookeeper: EmbeddedZooKeeper, tmp_path: Path
) -> None:
    """A coordinator that is killed and back before its session ends is asked again at once, at the same address."""
    host = own_loopback_address()
    topic = OffsetCommitRequestTopic(
        name="t", partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=1)]
    )
    with GuestCluster(zookeeper, 1, config={"zookeeper.session.timeout.ms": "60000"}) as cluster:
        create_topic(cluster.bootstrap_servers, "t")
        own = settings(tmp_path, host, cluster.zookeeper_connect, broker_id="1")
        cluster.pause_broker(0)
        with BrokerProgram(tmp_path, own) as second:
            second.wait_until_started()
            with WireClient(f"{host}:9092") as client:
                client.send(OffsetCommitRequest(group_id="g", topics=[topic]), 7)
                cluster.resume_broker(0)
                answer = client.answer(ApiKey.OFFSET_COMMIT, 7)
            assert [p.error_code for t in answer.topics for p in t.partitions] == [ErrorCode.NOT_COORDINATOR]
            assert second.terminate() == 0


def comparable(value: Any) -> Any:
    """Return a message as plain values, without what differs from cluster to cluster. Null and empty are equal."""
    if isinstance(value, Struct):
        names = [name for name in value.__slots__ if name not in OF_ONE_CLUSTER]
        return {name: comparable(getattr(value, name)) for name in names}
    if isinstance(value, list):
        values = [comparable(each) for each in value]
        if value and isinstance(value[0], DescribeConfigsResourceResult):
            # Kafka lists settings in the order of a hash table.
            values.sort(key=itemgetter("name"))
        return values or None
    if isinstance(value, memoryview):
        return bytes(value) or None
    return None if value == "" else value


def test_a_partition_that_never_had_a_leader_counts_when_coordinators_are_looked_for(
    tmp_path: Path, zk_chroot: str
) -> None:
    """It is missing in the metadata. Without it, groups would belong to other partitions until its replica is there."""
    host = own_loopback_address()
    topic = {"version": 2, "partitions": {"0": [0], "1": [0], "2": [9]}, "adding_replicas": {}, "removing_replicas": {}}
    with znode_writer(zk_chroot) as write:
        write({"/brokers/topics/__consumer_offsets": json.dumps(topic).encode()}, False)
    groups = [f"g{number}" for number in range(12)]
    with BrokerProgram(tmp_path, settings(tmp_path, host, zk_chroot)) as broker:
        broker.wait_until_started()
        wait_until_led(f"{host}:9092", "__consumer_offsets")
        with WireClient(f"{host}:9092") as client:
            answer = client.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=groups), 4)
        assert broker.terminate() == 0
    errors = {each.key: each.error_code for each in answer.coordinators}
    gone = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert errors == {group: gone if partition_for(group, 3) == 2 else ErrorCode.NONE for group in groups}
