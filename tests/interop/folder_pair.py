"""Two log dirs that two engines write with the same requests, and what their files and clients say.

``FolderPair`` runs Apache Kafka on one folder and klamm on the other, and can let them change places. What is compared
leaves out what must differ: topic ids and random names, and times that a broker takes from its own clock. Records get
their times from the tests, before ``BEGIN_MS``; everything later is a broker's own.
"""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path

from apache_kafka import ApacheKafkaBroker
from broker_program import BrokerProgram, settings
from kazoo.client import KazooClient
from side_by_side import Side, SideBySide
from wire_client import LATEST, controller_address, wait_until_led

from engine.common.errors import ErrorCode, KafkaError
from engine.kafka.formats.index_entries import iter_aborted_transactions, iter_offset_index, iter_time_index
from engine.kafka.formats.log_dir_names import offset_of_file_name
from engine.kafka.formats.producer_snapshot import decode_producer_snapshot
from engine.kafka.protocol.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from engine.kafka.protocol.apis.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from engine.kafka.protocol.apis.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from engine.kafka.protocol.records.decode import iter_batch_records
from engine.kafka.protocol.records.header import BatchHeader, iter_batches
from engine.local.addresses import own_loopback_address

DEADLINE_S = 40.0
SETTLED_S = 15.0
"""After this time no retention, cleaning or checkpoint is under way."""

CHECKPOINTS = (
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
    "log-start-offset-checkpoint",
    "cleaner-offset-checkpoint",
)
EARLIEST, MAX_TIMESTAMP = -2, -3
NOW = 10**18
"""Stands for a time that a broker took from its clock."""

HOUR_MS = 3_600_000

_BAD = re.compile(r"Traceback| (ERROR|FATAL) (?!.*Error while changing replica dir)")
"""Kafka finds it worth an ERROR if a log dir is named for a replica that is not there yet."""

_UNIQUE = re.compile(r"\.[0-9a-f]{32}-")
_TOPIC_ID = re.compile(r"topic_id: \S{22}$")

Told = dict[str, object]
"""What a file or a client says, by name."""


