"""Guards of requests about topics and their records: what each of them needs."""

from __future__ import annotations

from functools import partial
from typing import Any

from engine.broker.fetch.reads import GuardedReads
from engine.broker.handlers.answer_lists import another, answer_list
from engine.broker.handlers.guarding import (
    ALTER,
    CREATE,
    DELETE,
    DESCRIBE,
    PARTED_AT_ONCE_MAX,
    READ,
    TOPIC,
    TXN,
    WRITE,
    Ask,
    Merge,
    WithReads,
    adds,
    cluster_operations,
    needs_topics,
    some_of,
    then,
)
from engine.broker.handlers.in_turns import Steps, each
from engine.broker.handlers.refusals import NO_TOPIC, NO_TXN, Partitions, element, said
from engine.broker.metrics.topics import BrokerTopics
from engine.broker.network.connection import PRODUCED_AT_ONCE_MAX
from engine.broker.network.request import CLOSE_CONNECTION, NO_RESPONSE
from engine.common.acl import AclOperation
from engine.common.errors import ErrorCode
from engine.common.topic_id import ZERO_TOPIC_ID
from engine.common.turns import at_once
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis import delete_topics, fetch, metadata, produce
from engine.kafka.protocol.declaration import response_class
from engine.kafka.protocol.large_arrays import LazyArray
from engine.kafka.protocol.records.layout import ATTRIBUTES, BATCH_OVERHEAD, MAGIC, TRANSACTIONAL_BIT

# -- topics


_PRODUCED = Partitions(ApiKey.PRODUCE, "topic_data", "responses", base_offset=-1, log_append_time_ms=-1)


def guard_produce(ask: Ask, request: Any) -> Any:
    topics, transactional_id = request.topic_data, request.transactional_id
    if transactional_id is not None and _is_lazy(topics):
        return _produce_in_transaction(ask, request)
    if (
        transactional_id is not None
        and at_once(_is_transactional(request))
        and not ask.may(WRITE, TXN, transactional_id)
    ):
        steps = _produce_refused(ask, request, [], topics, NO_TXN)
    elif len(topics) <= PRODUCED_AT_ONCE_MAX and all(
        ask.may(WRITE, TOPIC, topic.name, count=len(topic.partition_data)) for topic in topics
    ):
        return None
    else:
        steps = _produce_to_some(ask, request)
    if len(topics) <= PARTED_AT_ONCE_MAX and (
        sum(1 + len(topic.partition_data) for topic in topics) <= PARTED_AT_ONCE_MAX
    ):
        return at_once(steps)
    if _is_lazy(topics):
        return steps
    for topic in topics:
        for data in topic.partition_data:
            if data.records is not None:
                # The request may be handled later, after its bytes are gone.
                data.records = memoryview(bytearray(data.records))
    return steps


def _is_lazy(topics: Any) -> bool:
    """Return whether a request is large: then it has its own bytes, and looking at all of them takes long."""
    return isinstance(topics, LazyArray) or any(isinstance(topic.partition_data, LazyArray) for topic in topics)


def _produce_in_transaction(ask: Ask, request: Any) -> Steps[Any]:
    if (yield from _is_transactional(request)) and not ask.may(WRITE, TXN, request.transactional_id):
        return (yield from _produce_refused(ask, request, [], request.topic_data, NO_TXN))
    return (yield from _produce_to_some(ask, request))


def _produce_to_some(ask: Ask, request: Any) -> Steps[Any]:
    kept, refused = yield from ask.parted(request.topic_data, WRITE, TOPIC)
    return (yield from _produce_refused(ask, request, kept, refused, NO_TOPIC)) if refused else None


def _produce_refused(ask: Ask, request: Any, kept: list[Any], refused: list[Any], code: ErrorCode) -> Steps[Any]:
    request.topic_data = kept
    entries = yield from _PRODUCED.refused(ask.context, refused, code)
    for topic in refused:
        _counts(ask).produce_errors[code] += len(topic.partition_data)
        yield
    if request.acks == 0:
        return lambda answer: CLOSE_CONNECTION
    if not kept:
        return produce.ProduceResponse(responses=entries)
    merge = adds("responses", entries)
    return lambda answer: answer if answer in (NO_RESPONSE, CLOSE_CONNECTION) else merge(answer)


