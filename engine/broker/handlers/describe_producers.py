"""DescribeProducers (61): v0.

Behaviour
* The producers that a replica remembers, with their epochs, sequences and open transactions (KIP-664). Any replica
  answers. A partition that this broker does not host is NOT_LEADER_OR_FOLLOWER; an unknown one is
  UNKNOWN_TOPIC_OR_PARTITION.
"""

from __future__ import annotations

from engine.broker.handlers.answer_lists import answer_lists
from engine.broker.handlers.context import RequestContext
from engine.broker.handlers.in_turns import Steps, each_part, in_steps
from engine.broker.handlers.registry import handles
from engine.broker.log.producer_sequences import ProducerEntry
from engine.common.errors import ErrorCode, KafkaError
from engine.common.model import TopicPartition
from engine.common.topic_names import check_topic_name
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)


@handles(ApiKey.DESCRIBE_PRODUCERS, requires=["Read Topic"])
@in_steps
def describe_producers(context: RequestContext, request: DescribeProducersRequest) -> Steps[DescribeProducersResponse]:
    topics = yield from each_part(
        request.topics,
        lambda topic: topic.partition_indexes,
        lambda topic, index: _describe(context, TopicPartition(topic.name, index)),
        lambda topic, answers: TopicResponse(name=topic.name, partitions=answers),
        answer_lists(context, DescribeProducersResponse, "topics.partitions"),
    )
    return DescribeProducersResponse(topics=topics)


def _describe(context: RequestContext, topic_partition: TopicPartition) -> PartitionResponse:
    try:
        check_topic_name(topic_partition.topic)
        context.broker.metadata_cache.check_has(*topic_partition)
        log = context.broker.replica_manager.partition(*topic_partition).log
        if log is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    except KafkaError as error:
        return PartitionResponse(
            partition_index=topic_partition.partition,
            error_code=error.code,
            error_message=error.message,
            active_producers=[],
        )
    return PartitionResponse(
        partition_index=topic_partition.partition,
        error_message=None,
        active_producers=[_state(producer) for producer in log.producers.producers.values()],
    )


def _state(producer: ProducerEntry) -> ProducerState:
    return ProducerState(
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        last_sequence=producer.last_sequence,
        last_timestamp=producer.last_timestamp_ms,
        coordinator_epoch=producer.coordinator_epoch,
        current_txn_start_offset=producer.current_txn_first_offset,
    )
