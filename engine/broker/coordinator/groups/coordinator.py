"""GroupCoordinator: requests about groups, on the broker's event loop. ``state_machine`` decides what they mean.

Offsets are in ``offset_requests``. Answers that have to wait come through a callback, exactly once.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Collection, Generator, Iterable, Sequence

from engine.broker.coordinator.groups.driver import MachineDriver
from engine.broker.coordinator.groups.group import Group, GroupDescription, GroupState
from engine.broker.coordinator.groups.loading import GroupLoader, logger
from engine.broker.coordinator.groups.member import (
    UNKNOWN_MEMBER_ID,
    Joining,
    JoinReply,
    JoinResult,
    MemberIdentity,
    Syncing,
    SyncReply,
    SyncResult,
)
from engine.broker.coordinator.groups.offset_requests import OffsetRequests
from engine.broker.coordinator.groups.outbox import StoreGroup, TimerKind
from engine.broker.coordinator.groups.records import batch_of, group_record
from engine.broker.coordinator.groups.settings import group_settings, offsets_topic_settings
from engine.broker.coordinator.groups.state_machine import GroupMachine
from engine.broker.coordinator.ownership import Content, OwnedPartition, OwnedPartitions, TopicSize
from engine.broker.coordinator.writer import ReplicatedWriter, store_error
from engine.broker.replication.metadata_cache import MetadataCache
from engine.broker.replication.replica_manager import ReplicaManager
from engine.common.clock import Clock
from engine.common.errors import ErrorCode
from engine.common.model import TopicPartition
from engine.common.topic_names import GROUP_METADATA_TOPIC
from engine.kafka.config.broker import BrokerConfig
from engine.runtime.offload import Offloader
from engine.runtime.supervisor import Supervisor

CLASSIC = "classic"
"""The only type of group in a cluster on ZooKeeper."""

GROUPS = Content(GroupLoader, "offsets and group metadata", "groups", logger)
"""What ``__consumer_offsets`` holds."""


class GroupCoordinator:
    """The groups of one broker. Create it on the running event loop, before the controller announces leadership."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        clock: Clock,
        replica_manager: ReplicaManager,
        metadata_cache: MetadataCache,
        offloader: Offloader,
        read_size: Callable[[str], Awaitable[int]],
    ) -> None:
        """``read_size`` counts a topic's partitions in ZooKeeper, as ``TopicSize`` wants it."""
        self.topic_settings = offsets_topic_settings(config)
        self._clock = clock
        self._replica_manager = replica_manager
        self._writer = ReplicatedWriter(replica_manager, self.topic_settings.commit_timeout_ms)
        self._machine = GroupMachine(group_settings(config), clock, lambda: str(uuid.uuid4()))
        self.partition_count = TopicSize(
            GROUP_METADATA_TOPIC, self.topic_settings.num_partitions, metadata_cache, read_size
        )
        self.groups = OwnedPartitions(
            GROUP_METADATA_TOPIC,
            GROUPS,
            offloader,
            clock,
            size=self.partition_count,
            load_buffer_bytes=self.topic_settings.load_buffer_bytes,
            on_loaded=self._loaded,
            on_unloaded=self._unloaded,
        )
        self._driver = MachineDriver(self._machine, clock, find=self.groups.find, store=self._store)
        self.offsets = OffsetRequests(
            self._machine, self._driver, self.groups, self._writer, self.topic_settings, clock
        )
        self._supervisor = Supervisor("group-coordinator")

    # -- start and stop

    def start(self) -> None:
        """Follow leadership, and check periodically for expired offsets."""
        self._replica_manager.leadership_listeners.append(self.groups.leadership_changed)
        self._replica_manager.stop_listeners.append(self.groups.replicas_stopped)
        self.partition_count.follow()
        interval_ms = self.topic_settings.retention_check_interval_ms
        self._supervisor.every(interval_ms, self.offsets.expire, "offset retention")

    async def resign(self) -> None:
        """Give up every group while the network still works: waiting requests learn to find another coordinator."""
        await self._supervisor.stop()
        await self.partition_count.stop()
        await self.groups.stop()

    async def stop(self) -> None:
        """End; remaining requests are answered as by ``resign``."""
        await self.resign()
        self._driver.stop()

    def totals(self) -> dict[str, int]:
        """Return what was counted since the start, under Kafka's names."""
        offsets = self.offsets
        return {
            "group-completed-rebalance": self._machine.completed_rebalances_total,
            "offset-commit": offsets.committed_total,
            "offset-deletion": offsets.deleted_total,
            "offset-expiration": offsets.expired_total,
        }

    def waiting(self) -> dict[str, int]:
        """Return how many deadlines run, by the purgatory in which Kafka keeps them."""
        by_kind = self._driver.waiting()
        return {"Heartbeat": by_kind[TimerKind.SESSION], "Rebalance": by_kind[TimerKind.JOIN] + by_kind[TimerKind.SYNC]}

    # -- finding

    def partition_for(self, group_id: str) -> TopicPartition:
        """Return the partition whose leader coordinates the group."""
        return TopicPartition(GROUP_METADATA_TOPIC, self.groups.index_of(group_id))

    # -- membership

    def join(self, group_id: str, joining: Joining, reply: JoinReply) -> None:
        """Let a member join; ``reply`` comes when the group's next generation begins, or at once with an error."""
        error = self._status(group_id)
        if error is ErrorCode.NONE and not self._machine.is_session_timeout_valid(joining.session_timeout_ms):
            error = ErrorCode.INVALID_SESSION_TIMEOUT
        group = None
        if error is ErrorCode.NONE:
            is_new = joining.member_id == UNKNOWN_MEMBER_ID
            group = self.offsets.find_or_add(group_id) if is_new else self.groups.find(group_id)
            error = ErrorCode.UNKNOWN_MEMBER_ID if group is None else error
        if group is None:
            reply(JoinResult(error, joining.member_id))
            return
        self._machine.join(group, joining, reply)
        self._driver.run()

    def sync(self, group_id: str, syncing: Syncing, reply: SyncReply) -> None:
        """Take the leader's assignment, or wait for it."""
        error = self._status(group_id)
        if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            # The rebalance is lost with the former coordinator; old clients do not expect the real error here.
            error = ErrorCode.REBALANCE_IN_PROGRESS
        group = self.groups.find(group_id) if error is ErrorCode.NONE else None
        if group is None:
            reply(SyncResult(error if error is not ErrorCode.NONE else ErrorCode.UNKNOWN_MEMBER_ID))
            return
        self._machine.sync(group, syncing, reply)
        self._driver.run()

    def heartbeat(self, group_id: str, member_id: str, group_instance_id: str | None, generation_id: int) -> ErrorCode:
        error = self._status(group_id)
        if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            # Nobody can say yet whether the member is one.
            return ErrorCode.NONE
        if error is not ErrorCode.NONE:
            return error
        group = self.groups.find(group_id)
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        error = self._machine.heartbeat(group, member_id, group_instance_id, generation_id)
        self._driver.run()
        return error

    def leave(self, group_id: str, members: Sequence[MemberIdentity]) -> tuple[ErrorCode, list[ErrorCode]]:
        """Remove members; return the error of the whole request, or if there is none, that of each member."""
        error = self._status(group_id)
        if error is not ErrorCode.NONE:
            return error, []
        group = self.groups.find(group_id)
        if group is None:
            return ErrorCode.NONE, [ErrorCode.UNKNOWN_MEMBER_ID for _ in members]
        errors = [self._machine.leave(group, member) for member in members]
        self._driver.run()
        return ErrorCode.NONE, errors

    # -- operators

    def list_groups(
        self, states: Collection[str] = (), types: Collection[str] = ()
    ) -> Generator[None, None, tuple[ErrorCode, list[GroupDescription]]]:
        """Return this broker's groups, in steps; the filters ignore case, and an empty filter matches all."""
        error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if self.groups.is_loading else ErrorCode.NONE
        kinds = yield from _known({CLASSIC}, types)
        wanted = yield from _known({state.value.lower() for state in GroupState}, states)
        if types and not kinds:
            return error, []
        described = []
        for group in list(self.groups):
            if not states or group.state.value.lower() in wanted:
                described.append(GroupDescription(group.group_id, group.state.value, group.protocol_type or ""))
            yield
        return error, described

    def describe(self, group_id: str) -> tuple[ErrorCode, GroupDescription]:
        """Return one group; a group that does not exist is Dead, as in Kafka."""
        error = self._status(group_id, may_be_empty=True)
        if error is not ErrorCode.NONE:
            return error, GroupDescription(group_id, "")
        group = self.groups.find(group_id)
        if group is None:
            return ErrorCode.NONE, GroupDescription(group_id, GroupState.DEAD.value)
        return ErrorCode.NONE, group.describe()

    def delete_group(self, group_id: str) -> Generator[None, None, ErrorCode]:
        """Remove an empty group with its offsets, in steps: it may have very many."""
        self.offsets.flush()
        group = self._deletable(group_id)
        if isinstance(group, ErrorCode):
            return group
        yield from self.offsets.delete_group(group)
        return ErrorCode.NONE

    def _deletable(self, group_id: str) -> Group | ErrorCode:
        error = self._status(group_id, may_be_empty=True)
        if error is not ErrorCode.NONE:
            return error
        group = self.groups.find(group_id)
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if group.state is GroupState.DEAD:
            # Its deletion is under way.
            return ErrorCode.NOT_COORDINATOR
        return group if group.state is GroupState.EMPTY else ErrorCode.NON_EMPTY_GROUP

    # -- inside

    def _status(self, group_id: str, *, may_be_empty: bool = False) -> ErrorCode:
        if not group_id and not may_be_empty:
            return ErrorCode.INVALID_GROUP_ID
        return self.groups.status(group_id)

    def _store(self, group: Group, store: StoreGroup, done: Callable[[ErrorCode], None]) -> None:
        settings = self.topic_settings
        self.offsets.flush()
        record = group_record(group, store.assignments, self._clock.now_ms(), settings.ibp)
        self._writer.append(
            self.groups.partition_of(group.group_id),
            batch_of([record], settings.codec),
            lambda error, _: done(store_error(error)),
        )

    def _loaded(self, owned: OwnedPartition[Group], groups: list[Group]) -> None:
        for group in groups:
            self.offsets.loaded(owned.index, group)
            self._machine.loaded(group)
        self._driver.run()

    def _unloaded(self, owned: OwnedPartition[Group]) -> None:
        self.offsets.flush()
        self.offsets.unloaded(owned.index)
        for group in list(owned.states.values()):
            self._machine.unload(group)
        self._driver.run()


def _known(values: Collection[str], names: Iterable[str]) -> Generator[None, None, set[str]]:
    """Return the values that are among the names, ignoring case, in steps: there may be very many names."""
    known = set()
    for name in names:
        if (value := name.lower()) in values:
            known.add(value)
        yield
    return known