class FolderPair:
    """Two folders, each with a cluster of its own of one broker. ``engines`` says which engine a folder has now."""

    def __init__(self, folder: Path, zookeeper: str, common: Mapping[str, str], *, log_dirs: int = 1) -> None:
        self.folder = folder
        self.common = dict(common)
        self.engines = {"first": "kafka", "second": "klamm"}
        self.begin_ms = int(time.time() * 1000) // 1000 * 1000 - HOUR_MS
        self._zookeeper = zookeeper
        self._host = own_loopback_address()
        self._ports = {"first": 21092, "second": 21093}
        self._dirs = ["data", "data2"][:log_dirs]
        self._kafka: ApacheKafkaBroker | None = None
        self._klamm: BrokerProgram | None = None
        self._both: SideBySide | None = None
        self._reader = FolderReader(folder, self.begin_ms)

    @property
    def both(self) -> SideBySide:
        """Asks both; the side named "kafka" is the folder that Kafka began with, whoever runs on it now."""
        assert self._both is not None
        return self._both

    def log_dirs(self, which: str) -> list[Path]:
        return [self.folder / which / name for name in self._dirs]

    def address(self, which: str) -> str:
        return f"{self._host}:{self._ports[which]}"

    # --- starts and ends

    def start(self, *, is_killed: bool = False) -> None:
        """Start both brokers and wait until they serve. Those that are killed later do not share a JVM."""
        for which, engine in self.engines.items():
            root = self.folder / which
            own = {
                **settings(root, self._host, f"{self._zookeeper}/{which}"),
                **self.common,
                "listeners": f"PLAINTEXT://{self.address(which)}",
                "log.dirs": ",".join(map(str, self.log_dirs(which))),
            }
            if engine == "klamm":
                self._klamm = BrokerProgram(root / f"klamm-{time.monotonic_ns()}", own)
        for which, engine in self.engines.items():
            root = self.folder / which
            if engine == "kafka":
                self._kafka = ApacheKafkaBroker(
                    root,
                    broker_id=0,
                    host=self._host,
                    port=self._ports[which],
                    zookeeper_connect=f"{self._zookeeper}/{which}",
                    overrides={**self.common, "log.dirs": ",".join(map(str, self.log_dirs(which)))},
                    heap="300m",
                    shares_jvm=not is_killed,
                )
                self._kafka.start()
        assert self._klamm is not None
        self._klamm.wait_until_started()
        for which in self.engines:
            controller_address(self.address(which))
        ids = {} if self._both is None else {name: side.ids for name, side in self._both.sides.items()}
        self._both = SideBySide(self.address("first"), self.address("second"))
        for name, of in ids.items():
            self._both.sides[name].ids.update(of)
        for side in self._both.sides.values():
            side.learn_ids()
        for which in self.engines:
            wait_until_led(self.address(which), *self.topics)

    @property
    def topics(self) -> list[str]:
        """Return the topics that have a folder, without internal ones."""
        names = {path.name for which in self.engines for data in self.log_dirs(which) for path in data.glob("*-[0-9]*")}
        return sorted({name.rpartition("-")[0] for name in names if "." not in name and not name.startswith("__")})

    def stop(self) -> None:
        """Shut both down cleanly."""
        assert self._kafka is not None and self._klamm is not None
        self.both.close()
        assert self._klamm.terminate() == 0, self._klamm.stderr
        self._klamm.__exit__(None, None, None)
        self._kafka.stop()
        said = {"klamm": self._klamm.server_log, "kafka": self._kafka.log}
        bad = [f"{who}: {line}" for who, text in said.items() for line in text.splitlines() if _BAD.search(line)]
        assert not bad, "\n".join(bad)
        self._klamm = self._kafka = None

    def kill(self) -> None:
        """Kill both, and end their sessions: nobody waits for that."""
        assert self._kafka is not None and self._klamm is not None
        self.both.close()
        self._klamm.__exit__(None, None, None)
        self._kafka.kill()
        self._klamm = self._kafka = None
        client = KazooClient(self._zookeeper)
        client.start()
        for which in self.engines:
            for path in ("brokers/ids/0", "controller"):
                if client.exists(f"/{which}/{path}"):
                    client.delete(f"/{which}/{path}")
        client.stop()
        client.close()

    def close(self) -> None:
        """End what still runs."""
        with ExitStack() as stack:
            if self._kafka is not None:
                stack.callback(self._kafka.stop)
            if self._klamm is not None:
                stack.callback(self._klamm.__exit__, None, None, None)
            if self._both is not None:
                stack.callback(self._both.close)

    def change_places(self) -> None:
        """Let each engine have the other's folder from the next start on."""
        self.engines = {which: "klamm" if engine == "kafka" else "kafka" for which, engine in self.engines.items()}

    # --- what the files say

    def wait_until_alike(self, but: Collection[str] = ()) -> list[str]:
        """Return how the files of running brokers differ when nothing goes on any more."""
        deadline = time.monotonic() + SETTLED_S
        while (differing := self.differing_files(is_running=True, but=but)) and time.monotonic() < deadline:
            time.sleep(0.2)
        return differing

    def differing_files(self, *, is_running: bool = False, but: Collection[str] = ()) -> list[str]:
        """Return how the files differ. ``but`` has patterns of names that need not be the same."""
        first, second = (
            FolderReader(self.folder / which, self.begin_ms, is_running=is_running).told(self.log_dirs(which))
            for which in self.engines
        )
        return differences(first, second, but)

    # --- what clients are told

    def seen(self, which: str) -> Told:
        """Return what clients are told of every partition."""
        side = self.both.sides["kafka" if which == "first" else "klamm"]
        partitions: dict[str, list[int]] = defaultdict(list)
        for data in self.log_dirs(which):
            for path in sorted(data.iterdir()):
                if path.is_dir() and "." not in path.name and not path.name.startswith("__"):
                    topic, _, partition = path.name.rpartition("-")
                    partitions[topic].append(int(partition))
        return {
            f"{topic}-{partition} {fact}": value
            for facts in (
                self._offsets(side, partitions),
                self._epochs(side, partitions),
                self._records(side, partitions),
            )
            for topic, partition, fact, value in facts
        }

    def _offsets(self, side: Side, partitions: Mapping[str, Collection[int]]) -> Iterator[tuple[str, int, str, object]]:
        for name, timestamp, isolation in (
            ("earliest", EARLIEST, 0),
            ("latest", LATEST, 0),
            ("last stable", LATEST, 1),
            ("largest time", MAX_TIMESTAMP, 0),
            ("at", self.begin_ms + 500, 0),
        ):
            topics = [
                ListOffsetsTopic(
                    name=topic,
                    partitions=[ListOffsetsPartition(partition_index=index, timestamp=timestamp) for index in indexes],
                )
                for topic, indexes in partitions.items()
            ]
            asked = ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=topics)
            for topic in side.ask(asked, 7).topics:
                for partition in topic.partitions:
                    facts = (partition.error_code, partition.offset, self._reader.time(partition.timestamp))
                    yield topic.name, partition.partition_index, name, facts

    def _epochs(self, side: Side, partitions: Mapping[str, Collection[int]]) -> Iterator[tuple[str, int, str, object]]:
        for epoch in (0, 1, 2):
            topics = [
                OffsetForLeaderTopic(
                    topic=topic,
                    partitions=[
                        OffsetForLeaderPartition(partition=index, leader_epoch=epoch, current_leader_epoch=-1)
                        for index in indexes
                    ],
                )
                for topic, indexes in partitions.items()
            ]
            for topic in side.ask(OffsetForLeaderEpochRequest(replica_id=-1, topics=topics), 4).topics:
                for end in topic.partitions:
                    facts = (end.error_code, end.leader_epoch, end.end_offset)
                    yield topic.topic, end.partition, f"epoch {epoch}", facts

    def _records(self, side: Side, partitions: Mapping[str, Collection[int]]) -> Iterator[tuple[str, int, str, object]]:
        for topic, indexes in partitions.items():
            for index in indexes:
                for record, value in self._records_of(side, topic, index):
                    yield topic, index, record, value

    def _records_of(self, side: Side, topic: str, partition: int) -> Iterator[tuple[str, object]]:
        offset = 0
        aborted: set[tuple[int, int]] = set()
        records: list[object] = []
        while True:
            wanted = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1_000_000)
            topics = [FetchTopic(topic=topic, partitions=[wanted])]
            request = FetchRequest(
                max_wait_ms=0, min_bytes=1, max_bytes=50_000_000, isolation_level=1, session_id=0, session_epoch=-1,
                topics=topics,
            )  # fmt: skip
            answer = side.ask(request, 12).responses[0].partitions[0]
            if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and offset == 0:
                offset = answer.log_start_offset if answer.log_start_offset >= 0 else 0
                wanted_start = ListOffsetsPartition(partition_index=partition, timestamp=EARLIEST)
                asked = ListOffsetsRequest(
                    replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[wanted_start])]
                )
                offset = side.ask(asked, 7).topics[0].partitions[0].offset
                continue
            assert answer.error_code == ErrorCode.NONE, (topic, partition, answer.error_code)
            aborted |= {
                (transaction.producer_id, transaction.first_offset) for transaction in answer.aborted_transactions or ()
            }
            data = bytes(answer.records or b"")
            headers = list(iter_batches(data))
            if not headers:
                break
            for position, header in headers:
                records += [
                    (record.offset, self._reader.time(record.timestamp_ms), record.key, record.value)
                    for record in iter_batch_records(data, position, header)
                ]
            offset = headers[-1][1].next_offset
        yield "records", records
        yield "aborted", sorted(aborted)