def _is_transactional(request: Any) -> Steps[bool]:
    for topic in request.topic_data:
        yield
        for data in topic.partition_data:
            yield
            records = data.records
            is_batch = records is not None and len(records) >= BATCH_OVERHEAD and records[MAGIC] == 2
            if is_batch and records[ATTRIBUTES + 1] & TRANSACTIONAL_BIT:
                return True
    return False


_FETCHED = Partitions(ApiKey.FETCH, "topics", "responses", high_watermark=-1, records=b"")


def guard_fetch(ask: Ask, request: Any) -> Any:
    state = request.replica_state
    replica_id = request.replica_id if ask.context.api_version < 15 or state is None else state.replica_id
    if replica_id < 0:
        return WithReads(partial(GuardedReads, lambda topic: ask.may(READ, TOPIC, topic)))
    if ask.cluster(AclOperation.CLUSTER_ACTION):
        return None
    if request.session_id:
        # It opens another session, and then gets all partitions.
        return fetch.FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND, responses=[])
    return _follower_refused(ask, request)


def _follower_refused(ask: Ask, request: Any) -> Steps[Any]:
    entries = yield from _FETCHED.refused(ask.context, request.topics)
    for topic in request.topics:
        _counts(ask).fetch_errors[NO_TOPIC] += len(topic.partitions)
        yield
    return fetch.FetchResponse(responses=entries)


def _counts(ask: Ask) -> BrokerTopics:
    """Return where errors of Produce and Fetch are counted: nobody walks through their answers."""
    return ask.context.broker.replica_manager.environment.topics


def guard_metadata(ask: Ask, request: Any) -> Steps[Any]:
    context = ask.context
    cache, version = context.broker.metadata_cache, context.api_version
    if request.topics is None or (version == 0 and not request.topics):
        return _described_topics(ask, request, [], is_filtered=True)
    refused = answer_list(context, metadata.MetadataResponse, "topics")
    kept, keep = some_of(request.topics)
    missing: dict[str, None] = {}
    for place, topic in enumerate(request.topics):
        is_by_id = topic.topic_id != ZERO_TOPIC_ID
        name = cache.topic_name(topic.topic_id) if is_by_id else topic.name
        if name is None or ask.may(DESCRIBE, TOPIC, name):
            keep(place, topic)
            if name is not None and not cache.partitions(name):
                missing[name] = None
        else:
            refused.append(_metadata_entry(None if is_by_id else name, topic.topic_id))
        yield
    creates = (version < 4 or request.allow_auto_topic_creation) and context.broker.config.auto_create_topics_enable
    if missing and creates and not ask.cluster(CREATE, tells=False):
        _, not_created = yield from ask.parted(missing, CREATE, TOPIC, None)
        left_out = set(not_created)
        created = []
        for topic in kept:
            if topic.name not in left_out:
                created.append(topic)
            yield
        kept = created
        yield from each(not_created, lambda name: _metadata_entry(name, ZERO_TOPIC_ID), refused)
    is_emptied = version == 0 and not kept
    request.topics = kept
    return _described_topics(ask, request, refused, is_emptied=is_emptied)


def _described_topics(
    ask: Ask, request: Any, refused: list[Any], *, is_filtered: bool = False, is_emptied: bool = False
) -> Merge:
    """Add refusals, leave out what must not be known, and say what the peer may do."""

    def merge(answer: Any) -> Steps[Any]:
        topics = [] if is_emptied else answer.topics
        if is_filtered:
            topics = yield from ask.seen(topics, DESCRIBE, TOPIC, "name")
        if request.include_topic_authorized_operations:
            # The described topics are shared with other answers.
            topics = yield from each(topics, lambda topic: _with_operations(ask, topic), another(topics))
        answer.topics = topics
        yield from then(adds("topics", refused), answer)
        if request.include_cluster_authorized_operations:
            answer.cluster_authorized_operations = cluster_operations(ask)
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


