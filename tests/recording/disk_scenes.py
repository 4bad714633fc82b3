"""The log dirs of ``fixtures/disk``: what one broker wrote for clients of several kinds, before and after its ends.

``running`` is copied while the broker runs, ``clean`` after a kill -9 with damage, a recovery and two clean ends. The
others are of a broker with the inter-broker protocol of 2.8, which still writes old message formats, before and after
its upgrade.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka_tools import run_java
from recorded_kafka import CONFIGS, TOPICS, RecordedCluster

SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "log.index.size.max.bytes": "1024",
    "log.cleaner.min.compaction.lag.ms": "0",
    "log.cleaner.backoff.ms": "500",
    # Deleted files are still there when the folder is copied.
    "log.segment.delete.delay.ms": "60000",
    "log.retention.check.interval.ms": "1000",
    "log.flush.offset.checkpoint.interval.ms": "1000",
    "log.flush.start.offset.checkpoint.interval.ms": "1000",
}
COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1"}
"""Nothing is cleaned before all is written: how often the cleaner runs must not be chance."""
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TOPICS_NOW: dict[str, dict[str, str]] = {
    **{f"codec-{codec}": {} for codec in (*CODECS, "librdkafka")},
    "append-time": {"message.timestamp.type": "LogAppendTime"},
    "broker-recompresses": {"compression.type": "zstd"},
    "segments": {"segment.bytes": "2000", "index.interval.bytes": "200"},
    "tx": {"segment.bytes": "3000", "index.interval.bytes": "200"},
    "compacted": {
        **COMPACTED,
        "segment.bytes": "1500",
        "index.interval.bytes": "200",
        "delete.retention.ms": "86400000",
    },
    "compacted-tx": {**COMPACTED, "segment.bytes": "1000", "delete.retention.ms": "100"},
    "deleted-records": {"segment.bytes": "1000"},
    "empty": {},
    "doomed": {},
}
FORMATS = {"v0": "0.9.0", "v1": "0.10.0", "v2": "2.8"}
TOPICS_OLD: dict[str, dict[str, str]] = {
    **{f"{name}-{codec}": {"message.format.version": version}
       for name, version in FORMATS.items() for codec in CODECS[:4]},
    "v1-append-time": {"message.format.version": "0.10.0", "message.timestamp.type": "LogAppendTime"},
    "v1-segments": {"message.format.version": "0.10.0", "segment.bytes": "2000", "index.interval.bytes": "200"},
}  # fmt: skip
KEPT_RUNNING = ("codec-none-0", "compacted-0", "compacted-tx-0", "deleted-records-0", "doomed-0", "empty-0",
                "segments-0", "tx-0")  # fmt: skip
KEPT_OLD = ("v0-gzip-0", "v0-none-0", "v1-append-time-0", "v1-lz4-0", "v1-none-0", "v1-segments-0", "v2-snappy-0")
STATE = "/brokers/topics/codec-none/partitions/0/state"
CASTLE = "the castle above had already become invisible"
GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
Row = dict[str, Any]


def play_disk(out: Path, work: Path) -> None:
    """Make the log dirs ``running`` and ``clean``."""
    with RecordedCluster(work, "disk", work, SETTINGS) as c:
        c.start(0)
        _create(c, TOPICS_NOW)
        run_java("Producers", c.address(0), rows=[*_codecs(), *_segments(), *_transactions(), *_compactions()])
        _librdkafka_codecs(c.address(0))
        _delete_records(c)
        for topic in ("compacted", "compacted-tx"):
            entity = ("--entity-type", "topics", "--entity-name", topic)
            c.tool(CONFIGS, "--alter", *entity, "--add-config", "min.cleanable.dirty.ratio=0.01")
        checkpoint = c.log_dir(0) / "cleaner-offset-checkpoint"
        c.wait(
            lambda: {"compacted 0 48", "compacted-tx 0 20"} <= set(checkpoint.read_text().splitlines()), "the cleaner"
        )
        _use_groups(c)
        deleted = c.log_dir(0) / "deleted-records-0" / f"{0:020}.log"
        c.wait(lambda: not deleted.exists(), "the end of the segment whose records were deleted")
        c.tool(TOPICS, "--delete", "--topic", "doomed")
        c.wait(lambda: "doomed" not in c.children("/brokers/topics"), "the deletion")
        c.brokers[0].process.pause()
        _copy(
            c.log_dir(0),
            out / "running",
            "copied while the broker ran, just after topic doomed was deleted",
            KEPT_RUNNING,
        )
        c.kill(0)
        _damage(c.log_dir(0))
        for said in ("after restart", "after second restart"):
            # As if the leader had changed meanwhile: the next one has another leader epoch.
            c.set(STATE, {**json.loads(c.get(STATE)), "leader": -1})
            c.start(0)
            epoch = [_record("codec-none", 0, "epoch", said)]
            run_java("Producers", c.address(0), rows=[_producer("plain"), *[_send("plain", epoch)] * 2])
            c.stop(0)
        _copy(c.log_dir(0), out / "clean", "after SIGTERM: .kafka_cleanshutdown, producer snapshots, trimmed indexes")
        (out / "clean" / "data" / "stray.txt").write_text("not a folder of a partition\n")


def play_disk_old(out: Path, work: Path) -> None:
    """Make the log dirs ``formats-v0-v1-v2`` and ``formats-mixed``."""
    with RecordedCluster(work, "disk-old", work, SETTINGS) as c:
        c.start(0, {"inter.broker.protocol.version": "2.8"})
        _create(c, TOPICS_OLD)
        run_java("Producers", c.address(0), rows=list(_old_formats()))
        reader = Consumer({"bootstrap.servers": c.address(0), "group.id": "readers", "enable.auto.commit": False})
        _read(reader, c, {"v0-none": 3, "v1-gzip": 7})
        c.stop(0)
        note = "IBP 2.8, topics with message.format.version 0.9.0 (v0), 0.10.0 (v1), 2.8 (v2); after a clean stop"
        _copy(c.log_dir(0), out / "formats-v0-v1-v2", note, KEPT_OLD)
        c.start(0)
        rows: list[Row] = []
        for topic in ("v0-none", "v0-gzip", "v1-none", "v1-gzip", "v1-segments"):
            new = [_record(topic, 0, f"new-{number}", f"after the upgrade {number}") for number in range(3)]
            rows += [_producer(topic, idempotent=True), _send(topic, new)]
        run_java("Producers", c.address(0), rows=rows)
        c.stop(0)
        _copy(
            c.log_dir(0),
            out / "formats-mixed",
            "the same folder after IBP 3.9 and new records: v0/v1 and v2 in one file",
        )


def _create(c: RecordedCluster, topics: dict[str, dict[str, str]]) -> None:
    admin = AdminClient({"bootstrap.servers": c.address(0)})
    wanted = [NewTopic(name, 2 if name == "tx" else 1, 1, config=config) for name, config in topics.items()]
    for created in admin.create_topics(wanted).values():
        created.result(60)


# Steps of Kafka's own producers


def _producer(name: str, *, idempotent: bool = False, codec: str = "none", transactional_id: str = "") -> Row:
    settings = {"enable.idempotence": str(idempotent).lower(), "compression.type": codec}
    return {
        "producer": name,
        "settings": settings | ({"transactional.id": transactional_id} if transactional_id else {}),
    }


def _send(name: str, records: list[Row]) -> Row:
    return {"producer": name, "send": records}


def _record(
    topic: str, partition: int, key: str | None, value: str | None, headers: dict[str, str] | None = None
) -> Row:
    pairs = list((headers or {}).items())
    return {"topic": topic, "partition": partition, "key": key, "value": value, "headers": pairs}


def _castles(topic: str, count: int, keys: int = 3, *, headers: bool = True) -> list[Row]:
    return [
        _record(topic, 0, f"key-{n % keys}", f"{CASTLE} {CASTLE} {CASTLE} {n}",
                {"trace": str(n), "empty": ""} if headers else None)
        for n in range(count)
    ]  # fmt: skip


def _codecs() -> Iterator[Row]:
    for codec in CODECS:
        topic = f"codec-{codec}"
        odd = [
            _record(topic, 0, None, "no key", {"trace": "n"}),
            _record(topic, 0, "key-0", None, {"trace": "t"}),
            _record(topic, 0, "key-x", "no headers"),
            _record(topic, 0, "k", "ünï") | {"headers": [("snow", "☃"), ("same", "1"), ("same", "2")]},
        ]
        yield _producer(codec, codec=codec)
        yield _send(codec, [*_castles(topic, 6), *odd])
    for topic, count in (("codec-gzip", 4), ("append-time", 4), ("broker-recompresses", 6)):
        yield _producer(topic, idempotent=True, codec="gzip")
        yield _send(topic, _castles(topic, count))


def _segments() -> Iterator[Row]:
    chance = random.Random(1)
    for producer in map(str, range(6)):
        yield _producer(producer, idempotent=True)
        for first in range(0, 20, 5):
            numbers = range(first, first + 5)
            yield _send(producer, [_record("segments", 0, str(n), chance.randbytes(60).hex()) for n in numbers])


def _transactions() -> Iterator[Row]:
    """Three producers take turns; one in three transactions is aborted. At the end another takes the first one's id."""
    names = ("p0", "p1", "p2")
    for name in names:
        yield _producer(name, idempotent=True, transactional_id=f"app-{name}")
        yield {"producer": name, "call": "init"}
    for turn in range(8):
        yield from ({"producer": name, "call": "begin"} for name in names)
        for number in range(4):
            for which, name in enumerate(names):
                value = f"round {turn} record {number} {'x' * 30}"
                yield _send(name, [_record("tx", (number + which) % 2, name, value, {"round": str(turn)})])
        for which, name in enumerate(names):
            yield {"producer": name, "call": "commit" if (turn + which) % 3 else "abort"}
        # Until the last marker is written.
        yield {"producer": names[-1], "call": "rest"}
    yield _producer("successor", idempotent=True, transactional_id="app-p0")
    yield from ({"producer": "successor", "call": step} for step in ("init", "begin"))
    yield _send("successor", [_record("tx", 0, None, "after fencing")])
    yield {"producer": "successor", "call": "commit"}


