"""Requests for reassignments, by the API (KIP-455) and by the znode of old tools, and their checks.

Kafka carries out whatever is in the znode. klamm logs and removes an entry that the API would refuse.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

from engine.broker.controller.context import ControllerContext
from engine.broker.controller.events import SUCCESS, AlterPartitionReassignments, ApiError, ZkPartitionReassignment
from engine.broker.controller.instructions import (
    Answer,
    Continue,
    GiveWay,
    ReadReassignments,
    SetReassignments,
    Steps,
    carry_out,
    each,
)
from engine.broker.controller.logs import comma, controller_log, scala, scala_map
from engine.broker.controller.options import ControllerOptions
from engine.broker.controller.reassignment import REASSIGNED_AT_ONCE_MAX, Reassignments
from engine.broker.controller.states import RecordsWouldBeLost
from engine.common.errors import ErrorCode, KlammError
from engine.common.model import ReplicaAssignment, TopicPartition
from engine.kafka.zk.errors import ControllerMoved

REPLICAS_MAX = 10_000
"""No cluster has so many brokers, and a refusal that names more is longer than an answer's texts may be."""

_UNKNOWN = ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
_FAILED = ApiError(
    ErrorCode.UNKNOWN_SERVER_ERROR, "The server experienced an unexpected error when processing the request."
)
_NOT_IN_PROGRESS = ApiError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment is in progress.")


