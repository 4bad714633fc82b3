"""DeleteTopics (20), versions 0–6: delete topics.

Version notes
* 1: throttle time   * 4: flexible   * 5: messages, quota (KIP-599)   * 6: by topic id, too (KIP-516)
"""

from __future__ import annotations

from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.declaration import Request, Response, Struct, field
from engine.kafka.protocol.types import INT16, INT32, STRING, UUID, Array


class DeleteTopicState(Struct):
    """One topic, by name or by id."""

    name: str | None = field(STRING, since=6, nullable_since=6)
    topic_id: bytes = field(UUID, since=6)


class DeleteTopicsRequest(Request, key=ApiKey.DELETE_TOPICS):
    topics: list[DeleteTopicState] = field(Array(DeleteTopicState), since=6, ignorable=False)
    topic_names: list[str] = field(Array(STRING), until=5)
    """Until version 5; then ``topics``."""
    timeout_ms: int = field(INT32)
    """How long to wait until they are gone."""


class DeletableTopicResult(Struct):
    name: str | None = field(STRING, nullable_since=6)
    """None if an unknown id was given."""
    topic_id: bytes = field(UUID, since=6)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, since=5, nullable_since=5)


class DeleteTopicsResponse(Response, key=ApiKey.DELETE_TOPICS):
    throttle_time_ms: int = field(INT32, since=1)
    responses: list[DeletableTopicResult] = field(Array(DeletableTopicResult))
