"""One ``__consumer_offsets``, two engines in turn: groups, members and offsets continue where the other left them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from one_folder import DEADLINE_S, OneFolder
from patience import within
from wire_client import WireClient, create_topic, wait_until_led

from engine.common.errors import ErrorCode
from engine.kafka.formats.consumer_offsets import GroupMetadataKey, GroupMetadataValue, decode_key, decode_value
from engine.kafka.protocol.apis.delete_groups import DeleteGroupsRequest
from engine.kafka.protocol.apis.describe_groups import DescribeGroupsRequest
from engine.kafka.protocol.apis.find_coordinator import FindCoordinatorRequest
from engine.kafka.protocol.apis.list_groups import ListGroupsRequest
from engine.kafka.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from engine.kafka.protocol.apis.offset_fetch import OffsetFetchRequest
from engine.kafka.protocol.records.decode import iter_records

TOPIC = "read"
PARTITIONS = 2
PER_TURN = 10
OFFSETS_TOPIC = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "group.initial.rebalance.delay.ms": "0",
}


class Groups(OneFolder):
    """What clients see of the groups of a folder that the engines take over in turn."""

    def __init__(self, folder: Path, zookeeper_connect: str) -> None:
        super().__init__(folder, zookeeper_connect, OFFSETS_TOPIC)
        self.turn = 0

    # -- what clients do

    def consumer(self, group: str, **options: str) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self.address,
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 45_000,
                "log_level": 2,
                **options,
            }
        )

    def produce(self) -> None:
        producer = Producer({"bootstrap.servers": self.address})
        for number in range(PER_TURN):
            producer.produce(TOPIC, b"turn %d record %d" % (self.turn, number), partition=number % PARTITIONS)
        assert producer.flush(DEADLINE_S) == 0

    def read_on(self, group: str, **options: str) -> None:
        """Read what this turn wrote, no more and no less, commit it with metadata, and close."""
        consumer = self.consumer(group, **options)
        consumer.subscribe([TOPIC])
        seen: list[bytes] = []
        ends = dict.fromkeys(range(PARTITIONS), 0)
        is_in_time = within(DEADLINE_S)
        while len(seen) < PER_TURN:
            assert is_in_time(), f"{group} has read {seen}"
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                seen.append(message.value())
                ends[message.partition()] = message.offset() + 1
        assert sorted(seen) == [b"turn %d record %d" % (self.turn, number) for number in range(PER_TURN)]
        offsets = [TopicPartition(TOPIC, p, end, metadata=f"turn {self.turn}") for p, end in ends.items()]
        consumer.commit(offsets=offsets, asynchronous=False)
        consumer.close()

    def commit_as_old_client(self, group: str, offset: int) -> None:
        """Commit with a retention of the client's own: a value of version 1."""
        partition = OffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata=f"t{self.turn}"
        )
        topics = [OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])]
        with WireClient(self.address) as client:
            answer = client.ask(OffsetCommitRequest(group_id=group, retention_time_ms=10**9, topics=topics), 3)
        assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE

    def delete(self, group: str) -> None:
        with WireClient(self.address) as client:
            answer = client.ask(DeleteGroupsRequest(groups_names=[group]), 2)
        assert answer.results[0].error_code == ErrorCode.NONE

    def wait_until_ready(self) -> None:
        wait_until_led(self.address, TOPIC)
        is_in_time = within(DEADLINE_S)
        with WireClient(self.address) as client:
            while (
                client.ask(FindCoordinatorRequest(key="g"), 3).error_code
                or client.ask(OffsetFetchRequest(group_id="g", topics=None), 7).error_code
            ):
                assert is_in_time()
                time.sleep(0.05)

    def picture(self) -> dict[str, Any]:
        """Return everything that clients can learn of the groups."""
        with WireClient(self.address) as client:
            names = sorted(g.group_id for g in client.ask(ListGroupsRequest(), 4).groups)
            described = client.ask(DescribeGroupsRequest(groups=names), 5).groups
            fetched = {name: client.ask(OffsetFetchRequest(group_id=name, topics=None), 7).topics for name in names}
        return {
            g.group_id: (
                g.group_state,
                g.protocol_type,
                g.protocol_data,
                sorted(
                    (
                        m.member_id,
                        m.group_instance_id,
                        m.client_id,
                        m.client_host,
                        m.member_metadata,
                        m.member_assignment,
                    )
                    for m in g.members
                ),
                sorted(
                    (t.name, p.partition_index, p.committed_offset, p.committed_leader_epoch, p.metadata)
                    for t in fetched[g.group_id]
                    for p in t.partitions
                ),
            )
            for g in described
        }

    def take_turn(self) -> None:
        """Do in this engine what every turn does."""
        self.turn += 1
        self.produce()
        self.read_on("dynamic")
        self.read_on("static", **{"group.instance.id": "node-1"})
        self.read_on("cooperative", **{"partition.assignment.strategy": "cooperative-sticky"})
        self.commit_as_old_client("old", self.turn)
        self.commit_as_old_client(f"deleted-{self.turn}", 1)
        self.delete(f"deleted-{self.turn}")

    def generations(self, group: str) -> list[int]:
        """Return the generations of a group in the log, without those that only rewrote it."""
        (folder,) = (self.folder / "data").glob("__consumer_offsets-0")
        generations_seen: list[int] = []
        for path in sorted(folder.glob("*.log")):
            for record in iter_records(path.read_bytes()):
                key = decode_key(record.key or b"")
                value = decode_value(key, record.value)
                is_group = isinstance(key, GroupMetadataKey) and key.group == group
                if is_group and isinstance(value, GroupMetadataValue) and value.generation not in generations_seen:
                    generations_seen.append(value.generation)
        return generations_seen


def test_groups_change_engines_and_back(tmp_path: Path, zk_chroot: str) -> None:
    groups = Groups(tmp_path, zk_chroot)
    with groups.kafka():
        create_topic(groups.address, TOPIC, partitions=PARTITIONS)
        groups.take_turn()
        before = groups.picture()
    assert {name: shown[0] for name, shown in before.items()} == {
        "dynamic": "Empty",
        "static": "Stable",
        "cooperative": "Empty",
        "old": "Empty",
    }
    with groups.klamm(killed=True):
        groups.wait_until_ready()
        assert groups.picture() == before
        groups.take_turn()
        before = groups.picture()
    with groups.kafka():
        groups.wait_until_ready()
        assert groups.picture() == before
        groups.take_turn()
        before = groups.picture()
    with groups.klamm():
        groups.wait_until_ready()
        assert groups.picture() == before
    assert groups.generations("static") == [1], "a static member comes back to either engine without a rebalance"
    assert groups.generations("dynamic") == list(range(1, 7))
