"""Requests with very many groups or partitions are answered in turns with other work, as small requests are."""

from __future__ import annotations

import asyncio
import gc
import inspect
import struct
from collections import Counter
from collections.abc import Callable, Generator
from types import SimpleNamespace
from typing import Any

import pytest
from event_loop import in_event_loop
from hypothesis import given
from hypothesis import strategies as st

from engine.broker.controller.events import SUCCESS, ListPartitionReassignments
from engine.broker.handlers import produce
from engine.broker.handlers.acls import create_acls, delete_acls
from engine.broker.handlers.add_partitions_to_txn import add_partitions_to_txn
from engine.broker.handlers.alter_client_quotas import alter_client_quotas
from engine.broker.handlers.alter_configs import alter_configs
from engine.broker.handlers.alter_partition import alter_partition
from engine.broker.handlers.alter_partition_reassignments import alter_partition_reassignments
from engine.broker.handlers.alter_replica_log_dirs import alter_replica_log_dirs
from engine.broker.handlers.config_resources import ResourceType
from engine.broker.handlers.create_partitions import create_partitions
from engine.broker.handlers.create_topics import create_topics
from engine.broker.handlers.delete_groups import delete_groups
from engine.broker.handlers.delete_records import delete_records
from engine.broker.handlers.delete_topics import delete_topics
from engine.broker.handlers.describe_configs import describe_configs
from engine.broker.handlers.describe_groups import describe_groups
from engine.broker.handlers.describe_log_dirs import describe_log_dirs
from engine.broker.handlers.describe_producers import describe_producers
from engine.broker.handlers.find_coordinator import find_coordinator
from engine.broker.handlers.in_turns import AT_ONCE_MAX, PER_STEP, carried_out, each, each_part, pieces
from engine.broker.handlers.incremental_alter_configs import incremental_alter_configs
from engine.broker.handlers.leave_group import leave_group
from engine.broker.handlers.list_partition_reassignments import list_partition_reassignments
from engine.broker.handlers.new_group_protocol import describe as describe_new_groups
from engine.broker.handlers.offset_fetch import offset_fetch
from engine.broker.handlers.offset_for_leader_epoch import offset_for_leader_epoch
from engine.broker.handlers.registry import all_handlers
from engine.broker.handlers.sync_group import sync_group
from engine.broker.handlers.topic_guards import guard_produce
from engine.broker.handlers.txn_offset_commit import txn_offset_commit
from engine.broker.handlers.update_features import update_features
from engine.broker.handlers.user_scram_credentials import alter_user_scram_credentials
from engine.broker.handlers.write_txn_markers import write_txn_markers
from engine.broker.quotas.client_quotas import UNLIMITED
from engine.common.errors import ErrorCode, KafkaError
from engine.common.model import LeaderAndIsr, ReplicaAssignment, TopicPartition
from engine.kafka.config.metadata_version import MetadataVersion
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from engine.kafka.protocol.apis.alter_client_quotas import (
    AlterClientQuotasRequest,
    RequestEntityData,
    RequestEntryData,
)
from engine.kafka.protocol.apis.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from engine.kafka.protocol.apis.alter_partition import AlterPartitionRequest, RequestPartitionData, RequestTopicData
from engine.kafka.protocol.apis.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from engine.kafka.protocol.apis.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from engine.kafka.protocol.apis.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from engine.kafka.protocol.apis.consumer_group_describe import ConsumerGroupDescribeRequest
from engine.kafka.protocol.apis.create_acls import AclCreation, CreateAclsRequest
from engine.kafka.protocol.apis.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from engine.kafka.protocol.apis.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from engine.kafka.protocol.apis.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from engine.kafka.protocol.apis.delete_groups import DeletableGroupResult, DeleteGroupsRequest
from engine.kafka.protocol.apis.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from engine.kafka.protocol.apis.delete_topics import DeleteTopicsRequest, DeleteTopicState
from engine.kafka.protocol.apis.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from engine.kafka.protocol.apis.describe_groups import DescribeGroupsRequest
from engine.kafka.protocol.apis.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from engine.kafka.protocol.apis.describe_producers import DescribeProducersRequest, TopicRequest
from engine.kafka.protocol.apis.find_coordinator import FindCoordinatorRequest
from engine.kafka.protocol.apis.incremental_alter_configs import AlterableConfig as IncrementalConfig
from engine.kafka.protocol.apis.incremental_alter_configs import AlterConfigsResource as IncrementalResource
from engine.kafka.protocol.apis.incremental_alter_configs import IncrementalAlterConfigsRequest
from engine.kafka.protocol.apis.leave_group import LeaveGroupRequest
from engine.kafka.protocol.apis.leave_group import MemberIdentity as LeaveMember
from engine.kafka.protocol.apis.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from engine.kafka.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from engine.kafka.protocol.apis.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from engine.kafka.protocol.apis.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from engine.kafka.protocol.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from engine.kafka.protocol.apis.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from engine.kafka.protocol.apis.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from engine.kafka.protocol.apis.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from engine.kafka.protocol.apis.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from engine.kafka.protocol.codec import decoder
from engine.kafka.protocol.frames import encode_request
from engine.kafka.protocol.large_arrays import LazyArray
from engine.kafka.protocol.wire import STRING_BYTES_MAX
from engine.runtime.purgatory import Purgatory
from engine.runtime.turns import Breather

