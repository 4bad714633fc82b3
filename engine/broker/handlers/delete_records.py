"""DeleteRecords (21): v0–v2.

Behaviour
* The leader moves the log's start at once, and answers when all live replicas have done so or after ``timeout_ms``,
  with REQUEST_TIMED_OUT for the partitions that still wait.
* Offset -1 means the high watermark; an offset beyond it is OFFSET_OUT_OF_RANGE. A topic that is only compacted is
  POLICY_VIOLATION, an internal one INVALID_TOPIC_EXCEPTION. The next retention run removes the files.

Version notes
* v1 as v0   * v2 flexible
"""

from __future__ import annotations

from collections.abc import Iterator

from engine.broker.handlers.answer_lists import ByTopic, each_once
from engine.broker.handlers.context import Broker, RequestContext
from engine.broker.handlers.in_turns import Steps, in_steps
from engine.broker.handlers.registry import handles
from engine.broker.network.request import Deferred, DelayedAnswer
from engine.broker.replication.offset_lookup import delete_records as delete_records_of
from engine.common.errors import ErrorCode, KafkaError
from engine.common.model import TopicPartition
from engine.common.topic_names import INTERNAL_TOPICS
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
)

INVALID_LOW_WATERMARK = -1


@handles(ApiKey.DELETE_RECORDS, requires=["Delete Topic"])
@in_steps
def delete_records(context: RequestContext, request: DeleteRecordsRequest) -> Steps[DeleteRecordsResponse | Deferred]:
    waiting: list[_Waiting] = []
    topics = yield from ByTopic.of(
        context, DeleteRecordsResponse, "topics.partitions", "name", lambda: (topic.name for topic in request.topics)
    )
    # Kafka keeps a map: if a partition is named twice, the last offset counts.
    for partition, offset in (yield from each_once(context, lambda: _wanted(request))):
        if partition is not None:
            before = len(waiting)
            answer = _delete(context.broker, partition, offset, waiting)
            topics.add(partition.topic, answer, may_change=len(waiting) > before)
        yield
    response = DeleteRecordsResponse(topics=topics.topics())
    operation = DelayedDeleteRecords(request.timeout_ms, context.broker, waiting, response)
    keys = [wait.topic_partition for wait in waiting]
    if context.broker.replica_manager.delayed_delete_records.try_complete_else_watch(operation, keys):
        return response
    return operation.deferred


def _wanted(request: DeleteRecordsRequest) -> Iterator[tuple[TopicPartition | None, int]]:
    """Yield each partition with its offset, and None for each topic: very many may have no partition."""
    for topic in request.topics:
        yield None, 0
        for partition in topic.partitions:
            yield TopicPartition(topic.name, partition.partition_index), partition.offset


class _Waiting:
    """A partition whose log start has moved here, but perhaps not everywhere yet."""

    __slots__ = ("answer", "requested_offset", "topic_partition")

    def __init__(
        self, topic_partition: TopicPartition, requested_offset: int, answer: DeleteRecordsPartitionResult
    ) -> None:
        self.topic_partition = topic_partition
        self.requested_offset = requested_offset
        self.answer = answer


class DelayedDeleteRecords(DelayedAnswer):
    """An answer that waits for the low watermark of its partitions."""

    __slots__ = ("_broker", "_response", "_waiting")

    def __init__(self, delay_ms: int, broker: Broker, waiting: list[_Waiting], response: DeleteRecordsResponse) -> None:
        super().__init__(delay_ms)
        self._broker = broker
        self._waiting = waiting
        self._response = response

    def try_complete(self) -> bool:
        """Complete when each partition's live replicas have reached the offset, or the partition has failed."""
        self._waiting = [wait for wait in self._waiting if not self._is_done(wait)]
        return not self._waiting and self.force_complete()

    def on_complete(self) -> None:
        """Answer; partitions that still wait have timed out."""
        for wait in self._waiting:
            wait.answer.error_code = ErrorCode.REQUEST_TIMED_OUT
        self.deferred.complete(self._response)

    def _is_done(self, waiting: _Waiting) -> bool:
        try:
            low_watermark = self._broker.replica_manager.partition(*waiting.topic_partition).low_watermark
        except KafkaError as error:
            waiting.answer.error_code = error.code
            waiting.answer.low_watermark = INVALID_LOW_WATERMARK
            return True
        waiting.answer.low_watermark = low_watermark
        return low_watermark >= waiting.requested_offset


def _delete(
    broker: Broker, topic_partition: TopicPartition, offset: int, waiting: list[_Waiting]
) -> DeleteRecordsPartitionResult:
    answer = DeleteRecordsPartitionResult(
        partition_index=topic_partition.partition, low_watermark=INVALID_LOW_WATERMARK
    )
    try:
        broker.metadata_cache.check_has(*topic_partition)
        if topic_partition.topic in INTERNAL_TOPICS:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot delete records of internal topic {topic_partition.topic}"
            )
        deletion = delete_records_of(broker.replica_manager.partition(*topic_partition), offset)
    except KafkaError as error:
        answer.error_code = error.code
        return answer
    answer.low_watermark = deletion.low_watermark
    waiting.append(_Waiting(topic_partition, deletion.requested_offset, answer))
    return answer
