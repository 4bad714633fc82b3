"""Requested elections: by ElectLeaders, by the znode of old tools, or by the balance of leaders.

They differ from elections after a broker's death: the current leader is usually alive, and others get the outcome.
"""

from __future__ import annotations

from collections.abc import Iterable

from engine.broker.controller.context import ControllerContext
from engine.broker.controller.events import ApiError, ElectionTrigger, ElectionType
from engine.broker.controller.instructions import (
    DeletePreferredElection,
    GiveWay,
    ReadPreferredElection,
    ScheduleLeaderRebalance,
    Steps,
    carry_out,
    each,
    select,
    slices,
)
from engine.broker.controller.leader_selectors import (
    OFFLINE_ELECTION,
    PREFERRED_ELECTION,
    UNCLEAN_ELECTION,
    preferred_leader,
)
from engine.broker.controller.logs import comma, controller_log, scala, scala_map
from engine.broker.controller.options import ControllerOptions
from engine.broker.controller.partition_state_machine import ElectionResults, PartitionStateMachine
from engine.broker.controller.states import PartitionState, StateChangeFailed
from engine.common.errors import ErrorCode
from engine.common.model import NO_LEADER, LeaderAndIsr, TopicPartition

ElectionAnswer = dict[TopicPartition, int | ApiError]
"""For each partition the elected leader, or why there is none."""


