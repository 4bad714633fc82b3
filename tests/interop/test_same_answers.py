"""Ordinary and odd requests in every version: our broker and Apache Kafka's answer the same and leave the same files.

Where ours differ on purpose, ``unlike`` names the field: a refused Produce has a text where Kafka's has none, and other
texts are not always Kafka's word for word.
"""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from apache_kafka import ApacheKafkaBroker
from broker_program import OLD_RECORDS_STAY, BrokerProgram, settings
from compared_brokers import brokers_ask_each_other
from compared_configs import BROKER, PROVIDERS, STORED, TOPIC, described
from compared_records import written
from grown_requests import grown
from kazoo.client import KazooClient
from patience import within
from requests_compared import AREAS
from side_by_side import Side, SideBySide
from wire_client import controller_address, create_topic
from znode_writer import znode_writer

from engine.broker.handlers.registry import all_handlers
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.create_topics import CreatableTopic, CreateTopicsRequest
from engine.kafka.protocol.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from engine.kafka.protocol.declaration import Struct
from engine.local.addresses import own_loopback_address
from engine.local.zookeeper import EmbeddedZooKeeper

CHECKPOINTS = (
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "replication-offset-checkpoint",
)

COMMON = OLD_RECORDS_STAY | {
    "zookeeper.session.timeout.ms": "18000",
    "auto.create.topics.enable": "true",
    "num.partitions": "2",
    "log.segment.bytes": "1048576",
    "offsets.topic.num.partitions": "5",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    **PROVIDERS,
    "group.initial.rebalance.delay.ms": f"${{stored:{STORED}:group.initial.rebalance.delay.ms}}",
    "log.cleaner.dedupe.buffer.size": "16777216",
    # The only broker cannot hand its partitions to anybody, and would try three times.
    "controlled.shutdown.enable": "false",
}


class Brokers:
    """One broker of each kind, each with its own cluster."""

    def __init__(self, folder: Path, stack: ExitStack, zookeeper: str, *, is_told: bool = True) -> None:
        host = own_loopback_address()
        self.folder = folder
        self.zookeeper = zookeeper
        own = {
            **settings(folder / "klamm", host, f"{zookeeper}/klamm"),
            **COMMON,
            "listeners": f"PLAINTEXT://{host}:21093",
        }
        self._klamm = stack.enter_context(BrokerProgram(folder / "klamm", own))
        self._kafka = ApacheKafkaBroker(
            folder / "kafka",
            broker_id=0,
            host=host,
            port=21092,
            zookeeper_connect=f"{zookeeper}/kafka",
            overrides=COMMON,
            shares_jvm=True,
        )
        stack.callback(self._kafka.stop)
        self._kafka.start(is_told=is_told)
        self._klamm.wait_until_started()
        if is_told:
            # A broker starts a moment before its controller tells it about the cluster.
            controller_address(f"{host}:21093")
        self.both = SideBySide(self._kafka.bootstrap, f"{host}:21093")
        stack.callback(self.both.close)

    def stop(self) -> None:
        """Shut both down cleanly."""
        assert self._klamm.terminate() == 0
        assert "Traceback" not in self._klamm.server_log
        self._kafka.stop()


@pytest.fixture(scope="module")
def brokers(zookeeper: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    folder = tmp_path_factory.mktemp("same-answers")
    with ExitStack() as stack:
        yield Brokers(folder, stack, f"{zookeeper.connect_string}/{folder.name}")


@pytest.mark.parametrize("ask_all", AREAS, ids=lambda area: area.__name__)
def test_the_same_answers(brokers: Brokers, ask_all: Callable[[SideBySide], None]) -> None:
    both = brokers.both
    both.differences.clear()
    ask_all(both)
    assert not both.differences, "\n".join(both.differences)


DAMAGED = {
    "too large": struct.pack(">i", 2_000_000_000),
    "unknown version": struct.pack(">ihhih", 10, 3, 99, 7, -1),
    "cut short": struct.pack(">ihhih", 10, 3, 4, 7, 500),
    "nothing": b"",
}


@pytest.mark.parametrize("kind", DAMAGED)
def test_a_damaged_request_ends_a_connection_when_the_answer_in_front_of_it_is_sent(
    brokers: Brokers, kind: str
) -> None:
    """``nothing``: the client closes its half."""
    topic = f"damaged-{list(DAMAGED).index(kind)}"

    def heard(side: Side) -> tuple[bytes, bool]:
        """Return the correlation id of the only answer, and whether it took as long as the Fetch was to wait."""
        partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000, last_fetched_epoch=-1)
        asked = FetchRequest(
            replica_id=-1, max_wait_ms=600, min_bytes=1000, max_bytes=1000, session_epoch=-1,
            topics=[FetchTopic(topic=topic, partitions=[partition])],
        )  # fmt: skip
        with side.another_connection() as client:
            begun_s = time.monotonic()
            client.send(asked, 11)
            client.socket.sendall(DAMAGED[kind])
            client.socket.shutdown(socket.SHUT_WR)
            data = b""
            while part := client.socket.recv(65536):
                data += part
            assert len(data) == 4 + int.from_bytes(data[:4], "big"), data
            return data[4:8], time.monotonic() - begun_s > 0.5

    for side in brokers.both.sides.values():
        create_topic(side.address, topic)
    kafka, ours = map(heard, brokers.both.sides.values())
    assert kafka == ours and kafka[1]


