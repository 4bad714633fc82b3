"""Topics over the wire: read from one Metadata answer and related requests, changed through the controller.

The wire shows neither zk versions nor topics that are marked for deletion. ``requests`` has the messages of changes.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress

from engine.admin.cluster.asking import ONLY_ANSWER_SHARE, beside_limit_s
from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import AdminError, FailureKind, NotFound, Refused, StillUnderWay, Unreachable
from engine.admin.cluster.remedies import SEE_TOPICS, Do, Give, Operation, Parameter, Part, Phrase, Words
from engine.admin.cluster.waits import Complain, Observer, ignore_line
from engine.admin.cluster.wire import RETRY_PAUSE_S, WireCluster, answer_limit_ms
from engine.admin.cluster.wire_failures import refuse
from engine.admin.configs.by_wire import alter_configs, read_effective, read_overrides
from engine.admin.configs.values import Entity, EntityType
from engine.admin.topics.changes import (
    NewTopic,
    ReplicaLists,
    TopicAlteration,
    TopicChange,
    TopicOutcome,
    check_brokers,
    marked_or_gone,
)
from engine.admin.topics.deletion import (
    known_topics,
    marked_topics,
    refused_while_marked,
    still_being_deleted,
    wait_until_gone,
)
from engine.admin.topics.selection import select_topics, topic_not_found
from engine.admin.topics.values import DEFAULT_MIN_ISR, TopicName, topic_name
from engine.common.assignment import lacking_rack
from engine.common.errors import ErrorCode
from engine.common.model import ReplicaAssignment, TopicPartition
from engine.common.snapshot import PartitionSnapshot, TopicSnapshot
from engine.common.topic_id import ZERO_TOPIC_ID, topic_id_text
from engine.common.topic_names import INTERNAL_TOPICS, invalid_topic_name
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from engine.kafka.protocol.apis.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
)
from engine.kafka.protocol.apis.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicState
from engine.kafka.protocol.apis.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from engine.kafka.protocol.apis.metadata import MetadataResponsePartition, MetadataResponseTopic

_GONE = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION)


class WireTopicReader:
    """Reads topics from brokers."""

    def __init__(
        self, wire: WireCluster, *, observe: Observer = ignore_line, on_unknown: Complain | None = None
    ) -> None:
        """With ``on_unknown``, report settings that no broker returns soon as unknown; else reading raises."""
        self._wire = wire
        self._observe = observe
        self._on_unknown = on_unknown

    async def names(self) -> list[TopicName]:
        response = await self._wire.metadata(None)
        names = sorted(topic.name for topic in response.topics if topic.name is not None)
        return [topic_name(name, False) for name in names]

    async def shapes(self, names: Sequence[str]) -> Mapping[str, tuple[int, int]]:
        response = await self._wire.metadata(names or None)
        return {
            topic.name or "": (len(topic.partitions), len(topic.partitions[0].replica_nodes))
            for topic in response.topics
            if topic.partitions
        }

    async def topics(self, names: Sequence[str]) -> list[TopicSnapshot]:
        if not names:
            return []
        response = await self._wire.metadata(names)
        answers = [topic for topic in response.topics if topic.error_code not in _GONE]
        for topic in answers:
            if topic.error_code != ErrorCode.LEADER_NOT_AVAILABLE:
                refuse(topic.error_code, None, f"topic {topic.name}")
        existing = sorted(topic.name for topic in answers if topic.name is not None)
        overrides = await read_overrides(self._wire, existing, self._on_unknown)
        reassignments = await self._reassignments() if existing else {}
        answers.sort(key=lambda topic: topic.name or "")
        return [topic_from_metadata(topic, overrides.get(topic.name or ""), reassignments) for topic in answers]

    async def _reassignments(self) -> dict[TopicPartition, ReplicaAssignment]:
        """Return what is under way; a controller that has just died must not prevent reading topics."""
        self._wire.lacks_moves = True
        try:
            moves = await read_reassignments(self._wire, limit_s=beside_limit_s(self._wire), is_patient=False)
            self._wire.lacks_moves = False
            return moves
        except Unreachable as error:
            tell = self._on_unknown or self._observe
            tell(f"reassignments are not known: {error}{f': {error.where}' if error.where else ''}")
            return {}
        except Refused as error:
            if error.kind is not FailureKind.AUTHORIZATION:
                raise
            # Whoever may describe a topic need not be allowed to describe the cluster. ``WireCluster.denied`` has it.
            self._observe(f"reassignments are not known: {error}")
            return {}

    async def live_brokers(self) -> frozenset[int]:
        return await self._wire.live_brokers()

    async def min_isr(self, topics: Sequence[TopicSnapshot]) -> Mapping[str, int]:
        names = [topic.name for topic in topics if topic.configs is not None]
        effective = await read_effective(self._wire, names, "min.insync.replicas", self._on_unknown)
        return {name: int(value or DEFAULT_MIN_ISR) for name, value in effective.items()}


async def read_reassignments(
    wire: WireCluster, *, limit_s: float | None = None, is_patient: bool = True, silence_s: float = math.inf
) -> dict[TopicPartition, ReplicaAssignment]:
    """Return the partitions that are being reassigned; none if the cluster is too old to report them.

    Raises:
        Unreachable: no controller answers within ``limit_s`` (None: most of the operation's time), or a live one does
        not within ``silence_s``, or (not ``is_patient``) it is gone and the next one is not elected yet.
    """
    request = ListPartitionReassignmentsRequest(topics=None)
    limit_s = wire.operation_s * ONLY_ANSWER_SHARE if limit_s is None else limit_s
    try:
        response: ListPartitionReassignmentsResponse = await wire.ask_controller(
            request, lambda r: [r.error_code], limit_s=limit_s, is_patient=is_patient, silence_s=silence_s
        )
    except Refused as error:
        if error.code is ErrorCode.UNSUPPORTED_VERSION:
            return {}
        raise
    refuse(response.error_code, response.error_message, "controller")
    return {
        TopicPartition(topic.name, p.partition_index): ReplicaAssignment(
            tuple(p.replicas), tuple(p.adding_replicas), tuple(p.removing_replicas)
        )
        for topic in response.topics
        for p in topic.partitions
    }


def topic_from_metadata(
    answer: MetadataResponseTopic,
    overrides: Mapping[str, str] | None,
    reassignments: Mapping[TopicPartition, ReplicaAssignment],
) -> TopicSnapshot:
    """Return a topic from Metadata and the other answers."""
    name = answer.name or ""
    partitions = sorted(answer.partitions, key=lambda partition: partition.partition_index)
    return TopicSnapshot(
        name=name,
        partitions=tuple(_partition(name, partition, reassignments) for partition in partitions),
        topic_id=None if answer.topic_id == ZERO_TOPIC_ID else answer.topic_id,
        configs=overrides,
    )


def _partition(
    topic: str, answer: MetadataResponsePartition, reassignments: Mapping[TopicPartition, ReplicaAssignment]
) -> PartitionSnapshot:
    index = answer.partition_index
    assignment = reassignments.get(TopicPartition(topic, index)) or ReplicaAssignment(tuple(answer.replica_nodes))
    return PartitionSnapshot(
        partition=index,
        assignment=assignment,
        leader=answer.leader_id,
        isr=tuple(answer.isr_nodes),
        leader_epoch=None if answer.leader_epoch < 0 else answer.leader_epoch,
        offline_replicas=tuple(answer.offline_replicas),
    )


HEARSAY_SHARE = 0.1
"""The share of a change's time for waiting until the last broker knows of it."""


MARK_SHARE = 0.2
"""The share of that time within which a deleted topic's replicas should be gone if their brokers are alive."""


class WireTopicChanger:
    """Changes topics through the controller."""

    def __init__(self, cluster: Cluster, wire: WireCluster) -> None:
        self._cluster = cluster
        self._wire = wire
        # Give the controller less time than the command, so that its answer comes before the command gives up.
        self._timeout_ms = int(cluster.timeout_s * 800)

    async def exists(self, name: str, *, if_exists: bool) -> bool:
        if await self._partition_count(name) is not None:
            return True
        if if_exists:
            return False
        if invalid_topic_name(name) is not None:
            raise NotFound(f"topic {name!r} does not exist", hint=SEE_TOPICS)
        await self._refuse_marked([name])
        raise topic_not_found([name])

    async def create(self, topic: NewTopic, *, if_not_exists: bool = False, validate_only: bool = False) -> TopicChange:
        if topic.assignment:
            check_brokers(topic.assignment, await self._wire.nodes())
        if not validate_only:
            await self._before_change(
                Phrase("the topic may still be created: ", Do(Operation.DESCRIBE_TOPIC, topic.name))
            )
        try:
            change = await create_topic(self._wire, topic, timeout_ms=self._timeout_ms, validate_only=validate_only)
        except Refused as refusal:
            if refusal.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                if topic.assignment:
                    raise
                places = Phrase(", or give ", Give(Parameter.REPLICA_ASSIGNMENT))
                raise await self._for_want_of_racks(refusal, places) from refusal.__cause__
            if topic.name in await self._marked([topic.name]):
                raise refused_while_marked(topic.name) from refusal
            if not if_not_exists:
                raise
            return TopicChange(topic.name, TopicOutcome.EXISTS)
        if change.result is TopicOutcome.CREATED:
            await self._wait_until_known([topic.name], lambda count: count is not None)
        return change

    async def alter(self, wanted: TopicAlteration, *, validate_only: bool = False) -> TopicChange:
        if not validate_only:
            self._cluster.check_may_change()
        count = wanted.partition_count
        entity = Entity(EntityType.TOPIC, wanted.name)
        if wanted.changes_configs and count is not None:
            # Two requests: the second one must not be refused when the first is done.
            await alter_configs(self._wire, entity, wanted.additions, wanted.deletions, validate_only=True)
        if count is not None:
            assignment = wanted.assignment_after(await self._partition_count(wanted.name) or 0)
            check_brokers(assignment or (), await self._wire.nodes())
            if not validate_only:
                look = Do(Operation.DESCRIBE_TOPIC, wanted.name)
                await self._before_change(Phrase("partitions may still be added: ", look))
            try:
                await add_partitions(
                    self._wire, wanted.name, count, assignment, timeout_ms=self._timeout_ms, validate_only=validate_only
                )
            except Refused as refusal:
                # This request asks for all racks even if it says where the replicas go.
                raise await self._for_want_of_racks(refusal) from refusal.__cause__
            if not validate_only:
                await self._wait_until_known([wanted.name], lambda known: known is not None and known >= count)
        if wanted.changes_configs:
            await alter_configs(self._wire, entity, wanted.additions, wanted.deletions, validate_only=validate_only)
        outcome = TopicOutcome.WOULD_BE_ALTERED if validate_only else TopicOutcome.ALTERED
        return TopicChange(wanted.name, outcome, partition_count=count)

    async def to_be_deleted(self, texts: Sequence[str], *, if_exists: bool) -> list[str]:
        selection = select_topics(texts)
        controller = await self._wire.reachable_controller_id()
        names = None if selection.wants_list else selection.names
        response = await self._wire.metadata(names, broker_id=controller)
        known = [t.name for t in response.topics if t.name and t.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        missing = selection.unmatched(known)
        if missing and not if_exists:
            await self._refuse_marked(missing)
            existing: list[str] = []
            with suppress(AdminError):
                every = await self._wire.metadata(None, broker_id=controller)
                existing = [topic.name for topic in every.topics if topic.name]
            raise topic_not_found(missing, existing)
        return [name for name in selection.choose(known) if name in selection.names or name not in INTERNAL_TOPICS]

    async def delete(self, names: Sequence[str], *, waits: bool) -> tuple[list[TopicChange], Sequence[AdminError]]:
        await self._before_change(Phrase("the topics may still be deleted; check with: ", Operation.LIST_TOPICS))
        replicas = await known_topics(self._wire, names)
        changes, refusals = await delete_topics(self._wire, names, timeout_ms=self._timeout_ms, waits=waits)
        gone = [change.topic for change in changes if change.result is TopicOutcome.DELETED]
        slow = {change.topic for change in changes} - set(gone)
        await self._wait_until_known(gone, lambda count: count is None)

        async def left_of(names: Sequence[str]) -> Collection[str]:
            known = await known_topics(self._wire, [name for name in names if name in slow])
            return {*known, *await self._marked(names)}

        limit_s = self._timeout_ms * MARK_SHARE / 1000 if waits else 0.0
        accepted = [change.topic for change in changes]
        left = await wait_until_gone(accepted, replicas, left_of, self._wire.live_brokers, limit_s)
        return [marked_or_gone(change, left) for change in changes], refusals

    async def _for_want_of_racks(self, refusal: Refused, *other_way: Part) -> Refused:
        """Add to a refusal which brokers have no rack while others do: Kafka does not say why it places no replicas.

        That of KRaft places them all the same.
        """
        if refusal.code is not ErrorCode.UNKNOWN_SERVER_ERROR:
            return refusal
        with suppress(AdminError):
            lacking = lacking_rack({broker: node.rack for broker, node in (await self._wire.nodes()).items()})
            if lacking and not await self._wire.is_kraft():
                which = f"other brokers have racks and {', '.join(map(str, lacking))} none, so Kafka places no replicas"
                refusal.hint = Phrase(which, ": set broker.rack and restart", *other_way)
        return refusal

    async def _refuse_marked(self, names: Sequence[str]) -> None:
        """Raise StillUnderWay if one of these topics, which brokers do not know, is marked for deletion."""
        for name in sorted(await self._marked(names)):
            raise still_being_deleted(name)

    async def _marked(self, names: Sequence[str]) -> Collection[str]:
        return await marked_topics(self._cluster, names, limit_s=self._timeout_ms * MARK_SHARE / 1000)

    async def _before_change(self, what_goes_on: Words) -> None:
        """Find the controller, then note that what is sent now may be carried out whatever happens to this process."""
        await self._wire.reachable_controller_id()
        self._cluster.accepted(what_goes_on)

    async def _partition_count(self, name: str, broker_id: int | None = None) -> int | None:
        """Return a topic's partition count as a broker, by default the controller, knows it; None: unknown topic."""
        if invalid_topic_name(name) is not None:
            # A broker looks at rights first, and would say that one is missing on it.
            return None
        asked = await self._wire.reachable_controller_id() if broker_id is None else broker_id
        response = await self._wire.metadata([name], broker_id=asked)
        topics = [topic for topic in response.topics if topic.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        return len(topics[0].partitions) if topics else None

    async def _wait_until_known(self, names: Sequence[str], is_known: Callable[[int | None], bool]) -> None:
        """Wait until every broker knows of a change, so that the next command sees it whichever broker it asks.

        The controller notifies them one after the other, and answers when the first one knows. This does not wait long
        for a broker that is slow or unreachable: the change is done.
        """
        try:
            async with asyncio.timeout(self._timeout_ms * HEARSAY_SHARE / 1000):
                for broker_id in list(await self._wire.nodes()):
                    for name in names:
                        await self._wait_for_broker(broker_id, name, is_known)
        except (TimeoutError, Unreachable, NotFound) as error:
            self._cluster.observe(f"not every broker knows of it yet ({str(error) or 'a broker is slow'})")

    async def _wait_for_broker(self, broker_id: int, name: str, is_known: Callable[[int | None], bool]) -> None:
        while True:
            if is_known(await self._partition_count(name, broker_id)):
                return
            await asyncio.sleep(RETRY_PAUSE_S)


# Creates, alters and deletes topics over the wire: CreateTopics, CreatePartitions, DeleteTopics at the controller.


async def create_topic(
    wire: WireCluster, topic: NewTopic, *, timeout_ms: int, validate_only: bool = False
) -> TopicChange:
    """Create a topic, or only have the cluster check that it could be created.

    Raises:
        Refused: the cluster rejects it; the message is the cluster's.
        StillUnderWay: it was accepted, and its partitions have no leader yet.
    """
    request = CreateTopicsRequest(topics=[_creatable(topic)], timeout_ms=timeout_ms, validate_only=validate_only)
    response = await wire.call_controller(
        request, lambda r: [t.error_code for t in r.topics], timeout_ms=answer_limit_ms(timeout_ms)
    )
    result: CreatableTopicResult = response.topics[0]
    if result.error_code == ErrorCode.REQUEST_TIMED_OUT and not validate_only:
        raise StillUnderWay(
            "accepted, but not all partitions have a leader yet",
            where=f"topic {topic.name}",
            hint=Do(Operation.DESCRIBE_TOPIC, topic.name),
        )
    refuse(result.error_code, result.error_message, f"topic {topic.name}")
    return TopicChange(
        topic.name,
        TopicOutcome.WOULD_BE_CREATED if validate_only else TopicOutcome.CREATED,
        None if result.topic_id == ZERO_TOPIC_ID else topic_id_text(result.topic_id),
        _positive(result.num_partitions) or topic.partition_count or len(topic.assignment) or None,
        _positive(result.replication_factor) or topic.replication_factor or _factor(topic.assignment),
    )


async def add_partitions(
    wire: WireCluster,
    topic: str,
    count: int,
    assignment: ReplicaLists | None,
    *,
    timeout_ms: int,
    validate_only: bool = False,
) -> None:
    """Grow a topic to ``count`` partitions; ``assignment`` is that of the new ones.

    Raises:
        NotFound: there is no such topic.
        Refused: the cluster rejects it, for example because there are as many already.
        StillUnderWay: it was accepted, and the new partitions have no leader yet.
    """
    assignments = None
    if assignment is not None:
        assignments = [CreatePartitionsAssignment(broker_ids=list(replicas)) for replicas in assignment]
    request = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=topic, count=count, assignments=assignments)],
        timeout_ms=timeout_ms,
        validate_only=validate_only,
    )
    response = await wire.call_controller(
        request, lambda r: [t.error_code for t in r.results], timeout_ms=answer_limit_ms(timeout_ms)
    )
    result = response.results[0]
    if result.error_code == ErrorCode.REQUEST_TIMED_OUT and not validate_only:
        message = "accepted, but not all new partitions have a leader yet"
        raise StillUnderWay(message, where=f"topic {topic}", hint=Do(Operation.DESCRIBE_TOPIC, topic))
    refuse(result.error_code, result.error_message, f"topic {topic}")