class ReplicaElections:
    """Elections on demand."""

    def __init__(
        self, context: ControllerContext, options: ControllerOptions, partitions: PartitionStateMachine
    ) -> None:
        self._context = context
        self._options = options
        self._partitions = partitions
        self._log = controller_log(options.controller_id)

    def from_api(self, partitions: Iterable[TopicPartition], election_type: ElectionType) -> Steps[ElectionAnswer]:
        """Elect leaders for the partitions that need one; for each of the others, say why not."""
        return (yield from self._elect_those_in_need(partitions, election_type, ElectionTrigger.ADMIN_CLIENT))

    def from_znode(self) -> Steps[None]:
        """Carry out ``/admin/preferred_replica_election`` and delete it."""
        request = yield from carry_out(ReadPreferredElection())
        if request is None:
            return
        if request.malformed is not None:
            self._log.warning(
                "Ignoring what cannot be understood in /admin/preferred_replica_election, and removing it: "
                f"{request.malformed}"
            )
        yield from self._elect_those_in_need(request.values, ElectionType.PREFERRED, ElectionTrigger.ZOOKEEPER)

    def _elect_those_in_need(
        self, partitions: Iterable[TopicPartition], election_type: ElectionType, trigger: ElectionTrigger
    ) -> Steps[ElectionAnswer]:
        answer: ElectionAnswer = {}
        electable: dict[TopicPartition, None] = {}

        for piece in slices(partitions):
            yield from carry_out(GiveWay())
            for partition in piece:
                error = self._reason_not_to_elect(partition, election_type, trigger)
                if error is None:
                    electable[partition] = None
                else:
                    answer[partition] = error
        results = yield from self._elect(list(electable), election_type, trigger)

        def note(partition: TopicPartition) -> None:
            # A partition without a state has got one, or could not get one: the results do not say which.
            result = results.get(partition)
            first = self._first_leader(partition, election_type) if result is None else _outcome(result, election_type)
            answer[partition] = first

        yield from each(electable, note)
        if self._log.is_debug_enabled:
            self._log.debug(
                f"Waiting for any successful result for election type ({election_type.name}) by {trigger.value} for "
                f"partitions: {scala_map('Map', answer)}"
            )
        return answer

    def _reason_not_to_elect(
        self, partition: TopicPartition, election_type: ElectionType, trigger: ElectionTrigger
    ) -> ApiError | None:
        leadership = self._context.leadership.get(partition)
        replicas = self._context.replicas(partition)
        if not replicas:
            self._log.info(
                f"Skipping replica leader election ({election_type.name}) for partition {partition} by "
                f"{trigger.value} since it doesn't exist."
            )
            return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
        if partition.topic in self._context.topics_to_be_deleted:
            self._log.warning(
                f"Skipping replica leader election ({election_type.name}) for partitions {scala('Set', (partition,))} "
                f"by {trigger.value} since the respective topics are being deleted"
            )
            return ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic is being deleted")
        leader = NO_LEADER if leadership is None else leadership.leader_and_isr.leader
        if election_type is ElectionType.PREFERRED:
            is_needed = leader != replicas[0]
        else:
            is_needed = leader == NO_LEADER or not self._context.is_live_broker(leader)
        if is_needed:
            return None
        return ApiError(ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")

    def _first_leader(self, partition: TopicPartition, election_type: ElectionType) -> int | ApiError:
        leadership = self._context.leadership.get(partition)
        if leadership is not None:
            return leadership.leader_and_isr.leader
        return _outcome(StateChangeFailed(f"Partition {partition} could not be given its first state"), election_type)

    def resume_znode(self) -> Steps[None]:
        """At take-over: carry out the rest of ``/admin/preferred_replica_election``, and delete it in any case."""
        request = yield from carry_out(ReadPreferredElection())
        undergoing = () if request is None else request.values
        completed = [p for p in undergoing if self._has_completed(p)]
        left = [p for p in undergoing if not self._has_completed(p)]
        deleted = [p for p in left if p.topic in self._context.topics_to_be_deleted]
        pending = [p for p in left if p.topic not in self._context.topics_to_be_deleted]
        self._log.info(f"Partitions undergoing preferred replica election: {comma(undergoing)}")
        self._log.info(f"Partitions that completed preferred replica election: {comma(completed)}")
        self._log.info(f"Skipping preferred replica election for partitions due to topic deletion: {comma(deleted)}")
        self._log.info(f"Resuming preferred replica election for partitions: {comma(pending)}")
        yield from self._elect(pending, ElectionType.PREFERRED, ElectionTrigger.ZOOKEEPER)

    def _has_completed(self, partition: TopicPartition) -> bool:
        """Whether the partition is led by its preferred replica, or gone."""
        replicas = self._context.replicas(partition)
        leadership = self._context.leadership.get(partition)
        return not replicas or (leadership is not None and leadership.leader_and_isr.leader == replicas[0])

    def balance(self) -> Steps[None]:
        """Move leaders back if others lead too many of a broker's preferred partitions."""
        yield from carry_out(ScheduleLeaderRebalance(self._options.leader_imbalance_check_interval_ms))
        self._log.info("Processing automatic preferred replica leader election")
        self._log.trace("Checking need to trigger auto leader balancing")
        by_preferred: dict[int, list[TopicPartition]] = {}

        def note(partition: TopicPartition) -> None:
            replicas = self._context.replicas(partition)
            if partition.topic not in self._context.topics_to_be_deleted and replicas:
                by_preferred.setdefault(replicas[0], []).append(partition)

        yield from each(self._context.all_partitions(), note)
        for broker_id, partitions in by_preferred.items():
            yield from self._balance_broker(broker_id, partitions)

    def _balance_broker(self, broker_id: int, partitions: list[TopicPartition]) -> Steps[None]:
        leadership = self._context.leadership
        yield from carry_out(GiveWay())
        elsewhere = yield from select(
            partitions, lambda p: p in leadership and leadership[p].leader_and_isr.leader != broker_id
        )
        if self._log.is_debug_enabled:
            lists = {p: scala("ArrayBuffer", self._context.replicas(p)) for p in elsewhere}
            self._log.debug(f"Topics not in preferred replica for broker {broker_id} {scala_map('HashMap', lists)}")
        ratio = len(elsewhere) / len(partitions)
        self._log.trace(f"Leader imbalance ratio for broker {broker_id} is {ratio}")
        if ratio > self._options.leader_imbalance_per_broker_percentage / 100:
            candidates = yield from select(elsewhere, self._may_move_back)
            yield from self._elect(candidates, ElectionType.PREFERRED, ElectionTrigger.AUTO)

    def _may_move_back(self, partition: TopicPartition) -> bool:
        """Whether the preferred replica could lead, and the partition is not being reassigned."""
        if partition in self._context.partitions_being_reassigned:
            return False
        replicas = self._context.replicas(partition)
        live = [r for r in replicas if self._context.is_replica_online(r, partition)]
        return preferred_leader(replicas, self._context.leadership[partition].leader_and_isr.isr, live) is not None

    def _elect(
        self, partitions: list[TopicPartition], election_type: ElectionType, trigger: ElectionTrigger
    ) -> Steps[ElectionResults]:
        self._log.info(
            f"Starting replica leader election ({election_type.name}) for partitions {comma(partitions)} "
            f"triggered by {trigger.value}"
        )
        strategy = PREFERRED_ELECTION
        if election_type is ElectionType.UNCLEAN:
            # Only a person may decide to lose records.
            strategy = UNCLEAN_ELECTION if trigger is ElectionTrigger.ADMIN_CLIENT else OFFLINE_ELECTION
        results = yield from self._partitions.change(partitions, PartitionState.ONLINE, strategy)
        if trigger is not ElectionTrigger.ADMIN_CLIENT:
            yield from self._log_outcome(partitions, results, election_type)
        if trigger is ElectionTrigger.ZOOKEEPER:
            yield from carry_out(DeletePreferredElection())
        return results

    def _log_outcome(
        self, partitions: list[TopicPartition], results: ElectionResults, election_type: ElectionType
    ) -> Steps[None]:
        for part in slices(results.items()):
            yield from carry_out(GiveWay())
            for partition, result in part:
                if isinstance(result, Exception):
                    self._log.error(
                        f"Error completing replica leader election ({election_type.name}) for partition {partition}",
                        result,
                    )
        for piece in slices(partitions):
            yield from carry_out(GiveWay())
            self._log_leaders(piece)

    def _log_leaders(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            leadership = self._context.leadership.get(partition)
            leader = NO_LEADER if leadership is None else leadership.leader_and_isr.leader
            preferred = self._context.replicas(partition)[0]
            if leader == preferred:
                self._log.info(
                    f"Partition {partition} completed preferred replica leader election. New leader is {preferred}"
                )
            else:
                self._log.warning(
                    f"Partition {partition} failed to complete preferred replica leader election to {preferred}. "
                    f"Leader is still {leader}"
                )


def _outcome(result: LeaderAndIsr | Exception, election_type: ElectionType) -> int | ApiError:
    if isinstance(result, LeaderAndIsr):
        return result.leader
    if isinstance(result, StateChangeFailed):
        code = (
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
            if election_type is ElectionType.PREFERRED
            else ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
        )
        return ApiError(code, str(result))
    return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, str(result))
