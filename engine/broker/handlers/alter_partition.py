"""AlterPartition (56): v0–v3.

Behaviour
* A leader asks the controller to write new ISRs. The answer has each partition's current state, or a refusal.
* NOT_CONTROLLER and STALE_BROKER_EPOCH refuse the whole request; UNKNOWN_TOPIC_ID refuses all partitions of a topic.

Version notes
* v1 leader recovery state   * v2 topic ids instead of names, INELIGIBLE_REPLICA   * v3 broker epochs of the ISR
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence

from engine.broker.controller.events import AlterPartition, AlterPartitionAnswer, AlterPartitionItem, PartitionKey
from engine.broker.handlers.answer_lists import ByTopic, each_once
from engine.broker.handlers.context import RequestContext
from engine.broker.handlers.in_turns import in_lists
from engine.broker.handlers.registry import handles
from engine.common.errors import ErrorCode
from engine.common.model import LeaderAndIsr, LeaderRecoveryState
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    RequestPartitionData,
    ResponsePartitionData,
)
from engine.kafka.protocol.large_arrays import LazyArray
from engine.runtime.turns import Breather, carry_out

_FIRST_WITH_TOPIC_IDS = 2
_FIRST_WITH_BROKER_EPOCHS = 3


@handles(ApiKey.ALTER_PARTITION, requires=["ClusterAction Cluster"])
async def alter_partition(context: RequestContext, request: AlterPartitionRequest) -> AlterPartitionResponse:
    name = "topic_id" if context.api_version >= _FIRST_WITH_TOPIC_IDS else "topic_name"
    breather = Breather()
    topics = await carry_out(
        ByTopic.of(
            context,
            AlterPartitionResponse,
            "topics.partitions",
            name,
            lambda: (getattr(topic, name) for topic in request.topics),
        )
    )
    for batch in in_lists(await carry_out(each_once(context, lambda: _asked(request, name)))):
        items: dict[PartitionKey, AlterPartitionItem] = {}
        for key, asked in batch:
            if key is not None and asked is not None:
                items[key] = await _item(asked, context.api_version)
        event = AlterPartition(request.broker_id, request.broker_epoch, context.api_version, items)
        answer: AlterPartitionAnswer = await context.broker.controller.ask(event)
        if isinstance(answer, ErrorCode):
            return AlterPartitionResponse(error_code=answer)
        for (topic, partition), result in answer.items():
            await breather.give_way()
            topics.add(topic, _answer(partition, result))
    return AlterPartitionResponse(topics=topics.topics())


def _asked(
    request: AlterPartitionRequest, name: str
) -> Iterator[tuple[PartitionKey, RequestPartitionData] | tuple[None, None]]:
    """Yield what is asked of each partition, and None for each topic: very many may have no partition."""
    for topic in request.topics:
        yield None, None
        key = getattr(topic, name)
        yield from (((key, asked.partition_index), asked) for asked in topic.partitions)


async def _item(partition: RequestPartitionData, api_version: int) -> AlterPartitionItem:
    isr: Sequence[int] = partition.new_isr
    epochs: Sequence[int] = ()
    members = partition.new_isr_with_epochs
    if isinstance(members, LazyArray):
        # Very many take less memory as an array than as a tuple.
        isr, epochs, breather = array("i"), array("q"), Breather()
        for some in in_lists(members):
            isr.extend(member.broker_id for member in some)
            epochs.extend(member.broker_epoch for member in some)
            await breather.give_way()
    elif api_version >= _FIRST_WITH_BROKER_EPOCHS:
        isr = tuple(member.broker_id for member in members)
        epochs = tuple(member.broker_epoch for member in members)
    elif not isinstance(isr, array):
        isr = tuple(isr)
    recovery = LeaderRecoveryState.RECOVERING if partition.leader_recovery_state else LeaderRecoveryState.RECOVERED
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