def head(api_key: int, version: int, *, client_id: bytes | None = b"odd", rest: bytes = b"") -> bytes:
    """Return a frame with a header of version 1, and whatever comes behind it."""
    text = struct.pack(">h", -1) if client_id is None else struct.pack(">h", len(client_id)) + client_id
    data = struct.pack(">hhi", api_key, version, 5) + text + rest
    return struct.pack(">i", len(data)) + data


def cut(frame: bytes, size: int) -> bytes:
    """Return the first bytes of a frame, as a frame."""
    return struct.pack(">i", size) + frame[4 : 4 + size]


_V3 = b"\x00\x02a\x021\x00"
"""The tags of a header, and the names of a client's software in ApiVersions 3."""

FRAMES = {
    **{f"key {key}": head(key, 0) for key in (*range(51, 56), 59, *range(62, 65), *range(70, 90), -1, 32767)},
    # From version 3 on, a header has tags. Without them, Kafka closes the connection.
    **{f"ApiVersions {version}": head(18, version) for version in (-1, -32768, 3, 4, 5, 99, 32767)},
    **{f"ApiVersions {version} with tags": head(18, version, rest=b"\x00") for version in (0, 2, 5, 99, 32767, -1)},
    **{f"ApiVersions {version} with much": head(18, version, rest=_V3) for version in (0, 2, 3, 4, 5, -1)},
    "ApiVersions 3 without a name": head(18, 3, rest=b"\x00\x01\x01\x00"),
    "ApiVersions 3 with an odd name": head(18, 3, rest=b"\x00\x04 a \x021\x00"),
    "ApiVersions 3 with null": head(18, 3, rest=b"\x00\x00\x021\x00"),
    "ApiVersions 3 with a tag": head(18, 3, rest=b"\x00\x02a\x021\x01\x63\x01x"),
    "ApiVersions 3 with a tag in its head": head(18, 3, rest=b"\x01\x63\x01x" + _V3[1:]),
    "ApiVersions 3 cut": head(18, 3, rest=_V3[:-1]),
    "ApiVersions 3 with a byte more": head(18, 3, rest=_V3 + b"\x00"),
    "no client id": head(18, 0, client_id=None),
    "an empty client id": head(18, 0, client_id=b""),
    "a client id that is no UTF-8": head(18, 0, client_id=b"\xff\xfe\x00"),
    "a client id that is longer than the frame": cut(head(18, 0, client_id=b"x" * 300), 20),
    "a client id of length -2": struct.pack(">ihhih", 10, 18, 0, 5, -2),
    "a byte more": head(18, 0, rest=b"\x00"),
    "Metadata with bytes more": head(3, 1, rest=struct.pack(">i", 0) + b"more"),
    "Metadata cut": head(3, 1, rest=b"\x00\x00"),
    "Metadata of very many topics": head(3, 1, rest=struct.pack(">i", 2**31 - 1)),
    **{f"ElectLeaders of {n} topics": head(43, 0, rest=struct.pack(">ii", n, 9000)) for n in (-1, -2, -(2**31))},
    **{f"Metadata 0 of {count} topics": head(3, 0, rest=struct.pack(">i", count)) for count in (-1, -2)},
    "Metadata of a name of length -2": head(3, 1, rest=struct.pack(">ih", 1, -2)),
    "Metadata 99": head(3, 99),
    **{f"{size} bytes": cut(head(18, 0), size) for size in range(11)},
    **{f"a size of {size}": struct.pack(">i", size) for size in (-1, -(2**31), 2**31 - 1, 104_857_601)},
    "TLS": bytes.fromhex("16030100f8010000f40303") + bytes(240),
    "HTTP": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
}


