"""CreatePartitions (37): v0–v3.

Behaviour
* Only the controller answers; other brokers say NOT_CONTROLLER for each topic. A topic can only grow, and not while
  it is being deleted or reassigned. Checks and messages are Kafka's; each topic fails separately.
* The answer comes when this broker's metadata has a leader for each partition, or after the request's time-out
  (REQUEST_TIMED_OUT; the partitions are created anyway).

Version notes
* v2 flexible   * v3 THROTTLING_QUOTA_EXCEEDED
"""

from __future__ import annotations

from collections import Counter

from engine.broker.handlers.context import Broker, RequestContext
from engine.broker.handlers.in_turns import in_turns
from engine.broker.handlers.registry import handles
from engine.common.errors import ErrorCode, KafkaError
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from engine.runtime.turns import Breather

_FIRST_WITH_QUOTA_ERROR = 3


@handles(ApiKey.CREATE_PARTITIONS, requires=["Alter Topic"])
async def create_partitions(context: RequestContext, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    """Add partitions and wait until they are usable."""
    broker = context.broker
    if not broker.controller.is_active:
        refusal = KafkaError(ErrorCode.NOT_CONTROLLER)
        return CreatePartitionsResponse(
            results=await in_turns(request.topics, lambda topic: _result(topic.name, refusal))
        )
    allow = broker.quotas.mutation_quota(context, strict_since=_FIRST_WITH_QUOTA_ERROR).record
    counts = Counter(topic.name for topic in request.topics)
    results: dict[str, CreatePartitionsTopicResult] = {}
    grown: dict[str, list[int]] = {}
    breather = Breather()
    for topic in request.topics:
        await breather.give_way()
        try:
            _check_request(broker, topic, counts[topic.name])
            assignments = None if topic.assignments is None else [a.broker_ids for a in topic.assignments]
            grown[topic.name] = await broker.topic_admin.add_partitions(
                topic.name, topic.count, assignments, validate_only=request.validate_only, allow=allow
            )
            results[topic.name] = _result(topic.name, None)
        except KafkaError as error:
            results[topic.name] = _result(topic.name, error)
    if not request.validate_only:
        await _wait(broker, grown, results, request.timeout_ms)
    return CreatePartitionsResponse(results=list(results.values()))


def _check_request(broker: Broker, topic: CreatePartitionsTopic, count: int) -> None:
    if count > 1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic in request.")
    if broker.controller.is_topic_queued_for_deletion(topic.name):
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic is queued for deletion.")


async def _wait(
    broker: Broker, grown: dict[str, list[int]], results: dict[str, CreatePartitionsTopicResult], timeout_ms: int
) -> None:
    deadline_ms = broker.clock.monotonic_ms() + timeout_ms
    for name, partitions in grown.items():
        rest_ms = deadline_ms - broker.clock.monotonic_ms()
        if timeout_ms <= 0 or not await broker.topic_admin.wait_for_leaders(name, partitions, rest_ms):
            results[name] = _result(name, KafkaError(ErrorCode.REQUEST_TIMED_OUT))


def _result(name: str, error: KafkaError | None) -> CreatePartitionsTopicResult:
    if error is None:
        return CreatePartitionsTopicResult(name=name)
    return CreatePartitionsTopicResult(name=name, error_code=error.code, error_message=error.message)
