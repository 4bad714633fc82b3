"""CreateTopics (19): v0–v7.

Behaviour
* Only the controller answers; other brokers say NOT_CONTROLLER for each topic. Checks and messages are Kafka's; each
  topic fails separately. A repeated name is INVALID_REQUEST, and so is KRaft's metadata topic.
* This broker writes the znodes; the controller creates the partitions. The answer comes when this broker's metadata
  has a leader for each, or after the request's time-out (REQUEST_TIMED_OUT; the topic is created anyway). With
  validate_only the broker writes nothing and waits for nothing.

Version notes
* v1 validate_only, messages   * v4 -1 partitions or factor are the broker's settings   * v5 flexible; settings and
  counts in the answer   * v6 THROTTLING_QUOTA_EXCEEDED   * v7 topic ids
"""

from __future__ import annotations

from dataclasses import replace

from engine.broker.controller.topic_admin import CreatedTopic, NewTopic
from engine.broker.handlers.answer_lists import answer_list, each_once, kept, repeated
from engine.broker.handlers.context import Broker, RequestContext
from engine.broker.handlers.in_turns import in_lists, in_turns
from engine.broker.handlers.registry import handles
from engine.common.assignment import Assignment, FromZero
from engine.common.errors import ErrorCode, KafkaError
from engine.common.topic_id import ZERO_TOPIC_ID
from engine.common.topic_names import CLUSTER_METADATA_TOPIC
from engine.kafka.config.describe import describe_topic
from engine.kafka.config.topic_configs import TOPIC_CONFIG_DEF
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from engine.kafka.protocol.wire import STRING_BYTES_MAX
from engine.runtime.turns import Breather, carry_out

_FIRST_WITH_CONFIGS = 5
_FIRST_WITH_QUOTA_ERROR = 6


@handles(ApiKey.CREATE_TOPICS, requires=["Create Cluster", "Create Topic", "DescribeConfigs Topic"])
async def create_topics(context: RequestContext, request: CreateTopicsRequest) -> CreateTopicsResponse:
    if not context.broker.controller.is_active:
        refusal = KafkaError(ErrorCode.NOT_CONTROLLER)
        results = answer_list(context, CreateTopicsResponse, "topics")
        await in_turns(request.topics, lambda topic: _failed(topic.name, refusal), results)
        return CreateTopicsResponse(topics=results)
    allow = context.broker.quotas.mutation_quota(context, strict_since=_FIRST_WITH_QUOTA_ERROR).record
    results = answer_list(context, CreateTopicsResponse, "topics")
    created: dict[str, tuple[CreatedTopic, CreatableTopicResult]] = {}
    breather = Breather()
    twice = await carry_out(repeated(lambda: (topic.name for topic in request.topics)))
    for topic in request.topics:
        await breather.give_way()
        try:
            _check_request(topic, is_repeated=topic.name in twice)
            made = await context.broker.topic_admin.create_topic(
                await _wanted(context, topic, breather), validate_only=request.validate_only, allow=allow
            )
            result = _succeeded(context, made, validate_only=request.validate_only)
            created[topic.name] = made, kept(results, result)
        except KafkaError as error:
            results.append(_failed(topic.name, error))
    if not request.validate_only:
        await _wait(context.broker, created, request.timeout_ms)
    return CreateTopicsResponse(topics=results)


def _check_request(topic: CreatableTopic, *, is_repeated: bool) -> None:
    if topic.name == CLUSTER_METADATA_TOPIC:
        message = f"Creation of internal topic {CLUSTER_METADATA_TOPIC} is prohibited."
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)
    if is_repeated:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Found multiple entries for this topic.")


async def _wanted(context: RequestContext, topic: CreatableTopic, breather: Breather) -> NewTopic:
    wanted = NewTopic(topic.name, topic.num_partitions, topic.replication_factor)
    if topic.assignments:
        # With numbers it is refused, whatever they are.
        assignments = {0: ()} if wanted.has_numbers else await _assignments(topic, breather)
        wanted = replace(wanted, assignments=assignments)
    configs = await carry_out(each_once(context, lambda: ((config.name, config.value) for config in topic.configs)))
    has_unknown, without_value = False, 0
    for name, value in configs:
        await breather.give_way()
        if name is None or (name not in TOPIC_CONFIG_DEF and has_unknown and value is not None):
            # The first that no topic has is refused in the end, and the others are not needed for that.
            continue
        has_unknown |= name not in TOPIC_CONFIG_DEF
        wanted.configs[name] = value
        if value is None:
            without_value += len(name)
            if without_value > STRING_BYTES_MAX:
                # The refusal is too long to be sent: the client never sees the rest.
                break
    return wanted


async def _assignments(topic: CreatableTopic, breather: Breather) -> Assignment:
    """Return each partition's replicas; of a partition that comes twice, the last."""
    from_zero: list[tuple[int, ...]] = []
    others: dict[int, tuple[int, ...]] = {}
    shared: dict[tuple[int, ...], tuple[int, ...]] = {}
    for of_partitions in in_lists(topic.assignments):
        for assigned in of_partitions:
            # Most partitions of a large topic have the same replicas as others.
            replicas = tuple(assigned.broker_ids)
            replicas = shared.setdefault(replicas, replicas)
            if assigned.partition_index == len(from_zero) and not others:
                from_zero.append(replicas)
            else:
                others[assigned.partition_index] = replicas
        await breather.give_way()
    return {**FromZero(from_zero), **others} if others else FromZero(from_zero)


async def _wait(broker: Broker, created: dict[str, tuple[CreatedTopic, CreatableTopicResult]], timeout_ms: int) -> None:
    """Wait for all topics together; topics without leaders by the end have timed out."""
    deadline_ms = broker.clock.monotonic_ms() + timeout_ms
    for name, (topic, result) in created.items():
        rest_ms = deadline_ms - broker.clock.monotonic_ms()
        if timeout_ms <= 0 or not await broker.topic_admin.wait_for_leaders(name, topic.assignment, rest_ms):
            refusal = _failed(name, KafkaError(ErrorCode.REQUEST_TIMED_OUT))
            refusal.topic_id = result.topic_id
            for field in result.wire_fields:
                setattr(result, field.name, getattr(refusal, field.name))


def _succeeded(context: RequestContext, topic: CreatedTopic, *, validate_only: bool) -> CreatableTopicResult:
    result = CreatableTopicResult(name=topic.name)
    if not validate_only and topic.topic_id is not None:
        result.topic_id = topic.topic_id
    if context.api_version >= _FIRST_WITH_CONFIGS:
        result.num_partitions = len(topic.assignment)
        result.replication_factor = len(topic.assignment[0])
        result.configs = [
            CreatableTopicConfigs(
                name=config.name,
                value=config.value,
                read_only=config.is_read_only,
                config_source=config.source,
                is_sensitive=config.is_sensitive,
            )
            for config in describe_topic(topic.overrides, context.broker.dynamic_configs, None)
        ]
    return result


def _failed(name: str, error: KafkaError) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=name, topic_id=ZERO_TOPIC_ID, error_code=error.code, error_message=error.message, configs=[]
    )
