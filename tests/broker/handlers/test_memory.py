"""What a large request takes beside its bytes and those of its answer: no object for each thing that it names."""

from __future__ import annotations

import inspect
import tracemalloc
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from event_loop import in_event_loop
from grown_requests import grown

from engine.broker.coordinator.transactions.marker_writer import MarkerWriter
from engine.broker.handlers import metadata
from engine.broker.handlers.add_partitions_to_txn import add_partitions_to_txn
from engine.broker.handlers.alter_client_quotas import alter_client_quotas
from engine.broker.handlers.alter_configs import alter_configs
from engine.broker.handlers.alter_partition import alter_partition
from engine.broker.handlers.create_topics import create_topics
from engine.broker.handlers.guarding import behind
from engine.broker.handlers.guards import GUARDS
from engine.broker.handlers.incremental_alter_configs import incremental_alter_configs
from engine.broker.handlers.leader_and_isr import leader_and_isr
from engine.broker.handlers.list_transactions import list_transactions
from engine.broker.handlers.stop_replica import stop_replica
from engine.broker.handlers.txn_offset_commit import txn_offset_commit
from engine.broker.handlers.update_features import update_features
from engine.broker.handlers.write_txn_markers import write_txn_markers
from engine.broker.network.request import Deferred, LargeAnswer
from engine.broker.quotas.client_quotas import UNLIMITED
from engine.common.errors import ErrorCode, KafkaError
from engine.kafka.config.metadata_version import MetadataVersion
from engine.kafka.protocol.api_keys import API_SPECS, ApiKey
from engine.kafka.protocol.apis.metadata import MetadataResponse, MetadataResponseTopic
from engine.kafka.protocol.codec import Outgoing, decoder, encoder
from engine.kafka.protocol.declaration import request_class, response_class

FEW, MANY = 10_000, 15_000
"""Elements of a frame that is just large, and of one that is measured."""


