"""ISR changes through the controller: AlterPartition requests (KIP-497), inter-broker protocol 2.7-IV2 and later.

All changes of one turn of the event loop go in one request. One request is under way at a time, and is repeated until
it is answered. Source: DefaultAlterPartitionManager of Kafka 3.9.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Protocol

from engine.broker.replication.isr_updater import IsrOutcome, IsrUpdate
from engine.common.errors import ErrorCode, KlammError, error_code
from engine.common.model import LeaderAndIsr, LeaderRecoveryState, TopicPartition
from engine.common.topic_id import ZERO_TOPIC_ID
from engine.kafka.config.metadata_version import MetadataVersion, is_leader_recovery_supported, is_topic_id_supported
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    RequestPartitionData,
    RequestTopicData,
    ResponsePartitionData,
)
from engine.kafka.protocol.declaration import Request
from engine.runtime.turns import Breather

logger = logging.getLogger("kafka.server.DefaultAlterPartitionManager")

RETRY_PAUSE_MS = 50
NAMES_UNTIL = 1
"""The last version that names topics; later ones need an id."""

EPOCHS_SINCE = 3
"""The first version that carries the members' broker epochs (KIP-903)."""

OnDone = Callable[[IsrOutcome], None]


class AsksController(Protocol):
    """``controller_channel.ControllerChannel``, or its substitute in a test."""

    async def ask(
        self, key: ApiKey, build: Callable[[int], Request], *, version_max: int | None = None
    ) -> tuple[Any, int]: ...


class AlterPartitionManager:
    """An ``IsrUpdater``; ``run`` is its one task."""

    def __init__(
        self, channel: AsksController, *, broker_id: int, broker_epoch: Callable[[], int], ibp: MetadataVersion
    ) -> None:
        self._channel = channel
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._ibp = ibp
        self._unanswered: dict[TopicPartition, tuple[IsrUpdate, OnDone]] = {}
        self._has_work = asyncio.Event()
        self._must_pause = False

    def submit(self, update: IsrUpdate, on_done: OnDone, *, is_retry: bool = False) -> None:
        """Queue a change; a partition that still has one queued gets OPERATION_NOT_ATTEMPTED."""
        if update.topic_partition in self._unanswered:
            asyncio.get_running_loop().call_soon(on_done, ErrorCode.OPERATION_NOT_ATTEMPTED)
            return
        self._unanswered[update.topic_partition] = (update, on_done)
        self._must_pause |= is_retry
        self._has_work.set()

    async def run(self) -> None:
        """Send what is queued until cancelled."""
        while True:
            await self._has_work.wait()
            if self._must_pause:
                self._must_pause = False
                await asyncio.sleep(RETRY_PAUSE_MS / 1000)
            try:
                await self._send(dict(self._unanswered))
            except KlammError as error:
                logger.warning("AlterPartition could not be asked of the controller and is tried again: %s", error)
                self._must_pause = True
            except Exception:
                logger.exception("An AlterPartition request failed unexpectedly and is tried again")
                self._must_pause = True
            if not self._unanswered:
                self._has_work.clear()

    async def _send(self, batch: dict[TopicPartition, tuple[IsrUpdate, OnDone]]) -> None:
        updates = [update for update, _ in batch.values()]
        can_use_ids = is_topic_id_supported(self._ibp) and all(u.topic_id != ZERO_TOPIC_ID for u in updates)
        broker_epoch = self._broker_epoch()
        response, version = await self._channel.ask(
            ApiKey.ALTER_PARTITION,
            lambda version: self._request(updates, broker_epoch, version),
            version_max=None if can_use_ids else NAMES_UNTIL,
        )
        error = error_code(response.error_code)
        if error is not ErrorCode.NONE:
            self._must_pause = True
            if error is ErrorCode.STALE_BROKER_EPOCH:
                logger.warning("Broker had a stale broker epoch (%d), retrying.", broker_epoch)
            else:
                logger.warning("Controller returned an unexpected top-level error: %s", error.name)
            return
        answers = _answers(response, version, {u.topic_id: u.topic_partition.topic for u in updates})
        breather = Breather()
        for topic_partition, (_, on_done) in batch.items():
            await breather.give_way()
            outcome = answers.get(topic_partition)
            if outcome is None:
                logger.warning("Partition %s was sent but not included in the response", topic_partition)
                self._must_pause = True
                continue
            # It leaves the queue first: the reaction to the answer may be the next change.
            del self._unanswered[topic_partition]
            on_done(outcome)

    def _request(self, updates: list[IsrUpdate], broker_epoch: int, version: int) -> AlterPartitionRequest:
        topics: dict[str, RequestTopicData] = {}
        for update in updates:
            name = update.topic_partition.topic
            topic = topics.get(name)
            if topic is None:
                topic = topics[name] = RequestTopicData(topic_name=name, topic_id=update.topic_id, partitions=[])
            topic.partitions.append(self._partition(update, version))
        return AlterPartitionRequest(broker_id=self._broker_id, broker_epoch=broker_epoch, topics=list(topics.values()))

    def _partition(self, update: IsrUpdate, version: int) -> RequestPartitionData:
        state = update.leader_and_isr
        data = RequestPartitionData(
            partition_index=update.topic_partition.partition,
            leader_epoch=state.leader_epoch,
            partition_epoch=state.partition_epoch,
        )
        if version >= EPOCHS_SINCE:
            # In ZooKeeper mode, a leader leaves it to the controller to know who is alive: -1 is not checked.
            data.new_isr_with_epochs = [BrokerState(broker_id=broker_id) for broker_id in state.isr]
        else:
            data.new_isr = list(state.isr)
        if version >= 1 and is_leader_recovery_supported(self._ibp):
            data.leader_recovery_state = int(state.leader_recovery_state)
        return data


def _answers(
    response: AlterPartitionResponse, version: int, names: dict[bytes, str]
) -> dict[TopicPartition, IsrOutcome]:
    answers: dict[TopicPartition, IsrOutcome] = {}
    for topic in response.topics:
        name = names.get(topic.topic_id) if version > NAMES_UNTIL else topic.topic_name
        if not name:
            logger.error("The AlterPartition answer names a topic that was not asked for; it is ignored")
            continue
        for data in topic.partitions:
            answers[TopicPartition(name, data.partition_index)] = _outcome(data)
    return answers


def _outcome(data: ResponsePartitionData) -> IsrOutcome:
    if data.error_code != ErrorCode.NONE:
        return error_code(data.error_code)
    try:
        recovery = LeaderRecoveryState(data.leader_recovery_state)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
    return LeaderAndIsr(data.leader_id, data.leader_epoch, tuple(data.isr), recovery, data.partition_epoch)