def test_the_same_ends_of_connections(brokers: Brokers) -> None:
    """What is no request, or nearly one, is answered or ends the connection alike."""
    differ = {}
    for name, sent in FRAMES.items():
        heard = []
        for side in brokers.both.sides.values():
            data = b""
            with side.another_connection() as client, suppress(OSError):
                client.socket.sendall(sent + head(18, 0))
                client.socket.shutdown(socket.SHUT_WR)
                while part := client.socket.recv(65536):
                    data += part
            port = int(side.address.rpartition(":")[2])
            heard.append(data.replace(struct.pack(">i", port), b"PORT"))
        if heard[0] != heard[1]:
            differ[name] = heard
    assert not differ, "\n".join(
        f"{name}: Kafka {kafka.hex()}, klamm {ours.hex()}" for name, (kafka, ours) in differ.items()
    )


TOLD_BY_CONTROLLERS = {ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA}
"""What ends the state under test, or begins another."""

ASK_NO_METADATA = {
    *(ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE),
    # Without values of their own Kafka hangs up on these.
    *(ApiKey.DESCRIBE_ACLS, ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS, ApiKey.DESCRIBE_CLIENT_QUOTAS),
}


def test_the_same_answers_before_any_metadata(zk_chroot: str, tmp_path: Path) -> None:
    """Every API, asked in every version about a topic that there is, of brokers that no controller has told of it.

    A client that hears "unknown" of what exists must be one that asks again.
    """
    with ExitStack() as stack:
        for kind in ("kafka", "klamm"):
            write = stack.enter_context(znode_writer(f"{zk_chroot}/{kind}"))
            write({"/brokers/topics/there": b'{"version":2,"partitions":{"0":[0]}}', "/controller_epoch": b"1"}, False)
            write({"/controller": b'{"version":1,"brokerid":99,"timestamp":"1"}'}, True)
        brokers = Brokers(tmp_path, stack, zk_chroot, is_told=False)
        for entry in all_handlers().values():
            if entry.key not in TOLD_BY_CONTROLLERS | ASK_NO_METADATA:
                for version in range(entry.min_version, entry.max_version + 1):
                    request = about(grown(entry.key, version, (), 1, 1, timeout_ms=1000, max_wait_ms=0), "there")
                    unlike = {"error_message", "aborted_transactions", "log_dir"}
                    if entry.key == ApiKey.OFFSET_FETCH and version == 1:
                        # Kafka answers nothing about the partitions, and only they have a field for the error.
                        unlike.add("topics")
                    brokers.both.ask(entry.key.name, request, [version], unlike=unlike)
        assert not brokers.both.differences, "\n".join(brokers.both.differences)


def about(value: Any, topic: str) -> Any:
    """Name the topic wherever the request names one."""
    for name in getattr(value, "__slots__", ()):
        inner = getattr(value, name)
        if name in ("topic", "topic_name") or (name == "name" and "Topic" in type(value).__name__):
            setattr(value, name, topic)
        elif isinstance(inner, Struct):
            about(inner, topic)
        elif isinstance(inner, list):
            for index, entry in enumerate(inner):
                if name in ("topics", "topic_names") and isinstance(entry, str):
                    inner[index] = topic
                about(entry, topic)
    return value


def test_what_brokers_ask_each_other(brokers: Brokers) -> None:
    both = brokers.both
    both.differences.clear()
    epochs = {}
    for kind, side in both.sides.items():
        client = KazooClient(f"{brokers.zookeeper}/{kind}", timeout=10)
        client.start()
        epochs[side.address] = client.get("/brokers/ids/0")[1].czxid
        client.stop()
        client.close()
    brokers_ask_each_other(both, lambda side: epochs[side.address])
    assert not both.differences, "\n".join(both.differences)


ALL_BROKERS = "brokers/<default>"