MANY = 3 * AT_ONCE_MAX
NAMES = [f"g{number}" for number in range(MANY)]


def unknown_partition(*_: object) -> None:
    raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def context() -> Any:
    """Return the context of a request to a broker without groups, topics and a coordinator."""
    nothing = SimpleNamespace(state="Dead", protocol_type="", protocol_name="", members=[])

    def delete_group(_: str) -> Generator[None, None, ErrorCode]:
        yield from ()
        return ErrorCode.GROUP_ID_NOT_FOUND

    groups = SimpleNamespace(
        describe=lambda _: (ErrorCode.NONE, nothing),
        delete_group=delete_group,
        partition_for=lambda _: 0,
    )
    cache = SimpleNamespace(partitions=lambda _: {0: None}, partition_info=lambda _: None, check_has=lambda *_: None)
    environment = SimpleNamespace(topics=SimpleNamespace(produce_errors=Counter()))
    replicas = SimpleNamespace(
        partition=unknown_partition, delayed_delete_records=Purgatory("test"), environment=environment
    )
    broker = SimpleNamespace(
        broker_id=0,
        group_coordinator=groups,
        metadata_cache=cache,
        replica_manager=replicas,
        controller=SimpleNamespace(is_active=True),
        config=SimpleNamespace(inter_broker_protocol_version=MetadataVersion.IBP_3_9_IV0),
    )
    return SimpleNamespace(api_version=4, broker=broker, size_bytes=0, session=SimpleNamespace(commits=[]))


REQUESTS: dict[str, tuple[Callable[[Any, Any], Any], Callable[[list[str]], Any], Callable[[Any], list[Any]]]] = {
    "FindCoordinator": (
        find_coordinator,
        lambda names: FindCoordinatorRequest(coordinator_keys=names),
        lambda answer: [coordinator.key for coordinator in answer.coordinators],
    ),
    "DescribeGroups": (
        describe_groups,
        lambda names: DescribeGroupsRequest(groups=names),
        lambda answer: [group.group_id for group in answer.groups],
    ),
    "DeleteGroups": (
        delete_groups,
        lambda names: DeleteGroupsRequest(groups_names=[*names, names[0]]),
        lambda answer: [result.group_id for result in answer.results],
    ),
    "ConsumerGroupDescribe": (
        describe_new_groups,
        lambda names: ConsumerGroupDescribeRequest(group_ids=names),
        lambda answer: [group.group_id for group in answer.groups],
    ),
    "UpdateFeatures": (
        update_features,
        lambda names: UpdateFeaturesRequest(feature_updates=[FeatureUpdateKey(feature=name) for name in names]),
        lambda answer: [result.feature for result in answer.results],
    ),
    "OffsetForLeaderEpoch, one topic": (
        offset_for_leader_epoch,
        lambda names: OffsetForLeaderEpochRequest(
            topics=[OffsetForLeaderTopic(topic="t", partitions=[OffsetForLeaderPartition(partition=p) for p, _ in one])]
            if (one := list(enumerate(names)))
            else []
        ),
        lambda answer: [NAMES[p.partition] for topic in answer.topics for p in topic.partitions],
    ),
    "DeleteRecords": (
        delete_records,
        lambda names: DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=name, partitions=[DeleteRecordsPartition()]) for name in names]
        ),
        lambda answer: [topic.name for topic in answer.topics],
    ),
    "DescribeProducers": (
        describe_producers,
        lambda names: DescribeProducersRequest(
            topics=[TopicRequest(name=name, partition_indexes=[0]) for name in names]
        ),
        lambda answer: [topic.name for topic in answer.topics],
    ),
}


@pytest.mark.parametrize("name", REQUESTS)
@in_event_loop
async def test_very_many_are_answered_in_turns(name: str) -> None:
    """Each request with 200,000 of them used to block everybody for half a second or more."""
    handler, request_of, named = REQUESTS[name]
    few = NAMES[:10]
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr("engine.runtime.turns.HOLD_MS_MAX", 60_000)
        at_once = handler(context(), request_of(few))
    assert not inspect.isawaitable(at_once) and named(at_once) == few
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr("engine.runtime.turns.HOLD_MS_MAX", 0)
        answering = asyncio.ensure_future(handler(context(), request_of(NAMES)))
        turns = 0
        while not answering.done():
            turns += 1
            await asyncio.sleep(0)
    answer = await answering
    assert named(getattr(answer, "response", answer)) == NAMES
    assert turns >= MANY