def _compactions() -> Iterator[Row]:
    yield _producer("compacted")
    for turn in range(5):
        for key in range(10):
            yield _send("compacted", [_record("compacted", 0, f"key-{key}", f"round {turn} {'y' * 40}")])
    for key in range(3):
        yield _send("compacted", [_record("compacted", 0, f"key-{key}", None)])
    yield _producer("compacted-tx", idempotent=True, transactional_id="compact-app")
    yield {"producer": "compacted-tx", "call": "init"}
    for turn in (0, 2, 3, 5, 6, 8, 9, 11):
        values = [None if (turn + key) % 5 == 0 else f"round {turn}" for key in range(3)]
        yield {"producer": "compacted-tx", "call": "begin"}
        yield _send("compacted-tx", [_record("compacted-tx", 0, f"key-{k}", value) for k, value in enumerate(values)])
        yield {"producer": "compacted-tx", "call": "commit"}
    yield _producer("deleted-records")
    for number in range(30):
        yield _send("deleted-records", [_record("deleted-records", 0, str(number), "z" * 50)])


def _old_formats() -> Iterator[Row]:
    for name in FORMATS:
        for codec in CODECS[:4]:
            topic = f"{name}-{codec}"
            odd = [_record(topic, 0, None, "no key"), _record(topic, 0, "key-0", None)]
            yield _producer(topic, codec=codec)
            yield _send(topic, [*_castles(topic, 5, 5, headers=False), *odd])
    yield _producer("append", codec="gzip")
    yield _send("append", [_record("v1-append-time", 0, f"key-{n}", f"value {n}") for n in range(5)])
    yield _producer("segments")
    for _ in range(4):
        yield _send("segments", [_record("v1-segments", 0, f"key-{n}", f"{CASTLE} {n}") for n in range(10)])