IN_ZOOKEEPER: tuple[tuple[str, dict[str, str]], ...] = (
    ("brokers/0", {"log.retention.ms": "x", "log.segment.bytes": "1048577"}),
    ("brokers/0", {"log.cleaner.threads": "9", "log.retention.bytes": "7"}),
    ("brokers/0", {"num.io.threads": "99", "log.retention.bytes": "8", "leader.replication.throttled.rate": "5"}),
    ("brokers/0", {"broker.rack": "x", "log.retention.bytes": "9"}),
    ("brokers/0", {"nope": "1", "log.retention.bytes": "10"}),
    ("brokers/0", {"ssl.keystore.location": "x", "log.retention.bytes": "11"}),
    ("brokers/0", {"listener.name.plaintext.ssl.keystore.location": "x", "log.retention.bytes": "12"}),
    ("brokers/0", {"follower.replication.throttled.rate": "x", "log.retention.bytes": "13"}),
    ("brokers/0", {"max.connections": "0", "log.retention.bytes": "14"}),
    ("brokers/0", {"log.retention.ms": "-5", "log.retention.bytes": "15"}),
    ("brokers/0", {"log.retention.bytes": "-7", "min.insync.replicas": "0", "message.max.bytes": "77777"}),
    ("brokers/0", {"advertised.listeners": "x", "log.retention.bytes": "16"}),
    ("brokers/0", {}),
    (ALL_BROKERS, {"log.retention.ms": "x", "log.segment.bytes": "1048577"}),
    (ALL_BROKERS, {"listener.name.plaintext.ssl.keystore.location": "x", "log.retention.bytes": "17"}),
    (ALL_BROKERS, {"advertised.listeners": "PLAINTEXT://a:1", "log.retention.bytes": "18"}),
    (ALL_BROKERS, {"log.cleaner.threads": "9", "log.retention.bytes": "19"}),
    (ALL_BROKERS, {}),
    ("topics/odd-set", {"nope": "x", "min.insync.replicas": "2"}),
    ("topics/odd-set", {"message.format.version": "0.9.0", "retention.ms": "7"}),
    ("topics/odd-set", {"cleanup.policy": "compact", "remote.storage.enable": "true"}),
    ("topics/odd-set", {}),
)
"""What somebody writes past the brokers, which nobody has checked. Kafka cannot describe a topic with a bad value."""


def test_settings_that_only_zookeeper_has_seen(brokers: Brokers) -> None:
    both = brokers.both
    both.differences.clear()
    made = CreatableTopic(name="odd-set", num_partitions=1, replication_factor=1)
    both.prepare(CreateTopicsRequest(topics=[made], timeout_ms=15_000), 7)
    mark, is_in_time = "log.index.interval.bytes", within(60)
    for number, (entity, texts) in enumerate(IN_ZOOKEEPER, 4001):
        # Notices are followed in their order: who has taken the mark has looked at what comes before it.
        of_all = (texts if entity == ALL_BROKERS else {}) | {mark: f"{number}"}
        for kind in ("kafka", "klamm"):
            with znode_writer(f"{brokers.zookeeper}/{kind}") as write:
                for changed, config in ((entity, texts), (ALL_BROKERS, of_all)):
                    data = json.dumps({"version": 1, "config": config}).encode()
                    notice = json.dumps({"version": 2, "entity_path": changed}).encode()
                    write({f"/config/{changed}": data, "/config/changes/config_change_": notice}, False)
        marked = described((BROKER, "0"), keys=[mark], synonyms=True)
        for side in both.sides.values():
            while f"{number}" not in str(side.plain(side.ask(marked, 4))):
                assert is_in_time(), entity
                time.sleep(0.05)
        # What is stored is told a moment before it counts.
        time.sleep(0.2)
        about = (TOPIC, "odd-set") if entity.startswith("topics") else (BROKER, "0")
        keys = None if entity.startswith("topics") else [*{key for _, some in IN_ZOOKEEPER for key in some}]
        both.ask(f"{entity} {texts}", described(about, keys=keys, synonyms=True), [4], unlike={"error_message"})
    assert not both.differences, "\n".join(both.differences)


def test_the_same_files(brokers: Brokers) -> None:
    """Records, indexes, snapshots and epochs of cleanly closed logs are equal, byte for byte. It is the last test."""
    written(brokers.both)
    brokers.stop()
    theirs, ours = (files_of_logs(brokers.folder / kind / "data") for kind in ("kafka", "klamm"))
    assert len(theirs) > 40
    assert theirs.keys() == ours.keys()
    assert [name for name, data in theirs.items() if data != ours[name]] == []
    for name in CHECKPOINTS:
        theirs_said, ours_said = (
            sorted(line for line in (brokers.folder / kind / "data" / name).read_text().splitlines() if line[0] == "w")
            for kind in ("kafka", "klamm")
        )
        assert theirs_said == ours_said, name


def files_of_logs(data: Path) -> dict[str, bytes]:
    """Return the files of the topics that begin with ``w``, without those that hold topic ids."""
    return {
        f"{file.parent.name}/{file.name}": file.read_bytes()
        for file in data.glob("w*/*")
        if file.name != "partition.metadata"
    }