@in_event_loop
async def test_the_answer_about_very_many_deleted_groups_is_made_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """To make it at once, for 200,000 groups, held the loop for 90 ms."""
    made = 0

    def counted(**values: Any) -> DeletableGroupResult:
        nonlocal made
        made += 1
        return DeletableGroupResult(**values)

    monkeypatch.setattr("engine.broker.handlers.delete_groups.DeletableGroupResult", counted)
    monkeypatch.setattr("engine.runtime.turns.HOLD_MS_MAX", 0)
    answering: Any = asyncio.ensure_future(delete_groups(context(), DeleteGroupsRequest(groups_names=NAMES)))  # type: ignore[arg-type]
    in_a_turn = []
    while not answering.done():
        before = made
        await asyncio.sleep(0)
        in_a_turn.append(made - before)
    assert made == len((await answering).response.results) == MANY
    assert max(in_a_turn) <= 2


@pytest.mark.parametrize("is_incremental", [False, True])
@in_event_loop
async def test_settings_of_very_many_resources_are_changed_in_turns(is_incremental: bool) -> None:
    resource: Any = IncrementalResource if is_incremental else AlterConfigsResource
    resources = [resource(resource_name=name) for name in NAMES]
    request: Any = IncrementalAlterConfigsRequest if is_incremental else AlterConfigsRequest
    handler: Any = incremental_alter_configs if is_incremental else alter_configs
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr("engine.runtime.turns.HOLD_MS_MAX", 0)
        answering = asyncio.ensure_future(handler(context(), request(resources=resources)))
        turns = 0
        while not answering.done():
            turns += 1
            await asyncio.sleep(0)
    answer = await answering
    assert [response.resource_name for response in answer.responses] == NAMES
    assert {response.error_code for response in answer.responses} == {ErrorCode.INVALID_REQUEST}
    # One yield each to read them, change them and answer.
    assert turns >= 3 * MANY
    settings = [IncrementalConfig(name=name) if is_incremental else AlterableConfig(name=name) for name in NAMES]
    answer, turns = await turns_of(handler(context(), request(resources=[resource(configs=settings)])))
    (refused,) = answer.responses
    assert refused.error_message == f"Null value not supported for : {', '.join(NAMES)}"
    # Two passes each to read one, and as many for each piece that is checked. The resource takes a few more.
    assert turns >= 2 * (MANY + MANY / AT_ONCE_MAX) + 4


async def turns_of(answering: Any) -> tuple[Any, int]:
    """Return an answer, and how often other tasks had their turn meanwhile."""
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr("engine.runtime.turns.HOLD_MS_MAX", 0)
        task, turns = asyncio.ensure_future(answering), 0
        while not task.done():
            turns += 1
            await asyncio.sleep(0)
    return await task, turns


@given(st.lists(st.lists(st.booleans(), max_size=4), max_size=8), st.sampled_from([0, 2**20]))
@in_event_loop
async def test_a_request_that_names_nothing_twice_is_answered_like_others(
    kinds: list[list[bool]], size_bytes: int
) -> None:
    """Partitions with records come first, and those without have less to wait for: nobody keeps their answers."""
    batch = memoryview(struct.pack(">8xi4xb", 88, 2).ljust(100, b"\0"))
    topics = [
        TopicProduceData(
            name=f"t{number}",
            partition_data=[
                PartitionProduceData(index=index, records=batch if has_records else None)
                for index, has_records in enumerate(partitions)
            ],
        )
        for number, partitions in enumerate(kinds)
    ]
    request, where = ProduceRequest(acks=1, topic_data=topics), context()
    where.size_bytes = size_bytes

    each, last_of_each = [
        list(await append(where, request, produce._Outcome(None), Breather()))
        for append in (produce._append_each_in_turns, produce._append_last_of_each_in_turns)
    ]
    assert each == last_of_each


@in_event_loop
async def test_records_for_very_many_partitions_are_taken_in_turns() -> None:
    batch = struct.pack(">8xi4xb", 88, 2).ljust(100, b"\0")
    data = [PartitionProduceData(index=p % (MANY - 1), records=memoryview(batch)) for p in range(MANY)]
    request = ProduceRequest(acks=1, topic_data=[TopicProduceData(name="t", partition_data=data)])
    where = context()
    handler: Any = all_handlers()[ApiKey.PRODUCE].large_handler
    answer, turns = await turns_of(handler(where, request))
    assert [p.index for t in answer.responses for p in t.partition_responses] == list(range(MANY - 1))
    assert turns >= MANY - 1
    # One senseless batch spoils the whole request, whichever piece it is in.
    data[-1].records = memoryview(struct.pack(">8xi4xb", 1, 2))
    answer, turns = await turns_of(handler(where, request))
    codes = {p.error_code for t in answer.responses for p in t.partition_responses}
    assert codes == {ErrorCode.CORRUPT_MESSAGE} and turns >= MANY / AT_ONCE_MAX