# Other clients


def _librdkafka_codecs(address: str) -> None:
    for codec in CODECS:
        producer = Producer({"bootstrap.servers": address, "compression.type": codec, "linger.ms": 500})
        for number in range(5):
            headers = [("h", b"v"), ("n", None)]
            producer.produce("codec-librdkafka", f"{CASTLE} " * 4, f"k{number}", partition=0, headers=headers)
        producer.flush(60)


def _delete_records(c: RecordedCluster) -> None:
    admin = AdminClient({"bootstrap.servers": c.address(0)})
    for deleted in admin.delete_records([TopicPartition("deleted-records", 0, 17)]).values():
        deleted.result(60)


def _read(consumer: Consumer, c: RecordedCluster, offsets: dict[str, int]) -> None:
    """Join with a subscription, commit offsets, and leave."""
    consumer.subscribe(list(offsets))
    c.wait(lambda: consumer.poll(0.1) is not None or bool(consumer.assignment()), "an assignment")
    wanted = [TopicPartition(topic, 0, offset) for topic, offset in offsets.items()]
    consumer.commit(offsets=wanted, asynchronous=False)
    consumer.close()


def _use_groups(c: RecordedCluster) -> None:
    """Members that come and go, a static one, offsets of an operator, of a deleted group and of a transaction."""
    plain = {"bootstrap.servers": c.address(0), "enable.auto.commit": False}
    for offsets in ({"codec-gzip": 10}, {"codec-none": 6, "codec-gzip": 14}):
        _read(Consumer({**plain, "group.id": "readers", "client.id": "reader"}), c, offsets)
    static = {"group.instance.id": "node-1", "partition.assignment.strategy": "cooperative-sticky"}
    consumer = Consumer({**plain, "group.id": "static", "session.timeout.ms": 6000, **static})
    consumer.subscribe(["tx"])
    c.wait(lambda: consumer.poll(0.1) is not None or bool(consumer.assignment()), "an assignment")
    consumer.commit(offsets=[TopicPartition("tx", 1, 21, leader_epoch=0)], asynchronous=False)
    consumer.commit(offsets=[TopicPartition("tx", 0, 5, metadata="note of the operator")], asynchronous=False)
    consumer.close()
    wanted = [TopicPartition("tx", 1, 1), TopicPartition("codec-none", 0, 3)]
    Consumer({**plain, "group.id": "doomed-group"}).commit(offsets=wanted, asynchronous=False)
    c.tool(GROUPS, "--delete", "--group", "doomed-group")
    _commit_in_a_transaction(c, plain)
    c.wait(
        lambda: "Empty" in c.tool(GROUPS, "--describe", "--state", "--group", "static"), "the end of the static member"
    )


