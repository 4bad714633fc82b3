"""What each request needs, checked before its handler: the only place where a broker with an authorizer lets one pass.

A guard looks at a decoded request. It lets it pass (None), refuses it (an answer), or takes out what the peer may not
do and returns what adds the refusals to the handler's answer. ``guarded`` refuses APIs that have no guard, so a new
handler cannot be forgotten. Without an authorizer none of this runs.

Source: KafkaApis and ZkAdminManager of Kafka 3.9.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from types import CoroutineType
from typing import Any, Final

from engine.broker.fetch.reads import GuardedReads
from engine.broker.handlers.context import RequestContext
from engine.broker.handlers.delegation_tokens import creation_refused, owner_of
from engine.broker.handlers.registry import HandlerEntry
from engine.broker.network.request import CLOSE_CONNECTION, NO_RESPONSE, Deferred, LargeAnswer
from engine.broker.replication.leader_and_isr_change import leader_and_isr_refusal
from engine.broker.replication.stop_replica_change import stop_replica_refusal
from engine.broker.security.authorizer import Authorizer
from engine.broker.security.delegation_tokens import is_owner_or_renewer, may_ask_for_tokens
from engine.common.acl import AclOperation, ResourceType
from engine.common.errors import ErrorCode
from engine.common.topic_id import ZERO_TOPIC_ID
from engine.kafka.acls import CLUSTER_NAME
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis import (
    add_partitions_to_txn,
    alter_client_quotas,
    alter_configs,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    alter_user_scram_credentials,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_topics,
    describe_configs,
    describe_groups,
    describe_producers,
    describe_transactions,
    describe_user_scram_credentials,
    elect_leaders,
    fetch,
    find_coordinator,
    incremental_alter_configs,
    list_offsets,
    list_partition_reassignments,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    txn_offset_commit,
    write_txn_markers,
)
from engine.kafka.protocol.declaration import response_class
from engine.kafka.protocol.records.layout import ATTRIBUTES, BATCH_OVERHEAD, MAGIC, TRANSACTIONAL_BIT
from engine.kafka.zk.tokens import DelegationToken

TOPIC, GROUP, CLUSTER, TXN = (
    ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER, ResourceType.TRANSACTIONAL_ID,
)  # fmt: skip
READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE = (
    AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE, AclOperation.DELETE, AclOperation.ALTER,
    AclOperation.DESCRIBE,
)  # fmt: skip
NO_TOPIC, NO_GROUP, NO_CLUSTER, NO_TXN = (
    ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)  # fmt: skip
_MESSAGES = {
    NO_TOPIC: "Topic authorization failed.",
    NO_GROUP: "Group authorization failed.",
    NO_CLUSTER: "Cluster authorization failed.",
    NO_TXN: "Transactional Id authorization failed.",
}
OPERATIONS_NOT_REQUESTED: Final = -(2**31)

Merge = Callable[[Any], Any]
"""Adds the refusals to an answer; returns what is answered."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Asks the authorizer about one request."""

    context: RequestContext
    authorizer: Authorizer
    request: str
    """The API's name, for the log."""

    def may(
        self, operation: AclOperation, resource_type: ResourceType, name: str, *, count: int = 1, tells: bool = True
    ) -> bool:
        return self.authorizer.may(
            self.context.session, operation, resource_type, name, request=self.request, count=count, tells=tells
        )

    def cluster(self, operation: AclOperation, *, tells: bool = True) -> bool:
        return self.may(operation, CLUSTER, CLUSTER_NAME, tells=tells)

    def parted(
        self, items: Iterable[Any], operation: AclOperation, resource_type: ResourceType, name: str = "name"
    ) -> tuple[list[Any], list[Any]]:
        """Return the items about which the peer may do this, and the others. ``name`` is the attribute to look at."""
        kept: list[Any] = []
        refused: list[Any] = []
        for item in items:
            (kept if self.may(operation, resource_type, getattr(item, name) or "") else refused).append(item)
        return kept, refused

    def operations(self, resource_type: ResourceType, name: str) -> int:
        return self.authorizer.operations(self.context.session, resource_type, name)


class WithReads:
    """A guard's result for Fetch: the handler reads by these reads."""

    __slots__ = ("reads",)

    def __init__(self, reads: Callable[..., GuardedReads]) -> None:
        self.reads = reads


Guard = Callable[[Ask, Any], Any]
"""None: it may pass. A function: what to do with the answer. An answer: it may not pass."""


def guarded(
    entry: HandlerEntry, handler: Callable[..., Any], authorizer: Authorizer
) -> Callable[[RequestContext, Any], Any]:
    """Return the handler behind its guard.

    Raises:
        KeyError: the API has no guard.
    """
    guard, name = GUARDS[entry.key], entry.key.name.title().replace("_", "")

    def handle(context: RequestContext, request: Any) -> Any:
        verdict = guard(Ask(context, authorizer, name), request)
        if verdict is None:
            return handler(context, request)
        if isinstance(verdict, WithReads):
            return handler(context, request, verdict.reads)
        if callable(verdict):
            return _after(handler(context, request), verdict)
        return verdict

    return handle