class ReassignmentRequests:
    """Checks requests for reassignments, and starts those that can be carried out."""

    def __init__(self, context: ControllerContext, options: ControllerOptions, reassignments: Reassignments) -> None:
        self._context = context
        self._reassignments = reassignments
        self._log = controller_log(options.controller_id)

    def from_api(self, event: AlterPartitionReassignments) -> Steps[None]:
        """Start, replace or (target None) cancel reassignments; the answer has the outcome of each.

        The latest request wins: entries of the znode for the same partitions are removed.
        """
        results = event.results
        start = len(results)
        wanted: dict[TopicPartition, ReplicaAssignment] = {}
        for partition, target in islice(event.targets.items(), start, start + REASSIGNED_AT_ONCE_MAX):
            # Before each: a refusal names all replicas, which may be very many.
            yield from carry_out(GiveWay())
            error = None if target is None else self._refusal(partition, target)
            if error is not None:
                results[partition] = error
            elif (assignment := self._towards(partition, target)) is not None:
                wanted[partition] = assignment
            else:
                results[partition] = _NOT_IN_PROGRESS
        yield from self._reassignments.remove_from_znode(lambda partition, _: partition in wanted)
        results.update((yield from self._start(wanted)))
        if len(results) < len(event.targets):
            yield from carry_out(Continue(AlterPartitionReassignments(event.targets, results)))
        else:
            yield from carry_out(Answer(results))

    def from_znode(self, *, is_taking_over: bool = False) -> Steps[set[TopicPartition]]:
        """Carry out ``/admin/reassign_partitions``; return the partitions that were started.

        It removes entries that cannot be carried out. Except at take-over, it leaves an entry alone whose reassignment
        is under way already: it reads the znode after each change, including the controller's own.
        """
        request = yield from carry_out(ReadReassignments())
        if request is None:
            return set()
        if request.malformed is not None:
            self._log.warning(f"Removing /admin/reassign_partitions since it cannot be understood: {request.malformed}")
            yield from carry_out(SetReassignments(request.values))
        failed: dict[TopicPartition, ApiError] = {}
        wanted: dict[TopicPartition, ReplicaAssignment] = {}
        for partition, target in request.values.items():
            error = self._refusal_of_entry(partition, target)
            current = self._context.full_assignment(partition)
            if error is not None:
                failed[partition] = error
            elif is_taking_over or not current.is_being_reassigned or current.target_replicas != target:
                wanted[partition] = current.reassigned_to(target)
            if len(wanted) == REASSIGNED_AT_ONCE_MAX:
                # Reassignments started by then are left alone the next time.
                yield from carry_out(Continue(ZkPartitionReassignment()))
                break
        results = yield from self._start(wanted)
        failed.update({p: error for p, error in results.items() if error is not SUCCESS})
        if failed:
            errors = {p: f"ApiError(error={error.code.name}, message={error.message})" for p, error in failed.items()}
            self._log.warning(
                f"Failed reassignment through zk with the following errors: {scala_map('HashMap', errors)}"
            )
            yield from self._reassignments.remove_from_znode(lambda partition, _: partition in failed)
        return {p for p, error in results.items() if error is SUCCESS}

    def under_way(
        self, partitions: tuple[TopicPartition, ...] | None
    ) -> Steps[dict[TopicPartition, ReplicaAssignment]]:
        """Return the assignments of partitions that are being reassigned; None means all of them."""
        reassigned: dict[TopicPartition, ReplicaAssignment] = {}

        def look(partition: TopicPartition) -> None:
            assignment = self._context.full_assignment(partition)
            if assignment.is_being_reassigned:
                reassigned[partition] = assignment

        yield from each(self._context.partitions_being_reassigned if partitions is None else partitions, look)
        return reassigned

    def _towards(self, partition: TopicPartition, target: tuple[int, ...] | None) -> ReplicaAssignment | None:
        """Return the assignment on the way to a target; None if there is nothing to cancel."""
        current = self._context.full_assignment(partition)
        if target is not None:
            return current.reassigned_to(target)
        return current.reassigned_to(current.origin_replicas) if current.is_being_reassigned else None

    def _refusal(self, partition: TopicPartition, target: tuple[int, ...]) -> ApiError | None:
        """Return why a replica list cannot be a target, in Kafka's words."""
        code = ErrorCode.INVALID_REPLICA_ASSIGNMENT
        if not target:
            return ApiError(code, "Empty replica list specified in partition reassignment.")
        if len(target) > REPLICAS_MAX:
            return ApiError(code, "There are too many replicas in the partition reassignment replica list.")
        if len(set(target)) != len(target):
            listed = scala("ArrayBuffer", target)
            return ApiError(code, f"Duplicate replica ids in partition reassignment replica list: {listed}")
        if min(target) < 0:
            return ApiError(code, f"Invalid broker id in replica list: {scala('ArrayBuffer', target)}")
        adding = self._context.full_assignment(partition).reassigned_to(target).adding_replicas
        if not all(map(self._context.is_live_broker, adding)):
            live = self._context.live_broker_ids
            return ApiError(
                code,
                f"Replica assignment has brokers that are not alive. Replica list: {scala('ArrayBuffer', adding)}, "
                f"live broker list: {scala('Set' if len(live) <= 4 else 'HashSet', live)}",
            )
        return None

    def _refusal_of_entry(self, partition: TopicPartition, target: tuple[int, ...]) -> ApiError | None:
        if not self._context.replicas(partition):
            return _UNKNOWN
        current = self._context.full_assignment(partition)
        if current.is_being_reassigned and current.target_replicas == target:
            # It was accepted before; a target broker that died since then may come back.
            return None
        return self._refusal(partition, target)

    def _start(self, wanted: Mapping[TopicPartition, ReplicaAssignment]) -> Steps[dict[TopicPartition, ApiError]]:
        results: dict[TopicPartition, ApiError] = {}
        started: dict[TopicPartition, ReplicaAssignment] = {}
        for partition, assignment in wanted.items():
            results[partition] = SUCCESS
            if partition.topic in self._context.topics_to_be_deleted:
                self._log.info(f"Skipping reassignment of {partition} since the topic is currently being deleted")
                results[partition] = _UNKNOWN
            elif not self._context.replicas(partition):
                results[partition] = _UNKNOWN
            else:
                started[partition] = assignment
        for partition, error in (yield from self._proceed(started)).items():
            results[partition] = self._failure(partition, error)
        return results

    def _proceed(self, started: dict[TopicPartition, ReplicaAssignment]) -> Steps[dict[TopicPartition, KlammError]]:
        try:
            return (yield from self._reassignments.proceed(started))
        except ControllerMoved:
            self._log.info(
                f"Failed completing reassignment of partitions {comma(started)} "
                "because controller has moved to another broker"
            )
            raise
        except KlammError as error:
            return dict.fromkeys(started, error)

    def _failure(self, partition: TopicPartition, error: KlammError) -> ApiError:
        if isinstance(error, RecordsWouldBeLost):
            self._log.warning(f"Refusing reassignment of partition {partition}. {error}")
            return ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, str(error))
        self._log.error(f"Error completing reassignment of partition {partition}", error)
        return _FAILED
