"""Before it stops, a broker asks the controller to move its leaderships (``controlled.shutdown.enable``)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from engine.broker.replication.controller_channel import ControllerChannel
from engine.common.errors import ErrorCode, KlammError, error_code
from engine.kafka.config.broker import BrokerConfig
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse

logger = logging.getLogger("kafka.server.KafkaServer")


class ControlledShutdown:
    """Asks until this broker leads nothing that another could lead, at most ``controlled.shutdown.max.retries``
    times.
    """

    def __init__(
        self,
        config: BrokerConfig,
        channel: ControllerChannel,
        broker_epoch: Callable[[], int],
        is_helpless_controller: Callable[[], bool],
    ) -> None:
        """``is_helpless_controller`` returns whether this broker would have to ask itself and has no ZooKeeper."""
        self._config = config
        self._channel = channel
        self._broker_epoch = broker_epoch
        self._is_helpless_controller = is_helpless_controller

    async def run(self) -> None:
        """Run it; a broker that does not succeed stops anyway, and the controller sees it die."""
        config = self._config
        if not config.controlled_shutdown_enable:
            return
        who = f"[KafkaServer id={config.broker_id}]"
        if not self._channel.has_heard_of_controller:
            logger.info("%s No controller has told this broker about partitions yet: it leads none to move", who)
            return
        if self._is_helpless_controller():
            logger.warning(
                "%s This broker is the controller and ZooKeeper is unreachable: it cannot move any leadership", who
            )
            return
        logger.info("%s Starting controlled shutdown", who)
        for retries_left in reversed(range(config.controlled_shutdown_max_retries)):
            try:
                if await self._ask():
                    logger.info("%s Controlled shutdown request returned successfully", who)
                    return
            except KlammError as error:
                logger.warning("%s Error during controlled shutdown: %s", who, error)
            if retries_left:
                logger.info("%s Retrying controlled shutdown (%d retries remaining)", who, retries_left)
                await asyncio.sleep(config.controlled_shutdown_retry_backoff_ms / 1000)
        logger.warning("%s Proceeding to do an unclean shutdown as all the controlled shutdown attempts failed", who)

    async def _ask(self) -> bool:
        """Ask once; return whether the controller had nothing left to move."""
        broker_id, broker_epoch = self._config.broker_id, self._broker_epoch()
        response, _ = await self._channel.ask(
            ApiKey.CONTROLLED_SHUTDOWN,
            lambda _: ControlledShutdownRequest(broker_id=broker_id, broker_epoch=broker_epoch),
        )
        return self._is_done(response)

    def _is_done(self, response: ControlledShutdownResponse) -> bool:
        code = error_code(response.error_code)
        if code is ErrorCode.NONE and not response.remaining_partitions:
            return True
        remaining = ", ".join(f"{p.topic_name}-{p.partition_index}" for p in response.remaining_partitions)
        logger.info(
            "[KafkaServer id=%d] Remaining partitions to move: %s error=%s",
            self._config.broker_id,
            remaining,
            code.name,
        )
        return False
