"""A random walk of an administrator's requests in random versions: valid, odd, and with things named twice.

Whatever differs, the walk's seed and the number of the step say how to see it again.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from patience import within
from side_by_side import SideBySide

from engine.common.errors import ErrorCode
from engine.kafka.protocol.api_keys import API_SPECS
from engine.kafka.protocol.apis import alter_client_quotas, alter_configs, incremental_alter_configs
from engine.kafka.protocol.apis.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from engine.kafka.protocol.apis.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from engine.kafka.protocol.apis.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from engine.kafka.protocol.apis.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from engine.kafka.protocol.apis.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from engine.kafka.protocol.apis.delete_topics import DeleteTopicsRequest, DeleteTopicState
from engine.kafka.protocol.apis.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from engine.kafka.protocol.apis.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from engine.kafka.protocol.apis.elect_leaders import ElectLeadersRequest, TopicPartitions
from engine.kafka.protocol.apis.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from engine.kafka.protocol.apis.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from engine.kafka.protocol.declaration import Request, Struct

WALKS = int(os.environ.get("KLAMM_WALKS", "4"))
STEPS = 120
TIMEOUT_MS = 15_000
T = TypeVar("T")

TOPIC_CONFIGS: tuple[tuple[str, str | None], ...] = (
    ("retention.ms", "5000000"), ("retention.ms", "x"), ("retention.ms", None), ("cleanup.policy", "compact"),
    ("cleanup.policy", "delete"), ("cleanup.policy", "none"), ("min.insync.replicas", "0"), ("nope", "x"),
    ("segment.jitter.ms", "5"), ("max.compaction.lag.ms", "0"), ("message.timestamp.type", "LogAppendTime"),
)  # fmt: skip
QUOTAS = ("producer_byte_rate", "consumer_byte_rate", "connection_creation_rate", "nonsense")
ENTITIES: tuple[tuple[tuple[str, str | None], ...], ...] = (
    (("user", "w"),), (("client-id", "w"),), (("user", "w"), ("client-id", "w")), (("ip", "127.0.0.9"),), (),
    (("user", ""),), (("user", ""), ("user", "w")), (("ip", "127.0.0.9"), ("user", "w")), (("strange", "w"),),
)  # fmt: skip


class Chance:
    """Makes the requests of one walk."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._topics = [f"asked{seed}-{letter}" for letter in "abcd"]

    def step(self) -> tuple[Request, int]:
        """Return a request, and a version for it."""
        request: Any = self.one(self._makers())()
        spec = API_SPECS[request.api_key]
        version = self._random.randint(spec.min_version, spec.max_version)
        fit(request, version)
        return request, version

    def one(self, values: Sequence[T]) -> T:
        """Return one of them."""
        return self._random.choice(values)

    def some(self, make: Callable[[], T], most: int = 3) -> list[T]:
        """Return none, one or more."""
        return [make() for _ in range(self._random.randint(0, most))]

    def may(self, chance: float) -> bool:
        """Return True so often."""
        return self._random.random() < chance

    def _makers(self) -> tuple[Callable[[], Request], ...]:
        return (
            *(self._create,) * 3, *(self._grow,) * 2, *(self._settings,) * 2,
            self._delete, self._reassign, self._reassignments, self._elect, self._replace, self._set_quotas,
            self._quotas, self._set_credentials, self._credentials, self._offsets, self._delete_records,
        )  # fmt: skip

    def _topic(self) -> str:
        return self.one(self._topics) if self.may(0.85) else self.one(("nosuch", "bad name!", "a" * 250))

    def _partition(self) -> int:
        return self.one((0, 0, 0, 1, 1, 2, 9, -1))

    def _replicas(self) -> list[int]:
        # No topic begins so: Kafka creates it in vain and cannot delete it, and klamm refuses an empty list.
        return self.one(([0], [0], [0], [0], [], [0, 0], [7], [0, 7], [-1]))

    def _create(self) -> Request:
        def topic() -> CreatableTopic:
            replicas = [[0]] * self.one((0, 1, 2, 3))
            counts = (-1, -1) if replicas and self.may(0.9) else self.one(((1, 1), (3, 1), (0, 1), (-1, -1), (1, 9)))
            return CreatableTopic(
                name=self._topic(),
                num_partitions=counts[0],
                replication_factor=counts[1],
                assignments=[
                    CreatableReplicaAssignment(partition_index=index, broker_ids=ids)
                    for index, ids in enumerate(replicas)
                ],
                configs=[CreatableTopicConfig(name=n, value=v) for n, v in self.some(self._config, 1)],
            )

        return CreateTopicsRequest(topics=self.some(topic), timeout_ms=TIMEOUT_MS, validate_only=self.may(0.2))

    def _config(self) -> tuple[str, str | None]:
        # No resource gets two: of two wrong values Kafka tells any.
        return self.one(TOPIC_CONFIGS)

    def _delete(self) -> Request:
        names = self.some(self._topic)
        return DeleteTopicsRequest(
            topic_names=names, topics=[DeleteTopicState(name=name) for name in names], timeout_ms=TIMEOUT_MS
        )

    def _grow(self) -> Request:
        def topic() -> CreatePartitionsTopic:
            new = self.some(lambda: CreatePartitionsAssignment(broker_ids=self._replicas()), 2)
            assignments = new if self.may(0.6) else None
            return CreatePartitionsTopic(
                name=self._topic(), count=self.one((2, 3, 4, 1, 0, -1)), assignments=assignments
            )

        return CreatePartitionsRequest(topics=self.some(topic), timeout_ms=TIMEOUT_MS, validate_only=self.may(0.3))

    def _reassign(self) -> Request:
        def partition() -> ReassignablePartition:
            replicas = None if self.may(0.2) else self._replicas()
            return ReassignablePartition(partition_index=self._partition(), replicas=replicas)

        topics = self.some(lambda: ReassignableTopic(name=self._topic(), partitions=self.some(partition)), 2)
        return AlterPartitionReassignmentsRequest(topics=topics, timeout_ms=TIMEOUT_MS)

    def _reassignments(self) -> Request:
        def topic() -> ListPartitionReassignmentsTopics:
            return ListPartitionReassignmentsTopics(name=self._topic(), partition_indexes=self.some(self._partition))

        return ListPartitionReassignmentsRequest(
            topics=None if self.may(0.3) else self.some(topic, 2), timeout_ms=TIMEOUT_MS
        )

    def _elect(self) -> Request:
        def topic() -> TopicPartitions:
            return TopicPartitions(topic=self._topic(), partitions=[self._partition()])

        topics = None if self.may(0.1) else self.some(topic, 2)
        return ElectLeadersRequest(
            election_type=self.one((0, 1, 0, 1, 2)), topic_partitions=topics, timeout_ms=TIMEOUT_MS
        )

    def _settings(self) -> Request:
        def change() -> incremental_alter_configs.AlterableConfig:
            name, value = self._config()
            # Kafka fails at an unknown one that is to get a value more or less.
            operation = self.one((0, 0, 0, 1, 1, 2, 3) if name != "nope" else (0, 1))
            return incremental_alter_configs.AlterableConfig(name=name, config_operation=operation, value=value)

        def resource() -> incremental_alter_configs.AlterConfigsResource:
            return incremental_alter_configs.AlterConfigsResource(
                resource_type=2, resource_name=self._topic(), configs=self.some(change, 1)
            )

        return incremental_alter_configs.IncrementalAlterConfigsRequest(
            resources=self.some(resource, 2), validate_only=self.may(0.3)
        )

    def _replace(self) -> Request:
        def resource() -> alter_configs.AlterConfigsResource:
            configs = [alter_configs.AlterableConfig(name=n, value=v) for n, v in self.some(self._config, 1)]
            return alter_configs.AlterConfigsResource(resource_type=2, resource_name=self._topic(), configs=configs)

        # Kafka never answers a request that names a resource twice.
        return alter_configs.AlterConfigsRequest(resources=self.some(resource, 1), validate_only=self.may(0.3))

    def _set_quotas(self) -> Request:
        def entry() -> alter_client_quotas.RequestEntryData:
            entity = [
                alter_client_quotas.RequestEntityData(entity_type=kind, entity_name=name)
                for kind, name in self.one(ENTITIES)
            ]
            ops = self.some(
                lambda: alter_client_quotas.OpData(
                    key=self.one(QUOTAS), value=self.one((1e9, 2e9, 0.5)), remove=self.may(0.3)
                ),
                2,
            )
            return alter_client_quotas.RequestEntryData(entity=entity, ops=ops)

        return alter_client_quotas.AlterClientQuotasRequest(entries=self.some(entry), validate_only=self.may(0.3))

    def _quotas(self) -> Request:
        def component() -> ComponentData:
            kind = self.one(("user", "client-id", "ip", "user", "strange", ""))
            return ComponentData(
                entity_type=kind, match_type=self.one((0, 1, 2, 2, 7)), match=self.one(("w", "127.0.0.9", None))
            )

        return DescribeClientQuotasRequest(components=self.some(component, 2), strict=self.may(0.4))

    def _user(self) -> str:
        return self.one(("w", "v", "", "a=b,c"))

    def _set_credentials(self) -> Request:
        def upsertion() -> ScramCredentialUpsertion:
            # Kafka fails at an empty password.
            return ScramCredentialUpsertion(
                name=self._user(),
                mechanism=self.one((1, 2, 1, 2, 0, 3)),
                iterations=self.one((4096, 4096, 16384, 16385, 4095, -1)),
                salt=b"salt",
                salted_password=b"12345678",
            )

        def deletion() -> ScramCredentialDeletion:
            return ScramCredentialDeletion(name=self._user(), mechanism=self.one((1, 2, 0)))

        return AlterUserScramCredentialsRequest(deletions=self.some(deletion, 2), upsertions=self.some(upsertion, 2))

    def _credentials(self) -> Request:
        users = None if self.may(0.3) else self.some(lambda: UserName(name=self._user()))
        return DescribeUserScramCredentialsRequest(users=users)

    def _offsets(self) -> Request:
        def partition() -> ListOffsetsPartition:
            return ListOffsetsPartition(
                partition_index=self._partition(),
                current_leader_epoch=self.one((-1, -1, 0, 9)),
                timestamp=self.one((-1, -2, -3, -4, -5, -6, 0, 2**62)),
                max_num_offsets=self.one((1, 3, 0, -1)),
            )

        topics = self.some(lambda: ListOffsetsTopic(name=self._topic(), partitions=self.some(partition)), 2)
        replica_id, isolation = self.one((-1, -1, -2, 0, 9)), self.one((0, 1, 5))
        return ListOffsetsRequest(replica_id=replica_id, isolation_level=isolation, topics=topics)

    def _delete_records(self) -> Request:
        def topic() -> DeleteRecordsTopic:
            partition = DeleteRecordsPartition(partition_index=self._partition(), offset=self.one((0, 1, -1, -2)))
            return DeleteRecordsTopic(name=self._topic(), partitions=[partition])

        return DeleteRecordsRequest(topics=self.some(topic, 2), timeout_ms=TIMEOUT_MS)


