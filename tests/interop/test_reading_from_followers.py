"""Reading from followers (KIP-392): a leader of each engine with a follower of the other gives the same answers."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from mixed_cluster import DEADLINE_S, MixedCluster
from patience import wait_for, within
from wire_client import WireClient, create_topic, describe_topic, fetch, produce

from engine.common.errors import ErrorCode
from engine.common.model import TopicPartition
from engine.kafka.protocol.apis.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from engine.kafka.protocol.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from engine.kafka.protocol.records.encode import encode_batch
from engine.kafka.protocol.records.record import Record
from engine.local.zookeeper import EmbeddedZooKeeper

KAFKA, KLAMM = 0, 1
RACKS = {KAFKA: "rack 0", KLAMM: "rack 1"}
TOPICS = {KAFKA: "led-by-kafka", KLAMM: "led-by-klamm"}
"""By their leader; the other broker follows."""
RECORDS, DELETED = 5, 2
SPANS_FOLLOWERS = 11
"""The first version of Fetch that names a rack."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One Fetch of a consumer."""

    of_leader: bool
    rack: str
    """Whose rack it names: the leader's, the follower's, none, or another."""
    offset: int = DELETED
    version: int = 12
    newer_by: int | None = None
    """What its leader epoch is ahead of the present one; None: it has none."""
    isolation: int = 0


def is_written(client: WireClient, topic: str, batch: bytes) -> bool:
    return produce(client, topic, batch, acks=-1).error_code == ErrorCode.NONE


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, zookeeper: EmbeddedZooKeeper) -> Iterator[MixedCluster]:
    selector = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
    with MixedCluster(
        tmp_path_factory.mktemp("racks"),
        f"{zookeeper.connect_string}/racks-{uuid.uuid4().hex[:12]}",
        (KLAMM, KAFKA),
        (KAFKA,),
        racks=RACKS,
        replica_selector_class=selector,
    ) as running:
        for leader, topic in TOPICS.items():
            follower = KLAMM if leader == KAFKA else KAFKA
            create_topic(running.address(leader), topic, assignment={0: [follower, leader]})
            running.wait_in_sync(topic)
            # So that there is an earlier leader epoch.
            running.reassign({TopicPartition(topic, 0): [leader, follower]})
            running.elect_preferred(topic, 1)
            running.wait_in_sync(topic)
            with WireClient(running.address(leader)) as client:
                for number in range(RECORDS):
                    batch = encode_batch([Record(0, 1_700_000_000_000, None, b"%d" % number)])
                    # The ISR may be whole in ZooKeeper before the leader has heard that it leads. Only the first waits.
                    wait_for(partial(is_written, client, topic, batch))
                partition = DeleteRecordsPartition(partition_index=0, offset=DELETED)
                request = DeleteRecordsRequest(
                    topics=[DeleteRecordsTopic(name=topic, partitions=[partition])], timeout_ms=20_000
                )
                answer = client.ask(request, 2)
                assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE, answer
            wait_until_told(running.address(follower), topic)
        yield running


def wait_until_told(address: str, topic: str) -> None:
    """Wait until a follower knows the leader's high watermark and start."""
    is_in_time = within(DEADLINE_S)
    with WireClient(address) as client:
        while True:
            told = fetch(client, topic, RECORDS, max_wait_ms=0)
            if (told.high_watermark, told.log_start_offset) == (RECORDS, DELETED):
                return
            assert is_in_time(), told


def answer(cluster: MixedCluster, leader: int, asked: Asked) -> dict[str, Any]:
    """Return what one of the partition's two brokers answers, with words for the two brokers."""
    follower = KLAMM if leader == KAFKA else KAFKA
    racks = {"leader's": RACKS[leader], "follower's": RACKS[follower], "none": "", "another": "rack 2"}
    with WireClient(cluster.address(leader)) as client:
        present = describe_topic(client, TOPICS[leader]).partitions[0].leader_epoch
    partition = FetchPartition(
        partition=0,
        fetch_offset=asked.offset,
        partition_max_bytes=1 << 20,
        current_leader_epoch=-1 if asked.newer_by is None else present + asked.newer_by,
    )
    request = FetchRequest(
        max_wait_ms=200,
        min_bytes=1,
        max_bytes=1 << 20,
        isolation_level=asked.isolation,
        topics=[FetchTopic(topic=TOPICS[leader], partitions=[partition])],
        **({"rack_id": racks[asked.rack]} if asked.version >= SPANS_FOLLOWERS else {}),
    )
    with WireClient(cluster.address(leader if asked.of_leader else follower)) as client:
        whole = client.ask(request, asked.version)
    (topic,) = whole.responses
    (told,) = topic.partitions
    places = {leader: "leader", follower: "follower", -1: "none"}
    return {
        "errors": (whole.error_code, told.error_code),
        "offsets": (told.high_watermark, told.last_stable_offset, told.log_start_offset),
        "elsewhere": places[told.preferred_read_replica] if asked.version >= SPANS_FOLLOWERS else "",
        "bytes": len(told.records or b""),
        "aborted": told.aborted_transactions or [],
    }


PLACES = [(of_leader, rack) for of_leader in (True, False) for rack in ("leader's", "follower's", "none", "another")]
CASES = [
    *(Asked(of_leader, rack) for of_leader, rack in PLACES),
    *(Asked(of_leader, rack, offset=RECORDS) for of_leader, rack in PLACES),
    *(Asked(of_leader, "follower's", offset=offset) for of_leader in (True, False) for offset in (0, RECORDS + 1, -1)),
    *(Asked(of_leader, "follower's", newer_by=epochs) for of_leader in (True, False) for epochs in (-1, 0, 1)),
    *(Asked(of_leader, "follower's", version=version) for of_leader in (True, False) for version in (10, 11)),
    *(Asked(of_leader, "follower's", isolation=1) for of_leader in (True, False)),
]


@pytest.mark.parametrize("asked", CASES, ids=lambda asked: str(asked))
def test_leaders_and_followers_of_both_engines_answer_the_same(cluster: MixedCluster, asked: Asked) -> None:
    theirs = answer(cluster, KAFKA if asked.of_leader else KLAMM, asked)
    ours = answer(cluster, KLAMM if asked.of_leader else KAFKA, asked)
    assert ours == theirs


def test_a_consumer_in_the_followers_rack_is_sent_there_and_reads_what_it_has(cluster: MixedCluster) -> None:
    sent = answer(cluster, KLAMM, Asked(of_leader=True, rack="follower's"))
    assert (sent["elsewhere"], sent["bytes"]) == ("follower", 0)
    read = answer(cluster, KAFKA, Asked(of_leader=False, rack="follower's"))
    assert read["bytes"] > 0
