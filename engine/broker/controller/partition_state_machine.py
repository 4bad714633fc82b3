"""Moves partitions from state to state: writes their leadership to ZooKeeper and tells the brokers.

``states`` defines which state may follow which; ``election`` decides who leads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from engine.broker.controller.context import ControllerContext
from engine.broker.controller.instructions import (
    CreatePartitionStates,
    GiveWay,
    ReadUncleanElectionEnabled,
    Steps,
    carry_out,
    each,
    select,
    slices,
)
from engine.broker.controller.leader_selectors import (
    OFFLINE_ELECTION,
    UNCLEAN_ELECTION,
    Elected,
    ElectionKind,
    ElectionStrategy,
    elect,
)
from engine.broker.controller.leadership import Leadership
from engine.broker.controller.logs import (
    PrefixedLogger,
    comma,
    leader_and_isr_text,
    partition_machine_log,
    scala,
    state_change_log,
)
from engine.broker.controller.options import ControllerOptions
from engine.broker.controller.request_batch import RequestBatch
from engine.broker.controller.states import (
    VALID_PREVIOUS_PARTITION_STATES,
    IllegalTransition,
    PartitionState,
    StateChangeFailed,
)
from engine.common.errors import CoordinationError, KlammError
from engine.common.model import LeaderAndIsr, LeaderIsrAndControllerEpoch, TopicPartition
from engine.kafka.zk.errors import ControllerMoved
from engine.kafka.zk.partitions import PartitionStateRead

ElectionResults = dict[TopicPartition, LeaderAndIsr | Exception]
"""For each partition the state with its new leader, or why there is none."""

_WITHOUT_LEADER = (PartitionState.OFFLINE, PartitionState.NEW)


class PartitionStateMachine:
    """The half of the controller that handles partitions."""

    def __init__(self, context: ControllerContext, options: ControllerOptions, leadership: Leadership) -> None:
        self._context = context
        self._options = options
        self._leadership = leadership
        self._log = partition_machine_log(options.controller_id)

    @property
    def _changes(self) -> PrefixedLogger:
        return state_change_log(self._options.controller_id, self._context.epoch.controller_epoch)

    def start_up(self) -> Steps[None]:
        """Give every partition the state that its stored leadership implies, then elect missing leaders."""
        self._log.info("Initializing partition state")
        states = self._context.partition_states
        yield from each(self._context.all_partitions(), lambda p: states.update({p: self._initial_state(p)}))
        self._log.info("Triggering online partition state changes")
        yield from self.trigger_online_state_change()

    def _initial_state(self, partition: TopicPartition) -> PartitionState:
        leadership = self._context.leadership.get(partition)
        if leadership is None:
            return PartitionState.NEW
        is_led = self._context.is_replica_online(leadership.leader_and_isr.leader, partition)
        return PartitionState.ONLINE if is_led else PartitionState.OFFLINE

    def shut_down(self) -> None:
        self._log.info("Stopped partition state machine")

    def trigger_online_state_change(self, topic: str | None = None) -> Steps[ElectionResults]:
        """Elect leaders for new and offline partitions, of one topic or of all, except topics being deleted."""
        context = self._context
        partitions = yield from select(
            context.partition_states if topic is None else context.partitions_of_topic(topic),
            lambda p: context.partition_state(p) in _WITHOUT_LEADER and p.topic not in context.topics_to_be_deleted,
        )
        return (yield from self.change(partitions, PartitionState.ONLINE, OFFLINE_ELECTION))

    def change(
        self,
        partitions: Iterable[TopicPartition],
        target: PartitionState,
        strategy: ElectionStrategy = OFFLINE_ELECTION,
    ) -> Steps[ElectionResults]:
        """Move partitions to a state and send what follows from it.

        The result covers elections only. A move that the table does not allow is logged and left out.

        Raises:
            ControllerMoved: another controller writes.
        """
        wanted = list(partitions)
        if not wanted:
            return {}
        batch = RequestBatch(self._context, self._options.controller_id)
        try:
            results = yield from self._change(wanted, target, strategy, batch)
        except ControllerMoved as error:
            self._log.error(f"Controller moved to another broker when moving some partitions to {target} state", error)
            raise
        except Exception as error:
            # One bad partition must not end the controller; brokers still learn what was written before it.
            self._log.error(f"Error while moving some partitions to {target} state", error)
            results = dict.fromkeys(wanted, error)
        yield from batch.send()
        return results

    def _change(
        self, partitions: list[TopicPartition], target: PartitionState, strategy: ElectionStrategy, batch: RequestBatch
    ) -> Steps[ElectionResults]:

        def is_valid(partition: TopicPartition) -> bool:
            may_move = self._context.is_valid_partition_move(partition, target)
            if not may_move:
                self._log_illegal(partition, target)
            return may_move

        valid = yield from select(partitions, is_valid)
        if target is PartitionState.ONLINE:
            return (yield from self._bring_online(valid, strategy, batch))
        for piece in slices(valid):
            yield from carry_out(GiveWay())
            for partition in piece:
                self._log_move(partition, target)
                self._context.partition_states[partition] = target
        return {}

    def _log_move(self, partition: TopicPartition, target: PartitionState) -> None:
        changes = self._changes
        current = self._context.partition_state(partition)
        if target is PartitionState.NEW:
            changes.info(
                f"Changed partition {partition} state from {current} to {target} with assigned replicas "
                f"{comma(self._context.replicas(partition))}"
            )
        elif changes.is_trace_enabled:
            changes.trace(f"Changed partition {partition} state from {current} to {target}")

    def _bring_online(
        self, partitions: list[TopicPartition], strategy: ElectionStrategy, batch: RequestBatch
    ) -> Steps[ElectionResults]:
        new = yield from select(partitions, lambda p: self._context.partition_state(p) is PartitionState.NEW)
        old = yield from select(partitions, lambda p: self._context.partition_state(p) is not PartitionState.NEW)
        if new:
            initialized = yield from self._initialize(new, batch)
            yield from self._put_online({p: self._context.leadership[p].leader_and_isr for p in initialized})
        results = (yield from self._elect_until_settled(old, strategy, batch)) if old else {}
        yield from self._put_online({p: state for p, state in results.items() if isinstance(state, LeaderAndIsr)})
        return results

    def _put_online(self, states: Mapping[TopicPartition, LeaderAndIsr]) -> Steps[None]:
        changes = self._changes
        for piece in slices(states.items()):
            yield from carry_out(GiveWay())
            for partition, state in piece:
                changes.info(
                    f"Changed partition {partition} from {self._context.partition_state(partition)} to "
                    f"{PartitionState.ONLINE} with state {leader_and_isr_text(state)}"
                )
                self._context.partition_states[partition] = PartitionState.ONLINE

    def _initialize(self, partitions: list[TopicPartition], batch: RequestBatch) -> Steps[list[TopicPartition]]:
        """Give partitions their first leader: the first live replica, with all live replicas as the ISR."""
        states: dict[TopicPartition, LeaderIsrAndControllerEpoch] = {}
        for piece in slices(partitions):
            yield from carry_out(GiveWay())
            for partition in piece:
                live = tuple(
                    r for r in self._context.replicas(partition) if self._context.is_replica_online(r, partition)
                )
                if live:
                    state = LeaderAndIsr(leader=live[0], leader_epoch=0, isr=live)
                    states[partition] = LeaderIsrAndControllerEpoch(state, self._context.epoch.controller_epoch)
                else:
                    self._log_no_live_replica(partition)
        if not states:
            return []
        created = yield from carry_out(CreatePartitionStates(states))
        initialized = []
        for written in slices(created.items()):
            yield from carry_out(GiveWay())
            for partition, error in written:
                if error is not None:
                    self._log_failed(partition, PartitionState.NEW, PartitionState.ONLINE, error)
                    continue
                leadership = states[partition]
                self._context.leadership[partition] = leadership
                assignment = self._context.full_assignment(partition)
                batch.add_leader_and_isr(leadership.leader_and_isr.isr, partition, leadership, assignment, is_new=True)
                initialized.append(partition)
        return initialized

    def _log_no_live_replica(self, partition: TopicPartition) -> None:
        failure = StateChangeFailed(
            f"Controller {self._options.controller_id} epoch {self._context.epoch.controller_epoch} encountered error "
            f"during state change of partition {partition} from New to Online, assigned replicas are "
            f"[{comma(self._context.replicas(partition))}], live brokers are "
            f"[{scala('Set', self._context.live_broker_ids)}]. No assigned replica is alive."
        )
        self._log_failed(partition, PartitionState.NEW, PartitionState.ONLINE, failure)

    def _elect_until_settled(
        self, partitions: list[TopicPartition], strategy: ElectionStrategy, batch: RequestBatch
    ) -> Steps[ElectionResults]:
        """Elect; elect again if another writer changed the state meanwhile."""
        results: ElectionResults = {}
        remaining = partitions
        fresh = False
        while remaining:
            finished, remaining = yield from self._elect_once(remaining, strategy, batch, fresh=fresh)
            yield from self._log_not_elected(finished)
            results.update(finished)
            fresh = True
            if remaining:
                self._log.info(f"Retrying leader election with strategy {strategy} for partitions {comma(remaining)}")
        return results

    def _log_not_elected(self, results: ElectionResults) -> Steps[None]:
        for part in slices((p, result) for p, result in results.items() if isinstance(result, Exception)):
            yield from carry_out(GiveWay())
            for partition, error in part:
                self._log_failed(partition, self._context.partition_state(partition), PartitionState.ONLINE, error)

    def _elect_once(
        self, partitions: list[TopicPartition], strategy: ElectionStrategy, batch: RequestBatch, *, fresh: bool
    ) -> Steps[tuple[ElectionResults, list[TopicPartition]]]:
        results: ElectionResults = {}
        states = yield from self._leadership.read(partitions, fresh=fresh)
        if strategy.kind is ElectionKind.OFFLINE and not fresh:
            # Before a partition loses its leader, or gets an unclean one, memory has to be verified.
            lost = yield from select(states, lambda p: self._is_lost(p, states[p]))
            states |= yield from self._leadership.read_again(lost)
        electable: dict[TopicPartition, LeaderAndIsr] = {}

        def judge(partition: TopicPartition) -> None:
            usable = self._usable_state(partition, states[partition])
            if isinstance(usable, LeaderAndIsr):
                electable[partition] = usable
            else:
                results[partition] = usable

        yield from each(states, judge)
        strategies = yield from self._strategies(electable, strategy)
        elected: dict[TopicPartition, LeaderAndIsr] = {}
        recipients: dict[TopicPartition, tuple[int, ...]] = {}
        for part in slices(strategies.items()):
            yield from carry_out(GiveWay())
            for partition, of_partition in part:
                if isinstance(of_partition, CoordinationError):
                    results[partition] = of_partition
                    continue
                outcome = self._elect_leader(partition, electable[partition], of_partition)
                if outcome.state is None:
                    results[partition] = StateChangeFailed(
                        f"Failed to elect leader for partition {partition} under strategy {strategy}"
                    )
                    continue
                elected[partition] = outcome.state
                recipients[partition] = outcome.recipients
                self._count_unclean(electable[partition], outcome.state)
        updates = yield from self._leadership.update(elected)
        for piece in slices(updates.updated.items()):
            yield from carry_out(GiveWay())
            for partition, state in piece:
                batch.add_leader_and_isr(
                    recipients[partition],
                    partition,
                    self._context.leadership[partition],
                    self._context.full_assignment(partition),
                    is_new=False,
                )
                results[partition] = state
        results.update(updates.failed)
        return results, updates.to_retry

    def _elect_leader(self, partition: TopicPartition, state: LeaderAndIsr, strategy: ElectionStrategy) -> Elected:
        return elect(
            self._context,
            partition,
            state,
            strategy,
            is_leader_recovery_supported=self._options.is_leader_recovery_supported,
        )

    def _count_unclean(self, before: LeaderAndIsr, after: LeaderAndIsr) -> None:
        if after.leader not in before.isr:
            self._context.unclean_elections_total += 1

    def _usable_state(self, partition: TopicPartition, read: PartitionStateRead) -> LeaderAndIsr | KlammError:
        """Return the leadership from which an election starts, or why there can be none."""
        if read is None:
            return StateChangeFailed(
                f"LeaderAndIsr information doesn't exist for partition {partition} in "
                f"{self._context.partition_state(partition)} state"
            )
        if isinstance(read, CoordinationError):
            return read
        if self._leadership.is_newer_than_ours(read):
            return StateChangeFailed(
                f"Aborted leader election for partition {partition} since the LeaderAndIsr path was already written by "
                f"another controller. This probably means that the current controller {self._options.controller_id} "
                f"went through a soft failure and another controller was elected with epoch {read.controller_epoch}."
            )
        return read.leader_and_isr

    def _strategies(
        self, states: Mapping[TopicPartition, LeaderAndIsr], strategy: ElectionStrategy
    ) -> Steps[dict[TopicPartition, ElectionStrategy | CoordinationError]]:
        """Return each partition's strategy: a setting of its topic decides whether an unclean election is allowed."""
        strategies: dict[TopicPartition, ElectionStrategy | CoordinationError] = dict.fromkeys(states, strategy)
        if strategy.kind is not ElectionKind.OFFLINE or strategy.allow_unclean:
            return strategies
        lost = yield from select(states, lambda p: not self._has_live_isr_member(p, states[p]))
        if not lost:
            return strategies
        topics = tuple(dict.fromkeys(p.topic for p in lost))
        enabled = yield from carry_out(ReadUncleanElectionEnabled(topics))
        for partition in lost:
            allowed = enabled[partition.topic]
            if isinstance(allowed, CoordinationError):
                strategies[partition] = allowed
            elif allowed:
                strategies[partition] = UNCLEAN_ELECTION
        return strategies

    def _is_lost(self, partition: TopicPartition, read: PartitionStateRead) -> bool:
        return isinstance(read, LeaderIsrAndControllerEpoch) and not self._has_live_isr_member(
            partition, read.leader_and_isr
        )

    def _has_live_isr_member(self, partition: TopicPartition, state: LeaderAndIsr) -> bool:
        return any(self._context.is_replica_online(r, partition) for r in state.isr)

    def _log_illegal(self, partition: TopicPartition, target: PartitionState) -> None:
        current = self._context.partition_state(partition)
        allowed = comma(VALID_PREVIOUS_PARTITION_STATES[target])
        failure = IllegalTransition(
            f"Partition {partition} should be in one of {allowed} states before moving to {target} state. "
            f"Instead it is in {current} state"
        )
        self._log_failed(partition, current, target, failure)

    def _log_failed(
        self, partition: TopicPartition, current: PartitionState, target: PartitionState, error: Exception
    ) -> None:
        self._changes.error(
            f"Controller {self._options.controller_id} epoch {self._context.epoch.controller_epoch} failed to change "
            f"state for partition {partition} from {current} to {target}",
            error,
        )