@in_event_loop
async def test_very_many_offsets_are_committed_in_turns() -> None:
    """Each missing partition has an error of its own. A topic that is named twice gets one answer."""
    asked = [OffsetCommitRequestPartition(partition_index=p, committed_offset=p) for p in range(MANY)]
    topics = [OffsetCommitRequestTopic(name="t", partitions=some) for some in (asked, asked[:1])]
    request = OffsetCommitRequest(group_id="g", topics=topics)
    where = context()
    committed: list[int] = []

    def commit(group_id: str, committer: object, offsets: Any, done: Any, prepared: Any) -> None:
        committed.extend(value.offset for value in offsets.values())
        asyncio.get_running_loop().call_soon(
            done, ErrorCode.NONE, {TopicPartition("t", 1): ErrorCode.UNKNOWN_SERVER_ERROR}
        )

    where.broker.metadata_cache.partitions = lambda _: range(MANY - 1)
    where.broker.clock = SimpleNamespace(now_ms=lambda: 0)
    where.broker.config = SimpleNamespace(is_older_than=lambda _: False)
    where.broker.group_coordinator.offsets = SimpleNamespace(commit=commit, prepare=lambda *_: None)
    handler: Any = all_handlers()[ApiKey.OFFSET_COMMIT].large_handler
    answer, turns = await turns_of(handler(where, request))
    assert committed == list(range(MANY - 1))
    (topic,) = answer.topics
    errors = {p.partition_index: p.error_code for p in topic.partitions if p.error_code}
    assert errors == {1: ErrorCode.UNKNOWN_SERVER_ERROR, MANY - 1: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert len(topic.partitions) == MANY
    # One yield each to check them and to answer.
    assert turns >= 2 * MANY / AT_ONCE_MAX


@in_event_loop
async def test_very_many_assignments_are_read_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """200,000 held the loop for 50 ms of CPU."""
    where, synced = context(), list[Any]()
    where.broker.group_coordinator.sync = lambda group_id, syncing, answer: synced.append(syncing)
    assignments = [SyncGroupRequestAssignment(member_id=name, assignment=memoryview(b"a")) for name in NAMES]
    request = SyncGroupRequest(group_id="g", protocol_type="consumer", protocol_name="range", assignments=assignments)
    where.api_version = 5
    few = SyncGroupRequest(group_id="g", protocol_type="", protocol_name="", assignments=assignments[:1])
    assert not sync_group(where, few).is_complete and len(synced.pop().assignments) == 1, "at once"
    monkeypatch.setattr("engine.runtime.turns.HOLD_MS_MAX", 0)
    _, turns = await turns_of(sync_group(where, request))
    assert synced[0].assignments == dict.fromkeys(NAMES, b"a") and turns >= 2 * (MANY / AT_ONCE_MAX - 1)


@in_event_loop
async def test_very_many_offsets_in_zookeeper_are_fetched_in_turns() -> None:
    """200,000 in version 0 held the loop for 228 ms of CPU."""
    where = context()
    where.api_version, where.broker.metadata_cache.contains = 0, lambda _: False

    async def nothing(_: object) -> dict[Any, Any]:
        return {}

    where.broker.zk = SimpleNamespace(consumers=SimpleNamespace(get_consumer_offsets=nothing))
    asked = [OffsetFetchRequestTopic(name=name, partition_indexes=list(range(MANY))) for name in ("t", "u")]
    answer, turns = await turns_of(offset_fetch(where, OffsetFetchRequest(group_id="g", topics=asked)))
    assert [(topic.name, [p.partition_index for p in topic.partitions]) for topic in answer.topics] == [
        (name, list(range(MANY))) for name in ("t", "u")
    ]
    assert {p.error_code for p in answer.topics[0].partitions} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert turns >= 2 * MANY / AT_ONCE_MAX


@in_event_loop
async def test_very_many_replicas_are_described_in_turns() -> None:
    request = DescribeLogDirsRequest(topics=[DescribableLogDirTopic(topic="t", partitions=list(range(MANY)))])
    where = context()
    where.broker.log_manager = SimpleNamespace(live_dirs=[], offline_dirs=[], logs={}, future_logs={})
    answer, turns = await turns_of(describe_log_dirs(where, request))
    assert answer.results == [] and turns >= MANY / AT_ONCE_MAX


@in_event_loop
async def test_moves_of_very_many_replicas_are_answered_in_turns() -> None:
    topics = [AlterReplicaLogDirTopic(name="t", partitions=list(range(MANY)))]
    request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path="/nowhere", topics=topics)])
    where = context()

    async def undisturbed(change: Any) -> dict[TopicPartition, ErrorCode]:
        _, wanted = change.args
        return dict.fromkeys(wanted, ErrorCode.NONE)

    where.broker.replica_manager.undisturbed = undisturbed
    answer, turns = await turns_of(alter_replica_log_dirs(where, request))
    assert [p.partition_index for t in answer.results for p in t.partitions] == list(range(MANY))
    assert turns >= MANY / AT_ONCE_MAX