def _metadata_entry(name: str | None, topic_id: bytes) -> Any:
    return metadata.MetadataResponseTopic(error_code=NO_TOPIC, name=name, topic_id=topic_id, partitions=[])


_describes_epochs = needs_topics(DESCRIBE, Partitions(ApiKey.OFFSET_FOR_LEADER_EPOCH, "topics", "topics"), "topic")


def guard_offset_for_leader_epoch(ask: Ask, request: Any) -> Any:
    return None if ask.cluster(AclOperation.CLUSTER_ACTION, tells=False) else _describes_epochs(ask, request)


def guard_create_topics(ask: Ask, request: Any) -> Steps[Any]:
    if not ask.context.broker.controller.is_active:
        return None
    refused: list[Any] = []
    if not ask.cluster(CREATE, tells=False):
        request.topics, refused = yield from ask.parted(request.topics, CREATE, TOPIC)
    made, may_see = element(response_class(ApiKey.CREATE_TOPICS), "topics"), AclOperation.DESCRIBE_CONFIGS
    entries = yield from each(
        refused,
        lambda topic: made(
            name=topic.name,
            error_code=NO_TOPIC,
            error_message="Authorization failed.",
            topic_config_error_code=(ErrorCode.NONE if ask.may(may_see, TOPIC, topic.name, tells=False) else NO_TOPIC),
            configs=None,
        ),
        answer_list(ask.context, response_class(ApiKey.CREATE_TOPICS), "topics"),
    )

    def merge(answer: Any) -> Steps[Any]:
        for topic in answer.topics:
            if topic.error_code == ErrorCode.NONE and not ask.may(may_see, TOPIC, topic.name, tells=False):
                topic.topic_config_error_code, topic.configs = NO_TOPIC, None
                topic.num_partitions = topic.replication_factor = -1
            yield
        return (yield from then(adds("topics", entries), answer))

    return merge


def guard_delete_topics(ask: Ask, request: Any) -> Steps[Any]:
    if not ask.context.broker.controller.is_active:
        return None
    made = partial(delete_topics.DeletableTopicResult, **said(NO_TOPIC))
    entries = answer_list(ask.context, response_class(ApiKey.DELETE_TOPICS), "responses")
    if ask.context.api_version < 6:
        request.topic_names, names = yield from ask.parted(request.topic_names, DELETE, TOPIC, None)
        yield from each(names, lambda name: made(name=name), entries)
    else:
        kept, keep = some_of(request.topics)
        cache = ask.context.broker.metadata_cache
        for place, topic in enumerate(request.topics):
            is_by_id = topic.topic_id != ZERO_TOPIC_ID
            name = cache.topic_name(topic.topic_id) if is_by_id else topic.name
            is_known = name is not None and (not is_by_id or ask.may(DESCRIBE, TOPIC, name))
            if name is None or (is_known and ask.may(DELETE, TOPIC, name)):
                keep(place, topic)
            else:
                entries.append(made(name=name if is_known else None, topic_id=topic.topic_id))
            yield
        request.topics = kept
    return adds("responses", entries) if entries else None


def guard_create_partitions(ask: Ask, request: Any) -> Steps[Any]:
    if not ask.context.broker.controller.is_active:
        return None
    request.topics, refused = yield from ask.parted(request.topics, ALTER, TOPIC)
    if not refused:
        return None
    made = partial(
        element(response_class(ApiKey.CREATE_PARTITIONS), "results"),
        error_code=NO_TOPIC, error_message="The topic authorization is failed.",
    )  # fmt: skip
    entries = answer_list(ask.context, response_class(ApiKey.CREATE_PARTITIONS), "results")
    return adds("results", (yield from each(refused, lambda topic: made(name=topic.name), entries)))
