"""Asks the coordinator whether partitions belong to a transaction, before the first append to each (KIP-890, part 1).

A leader writes transactional records only if the coordinator knows of them: records of a transaction that is over, or
was never begun, would never get a marker and hold back every reader of committed records. If another broker coordinates
the transaction, the question travels as AddPartitionsToTxn; a broker has one such request under way to each other, with
all questions that have come since. Source: AddPartitionsToTxnManager and ReplicaManager of Kafka 3.9.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Mapping
from typing import NamedTuple

from engine.broker.coordinator.peers import BrokerConnections
from engine.broker.coordinator.transactions.coordinator import TransactionCoordinator
from engine.broker.coordinator.transactions.state_machine import ProducerIdAndEpoch
from engine.broker.log.producer_sequences import Verification
from engine.broker.metrics.measures import Histogram
from engine.broker.replication.metadata_cache import MetadataCache
from engine.broker.replication.replica_manager import ReplicaManager
from engine.common.clock import Clock
from engine.common.errors import NO_ERROR, ErrorCode, KafkaError, KlammError, error_code
from engine.common.model import TopicPartition
from engine.kafka.client.errors import NoCommonVersion
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from engine.runtime.supervisor import Supervisor

logger = logging.getLogger("kafka.server.AddPartitionsToTxnManager")

VERIFICATION_VERSION = 4
"""The first version of AddPartitionsToTxn in which a broker can ask."""

Errors = dict[TopicPartition, ErrorCode]


class Verified:
    """The partitions of one request of a transaction: which may be appended to, and why not the others."""

    __slots__ = ("errors", "knows_abortable", "producer", "transactional_id", "verifications")

    def __init__(self, transactional_id: str, producer: ProducerIdAndEpoch, *, knows_abortable: bool) -> None:
        self.transactional_id = transactional_id
        self.producer = producer
        self.knows_abortable = knows_abortable
        """Whether the client understands TRANSACTION_ABORTABLE."""
        self.errors: Errors = {}
        self.verifications: dict[TopicPartition, Verification] = {}
        """Those whose transaction is not open at the partition yet: the coordinator is asked."""

    def take(self, errors: Mapping[TopicPartition, ErrorCode]) -> None:
        if any(errors.values()):
            self.errors |= {p: self._told(error) for p, error in errors.items() if error is not NO_ERROR}

    def _told(self, error: ErrorCode) -> ErrorCode:
        if error is ErrorCode.PRODUCER_FENCED:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if error is ErrorCode.TRANSACTION_ABORTABLE and not self.knows_abortable:
            return ErrorCode.INVALID_TXN_STATE
        return error


class _Question(NamedTuple):
    verified: Verified
    answer: asyncio.Future[Errors]


class TransactionVerifier:
    """Asks this broker's coordinator, or another's. Create it on the running event loop."""

    def __init__(
        self,
        broker_id: int,
        coordinator: TransactionCoordinator,
        replica_manager: ReplicaManager,
        metadata_cache: MetadataCache,
        connections: BrokerConnections,
        clock: Clock,
    ) -> None:
        self._broker_id = broker_id
        self._coordinator = coordinator
        self._replica_manager = replica_manager
        self._metadata_cache = metadata_cache
        self.connections = connections
        self.failures_total = 0
        """Partitions whose verification failed."""
        self.times_ms = Histogram()
        self._clock = clock
        self._questions: dict[int, dict[str, _Question]] = {}
        self._asking: set[int] = set()
        self._supervisor = Supervisor("transaction-verifier")

    def begin(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        sequences: Mapping[TopicPartition, int],
        *,
        knows_abortable: bool,
    ) -> Verified:
        """Find out which of the partitions need the coordinator's approval; ``sequences`` are the first to append."""
        verified = Verified(transactional_id, producer, knows_abortable=knows_abortable)
        now_ms = self._clock.now_ms()
        hosted = self._replica_manager.partitions.get
        for partition, sequence in sequences.items():
            here = hosted(partition)
            log = None if here is None else here.leader_log
            if log is None:
                try:
                    log = self._replica_manager.partition(*partition).led_log()
                except KafkaError as error:
                    verified.errors[partition] = error.code
                    continue
            verification = log.producers.begin_verification(
                producer.producer_id, sequence, producer.producer_epoch, now_ms
            )
            if verification is not None:
                verified.verifications[partition] = verification
        return verified

    def settle_here(self, verified: Verified) -> bool:
        """Settle what can be settled without another broker; return False if ``settle`` has to ask one."""
        if not verified.verifications:
            return True
        leader = self._coordinator_id(verified.transactional_id)
        if leader == self._broker_id:
            partitions = verified.verifications.keys()
            verified.take(self._coordinator.verify_partitions(verified.transactional_id, verified.producer, partitions))
            return True
        if leader is None:
            verified.take(dict.fromkeys(verified.verifications, ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return True
        return False

    async def settle(self, verified: Verified) -> None:
        """Ask the coordinator, wherever it is."""
        if self.settle_here(verified):
            return
        leader = self._coordinator_id(verified.transactional_id)
        assert leader is not None, "settle_here has looked"
        answer: asyncio.Future[Errors] = asyncio.get_running_loop().create_future()
        self._add(leader, _Question(verified, answer))
        self._start(leader)
        begun_s = time.monotonic()
        errors = await answer
        now_s = time.monotonic()
        self.times_ms.add(1000 * (now_s - begun_s), now_s)
        self.failures_total += sum(error is not NO_ERROR for error in errors.values())
        verified.take(errors)

    async def stop(self) -> None:
        """End; questions under way are answered with NETWORK_EXCEPTION."""
        await self._supervisor.stop()
        for questions in self._questions.values():
            _answer_all(questions, ErrorCode.NETWORK_EXCEPTION)
        await self.connections.close()

    def _coordinator_id(self, transactional_id: str) -> int | None:
        info = self._metadata_cache.partition_info(self._coordinator.partition_for(transactional_id))
        if info is None or not self._metadata_cache.has_alive_broker(info.leader):
            return None
        return info.leader

    def _add(self, leader: int, question: _Question) -> None:
        """Queue a question. Of two about the same transactional id, only the later producer's, or attempt's, counts."""
        questions = self._questions.setdefault(leader, {})
        transactional_id, epoch = question.verified.transactional_id, question.verified.producer.producer_epoch
        earlier = questions.get(transactional_id)
        if earlier is not None:
            earlier_epoch = earlier.verified.producer.producer_epoch
            if earlier_epoch > epoch:
                _answer(question, ErrorCode.INVALID_PRODUCER_EPOCH)
                return
            fenced, repeated = ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.NETWORK_EXCEPTION
            _answer(earlier, fenced if earlier_epoch < epoch else repeated)
        questions[transactional_id] = question

    def _start(self, leader: int) -> None:
        if leader not in self._asking:
            self._asking.add(leader)
            self._supervisor.start(self._ask(leader), f"ask broker {leader}")

    async def _ask(self, leader: int) -> None:
        try:
            while questions := self._questions.pop(leader, None):
                try:
                    await self._ask_once(leader, questions)
                except Exception:
                    # Those that have come since are asked all the same.
                    logger.exception("Asking broker %d which partitions belong to transactions failed", leader)
                finally:
                    # Nobody may wait forever, whatever happens.
                    _answer_all(questions, ErrorCode.NETWORK_EXCEPTION)
        finally:
            self._asking.discard(leader)

    async def _ask_once(self, leader: int, questions: dict[str, _Question]) -> None:
        """Ask, and answer the questions; the caller answers those that are left."""
        client = self.connections.to(leader)
        if client is None:
            _answer_all(questions, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        request = AddPartitionsToTxnRequest(transactions=[_asked(q.verified) for q in questions.values()])
        try:
            await client.connect()
            version = await client.version_for(ApiKey.ADD_PARTITIONS_TO_TXN)
            if version < VERIFICATION_VERSION:
                # A broker from before 3.8 cannot say: continue as it would.
                _answer_all(questions, NO_ERROR)
                return
            response: AddPartitionsToTxnResponse = await client.send(request, version)
        except NoCommonVersion:
            _answer_all(questions, NO_ERROR)
            return
        except KlammError as error:
            logger.warning("Broker %d did not say which partitions belong to transactions: %s", leader, error)
        else:
            _take(response, questions)


def _asked(verified: Verified) -> AddPartitionsToTxnTransaction:
    topics: dict[str, list[int]] = {}
    for topic, index in verified.verifications:
        topics.setdefault(topic, []).append(index)
    return AddPartitionsToTxnTransaction(
        transactional_id=verified.transactional_id,
        producer_id=verified.producer.producer_id,
        producer_epoch=verified.producer.producer_epoch,
        verify_only=True,
        topics=[AddPartitionsToTxnTopic(name=name, partitions=indexes) for name, indexes in topics.items()],
    )


def _take(response: AddPartitionsToTxnResponse, questions: Mapping[str, _Question]) -> None:
    if response.error_code != NO_ERROR:
        code = error_code(response.error_code)
        # Clients cannot know this error, which is between brokers.
        is_refused = code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        _answer_all(questions, ErrorCode.INVALID_TXN_STATE if is_refused else code)
        return
    for result in response.results_by_transaction:
        question = questions.get(result.transactional_id)
        if question is not None and not question.answer.done():
            answers = {
                TopicPartition(topic.name, partition.partition_index): error_code(partition.partition_error_code)
                for topic in result.topic_results
                for partition in topic.results_by_partition
            }
            # What the answer leaves out is not approved.
            asked = question.verified.verifications
            question.answer.set_result({each: answers.get(each, ErrorCode.NETWORK_EXCEPTION) for each in asked})


def _answer(question: _Question, error: ErrorCode) -> None:
    if not question.answer.done():
        partitions: Collection[TopicPartition] = question.verified.verifications
        question.answer.set_result(dict.fromkeys(partitions, error))


def _answer_all(questions: Mapping[str, _Question], error: ErrorCode) -> None:
    for question in questions.values():
        _answer(question, error)