@in_event_loop
async def test_members_of_a_group_leave_piece_by_piece() -> None:
    left: list[list[str]] = []

    def leave(group_id: str, members: list[Any]) -> tuple[ErrorCode, list[ErrorCode]]:
        left.append([member.member_id for member in members])
        is_there = len(left) < 3
        return (ErrorCode.NONE, [ErrorCode.NONE] * len(members)) if is_there else (ErrorCode.NOT_COORDINATOR, [])

    where = context()
    where.broker.group_coordinator.leave = leave
    few, many = NAMES[: 2 * AT_ONCE_MAX], NAMES
    answer = await leave_of(where, few)
    assert [member.member_id for member in answer.members] == few and not answer.error_code
    assert [len(names) for names in left] == [AT_ONCE_MAX] * 2
    answer = await leave_of(where, many)
    assert (answer.error_code, answer.members) == (ErrorCode.NOT_COORDINATOR, [])


async def leave_of(where: Any, names: list[str]) -> Any:
    members = [LeaveMember(member_id=name) for name in names]
    return await leave_group(where, LeaveGroupRequest(group_id="g", members=members))  # type: ignore[misc]


@in_event_loop
async def test_steps_that_take_long_go_on_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.runtime.turns.HOLD_MS_MAX", 60_000)
    assert carried_out(each(range(MANY), abs)) == list(range(MANY))
    monkeypatch.setattr("engine.runtime.turns.HOLD_MS_MAX", 0)
    answer, turns = await turns_of(carried_out(each(range(-MANY, 0), abs)))
    assert answer.response == list(range(MANY, 0, -1)) and turns >= MANY - 1
    # A topic counts as a partition does: very many topics without partitions take as long.
    steps = each_part([()] * MANY, lambda topic: topic, lambda *_: None, lambda topic, _: topic)
    answer, turns = await turns_of(carried_out(steps))
    assert answer.response == [()] * MANY and turns >= MANY - 1


def test_topics_without_partitions_are_pieces_too() -> None:
    """A million of them used to pass in one go."""
    topics = [TopicRequest(name="a", partition_indexes=[]), TopicRequest(name="b", partition_indexes=range(MANY))]
    cut = [(topic.name, list(topic.partition_indexes)) for topic in pieces(topics, "partition_indexes")]
    assert [(name, len(indexes)) for name, indexes in cut] == [("a", 0)] + [("b", AT_ONCE_MAX)] * 3
    assert [index for _, indexes in cut for index in indexes] == list(range(MANY))


@in_event_loop
async def test_reassignments_of_very_many_partitions_are_answered_in_turns() -> None:
    """Both altering reassignments and listing them."""
    assignment = ReplicaAssignment((1, 2), (2,), (1,))

    async def ask(event: Any) -> Any:
        is_listing = isinstance(event, ListPartitionReassignments)
        return dict.fromkeys(event.partitions, assignment) if is_listing else dict.fromkeys(event.targets, SUCCESS)

    where = context()
    where.broker.controller = SimpleNamespace(ask=ask)
    named = [ListPartitionReassignmentsTopics(name="t", partition_indexes=list(range(MANY)))]
    listed, turns = await turns_of(list_partition_reassignments(where, ListPartitionReassignmentsRequest(topics=named)))
    assert [p.partition_index for t in listed.topics for p in t.partitions] == list(range(MANY))
    assert turns >= MANY / AT_ONCE_MAX + MANY
    wanted = [ReassignablePartition(partition_index=p, replicas=[1]) for p in range(MANY)]
    request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name="t", partitions=wanted)])
    altered, turns = await turns_of(alter_partition_reassignments(where, request))
    assert [p.partition_index for t in altered.responses for p in t.partitions] == list(range(MANY))
    assert turns >= MANY / AT_ONCE_MAX + MANY


