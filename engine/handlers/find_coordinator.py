"""FindCoordinator (10): v0–v6.

Behaviour
* There is no group or transaction coordinator yet: every key is answered COORDINATOR_NOT_AVAILABLE, which clients take
  for "ask again later". The API is offered all the same, for librdkafka stores lz4 uncompressed where it is missing.

Version notes
* v1 key type, throttle time, error message   * v3 flexible   * v4 several keys in one request
"""

from __future__ import annotations

from engine.common.errors import ErrorCode
from engine.handlers.context import RequestContext
from engine.handlers.registry import handles
from engine.protocol.api_keys import ApiKey
from engine.protocol.apis.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

_MESSAGE = "The coordinator is not available."


@handles(ApiKey.FIND_COORDINATOR)
def find_coordinator(context: RequestContext, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    """Say for each key that its coordinator is not available."""
    if context.api_version >= 4:
        return FindCoordinatorResponse(coordinators=[_not_available(key) for key in request.coordinator_keys])
    return FindCoordinatorResponse(
        error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE, error_message=_MESSAGE, node_id=-1, host="", port=-1
    )


def _not_available(key: str) -> Coordinator:
    return Coordinator(
        key=key,
        node_id=-1,
        host="",
        port=-1,
        error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE,
        error_message=_MESSAGE,
    )
