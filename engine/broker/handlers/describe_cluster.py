"""DescribeCluster (60): v0–v1.

Behaviour
* Cluster id, controller and live brokers, with their addresses on the listener of the request.
* A broker that has heard from no controller yet waits as for Metadata, then answers with no brokers and controller -1.

Version notes
* v1 endpoint type: only 1 (brokers) exists here, 2 (KRaft controllers) is MISMATCHED_ENDPOINT_TYPE, others
  UNSUPPORTED_ENDPOINT_TYPE.
"""

from __future__ import annotations

from engine.broker.handlers.authorized_operations import CLUSTER_OPERATIONS, NOT_REQUESTED
from engine.broker.handlers.context import RequestContext
from engine.broker.handlers.registry import handles
from engine.common.errors import ErrorCode
from engine.common.model import NO_CONTROLLER
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

_BROKERS, _CONTROLLERS = 1, 2


@handles(ApiKey.DESCRIBE_CLUSTER, requires=["Describe Cluster"])
def describe_cluster(context: RequestContext, request: DescribeClusterRequest) -> DescribeClusterResponse:
    if request.endpoint_type == _CONTROLLERS:
        return _refusal(
            ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER",
        )
    if request.endpoint_type != _BROKERS:
        return _refusal(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {request.endpoint_type}")
    broker = context.broker
    cache = broker.metadata_cache
    nodes = cache.snapshot.nodes.get(context.session.listener_name, {})
    return DescribeClusterResponse(
        endpoint_type=_BROKERS,
        cluster_id=broker.cluster_id,
        controller_id=NO_CONTROLLER if cache.controller_id is None else cache.controller_id,
        brokers=[DescribeClusterBroker(broker_id=n.id, host=n.host, port=n.port, rack=n.rack) for n in nodes.values()],
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_REQUESTED
        ),
    )


def _refusal(code: ErrorCode, message: str) -> DescribeClusterResponse:
    return DescribeClusterResponse(error_code=code, error_message=message)