def test_refused_topics_leave_nothing_for_the_collector() -> None:
    """An exception for each, kept until the end, made a cycle with its traceback: 200,000 were freed in one go."""
    broker = SimpleNamespace(
        controller=SimpleNamespace(is_active=True),
        config=SimpleNamespace(delete_topic_enable=True),
        metadata_cache=SimpleNamespace(topics=(), topic_name=lambda _: None),
        clock=SimpleNamespace(monotonic_ms=lambda: 0),
        quotas=SimpleNamespace(mutation_quota=lambda *_, **__: UNLIMITED),
    )
    asked: Any = SimpleNamespace(api_version=6, broker=broker, size_bytes=0)
    kinds: list[dict[str, Any]] = [{"name": "nowhere"}, {"topic_id": b"i" * 16}, {}]
    topics = [DeleteTopicState(**kinds[number % 3]) for number in range(MANY)]

    async def answer() -> list[int]:
        return [r.error_code for r in (await delete_topics(asked, DeleteTopicsRequest(topics=topics))).responses]

    gc.collect()
    gc.disable()
    try:
        codes = asyncio.run(answer())
        left = gc.collect()
    finally:
        gc.enable()
    E = ErrorCode
    expected = [E.UNKNOWN_TOPIC_OR_PARTITION, E.UNKNOWN_TOPIC_ID, E.INVALID_REQUEST]
    assert codes == [expected[number % 3] for number in range(MANY)]
    assert left < MANY / 2


@in_event_loop
async def test_very_many_partitions_of_transactions_are_answered_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """One list of all results was looked through for each transaction: 4.5 s for a million of them."""
    monkeypatch.setattr("engine.runtime.turns.HOLD_MS_MAX", 0)
    where = context()
    where.broker.config = SimpleNamespace(inter_broker_protocol_version=MetadataVersion.IBP_3_9_IV0)
    where.broker.metadata_cache.partitions = lambda _: {}
    named = [AddPartitionsToTxnTopic(name="t", partitions=[0])]
    transactions = [AddPartitionsToTxnTransaction(transactional_id=name, topics=named) for name in NAMES]
    large, turns = await turns_of(add_partitions_to_txn(where, AddPartitionsToTxnRequest(transactions=transactions)))
    answer = large.response
    assert [result.transactional_id for result in answer.results_by_transaction] == NAMES
    assert {
        p.partition_error_code
        for result in answer.results_by_transaction
        for p in result.topic_results[0].results_by_partition
    } == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert turns >= 3 * MANY