def _commit_in_a_transaction(c: RecordedCluster, plain: dict[str, Any]) -> None:
    producer = Producer({"bootstrap.servers": c.address(0), "transactional.id": "offsets-app"})
    producer.init_transactions(60)
    consumer = Consumer({**plain, "group.id": "eos"})
    consumer.subscribe(["codec-zstd"])
    c.wait(lambda: consumer.poll(0.1) is not None or bool(consumer.assignment()), "an assignment")
    producer.begin_transaction()
    producer.produce("codec-none", "out", partition=0)
    producer.flush(60)
    offsets = [TopicPartition("codec-zstd", 0, 4)]
    producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 60)
    producer.commit_transaction(60)
    consumer.close()


# Files


def _damage(data: Path) -> None:
    """Leave what a crash leaves: half a batch at the end of one log, zeros at the end of another."""
    log = data / "codec-none-0" / "00000000000000000000.log"
    log.write_bytes(log.read_bytes() + log.read_bytes()[:600])
    last = max((data / "segments-0").glob("*.log"))
    last.write_bytes(last.read_bytes() + bytes(40))


def _copy(data: Path, out: Path, note: str, kept: tuple[str, ...] = ()) -> None:
    """Copy a log dir, or only some of its partitions; list all of it."""
    target = out / "data"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for path in sorted(data.iterdir()):
        if path.name == ".lock":
            continue
        if path.is_file():
            shutil.copy(path, target)
        elif not kept or path.name.partition(".")[0] in kept:
            shutil.copytree(path, target / path.name)
    files = sorted(path for path in data.rglob("*") if path.is_file())
    rows = "".join(f"{path.stat().st_size:8} {path.relative_to(data)}\n" for path in files)
    (out / "listing.txt").write_text(f"# {note}\n{rows}", "utf-8")
