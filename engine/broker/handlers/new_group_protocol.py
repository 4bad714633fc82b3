"""ConsumerGroupHeartbeat (68): v0. ConsumerGroupDescribe (69): v0.

Behaviour
* Groups of the new protocol (KIP-848) need KRaft: UNSUPPORTED_VERSION, whoever asks.
* ApiVersions lists both all the same, as a broker of Kafka with ZooKeeper does from 3.7 on. So a client that prefers
  the new protocol hears from the broker that it is not to be had, and tools that guess a broker's release by its
  APIs find the right one.
"""

from __future__ import annotations

from engine.broker.handlers.answer_lists import answer_list
from engine.broker.handlers.context import RequestContext
from engine.broker.handlers.in_turns import Steps, each, in_steps
from engine.broker.handlers.registry import handles
from engine.common.errors import ErrorCode
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.consumer_group_describe import (
    ConsumerGroupDescribed,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from engine.kafka.protocol.apis.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)


@handles(ApiKey.CONSUMER_GROUP_HEARTBEAT, requires=[])
def heartbeat(context: RequestContext, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)


@handles(ApiKey.CONSUMER_GROUP_DESCRIBE, requires=[])
@in_steps
def describe(context: RequestContext, request: ConsumerGroupDescribeRequest) -> Steps[ConsumerGroupDescribeResponse]:
    groups = answer_list(context, ConsumerGroupDescribeResponse, "groups")
    return ConsumerGroupDescribeResponse(groups=(yield from each(request.group_ids, _refused, groups)))


def _refused(group_id: str) -> ConsumerGroupDescribed:
    return ConsumerGroupDescribed(group_id=group_id, error_code=ErrorCode.UNSUPPORTED_VERSION)
