"""Whether a controller's request was meant for an earlier registration of this broker (KIP-380). Answers no API."""

from __future__ import annotations

import logging

from engine.broker.handlers.context import Broker
from engine.common.model import UNKNOWN_BROKER_EPOCH

logger = logging.getLogger("kafka.server.KafkaApis")


def is_stale(broker: Broker, request_broker_epoch: int) -> bool:
    """Return whether the request's broker epoch is older than the current one.

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