@in_event_loop
async def test_very_many_markers_are_written_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of one transaction in pieces too; the answer comes when the last of them is written."""
    monkeypatch.setattr("engine.runtime.turns.HOLD_MS_MAX", 0)
    where = context()
    where.broker.config = SimpleNamespace(inter_broker_protocol_version=MetadataVersion.IBP_3_9_IV0)
    waiting: list[Callable[[], object]] = []

    def write(marker: Any, partitions: list[TopicPartition], ended: Any) -> None:
        waiting.append(lambda: [ended(partition, ErrorCode.NONE, 0) for partition in partitions])

    where.broker.transaction_coordinator = SimpleNamespace(marker_writer=SimpleNamespace(write=write))
    topics = [WritableTxnMarkerTopic(name="t", partition_indexes=list(range(MANY)))]
    markers = [WritableTxnMarker(producer_id=number, topics=topics) for number in (1, 2)]
    deferred, turns = await turns_of(write_txn_markers(where, WriteTxnMarkersRequest(markers=markers)))
    assert turns > len(waiting) == 2 * -(-MANY // AT_ONCE_MAX)
    for write_one in waiting:
        assert not deferred.is_complete
        write_one()
    assert [marker.producer_id for marker in deferred.response.markers] == [1, 2]
    for each_marker in deferred.response.markers:
        assert [p.partition_index for p in each_marker.topics[0].partitions] == list(range(MANY))


@in_event_loop
async def test_very_many_offsets_of_a_transaction_are_taken_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.runtime.turns.HOLD_MS_MAX", 0)
    asked = [TxnOffsetCommitRequestPartition(partition_index=p) for p in range(MANY)]
    where = context()
    where.broker.metadata_cache.partitions = lambda _: ()
    where.broker.clock = SimpleNamespace(now_ms=lambda: 0)
    where.broker.config = SimpleNamespace(inter_broker_protocol_version=MetadataVersion.IBP_3_9_IV0)
    request = TxnOffsetCommitRequest(group_id="g", topics=[TxnOffsetCommitRequestTopic(name="t", partitions=asked)])
    large, turns = await turns_of(txn_offset_commit(where, request))
    assert [p.partition_index for p in large.response.topics[0].partitions] == list(range(MANY))
    assert turns >= MANY / PER_STEP


@in_event_loop
@pytest.mark.parametrize("changes", ["creations", "filters"])
async def test_very_many_rules_are_read_in_turns(changes: str) -> None:
    where = context()
    where.broker.authorizer = None
    if changes == "creations":
        creations = [AclCreation(resource_type=2, operation=2, permission_type=2) for _ in range(MANY)]
        answer, turns = await turns_of(create_acls(where, CreateAclsRequest(creations=creations)))
        results = answer.results
    else:
        filters = [DeleteAclsFilter(resource_type_filter=1, operation=1, permission_type=1) for _ in range(MANY)]
        answer, turns = await turns_of(delete_acls(where, DeleteAclsRequest(filters=filters)))
        results = answer.filter_results
    assert [result.error_code for result in results] == [ErrorCode.SECURITY_DISABLED] * MANY
    assert turns >= MANY


def of_the_controller(**parts: Any) -> Any:
    """Return the context of a request to the active controller, whose topics are all unknown."""
    where = context()
    where.broker.controller = SimpleNamespace(is_active=True, is_topic_queued_for_deletion=lambda _: False)
    where.broker.quotas = SimpleNamespace(mutation_quota=lambda *_, **__: UNLIMITED)
    where.broker.clock = SimpleNamespace(monotonic_ms=lambda: 0)

    async def refuse(*_: object, **__: object) -> None:
        unknown_partition()

    where.broker.topic_admin = SimpleNamespace(create_topic=refuse, add_partitions=refuse)
    vars(where.broker).update(parts)
    return where


@in_event_loop
async def test_very_many_topics_are_created_and_grown_in_turns() -> None:
    """Each has an error of its own. 200,000 that cannot be created held the loop for 0.9 s of CPU."""
    where = of_the_controller()
    given = [CreatableReplicaAssignment(partition_index=0, broker_ids=[1])]
    topics = [CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=given) for name in NAMES]
    create = CreateTopicsRequest(topics=topics)
    created, turns = await turns_of(create_topics(where, create))
    # Each is taken, its settings and its assignment read, with a yield of two passes; equal names are counted before.
    assert [topic.name for topic in created.topics] == NAMES and turns >= 6 * MANY + 2 * MANY / AT_ONCE_MAX
    grow = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name=name) for name in NAMES])
    grown, turns = await turns_of(create_partitions(where, grow))
    assert [result.name for result in grown.results] == NAMES and turns >= MANY
    assert {result.error_code for result in [*created.topics, *grown.results]} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    where.broker.controller.is_active = False
    for handler, request in ((create_topics, create), (create_partitions, grow)):
        refused, turns = await turns_of(handler(where, request))  # type: ignore[operator]
        results = refused.topics if handler is create_topics else refused.results
        assert [result.error_code for result in results] == [ErrorCode.NOT_CONTROLLER] * MANY and turns >= MANY


@pytest.mark.parametrize("grown", ["configs", "assignments"])
@in_event_loop
async def test_very_many_parts_of_one_topic_are_read_in_turns(grown: str) -> None:
    """200,000 settings of a topic held the loop for 80 ms of CPU."""
    parts: list[Any] = [CreatableTopicConfig(name=name, value="v") for name in NAMES]
    if grown == "assignments":
        parts = [CreatableReplicaAssignment(partition_index=p, broker_ids=[p, 0]) for p in range(MANY)]
    wanted: list[Any] = []

    async def create(new: Any, **_: object) -> None:
        wanted.append(new)
        unknown_partition()

    where = of_the_controller(topic_admin=SimpleNamespace(create_topic=create))
    topics = [CreatableTopic(name="t", num_partitions=-1, replication_factor=-1, **{grown: parts})]
    _, turns = await turns_of(create_topics(where, CreateTopicsRequest(topics=topics)))
    (new,) = wanted
    # One unknown setting is enough to refuse the topic.
    whole = {NAMES[0]: "v"} if grown == "configs" else {p: (p, 0) for p in range(MANY)}
    assert getattr(new, grown) == whole and turns >= 2 * MANY / AT_ONCE_MAX


@in_event_loop
async def test_a_refusal_that_is_too_long_names_no_part_of_the_settings_without_a_value() -> None:
    """As if the part were all: that which makes it too long is among them."""
    wanted: list[Any] = []

    async def create(new: Any, **_: object) -> None:
        wanted.append(new)
        unknown_partition()

    where = of_the_controller(topic_admin=SimpleNamespace(create_topic=create))
    names = ["a", "b" * STRING_BYTES_MAX, "c"]
    configs = [CreatableTopicConfig(name=name, value=None) for name in names]
    await create_topics(where, CreateTopicsRequest(topics=[CreatableTopic(name="t", configs=configs)]))
    assert [*wanted[0].configs] == names[:2]


@in_event_loop
async def test_very_many_parts_of_an_entity_with_quotas_are_read_in_turns() -> None:
    """200,000 held the loop for 62 ms of CPU."""
    entity = [RequestEntityData(entity_type="user", entity_name=name) for name in NAMES]
    request = AlterClientQuotasRequest(entries=[RequestEntryData(entity=[*entity, RequestEntityData(entity_type="x")])])
    answer, turns = await turns_of(alter_client_quotas(context(), request))
    (entry,) = answer.entries
    assert entry.error_message == "Unhandled client quota entity type: x"
    assert [part.entity_name for part in entry.entity] == [NAMES[-1], None], "of a type the last counts"
    # One yield each to answer and to read them.
    assert turns >= 2 * MANY / AT_ONCE_MAX


@pytest.mark.parametrize("kind", [ResourceType.TOPIC, ResourceType.UNKNOWN])
@in_event_loop
async def test_settings_of_very_many_resources_are_described_in_turns(kind: ResourceType) -> None:
    """200,000 that are refused held the loop for 0.25 s of CPU."""
    where = context()
    where.broker.metadata_cache.topics = {}
    resources = [DescribeConfigsResource(resource_type=kind, resource_name=name) for name in NAMES]
    answer, turns = await turns_of(describe_configs(where, DescribeConfigsRequest(resources=resources)))
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if kind is ResourceType.TOPIC else ErrorCode.INVALID_REQUEST
    assert [(result.resource_name, result.error_code) for result in answer.results] == [(name, code) for name in NAMES]
    assert turns >= MANY


@in_event_loop
async def test_very_many_settings_of_one_resource_are_read_in_turns() -> None:
    """They were read in one piece: 0.1 s of CPU for 200,000."""
    for handler, request, resource, config in (
        (alter_configs, AlterConfigsRequest, AlterConfigsResource, AlterableConfig),
        (incremental_alter_configs, IncrementalAlterConfigsRequest, IncrementalResource, IncrementalConfig),
    ):
        asked = resource(resource_type=ResourceType.TOPIC, resource_name="t", configs=[config(name="a")] * MANY)
        answer, turns = await turns_of(handler(context(), request(resources=[asked])))  # type: ignore[operator]
        assert [response.error_message for response in answer.responses] == ["Error due to duplicate config keys"]
        assert turns >= MANY


@in_event_loop
async def test_very_many_isrs_are_changed_in_turns() -> None:
    """To read 200,000 of them held the controller's loop for 0.25 s of CPU."""

    async def ask(event: Any) -> Any:
        return {key: LeaderAndIsr(1, 0, item.isr) for key, item in event.partitions.items()}

    where = context()
    where.broker.controller = SimpleNamespace(ask=ask)
    asked = [RequestPartitionData(partition_index=p, new_isr=[1]) for p in range(MANY)]
    request = AlterPartitionRequest(topics=[RequestTopicData(topic_id=b"i" * 16, partitions=asked)])
    where.api_version = 2
    answer, turns = await turns_of(alter_partition(where, request))
    (topic,) = answer.topics
    assert [(p.partition_index, p.isr) for p in topic.partitions] == [(p, [1]) for p in range(MANY)]
    assert turns >= MANY / AT_ONCE_MAX + MANY


