"""Carries out one LeaderAndIsr request: which partitions it may change, then leaders, then followers.

Source: ReplicaManager.becomeLeaderOrFollower of Kafka 3.9; the lines of state-change.log are its own.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Iterator
from typing import Any, NamedTuple

from engine.broker.log.log import Log
from engine.broker.replication.fetch_table import InitialFetchState
from engine.broker.replication.partition import Partition
from engine.broker.replication.replica_manager import ReplicaManager
from engine.broker.replication.roles import make_follower, make_leader
from engine.broker.replication.state_change_log import partition_state_text
from engine.broker.replication.truncation import UNDEFINED_EPOCH
from engine.common.errors import ErrorCode, KafkaError
from engine.common.model import TopicPartition
from engine.common.topic_id import ZERO_TOPIC_ID, topic_id_text
from engine.kafka.config.metadata_version import is_truncation_on_fetch_supported
from engine.kafka.protocol.apis.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from engine.runtime.descriptors import is_out_of_descriptors
from engine.runtime.discards import Discards, in_pieces
from engine.runtime.turns import Breather, carry_out

REPLICAS_TOLD_MAX = 1_000
"""A log line names at most this many replicas: no partition has more, but a request may."""

CREATED_AT_ONCE_MAX = 100
"""Logs created before the event loop gets a turn: their log lines alone take milliseconds."""

FIRST_BY_TOPIC = 5
"""The first version whose answer groups partitions by topic."""


class _Wanted(NamedTuple):
    """One partition that the request changes."""

    partition: Partition
    state: LeaderAndIsrPartitionState
    topic_id: bytes


PartitionStates = tuple[TopicPartition, bytes, LeaderAndIsrPartitionState]
"""Partition, topic id, state."""


async def states_in_turns(request: LeaderAndIsrRequest) -> AsyncIterator[PartitionStates]:
    """Yield what a request says about each partition, grouped by topic (version 2 and later) or not, in turns."""
    breather = Breather(makes_what_lasts=True)
    for state in _states_in_steps(request):
        if state is not None:
            yield state
        await breather.give_way()


def _states_in_steps(request: LeaderAndIsrRequest) -> Iterator[PartitionStates | None]:
    """Yield None for each topic as well: very many may have no partition."""
    for topic in request.topic_states:
        yield None
        for state in topic.partition_states:
            yield TopicPartition(topic.topic_name, state.partition_index), topic.topic_id, state
    for state in request.ungrouped_partition_states:
        yield TopicPartition(state.topic_name, state.partition_index), ZERO_TOPIC_ID, state


async def named_once(names: Callable[[], Iterator[TopicPartition | None]], lists: Any) -> AsyncIterator[TopicPartition]:
    """Yield the partitions of a request in turns, those that it repeats once.

    Args:
        names: yields them each time that it is called, and None for what is only a step.
        lists: makes the lists of a large request's answer.
    """
    repeated: Collection[TopicPartition] | None = None
    if lists is not None:
        repeated = await carry_out(lists.repeated(names))
    seen: set[TopicPartition] = set()
    breather = Breather(makes_what_lasts=True)
    for name in names():
        await breather.give_way()
        if name is None:
            continue
        if repeated is None or name in repeated:
            if name in seen:
                continue
            seen.add(name)
        yield name


async def leader_and_isr_refusal(
    request: LeaderAndIsrRequest, error: ErrorCode, api_version: int, lists: Any = None
) -> LeaderAndIsrResponse:
    """Return the answer that refuses the whole request."""
    return await _response(request, error, {}, api_version, lists)


async def become_leader_or_follower(
    manager: ReplicaManager, request: LeaderAndIsrRequest, *, correlation_id: int, api_version: int, lists: Any = None
) -> LeaderAndIsrResponse:
    """Carry a LeaderAndIsr request out. The caller checks broker epochs.

    Args:
        lists: makes the lists of a large request's answer (``AnswerLists``).
    """
    change = LeaderAndIsrChange(manager, request, correlation_id, api_version, lists)
    return await manager.undisturbed(change.carry_out)


class LeaderAndIsrChange:
    """One request under way."""

    def __init__(
        self, manager: ReplicaManager, request: LeaderAndIsrRequest, correlation_id: int, api_version: int, lists: Any
    ) -> None:
        self._manager = manager
        self._request = request
        self._api_version = api_version
        self._lists = lists
        self._log = manager.state_change_log
        self._errors: dict[TopicPartition, ErrorCode] = {}
        """Without partitions that have no replica here: a request may name very many."""
        self._leaders: list[_Wanted] = []
        self._followers: list[_Wanted] = []
        self._resigned: list[Partition] = []
        """Led here before; the new leader cannot be followed yet."""
        self._new_topic_ids: dict[TopicPartition, bytes] = {}
        self._breather = Breather(makes_what_lasts=True)
        self._correlation_id = correlation_id
        self._source = f"controller {request.controller_id} epoch {request.controller_epoch}"
        self._ignoring = (
            f"Ignoring LeaderAndIsr request from controller {request.controller_id} with correlation id "
            f"{correlation_id} epoch {request.controller_epoch} for partition "
        )

    async def carry_out(self) -> LeaderAndIsrResponse:
        """Apply the request and return its answer."""
        request, manager = self._request, self._manager
        started_ms = manager.clock.monotonic_ms()
        count = len(request.ungrouped_partition_states)
        for topic in request.topic_states:
            count += len(topic.partition_states)
            await self._breather.give_way()
        whom = f"correlationId {self._correlation_id} from controller {request.controller_id} for {count} partitions"
        self._log.info(f"Handling LeaderAndIsr request {whom}")
        if self._log.is_tracing:
            async for topic_partition, _, state in states_in_turns(request):
                self._log.trace(
                    f"Received LeaderAndIsr request {partition_state_text(topic_partition, state)} correlation id "
                    f"{self._correlation_id} from {self._source}"
                )
        if request.controller_epoch < manager.controller_epoch:
            self._log.warning(
                f"Ignoring LeaderAndIsr request from controller {request.controller_id} with correlation id "
                f"{self._correlation_id} since its controller epoch {request.controller_epoch} is old. Latest known "
                f"controller epoch is {manager.controller_epoch}"
            )
            response = await leader_and_isr_refusal(
                request, ErrorCode.STALE_CONTROLLER_EPOCH, self._api_version, self._lists
            )
        else:
            manager.controller_epoch = request.controller_epoch
            response = await self._apply()
        elapsed_ms = manager.clock.monotonic_ms() - started_ms
        self._log.info(f"Finished LeaderAndIsr request in {elapsed_ms}ms {whom}")
        return response

    async def _apply(self) -> LeaderAndIsrResponse:
        async for topic_partition, topic_id, state in states_in_turns(self._request):
            self._judge(topic_partition, topic_id, state)
        new_leaders = await self._make_leaders() if self._leaders else []
        new_followers = await self._make_followers() if self._followers else []
        self._manager.resume_log_dir_moves([*new_leaders, *new_followers])
        self._manager.fetchers.update_topic_ids(self._new_topic_ids)
        self._manager.fetchers.end_idle()
        self._manager.leadership_changed(new_leaders, [*new_followers, *self._resigned])
        return await _response(self._request, ErrorCode.NONE, self._errors, self._api_version, self._lists)

    # -- which partitions

    def _judge(self, topic_partition: TopicPartition, topic_id: bytes, state: LeaderAndIsrPartitionState) -> None:
        manager = self._manager
        if manager.is_offline(topic_partition):
            self._log.warning(
                f"{self._ignoring}{topic_partition} as the local replica for the partition is in an offline log "
                "directory"
            )
            self._errors[topic_partition] = ErrorCode.KAFKA_STORAGE_ERROR
            return
        partition = manager.partitions.get(topic_partition)
        known_id = manager.known_topic_id(topic_partition)
        leader_epoch = -1 if partition is None else partition.leader_epoch
        if ZERO_TOPIC_ID not in (topic_id, known_id) and topic_id != known_id:
            self._log.error(
                f"Topic ID in memory: {topic_id_text(known_id)} does not match the topic ID for partition "
                f"{topic_partition} received: {topic_id_text(topic_id)}."
            )
            self._errors[topic_partition] = ErrorCode.INCONSISTENT_TOPIC_ID
        elif state.leader_epoch > leader_epoch:
            self._accept(topic_partition, topic_id, state)
        elif state.leader_epoch < leader_epoch:
            self._log.warning(
                f"{self._ignoring}{topic_partition} since its associated leader epoch {state.leader_epoch} is smaller "
                f"than the current leader epoch {leader_epoch}"
            )
            self._errors[topic_partition] = ErrorCode.STALE_CONTROLLER_EPOCH
        else:
            self._errors[topic_partition] = self._same_epoch(topic_partition, topic_id, known_id, state)

    def _accept(self, topic_partition: TopicPartition, topic_id: bytes, state: LeaderAndIsrPartitionState) -> None:
        broker_id = self._manager.settings.broker_id
        if broker_id not in state.replicas:
            self._log.warning(
                f"{self._ignoring}{topic_partition} as itself is not in assigned replica list "
                f"{','.join(map(str, state.replicas[:REPLICAS_TOLD_MAX]))}"
            )
            if topic_partition in self._errors:
                self._errors[topic_partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return
        wanted = _Wanted(self._manager.host(topic_partition), state, topic_id)
        (self._leaders if state.leader == broker_id else self._followers).append(wanted)
        self._errors[topic_partition] = ErrorCode.NONE

    def _same_epoch(
        self, topic_partition: TopicPartition, topic_id: bytes, known_id: bytes, state: LeaderAndIsrPartitionState
    ) -> ErrorCode:
        """An upgraded controller gives topics an id, a downgraded one removes it, in the same epoch."""
        is_follower = state.leader != self._manager.settings.broker_id
        where = (
            f"LeaderAndIsr request from controller {self._request.controller_id} with correlation id "
            f"{self._correlation_id} epoch {self._request.controller_epoch}"
        )
        if topic_id != ZERO_TOPIC_ID and known_id == ZERO_TOPIC_ID:
            log = self._manager.log_of(topic_partition)
            if log is None:
                return ErrorCode.KAFKA_STORAGE_ERROR
            try:
                log.assign_topic_id(topic_id)
            except KafkaError as error:
                return error.code
            self._log.info(
                f"Updating log for {topic_partition} to assign topic ID {topic_id_text(topic_id)} from {where}"
            )
            if is_follower:
                self._new_topic_ids[topic_partition] = topic_id
            return ErrorCode.NONE
        if topic_id == ZERO_TOPIC_ID and known_id != ZERO_TOPIC_ID and is_follower:
            self._log.info(
                f"Updating PartitionFetchState for {topic_partition} to remove log topic ID {topic_id_text(known_id)} "
                f"since {where} did not contain a topic ID"
            )
            self._new_topic_ids[topic_partition] = ZERO_TOPIC_ID
            return ErrorCode.NONE
        self._log.info(
            f"{self._ignoring}{topic_partition} since its associated leader epoch {state.leader_epoch} matches the "
            "current leader epoch"
        )
        return ErrorCode.STALE_CONTROLLER_EPOCH

    # -- leaders

    async def _make_leaders(self) -> list[Partition]:
        self._trace_all("Handling", "starting", "leader", self._leaders)
        self._manager.fetchers.remove(wanted.partition.topic_partition for wanted in self._leaders)
        self._log.info(
            f"Stopped fetchers as part of LeaderAndIsr request correlationId {self._correlation_id} from "
            f"{self._source} as part of the become-leader transition for {len(self._leaders)} partitions"
        )
        new_leaders = []
        async for wanted, log in self._opened(self._leaders, "leader"):
            if log is None or not await self._settle(wanted, log, "leader"):
                continue
            if self._change_role(wanted, log, "leader"):
                new_leaders.append(wanted.partition)
        self._trace_all("Completed", "for", "leader", self._leaders)
        return new_leaders

    # -- followers

    async def _make_followers(self) -> list[Partition]:
        self._trace_all("Handling", "starting", "follower", self._followers)
        new_followers: list[tuple[_Wanted, Log]] = []
        async for wanted, log in self._opened(self._followers, "follower"):
            if log is not None and self._follow(wanted, log):
                new_followers.append((wanted, log))
        # Fetchers stop before their new positions are taken.
        names = [wanted.partition.topic_partition for wanted, _ in new_followers]
        self._manager.fetchers.remove(names)
        settled = [(wanted, log) for wanted, log in new_followers if await self._settle(wanted, log, "follower")]
        new_followers = [(wanted, log) for wanted, log in settled if self._is_hosted(wanted)]
        self._log.info(
            f"Stopped fetchers as part of become-follower request from {self._source} with correlation id "
            f"{self._correlation_id} for {len(names)} partitions"
        )
        if self._manager.is_shutting_down:
            self._trace_skipped_fetchers(new_followers)
        else:
            self._start_fetching(new_followers)
        self._trace_all("Completed", "for", "follower", self._followers)
        return [wanted.partition for wanted, _ in new_followers]

    def _follow(self, wanted: _Wanted, log: Log) -> bool:
        leader = wanted.state.leader
        partition = wanted.partition
        if self._manager.metadata_cache.has_alive_broker(leader):
            return self._change_role(wanted, log, "follower")
        self._log.error(
            f"Received LeaderAndIsrRequest with correlation id {self._correlation_id} from {self._source} for "
            f"partition {partition.topic_partition} (last update controller epoch {wanted.state.controller_epoch}) but "
            f"cannot become follower since the new leader {leader} is unavailable."
        )
        # The epoch stays what it was: the same state comes again once the leader is alive. Until then it has no leader
        # here, and the log counts in the high-watermark checkpoint.
        if partition.is_leader:
            self._resigned.append(partition)
        partition.log, partition.leader_log = log, None
        partition.changed()
        return False

    def _start_fetching(self, new_followers: list[tuple[_Wanted, Log]]) -> None:
        settings = self._manager.settings
        cuts_on_fetch = is_truncation_on_fetch_supported(settings.inter_broker_protocol_version)
        fetching: dict[TopicPartition, InitialFetchState] = {}
        for wanted, log in new_followers:
            leader = self._manager.metadata_cache.node(wanted.state.leader, settings.inter_broker_listener_name)
            topic_partition = wanted.partition.topic_partition
            if leader is None:
                self._log.error(
                    f"Cannot fetch partition {topic_partition}: its leader {wanted.state.leader} has no listener "
                    f"{settings.inter_broker_listener_name}"
                )
                continue
            knows_epochs = cuts_on_fetch and log.leader_epochs.latest_epoch != UNDEFINED_EPOCH
            offset = log.log_end_offset if knows_epochs else log.high_watermark
            fetching[topic_partition] = InitialFetchState(wanted.topic_id, leader, wanted.state.leader_epoch, offset)
        self._manager.fetchers.add(fetching)

    # -- both

    async def _opened(self, partitions: list[_Wanted], role: str) -> AsyncIterator[tuple[_Wanted, Log | None]]:
        """Yield each partition with its log, and give way to the event loop now and then.

        Threads create missing logs, because hundreds of folders keep a disk busy. They do so in portions, so that the
        first logs are led while the last ones are created.
        """
        manager = self._manager
        for start in range(0, len(partitions), CREATED_AT_ONCE_MAX):
            part = partitions[start : start + CREATED_AT_ONCE_MAX]
            can_tell_new = not manager.log_manager.offline_dirs
            creatable = (w for w in part if can_tell_new or w.state.is_new)
            await manager.create_logs(
                {w.partition.topic_partition: w.topic_id for w in creatable if self._is_hosted(w)}
            )
            for wanted in part:
                yield wanted, self._open_log(wanted, role)
                await self._breather.give_way()

    def _open_log(self, wanted: _Wanted, role: str) -> Log | None:
        topic_partition = wanted.partition.topic_partition
        if not self._is_hosted(wanted):
            return None
        try:
            return self._manager.open_log(topic_partition, wanted.topic_id, is_new=wanted.state.is_new)
        except KafkaError as error:
            self._failed(wanted, role, error)
            return None

    async def _settle(self, wanted: _Wanted, log: Log, role: str) -> bool:
        """Finish a cut of an earlier fetcher before the log is appended to again; return whether that succeeded."""
        while log.is_unsettled:
            try:
                await self._manager.settle_cuts([log])
            except KafkaError as error:
                self._failed(wanted, role, error)
                return False
        return True

    def _is_hosted(self, wanted: _Wanted) -> bool:
        """Return whether the replica is still here: its log dir may have failed while this request gave way."""
        topic_partition = wanted.partition.topic_partition
        if self._manager.partitions.get(topic_partition) is wanted.partition:
            return True
        self._errors[topic_partition] = ErrorCode.KAFKA_STORAGE_ERROR
        return False

    def _change_role(self, wanted: _Wanted, log: Log, role: str) -> bool:
        if not self._is_hosted(wanted):
            return False
        try:
            change = make_leader if role == "leader" else make_follower
            return change(wanted.partition, wanted.state, log)
        except KafkaError as error:
            self._failed(wanted, role, error)
            return False

    def _failed(self, wanted: _Wanted, role: str, error: KafkaError) -> None:
        topic_partition = wanted.partition.topic_partition
        with_leader = "" if role == "leader" else f" with leader {wanted.state.leader}"
        if error.code is ErrorCode.KAFKA_STORAGE_ERROR and not is_out_of_descriptors(error):
            self._log.error(
                f"Skipped the become-{role} state change with correlation id {self._correlation_id} from "
                f"{self._source} for partition {topic_partition} (last update controller epoch "
                f"{wanted.state.controller_epoch}){with_leader} since the replica for the partition is offline due to "
                f"storage error {error}"
            )
            self._manager.mark_offline(topic_partition)
        else:
            self._log.error(
                f"Error while processing LeaderAndIsr request correlationId {self._correlation_id} received from "
                f"{self._source} for partition {topic_partition}: {error}"
            )
            self._manager.forget_if_idle(topic_partition)
        self._errors[topic_partition] = error.code

    def _trace_all(self, verb: str, phase: str, role: str, partitions: list[_Wanted]) -> None:
        if not self._log.is_tracing:
            return
        for wanted in partitions:
            with_leader = "" if role == "leader" else f" with leader {wanted.state.leader}"
            self._log.trace(
                f"{verb} LeaderAndIsr request correlationId {self._correlation_id} from {self._source} {phase} the "
                f"become-{role} transition for partition {wanted.partition.topic_partition}{with_leader}"
            )

    def _trace_skipped_fetchers(self, partitions: list[tuple[_Wanted, Log]]) -> None:
        if not self._log.is_tracing:
            return
        for wanted, _ in partitions:
            self._log.trace(
                f"Skipped the adding-fetcher step of the become-follower state change with correlation id "
                f"{self._correlation_id} from {self._source} for partition {wanted.partition.topic_partition} with "
                f"leader {wanted.state.leader} since it is shutting down"
            )


async def _response(
    request: LeaderAndIsrRequest,
    error: ErrorCode,
    errors: dict[TopicPartition, ErrorCode],
    api_version: int,
    lists: Any,
) -> LeaderAndIsrResponse:
    """Return the answer, made in turns; the errors are freed.

    A partition without one gets the request's. If that is none, the partition has no replica here.
    """
    without, breather = error or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, Breather()
    partitions: list[LeaderAndIsrPartitionError] = []
    topics: list[LeaderAndIsrTopicError] = []
    if lists is not None and api_version >= FIRST_BY_TOPIC:
        topics = lists.of_topics()
    if api_version < FIRST_BY_TOPIC:
        partitions = [] if lists is None else lists.of_topics()

        def names() -> Iterator[TopicPartition | None]:
            return (state and state[0] for state in _states_in_steps(request))

        async for tp in named_once(names, lists):
            code = errors.get(tp, without)
            partitions.append(
                LeaderAndIsrPartitionError(topic_name=tp.topic, partition_index=tp.partition, error_code=code)
            )
    for topic in request.topic_states if api_version >= FIRST_BY_TOPIC else ():
        await breather.give_way()
        of_topic: list[LeaderAndIsrPartitionError] = [] if lists is None else lists.of_parts()
        for state in topic.partition_states:
            await breather.give_way()
            code = errors.get(TopicPartition(topic.topic_name, state.partition_index), without)
            of_topic.append(LeaderAndIsrPartitionError(partition_index=state.partition_index, error_code=code))
        if lists is not None:
            of_topic = lists.settled(of_topic)
        topics.append(LeaderAndIsrTopicError(topic_id=topic.topic_id, partition_errors=of_topic))
    Discards.of_loop().put(in_pieces(errors))
    return LeaderAndIsrResponse(error_code=error, partition_errors=partitions, topics=topics)
