"""Log dirs of replicas: where the replicas are and how large, and moving them between the dirs of their broker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from engine.admin.cluster.asking import answer_limit
from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import AdminError, NotFound, Refused, Unreachable
from engine.admin.cluster.wire import WireCluster
from engine.admin.cluster.wire_failures import refuse
from engine.admin.reassignment.moves import PartitionStatus, ReassignmentState
from engine.admin.reassignment.reassignment_file import PartitionMove
from engine.common.errors import ErrorCode, error_code
from engine.common.model import TopicPartition
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from engine.kafka.protocol.apis.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)

Replica = tuple[TopicPartition, int]
"""A partition on a broker."""


@dataclass(frozen=True, slots=True)
class ReplicaPlace:
    """Where a replica is and how large. ``future_dir`` is the dir it is moving to, with what is there already."""

    log_dir: str | None = None
    size_bytes: int = 0
    future_dir: str | None = None
    future_bytes: int = 0


@dataclass(frozen=True, slots=True)
class LogDirs:
    """What brokers reported about their log dirs; ``dirs`` by broker, only of those that answered.

    ``silent`` are those that could not be reached, or did not answer in time.
    """

    dirs: Mapping[int, frozenset[str]]
    offline: Mapping[int, tuple[str, ...]]
    places: Mapping[Replica, ReplicaPlace]
    silent: frozenset[int] = frozenset()

    def failed_for(self, name: TopicPartition) -> dict[int, tuple[str, ...]]:
        """Return the failed log dirs of brokers that have no replica of a partition in a working one."""
        return {broker: paths for broker, paths in self.offline.items() if paths and (name, broker) not in self.places}


async def read_log_dirs(
    cluster: Cluster, brokers: Iterable[int], partitions: Iterable[TopicPartition] | None
) -> LogDirs:
    """Ask brokers for their log dirs and these partitions in them (None: all). Silent brokers are left out."""
    wire = await cluster.wire()
    dirs: dict[int, frozenset[str]] = {}
    offline: dict[int, tuple[str, ...]] = {}
    places: dict[Replica, ReplicaPlace] = {}
    silent: set[int] = set()
    request = DescribeLogDirsRequest(topics=None if partitions is None else _topics(partitions))
    for broker in sorted(brokers):
        try:
            async with answer_limit(wire, broker):
                response: DescribeLogDirsResponse = await wire.call_broker(broker, request)
        except AdminError as error:
            cluster.observe(f"broker {broker} did not report its log dirs: {error}")
            if isinstance(error, Unreachable):
                silent.add(broker)
            continue
        is_refused = not response.results and response.error_code == ErrorCode.NONE
        refuse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED if is_refused else response.error_code, None, "log dirs")
        dirs[broker] = frozenset(result.log_dir for result in response.results if result.error_code == ErrorCode.NONE)
        offline[broker] = tuple(result.log_dir for result in response.results if result.error_code != ErrorCode.NONE)
        places |= _places(broker, response)
    return LogDirs(dirs, offline, places, frozenset(silent))


def check_log_dirs(plan: Sequence[PartitionMove], log_dirs: LogDirs) -> None:
    """Raise NotFound if a plan names a log dir that its broker does not have or cannot use."""
    for move in plan:
        for broker, path in move.wanted_dirs.items():
            if path not in log_dirs.dirs.get(broker, frozenset()):
                known = ", ".join(sorted(log_dirs.dirs.get(broker, ()))) or "none that answer"
                where = f"partition {move.name}"
                raise NotFound(f"broker {broker} has no log dir {path}", where=where, hint=f"its log dirs: {known}")


async def check_can_move(wire: WireCluster, plan: Sequence[PartitionMove]) -> None:
    """Raise Refused if a broker cannot move replicas between its log dirs."""
    for broker in sorted({broker for move in plan for broker in move.wanted_dirs}):
        await wire.version(await wire.client_of(broker), ApiKey.ALTER_REPLICA_LOG_DIRS)


async def move_log_dirs(wire: WireCluster, wanted: Mapping[Replica, str]) -> dict[Replica, ErrorCode]:
    """Ask brokers to move replicas into these dirs; return the error of each, NONE if the move has begun.

    A broker that does not have the replica yet remembers the dir for it, and answers REPLICA_NOT_AVAILABLE.
    """
    outcomes: dict[Replica, ErrorCode] = {}
    for broker in sorted({broker for _, broker in wanted}):
        by_dir: dict[str, list[TopicPartition]] = {}
        for (name, at), path in wanted.items():
            if at == broker:
                by_dir.setdefault(path, []).append(name)
        dirs = [
            AlterReplicaLogDir(
                path=path,
                topics=[AlterReplicaLogDirTopic(name=t.topic, partitions=t.partitions) for t in _topics(names)],
            )
            for path, names in by_dir.items()
        ]
        response = await wire.call_broker(broker, AlterReplicaLogDirsRequest(dirs=dirs))
        for topic in response.results:
            for p in topic.partitions:
                name = TopicPartition(topic.topic_name, p.partition_index)
                outcomes[name, broker] = error_code(p.error_code)
    return outcomes


def refuse_moves(outcomes: Mapping[Replica, ErrorCode]) -> None:
    """Raise Refused for the first move that a broker rejects."""
    for (name, broker), code in outcomes.items():
        if code not in (ErrorCode.NONE, ErrorCode.REPLICA_NOT_AVAILABLE):
            raise Refused(code, "the log dir could not be changed", where=f"{name} on broker {broker}")


async def find_log_dir_moves(cluster: Cluster, plan: Sequence[PartitionMove]) -> dict[Replica, str]:
    """Return the replicas that are moving into a dir of the plan, and the dir that each leaves. Complain about brokers
    that cannot be asked."""
    wanted = [move for move in plan if move.wanted_dirs]
    if not wanted:
        return {}
    named = {broker for move in wanted for broker in move.wanted_dirs}
    live = named & await (await cluster.wire()).live_brokers()
    log_dirs = await read_log_dirs(cluster, live, [move.name for move in wanted])
    for broker in sorted((named - live) | log_dirs.silent):
        cluster.complain(f"broker {broker} does not answer: its moves to other log dirs go on once it does")
    return {
        (move.name, broker): place.log_dir
        for move in wanted
        for broker in move.wanted_dirs
        if (place := log_dirs.places.get((move.name, broker))) and place.future_dir and place.log_dir
    }


async def stop_log_dir_moves(cluster: Cluster, plan: Sequence[PartitionMove]) -> list[Replica]:
    """Stop replicas from moving into a dir of the plan; return which."""
    back = await find_log_dir_moves(cluster, plan)
    if back:
        refuse_moves(await move_log_dirs(await cluster.wire(), back))
    return sorted(back)


def with_log_dirs(status: PartitionStatus, move: PartitionMove, log_dirs: LogDirs) -> PartitionStatus:
    """Return a partition's status with regard to the log dirs that its replicas should be in."""
    if status.state is not ReassignmentState.COMPLETE:
        return status
    for broker, wanted in move.wanted_dirs.items():
        state, reason = _dir_state(move.name, broker, wanted, log_dirs)
        if state is not ReassignmentState.COMPLETE:
            return PartitionStatus(*move.name, state, status.replicas, status.target, reason=reason)
    return status


