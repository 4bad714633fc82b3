"""A Spark job verifies replicas in ranges, with the same results as the local command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from klamm_program import Ran, in_process
from replica_files import segments

from engine.admin.replicas.comparison import Difference, DifferenceKind
from engine.admin.replicas.verification import PartitionVerification, ReplicaVerdict
from engine.local.cluster import LocalCluster
from engine.spark.replica_check import together

pytestmark = pytest.mark.timeout(900)

RECORDS = 120_000


def both(cluster: LocalCluster, topic: str, capture: Any) -> tuple[Ran, Ran]:
    words = ("--topic", topic, "-b", cluster.bootstrap_servers, "-o", "json")
    return tuple(
        in_process(*verify, *words, capture=capture) for verify in (("replicas", "verify"), ("spark", "verify"))
    )  # type: ignore[return-value]


def test_the_local_answer(
    spark: Any, live_cluster: LocalCluster, topic_name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    admin = AdminClient({"bootstrap.servers": live_cluster.bootstrap_servers})
    admin.create_topics([NewTopic(topic_name, num_partitions=1, replication_factor=2)])[topic_name].result(30)
    producer = Producer({"bootstrap.servers": live_cluster.bootstrap_servers, "acks": "all", "batch.num.messages": 500})
    for number in range(RECORDS):
        producer.produce(topic_name, value=b"%d" % number)
        if number % 50_000 == 0:
            producer.flush(60)
    assert producer.flush(60) == 0
    local, spread = both(live_cluster, topic_name, capsys)
    assert (local.code, spread.code) == (0, 0), spread.err
    assert spread.json == local.json
    assert (spread.json[0]["from_offset"], spread.json[0]["to_offset"]) == (0, RECORDS)
    follower = next(r["broker"] for r in spread.json[0]["replicas"][1:])
    live_cluster.stop_broker(follower)
    folder = next(Path(live_cluster.directory).glob(f"broker-{follower}/**/{topic_name}-0"))
    flip_a_byte(segments(folder)[-1])
    live_cluster.start_broker(follower)
    local, spread = both(live_cluster, topic_name, capsys)
    assert (local.code, spread.code) == (1, 1), spread.err
    assert spread.json == local.json
    assert spread.json[0]["first_difference"]["kind"] == "corrupt"


def flip_a_byte(segment: Path) -> None:
    """Change a record's value late in the file: in the last range."""
    with segment.open("r+b") as file:
        data = file.read()
        at = data.rindex(b"110000")
        file.seek(at)
        file.write(b"9")


def test_a_topic_that_is_not_there(spark: Any, live_cluster: LocalCluster, capsys: pytest.CaptureFixture[str]) -> None:
    local, spread = both(live_cluster, "absent", capsys)
    assert (spread.code, spread.error) == (local.code, local.error)


def verified(start: int, stop: int, *verdicts: ReplicaVerdict, at: int | None = None) -> PartitionVerification:
    difference = None if at is None else Difference(at, DifferenceKind.CHECKSUM, ())
    return PartitionVerification("t", 0, start, stop, verdicts, difference)


def test_ranges_are_put_together() -> None:
    good, lagging = ReplicaVerdict(1, 90, 0, True), ReplicaVerdict(2, 80, 10, True)
    differs, unread = ReplicaVerdict(2, 80, 10, False), ReplicaVerdict(2, None, None, None, "gone")
    (whole,) = together([verified(0, 40, good, good), verified(40, 90, good, good)])
    assert whole == verified(0, 90, good, good)
    (whole,) = together([verified(0, 40, good, differs, at=7), verified(40, 90, good, lagging, at=50)])
    assert whole == verified(0, 90, good, differs, at=7)
    (whole,) = together([verified(0, 40, good, lagging), verified(40, 90, good, unread)])
    assert whole.replicas[1] == ReplicaVerdict(2, 80, 10, None, "gone")
    (whole,) = together([verified(0, 40, good, unread), verified(40, 90, good, differs, at=50)])
    assert whole.replicas[1] == ReplicaVerdict(2, 80, 10, False)
    (whole,) = together([verified(40, 40, good, good), verified(60, 90, good, good)])
    assert (whole.from_offset, whole.to_offset) == (60, 90), "retention took what the first range had"