def broker() -> Any:
    """Return a broker that is the controller, and has one topic without a partition."""

    async def stored(_: str) -> dict[str, str]:
        return {}

    async def ask(event: Any) -> Any:
        return dict.fromkeys(event.partitions, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    async def refuse(wanted: Any, **_: object) -> None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{len(wanted.assignments)} {len(wanted.configs)}")

    async def forgotten(names: Any) -> bool:
        return not names

    clock = SimpleNamespace(now_ms=lambda: 0, monotonic_ms=lambda: 0)
    replicas = SimpleNamespace(
        hosted_partition=lambda _: None,
        environment=SimpleNamespace(topics=SimpleNamespace(produce_errors=Counter(), fetch_errors=Counter())),
        clock=clock,
        controller_epoch=2**30,
        state_change_log=SimpleNamespace(info=print, warning=print, is_tracing=False),
        undisturbed=lambda work: work(),
        partitions={},
        is_offline=lambda _: False,
        fetchers=SimpleNamespace(remove=len, end_idle=lambda: None),
        log_dir_moves=SimpleNamespace(remove=len),
        wakeups=SimpleNamespace(mark=lambda _: None),
        log_manager=SimpleNamespace(
            get=lambda _: None, delete=lambda _: None, may_be_named=lambda _: False, offline_dirs=[]
        ),
        forget_logs=forgotten,
        replicas_stopped=len,
    )
    writer = MarkerWriter(replicas, clock, timeout_ms=0, offsets_ended=lambda *_: None)  # type: ignore[arg-type]
    return SimpleNamespace(
        broker_id=0,
        # A LeaderAndIsr comes too late, from an earlier controller.
        broker_epoch=2**60,
        clock=clock,
        config=SimpleNamespace(inter_broker_protocol_version=MetadataVersion.IBP_3_9_IV0),
        controller=SimpleNamespace(is_active=True, ask=ask),
        dynamic_configs=SimpleNamespace(current=None),
        metadata_cache=SimpleNamespace(partitions=lambda _: {}, topics={"t"}, topic_name=lambda _: None),
        replica_manager=replicas,
        quotas=SimpleNamespace(mutation_quota=lambda *_, **__: UNLIMITED),
        topic_admin=SimpleNamespace(create_topic=refuse),
        transaction_coordinator=SimpleNamespace(
            marker_writer=writer, transactions=(), list_transactions=lambda **_: []
        ),
        zk=SimpleNamespace(configs=SimpleNamespace(get_entity_configs=stored)),
    )


async def answered(handler: Callable[[Any, Any], Any], key: ApiKey, frame: bytes, version: int) -> Outgoing:
    context: Any = SimpleNamespace(
        broker=broker(), api_key=key, api_version=version, size_bytes=len(frame), correlation_id=1, session=None
    )
    body = decoder(request_class(key), version, is_bounded=True)(frame, 0)[0]
    if key in (ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS):
        (resource,) = body.resources  # type: ignore[attr-defined]
        resource.resource_type, resource.resource_name = 2, "t"
    answer = handler(context, body)
    if inspect.isawaitable(answer):
        answer = await answer
    if isinstance(answer, Deferred | LargeAnswer):
        answer = answer.response
    out = Outgoing()
    encoder(response_class(key), version, is_large=True)(out, answer)
    return out


async def assert_little_memory(handler: Callable[[Any, Any], Any], key: ApiKey, frame: bytes, version: int) -> None:
    """Answer the request; at its peak, that takes no more memory than a few of its frames and its answer."""
    tracemalloc.start()
    try:
        out = await answered(handler, key, frame, version)
        peak = tracemalloc.get_traced_memory()[1] + len(frame)
    finally:
        tracemalloc.stop()
    # A piece of the request, 500 elements, is objects while it is looked at.
    assert peak <= 4 * len(frame) + 1.5 * out.size_bytes + 300_000


@pytest.mark.parametrize(
    ("handler", "key", "version", "path"),
    [
        (add_partitions_to_txn, ApiKey.ADD_PARTITIONS_TO_TXN, 3, "v3_and_below_topics.partitions"),
        (alter_client_quotas, ApiKey.ALTER_CLIENT_QUOTAS, 1, "entries.entity"),
        (alter_partition, ApiKey.ALTER_PARTITION, 2, "topics.partitions.new_isr"),
        (alter_partition, ApiKey.ALTER_PARTITION, 3, "topics.partitions.new_isr_with_epochs"),
        (alter_configs, ApiKey.ALTER_CONFIGS, 2, "resources.configs"),
        (create_topics, ApiKey.CREATE_TOPICS, 7, "topics.assignments"),
        (create_topics, ApiKey.CREATE_TOPICS, 7, "topics.assignments.broker_ids"),
        (create_topics, ApiKey.CREATE_TOPICS, 7, "topics.configs"),
        (leader_and_isr, ApiKey.LEADER_AND_ISR, 7, "topic_states"),
        (leader_and_isr, ApiKey.LEADER_AND_ISR, 4, "topic_states.partition_states"),
        (leader_and_isr, ApiKey.LEADER_AND_ISR, 1, "ungrouped_partition_states"),
        (incremental_alter_configs, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, "resources.configs"),
        (list_transactions, ApiKey.LIST_TRANSACTIONS, 1, "state_filters"),
        (list_transactions, ApiKey.LIST_TRANSACTIONS, 1, "producer_id_filters"),
        (lambda context, request: describe_by_id(context, request), ApiKey.METADATA, 12, "topics"),
        (stop_replica, ApiKey.STOP_REPLICA, 4, "topic_states.partition_states"),
        (stop_replica, ApiKey.STOP_REPLICA, 0, "ungrouped_partitions"),
        (txn_offset_commit, ApiKey.TXN_OFFSET_COMMIT, 4, "topics.partitions"),
        (update_features, ApiKey.UPDATE_FEATURES, 1, "feature_updates"),
        (write_txn_markers, ApiKey.WRITE_TXN_MARKERS, 1, "markers.topics.partition_indexes"),
    ],
    ids=lambda value: value if isinstance(value, str) and "." in value else getattr(value, "name", ""),
)
@in_event_loop
async def test_a_large_request_takes_little_memory(handler: Any, key: ApiKey, version: int, path: str) -> None:
    assert API_SPECS[key].supports(version)
    few, many = (frame_of(key, version, path, elements) for elements in (FEW, MANY))
    # What the first large request of a kind makes stays.
    await answered(handler, key, few, version)
    await assert_little_memory(handler, key, many, version)


@pytest.mark.parametrize(
    ("key", "version", "path"),
    [
        (ApiKey.PRODUCE, 11, "topic_data"),
        (ApiKey.FETCH, 12, "topics"),
        (ApiKey.LEADER_AND_ISR, 1, "ungrouped_partition_states"),
        (ApiKey.STOP_REPLICA, 4, "topic_states.partition_states"),
        (ApiKey.DELETE_TOPICS, 6, "topics"),
        (ApiKey.ADD_PARTITIONS_TO_TXN, 3, "v3_and_below_topics"),
        (ApiKey.WRITE_TXN_MARKERS, 1, "markers"),
        (ApiKey.DESCRIBE_CONFIGS, 4, "resources"),
        (ApiKey.ALTER_REPLICA_LOG_DIRS, 2, "dirs.topics.partitions"),
        (ApiKey.CREATE_PARTITIONS, 3, "topics"),
        (ApiKey.ELECT_LEADERS, 2, "topic_partitions"),
        (ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, "topics.partition_indexes"),
        (ApiKey.ALTER_CLIENT_QUOTAS, 1, "entries.entity"),
    ],
    ids=lambda value: value if isinstance(value, str) else getattr(value, "name", ""),
)
@in_event_loop
async def test_the_refusals_of_a_large_request_take_little_memory(key: ApiKey, version: int, path: str) -> None:
    authorizer: Any = SimpleNamespace(may=lambda *_, **__: False)
    answer = behind(GUARDS[key], key, lambda *_: response_class(key)(), authorizer)
    # What the first large request of a kind makes stays.
    few, many = (frame_of(key, version, path, elements) for elements in (FEW, MANY))
    await answered(answer, key, few, version)
    await assert_little_memory(answer, key, many, version)


async def describe_by_id(context: Any, request: Any) -> Any:
    """Answer a Metadata request as its handler does, without a broker's topics."""

    def described(_: Any, piece: Any) -> MetadataResponse:
        return MetadataResponse(topics=[MetadataResponseTopic(topic_id=topic.topic_id) for topic in piece.topics])

    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(metadata, "_described", described)
        return await metadata._piece_by_piece(context, request, request.topics)


def frame_of(key: ApiKey, version: int, path: str, elements: int) -> bytes:
    values = {"broker_epoch": 0, "acks": 1, **({"replica_id": 1} if key is ApiKey.FETCH else {})}
    if key is ApiKey.STOP_REPLICA:
        values |= {"broker_epoch": 2**60, "controller_epoch": 2**30}
    request, out = grown(key, version, tuple(path.split(".")), elements, 0, **values), Outgoing()
    for resource in getattr(request, "resources", ()):
        for config in getattr(resource, "configs", ()):
            config.value = "1"
    encoder(type(request), version)(out, request)
    return bytes(out)
