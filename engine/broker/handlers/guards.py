"""What each request needs, by API. No API is served without an entry here. Source: KafkaApis of Kafka 3.9."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import chain
from operator import attrgetter
from typing import Any, Final

from engine.broker.handlers.alter_replica_log_dirs import replicas_named, topics_named
from engine.broker.handlers.answer_lists import ByTopic, answer_list, answer_lists, each_once
from engine.broker.handlers.delegation_tokens import creation_refused, owner_of
from engine.broker.handlers.group_guards import (
    COMMITTED,
    COMMITTED_IN_TXN,
    guard_add_offsets_to_txn,
    guard_add_partitions_to_txn,
    guard_describe_groups,
    guard_describe_transactions,
    guard_find_coordinator,
    guard_init_producer_id,
    guard_list_groups,
    guard_list_transactions,
    guard_markers_refused,
    guard_offset_delete,
    guard_offset_fetch,
    needs_group_and_topics,
)
from engine.broker.handlers.guarding import (
    ALTER,
    CLUSTER_ACTION,
    DELETE,
    DESCRIBE,
    GROUP,
    READ,
    TOPIC,
    Ask,
    Guard,
    adds,
    behind,
    cluster_operations,
    everybody,
    needs_cluster,
    needs_each,
    needs_group,
    needs_topics,
    needs_transactional_id,
    some_of,
)
from engine.broker.handlers.in_turns import Steps, each_part
from engine.broker.handlers.refusals import (
    MESSAGES,
    NO_CLUSTER,
    NO_GROUP,
    NO_TOPIC,
    Partitions,
    element,
    said,
    whole,
    with_each,
    with_partitions,
)
from engine.broker.handlers.topic_guards import (
    guard_create_partitions,
    guard_create_topics,
    guard_delete_topics,
    guard_fetch,
    guard_metadata,
    guard_offset_for_leader_epoch,
    guard_produce,
)
from engine.broker.network.routes import HandlerSpec
from engine.broker.replication.stop_replica_change import replicas_to_stop
from engine.broker.security.authorizer import Authorizer
from engine.broker.security.delegation_tokens import is_owner_or_renewer, may_ask_for_tokens
from engine.common.acl import AclOperation, ResourceType
from engine.common.errors import ErrorCode
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis import alter_replica_log_dirs, leader_and_isr, stop_replica
from engine.kafka.protocol.declaration import response_class
from engine.kafka.zk.tokens import DelegationToken

# -- settings, log dirs, replicas, users


def _needs_configs(operation: AclOperation, answers: str) -> Callable[..., Steps[Any]]:
    def guard(ask: Ask, request: Any) -> Steps[Any]:
        answer = response_class(request.api_key)
        made, entries = element(answer, answers), answer_list(ask.context, answer, answers)
        kept, keep = some_of(request.resources)
        for place, resource in enumerate(request.resources):
            name, kind = resource.resource_name, resource.resource_type
            if kind not in (2, 4, 8, 16) or (ask.may(operation, TOPIC, name) if kind == 2 else ask.cluster(operation)):
                keep(place, resource)
            else:
                code = NO_TOPIC if kind == 2 else NO_CLUSTER
                entries.append(made(resource_type=kind, resource_name=name, **said(code)))
            yield
        if not entries:
            return None
        request.resources = kept
        return adds(answers, entries)

    return guard


def _dirs_refused(ask: Ask, request: Any) -> Steps[Any]:
    answer, made = response_class(request.api_key), alter_replica_log_dirs.AlterReplicaLogDirPartitionResult
    results = yield from ByTopic.of(
        ask.context, answer, "results.partitions", "topic_name", lambda: topics_named(request)
    )
    for replica, _ in (yield from each_once(ask.context, lambda: replicas_named(request))):
        if replica is not None:
            results.add(replica.topic, made(partition_index=replica.partition, error_code=NO_CLUSTER))
        yield
    return answer(results=results.topics())


_ROLES = Partitions(ApiKey.LEADER_AND_ISR, "topic_states", "topics")


def _roles_refused(ask: Ask, request: Any) -> Steps[Any]:
    answer, made = whole(request.api_key, NO_CLUSTER), leader_and_isr.LeaderAndIsrPartitionError
    if ask.context.api_version >= 5:
        return (yield from with_partitions(ask.context, _ROLES, answer, "topics", request.topic_states))
    answer.partition_errors = answer_list(ask.context, leader_and_isr.LeaderAndIsrResponse, "partition_errors")

    def refuse(topic: str, state: Any) -> None:
        index = state.partition_index
        answer.partition_errors.append(made(topic_name=topic, partition_index=index, error_code=NO_CLUSTER))

    for topic in request.topic_states:
        yield
        for state in topic.partition_states:
            refuse(topic.topic_name, state)
            yield
    for state in request.ungrouped_partition_states:
        refuse(state.topic_name, state)
        yield
    return answer


def _stop_refused(ask: Ask, request: Any) -> Steps[Any]:
    answer, made = whole(request.api_key, NO_CLUSTER), stop_replica.StopReplicaPartitionError
    answer.partition_errors = answer_list(ask.context, stop_replica.StopReplicaResponse, "partition_errors")
    for stop in replicas_to_stop(request):
        if stop is not None:
            name, index = stop.topic_partition
            answer.partition_errors.append(made(topic_name=name, partition_index=index, error_code=NO_CLUSTER))
        yield
    return answer


_NO_CLUSTER_SAID = {"error_message": MESSAGES[NO_CLUSTER]}
_ELECTED = Partitions(ApiKey.ELECT_LEADERS, "topic_partitions", "replica_election_results", **_NO_CLUSTER_SAID)
_REASSIGNED = Partitions(ApiKey.ALTER_PARTITION_REASSIGNMENTS, "topics", "responses", **_NO_CLUSTER_SAID)


def _election_refused(ask: Ask, request: Any) -> Steps[Any]:
    answer = response_class(ApiKey.ELECT_LEADERS)()
    if ask.context.api_version >= 1:
        answer.error_code = NO_CLUSTER  # type: ignore[attr-defined]
    topics = request.topic_partitions or ()
    return (yield from with_partitions(ask.context, _ELECTED, answer, "replica_election_results", topics))


def _reassignments_refused(ask: Ask, request: Any) -> Steps[Any]:
    answer = whole(request.api_key, NO_CLUSTER)
    return (yield from with_partitions(ask.context, _REASSIGNED, answer, "responses", request.topics))


def _ongoing_refused(ask: Ask, request: Any) -> Steps[Any]:
    """Kafka names the partitions that were asked about, without anything about them."""
    answer, made = whole(request.api_key, NO_CLUSTER), element(response_class(request.api_key), "topics")
    part = element(response_class(request.api_key), "topics.partitions")
    answer.topics = yield from each_part(
        request.topics or (), attrgetter("partition_indexes"), lambda _, index: part(partition_index=index),
        lambda topic, parts: made(name=topic.name, partitions=parts),
        answer_lists(ask.context, response_class(request.api_key), "topics.partitions"),
    )  # fmt: skip
    return answer


def _refuses_each(field: str, items: Callable[[Any], Iterable[Any]], *, tops: bool = False) -> Guard:
    """Refuse each of the things that a request names, for want of a right on the cluster."""
    return lambda ask, request: with_each(ask.context, field, items(request), tops=tops)


def _users_refused(ask: Ask, request: Any) -> Steps[Any]:
    names: dict[str, None] = {}
    for named in chain(request.deletions, request.upsertions):
        names[named.name] = None
        yield
    return (yield from with_each(ask.context, "results", names, lambda name: {"user": name}))


def _quotas_refused(ask: Ask, request: Any) -> Steps[Any]:
    answer = response_class(request.api_key)
    made, named = element(answer, "entries"), element(answer, "entries.entity")
    entries = yield from each_part(
        request.entries, attrgetter("entity"),
        lambda _, part: named(entity_type=part.entity_type, entity_name=part.entity_name),
        lambda _, parts: made(**said(NO_CLUSTER), entity=parts),
        answer_lists(ask.context, answer, "entries.entity"),
    )  # fmt: skip
    return answer(entries=entries)


def _create_token(ask: Ask, request: Any) -> Any:
    """A token for another principal. Over a channel that carries no such requests the handler refuses all of them."""
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

    def merge(answer: Any) -> Steps[Any]:
        shown = []
        for token in answer.tokens:
            if may_see(tokens.all[token.token_id]):
                shown.append(token)
            yield
        answer.tokens = shown
        return answer

    return merge


def _describe_cluster(ask: Ask, request: Any) -> Any:
    if not request.include_cluster_authorized_operations:
        return None

    def merge(answer: Any) -> Any:
        if answer.error_code == ErrorCode.NONE:
            answer.cluster_authorized_operations = cluster_operations(ask)
        return answer

    return merge


def guarded(spec: HandlerSpec, authorizer: Authorizer) -> HandlerSpec:
    """Return an API with its handlers behind its guard.

    Raises:
        KeyError: the API has no guard.
    """
    large = spec.large_handler
    return replace(
        spec,
        handler=behind(GUARDS[spec.key], spec.key, spec.handler, authorizer),
        plain_handler=None,
        large_handler=None if large is None else behind(GUARDS[spec.key], spec.key, large, authorizer),
    )


GUARDS: Final[dict[int, Guard]] = {
    ApiKey.PRODUCE: guard_produce,
    ApiKey.FETCH: guard_fetch,
    ApiKey.LIST_OFFSETS: needs_topics(DESCRIBE, Partitions(ApiKey.LIST_OFFSETS, "topics", "topics")),
    ApiKey.METADATA: guard_metadata,
    ApiKey.LEADER_AND_ISR: needs_cluster(AclOperation.CLUSTER_ACTION, refuse=_roles_refused),
    ApiKey.STOP_REPLICA: needs_cluster(AclOperation.CLUSTER_ACTION, refuse=_stop_refused),
    ApiKey.UPDATE_METADATA: CLUSTER_ACTION,
    ApiKey.CONTROLLED_SHUTDOWN: CLUSTER_ACTION,
    ApiKey.OFFSET_COMMIT: needs_group_and_topics(COMMITTED, is_in_txn=False),
    ApiKey.OFFSET_FETCH: guard_offset_fetch,
    ApiKey.FIND_COORDINATOR: guard_find_coordinator,
    ApiKey.JOIN_GROUP: needs_group,
    ApiKey.HEARTBEAT: needs_group,
    ApiKey.LEAVE_GROUP: needs_group,
    ApiKey.SYNC_GROUP: needs_group,
    ApiKey.DESCRIBE_GROUPS: guard_describe_groups,
    ApiKey.LIST_GROUPS: guard_list_groups,
    ApiKey.SASL_HANDSHAKE: everybody,
    ApiKey.API_VERSIONS: everybody,
    ApiKey.CREATE_TOPICS: guard_create_topics,
    ApiKey.DELETE_TOPICS: guard_delete_topics,
    ApiKey.DELETE_RECORDS: needs_topics(
        DELETE, Partitions(ApiKey.DELETE_RECORDS, "topics", "topics", low_watermark=-1)
    ),
    ApiKey.INIT_PRODUCER_ID: guard_init_producer_id,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: guard_offset_for_leader_epoch,
    ApiKey.ADD_PARTITIONS_TO_TXN: guard_add_partitions_to_txn,
    ApiKey.ADD_OFFSETS_TO_TXN: guard_add_offsets_to_txn,
    ApiKey.END_TXN: needs_transactional_id,
    ApiKey.WRITE_TXN_MARKERS: needs_cluster(ALTER, AclOperation.CLUSTER_ACTION, refuse=guard_markers_refused),
    ApiKey.TXN_OFFSET_COMMIT: needs_group_and_topics(COMMITTED_IN_TXN, is_in_txn=True),
    ApiKey.DESCRIBE_ACLS: needs_cluster(DESCRIBE),
    ApiKey.CREATE_ACLS: needs_cluster(ALTER, refuse=_refuses_each("results", attrgetter("creations"))),
    ApiKey.DELETE_ACLS: needs_cluster(ALTER, refuse=_refuses_each("filter_results", attrgetter("filters"))),
    ApiKey.DESCRIBE_CONFIGS: _needs_configs(AclOperation.DESCRIBE_CONFIGS, "results"),
    ApiKey.ALTER_CONFIGS: _needs_configs(AclOperation.ALTER_CONFIGS, "responses"),
    ApiKey.ALTER_REPLICA_LOG_DIRS: needs_cluster(ALTER, refuse=_dirs_refused),
    ApiKey.DESCRIBE_LOG_DIRS: needs_cluster(DESCRIBE),
    ApiKey.SASL_AUTHENTICATE: everybody,
    ApiKey.CREATE_PARTITIONS: guard_create_partitions,
    ApiKey.CREATE_DELEGATION_TOKEN: _create_token,
    ApiKey.RENEW_DELEGATION_TOKEN: everybody,
    ApiKey.EXPIRE_DELEGATION_TOKEN: everybody,
    ApiKey.DESCRIBE_DELEGATION_TOKEN: _describe_tokens,
    ApiKey.DELETE_GROUPS: needs_each(DELETE, GROUP, NO_GROUP, "groups_names", "results", "group_id"),
    ApiKey.ELECT_LEADERS: needs_cluster(ALTER, refuse=_election_refused),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _needs_configs(AclOperation.ALTER_CONFIGS, "responses"),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: needs_cluster(ALTER, refuse=_reassignments_refused),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: needs_cluster(DESCRIBE, refuse=_ongoing_refused),
    ApiKey.OFFSET_DELETE: guard_offset_delete,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: needs_cluster(AclOperation.DESCRIBE_CONFIGS),
    ApiKey.ALTER_CLIENT_QUOTAS: needs_cluster(AclOperation.ALTER_CONFIGS, refuse=_quotas_refused),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: needs_cluster(
        DESCRIBE, refuse=_refuses_each("results", lambda request: request.users or (), tops=True)
    ),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: needs_cluster(ALTER, refuse=_users_refused),
    ApiKey.ALTER_PARTITION: CLUSTER_ACTION,
    ApiKey.UPDATE_FEATURES: needs_cluster(ALTER),
    ApiKey.ENVELOPE: everybody,
    ApiKey.DESCRIBE_CLUSTER: _describe_cluster,
    ApiKey.DESCRIBE_PRODUCERS: needs_topics(
        READ, Partitions(ApiKey.DESCRIBE_PRODUCERS, "topics", "topics", error_message=MESSAGES[NO_TOPIC])
    ),
    ApiKey.DESCRIBE_TRANSACTIONS: guard_describe_transactions,
    ApiKey.LIST_TRANSACTIONS: guard_list_transactions,
    ApiKey.ALLOCATE_PRODUCER_IDS: CLUSTER_ACTION,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: everybody,
    ApiKey.CONSUMER_GROUP_DESCRIBE: everybody,
}
