"""Metadata (3): v0–v12.

Behaviour
* Brokers, controller and topics from the controller's UpdateMetadata requests, with addresses on the request's
  listener. Before the first UpdateMetadata the answer waits, until the broker has been open for 20 seconds. Then it
  has no brokers, and the controller is -1. A broker that has replicas waits for the first one that names topics. Kafka
  does not wait: a client that believes it has no broker left to ask, or that its topic is gone.
* If the client and ``auto.create.topics.enable`` allow it, the broker creates a missing topic and answers
  LEADER_NOT_AVAILABLE until it has a leader. Otherwise the answer is UNKNOWN_TOPIC_OR_PARTITION
  (INVALID_TOPIC_EXCEPTION for a bad name).
* The broker describes very many partitions in turns with other work, as they are in the last turn, and encodes them
  in a thread.
* A partition without a reachable leader has LEADER_NOT_AVAILABLE, or from v6 on LISTENER_NOT_FOUND if the leader is
  alive but has no such listener.

Version notes
* v0 an empty list means all topics, and dead replicas are left out with REPLICA_NOT_AVAILABLE   * v1 null means all
* v4 the client may forbid auto-creation   * v5 offline replicas   * v8 authorized operations   * v10 topic ids
* v12 topics may be asked for by id: UNKNOWN_TOPIC_ID when there is none. Names beside ids are ignored. v10 and v11 have
  the field and may not use it: an id, or no name, makes the whole request INVALID_REQUEST
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, cast

from engine.broker.handlers.answer_lists import answer_list, digest, repeated_digests
from engine.broker.handlers.authorized_operations import CLUSTER_OPERATIONS, NOT_REQUESTED, TOPIC_OPERATIONS
from engine.broker.handlers.context import RequestContext
from engine.broker.handlers.in_turns import in_lists
from engine.broker.handlers.registry import handles
from engine.broker.network.request import LargeAnswer
from engine.broker.network.routes import HandlerSpec
from engine.broker.replication.metadata_cache import PartitionMetadata
from engine.common.errors import ErrorCode
from engine.common.model import NO_CONTROLLER, NO_LEADER, Node
from engine.common.topic_id import ZERO_TOPIC_ID
from engine.common.topic_names import INTERNAL_TOPICS, invalid_topic_name
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from engine.kafka.protocol.large_arrays import LazyArray, PickedArray
from engine.runtime.turns import Turns, carry_out

TOPICS_AT_ONCE = 1000
"""More names than this are answered in pieces: 200,000 unknown names would block the broker for 0.2 s."""

_NEED_THE_CLUSTER = frozenset(
    {ApiKey.METADATA, ApiKey.DESCRIBE_CLUSTER, ApiKey.OFFSET_COMMIT, ApiKey.TXN_OFFSET_COMMIT}
)

UNKNOWN_MS_MAX: Final = 20_000
"""How long a broker that has opened its listeners may keep a client waiting until a controller tells it of the cluster.
A controller that takes over 12,000 partitions on a busy machine needs seven seconds, and the session of a dead one ends
after 18. Most clients wait 30 seconds for an answer.
"""

PARTITIONS_AT_ONCE = 5000
"""More partitions than this are described in several turns and encoded in a thread: 200,000 would block the broker."""


@handles(ApiKey.METADATA, requires=["Describe Topic", "Create Cluster", "Create Topic"])
def metadata(context: RequestContext, request: MetadataRequest) -> MetadataResponse | Coroutine[Any, Any, object]:
    """Describe the cluster; wait only if a topic must be created first, or the request is very large."""
    cache = context.broker.metadata_cache
    wants_all = request.topics is None or (context.api_version == 0 and not request.topics)
    if request.topics is not None and len(request.topics) > TOPICS_AT_ONCE:
        return _piece_by_piece(context, request, request.topics)
    names = cache.topics if wants_all else [topic.name for topic in request.topics or () if topic.name is not None]
    if sum(len(cache.partitions(name)) for name in names) > PARTITIONS_AT_ONCE:
        return _in_turns(context, request, list(names))
    return _described(context, request)


async def _piece_by_piece(
    context: RequestContext, request: MetadataRequest, topics: list[MetadataRequestTopic]
) -> LargeAnswer:
    """Answer in pieces, with each topic once."""

    def key(topic: MetadataRequestTopic) -> tuple[str | None, bytes]:
        """Return what names the topic in the answer if it does not exist."""
        if context.api_version < 12:
            return topic.name or "", topic.topic_id
        return None if topic.topic_id != ZERO_TOPIC_ID else topic.name, topic.topic_id

    with_ids: Any = PickedArray(topics) if isinstance(topics, LazyArray) else []
    places = itertools.count()
    for batch in in_lists(topics if context.api_version >= 12 else ()):
        for topic, place in zip(batch, places, strict=False):
            if topic.topic_id != ZERO_TOPIC_ID:
                with_ids.append(topic) if isinstance(with_ids, list) else with_ids.add(place)
        await Turns.of_loop().wait()
    topics = with_ids or topics
    repeated = await carry_out(repeated_digests(map(key, topics)))
    answered: set[tuple[str | None, bytes]] = set()
    answers = answer_list(context, MetadataResponse, "topics")
    for start in range(0, len(topics), TOPICS_AT_ONCE):
        asked = topics[start : start + TOPICS_AT_ONCE]
        await _describe_in_turns(context, request, [topic.name for topic in asked if topic.name is not None])
        piece = MetadataRequest(
            topics=asked,
            allow_auto_topic_creation=request.allow_auto_topic_creation,
            include_cluster_authorized_operations=request.include_cluster_authorized_operations,
            include_topic_authorized_operations=request.include_topic_authorized_operations,
        )
        answer = _described(context, piece)
        response: Any = answer if isinstance(answer, MetadataResponse) else await answer
        for topic in response.topics:
            named = topic.name, topic.topic_id
            if topic.partitions or digest(named) in repeated:
                # An existing topic may be named by its id, too.
                if named in answered:
                    continue
                answered.add(named)
            answers.append(topic)
        await Turns.of_loop().wait()
    response.topics = answers
    return LargeAnswer(response)


async def _in_turns(context: RequestContext, request: MetadataRequest, names: list[str]) -> LargeAnswer:
    """Describe the topics one by one, then build the answer from them as they are at that moment."""
    await _describe_in_turns(context, request, names)
    answer = _described(context, request)
    return LargeAnswer(answer if isinstance(answer, MetadataResponse) else await answer)


async def _describe_in_turns(context: RequestContext, request: MetadataRequest, names: list[str]) -> None:
    """Describe topics that have very many partitions together; the descriptions are kept."""
    cache, count = context.broker.metadata_cache, 0
    for name in names:
        partitions = cache.partitions(name)
        if partitions:
            _topic(context, name, _nodes(context), _topic_operations(request))
        count += len(partitions)
        if count >= PARTITIONS_AT_ONCE:
            count = 0
            await Turns.of_loop().wait()


def _described(context: RequestContext, request: MetadataRequest) -> MetadataResponse | Coroutine[Any, Any, object]:
    version = context.api_version
    if request.topics is None or (version == 0 and not request.topics):
        return _response(context, request, list(context.broker.metadata_cache.topics), {}, [])
    if version < 12 and any(topic.topic_id != ZERO_TOPIC_ID or topic.name is None for topic in request.topics):
        return _refusal(request.topics)
    with_ids = [topic for topic in request.topics if topic.topic_id != ZERO_TOPIC_ID]
    names, failed = _named(context, with_ids or request.topics)
    missing = [name for name in names if not context.broker.metadata_cache.partitions(name)]
    may_create = (version < 4 or request.allow_auto_topic_creation) and context.broker.config.auto_create_topics_enable
    if missing and may_create:
        return _create_first(context, request, names, missing, failed)
    return _response(context, request, names, {name: _error_of_missing(name) for name in missing}, failed)


def _refusal(topics: Iterable[MetadataRequestTopic]) -> MetadataResponse:
    """Refuse all topics; before v12 an answer must name them, even those requested by id."""
    return MetadataResponse(
        topics=[_topic_error(ErrorCode.INVALID_REQUEST, topic.name or "", topic.topic_id) for topic in topics]
    )


def _named(
    context: RequestContext, topics: Iterable[MetadataRequestTopic]
) -> tuple[list[str], list[MetadataResponseTopic]]:
    """Return the names, each once, and the answers for unknown ids and nameless topics."""
    names: dict[str, None] = {}
    failed: dict[bytes, MetadataResponseTopic] = {}
    for topic in topics:
        name = topic.name
        if topic.topic_id != ZERO_TOPIC_ID:
            name = context.broker.metadata_cache.topic_name(topic.topic_id)
        if name is not None:
            names[name] = None
        else:
            has_id = topic.topic_id != ZERO_TOPIC_ID
            error = ErrorCode.UNKNOWN_TOPIC_ID if has_id else ErrorCode.INVALID_REQUEST
            failed[topic.topic_id] = _topic_error(error, None, topic.topic_id)
    return list(names), list(failed.values())


async def _create_first(
    context: RequestContext,
    request: MetadataRequest,
    names: list[str],
    missing: list[str],
    failed: list[MetadataResponseTopic],
) -> MetadataResponse:
    errors = await context.broker.topic_admin.auto_create(
        missing, context.broker.quotas.mutation_quota(context, strict_since=None).record
    )
    return _response(context, request, names, errors, failed)


def _error_of_missing(name: str) -> ErrorCode:
    if invalid_topic_name(name) is not None:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _response(
    context: RequestContext,
    request: MetadataRequest,
    names: list[str],
    errors: Mapping[str, ErrorCode],
    failed: list[MetadataResponseTopic],
) -> MetadataResponse:
    broker = context.broker
    cache = broker.metadata_cache
    nodes, topic_operations = _nodes(context), _topic_operations(request)
    wants_cluster_operations = request.include_cluster_authorized_operations
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=n.id, host=n.host, port=n.port, rack=n.rack) for n in nodes.values()],
        cluster_id=broker.cluster_id,
        controller_id=NO_CONTROLLER if cache.controller_id is None else cache.controller_id,
        topics=[
            *(
                _topic_error(errors[name], name, ZERO_TOPIC_ID, topic_operations)
                if name in errors
                else _topic(context, name, nodes, topic_operations)
                for name in names
            ),
            *failed,
        ],
        cluster_authorized_operations=CLUSTER_OPERATIONS if wants_cluster_operations else NOT_REQUESTED,
    )


def _nodes(context: RequestContext) -> Mapping[int, Node]:
    return context.broker.metadata_cache.snapshot.nodes.get(context.session.listener_name, {})


def _topic_operations(request: MetadataRequest) -> int:
    return TOPIC_OPERATIONS if request.include_topic_authorized_operations else NOT_REQUESTED


def _topic_error(
    code: ErrorCode, name: str | None, topic_id: bytes, topic_operations: int = NOT_REQUESTED
) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=code,
        name=name,
        topic_id=topic_id,
        is_internal=name in INTERNAL_TOPICS,
        partitions=[],
        topic_authorized_operations=topic_operations,
    )


def _topic(
    context: RequestContext, name: str, nodes: Mapping[int, Node], topic_operations: int
) -> MetadataResponseTopic:
    """Describe an existing topic; answers share the value, which is rebuilt when its content changes."""
    cache = context.broker.metadata_cache
    alive = cache.alive_brokers
    partitions = cache.partitions(name)
    topic_id = cache.topic_id(name)
    # Versions that describe a partition in the same way; see _partition.
    kind = 0 if context.api_version == 0 else min(max(context.api_version, 5), 6)
    key = ("metadata", name, context.session.listener_name, kind, topic_operations)
    known = cache.derived.get(key)
    if known is not None:
        described, of_partitions, of_nodes, of_alive = known
        if of_partitions is partitions and of_nodes is nodes and of_alive is alive and described.topic_id == topic_id:
            return cast("MetadataResponseTopic", described)
    made = MetadataResponseTopic(
        error_code=0,
        name=name,
        topic_id=topic_id,
        is_internal=name in INTERNAL_TOPICS,
        partitions=[_partition(index, p, nodes, alive, kind) for index, p in partitions.items()],
        topic_authorized_operations=topic_operations,
    )
    cache.derived[key] = (made, partitions, nodes, alive)
    return made


def _partition(
    index: int, partition: PartitionMetadata, nodes: Mapping[int, Node], alive: Mapping[int, object], version: int
) -> MetadataResponsePartition:
    replicas, isr = list(partition.replicas), list(partition.isr)
    error = ErrorCode.NONE
    leader = partition.leader
    if leader not in nodes:
        has_no_listener = leader in alive and version >= 6
        error = ErrorCode.LISTENER_NOT_FOUND if has_no_listener else ErrorCode.LEADER_NOT_AVAILABLE
        leader = NO_LEADER
    if version == 0:
        replicas = [r for r in replicas if r in nodes]
        isr = [r for r in isr if r in nodes]
        is_short = len(replicas) < len(partition.replicas) or len(isr) < len(partition.isr)
        if is_short and error is ErrorCode.NONE:
            error = ErrorCode.REPLICA_NOT_AVAILABLE
    return MetadataResponsePartition(
        error_code=error,
        partition_index=index,
        leader_id=leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=replicas,
        isr_nodes=isr,
        # Only the controller says so, as in Kafka: a broker may just lack the client's listener.
        offline_replicas=list(partition.offline_replicas),
    )


def once_known(spec: HandlerSpec) -> HandlerSpec:
    """Let requests wait that need to know the cluster until a controller has told this broker of it. Others pass.

    Commits are among them: to a coordinator that returned before its old session ended, all topics would be unknown,
    and clients take that for the end of the topic.
    """
    if spec.key not in _NEED_THE_CLUSTER:
        return spec

    def once(handler: Callable[..., Any]) -> Callable[..., Any]:
        async def wait(context: RequestContext, request: object) -> object:
            await context.broker.metadata_cache.known.wait()
            answer = handler(context, request)
            return await answer if isinstance(answer, Coroutine) else answer

        def handle(context: RequestContext, request: object) -> object:
            is_known = context.broker.metadata_cache.known.is_set()
            return handler(context, request) if is_known else wait(context, request)

        return handle

    large = spec.large_handler
    return replace(spec, handler=once(spec.handler), large_handler=None if large is None else once(large))
