"""Sends the markers of ending transactions to the leaders of their partitions, until every partition has its marker.

Leaders change, brokers restart, topics are deleted: a marker that a broker did not write goes to the broker that leads
the partition then. Markers for this broker's own partitions take no detour through the network.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable
from typing import Final

from engine.broker.coordinator.ownership import OwnedPartition
from engine.broker.coordinator.peers import BrokerConnections
from engine.broker.coordinator.transactions.marker_writer import Marker, MarkerErrors, MarkerWriter
from engine.broker.coordinator.transactions.transaction import Transaction, Transition
from engine.broker.replication.metadata_cache import MetadataCache
from engine.common.errors import NO_ERROR, ErrorCode, KlammError, error_code
from engine.common.model import TopicPartition
from engine.kafka.protocol.apis.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from engine.runtime.supervisor import Supervisor

logger = logging.getLogger("kafka.coordinator.transaction.TransactionMarkerChannelManager")

RETRY_BACKOFF_MS: Final = 50
"""The wait before a marker that failed is tried again."""

_FENCED: Final = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED)
"""A later coordinator, or a later transaction of the producer, has been at this partition."""

_NEEDLESS: Final = (ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION)
"""The producer could not have written to this partition."""


class Ending:
    """A transaction whose outcome is in the log. ``transition`` follows once all partitions have their markers."""

    __slots__ = ("_logged", "is_commit", "owned", "transaction", "transition")

    def __init__(
        self, owned: OwnedPartition[Transaction], transaction: Transaction, transition: Transition, *, is_commit: bool
    ) -> None:
        self.owned = owned
        self.transaction = transaction
        self.transition = transition
        self.is_commit = is_commit
        self._logged: set[object] = set()

    def is_news(self, what: object) -> bool:
        """Return whether the log lacks this yet. A disk may be full for hours, and each write is tried again soon."""
        is_news = what not in self._logged
        self._logged.add(what)
        return is_news

    @property
    def marker(self) -> Marker:
        transaction = self.transaction
        return Marker(
            transaction.producer_id, transaction.producer_epoch, self.owned.leader_epoch, is_commit=self.is_commit
        )


Markers = dict[Ending, set[TopicPartition]]
"""Partitions that lack their marker, by transaction."""


class MarkerSender:
    """Sends markers. Create it on the running event loop."""

    def __init__(
        self,
        broker_id: int,
        metadata_cache: MetadataCache,
        connections: BrokerConnections,
        writer: MarkerWriter,
        *,
        api_version: int,
        is_current: Callable[[Ending], bool],
        completed: Callable[[Ending], None],
    ) -> None:
        """``is_current`` says whether the coordinator still has the transaction to end, and ``completed`` is told when
        nothing lacks a marker.
        """
        self._broker_id = broker_id
        self._metadata_cache = metadata_cache
        self.connections = connections
        self._writer = writer
        self._api_version = api_version
        self._is_current = is_current
        self._completed = completed
        self._queues: dict[int, Markers] = {}
        self._sending: set[int] = set()
        self._silent: set[int] = set()
        """Brokers that did not answer the last time, which the log says once."""
        self._leaderless: Markers = {}
        self._failed: Markers = {}
        self._retry: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._supervisor = Supervisor("transaction-markers")
        metadata_cache.update_listeners.append(self._metadata_changed)

    @property
    def waiting(self) -> tuple[int, int]:
        """Markers whose partition has no leader, and markers that are tried again."""
        return len(self._leaderless), len(self._failed)

    def send(self, ending: Ending) -> None:
        """Send a transaction's markers, unless another coordinator will do it."""
        if self._is_current(ending):
            self._send(ending, set(ending.transaction.partitions))

    async def stop(self) -> None:
        """Stop sending, once no transaction is current. What is left, the next coordinator finds in the log."""
        self._metadata_cache.update_listeners.remove(self._metadata_changed)
        await self._supervisor.stop()
        await self.connections.close()

    def _send(self, ending: Ending, partitions: Collection[TopicPartition]) -> None:
        by_leader: dict[int, set[TopicPartition]] = {}
        gone = []
        topic, known = "", self._metadata_cache.partitions("")
        for partition in partitions:
            if partition[0] != topic:
                topic = partition[0]
                known = self._metadata_cache.partitions(topic)
            info = known.get(partition[1])
            if info is None:
                gone.append(partition)
            elif info.leader in by_leader:
                by_leader[info.leader].add(partition)
            else:
                by_leader[info.leader] = {partition}
        if gone and self._metadata_cache.partition_info(ending.owned.partition.topic_partition) is None:
            # The controller makes this broker leader before it tells it of partitions: none need be deleted.
            _add(self._leaderless, ending, gone)
        elif gone:
            self._skip(ending, gone)
        if not by_leader:
            self._check_completed(ending)
        for leader, led in by_leader.items():
            if leader == self._broker_id:
                self._write_here(ending, led)
            elif self.connections.to(leader) is None:
                _add(self._leaderless, ending, led)
            else:
                self._queue(leader, ending, led)

    def _queue(self, leader: int, ending: Ending, partitions: Iterable[TopicPartition]) -> None:
        _add(self._queues.setdefault(leader, {}), ending, partitions)
        if leader not in self._sending:
            self._sending.add(leader)
            self._supervisor.start(self._send_to(leader), f"to broker {leader}")

    async def _send_to(self, leader: int) -> None:
        """Send what is queued for a broker, one request after the other, each with all that has come since the last."""
        try:
            while markers := self._queues.pop(leader, None):
                current = {ending: ended for ending, ended in markers.items() if self._is_current(ending)}
                if current:
                    try:
                        await self._request(leader, current)
                    except Exception:
                        logger.exception("Sending markers to broker %d failed, and is tried again", leader)
                        for ending, partitions in current.items():
                            self._try_again(ending, partitions)
        finally:
            self._sending.discard(leader)

    async def _request(self, leader: int, markers: Markers) -> None:
        client = self.connections.to(leader)
        if client is None:
            # The broker has died since they were queued, and others may lead its partitions by now.
            self._send_again(markers)
            return
        request = WriteTxnMarkersRequest(markers=[_writable(ending, ended) for ending, ended in markers.items()])
        try:
            response: WriteTxnMarkersResponse = await client.send(request, self._api_version)
        except KlammError as error:
            if leader not in self._silent:
                logger.info("Broker %d does not answer to markers, which are sent until it does: %s", leader, error)
                self._silent.add(leader)
            for ending, partitions in markers.items():
                self._try_again(ending, partitions)
            return
        self._silent.discard(leader)
        errors = _errors(response)
        for ending, partitions in markers.items():
            own_errors = errors.get(ending.transaction.producer_id, {})
            self._answered(ending, {p: own_errors.get(p, ErrorCode.UNKNOWN_SERVER_ERROR) for p in partitions})

    def _write_here(self, ending: Ending, partitions: Collection[TopicPartition]) -> None:
        """Write markers to partitions of this broker. Outcomes that come at once, as nearly all, are taken together."""
        at_once: MarkerErrors = {}
        is_writing = True

        def ended(partition: TopicPartition, error: ErrorCode, _: int) -> None:
            if is_writing:
                at_once[partition] = error
            else:
                self._answered(ending, {partition: error})

        self._writer.write(ending.marker, partitions, ended)
        is_writing = False
        if at_once:
            self._answered(ending, at_once)

    def _answered(self, ending: Ending, errors: MarkerErrors) -> None:
        """Take the outcome of some of a transaction's markers."""
        if not self._is_current(ending):
            return
        transaction = ending.transaction
        failed = {p: error for p, error in errors.items() if error is not NO_ERROR and error not in _NEEDLESS}
        transaction.markers_are_written(errors.keys() - failed.keys() if failed else errors)
        for partition, error in failed.items():
            if error in _FENCED:
                logger.info("The markers of %s are given up partition=%s: %s", transaction, partition, error.name)
                return
            if ending.is_news((partition, error)):
                logger.info(
                    "The marker of %s is sent until it is written partition=%s: %s",
                    transaction.transactional_id,
                    partition,
                    error.name,
                )
        if failed:
            self._try_again(ending, failed)
        self._check_completed(ending)

    def _skip(self, ending: Ending, partitions: list[TopicPartition]) -> None:
        logger.info(
            "The partitions %s are likely deleted already, and get no marker of %s",
            ", ".join(map(str, partitions)),
            ending.transaction.transactional_id,
        )
        ending.transaction.markers_are_written(partitions)

    def _check_completed(self, ending: Ending) -> None:
        # A marker may be answered twice, after a retry: ``is_current`` is false once it was completed.
        if not ending.transaction.partitions and self._is_current(ending):
            self._completed(ending)

    # -- again

    def _try_again(self, ending: Ending, partitions: Iterable[TopicPartition]) -> None:
        _add(self._failed, ending, partitions)
        if self._retry is None:
            self._retry = self._loop.call_later(RETRY_BACKOFF_MS / 1000, self._send_failed)

    def _send_failed(self) -> None:
        self._retry = None
        failed, self._failed = self._failed, {}
        self._send_again(failed)

    def _metadata_changed(self) -> None:
        if self._leaderless:
            leaderless, self._leaderless = self._leaderless, {}
            self._send_again(leaderless)

    def _send_again(self, markers: Markers) -> None:
        for ending, partitions in markers.items():
            if self._is_current(ending):
                self._send(ending, partitions)


def _add(markers: Markers, ending: Ending, partitions: Iterable[TopicPartition]) -> None:
    markers.setdefault(ending, set()).update(partitions)


def _writable(ending: Ending, partitions: Iterable[TopicPartition]) -> WritableTxnMarker:
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        topics.setdefault(topic, []).append(index)
    marker = ending.marker
    return WritableTxnMarker(
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        transaction_result=marker.is_commit,
        topics=[WritableTxnMarkerTopic(name=name, partition_indexes=indexes) for name, indexes in topics.items()],
        coordinator_epoch=marker.coordinator_epoch,
    )


def _errors(response: WriteTxnMarkersResponse) -> dict[int, MarkerErrors]:
    by_producer: dict[int, MarkerErrors] = {}
    for marker in response.markers:
        errors = by_producer.setdefault(marker.producer_id, {})
        for topic in marker.topics:
            for result in topic.partitions:
                errors[TopicPartition(topic.name, result.partition_index)] = error_code(result.error_code)
    return by_producer
