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

from functools import partial

from engine.broker.handlers.answer_lists import answer_list, kept, repeated
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
from engine.runtime.turns import Breather, carry_out

_FIRST_WITH_QUOTA_ERROR = 3


@handles(ApiKey.CREATE_PARTITIONS, requires=["Alter Topic"])
async def create_partitions(context: RequestContext, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    broker = context.broker
    results = answer_list(context, CreatePartitionsResponse, "results")
    if not broker.controller.is_active:
        refusal = KafkaError(ErrorCode.NOT_CONTROLLER)
        await in_turns(request.topics, lambda topic: _result(topic.name, refusal), results)
        return CreatePartitionsResponse(results=results)
    allow = broker.quotas.mutation_quota(context, strict_since=_FIRST_WITH_QUOTA_ERROR).record
    grown: dict[str, tuple[list[int], CreatePartitionsTopicResult]] = {}
    breather = Breather()
    twice = await carry_out(repeated(lambda: (topic.name for topic in request.topics)))
    answered: set[str] = set()
    for topic in request.topics:
        await breather.give_way()
        if topic.name in twice:
            if topic.name in answered:
                continue
            answered.add(topic.name)
        try:
            _check_request(broker, topic, is_repeated=topic.name in twice)
            assignments = None
            if topic.assignments is not None:
                assignments = partial(in_turns, topic.assignments, lambda assigned: assigned.broker_ids)
            partitions = await broker.topic_admin.add_partitions(
                topic.name, topic.count, assignments, validate_only=request.validate_only, allow=allow
            )
            grown[topic.name] = partitions, kept(results, _result(topic.name, None))
        except KafkaError as error:
            results.append(_result(topic.name, error))
    if not request.validate_only:
        await _wait(broker, grown, request.timeout_ms)
    return CreatePartitionsResponse(results=results)


def _check_request(broker: Broker, topic: CreatePartitionsTopic, *, is_repeated: bool) -> None:
    if is_repeated:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic in request.")
    if broker.controller.is_topic_queued_for_deletion(topic.name):
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic is queued for deletion.")


async def _wait(
    broker: Broker, grown: dict[str, tuple[list[int], CreatePartitionsTopicResult]], timeout_ms: int
) -> None:
    deadline_ms = broker.clock.monotonic_ms() + timeout_ms
    for name, (partitions, result) in grown.items():
        rest_ms = deadline_ms - broker.clock.monotonic_ms()
        if timeout_ms <= 0 or not await broker.topic_admin.wait_for_leaders(name, partitions, rest_ms):
            refusal = KafkaError(ErrorCode.REQUEST_TIMED_OUT)
            result.error_code, result.error_message = refusal.code, refusal.message


def _result(name: str, error: KafkaError | None) -> CreatePartitionsTopicResult:
    if error is None:
        return CreatePartitionsTopicResult(name=name)
    return CreatePartitionsTopicResult(name=name, error_code=error.code, error_message=error.message)
