"""DeleteTopics (20): v0–v6.

Behaviour
* Only the controller answers; other brokers say NOT_CONTROLLER for each topic. With ``delete.topic.enable=false`` the
  answer is TOPIC_DELETION_DISABLED (before v3 INVALID_REQUEST).
* This broker marks the topic for deletion and the controller deletes it. The answer comes when the topic is gone from
  this broker's metadata, or after the request's time-out (REQUEST_TIMED_OUT; the deletion continues). A replica on a
  dead broker delays the deletion, not the answer: the topic's metadata goes at once.

Version notes
* v1 throttle time   * v4 flexible   * v5 messages, THROTTLING_QUOTA_EXCEEDED
* v6 by topic id, too; one topic with both makes the whole request INVALID_REQUEST
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from engine.broker.handlers.answer_lists import answer_list, kept
from engine.broker.handlers.context import Broker, RequestContext
from engine.broker.handlers.in_turns import in_turns
from engine.broker.handlers.registry import handles
from engine.common.errors import ErrorCode, KafkaError
from engine.common.topic_id import ZERO_TOPIC_ID
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from engine.runtime.turns import Breather

_FIRST_BY_ID = 6
_FIRST_WITH_DISABLED_ERROR = 3
_FIRST_WITH_QUOTA_ERROR = 5


@handles(ApiKey.DELETE_TOPICS, requires=["Delete Topic", "Describe Topic"])
async def delete_topics(context: RequestContext, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    def topics() -> Iterable[DeleteTopicState]:
        if context.api_version < _FIRST_BY_ID:
            return (DeleteTopicState(name=name) for name in request.topic_names)
        return request.topics

    responses = answer_list(context, DeleteTopicsResponse, "responses")
    refusal = _refusal(context)
    if refusal is not None:
        code = refusal
        await in_turns(topics(), lambda topic: _result(topic.name, topic.topic_id, code), responses)
        return DeleteTopicsResponse(responses=responses)
    if any(await in_turns(topics(), lambda topic: topic.name is not None and topic.topic_id != ZERO_TOPIC_ID)):
        # As in Kafka nothing of the request is done: what it means is not clear.
        invalid = ErrorCode.INVALID_REQUEST
        await in_turns(topics(), lambda topic: _result(topic.name, topic.topic_id, invalid, _BOTH), responses)
        return DeleteTopicsResponse(responses=responses)
    # Names first: while one topic is being deleted, the ids and names of others that the request repeats may vanish.
    meant = await in_turns(topics(), lambda topic: _meant(context.broker, topic))
    allow = context.broker.quotas.mutation_quota(context, strict_since=_FIRST_WITH_QUOTA_ERROR).record
    breather = Breather()
    doomed: dict[str, DeletableTopicResult] = {}
    for topic, name in zip(topics(), meant, strict=True):
        await breather.give_way()
        if isinstance(name, _Refused):
            responses.append(_result(topic.name, topic.topic_id, name.code, name.message))
            continue
        try:
            response = _result(name, topic.topic_id, ErrorCode.NONE)
            if name not in doomed:
                allow(len(context.broker.metadata_cache.partitions(name)))
                await context.broker.topic_admin.delete_topic(name)
                doomed[name] = kept(responses, response)
                continue
        except KafkaError as error:
            response = _result(topic.name, topic.topic_id, error.code, error.message)
        responses.append(response)
    await _wait(context.broker, doomed, request.timeout_ms)
    return DeleteTopicsResponse(responses=responses)


def _refusal(context: RequestContext) -> ErrorCode | None:
    if not context.broker.controller.is_active:
        return ErrorCode.NOT_CONTROLLER
    if context.broker.config.delete_topic_enable:
        return None
    is_old = context.api_version < _FIRST_WITH_DISABLED_ERROR
    return ErrorCode.INVALID_REQUEST if is_old else ErrorCode.TOPIC_DELETION_DISABLED


class _Refused(NamedTuple):
    """Why a topic is not deleted. No exception: 200,000 of them, each with a traceback, hold the loop when they go."""

    code: ErrorCode
    message: str | None = None


_BOTH = "Topic name and topic ID can not both be specified."
_NOT_NAMED = _Refused(ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
_UNKNOWN_ID = _Refused(ErrorCode.UNKNOWN_TOPIC_ID)
_UNKNOWN = _Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def _meant(broker: Broker, topic: DeleteTopicState) -> str | _Refused:
    """Return the topic's name, or why it is refused: it is not named, or unknown."""
    if topic.topic_id != ZERO_TOPIC_ID:
        return broker.metadata_cache.topic_name(topic.topic_id) or _UNKNOWN_ID
    if topic.name is None:
        return _NOT_NAMED
    return topic.name if topic.name in broker.metadata_cache.topics else _UNKNOWN


async def _wait(broker: Broker, doomed: dict[str, DeletableTopicResult], timeout_ms: int) -> None:
    deadline_ms = broker.clock.monotonic_ms() + timeout_ms
    for name, result in doomed.items():
        rest_ms = deadline_ms - broker.clock.monotonic_ms()
        if timeout_ms <= 0 or not await broker.topic_admin.wait_until_gone(name, rest_ms):
            result.error_code = ErrorCode.REQUEST_TIMED_OUT


def _result(name: str | None, topic_id: bytes, code: ErrorCode, message: str | None = None) -> DeletableTopicResult:
    return DeletableTopicResult(name=name, topic_id=topic_id, error_code=code, error_message=message)
