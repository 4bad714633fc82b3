"""TransactionCoordinator: requests about transactions, on the broker's event loop.

``state_machine`` says what a request means.

A state changes, and a client is answered, once the record of the new state is replicated. Answers that have to wait
come through a callback, exactly once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import Final, NamedTuple

from engine.broker.coordinator.ownership import Content, OwnedPartition, OwnedPartitions, TopicSize
from engine.broker.coordinator.peers import BrokerConnections
from engine.broker.coordinator.transactions import state_machine
from engine.broker.coordinator.transactions.marker_sender import RETRY_BACKOFF_MS, Ending, MarkerSender
from engine.broker.coordinator.transactions.marker_writer import MarkerWriter
from engine.broker.coordinator.transactions.records import TransactionLoader, logger, tombstone_batch, transition_batch
from engine.broker.coordinator.transactions.settings import TransactionSettings
from engine.broker.coordinator.transactions.state_machine import Decision, ProducerIdAndEpoch
from engine.broker.coordinator.transactions.transaction import ENDING, Transaction, Transition
from engine.broker.coordinator.writer import TOO_LARGE, ReplicatedWriter, coordinator_error
from engine.broker.log.append_origin import OwnBatch
from engine.broker.replication.metadata_cache import MetadataCache
from engine.broker.replication.replica_manager import ReplicaManager
from engine.common.clock import Clock
from engine.common.errors import NO_ERROR, ErrorCode, KafkaError
from engine.common.model import TopicPartition
from engine.common.topic_names import TRANSACTION_STATE_TOPIC
from engine.kafka.client.broker_client import ChannelTotals
from engine.kafka.config.metadata_version import write_txn_markers_version
from engine.kafka.formats.transaction_state import TransactionState
from engine.kafka.protocol.records.layout import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from engine.runtime.offload import Offloader
from engine.runtime.supervisor import Supervisor
from engine.runtime.turns import Breather

coordinator_logger = logging.getLogger("kafka.coordinator.transaction.TransactionCoordinator")

TRANSACTIONS = Content(TransactionLoader, "transaction metadata", "transactional ids", logger)
"""What ``__transaction_state`` holds."""

_TOMBSTONES_PER_BATCH: Final = 1_000
_TOMBSTONE_BYTES_PER_BATCH: Final = 500_000
"""An id may have 32 kB, and a batch no more than the topic's ``max.message.bytes``, by default 1 MB."""

ENDING_WAIT_MS: Final = 50
"""How long a request for the next transaction waits at most for the end of the one before.

Kafka answers CONCURRENT_TRANSACTIONS at once, after which Kafka's clients and librdkafka wait for 20 ms. Markers take a
few milliseconds.
"""

CONCURRENT: Final = ErrorCode.CONCURRENT_TRANSACTIONS

Done = Callable[[ErrorCode], None]


class InitializedProducer(NamedTuple):
    """The answer to InitProducerId."""

    error: ErrorCode
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH


