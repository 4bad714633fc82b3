"""Every call to the disk fails once: what clients see, what continues, and what a restart finds.

A broker with two log dirs serves a partition in each. All operations are requests in wire format. In each run one call
below the first dir fails, and both partitions get every request.
"""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path
from typing import Any

import pytest
from forgetful_disk import SHORT, Call, Disk, failing_once
from log_folders import NOW_MS, data_batch, run_due, values_of, write_checkpoints
from replicated_brokers import HANDLERS, InProcessConnection, World, world
from soak import SOAK
from virtual_time import run_virtual

from engine.broker.handlers.delete_records import delete_records
from engine.broker.handlers.produce import produce
from engine.common.errors import ErrorCode
from engine.common.model import Node, TopicPartition
from engine.kafka.client.errors import ConnectionLost
from engine.kafka.config.log_config import LogConfig
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from engine.kafka.protocol.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from engine.kafka.protocol.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from engine.kafka.protocol.records.decode import iter_records

BAD, GOOD = TopicPartition("orders", 0), TopicPartition("orders", 1)
CONFIG = LogConfig(
    segment_bytes=300,
    segment_index_bytes=120,
    index_interval_bytes=0,
    flush_messages=1,
    retention_bytes=500,
    retention_ms=-1,
    file_delete_delay_ms=0,
)
REFUSED = {ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
"""A partition in a failed log dir. A partition whose log could not be made is not hosted."""


class Client:
    """Sends requests to one broker, and remembers the answers for each partition."""

    def __init__(self, w: World) -> None:
        self.w = w
        self.connection = InProcessConnection(w, 99, Node(1, "broker-1", 9092), "client")
        self.acknowledged: dict[TopicPartition, dict[int, bytes]] = {BAD: {}, GOOD: {}}
        self.start = {BAD: 0, GOOD: 0}
        self.followed: list[Path] = []
        self.errors: dict[TopicPartition, set[ErrorCode]] = {BAD: set(), GOOD: set()}

    async def produce(self, where: TopicPartition, value: bytes, sequence: int) -> None:
        """Send a batch, and resend it if it is refused, as a producer does until it succeeds."""
        if not await self._send(where, value, sequence):
            await self._send(where, value, sequence)

    async def _send(self, where: TopicPartition, value: bytes, sequence: int) -> bool:
        batch = bytes(data_batch(value, timestamp_ms=NOW_MS + sequence, producer=(7, 0, sequence)))
        data = PartitionProduceData(index=where.partition, records=batch)
        topic = TopicProduceData(name=where.topic, partition_data=[data])
        response = await self._ask(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic]), 9)
        (answer,) = response.responses[0].partition_responses
        self.errors[where].add(ErrorCode(answer.error_code))
        if answer.error_code == ErrorCode.NONE:
            self.acknowledged[where][answer.base_offset] = value
        return answer.error_code == ErrorCode.NONE

    async def delete_records(self, where: TopicPartition, offset: int) -> None:
        partition = DeleteRecordsPartition(partition_index=where.partition, offset=offset)
        topic = DeleteRecordsTopic(name=where.topic, partitions=[partition])
        response = await self._ask(DeleteRecordsRequest(topics=[topic], timeout_ms=1000), 2)
        (answer,) = response.topics[0].partitions
        self.errors[where].add(ErrorCode(answer.error_code))
        if answer.error_code == ErrorCode.NONE:
            assert answer.low_watermark == offset
            self.start[where] = max(self.start[where], offset)

    async def read(self, where: TopicPartition) -> None:
        """Read everything. Each record must be the one that was acknowledged."""
        log = self.w.brokers[1].replica_manager.log_of(where)
        offset = self.start[where] if log is None else log.log_start_offset
        while True:
            wanted = FetchPartition(partition=where.partition, fetch_offset=offset, partition_max_bytes=200)
            topic = FetchTopic(topic=where.topic, partitions=[wanted])
            request = FetchRequest(replica_id=-1, max_wait_ms=0, min_bytes=0, max_bytes=10_000, topics=[topic])
            try:
                response = await self._ask(request, 11)
            except ConnectionLost:
                # What the client has read so far is right. It would ask for the rest again.
                return
            (answer,) = response.responses[0].partitions
            self.errors[where].add(ErrorCode(answer.error_code))
            records = [record for record in iter_records(bytes(answer.records or b"")) if record.offset >= offset]
            if not records:
                return
            for record in records:
                assert self.acknowledged[where].get(record.offset, record.value) == record.value
            offset = records[-1].offset + 1

    async def _ask(self, request: Any, version: int) -> Any:
        response = await self.connection.send(request, version)
        self.follow_failures()
        return response

    def follow_failures(self) -> None:
        """Do what the server does in the next turn of the loop after a log dir failed."""
        broker = self.w.brokers[1]
        for path in broker.failed_dirs[len(self.followed) :]:
            self.followed.append(path)
            broker.replica_manager.handle_log_dir_failure(path)


