"""Scripted brokers whose controller moves partitions when a test says so. Every change is noted, in order."""

from __future__ import annotations

from scripted_brokers import HANG_UP, SILENCE, ScriptedBroker, ScriptedCluster

from engine.common.errors import ErrorCode
from engine.common.model import ReplicaAssignment, TopicPartition
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from engine.kafka.protocol.apis.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from engine.kafka.protocol.apis.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from engine.kafka.protocol.apis.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from engine.kafka.protocol.apis.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from engine.kafka.protocol.apis.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)

TOPIC, BROKER = 2, 4
_SOURCES = {TOPIC: 1, BROKER: 2}
_KINDS = {TOPIC: "topic", BROKER: "broker"}
DIR, OTHER_DIR = "/a", "/b"
SIZE = 1000


class ScriptedMoves:
    """Partitions, their moves and the settings of topics and brokers, the same on every broker."""

    def __init__(self, cluster: ScriptedCluster, assignments: dict[TopicPartition, tuple[int, ...]]) -> None:
        self.log: list[str] = []
        """Changes that came in, such as ``throttle topic t`` or ``start t-0``."""
        self.settings: dict[tuple[int, str], dict[str, str]] = {}
        self.refuses_all = ErrorCode.NONE
        """The answer to every request to start or cancel."""
        self.refuses: dict[TopicPartition, ErrorCode] = {}
        self.loses_answers = ""
        """The controller closes the connection ``before`` or ``after`` it has begun what it was asked for."""
        self.silent: set[int] = set()
        """Brokers that do not answer requests about settings."""
        self.without_dirs: set[int] = set()
        """Brokers that close the connection when they are asked for their log dirs."""
        self.usable_bytes = -1
        """The free space of each log dir; brokers before Kafka 3.3 do not report it."""
        self.futures: dict[tuple[TopicPartition, int], str] = {}
        """Replicas that are moving to another log dir."""
        self.dirs: dict[tuple[TopicPartition, int], str] = {}
        """The log dirs of replicas that are not in the first one."""
        self._cluster = cluster
        self._assignments: dict[TopicPartition, ReplicaAssignment] = {}
        for (topic, _), replicas in sorted(assignments.items()):
            cluster.leaders.setdefault(topic, []).append(replicas[0])
        for name, replicas in assignments.items():
            self.put(name, replicas)
        for broker in cluster.brokers:
            broker.answers |= {
                ApiKey.ALTER_PARTITION_REASSIGNMENTS: self._reassign,
                ApiKey.LIST_PARTITION_REASSIGNMENTS: self._list,
                ApiKey.INCREMENTAL_ALTER_CONFIGS: self._alter,
                ApiKey.DESCRIBE_CONFIGS: lambda request, broker=broker: self._describe(broker, request),
                ApiKey.DESCRIBE_LOG_DIRS: lambda request, broker=broker: self._log_dirs(broker, request),
                ApiKey.ALTER_REPLICA_LOG_DIRS: lambda request, broker=broker: self._move_dirs(broker, request),
            }

    @property
    def moving(self) -> list[TopicPartition]:
        return [name for name, assignment in self._assignments.items() if assignment.is_being_reassigned]

    def put(self, name: TopicPartition, replicas: tuple[int, ...]) -> None:
        """Give a partition these replicas, all in sync."""
        self._assign(name, ReplicaAssignment(replicas))

    def start(self, name: TopicPartition, target: tuple[int, ...]) -> None:
        """Begin to move a partition."""
        origin = self._assignments[name].origin_replicas
        adding = tuple(broker for broker in target if broker not in origin)
        removing = tuple(broker for broker in origin if broker not in target)
        self._assign(name, ReplicaAssignment((*target, *removing), adding, removing))

    def finish(self) -> None:
        """Let all moves finish."""
        for name in self.moving:
            self._assign(name, ReplicaAssignment(self._assignments[name].target_replicas))
        self.dirs |= self.futures
        self.futures = {}

    def lose_in_sync(self, name: TopicPartition, left: tuple[int, ...]) -> None:
        """Let only these replicas of a partition be in sync."""
        self._cluster.isrs[name] = list(left)

    def throttled(self) -> list[str]:
        """Return the topics and brokers that have throttles."""
        return [f"{_KINDS[kind]} {name}" for (kind, name), setting in sorted(self.settings.items()) if setting]

    def _assign(self, name: TopicPartition, assignment: ReplicaAssignment) -> None:
        self._assignments[name] = assignment
        self._cluster.replicas[name] = list(assignment.replicas)
        self._cluster.isrs[name] = list(assignment.origin_replicas)

    def _reassign(self, request: AlterPartitionReassignmentsRequest) -> AlterPartitionReassignmentsResponse | object:
        if self.loses_answers == "before":
            return HANG_UP
        if self.refuses_all is not ErrorCode.NONE:
            return AlterPartitionReassignmentsResponse(error_code=self.refuses_all)
        topics = []
        for topic in request.topics:
            answers = []
            for p in topic.partitions:
                name = TopicPartition(topic.name, p.partition_index)
                code = self.refuses.get(name, ErrorCode.NONE)
                self.log.append(f"{'cancel' if p.replicas is None else 'start'} {name}")
                if code is ErrorCode.NONE and p.replicas is None:
                    self._assign(name, ReplicaAssignment(self._assignments[name].origin_replicas))
                elif code is ErrorCode.NONE:
                    self.start(name, tuple(p.replicas))
                answers.append(ReassignablePartitionResponse(partition_index=p.partition_index, error_code=code))
            topics.append(ReassignableTopicResponse(name=topic.name, partitions=answers))
        return HANG_UP if self.loses_answers else AlterPartitionReassignmentsResponse(responses=topics)

    def _list(self, _: ListPartitionReassignmentsRequest) -> ListPartitionReassignmentsResponse:
        topics = []
        for name in self.moving:
            assignment = self._assignments[name]
            listed = OngoingPartitionReassignment(
                partition_index=name.partition,
                replicas=list(assignment.replicas),
                adding_replicas=list(assignment.adding_replicas),
                removing_replicas=list(assignment.removing_replicas),
            )
            topics.append(OngoingTopicReassignment(name=name.topic, partitions=[listed]))
        return ListPartitionReassignmentsResponse(topics=topics)

    def _alter(self, request: IncrementalAlterConfigsRequest) -> IncrementalAlterConfigsResponse:
        (resource,) = request.resources
        key = resource.resource_type, resource.resource_name
        changed = dict(self.settings.get(key, {}))
        for config in resource.configs:
            if config.value is None:
                changed.pop(config.name, None)
            else:
                changed[config.name] = config.value
        self.log.append(f"{'throttle' if changed else 'clear'} {_KINDS[key[0]]} {key[1]}")
        self.settings[key] = changed
        return IncrementalAlterConfigsResponse(
            responses=[AlterConfigsResourceResponse(resource_type=key[0], resource_name=key[1])]
        )

    def _describe(self, broker: ScriptedBroker, request: DescribeConfigsRequest) -> DescribeConfigsResponse | object:
        if broker.id in self.silent:
            return SILENCE
        results = []
        for resource in request.resources:
            kind, name = resource.resource_type, resource.resource_name
            configs = [
                DescribeConfigsResourceResult(name=key, value=value, config_source=_SOURCES[kind])
                for key, value in self.settings.get((kind, name), {}).items()
            ]
            results.append(DescribeConfigsResult(resource_type=kind, resource_name=name, configs=configs))
        return DescribeConfigsResponse(results=results)

    def _log_dirs(self, broker: ScriptedBroker, _: DescribeLogDirsRequest) -> DescribeLogDirsResponse | object:
        """A replica from another broker is not there yet."""
        if broker.id in self.without_dirs:
            return HANG_UP
        dirs: dict[str, list[DescribeLogDirsTopic]] = {DIR: [], OTHER_DIR: []}
        for (topic, partition), item in self._assignments.items():
            if broker.id in item.origin_replicas:
                described = DescribeLogDirsPartition(partition_index=partition, partition_size=SIZE)
                path = self.dirs.get((TopicPartition(topic, partition), broker.id), DIR)
                dirs[path].append(DescribeLogDirsTopic(name=topic, partitions=[described]))
        for ((topic, partition), at), path in self.futures.items():
            if at == broker.id:
                described = DescribeLogDirsPartition(partition_index=partition, partition_size=0, is_future_key=True)
                dirs[path].append(DescribeLogDirsTopic(name=topic, partitions=[described]))
        return DescribeLogDirsResponse(
            results=[
                DescribeLogDirsResult(log_dir=path, topics=topics, usable_bytes=self.usable_bytes)
                for path, topics in dirs.items()
            ]
        )

    def _move_dirs(self, broker: ScriptedBroker, request: AlterReplicaLogDirsRequest) -> AlterReplicaLogDirsResponse:
        results = []
        for wanted in request.dirs:
            for topic in wanted.topics:
                for partition in topic.partitions:
                    name = TopicPartition(topic.name, partition)
                    self.log.append(f"move {name} on {broker.id} to {wanted.path}")
                    self.futures.pop((name, broker.id), None)
                    if wanted.path != DIR:
                        self.futures[name, broker.id] = wanted.path
                    result = AlterReplicaLogDirPartitionResult(partition_index=partition)
                    results.append(AlterReplicaLogDirTopicResult(topic_name=topic.name, partitions=[result]))
        return AlterReplicaLogDirsResponse(results=results)
