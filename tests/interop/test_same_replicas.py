"""Two brokers of one engine live through the same as two of the other: their replicas have the same files.

A follower falls behind and catches up in large fetches, a leader that was elected uncleanly makes the other cut its
log. Only ``make soak`` runs it: it takes most of a minute.
"""

from __future__ import annotations

import time
from pathlib import Path

from folder_pair import HOUR_MS, FolderReader, Told, differences
from mixed_cluster import DEADLINE_S, MixedCluster
from soak import SOAK
from test_same_folders import BUT, COMMON
from wire_client import WireClient, create_topic, produce

from engine.common.errors import ErrorCode
from engine.kafka.protocol.records.encode import encode_batch
from engine.kafka.protocol.records.record import Record

SETTINGS = {
    **{name.replace(".", "_"): value for name, value in COMMON.items()},
    "zookeeper_session_timeout_ms": "3000",
    "unclean_leader_election_enable": "true",
}
TOPICS = {"r": {}, "r-append": {"message.timestamp.type": "LogAppendTime"}, "r-empty": {}}


class Story:
    """What both clusters live through."""

    def __init__(self, cluster: MixedCluster, begin_ms: int) -> None:
        self._cluster = cluster
        self._begin_ms = begin_ms

    def tell(self) -> None:
        cluster = self._cluster
        for topic, configs in TOPICS.items():
            small = {"segment.bytes": "1000", "index.interval.bytes": "100", "segment.ms": "8640000000"}
            create_topic(cluster.address(0), topic, assignment={0: [0, 1]}, configs={**small, **configs})
        self._in_sync()
        self._write(0, range(20), "r", "r-append")
        cluster.kill(1)
        self._led_by(0)
        self._write(0, range(20, 40), "r")
        cluster.start(1)
        self._in_sync()
        self._checkpointed(80)
        cluster.kill(1)
        self._led_by(0)
        self._write(0, range(40, 55), "r")
        cluster.kill(0)
        cluster.start(1)
        self._led_by(1)
        self._write(1, range(60, 70), "r")
        cluster.start(0)
        self._in_sync()
        self._write(1, range(70, 71), "r")
        self._checkpointed(102)
        cluster.stop(0)
        self._led_by(1)
        cluster.stop(1)

    def _write(self, leader: int, numbers: range, *topics: str) -> None:
        for number in numbers:
            times = (self._begin_ms + number, self._begin_ms + number + 1)
            records = [Record(n, time_ms, b"key", b"%d" % number * 10, []) for n, time_ms in enumerate(times)]
            producer_id, sequence = (70 + number % 2, number // 2 * 2) if number < 60 else (75, number * 2)
            sent = encode_batch(records, producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
            for topic in topics:
                self._send(leader, topic, sent)

    def _send(self, leader: int, topic: str, sent: bytes) -> None:
        deadline = time.monotonic() + DEADLINE_S
        with WireClient(self._cluster.address(leader)) as client:
            while (answer := produce(client, topic, sent, acks=-1)).error_code != ErrorCode.NONE:
                assert time.monotonic() < deadline, answer
                time.sleep(0.1)

    def _in_sync(self) -> None:
        for topic in TOPICS:
            self._cluster.wait_in_sync(topic)

    def _led_by(self, leader: int) -> None:
        for topic in TOPICS:
            self._cluster.wait_for_topic(topic, f"{leader} leads alone", lambda told: told[0][:2] == (leader, [leader]))

    def _checkpointed(self, end_offset: int) -> None:
        """Wait until the checkpoints of both have the log's end, and what was flushed after the last roll."""
        deadline = time.monotonic() + DEADLINE_S
        for broker_id in self._cluster.ids:
            folder = self._cluster.log_dir(broker_id)
            last = max(int(path.stem) for path in (folder / "r-0").glob("*.log"))
            for name, offset in (("recovery-point", last), ("replication", end_offset)):
                noted = folder / f"{name}-offset-checkpoint"
                while f"r 0 {offset}" not in noted.read_text().splitlines():
                    assert time.monotonic() < deadline, f"{noted}: {noted.read_text()}"
                    time.sleep(0.1)


if SOAK > 1:

    def test_the_same_replicas(zk_chroot: str, tmp_path: Path) -> None:
        begin_ms = int(time.time() * 1000) - HOUR_MS
        pairs: list[Told] = []
        for engine, kafkas in (("kafka", (0, 1)), ("klamm", ())):
            connect = f"{zk_chroot}/{engine}"
            with MixedCluster(tmp_path / engine, connect, (0, 1), kafkas, **SETTINGS) as cluster:
                Story(cluster, begin_ms).tell()
            log_dirs = [tmp_path / engine / broker / "data" for broker in "01"]
            pairs.append(FolderReader(tmp_path / engine, begin_ms).told(log_dirs))
        assert differences(*pairs, but=BUT) == []