async def scenario(w: World, client: Client) -> None:
    """Send every request that needs the disk, for both partitions."""
    for where in (BAD, GOOD):
        await w.lead(1, topic_partition=where)
    for number in range(9):
        for where in (BAD, GOOD):
            await client.produce(where, b"%d" % number * 20, number)
    for where in (BAD, GOOD):
        await client.read(where)
        await client.delete_records(where, 3)
    logs = w.brokers[1].log_manager
    run_due(logs)
    write_checkpoints(logs)
    sum(logs.retention_steps())
    for where in (BAD, GOOD):
        log = logs.get(where)
        client.start[where] = client.start[where] if log is None else log.log_start_offset
    run_due(logs)
    await w.lead(1, topic_partition=BAD)
    for where in (BAD, GOOD):
        await client.produce(where, b"last", 9)
        await client.read(where)


def check_after_a_restart(w: World, client: Client) -> None:
    for where in (BAD, GOOD):
        log = w.brokers[1].log_manager.get(where)
        missing = [offset for offset in client.acknowledged[where] if offset >= client.start[where]]
        if log is None:
            assert not missing
            continue
        values = dict(values_of(log))
        for offset in missing:
            assert values.get(offset) == client.acknowledged[where][offset], f"{where} has lost {offset}"
        sequences = log.producers.producers.get(7)
        if sequences is not None and values:
            assert sequences.batches[-1][1] == max(values)


def kind_of(call: Call) -> str:
    """Return the kind of call and the kind of file: one call of each pair is made to fail."""
    name = call.path.rpartition("/")[2]
    return f"{call.name} {re.sub('[0-9a-f]{32}|[0-9]+', 'N', name)} {call.is_change}"


def calls_of_the_scenario(tmp_path: Path) -> list[Call]:
    """Return all calls below the first log dir."""
    return run(tmp_path, None, 0)[1].calls


def run(tmp_path: Path, number: int | None, error: int) -> tuple[Client, Disk, list[Path]]:
    """Run the scenario with one failing call; restart, check, and return what the client saw."""
    result: list[Any] = []

    async def test() -> None:
        async with world(tmp_path, 1, dirs_per_broker=2, log_config=CONFIG) as w:
            client, disk = Client(w), Disk(tmp_path / "broker-1-0")
            if number is not None:
                disk.before = failing_once(number, error)
            broker = w.brokers[1]
            bad_dir = broker.log_manager.config.log_dirs[0]
            with disk.watched():
                await scenario(w, client)
            if broker.failed_dirs:
                # Its log could not be made there. Either it is in the other dir, or the partition is refused.
                log = broker.log_manager.get(BAD)
                await client.produce(BAD, b"after", 10)
                assert (ErrorCode.KAFKA_STORAGE_ERROR in client.errors[BAD]) == (log is None)
                assert log is None or log.log_dir != bad_dir
            await w.stop_broker(1, cleanly=False)
            w.start_broker(1)
            assert not w.brokers[1].failed_dirs
            check_after_a_restart(w, client)
            result.extend([client, disk, broker.failed_dirs])

    run_virtual(test)
    return result[0], result[1], result[2]


def errors_for(call: Call) -> list[int]:
    if call.name in ("write", "pwrite"):
        return [errno.EIO, errno.ENOSPC, SHORT]
    if call.name in ("open", "listdir", "scandir"):
        return [errno.EIO, errno.EMFILE]
    return [errno.ENOSPC, errno.EIO] if call.name in ("mkdir", "rename", "replace", "ftruncate") else [errno.EIO]


@pytest.fixture(autouse=True)
def handlers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(HANDLERS, ApiKey.PRODUCE, produce)
    monkeypatch.setitem(HANDLERS, ApiKey.DELETE_RECORDS, delete_records)
    monkeypatch.setattr(os, "fsync", lambda _: None)


def test_without_a_failure_all_is_told_and_kept(tmp_path: Path) -> None:
    client, disk, failed = run(tmp_path, None, 0)
    assert (client.errors[BAD], client.errors[GOOD], failed) == ({ErrorCode.NONE}, {ErrorCode.NONE}, [])
    assert len(client.acknowledged[BAD]) == 10
    names = {call.name for call in disk.calls}
    assert names >= {"open", "pwrite", "write", "fsync", "ftruncate", "rename", "replace", "unlink", "mkdir", "scandir"}


def test_each_call_may_fail(tmp_path: Path) -> None:
    seen: dict[str, int] = {}
    for number, call in enumerate(calls_of_the_scenario(tmp_path / "all")):
        kind = kind_of(call)
        seen[kind] = seen.get(kind, 0) + 1
        if seen[kind] > SOAK:
            continue
        for error in errors_for(call):
            failure = f"{errno.errorcode.get(error, 'short')} in call {number}, {kind}"
            try:
                client, _, failed = run(tmp_path / f"{number}-{error}", number, error)
            except AssertionError as wrong:
                wrong.add_note(failure)
                raise
            assert client.errors[GOOD] == {ErrorCode.NONE}, failure
            assert len(client.acknowledged[GOOD]) == 10, failure
            assert client.errors[BAD] <= {ErrorCode.NONE, *REFUSED}, failure
            if error in (SHORT, errno.EMFILE):
                assert not failed, failure
                assert len(client.acknowledged[BAD]) == 10, failure
            if error == SHORT:
                assert client.errors[BAD] == {ErrorCode.NONE}, failure
    assert len(seen) > 40
