"""FindCoordinator (10): v0–v6.

Behaviour
* Names the broker that coordinates a group or a transactional id: the leader of its partition of ``__consumer_offsets``
  or ``__transaction_state``. The first request creates the topic, with the settings ``offsets.topic.*`` or
  ``transaction.state.log.*``.
* COORDINATOR_NOT_AVAILABLE, which clients read as "ask again later", while there is no leader or there are fewer
  brokers than replicas.

Version notes
* v1 key type, throttle time, error message   * v3 flexible   * v4 several keys in one request
* v6 share groups (key type 2), for which a cluster on ZooKeeper has no coordinator: COORDINATOR_NOT_AVAILABLE. Before
  v6, and any other key type: INVALID_REQUEST
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from engine.broker.coordinator.groups.loading import logger
from engine.broker.handlers.answer_lists import answer_list
from engine.broker.handlers.context import RequestContext
from engine.broker.handlers.in_turns import Steps, carried_out
from engine.broker.handlers.registry import handles
from engine.common.errors import ErrorCode
from engine.common.topic_names import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    KeyType,
)
from engine.runtime.turns import carry_out

_FIRST_WITH_SHARE = 6
_NOT_AVAILABLE = "The coordinator is not available."
_INVALID_REQUEST = "A coordinator's key type is 0 (group) or 1 (transaction)."


_TOPICS: dict[int, str] = {KeyType.GROUP: GROUP_METADATA_TOPIC, KeyType.TRANSACTION: TRANSACTION_STATE_TOPIC}
"""Where the coordinators keep what they know of the keys."""


@handles(ApiKey.FIND_COORDINATOR, requires=["Describe Group", "Describe TransactionalId"])
def find_coordinator(
    context: RequestContext, request: FindCoordinatorRequest
) -> FindCoordinatorResponse | Coroutine[Any, Any, object]:
    """Name each key's coordinator; wait only if the topic has to be created first."""
    topic = _TOPICS.get(request.key_type)
    if topic is not None and not context.broker.metadata_cache.partitions(topic):
        return _create_first(context, request, topic)
    return carried_out(_response(context, request))


async def _create_first(
    context: RequestContext, request: FindCoordinatorRequest, topic: str
) -> FindCoordinatorResponse:
    errors = await context.broker.topic_admin.auto_create(
        [topic], context.broker.quotas.mutation_quota(context, strict_since=None).record
    )
    if errors[topic] is not ErrorCode.LEADER_NOT_AVAILABLE:
        logger.warning("The topic %s cannot be created yet: %s", topic, errors[topic].name)
    return await carry_out(_response(context, request))


def _response(context: RequestContext, request: FindCoordinatorRequest) -> Steps[FindCoordinatorResponse]:
    if context.api_version >= 4:
        # Usually there is one: ``each`` would take longer than the work.
        coordinators: list[Coordinator] = answer_list(context, FindCoordinatorResponse, "coordinators")
        for key in request.coordinator_keys:
            coordinators.append(_coordinator(context, key, request.key_type))
            yield
        return FindCoordinatorResponse(coordinators=coordinators)
    coordinator = _coordinator(context, request.key, request.key_type)
    return FindCoordinatorResponse(
        error_code=coordinator.error_code,
        error_message=coordinator.error_message or "NONE",
        node_id=coordinator.node_id,
        host=coordinator.host,
        port=coordinator.port,
    )


def _coordinator(context: RequestContext, key: str, key_type: int) -> Coordinator:
    if key_type == KeyType.SHARE and context.api_version >= _FIRST_WITH_SHARE:
        return _refusal(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, _NOT_AVAILABLE)
    if key_type not in _TOPICS:
        return _refusal(key, ErrorCode.INVALID_REQUEST, _INVALID_REQUEST)
    broker = context.broker
    is_group = key_type == KeyType.GROUP
    keeper = (broker.group_coordinator if is_group else broker.transaction_coordinator).partition_for(key)
    partition = broker.metadata_cache.partition_info(keeper)
    node = None if partition is None else broker.metadata_cache.node(partition.leader, context.session.listener_name)
    if node is not None:
        return Coordinator(key=key, node_id=node.id, host=node.host, port=node.port, error_code=0, error_message="")
    return _refusal(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, _NOT_AVAILABLE)


def _refusal(key: str, error: ErrorCode, message: str) -> Coordinator:
    return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=error, error_message=message)
