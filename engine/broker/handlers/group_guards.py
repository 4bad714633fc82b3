"""Guards of requests about groups and transactions: what each of them needs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from engine.broker.handlers.answer_lists import another, answer_list
from engine.broker.handlers.guarding import (
    CLUSTER_ACTION,
    DELETE,
    DESCRIBE,
    GROUP,
    READ,
    TOPIC,
    TXN,
    WRITE,
    Ask,
    adds,
    needs_each,
    needs_group,
    needs_topics,
    needs_transactional_id,
    refuses_all,
    then,
)
from engine.broker.handlers.in_turns import Steps, each
from engine.broker.handlers.refusals import MESSAGES, NO_CLUSTER, NO_GROUP, NO_TOPIC, NO_TXN, Partitions, element
from engine.common.acl import AclOperation, ResourceType
from engine.common.errors import ErrorCode
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis import find_coordinator
from engine.kafka.protocol.declaration import response_class

# -- groups and transactions


def guard_find_coordinator(ask: Ask, request: Any) -> Any:
    needed = {0: (GROUP, NO_GROUP), 1: (TXN, NO_TXN)}.get(request.key_type)
    if needed is None:
        return None
    kind, code = needed
    nowhere: dict[str, Any] = {"error_message": MESSAGES[code], "node_id": -1, "host": "", "port": -1}
    if ask.context.api_version >= 4:
        return needs_each(DESCRIBE, kind, code, "coordinator_keys", "coordinators", "key", **nowhere)(ask, request)
    if ask.may(DESCRIBE, kind, request.key):
        return None
    return find_coordinator.FindCoordinatorResponse(error_code=code, **nowhere)


COMMITTED = Partitions(ApiKey.OFFSET_COMMIT, "topics", "topics")
COMMITTED_IN_TXN = Partitions(ApiKey.TXN_OFFSET_COMMIT, "topics", "topics")
_FETCHED_OFFSETS = Partitions(ApiKey.OFFSET_FETCH, "topics", "topics", committed_offset=-1, metadata="")
_FETCHED_OF_GROUP = Partitions(ApiKey.OFFSET_FETCH, "groups.topics", "groups.topics", committed_offset=-1, metadata="")


def needs_group_and_topics(partitions: Partitions, *, is_in_txn: bool) -> Callable[..., Steps[Any]]:
    def guard(ask: Ask, request: Any) -> Steps[Any]:
        code = None
        if is_in_txn and not ask.may(WRITE, TXN, request.transactional_id):
            code = NO_TXN
        elif not ask.may(READ, GROUP, request.group_id):
            code = NO_GROUP
        if code is None:
            return (yield from needs_topics(READ, partitions)(ask, request))
        return response_class(request.api_key)(
            topics=(yield from partitions.refused(ask.context, request.topics, code))
        )

    return guard


def guard_offset_fetch(ask: Ask, request: Any) -> Any:
    if ask.context.api_version >= 8:
        return _offset_fetch_of_groups(ask, request)
    if not ask.may(DESCRIBE, GROUP, request.group_id):
        return refuses_all(NO_GROUP)(ask, request)
    if request.topics is None:
        return partial(_only_described, ask)
    return needs_topics(DESCRIBE, _FETCHED_OFFSETS)(ask, request)


def _only_described(ask: Ask, answer: Any) -> Steps[Any]:
    answer.topics = yield from ask.seen(answer.topics, DESCRIBE, TOPIC, "name")
    return answer


def _offset_fetch_of_groups(ask: Ask, request: Any) -> Steps[Any]:
    kept, refused = yield from ask.parted(request.groups, DESCRIBE, GROUP, "group_id")
    entries: dict[str, list[Any]] = {}
    filtered = set()
    # What is changed in an element of a lazy array would be lost.
    groups = []
    for group in kept:
        groups.append(group)
        if group.topics is None:
            filtered.add(group.group_id)
        else:
            group.topics, not_described = yield from ask.parted(group.topics, DESCRIBE, TOPIC)
            if not_described:
                entries[group.group_id] = yield from _FETCHED_OF_GROUP.refused(ask.context, not_described)
        yield
    if not refused and not filtered and not entries:
        return None
    request.groups = groups
    made = partial(element(response_class(ApiKey.OFFSET_FETCH), "groups"), topics=[], error_code=NO_GROUP)
    not_read = yield from each(
        refused,
        lambda group: made(group_id=group.group_id),
        answer_list(ask.context, response_class(ApiKey.OFFSET_FETCH), "groups"),
    )

    def merge(answer: Any) -> Steps[Any]:
        merged = another(answer.groups)
        for group in answer.groups:
            if group.group_id in filtered:
                yield from _only_described(ask, group)
            elif group.error_code == ErrorCode.NONE:
                yield from then(adds("topics", entries.get(group.group_id, [])), group)
            merged.append(group)
            yield
        answer.groups = merged
        return (yield from then(adds("groups", not_read), answer))

    return merge


_describes_groups = needs_each(DESCRIBE, GROUP, NO_GROUP, "groups", "groups", "group_id", members=[])


def guard_describe_groups(ask: Ask, request: Any) -> Steps[Any]:
    add = yield from _describes_groups(ask, request)
    if not request.include_authorized_operations:
        return add

    def merge(answer: Any) -> Steps[Any]:
        groups = another(answer.groups)
        for group in answer.groups:
            group.authorized_operations = ask.operations(GROUP, group.group_id)
            groups.append(group)
            yield
        answer.groups = groups
        return (yield from then(add, answer))

    return merge


def guard_list_groups(ask: Ask, request: Any) -> Any:
    return None if ask.cluster(DESCRIBE, tells=False) else partial(_only_seen, ask, "groups", GROUP, "group_id")


def guard_list_transactions(ask: Ask, request: Any) -> Any:
    return partial(_only_seen, ask, "transaction_states", TXN, "transactional_id")


def _only_seen(ask: Ask, field: str, kind: ResourceType, named: str, answer: Any) -> Steps[Any]:
    setattr(answer, field, (yield from ask.seen(getattr(answer, field), DESCRIBE, kind, named)))
    return answer


_deletes_offsets = needs_topics(READ, Partitions(ApiKey.OFFSET_DELETE, "topics", "topics"))


def guard_offset_delete(ask: Ask, request: Any) -> Steps[Any]:
    if not ask.may(DELETE, GROUP, request.group_id):
        return refuses_all(NO_GROUP)(ask, request)
    merge = yield from _deletes_offsets(ask, request)
    return merge and (lambda answer: answer if answer.error_code else merge(answer))


def guard_init_producer_id(ask: Ask, request: Any) -> Any:
    if request.transactional_id is not None:
        return needs_transactional_id(ask, request)
    if ask.cluster(AclOperation.IDEMPOTENT_WRITE, tells=False):
        return None
    if ask.authorizer.may_on_any(ask.context.session, WRITE, TOPIC):
        return None
    return refuses_all(NO_CLUSTER)(ask, request)


_ADDED = Partitions(ApiKey.ADD_PARTITIONS_TO_TXN, "v3_and_below_topics", "results_by_topic_v3_and_below")


def guard_add_partitions_to_txn(ask: Ask, request: Any) -> Any:
    return (CLUSTER_ACTION if ask.context.api_version >= 4 else _add_own_partitions)(ask, request)


def _add_own_partitions(ask: Ask, request: Any) -> Steps[Any]:
    topics = request.v3_and_below_topics
    code: Any = NO_TXN
    if ask.may(WRITE, TXN, request.v3_and_below_transactional_id):
        _, refused = yield from ask.parted(topics, WRITE, TOPIC)
        if not refused:
            return None
        names = set()
        for topic in refused:
            names.add(topic.name)
            yield

        def code(topic: Any) -> ErrorCode:
            return NO_TOPIC if topic.name in names else ErrorCode.OPERATION_NOT_ATTEMPTED

    entries = yield from _ADDED.refused(ask.context, topics, code)
    return response_class(ApiKey.ADD_PARTITIONS_TO_TXN)(results_by_topic_v3_and_below=entries)


def guard_add_offsets_to_txn(ask: Ask, request: Any) -> Any:
    return needs_transactional_id(ask, request) or needs_group(ask, request)


_MARKED = Partitions(ApiKey.WRITE_TXN_MARKERS, "markers.topics", "markers.topics")


def guard_markers_refused(ask: Ask, request: Any) -> Steps[Any]:
    answer = response_class(ApiKey.WRITE_TXN_MARKERS)
    made, markers = element(answer, "markers"), answer_list(ask.context, answer, "markers")
    for marker in request.markers:
        topics = yield from _MARKED.refused(ask.context, marker.topics, NO_CLUSTER)
        markers.append(made(producer_id=marker.producer_id, topics=topics))
        yield
    return answer(markers=markers)


_describes_transactions = needs_each(
    DESCRIBE, TXN, NO_TXN, "transactional_ids", "transaction_states", "transactional_id"
)


def guard_describe_transactions(ask: Ask, request: Any) -> Steps[Any]:
    add = yield from _describes_transactions(ask, request)

    def merge(answer: Any) -> Steps[Any]:
        states = another(answer.transaction_states)
        for state in answer.transaction_states:
            state.topics = yield from ask.seen(state.topics, DESCRIBE, TOPIC, "topic")
            states.append(state)
            yield
        answer.transaction_states = states
        return (yield from then(add, answer))

    return merge