class FolderReader:
    """Reads what every file of some log dirs says."""

    def __init__(self, root: Path, begin_ms: int, *, is_running: bool = False) -> None:
        """Names are relative to ``root``. Times after ``begin_ms`` and half an hour are the brokers' own."""
        self._root = root
        self._bound_ms = begin_ms + HOUR_MS // 2
        self._is_running = is_running

    def told(self, log_dirs: Iterable[Path]) -> Told:
        """Return what each file says, by name, without the internal topics'."""
        told: Told = {}
        for data in log_dirs:
            for path in sorted(data.rglob("*")):
                name = _UNIQUE.sub(".unique-", str(path.relative_to(self._root)))
                if path.name in CHECKPOINTS:
                    lines = path.read_text().splitlines()
                    told[name] = (lines[:1], sorted(line for line in lines[2:] if not line.startswith("__")))
                elif path.parent == data and not path.name.startswith("__"):
                    told[name] = _content_of(path) if path.is_file() else "folder"
                elif path.is_file() and not path.parent.name.startswith("__"):
                    told[name] = self._file(path)
        return told

    def _file(self, path: Path) -> object:
        kind = path.name.removesuffix(".deleted").rpartition(".")[2]
        data = path.read_bytes()
        if self._is_running:
            # Our indexes keep what is less than a kilobyte in memory, and snapshots come with the flush after a roll.
            size_bytes = len(data) - (_late_bytes(data) if kind == "log" else 0)
            return size_bytes, oct(path.stat().st_mode)
        base_offset = offset_of_file_name(path.name) or 0
        if kind == "log":
            batches = [self._batch(data, position, header) for position, header in iter_batches(data)]
            return batches, len(data) - _late_bytes(data)
        if kind == "index":
            return list(iter_offset_index(data, base_offset)), len(data)
        if kind == "timeindex":
            return [(self.time(at), offset) for at, offset in iter_time_index(data, base_offset)], len(data)
        if kind == "txnindex":
            return list(iter_aborted_transactions(data)), len(data)
        if kind == "snapshot":
            entries = decode_producer_snapshot(data)
            return [entry._replace(timestamp_ms=self.time(entry.timestamp_ms)) for entry in entries], len(data)
        if path.name == "partition.metadata":
            return _TOPIC_ID.sub("topic_id: ", data.decode())
        return data

    def _batch(self, data: bytes, position: int, header: BatchHeader) -> object:
        """Return a batch: its bytes if its times are the tests', else its header and records."""
        times = (header.base_timestamp, header.max_timestamp)
        if max(times) < self._bound_ms:
            return data[position : position + header.size_bytes]
        records = [
            (record.offset, self.time(record.timestamp_ms), record.key, record.value, tuple(record.headers))
            for record in iter_batch_records(data, position, header)
        ]
        facts = header._replace(
            crc=0, base_timestamp=self.time(times[0]), max_timestamp=self.time(times[1]),
            batch_length=header.batch_length - _late_bytes(data[position : position + header.size_bytes]),
        )  # fmt: skip
        return facts, records

    def time(self, timestamp_ms: int) -> int:
        """Return a time of the tests as it is, and the same number for all others."""
        return timestamp_ms if timestamp_ms < self._bound_ms else NOW


