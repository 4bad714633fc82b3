"""The requests that tests/interop sends to brokers of both kinds, area by area. Each area makes its own topics."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import compared_groups
import compared_odd_records
import compared_quotas
import compared_transactions
import compared_walks
from compared_configs import settings_of_brokers, settings_of_topics
from compared_records import deleted_records, fetched, offsets, produced
from side_by_side import Side, SideBySide

from engine.common.topic_id import ZERO_TOPIC_ID
from engine.kafka.protocol.apis.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from engine.kafka.protocol.apis.consumer_group_describe import ConsumerGroupDescribeRequest
from engine.kafka.protocol.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from engine.kafka.protocol.apis.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from engine.kafka.protocol.apis.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from engine.kafka.protocol.apis.delete_topics import DeleteTopicsRequest, DeleteTopicState
from engine.kafka.protocol.apis.describe_cluster import DescribeClusterRequest
from engine.kafka.protocol.apis.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from engine.kafka.protocol.apis.envelope import EnvelopeRequest
from engine.kafka.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic
from engine.kafka.protocol.apis.update_features import FeatureUpdateKey, UpdateFeaturesRequest

TIMEOUT_MS = 15_000


def topic(
    name: str, partitions: int = 1, factor: int = 1, replicas: dict[int, list[int]] | None = None
) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=-1 if replicas else partitions,
        replication_factor=-1 if replicas else factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=ids) for index, ids in (replicas or {}).items()
        ],
    )


def create(*topics: CreatableTopic, validate_only: bool = False, timeout_ms: int = TIMEOUT_MS) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=list(topics), timeout_ms=timeout_ms, validate_only=validate_only)


def topics_created(both: SideBySide) -> None:
    """CreateTopics: names, numbers, replicas, time-outs."""
    both.prepare(create(topic("made"), topic("made.two", 2)), 7)
    for version in (0, 1, 4, 5, 7):
        if version:
            both.ask("checked only", create(topic(f"new-{version}", 3), topic("made"), validate_only=True), [version])
        odd = [topic(name) for name in ("bad name!", "", ".", "..", "a" * 250, "__cluster_metadata", "made_two")]
        odd += [topic("none", 0), topic("negative", -2), topic("f0", 1, 0), topic("f-3", 1, -3), topic("f9", 1, 9)]
        both.ask("odd", create(*odd), [version])
        both.ask("defaults", create(topic(f"default-{version}", -1, -1)), [version], unlike={"topic_id"})
    replicas = [{1: [0]}, {0: [0, 0]}, {0: [0], 1: [0, 1]}]
    given = [topic(f"replicas-{index}", replicas=each) for index, each in enumerate(replicas)]
    given += [
        CreatableTopic(name="both", num_partitions=1, replication_factor=1, assignments=given[0].assignments),
        CreatableTopic(name="count", num_partitions=1, replication_factor=-1, assignments=given[0].assignments),
    ]
    # Kafka prints Scala's maps and lists in one of the texts.
    both.ask("replicas", create(*given[:1], *given[2:]))
    both.ask("a replica twice", create(given[1]), unlike={"error_message"})
    both.ask("nothing", create())
    for timeout_ms in (0, -1):
        both.ask("no time", create(topic(f"late{timeout_ms}"), timeout_ms=timeout_ms), [7], unlike={"topic_id"})
    both.wait_until_led("late0", "late-1")


def topics_grown(both: SideBySide) -> None:
    """CreatePartitions."""

    def grow(*wanted: tuple[str, int, list[list[int]] | None], validate_only: bool = True) -> CreatePartitionsRequest:
        topics = []
        for name, count, replicas in wanted:
            new = None if replicas is None else [CreatePartitionsAssignment(broker_ids=ids) for ids in replicas]
            topics.append(CreatePartitionsTopic(name=name, count=count, assignments=new))
        return CreatePartitionsRequest(topics=topics, timeout_ms=TIMEOUT_MS, validate_only=validate_only)

    both.prepare(create(*(topic(f"grown-{n}", 2) for n in range(9))), 7)
    counts = [("grown-0", 3), ("grown-1", 2), ("grown-2", 1), ("grown-3", 0), ("grown-4", -5), ("nosuch", 3)]
    both.ask("counts", grow(*((name, count, None) for name, count in counts), ("bad name!", 2, None)))
    both.ask("twice", grow(("grown-0", 3, None), ("grown-0", 4, None)))
    wrong: list[list[list[int]]] = [[], [[]], [[0, 0]], [[1]], [[0], [0]], [[0, 1]], [[-1]], [[0]]]
    both.ask("replicas", grow(*((f"grown-{index}", 3, each) for index, each in enumerate(wrong))))
    both.ask("more than wanted", grow(("grown-8", 4, [[0], []])))
    both.ask("nothing", grow())
    for version in (0, 3):
        both.ask("done", grow((f"grown-{version}", 4, None), validate_only=False), [version])


def topics_described(both: SideBySide) -> None:
    """Metadata: by name, by id, all topics, none, and topics created by asking."""

    def named(*names: str, make: bool = False) -> MetadataRequest:
        topics = [MetadataRequestTopic(name=name) for name in names]
        return MetadataRequest(topics=topics, allow_auto_topic_creation=make)

    both.prepare(create(topic("told"), topic("told-too", 3)), 7)
    for operations in (False, True):
        everything = MetadataRequest(topics=None, include_topic_authorized_operations=operations)
        both.ask("all", everything, range(8, 13))
    both.ask("all", MetadataRequest(topics=None), range(1, 8))
    both.ask("none", MetadataRequest(topics=[]))
    both.ask("cluster", MetadataRequest(topics=[], include_cluster_authorized_operations=True), range(8, 11))
    both.ask("names", named("told", "told-too", "told", "nosuch", "bad name!", ""), range(4, 13))
    for version in (0, 3, 8, 12):
        both.ask("made by asking", named(f"auto-{version}", "bad name!", "", "told", make=True), [version])

    def by_id(*wanted: tuple[str | None, str | None]) -> Callable[..., MetadataRequest]:
        return lambda side: MetadataRequest(
            topics=[
                MetadataRequestTopic(topic_id=ZERO_TOPIC_ID if of is None else side.id_of(of), name=name)
                for of, name in wanted
            ]
        )

    both.ask("ids", by_id(("told", None), ("nosuch", None), ("told", None), ("nosuch", None)), [12])
    both.ask("ids with names", by_id(("told", "told-too"), ("nosuch", "told")), [12])
    both.ask("ids too early", by_id(("told", None), ("nosuch", None), (None, "told")), [10, 11])
    both.ask("ids with names too early", by_id(("told", "told-too")), [10, 11])
    both.ask("neither", by_id((None, None)), [10, 11])
    both.ask("names beside an id", by_id((None, "told-too"), ("told", None), (None, "nosuch")), [12])


def topics_deleted(both: SideBySide) -> None:
    """DeleteTopics: by name, by id, twice."""
    both.prepare(create(*(topic(f"doomed-{n}") for n in range(12))), 7)
    for version in (0, 1, 3, 5):
        names = [f"doomed-{version}", "nosuch", "bad name!", f"doomed-{version}", ""]
        both.ask("names", DeleteTopicsRequest(topic_names=names, timeout_ms=TIMEOUT_MS), [version])

    def doom(*names: tuple[str | None, str | None], timeout_ms: int = TIMEOUT_MS) -> Callable[..., DeleteTopicsRequest]:
        return lambda side: DeleteTopicsRequest(
            topics=[
                DeleteTopicState(name=name, topic_id=ZERO_TOPIC_ID if of is None else side.id_of(of))
                for name, of in names
            ],
            timeout_ms=timeout_ms,
        )

    both.ask("ids", doom(("doomed-6", None), (None, "doomed-7"), (None, "nosuch"), ("nosuch", None)), [6])
    both.ask("twice", doom((None, "doomed-8"), (None, "doomed-8"), ("doomed-9", None), ("doomed-9", None)), [6])
    both.ask("id and name", doom(("doomed-10", "doomed-10")), [6], unlike={"error_message"})
    both.ask("no time", doom(("doomed-11", None), timeout_ms=0), [6])
    both.ask("nothing", doom(), [6])


def the_cluster(both: SideBySide) -> None:
    """DescribeCluster and DescribeLogDirs."""
    both.prepare(create(topic("empty", 2)), 7)
    for operations in (False, True):
        both.ask("cluster", DescribeClusterRequest(include_cluster_authorized_operations=operations))
    both.ask("controllers", DescribeClusterRequest(endpoint_type=2), [1], unlike={"error_message"})
    for endpoint_type in (0, 3, -1):
        both.ask("endpoints", DescribeClusterRequest(endpoint_type=endpoint_type), [1])
    wanted = [("empty", [0, 0, 9]), ("nosuch", [0]), ("made", [])]
    some = [DescribableLogDirTopic(topic=name, partitions=partitions) for name, partitions in wanted]
    both.ask("log dirs", DescribeLogDirsRequest(topics=some), unlike={"log_dir"})
    both.ask("no log dirs", DescribeLogDirsRequest(topics=[]), unlike={"log_dir"})
    for ending in ("/", "//", "/.", "/nowhere", ""):
        both.ask(f"to {ending}", lambda side: moved(side, ending))  # noqa: B023


def moved(side: Side, ending: str, names: Iterable[str] = ("empty", "nosuch")) -> AlterReplicaLogDirsRequest:
    """Move topics' replicas to the broker's log dir, with something behind its name."""
    (result,) = side.ask(DescribeLogDirsRequest(topics=[]), 4).results
    topics = [AlterReplicaLogDirTopic(name=name, partitions=[0, 9]) for name in names]
    dirs = [AlterReplicaLogDir(path=f"{result.log_dir}{ending}", topics=topics)]
    return AlterReplicaLogDirsRequest(dirs=dirs)


def what_needs_kraft(both: SideBySide) -> None:
    """UpdateFeatures, Envelope and the new protocol of groups, which ApiVersions lists with ZooKeeper too."""
    updates = {
        "nothing": [],
        "unknown": [FeatureUpdateKey(feature="any", max_version_level=1)],
        "known to KRaft": [FeatureUpdateKey(feature="metadata.version", max_version_level=20)],
        "no name": [FeatureUpdateKey(feature="", max_version_level=1)],
        "too low": [FeatureUpdateKey(feature="any", max_version_level=level) for level in (0, -1)],
        "twice": [FeatureUpdateKey(feature="any", max_version_level=level) for level in (1, 0)],
    }
    for name, wanted in updates.items():
        both.ask(name, UpdateFeaturesRequest(feature_updates=wanted))
    for validate_only in (False, True):
        for upgrade_type in range(-1, 5):
            wanted = [
                FeatureUpdateKey(feature=f"any{level}", max_version_level=level, upgrade_type=upgrade_type)
                for level in (-1, 0, 1)
            ]
            both.ask("types", UpdateFeaturesRequest(feature_updates=wanted, validate_only=validate_only), [1])
    dropped = [FeatureUpdateKey(feature="any", max_version_level=level, allow_downgrade=True) for level in (0, 1)]
    both.ask("allowed", UpdateFeaturesRequest(feature_updates=dropped), [0])
    both.ask("forwarded", EnvelopeRequest(request_data=b"any", client_host_address=b"\x7f\0\0\1"))
    both.ask("heartbeat", ConsumerGroupHeartbeatRequest(group_id="new", subscribed_topic_names=["made"]))
    for operations in (False, True):
        described = ConsumerGroupDescribeRequest(group_ids=["new", "", "new"], include_authorized_operations=operations)
        both.ask("described", described)
    both.ask("none described", ConsumerGroupDescribeRequest())


AREAS: tuple[Callable[[SideBySide], None], ...] = (
    topics_created,
    topics_grown,
    topics_described,
    topics_deleted,
    the_cluster,
    what_needs_kraft,
    produced,
    fetched,
    offsets,
    deleted_records,
    settings_of_topics,
    settings_of_brokers,
    *compared_odd_records.AREAS,
    *compared_groups.AREAS,
    *compared_transactions.AREAS,
    *compared_quotas.AREAS,
    compared_walks.administrators,
)
