"""AlterPartition (56): v0–v3.

Behaviour
* A leader asks the controller to write new ISRs. The answer has each partition's current state, or a refusal.
* NOT_CONTROLLER and STALE_BROKER_EPOCH refuse the whole request; UNKNOWN_TOPIC_ID refuses all partitions of a topic.

Version notes
* v1 leader recovery state   * v2 topic ids instead of names, INELIGIBLE_REPLICA   * v3 broker epochs of the ISR
"""

from __future__ import annotations

from engine.broker.controller.events import AlterPartition, AlterPartitionAnswer, AlterPartitionItem, PartitionKey
from engine.broker.handlers.context import RequestContext
from engine.broker.handlers.in_turns import in_turns, pieces
from engine.broker.handlers.registry import handles
from engine.common.errors import ErrorCode
from engine.common.model import LeaderAndIsr, LeaderRecoveryState
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    RequestPartitionData,
    ResponsePartitionData,
    ResponseTopicData,
)
from engine.kafka.protocol.large_arrays import LazyArray
from engine.runtime.turns import Breather

_FIRST_WITH_TOPIC_IDS = 2
_FIRST_WITH_BROKER_EPOCHS = 3


@handles(ApiKey.ALTER_PARTITION, requires=["ClusterAction Cluster"])
async def alter_partition(context: RequestContext, request: AlterPartitionRequest) -> AlterPartitionResponse:
    """Change ISRs."""
    by_id = context.api_version >= _FIRST_WITH_TOPIC_IDS
    items: dict[PartitionKey, AlterPartitionItem] = {}
    breather = Breather()
    for topic in pieces(request.topics, "partitions"):
        key = topic.topic_id if by_id else topic.topic_name
        for asked in topic.partitions:
            if isinstance(asked.new_isr_with_epochs, LazyArray):
                asked.new_isr_with_epochs = await in_turns(asked.new_isr_with_epochs, lambda member: member)
            items[key, asked.partition_index] = _item(asked, context.api_version)
        await breather.give_way()
    event = AlterPartition(request.broker_id, request.broker_epoch, context.api_version, items)
    answer: AlterPartitionAnswer = await context.broker.controller.ask(event)
    if isinstance(answer, ErrorCode):
        return AlterPartitionResponse(error_code=answer)
    topics: dict[str | bytes, ResponseTopicData] = {}
    for (topic_key, partition), result in answer.items():
        await breather.give_way()
        if topic_key not in topics:
            topics[topic_key] = (
                ResponseTopicData(topic_id=topic_key)
                if isinstance(topic_key, bytes)
                else ResponseTopicData(topic_name=topic_key)
            )
        topics[topic_key].partitions.append(_answer(partition, result))
    return AlterPartitionResponse(topics=list(topics.values()))


def _item(partition: RequestPartitionData, api_version: int) -> AlterPartitionItem:
    recovery = LeaderRecoveryState.RECOVERING if partition.leader_recovery_state else LeaderRecoveryState.RECOVERED
    if api_version >= _FIRST_WITH_BROKER_EPOCHS:
        isr = tuple(member.broker_id for member in partition.new_isr_with_epochs)
        epochs = tuple(member.broker_epoch for member in partition.new_isr_with_epochs)
    else:
        isr, epochs = tuple(partition.new_isr), ()
    return AlterPartitionItem(partition.leader_epoch, isr, partition.partition_epoch, recovery, epochs)


def _answer(partition: int, result: LeaderAndIsr | ErrorCode) -> ResponsePartitionData:
    if isinstance(result, ErrorCode):
        return ResponsePartitionData(partition_index=partition, error_code=result)
    return ResponsePartitionData(
        partition_index=partition,
        leader_id=result.leader,
        leader_epoch=result.leader_epoch,
        isr=list(result.isr),
        leader_recovery_state=int(result.leader_recovery_state),
        partition_epoch=result.partition_epoch,
    )