def _late_bytes(data: bytes) -> int:
    """Return how many bytes of a log say how long after their writing records were cleaned: that is up to the machine.

    Cleaned batches with markers have the delete horizon in their base timestamp, and times are relative to that.
    """
    deltas: list[int] = []
    # The file of a log that is written now may have zeros behind its batches.
    with suppress(KafkaError):
        for position, header in iter_batches(data):
            if header.has_delete_horizon and not header.is_compressed:
                records = iter_batch_records(data, position, header)
                deltas += [record.timestamp_ms - header.base_timestamp for record in records]
    # Variable-length integers have seven bits a byte, after the one for the sign.
    return sum(1 + max(delta, ~delta).bit_length() // 7 for delta in deltas)


def differences(first: Told, second: Told, but: Collection[str] = ()) -> list[str]:
    """Return how two lots differ. ``but`` has patterns of names that need not be the same."""
    differences_found = []
    for name in sorted(first.keys() | second.keys()):
        theirs, ours = first.get(name, "none"), second.get(name, "none")
        if ours != theirs and not any(re.search(pattern, name) for pattern in but):
            differences_found.append(f"{name}: {_difference(theirs, ours)}")
    return differences_found


def _content_of(path: Path) -> object:
    """Return what a file in the log dir says: ids and dates differ."""
    text = path.read_text()
    if path.name == "meta.properties":
        return sorted(line.partition("=")[0] for line in text.splitlines() if not line.startswith("#"))
    if path.name == ".kafka_cleanshutdown":
        return re.sub(r'"brokerEpoch":\d+', "", text)
    return text


def _difference(theirs: object, ours: object) -> str:
    if isinstance(theirs, tuple) and isinstance(ours, tuple) and isinstance(theirs[0], list):
        for index, (record, other) in enumerate(zip(theirs[0], ours[0], strict=False)):
            if record != other:
                return f"at {index} of {len(theirs[0])}/{len(ours[0])} first has {record!r}, second {other!r}"
        return f"first has {len(theirs[0])} in {theirs[1]} bytes, second {len(ours[0])} in {ours[1]}"
    if isinstance(theirs, tuple) and isinstance(ours, tuple) and isinstance(theirs[1], list):
        return (
            f"only first {sorted(set(theirs[1]) - set(ours[1]))}, only second {sorted(set(ours[1]) - set(theirs[1]))}"
        )
    return f"first has {str(theirs)[:300]}, second {str(ours)[:300]}"
