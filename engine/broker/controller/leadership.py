"""Reading and writing partition states for the state machines: the one place where leadership enters the context.

With AlterPartition (IBP 2.7-IV2 and later) only the controller writes state znodes, so its memory matches them. It
writes from memory, conditionally, and reads only a znode that turns out to have another version. Before that IBP,
leaders write too, and every decision starts with a read, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from engine.broker.controller.context import ControllerContext
from engine.broker.controller.instructions import (
    SCAN_SIZE,
    GiveWay,
    ReadPartitionStates,
    Steps,
    UpdateLeaderAndIsr,
    carry_out,
    each,
    slices,
)
from engine.broker.controller.options import ControllerOptions
from engine.broker.controller.states import StateChangeFailed
from engine.common.errors import CoordinationError, KlammError
from engine.common.model import LeaderAndIsr, LeaderIsrAndControllerEpoch, TopicPartition
from engine.kafka.zk.partitions import PartitionStateRead, PartitionStateUpdates


class Leadership:
    """Leadership as ZooKeeper has it, cached in the controller's memory."""

    def __init__(self, context: ControllerContext, options: ControllerOptions) -> None:
        self._context = context
        self._trusts_memory = options.is_alter_partition_enabled

    def read(
        self, partitions: Iterable[TopicPartition], *, fresh: bool = False
    ) -> Steps[dict[TopicPartition, PartitionStateRead]]:
        """Return the state of each partition; ``fresh`` asks ZooKeeper for all of them."""
        known = {} if fresh or not self._trusts_memory else self._context.leadership
        states: dict[TopicPartition, PartitionStateRead] = {}
        for number, wanted in enumerate(slices(partitions, SCAN_SIZE)):
            if number:
                yield from carry_out(GiveWay())
            unknown = tuple(p for p in wanted if p not in known)
            read = (yield from carry_out(ReadPartitionStates(unknown))) if unknown else {}
            states.update((p, known[p] if p in known else read.get(p)) for p in wanted)
        return states

    def read_again(self, partitions: Iterable[TopicPartition]) -> Steps[dict[TopicPartition, PartitionStateRead]]:
        """Ask ZooKeeper for partitions that were read from memory before; return nothing if none were.

        During an upgrade of the brokers, a leader with an IBP before 2.7-IV2 writes its ISR itself, and may die before
        it has told anybody.
        """
        wanted = list(partitions)
        return (yield from self.read(wanted, fresh=True)) if wanted and self._trusts_memory else {}

    def update(self, states: Mapping[TopicPartition, LeaderAndIsr]) -> Steps[PartitionStateUpdates]:
        """Write states, each on condition of its ``partition_epoch``, and remember those that were written."""
        if not states:
            return PartitionStateUpdates()
        updates = yield from carry_out(UpdateLeaderAndIsr(dict(states)))
        yield from each(updates.updated.items(), lambda updated: self.remember(*updated))
        return updates

    def remember(self, partition: TopicPartition, state: LeaderAndIsr) -> LeaderIsrAndControllerEpoch:
        """Keep a state that this controller wrote."""
        leadership = LeaderIsrAndControllerEpoch(state, self._context.epoch.controller_epoch)
        self._context.leadership[partition] = leadership
        return leadership

    def refresh(self, partitions: Iterable[TopicPartition]) -> Steps[None]:
        """Read states again and remember the results; a state that cannot be read stays as it was."""
        states = yield from self.read(partitions, fresh=True)

        def note(partition: TopicPartition) -> None:
            state = states[partition]
            if state is not None and not isinstance(state, CoordinationError):
                self._context.leadership[partition] = state

        yield from each(states, note)

    def usable_state(self, read: LeaderIsrAndControllerEpoch | CoordinationError) -> LeaderAndIsr | KlammError:
        """Return a state that may be changed, or why not: it could not be read, or a later controller wrote it."""
        if isinstance(read, CoordinationError):
            return read
        if self.is_newer_than_ours(read):
            return StateChangeFailed(
                "Leader and isr path written by another controller. This probably means the current controller with "
                f"epoch {self._context.epoch.controller_epoch} went through a soft failure and another controller was "
                f"elected with epoch {read.controller_epoch}. Aborting state change by this controller"
            )
        return read.leader_and_isr

    def is_newer_than_ours(self, state: LeaderIsrAndControllerEpoch) -> bool:
        """Return whether a later controller wrote the state: this one is a zombie."""
        return state.controller_epoch > self._context.epoch.controller_epoch