def _dir_state(
    name: TopicPartition, broker: int, wanted: str, log_dirs: LogDirs
) -> tuple[ReassignmentState, str | None]:
    place = log_dirs.places.get((name, broker))
    if place is None:
        return ReassignmentState.FAILED, f"broker {broker} has it in no live log dir"
    if place.future_dir == wanted:
        return ReassignmentState.IN_PROGRESS, f"broker {broker} is moving it to {wanted}"
    if place.future_dir is not None:
        return ReassignmentState.FAILED, f"broker {broker} is moving it to {place.future_dir} instead of {wanted}"
    if place.log_dir != wanted:
        return ReassignmentState.FAILED, f"broker {broker} has it in {place.log_dir} and is not moving it to {wanted}"
    return ReassignmentState.COMPLETE, None


def _topics(partitions: Iterable[TopicPartition]) -> list[DescribableLogDirTopic]:
    indexes_of: dict[str, list[int]] = {}
    for topic, partition in partitions:
        indexes_of.setdefault(topic, []).append(partition)
    return [DescribableLogDirTopic(topic=topic, partitions=indexes) for topic, indexes in indexes_of.items()]


def _places(broker: int, response: DescribeLogDirsResponse) -> dict[Replica, ReplicaPlace]:
    places: dict[Replica, ReplicaPlace] = {}
    for result in response.results:
        for topic in result.topics:
            for p in topic.partitions:
                replica = (TopicPartition(topic.name, p.partition_index), broker)
                before = places.get(replica, ReplicaPlace())
                if p.is_future_key:
                    places[replica] = replace(before, future_dir=result.log_dir, future_bytes=p.partition_size)
                else:
                    places[replica] = replace(before, log_dir=result.log_dir, size_bytes=p.partition_size)
    return places