async def delete_topics(
    wire: WireCluster, names: Sequence[str], *, timeout_ms: int, waits: bool = True
) -> tuple[list[TopicChange], list[Refused | NotFound]]:
    """Delete topics; return the outcome for each, and the refusals.

    Without ``waits`` the answer comes as soon as the controller has accepted the deletion.
    """
    client = await wire.client_of(await wire.reachable_controller_id())
    version = await wire.version(client, ApiKey.DELETE_TOPICS)
    request = _delete_request(names, version, timeout_ms if waits else 0)
    response = await wire.call_controller(
        request, lambda r: [t.error_code for t in r.responses], timeout_ms=answer_limit_ms(timeout_ms)
    )
    changes: list[TopicChange] = []
    refusals: list[Refused | NotFound] = []
    for result in sorted(response.responses, key=lambda r: r.name or ""):
        _sort_out(result, changes, refusals)
    return changes, refusals


def _sort_out(result: DeletableTopicResult, changes: list[TopicChange], refusals: list[Refused | NotFound]) -> None:
    name = result.name or topic_id_text(result.topic_id)
    if result.error_code == ErrorCode.REQUEST_TIMED_OUT:
        changes.append(TopicChange(name, TopicOutcome.MARKED_FOR_DELETION))
        return
    try:
        refuse(result.error_code, result.error_message, f"topic {name}")
    except (Refused, NotFound) as error:
        refusals.append(error)
    else:
        changes.append(TopicChange(name, TopicOutcome.DELETED))


def _delete_request(names: Sequence[str], version: int, timeout_ms: int) -> DeleteTopicsRequest:
    """Return the request with the names in that version's field."""
    if version >= 6:
        return DeleteTopicsRequest(topics=[DeleteTopicState(name=name) for name in names], timeout_ms=timeout_ms)
    return DeleteTopicsRequest(topic_names=list(names), timeout_ms=timeout_ms)


def _creatable(topic: NewTopic) -> CreatableTopic:
    assignments = [
        CreatableReplicaAssignment(partition_index=index, broker_ids=list(replicas))
        for index, replicas in enumerate(topic.assignment)
    ]
    return CreatableTopic(
        name=topic.name,
        num_partitions=-1 if topic.partition_count is None else topic.partition_count,
        replication_factor=-1 if topic.replication_factor is None else topic.replication_factor,
        assignments=assignments,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in topic.configs.items()],
    )


def _positive(number: int) -> int | None:
    return number if number > 0 else None


def _factor(assignment: ReplicaLists) -> int | None:
    return len(assignment[0]) if assignment else None