def fit(struct: Struct, version: int) -> None:
    """Give what the version does not have its default."""
    for declared in struct.wire_fields:
        value = getattr(struct, declared.name)
        if not declared.is_in(version) or (value is None and not declared.is_nullable_in(version)):
            setattr(struct, declared.name, getattr(type(struct)(), declared.name))
        elif isinstance(value, list):
            for element in value:
                if isinstance(element, Struct):
                    fit(element, version)


def administrators(both: SideBySide) -> None:
    """Walk all walks."""
    for seed in range(WALKS):
        chance = Chance(seed)
        for number in range(STEPS):
            request, version = chance.step()
            both.ask(f"walk {seed}, step {number}: {request}", request, [version], unlike={"topic_id"})
            if isinstance(request, DeleteTopicsRequest):
                _wait_until_gone(both, request.topic_names or [topic.name or "" for topic in request.topics])


def _wait_until_gone(both: SideBySide, names: Sequence[str]) -> None:
    """Wait until the names are free: a controller ends a deletion a moment after the answer."""
    topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in dict.fromkeys(names)]
    asked = CreateTopicsRequest(topics=topics, validate_only=True)
    is_in_time = within(20)
    for side in both.sides.values():
        while any(topic.error_code == ErrorCode.TOPIC_ALREADY_EXISTS for topic in side.ask(asked, 5).topics):
            assert is_in_time(), f"{names} are not gone"
            time.sleep(0.02)