def _after(answer: Any, merge: Merge) -> Any:
    """Return the merged answer, now or whenever it is there."""
    if type(answer) is CoroutineType:
        return _after_awaiting(answer, merge)
    if isinstance(answer, Deferred):
        outer = Deferred(answer.give_up, weight=answer.weight)
        answer.on_complete(lambda: outer.complete(merge(answer.response)))
        return outer
    if isinstance(answer, LargeAnswer):
        answer.response = merge(answer.response)
        return answer
    return merge(answer)


async def _after_awaiting(answering: CoroutineType[Any, Any, Any], merge: Merge) -> Any:
    return _after(await answering, merge)


def _adds(field: str, entries: list[Any]) -> Merge:
    """Add entries to a list of the answer."""

    def merge(answer: Any) -> Any:
        if hasattr(answer, field):
            setattr(answer, field, [*getattr(answer, field), *entries])
        return answer

    return merge


# -- whole requests


def _open(ask: Ask, request: Any) -> None:
    """Everybody may."""


def _refuses_all(code: ErrorCode) -> Callable[[Ask, Any], Any]:
    """Answer with an error for the whole request, where the API has a field for it."""

    def refuse(ask: Ask, request: Any) -> Any:
        made = response_class(ApiKey(ask.context.api_key))()
        made.error_code = code  # type: ignore[attr-defined]
        if hasattr(made, "error_message"):
            made.error_message = _MESSAGES[code]
        return made

    return refuse


def _needs_cluster(*operations: AclOperation, refuse: Callable[[Ask, Any], Any] | None = None) -> Guard:
    """Any of these operations on the cluster."""

    def guard(ask: Ask, request: Any) -> Any:
        if any(ask.cluster(operation, tells=operation is operations[-1]) for operation in operations):
            return None
        return (refuse or _refuses_all(NO_CLUSTER))(ask, request)

    return guard


def _needs_group(ask: Ask, request: Any) -> Any:
    return None if ask.may(READ, GROUP, request.group_id) else _refuses_all(NO_GROUP)(ask, request)


def _needs_transactional_id(ask: Ask, request: Any) -> Any:
    return None if ask.may(WRITE, TXN, request.transactional_id) else _refuses_all(NO_TXN)(ask, request)


# -- topics


def _needs_topics(
    operation: AclOperation, items: str, answers: str, refused_entry: Callable[[Any], Any], name: str = "name"
) -> Guard:
    """An operation on each topic; refused ones get an entry of their own in the answer."""

    def guard(ask: Ask, request: Any) -> Any:
        kept, refused = ask.parted(getattr(request, items), operation, TOPIC, name)
        if not refused:
            return None
        setattr(request, items, kept)
        return _adds(answers, [refused_entry(item) for item in refused])

    return guard


def _produce_entry(topic: Any, code: ErrorCode = NO_TOPIC) -> Any:
    return produce.TopicProduceResponse(
        name=topic.name,
        partition_responses=[
            produce.PartitionProduceResponse(index=one.index, error_code=code, base_offset=-1, log_append_time_ms=-1)
            for one in topic.partition_data
        ],
    )


def _produce(ask: Ask, request: Any) -> Any:
    kept, refused = request.topic_data, []
    transactional_id, code = request.transactional_id, NO_TOPIC
    if transactional_id is not None and _is_transactional(request) and not ask.may(WRITE, TXN, transactional_id):
        kept, refused, code = [], kept, NO_TXN
    else:
        for topic in request.topic_data:
            if not ask.may(WRITE, TOPIC, topic.name, count=len(topic.partition_data)):
                kept, refused = ask.parted(request.topic_data, WRITE, TOPIC)
                break
    if not refused:
        return None
    request.topic_data = kept
    entries = [_produce_entry(topic, code) for topic in refused]
    if request.acks == 0:
        return lambda answer: CLOSE_CONNECTION
    if not kept:
        return produce.ProduceResponse(responses=entries)
    merge = _adds("responses", entries)
    return lambda answer: answer if answer in (NO_RESPONSE, CLOSE_CONNECTION) else merge(answer)


def _is_transactional(request: Any) -> bool:
    for topic in request.topic_data:
        for data in topic.partition_data:
            records = data.records
            is_batch = records is not None and len(records) >= BATCH_OVERHEAD and records[MAGIC] == 2
            if is_batch and records[ATTRIBUTES + 1] & TRANSACTIONAL_BIT:
                return True
    return False


