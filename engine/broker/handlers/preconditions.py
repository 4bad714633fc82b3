"""What several handlers refuse by the same rule, and the error that an old client understands. Answers no API."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from engine.broker.handlers.context import Broker, RequestContext
from engine.broker.network.request import Deferred
from engine.common.errors import ErrorCode
from engine.common.model import UNKNOWN_BROKER_EPOCH
from engine.kafka.config.metadata_version import MetadataVersion

logger = logging.getLogger("kafka.server.KafkaApis")

_FENCED = ErrorCode.PRODUCER_FENCED
_FIRST_WITH_TRANSACTIONS = MetadataVersion.IBP_0_11_0_IV0


def is_stale(broker: Broker, request_broker_epoch: int) -> bool:
    """Return whether a controller's request was meant for an earlier registration of this broker (KIP-380).

    A newer one is fine: the controller may have seen a registration for which this broker still awaits the answer.
    """
    if request_broker_epoch == UNKNOWN_BROKER_EPOCH or request_broker_epoch >= broker.broker_epoch:
        return False
    logger.info(
        "[KafkaApi-%d] Received a request of the controller with broker epoch %d smaller than the current broker epoch "
        "%d",
        broker.broker_id,
        request_broker_epoch,
        broker.broker_epoch,
    )
    return True


def are_static_members_refused(context: RequestContext, group_instance_id: str | None) -> bool:
    """Return whether the request names a static member (KIP-345), which needs an inter-broker protocol of 2.3.

    An older coordinator would lose the instance id. The answer is UNSUPPORTED_VERSION.
    """
    if group_instance_id is None:
        return False
    return context.broker.config.inter_broker_protocol_version < MetadataVersion.IBP_2_3_IV0


def unfinished_commits(context: RequestContext) -> list[Deferred]:
    """Return the answers to earlier commits of the request's connection that are still to come.

    Kafka handles the requests of a connection one after the other. So a client that commits and then reads, joins or
    leaves can rely on the commit: it counts before another member gets its partitions.
    """
    return [commit for commit in context.session.commits if not commit.is_complete]


async def wait_for_commits(commits: Iterable[Deferred]) -> None:
    """Return when all these answers are there."""
    for commit in commits:
        await commit.wait()


def are_transactions_refused(context: RequestContext) -> bool:
    """Whether the brokers' protocol is from before transactions: some broker may not know markers."""
    return context.broker.config.inter_broker_protocol_version < _FIRST_WITH_TRANSACTIONS


def understood(error: ErrorCode, api_version: int, *, fenced_since: int) -> ErrorCode:
    """Return the error for a client: before ``fenced_since`` none knows PRODUCER_FENCED."""
    is_unknown = error is _FENCED and api_version < fenced_since
    return ErrorCode.INVALID_PRODUCER_EPOCH if is_unknown else error