@in_event_loop
async def test_very_many_users_are_changed_in_turns() -> None:
    where = context()
    where.broker.controller = SimpleNamespace(is_active=False)
    upsertions = [ScramCredentialUpsertion(name=name) for name in NAMES]
    request = AlterUserScramCredentialsRequest(upsertions=upsertions)
    answer, turns = await turns_of(alter_user_scram_credentials(where, request))
    assert [(result.user, result.error_code) for result in answer.results] == [
        (name, ErrorCode.NOT_CONTROLLER) for name in NAMES
    ]
    assert turns >= 2 * MANY


def test_whether_a_large_produce_request_is_of_a_transaction_is_found_out_in_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """To look through 85,000 topics at once would hold the event loop for 80 ms."""
    topics = [TopicProduceData(name=f"t{number}", partition_data=[]) for number in range(20_000)]
    request = ProduceRequest(transactional_id="id", acks=1, timeout_ms=1, topic_data=topics)
    encoded = bytes(encode_request(request, 11, 1, ""))[4:]
    body = decoder(ProduceRequest, 11, is_bounded=True)(memoryview(encoded), 11)[0]
    read: list[object] = []

    def noted(array: LazyArray) -> Any:
        for item in iterated(array):
            read.append(item)
            yield item

    iterated = LazyArray.__iter__
    monkeypatch.setattr(LazyArray, "__iter__", noted)
    steps = guard_produce(SimpleNamespace(may=lambda *_, **__: True), body)
    assert not read
    for taken in range(1, 100):
        next(steps)
        assert len(read) == taken