class TransactionCoordinator:
    """The transactional ids of one broker. Create it on the running event loop, before leadership is announced."""

    def __init__(
        self,
        settings: TransactionSettings,
        *,
        clock: Clock,
        replica_manager: ReplicaManager,
        metadata_cache: MetadataCache,
        offloader: Offloader,
        marker_writer: MarkerWriter,
        next_producer_id: Callable[[], Awaitable[int]],
        read_size: Callable[[str], Awaitable[int]],
    ) -> None:
        """``read_size`` counts a topic's partitions in ZooKeeper, as ``TopicSize`` wants it."""
        self._settings = settings
        self._clock = clock
        self._replica_manager = replica_manager
        self._next_producer_id = next_producer_id
        self._writer = ReplicatedWriter(replica_manager, settings.request_timeout_ms)
        self.partition_count = TopicSize(TRANSACTION_STATE_TOPIC, settings.num_partitions, metadata_cache, read_size)
        self.transactions = OwnedPartitions(
            TRANSACTION_STATE_TOPIC,
            TRANSACTIONS,
            offloader,
            clock,
            size=self.partition_count,
            load_buffer_bytes=settings.load_buffer_bytes,
            on_loaded=self._loaded,
            on_unloaded=self._unloaded,
        )
        self.marker_writer = marker_writer
        self._markers = MarkerSender(
            settings.broker_id,
            metadata_cache,
            BrokerConnections(
                metadata_cache,
                listener_name=settings.listener_name,
                client_id=f"broker-{settings.broker_id}-txn-marker-sender",
                setup_timeouts=settings.setup_timeouts,
                request_timeout_ms=settings.request_timeout_ms,
                security=settings.security,
            ),
            marker_writer,
            api_version=write_txn_markers_version(settings.ibp),
            is_current=self._is_ending,
            completed=self._write_completion,
        )
        self._endings: dict[str, Ending] = {}
        """Transactions whose markers are on their way."""
        self._waiting: dict[str, Callable[[], None]] = {}
        """Requests for the next transaction of an id, one of each, that wait for these; a call looks again."""
        self._loop = asyncio.get_running_loop()
        self._supervisor = Supervisor("transaction-coordinator")

    @property
    def marker_totals(self) -> ChannelTotals:
        """What the connections that carry markers have done."""
        return self._markers.connections.totals

    @property
    def waiting_markers(self) -> tuple[int, int]:
        """Markers whose partition has no leader, and markers that are tried again."""
        return self._markers.waiting

    # -- start and stop

    def start(self) -> None:
        """Follow leadership, and check periodically for what has run out of time."""
        self._replica_manager.leadership_listeners.append(self.transactions.leadership_changed)
        self._replica_manager.stop_listeners.append(self.transactions.replicas_stopped)
        self.partition_count.follow()
        self._supervisor.every(self._settings.abort_interval_ms, self.abort_timed_out, "transaction abort")
        self._supervisor.every(self._settings.expiry_interval_ms, self.remove_expired, "transactional id expiration")

    async def resign(self) -> None:
        """Give up every transactional id: requests learn to find another coordinator."""
        await self._supervisor.stop()
        await self.partition_count.stop()
        await self.transactions.stop()

    async def stop(self) -> None:
        """End. What is under way, the next coordinator finds in the log."""
        await self.resign()
        await self._markers.stop()

    # -- finding

    def partition_for(self, transactional_id: str) -> TopicPartition:
        """Return the partition whose leader coordinates the transactional id."""
        return TopicPartition(TRANSACTION_STATE_TOPIC, self.transactions.index_of(transactional_id))

    # -- requests of producers

    async def init_producer_id(
        self, transactional_id: str, timeout_ms: int, expected: ProducerIdAndEpoch | None
    ) -> InitializedProducer:
        """Give a producer its id and epoch; its predecessor's open transaction is aborted first."""
        if not transactional_id:
            return InitializedProducer(ErrorCode.INVALID_REQUEST)
        if not 0 < timeout_ms <= self._settings.transaction_max_timeout_ms:
            return InitializedProducer(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        new_id: int | None = None
        while True:
            error, owned = self.transactions.locate(transactional_id)
            if owned is None or error is not NO_ERROR:
                return InitializedProducer(error)
            transaction = owned.states.get(transactional_id)
            if new_id is not None or not (transaction is None or state_machine.needs_new_id(transaction, expected)):
                break
            try:
                new_id = await self._next_producer_id()
            except KafkaError as failed:
                return InitializedProducer(failed.code)
        now_ms = self._clock.now_ms()
        if transaction is None:
            assert new_id is not None
            transaction = owned.states[transactional_id] = Transaction(
                transactional_id, new_id, timeout_ms=timeout_ms, last_update_ms=now_ms
            )
        decision = state_machine.init_producer_id(
            transaction, expected, timeout_ms=timeout_ms, now_ms=now_ms, new_producer_id=new_id
        )
        if isinstance(decision, ErrorCode):
            return InitializedProducer(decision)
        outcome: asyncio.Future[ErrorCode] = self._loop.create_future()
        if decision.state in ENDING:
            self._write(owned, transaction, decision, outcome.set_result, is_fence=True)
            error = await outcome
            return InitializedProducer(ErrorCode.CONCURRENT_TRANSACTIONS if error is NO_ERROR else error)
        self._write(owned, transaction, decision, outcome.set_result)
        error = await outcome
        if error is not NO_ERROR:
            coordinator_logger.info("InitProducerId of %s is answered with %s", transactional_id, error.name)
            return InitializedProducer(error)
        coordinator_logger.info(
            "Initialized transactionalId %s with producerId %d and producer epoch %d on partition %s-%d",
            transactional_id,
            decision.producer_id,
            decision.producer_epoch,
            TRANSACTION_STATE_TOPIC,
            owned.index,
        )
        return InitializedProducer(NO_ERROR, decision.producer_id, decision.producer_epoch)

    def add_partitions(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partitions: Collection[TopicPartition], done: Done
    ) -> None:
        """Let a transaction write to partitions, and begin it if none is open.

        If the transaction before is being ended, the answer waits for that a moment.
        """
        self._add_partitions(transactional_id, producer, partitions, done, may_wait=True)

    def _add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
        done: Done,
        *,
        may_wait: bool,
    ) -> None:
        error, owned = self._locate(transactional_id)
        if owned is None:
            done(error)
            return
        transaction = owned.states.get(transactional_id)
        decision = state_machine.add_partitions(transaction, producer, partitions, self._clock.now_ms())
        is_early = decision is CONCURRENT and transaction is not None and transaction.state in ENDING
        if not is_early or not may_wait or transactional_id in self._waiting:
            self._carry_out(owned, transaction, decision, done)
            return

        def ask_again() -> None:
            timer.cancel()
            del self._waiting[transactional_id]
            self._add_partitions(transactional_id, producer, partitions, done, may_wait=False)

        self._waiting[transactional_id] = ask_again
        timer = self._loop.call_later(ENDING_WAIT_MS / 1000, ask_again)

    def verify_partitions(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Say which partitions belong to the open transaction."""
        error, owned = self._locate(transactional_id)
        if owned is None:
            return dict.fromkeys(partitions, error)
        return state_machine.verify_partitions(owned.states.get(transactional_id), producer, partitions)

    def end(self, transactional_id: str, producer: ProducerIdAndEpoch, done: Done, *, is_commit: bool) -> None:
        """Commit or abort; ``done`` is called when the outcome is in the log. The markers follow."""
        error, owned = self._locate(transactional_id)
        if owned is None:
            done(error)
            return
        transaction = owned.states.get(transactional_id)
        decision = state_machine.end(transaction, producer, self._clock.now_ms(), is_commit=is_commit)
        self._carry_out(owned, transaction, decision, done)

    def _locate(self, transactional_id: str) -> tuple[ErrorCode, OwnedPartition[Transaction] | None]:
        """Return the id's partition, or why this broker cannot say anything about the id."""
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST, None
        error, owned = self.transactions.locate(transactional_id)
        return error, owned if error is NO_ERROR else None

    def _carry_out(
        self, owned: OwnedPartition[Transaction], transaction: Transaction | None, decision: Decision, done: Done
    ) -> None:
        if isinstance(decision, ErrorCode) or transaction is None:
            done(decision if isinstance(decision, ErrorCode) else ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        else:
            self._write(owned, transaction, decision, done)

    # -- operators

    def describe(self, transactional_id: str) -> Transaction | ErrorCode:
        """Return one transactional id, or why there is none to show."""
        error, owned = self._locate(transactional_id)
        if owned is None:
            return error
        return owned.states.get(transactional_id) or ErrorCode.TRANSACTIONAL_ID_NOT_FOUND

    def list_transactions(
        self,
        *,
        producer_ids: Collection[int] = (),
        states: Collection[TransactionState] | None = None,
        duration_ms: int = -1,
    ) -> list[Transaction] | ErrorCode:
        """Return this broker's transactional ids that pass the filters."""
        if self.transactions.is_loading:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        now_ms = self._clock.now_ms()
        return [
            transaction
            for transaction in self.transactions
            if state_machine.is_listed(
                transaction, now_ms, producer_ids=producer_ids, states=states, duration_ms=duration_ms
            )
        ]

    # -- time

    async def abort_timed_out(self) -> None:
        """Abort transactions that have been open for longer than their producers allowed."""
        breather = Breather()
        for owned in self._partitions():
            for transaction in list(owned.states.values()):
                now_ms = self._clock.now_ms()
                if state_machine.is_timed_out(transaction, now_ms) and owned.is_owned:
                    self._abort(owned, transaction, now_ms)
                await breather.give_way()

    def _abort(self, owned: OwnedPartition[Transaction], transaction: Transaction, now_ms: int) -> None:
        transactional_id = transaction.transactional_id

        def done(error: ErrorCode) -> None:
            if error is NO_ERROR:
                coordinator_logger.info(
                    "Completed rollback of ongoing transaction for transactionalId %s due to timeout", transactional_id
                )
            else:
                coordinator_logger.warning(
                    "Rollback of ongoing transaction for transactionalId %s failed due to error %s",
                    transactional_id,
                    error.name,
                )

        self._write(owned, transaction, transaction.prepare_fenced_abort(now_ms), done, is_fence=True)

    async def remove_expired(self) -> None:
        """Forget transactional ids that nobody has used for long."""
        breather = Breather()
        expiration_ms = self._settings.transactional_id_expiration_ms
        for owned in self._partitions():
            expired, size_bytes = [], 0
            for transaction in list(owned.states.values()):
                if state_machine.is_expired(transaction, self._clock.now_ms(), expiration_ms):
                    expired.append(transaction)
                    size_bytes += len(transaction.transactional_id.encode())
                if len(expired) >= _TOMBSTONES_PER_BATCH or size_bytes >= _TOMBSTONE_BYTES_PER_BATCH:
                    self._forget(owned, expired)
                    expired, size_bytes = [], 0
                await breather.give_way()
            self._forget(owned, expired)

    def _forget(self, owned: OwnedPartition[Transaction], expired: Sequence[Transaction]) -> None:
        now_ms, expiration_ms = self._clock.now_ms(), self._settings.transactional_id_expiration_ms
        # Some may have been used since they were found.
        expired = [t for t in expired if state_machine.is_expired(t, now_ms, expiration_ms)]
        if not expired or not owned.is_owned:
            return
        for transaction in expired:
            transaction.prepare_dead()

        def written(error: ErrorCode, _: int) -> None:
            for transaction in expired:
                if error is NO_ERROR:
                    owned.states.pop(transaction.transactional_id, None)
                else:
                    transaction.give_up()
            if error is not NO_ERROR:
                logger.warning("%d expired transactional ids could not be removed: %s", len(expired), error.name)

        self._writer.append(owned.partition, tombstone_batch((t.transactional_id for t in expired), now_ms), written)

    def _partitions(self) -> Iterable[OwnedPartition[Transaction]]:
        return [owned for owned in self.transactions.partitions() if not owned.is_loading]

    # -- the log

    def _write(
        self,
        owned: OwnedPartition[Transaction],
        transaction: Transaction,
        transition: Transition,
        done: Done,
        *,
        is_fence: bool = False,
    ) -> None:
        """Write a transition; once it is replicated the state changes, and ``done`` is called.

        If the transaction ends, the markers follow. With ``is_fence``, it ends with a raised epoch.
        """
        assert owned.is_owned, "the caller has looked"

        def written(error: ErrorCode, _: int) -> None:
            if not owned.is_owned:
                # Whoever coordinates it now has read the record, or has not. The client finds out there.
                done(ErrorCode.NOT_COORDINATOR if error is NO_ERROR else _told(error))
            elif error is NO_ERROR:
                transaction.complete(transition)
                done(error)
                if transition.state in ENDING:
                    self._send_markers(owned, transaction)
            else:
                transaction.give_up()
                transaction.has_failed_epoch_fence = transaction.has_failed_epoch_fence or is_fence
                done(_told(error))

        now_ms = self._clock.now_ms()
        batch = transition_batch(transaction.transactional_id, transition, now_ms)
        self._writer.append(owned.partition, batch, written, transition.timeout_ms, OwnBatch(1, now_ms))

    def _send_markers(self, owned: OwnedPartition[Transaction], transaction: Transaction) -> None:
        is_commit = state_machine.ENDED[transaction.state]
        transition = transaction.prepare_complete(self._clock.now_ms())
        ending = Ending(owned, transaction, transition, is_commit=is_commit)
        self._endings[transaction.transactional_id] = ending
        # The answer goes first: it does not depend on the markers.
        self._loop.call_soon(self._markers.send, ending)

    def _is_ending(self, ending: Ending) -> bool:
        return self._endings.get(ending.transaction.transactional_id) is ending and ending.owned.is_owned

    def _write_completion(self, ending: Ending) -> None:
        """Write that a transaction is over: all its partitions have their markers."""
        transaction = ending.transaction
        del self._endings[transaction.transactional_id]
        self._try_completion(ending)

    def _try_completion(self, ending: Ending) -> None:
        if not ending.owned.is_owned:
            return
        transaction, transition = ending.transaction, ending.transition

        def written(error: ErrorCode, _: int) -> None:
            if not ending.owned.is_owned:
                return
            if error is NO_ERROR:
                transaction.complete(transition)
                if self._waiting and (ask_again := self._waiting.get(transaction.transactional_id)) is not None:
                    ask_again()
                return
            if ending.is_news(error):
                logger.info("The completion of %s is tried until it is written: %s", transaction, error.name)
            self._loop.call_later(RETRY_BACKOFF_MS / 1000, self._try_completion, ending)

        now_ms = self._clock.now_ms()
        batch = transition_batch(transaction.transactional_id, transition, now_ms)
        self._writer.append(ending.owned.partition, batch, written, transition.timeout_ms, OwnBatch(1, now_ms))

    def _loaded(self, owned: OwnedPartition[Transaction], transactions: list[Transaction]) -> None:
        """Go on with transactions whose outcome is in the log."""
        for transaction in transactions:
            if transaction.state in ENDING:
                logger.info("Sending the markers of %s after loading partition %d", transaction, owned.index)
                self._send_markers(owned, transaction)

    def _unloaded(self, owned: OwnedPartition[Transaction]) -> None:
        """Forget what was being ended: the next coordinator ends it."""
        self._endings = {name: ending for name, ending in self._endings.items() if ending.owned is not owned}
        for ask_again in list(self._waiting.values()):
            ask_again()


def _told(error: ErrorCode) -> ErrorCode:
    """Return the error for a client whose transaction's record could not be written."""
    if error is ErrorCode.REQUEST_TIMED_OUT:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return ErrorCode.UNKNOWN_SERVER_ERROR if error in TOO_LARGE else coordinator_error(error)