def _fetch(ask: Ask, request: Any) -> Any:
    state = request.replica_state
    replica_id = request.replica_id if ask.context.api_version < 15 or state is None else state.replica_id
    if replica_id < 0:
        return WithReads(partial(GuardedReads, lambda topic: ask.may(READ, TOPIC, topic)))
    if ask.cluster(AclOperation.CLUSTER_ACTION):
        return None
    if request.session_id:
        # It opens another, and hears then of all partitions.
        return fetch.FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND, responses=[])
    return fetch.FetchResponse(
        responses=[
            fetch.FetchableTopicResponse(
                topic=topic.topic,
                topic_id=topic.topic_id,
                partitions=[
                    fetch.PartitionData(
                        partition_index=one.partition, error_code=NO_TOPIC, high_watermark=-1, records=b""
                    )
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _metadata(ask: Ask, request: Any) -> Any:
    context = ask.context
    cache, version = context.broker.metadata_cache, context.api_version
    if request.topics is None or (version == 0 and not request.topics):
        return _described_topics(ask, request, [], is_filtered=True)
    refused: list[Any] = []
    kept: list[Any] = []
    missing: set[str] = set()
    for topic in request.topics:
        is_by_id = topic.topic_id != ZERO_TOPIC_ID
        name = cache.topic_name(topic.topic_id) if is_by_id else topic.name
        if name is None or ask.may(DESCRIBE, TOPIC, name):
            kept.append(topic)
            if name is not None and not cache.partitions(name):
                missing.add(name)
        else:
            refused.append(_metadata_entry(None if is_by_id else name, topic.topic_id))
    creates = (version < 4 or request.allow_auto_topic_creation) and context.broker.config.auto_create_topics_enable
    if missing and creates and not ask.cluster(CREATE, tells=False):
        not_created = {name for name in missing if not ask.may(CREATE, TOPIC, name)}
        kept = [topic for topic in kept if topic.name not in not_created]
        refused += [_metadata_entry(name, ZERO_TOPIC_ID) for name in not_created]
    is_emptied = version == 0 and not kept
    request.topics = kept
    return _described_topics(ask, request, refused, is_emptied=is_emptied)


def _described_topics(
    ask: Ask, request: Any, refused: list[Any], *, is_filtered: bool = False, is_emptied: bool = False
) -> Merge:
    """Add refusals, leave out what must not be known, and say what the peer may do."""

    def merge(answer: Any) -> Any:
        topics = [] if is_emptied else answer.topics
        if is_filtered:
            topics = [one for one in topics if ask.may(DESCRIBE, TOPIC, one.name, tells=False)]
        if request.include_topic_authorized_operations:
            # The described topics are shared with other answers.
            topics = [_with_operations(ask, one) for one in topics]
        answer.topics = [*topics, *refused]
        if request.include_cluster_authorized_operations:
            answer.cluster_authorized_operations = _cluster_operations(ask)
        return answer

    return merge


def _with_operations(ask: Ask, topic: Any) -> Any:
    return metadata.MetadataResponseTopic(
        error_code=topic.error_code,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=topic.partitions,
        topic_authorized_operations=ask.operations(TOPIC, topic.name or ""),
    )


def _cluster_operations(ask: Ask) -> int:
    return ask.operations(CLUSTER, CLUSTER_NAME) if ask.cluster(DESCRIBE, tells=False) else 0


def _metadata_entry(name: str | None, topic_id: bytes) -> Any:
    return metadata.MetadataResponseTopic(error_code=NO_TOPIC, name=name, topic_id=topic_id, partitions=[])


def _list_offsets_entry(topic: Any) -> Any:
    return list_offsets.ListOffsetsTopicResponse(
        name=topic.name,
        partitions=[
            list_offsets.ListOffsetsPartitionResponse(partition_index=one.partition_index, error_code=NO_TOPIC)
            for one in topic.partitions
        ],
    )


def _offset_for_leader_epoch(ask: Ask, request: Any) -> Any:
    if ask.cluster(AclOperation.CLUSTER_ACTION, tells=False):
        return None
    return _needs_topics(DESCRIBE, "topics", "topics", _epoch_entry, "topic")(ask, request)


def _epoch_entry(topic: Any) -> Any:
    return offset_for_leader_epoch.OffsetForLeaderTopicResult(
        topic=topic.topic,
        partitions=[
            offset_for_leader_epoch.EpochEndOffset(partition=one.partition, error_code=NO_TOPIC)
            for one in topic.partitions
        ],
    )


def _create_topics(ask: Ask, request: Any) -> Any:
    if not ask.context.broker.controller.is_active:
        return None
    refused: list[Any] = []
    if not ask.cluster(CREATE, tells=False):
        request.topics, refused = ask.parted(request.topics, CREATE, TOPIC)
    entries = [
        create_topics.CreatableTopicResult(
            name=topic.name,
            error_code=NO_TOPIC,
            error_message="Authorization failed.",
            topic_config_error_code=(
                ErrorCode.NONE if ask.may(AclOperation.DESCRIBE_CONFIGS, TOPIC, topic.name, tells=False) else NO_TOPIC
            ),
            configs=None,
        )
        for topic in refused
    ]

    def merge(answer: Any) -> Any:
        for one in answer.topics:
            told = AclOperation.DESCRIBE_CONFIGS
            if one.error_code == ErrorCode.NONE and not ask.may(told, TOPIC, one.name, tells=False):
                one.topic_config_error_code, one.configs = NO_TOPIC, None
                one.num_partitions = one.replication_factor = -1
        answer.topics = [*answer.topics, *entries]
        return answer

    return merge


def _delete_topics(ask: Ask, request: Any) -> Any:
    if not ask.context.broker.controller.is_active:
        return None
    entries = []
    if ask.context.api_version < 6:
        kept = []
        for name in request.topic_names:
            if ask.may(DELETE, TOPIC, name):
                kept.append(name)
            else:
                entries.append(delete_topics.DeletableTopicResult(name=name, **_deletion_refusal()))
        request.topic_names = kept
    else:
        states, cache = [], ask.context.broker.metadata_cache
        for topic in request.topics:
            is_by_id = topic.topic_id != ZERO_TOPIC_ID
            name = cache.topic_name(topic.topic_id) if is_by_id else topic.name
            if name is None:
                states.append(topic)
                continue
            is_known = not is_by_id or ask.may(DESCRIBE, TOPIC, name)
            if is_known and ask.may(DELETE, TOPIC, name):
                states.append(topic)
            else:
                entries.append(
                    delete_topics.DeletableTopicResult(
                        name=name if is_known else None, topic_id=topic.topic_id, **_deletion_refusal()
                    )
                )
        request.topics = states
    return _adds("responses", entries) if entries else None


def _deletion_refusal() -> dict[str, Any]:
    return {"error_code": NO_TOPIC, "error_message": _MESSAGES[NO_TOPIC]}


def _delete_records_entry(topic: Any) -> Any:
    return delete_records.DeleteRecordsTopicResult(
        name=topic.name,
        partitions=[
            delete_records.DeleteRecordsPartitionResult(
                partition_index=one.partition_index, low_watermark=-1, error_code=NO_TOPIC
            )
            for one in topic.partitions
        ],
    )


def _create_partitions(ask: Ask, request: Any) -> Any:
    if not ask.context.broker.controller.is_active:
        return None
    return _needs_topics(ALTER, "topics", "results", _create_partitions_entry)(ask, request)


def _create_partitions_entry(topic: Any) -> Any:
    return create_partitions.CreatePartitionsTopicResult(
        name=topic.name, error_code=NO_TOPIC, error_message="The topic authorization is failed."
    )


def _describe_producers_entry(topic: Any) -> Any:
    return describe_producers.TopicResponse(
        name=topic.name,
        partitions=[
            describe_producers.PartitionResponse(
                partition_index=index, error_code=NO_TOPIC, error_message=_MESSAGES[NO_TOPIC]
            )
            for index in topic.partition_indexes
        ],
    )


# -- groups


def _find_coordinator(ask: Ask, request: Any) -> Any:
    needed = {0: (GROUP, NO_GROUP), 1: (TXN, NO_TXN)}.get(request.key_type)
    if needed is None:
        return None
    resource_type, code = needed
    if ask.context.api_version < 4:
        if ask.may(DESCRIBE, resource_type, request.key):
            return None
        return find_coordinator.FindCoordinatorResponse(
            error_code=code, error_message=_MESSAGES[code], node_id=-1, host="", port=-1
        )
    refused = dict.fromkeys(key for key in request.coordinator_keys if not ask.may(DESCRIBE, resource_type, key))
    if not refused:
        return None
    request.coordinator_keys = [key for key in request.coordinator_keys if key not in refused]
    return _adds(
        "coordinators",
        [
            find_coordinator.Coordinator(
                key=key, error_code=code, error_message=_MESSAGES[code], node_id=-1, host="", port=-1
            )
            for key in refused
        ],
    )


def _offset_commit_entry(topic: Any, code: ErrorCode = NO_TOPIC) -> Any:
    return offset_commit.OffsetCommitResponseTopic(
        name=topic.name,
        partitions=[
            offset_commit.OffsetCommitResponsePartition(partition_index=one.partition_index, error_code=code)
            for one in topic.partitions
        ],
    )


def _offset_commit(ask: Ask, request: Any) -> Any:
    if not ask.may(READ, GROUP, request.group_id):
        return offset_commit.OffsetCommitResponse(topics=[_offset_commit_entry(t, NO_GROUP) for t in request.topics])
    return _needs_topics(READ, "topics", "topics", _offset_commit_entry)(ask, request)


def _txn_entry(topic: Any, code: ErrorCode = NO_TOPIC) -> Any:
    return txn_offset_commit.TxnOffsetCommitResponseTopic(
        name=topic.name,
        partitions=[
            txn_offset_commit.TxnOffsetCommitResponsePartition(partition_index=one.partition_index, error_code=code)
            for one in topic.partitions
        ],
    )


def _txn_offset_commit(ask: Ask, request: Any) -> Any:
    code = None
    if not ask.may(WRITE, TXN, request.transactional_id):
        code = NO_TXN
    elif not ask.may(READ, GROUP, request.group_id):
        code = NO_GROUP
    if code is not None:
        return txn_offset_commit.TxnOffsetCommitResponse(topics=[_txn_entry(topic, code) for topic in request.topics])
    return _needs_topics(READ, "topics", "topics", _txn_entry)(ask, request)


def _offset_fetch(ask: Ask, request: Any) -> Any:
    if ask.context.api_version >= 8:
        return _offset_fetch_of_groups(ask, request)
    if not ask.may(DESCRIBE, GROUP, request.group_id):
        return offset_fetch.OffsetFetchResponse(
            error_code=NO_GROUP,
            topics=[],
        )
    if request.topics is None:
        return lambda answer: _only_described(ask, answer)
    return _needs_topics(DESCRIBE, "topics", "topics", _fetched_entry)(ask, request)


def _only_described(ask: Ask, answer: Any) -> Any:
    answer.topics = [one for one in answer.topics if ask.may(DESCRIBE, TOPIC, one.name, tells=False)]
    return answer


def _fetched_entry(topic: Any) -> Any:
    return offset_fetch.OffsetFetchResponseTopic(
        name=topic.name,
        partitions=[
            offset_fetch.OffsetFetchResponsePartition(
                partition_index=index, committed_offset=-1, metadata="", error_code=NO_TOPIC
            )
            for index in topic.partition_indexes
        ],
    )


def _offset_fetch_of_groups(ask: Ask, request: Any) -> Any:
    kept, refused = ask.parted(request.groups, DESCRIBE, GROUP, "group_id")
    topics: dict[str, list[Any]] = {}
    filtered = set()
    for group in kept:
        if group.topics is None:
            filtered.add(group.group_id)
        else:
            group.topics, topics[group.group_id] = ask.parted(group.topics, DESCRIBE, TOPIC)
    if not refused and not filtered and not any(topics.values()):
        return None
    request.groups = kept

    def merge(answer: Any) -> Any:
        for group in answer.groups:
            if group.group_id in filtered:
                _only_described(ask, group)
            elif group.error_code == ErrorCode.NONE:
                group.topics = [*group.topics, *map(_fetched_topics_entry, topics.get(group.group_id, ()))]
        entries = [
            offset_fetch.OffsetFetchResponseGroup(group_id=one.group_id, topics=[], error_code=NO_GROUP)
            for one in refused
        ]
        answer.groups = [*answer.groups, *entries]
        return answer

    return merge


def _fetched_topics_entry(topic: Any) -> Any:
    return offset_fetch.OffsetFetchResponseTopics(
        name=topic.name,
        partitions=[
            offset_fetch.OffsetFetchResponsePartitions(
                partition_index=index, committed_offset=-1, metadata="", error_code=NO_TOPIC
            )
            for index in topic.partition_indexes
        ],
    )


def _describe_groups(ask: Ask, request: Any) -> Any:
    refused = dict.fromkeys(group for group in request.groups if not ask.may(DESCRIBE, GROUP, group))
    request.groups = [group for group in request.groups if group not in refused]
    entries = [describe_groups.DescribedGroup(error_code=NO_GROUP, group_id=group, members=[]) for group in refused]

    def merge(answer: Any) -> Any:
        for group in answer.groups if request.include_authorized_operations else ():
            group.authorized_operations = ask.operations(GROUP, group.group_id)
        answer.groups = [*answer.groups, *entries]
        return answer

    return merge


def _list_groups(ask: Ask, request: Any) -> Any:
    if ask.cluster(DESCRIBE, tells=False):
        return None

    def merge(answer: Any) -> Any:
        answer.groups = [one for one in answer.groups if ask.may(DESCRIBE, GROUP, one.group_id, tells=False)]
        return answer

    return merge


def _delete_groups(ask: Ask, request: Any) -> Any:
    refused = dict.fromkeys(group for group in request.groups_names if not ask.may(DELETE, GROUP, group))
    if not refused:
        return None
    request.groups_names = [group for group in request.groups_names if group not in refused]
    return _adds(
        "results", [delete_groups.DeletableGroupResult(group_id=group, error_code=NO_GROUP) for group in refused]
    )


def _offset_delete(ask: Ask, request: Any) -> Any:
    if not ask.may(DELETE, GROUP, request.group_id):
        return _refuses_all(NO_GROUP)(ask, request)
    merge = _needs_topics(READ, "topics", "topics", _offset_delete_entry)(ask, request)
    return merge and (lambda answer: answer if answer.error_code else merge(answer))


def _offset_delete_entry(topic: Any) -> Any:
    return offset_delete.OffsetDeleteResponseTopic(
        name=topic.name,
        partitions=[
            offset_delete.OffsetDeleteResponsePartition(partition_index=one.partition_index, error_code=NO_TOPIC)
            for one in topic.partitions
        ],
    )


# -- transactions


def _init_producer_id(ask: Ask, request: Any) -> Any:
    if request.transactional_id is not None:
        return _needs_transactional_id(ask, request)
    if ask.cluster(AclOperation.IDEMPOTENT_WRITE, tells=False):
        return None
    if ask.authorizer.may_on_any(ask.context.session, WRITE, TOPIC):
        return None
    return _refuses_all(NO_CLUSTER)(ask, request)


def _add_partitions_to_txn(ask: Ask, request: Any) -> Any:
    if ask.context.api_version >= 4:
        return _needs_cluster(AclOperation.CLUSTER_ACTION)(ask, request)
    topics = request.v3_and_below_topics
    if not ask.may(WRITE, TXN, request.v3_and_below_transactional_id):
        return _added({topic.name: NO_TXN for topic in topics}, topics)
    _, refused = ask.parted(topics, WRITE, TOPIC)
    if not refused:
        return None
    names = {topic.name for topic in refused}
    not_attempted = ErrorCode.OPERATION_NOT_ATTEMPTED
    return _added({topic.name: NO_TOPIC if topic.name in names else not_attempted for topic in topics}, topics)


def _added(codes: dict[str, ErrorCode], topics: list[Any]) -> Any:
    results = [
        add_partitions_to_txn.AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                add_partitions_to_txn.AddPartitionsToTxnPartitionResult(
                    partition_index=index, partition_error_code=codes[topic.name]
                )
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]
    return add_partitions_to_txn.AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)


def _add_offsets_to_txn(ask: Ask, request: Any) -> Any:
    return _needs_transactional_id(ask, request) or _needs_group(ask, request)


def _markers_refused(ask: Ask, request: Any) -> Any:
    return write_txn_markers.WriteTxnMarkersResponse(
        markers=[
            write_txn_markers.WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    write_txn_markers.WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            write_txn_markers.WritableTxnMarkerPartitionResult(
                                partition_index=index, error_code=NO_CLUSTER
                            )
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )


def _describe_transactions(ask: Ask, request: Any) -> Any:
    refused = dict.fromkeys(one for one in request.transactional_ids if not ask.may(DESCRIBE, TXN, one))
    request.transactional_ids = [one for one in request.transactional_ids if one not in refused]
    entries = [describe_transactions.TransactionState(transactional_id=one, error_code=NO_TXN) for one in refused]

    def merge(answer: Any) -> Any:
        for state in answer.transaction_states:
            state.topics = [one for one in state.topics if ask.may(DESCRIBE, TOPIC, one.topic, tells=False)]
        answer.transaction_states = [*answer.transaction_states, *entries]
        return answer

    return merge


def _list_transactions(ask: Ask, request: Any) -> Any:
    def merge(answer: Any) -> Any:
        states = answer.transaction_states
        answer.transaction_states = [o for o in states if ask.may(DESCRIBE, TXN, o.transactional_id, tells=False)]
        return answer

    return merge


# -- settings, log dirs, elections


def _needs_configs(operation: AclOperation, answers: str, entry: Callable[..., Any]) -> Guard:
    def guard(ask: Ask, request: Any) -> Any:
        kept, entries = [], []
        for resource in request.resources:
            is_topic = resource.resource_type == 2
            code = NO_TOPIC if is_topic else NO_CLUSTER
            is_known = resource.resource_type in (2, 4, 8, 16)
            if not is_known or (
                ask.may(operation, TOPIC, resource.resource_name) if is_topic else ask.cluster(operation)
            ):
                kept.append(resource)
            else:
                entries.append(
                    entry(
                        error_code=code,
                        error_message=_MESSAGES[code],
                        resource_type=resource.resource_type,
                        resource_name=resource.resource_name,
                    )
                )
        if not entries:
            return None
        request.resources = kept
        return _adds(answers, entries)

    return guard


def _dirs_refused(ask: Ask, request: Any) -> Any:
    topics: dict[str, list[int]] = {}
    for one in request.dirs:
        for topic in one.topics:
            topics.setdefault(topic.name, []).extend(topic.partitions)
    return alter_replica_log_dirs.AlterReplicaLogDirsResponse(
        results=[
            alter_replica_log_dirs.AlterReplicaLogDirTopicResult(
                topic_name=name,
                partitions=[
                    alter_replica_log_dirs.AlterReplicaLogDirPartitionResult(
                        partition_index=index, error_code=NO_CLUSTER
                    )
                    for index in indexes
                ],
            )
            for name, indexes in topics.items()
        ]
    )


def _election_refused(ask: Ask, request: Any) -> Any:
    return elect_leaders.ElectLeadersResponse(
        error_code=NO_CLUSTER if ask.context.api_version >= 1 else ErrorCode.NONE,
        replica_election_results=[
            elect_leaders.ReplicaElectionResult(
                topic=topic.topic,
                partition_result=[
                    elect_leaders.PartitionResult(
                        partition_id=index, error_code=NO_CLUSTER, error_message=_MESSAGES[NO_CLUSTER]
                    )
                    for index in topic.partitions
                ],
            )
            for topic in request.topic_partitions or ()
        ],
    )


def _roles_refused(ask: Ask, request: Any) -> Any:
    return leader_and_isr_refusal(request, NO_CLUSTER, ask.context.api_version)


def _stop_refused(ask: Ask, request: Any) -> Any:
    return stop_replica_refusal(request, NO_CLUSTER)


def _reassignments_refused(ask: Ask, request: Any) -> Any:
    refusal: dict[str, Any] = {"error_code": NO_CLUSTER, "error_message": _MESSAGES[NO_CLUSTER]}
    responses = [
        alter_partition_reassignments.ReassignableTopicResponse(
            name=topic.name,
            partitions=[
                alter_partition_reassignments.ReassignablePartitionResponse(
                    partition_index=one.partition_index, **refusal
                )
                for one in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return alter_partition_reassignments.AlterPartitionReassignmentsResponse(responses=responses, **refusal)


def _ongoing_refused(ask: Ask, request: Any) -> Any:
    """Kafka names the partitions that were asked about, without anything about them."""
    answer = _refuses_all(NO_CLUSTER)(ask, request)
    answer.topics = [
        list_partition_reassignments.OngoingTopicReassignment(
            name=topic.name,
            partitions=[
                list_partition_reassignments.OngoingPartitionReassignment(partition_index=index)
                for index in topic.partition_indexes
            ],
        )
        for topic in request.topics or ()
    ]
    return answer


def _scram_description_refused(ask: Ask, request: Any) -> Any:
    refusal: dict[str, Any] = {"error_code": NO_CLUSTER, "error_message": _MESSAGES[NO_CLUSTER]}
    # Kafka leaves the names out.
    results = [
        describe_user_scram_credentials.DescribeUserScramCredentialsResult(user="", **refusal)
        for _ in request.users or ()
    ]
    return describe_user_scram_credentials.DescribeUserScramCredentialsResponse(results=results, **refusal)


def _scram_refused(ask: Ask, request: Any) -> Any:
    names = dict.fromkeys(one.name for one in (*request.deletions, *request.upsertions))
    return alter_user_scram_credentials.AlterUserScramCredentialsResponse(
        results=[
            alter_user_scram_credentials.AlterUserScramCredentialsResult(
                user=name, error_code=NO_CLUSTER, error_message=_MESSAGES[NO_CLUSTER]
            )
            for name in names
        ]
    )


def _creations_refused(ask: Ask, request: Any) -> Any:
    refusal: dict[str, Any] = {"error_code": NO_CLUSTER, "error_message": _MESSAGES[NO_CLUSTER]}
    return create_acls.CreateAclsResponse(results=[create_acls.AclCreationResult(**refusal) for _ in request.creations])


def _deletions_refused(ask: Ask, request: Any) -> Any:
    refusal: dict[str, Any] = {"error_code": NO_CLUSTER, "error_message": _MESSAGES[NO_CLUSTER], "matching_acls": []}
    results = [delete_acls.DeleteAclsFilterResult(**refusal) for _ in request.filters]
    return delete_acls.DeleteAclsResponse(filter_results=results)


def _create_token(ask: Ask, request: Any) -> Any:
    """A token for somebody else. Over a channel that carries no such requests the handler refuses all of them."""
    context, owner = ask.context, owner_of(ask.context, request)
    if owner == context.session.principal or not may_ask_for_tokens(context.session):
        return None
    if ask.may(AclOperation.CREATE_TOKENS, ResourceType.USER, owner):
        return None
    return creation_refused(context, request, ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED)


def _describe_tokens(ask: Ask, request: Any) -> Any:
    """Leave out the tokens of others that the peer may not see."""
    tokens = ask.context.broker.tokens
    if tokens is None:
        return None

    def may_see(token: DelegationToken) -> bool:
        return (
            is_owner_or_renewer(token, ask.context.session.principal)
            or ask.may(DESCRIBE, ResourceType.DELEGATION_TOKEN, token.token_id)
            or ask.may(AclOperation.DESCRIBE_TOKENS, ResourceType.USER, token.owner)
        )

    def merge(answer: Any) -> Any:
        answer.tokens = [shown for shown in answer.tokens if may_see(tokens.all[shown.token_id])]
        return answer

    return merge


def _quotas_refused(ask: Ask, request: Any) -> Any:
    return alter_client_quotas.AlterClientQuotasResponse(
        entries=[
            alter_client_quotas.ResponseEntryData(
                error_code=NO_CLUSTER,
                error_message=_MESSAGES[NO_CLUSTER],
                entity=[
                    alter_client_quotas.ResponseEntityData(entity_type=one.entity_type, entity_name=one.entity_name)
                    for one in entry.entity
                ],
            )
            for entry in request.entries
        ]
    )


def _describe_cluster(ask: Ask, request: Any) -> Any:
    if not request.include_cluster_authorized_operations:
        return None

    def merge(answer: Any) -> Any:
        if answer.error_code == ErrorCode.NONE:
            answer.cluster_authorized_operations = _cluster_operations(ask)
        return answer

    return merge


_CLUSTER_ACTION = _needs_cluster(AclOperation.CLUSTER_ACTION)

GUARDS: Final[dict[int, Guard]] = {
    ApiKey.PRODUCE: _produce,
    ApiKey.FETCH: _fetch,
    ApiKey.LIST_OFFSETS: _needs_topics(DESCRIBE, "topics", "topics", _list_offsets_entry),
    ApiKey.METADATA: _metadata,
    ApiKey.LEADER_AND_ISR: _needs_cluster(AclOperation.CLUSTER_ACTION, refuse=_roles_refused),
    ApiKey.STOP_REPLICA: _needs_cluster(AclOperation.CLUSTER_ACTION, refuse=_stop_refused),
    ApiKey.UPDATE_METADATA: _CLUSTER_ACTION,
    ApiKey.CONTROLLED_SHUTDOWN: _CLUSTER_ACTION,
    ApiKey.OFFSET_COMMIT: _offset_commit,
    ApiKey.OFFSET_FETCH: _offset_fetch,
    ApiKey.FIND_COORDINATOR: _find_coordinator,
    ApiKey.JOIN_GROUP: _needs_group,
    ApiKey.HEARTBEAT: _needs_group,
    ApiKey.LEAVE_GROUP: _needs_group,
    ApiKey.SYNC_GROUP: _needs_group,
    ApiKey.DESCRIBE_GROUPS: _describe_groups,
    ApiKey.LIST_GROUPS: _list_groups,
    ApiKey.SASL_HANDSHAKE: _open,
    ApiKey.API_VERSIONS: _open,
    ApiKey.CREATE_TOPICS: _create_topics,
    ApiKey.DELETE_TOPICS: _delete_topics,
    ApiKey.DELETE_RECORDS: _needs_topics(DELETE, "topics", "topics", _delete_records_entry),
    ApiKey.INIT_PRODUCER_ID: _init_producer_id,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _offset_for_leader_epoch,
    ApiKey.ADD_PARTITIONS_TO_TXN: _add_partitions_to_txn,
    ApiKey.ADD_OFFSETS_TO_TXN: _add_offsets_to_txn,
    ApiKey.END_TXN: _needs_transactional_id,
    ApiKey.WRITE_TXN_MARKERS: _needs_cluster(ALTER, AclOperation.CLUSTER_ACTION, refuse=_markers_refused),
    ApiKey.TXN_OFFSET_COMMIT: _txn_offset_commit,
    ApiKey.DESCRIBE_ACLS: _needs_cluster(DESCRIBE),
    ApiKey.CREATE_ACLS: _needs_cluster(ALTER, refuse=_creations_refused),
    ApiKey.DELETE_ACLS: _needs_cluster(ALTER, refuse=_deletions_refused),
    ApiKey.DESCRIBE_CONFIGS: _needs_configs(
        AclOperation.DESCRIBE_CONFIGS, "results", partial(describe_configs.DescribeConfigsResult, configs=[])
    ),
    ApiKey.ALTER_CONFIGS: _needs_configs(
        AclOperation.ALTER_CONFIGS, "responses", alter_configs.AlterConfigsResourceResponse
    ),
    ApiKey.ALTER_REPLICA_LOG_DIRS: _needs_cluster(ALTER, refuse=_dirs_refused),
    ApiKey.DESCRIBE_LOG_DIRS: _needs_cluster(DESCRIBE),
    ApiKey.SASL_AUTHENTICATE: _open,
    ApiKey.CREATE_PARTITIONS: _create_partitions,
    ApiKey.CREATE_DELEGATION_TOKEN: _create_token,
    ApiKey.RENEW_DELEGATION_TOKEN: _open,
    ApiKey.EXPIRE_DELEGATION_TOKEN: _open,
    ApiKey.DESCRIBE_DELEGATION_TOKEN: _describe_tokens,
    ApiKey.DELETE_GROUPS: _delete_groups,
    ApiKey.ELECT_LEADERS: _needs_cluster(ALTER, refuse=_election_refused),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _needs_configs(
        AclOperation.ALTER_CONFIGS, "responses", incremental_alter_configs.AlterConfigsResourceResponse
    ),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _needs_cluster(ALTER, refuse=_reassignments_refused),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _needs_cluster(DESCRIBE, refuse=_ongoing_refused),
    ApiKey.OFFSET_DELETE: _offset_delete,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: _needs_cluster(AclOperation.DESCRIBE_CONFIGS),
    ApiKey.ALTER_CLIENT_QUOTAS: _needs_cluster(AclOperation.ALTER_CONFIGS, refuse=_quotas_refused),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _needs_cluster(DESCRIBE, refuse=_scram_description_refused),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _needs_cluster(ALTER, refuse=_scram_refused),
    ApiKey.ALTER_PARTITION: _CLUSTER_ACTION,
    ApiKey.DESCRIBE_CLUSTER: _describe_cluster,
    ApiKey.DESCRIBE_PRODUCERS: _needs_topics(READ, "topics", "topics", _describe_producers_entry),
    ApiKey.DESCRIBE_TRANSACTIONS: _describe_transactions,
    ApiKey.LIST_TRANSACTIONS: _list_transactions,
    ApiKey.ALLOCATE_PRODUCER_IDS: _CLUSTER_ACTION,
}
