"""LeaderAndIsr (4): v0–v7.

Behaviour
* The controller sends it to give this broker's replicas their roles. A request for an earlier registration of this
  broker fails as a whole: STALE_BROKER_EPOCH.
* A request from a deposed controller fails as a whole: STALE_CONTROLLER_EPOCH.
* Per partition: KAFKA_STORAGE_ERROR (log dir offline), INCONSISTENT_TOPIC_ID, STALE_CONTROLLER_EPOCH (leader epoch
  not newer; NONE if it brings a topic id), UNKNOWN_TOPIC_OR_PARTITION (this broker is not a replica). Otherwise the
  replica takes the role.
* It takes turns with other requests while it creates many logs; the next state change waits for it.

Version notes
* v0–v1 partitions not grouped   * v1 is_new   * v2 broker epoch   * v3 adding and removing replicas
* v5 topic ids, and the answer by id   * v6 leader recovery state   * v7 KRaft flag, which is false here
"""

from __future__ import annotations

import logging

from engine.broker.handlers.answer_lists import answer_lists
from engine.broker.handlers.context import RequestContext
from engine.broker.handlers.preconditions import is_stale
from engine.broker.handlers.registry import handles
from engine.broker.replication.leader_and_isr_change import (
    FIRST_BY_TOPIC,
    become_leader_or_follower,
    leader_and_isr_refusal,
    states_in_turns,
)
from engine.common.errors import CoordinationError, ErrorCode
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from engine.runtime.discards import Discards, in_pieces

logger = logging.getLogger("kafka.server.KafkaApis")


@handles(ApiKey.LEADER_AND_ISR, requires=["ClusterAction Cluster"])
async def leader_and_isr(context: RequestContext, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
    path = "topics.partition_errors" if context.api_version >= FIRST_BY_TOPIC else "partition_errors"
    lists = answer_lists(context, LeaderAndIsrResponse, path)
    if is_stale(context.broker, request.broker_epoch):
        return await leader_and_isr_refusal(request, ErrorCode.STALE_BROKER_EPOCH, context.api_version, lists)
    if request.controller_epoch >= context.broker.replica_manager.controller_epoch:
        await _load_topic_configs(context, request)
    return await become_leader_or_follower(
        context.broker.replica_manager,
        request,
        correlation_id=context.correlation_id,
        api_version=context.api_version,
        lists=lists,
    )


async def _load_topic_configs(context: RequestContext, request: LeaderAndIsrRequest) -> None:
    """Read the settings of topics that are new here: a topic's creation causes no notification of its settings.

    Only of those that get a replica here: a request may name very many, and what is read is kept.
    """
    knows, broker_id = context.broker.dynamic_configs.knows_topic, context.broker.broker_id
    topics = {
        partition.topic: None
        async for partition, _, state in states_in_turns(request)
        if broker_id in state.replicas and (state.is_new or not knows(partition.topic))
    }
    if not topics:
        return
    try:
        await context.broker.topic_configs.load_topics(topics)
    except CoordinationError as error:
        logger.warning("Cannot read the settings of new topics; the next session will read them again: %s", error)
    finally:
        Discards.of_loop().put(in_pieces(topics))
