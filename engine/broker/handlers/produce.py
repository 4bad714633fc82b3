"""Produce (0): v0–v11.

Behaviour
* Each partition has its own append, and one partition's error never fails the others. But a batch with a senseless
  header, or a transactional one without a transactional id, fails the whole request. If a partition appears more than
  once, only its last records count.
* acks=0: no answer. A failure then closes the connection, the only signal that the protocol allows.
* acks=1: the answer comes after the local append. acks=-1: it comes when the high watermark has passed the batch, or
  after ``timeout_ms`` with REQUEST_TIMED_OUT. Other values: INVALID_REQUIRED_ACKS.
* Internal topics: INVALID_TOPIC_EXCEPTION, except for clients that call themselves ``__admin_client``.
* The broker checks, stamps and writes records in the buffer that received them; it decodes and copies nothing. If the
  topic demands that, a thread copies and prepares large ones.
* If flush.messages is reached, the answer waits until the disk has the records, whatever ``acks`` says. If the disk
  fails, the partition's answer is KAFKA_STORAGE_ERROR.
* The first batch of a transaction in a partition is appended only if the transaction's coordinator knows of the
  partition: INVALID_TXN_STATE, or TRANSACTION_ABORTABLE from v11 on, if it does not; NOT_ENOUGH_REPLICAS, which
  producers send again for, if it cannot say.

Version notes
* v0–v2 carry message sets of magic 0 and 1, stored as v2   * v3 exactly one v2 batch per partition   * v7 zstd
* v8 tells which records were refused   * v9 flexible   * v10 names the new leader (KIP-951)
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Hashable, Iterator
from typing import NamedTuple

from engine.broker.coordinator.transactions.verifier import Verified
from engine.broker.handlers import produce_transactions
from engine.broker.handlers.answer_lists import answer_lists, kept, repeated_digests
from engine.broker.handlers.context import RequestContext
from engine.broker.handlers.in_turns import Steps, pieces
from engine.broker.handlers.produce_checks import (
    FIRST_BATCH_VERSION,
    Parts,
    check_request,
    checked_records,
    last_of_each,
    may_append,
    names_a_partition_twice,
    not_one_batch,
)
from engine.broker.handlers.registry import handles, handles_large
from engine.broker.log.log import Log
from engine.broker.log.log_append import AppendResult
from engine.broker.log.preparation import Preparation, PreparationNeeded
from engine.broker.network.request import CLOSE_CONNECTION, NO_RESPONSE, Deferred, DelayedAnswer
from engine.broker.replication.metadata_cache import LeaderHints
from engine.broker.replication.partition import Partition
from engine.common.errors import ErrorCode, KafkaError
from engine.common.model import ACKS_ALL, TopicPartition
from engine.common.topic_names import INTERNAL_TOPICS
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from engine.kafka.protocol.records.append_rules import RecordValidationError
from engine.kafka.protocol.wire import STRING_BYTES_MAX
from engine.runtime.turns import Breather, carry_out

_ACKS = (0, 1, ACKS_ALL)

_WITHOUT_LOG_START = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
"""Errors with which a log does not tell its start offset; with all others it does."""

_NOT_SETTLED = frozenset({ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER})
"""Errors with which a partition's answer may still change: the append waits, or the answer will name the leader."""

RECORD_ERRORS_MAX = 10_000
"""Maximum refused records that one answer names: each partition may have a batch full of them."""

ADMIN_CLIENT_ID = "__admin_client"
"""A client with this client id may write to internal topics: Kafka's rule for tools that repair them."""


@handles(ApiKey.PRODUCE, requires=["Write TransactionalId", "Write Topic"])
def produce(context: RequestContext, request: ProduceRequest) -> object:
    """Append what a producer sends, and answer as soon as its ``acks`` allow."""
    verified = None
    try:
        check_request(request)
        if request.transactional_id is not None:
            verified = produce_transactions.begin_verification(context, request.transactional_id, request.topic_data)
    except KafkaError as error:
        outcome = _Outcome(None)
        return _answer(context, request, outcome, _refuse_all(request, error, outcome))
    if verified is not None and not context.broker.transaction_verifier.settle_here(verified):
        produce_transactions.keep_records(request)
        return _verify_first(context, request, verified)
    return _append_all(context, request, verified)


async def _verify_first(context: RequestContext, request: ProduceRequest, verified: Verified) -> object:
    await context.broker.transaction_verifier.settle(verified)
    answer = _append_all(context, request, verified)
    return await answer if inspect.iscoroutine(answer) else answer


def _append_all(context: RequestContext, request: ProduceRequest, verified: Verified | None) -> object:
    """Append; ``verified`` is what the transaction's coordinator has said, if any batch is transactional."""
    outcome = _Outcome(verified)
    if names_a_partition_twice(request):
        responses = _append_last_of_each(context, request, outcome)
    else:
        responses = [
            TopicProduceResponse(
                name=topic.name,
                partition_responses=[
                    _append(context, request, topic.name, data, outcome) for data in topic.partition_data
                ],
            )
            for topic in request.topic_data
            if topic.partition_data
        ]
    response = ProduceResponse(responses=responses)
    if outcome.to_prepare or outcome.to_flush:
        return _answer_later(context, request, outcome, response)
    return _answer(context, request, outcome, response)


@handles_large(ApiKey.PRODUCE)
async def produce_in_turns(context: RequestContext, request: ProduceRequest) -> object:
    """Append to very many partitions, in turns with other requests."""
    outcome, breather = _Outcome(None), Breather()
    transactional: list[TopicProduceData] = []
    try:
        for topic in pieces(request.topic_data, "partition_data"):
            check_request(ProduceRequest(transactional_id=request.transactional_id, topic_data=[topic]))
            if request.transactional_id is not None:
                transactional.append(topic)
            await breather.give_way()
        if request.transactional_id is not None:
            outcome.verified = produce_transactions.begin_verification(context, request.transactional_id, transactional)
    except KafkaError as error:
        outcome.has_refused = True
        answers = _Answers()
        for topic in pieces(request.topic_data, "partition_data"):
            for data in topic.partition_data:
                answers.tell(topic.name, _refuse(PartitionProduceResponse(index=data.index), error))
            await breather.give_way()
        return await _answer_later(context, request, outcome, ProduceResponse(responses=answers.topics))
    if outcome.verified is not None:
        await context.broker.transaction_verifier.settle(outcome.verified)
    names_twice = await carry_out(repeated_digests(_names(request)))
    append = _append_last_of_each_in_turns if names_twice else _append_each_in_turns
    responses = await append(context, request, outcome, breather)
    return await _answer_later(context, request, outcome, ProduceResponse(responses=responses))


def _names(request: ProduceRequest) -> Iterator[Hashable]:
    """Yield each topic and each partition of a request."""
    for topic in request.topic_data:
        yield topic.name
        for data in topic.partition_data:
            yield TopicPartition(topic.name, data.index)


async def _append_last_of_each_in_turns(
    context: RequestContext, request: ProduceRequest, outcome: _Outcome, breather: Breather
) -> list[TopicProduceResponse]:
    """Append as ``_append_last_of_each`` does."""
    good: Parts = {}
    bad: Parts = {}
    for topic in pieces(request.topic_data, "partition_data"):
        taken, refused = last_of_each(ProduceRequest(topic_data=[topic]), context.api_version)
        good.update(taken)
        bad.update(refused)
        await breather.give_way()
    answers = _Answers()
    for parts in (good, bad):
        for where, data in parts.items():
            answers.tell(where.topic, _append(context, request, where.topic, data, outcome))
            await breather.give_way()
    return answers.topics


async def _append_each_in_turns(
    context: RequestContext, request: ProduceRequest, outcome: _Outcome, breather: Breather
) -> list[TopicProduceResponse]:
    """Do the same for a request that names nothing twice, which takes less memory: in the same order."""
    lists = answer_lists(context, ProduceResponse, "responses.partition_responses")
    topics: list[TopicProduceResponse] = [] if lists is None else lists.of_topics()

    async def answer(topic: TopicProduceData, *, are_good: tuple[bool, ...]) -> bool:
        """Answer the topic's partitions whose records may be appended, then the others; return if there are any."""
        parts: list[PartitionProduceResponse] = [] if lists is None else lists.of_parts()
        is_settled = True
        for is_good in are_good:
            for data in topic.partition_data:
                if may_append(data, context.api_version) is is_good:
                    part = _append(context, request, topic.name, data, outcome)
                    if part.error_code in _NOT_SETTLED or part.record_errors:
                        is_settled = False
                        kept(parts, part)
                    else:
                        parts.append(part)
                await breather.give_way()
            if not len(parts):
                return False
        if lists is not None:
            parts = lists.settled(parts)
        entry = TopicProduceResponse(name=topic.name, partition_responses=parts)
        if is_settled:
            topics.append(entry)
        else:
            kept(topics, entry)
        return True

    are_answered = bytearray()
    for topic in request.topic_data:
        are_answered.append(await answer(topic, are_good=(True, False)))
        await breather.give_way()
    for topic, is_answered in zip(request.topic_data, are_answered, strict=True):
        if not is_answered:
            await answer(topic, are_good=(False,))
        await breather.give_way()
    return topics


def _refuse_all(request: ProduceRequest, error: KafkaError, outcome: _Outcome) -> ProduceResponse:
    outcome.has_refused = True
    answers = _Answers()
    for topic in request.topic_data:
        for data in topic.partition_data:
            answers.tell(topic.name, _refuse(PartitionProduceResponse(index=data.index), error))
    return ProduceResponse(responses=answers.topics)


def _append_last_of_each(
    context: RequestContext, request: ProduceRequest, outcome: _Outcome
) -> list[TopicProduceResponse]:
    """Append as Kafka does, which keeps a map by partition: the last records count, and refusals come first."""
    good, bad = last_of_each(request, context.api_version)
    answers = _Answers()
    for where, data in (*good.items(), *bad.items()):
        answers.tell(where.topic, _append(context, request, where.topic, data, outcome))
    return answers.topics


class _Answers:
    """One answer per partition (the last one given), with a topic's partitions together."""

    __slots__ = ("_by_topic",)

    def __init__(self) -> None:
        self._by_topic: dict[str, dict[int, PartitionProduceResponse]] = {}

    def tell(self, topic: str, answer: PartitionProduceResponse) -> None:
        self._by_topic.setdefault(topic, {})[answer.index] = answer

    @property
    def topics(self) -> list[TopicProduceResponse]:
        return [
            TopicProduceResponse(name=name, partition_responses=list(answers.values()))
            for name, answers in self._by_topic.items()
        ]


def _answer(
    context: RequestContext, request: ProduceRequest, outcome: _Outcome, response: ProduceResponse
) -> ProduceResponse | Deferred | object:
    if outcome.has_refused:
        for _ in _complete_refusals(context, response):
            pass
    return _send(context, request, outcome, response)


def _send(
    context: RequestContext, request: ProduceRequest, outcome: _Outcome, response: ProduceResponse
) -> ProduceResponse | Deferred | object:
    if request.acks == 0:
        return CLOSE_CONNECTION if outcome.has_refused else NO_RESPONSE
    if outcome.waiting:
        operation = DelayedProduce(context, request.timeout_ms, outcome.waiting, response)
        keys = [w.partition.topic_partition for w in outcome.waiting]
        if not context.broker.replica_manager.delayed_produce.try_complete_else_watch(operation, keys):
            return operation.deferred
    return response


async def _answer_later(
    context: RequestContext, request: ProduceRequest, outcome: _Outcome, response: ProduceResponse
) -> object:
    """Append the records that needed long work, and flush what must be on disk before the answer; in turns."""
    for unprepared in outcome.to_prepare:
        await _append_prepared(context, request.acks, unprepared, outcome)
    await asyncio.gather(*(_flush(context, request.acks, unflushed, outcome) for unflushed in outcome.to_flush))
    if outcome.has_refused:
        await carry_out(_complete_refusals(context, response))
    return _send(context, request, outcome, response)


async def _flush(context: RequestContext, acks: int, unflushed: _Unflushed, outcome: _Outcome) -> None:
    partition, log, answer, noted = unflushed
    try:
        await context.broker.replica_manager.flushes.flush(log)
    except KafkaError as error:
        noted = [0, 0]
        if acks:
            partition.environment.topics.not_produced += 1
        outcome.has_refused = True
        _refuse(answer, error)
        outcome.waiting = [waiting for waiting in outcome.waiting if waiting.answer is not answer]
    partition.counts.appends += noted


async def _append_prepared(context: RequestContext, acks: int, unprepared: _Unprepared, outcome: _Outcome) -> None:
    partition, preparation, answer = unprepared
    try:
        await context.broker.offloader.run(preparation.run)
    except KafkaError as error:
        partition.count_refusal(error, len(preparation.records))
        outcome.has_refused = True
        _refuse(answer, error, partition)
        return
    try:
        records, verified = preparation.records, outcome.verified
        if verified is None:
            result = partition.append_records_to_leader(records, acks, prepared=preparation)
        else:
            result = produce_transactions.append(verified, partition, records, acks, preparation)
    except KafkaError as error:
        outcome.has_refused = True
        _refuse(answer, error, partition)
    else:
        if preparation.converted:
            partition.environment.topics.count_produce_conversions(
                partition.topic_partition.topic, preparation.converted, preparation.took_s, len(records)
            )
        _accept(answer, result, partition, acks, outcome)


class _Unprepared(NamedTuple):
    """A partition whose records need work outside the event loop before the append."""

    partition: Partition
    preparation: Preparation
    answer: PartitionProduceResponse


class _Unflushed(NamedTuple):
    """A partition whose log must be on disk before the answer."""

    partition: Partition
    log: Log
    answer: PartitionProduceResponse
    noted: list[int]
    """What the append has noted for the counts of its topic. Kafka counts an append after its flush."""


class _Outcome:
    """The work that the appends of one request leave before its answer."""

    __slots__ = ("has_refused", "to_flush", "to_prepare", "verified", "waiting")

    def __init__(self, verified: Verified | None) -> None:
        self.verified = verified
        """What the coordinator has said; None if no batch is transactional."""
        self.waiting: list[_Waiting] = []
        self.to_flush: list[_Unflushed] = []
        self.to_prepare: list[_Unprepared] = []
        self.has_refused = False


class _Waiting:
    """A partition whose batch is written here, but not yet everywhere."""

    __slots__ = ("answer", "partition", "required_offset")

    def __init__(self, partition: Partition, required_offset: int, answer: PartitionProduceResponse) -> None:
        self.partition = partition
        self.required_offset = required_offset
        self.answer = answer


class DelayedProduce(DelayedAnswer):
    """An acks=all answer that waits for the in-sync replicas."""

    __slots__ = ("_context", "_no_more_led", "_response", "_waiting")

    def __init__(
        self, context: RequestContext, delay_ms: int, waiting: list[_Waiting], response: ProduceResponse
    ) -> None:
        super().__init__(delay_ms)
        self._context = context
        self._waiting = waiting
        self._no_more_led: list[_Waiting] = []
        self._response = response

    def try_complete(self) -> bool:
        """Complete when every partition has its batch everywhere, or has failed."""
        still_waiting = []
        for waiting in self._waiting:
            is_done, error = waiting.partition.check_enough_replicas_reach_offset(waiting.required_offset)
            if not is_done and error is ErrorCode.NONE:
                still_waiting.append(waiting)
            elif error is not ErrorCode.NONE:
                if error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                    error = self._why_not_led(waiting)
                # The records are written anyway, so the answer has their offset besides the error, as in Kafka.
                waiting.answer.error_code = error
                _count_late_error(waiting, error)
        self._waiting = still_waiting
        return not still_waiting and self.force_complete()

    def _why_not_led(self, waiting: _Waiting) -> ErrorCode:
        """Return what a new request would be told: the partition may be gone, or its log dir."""
        error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        try:
            self._context.broker.replica_manager.partition(*waiting.partition.topic_partition)
        except KafkaError as refused:
            error = refused.code
        if error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            self._no_more_led.append(waiting)
        return error

    def on_complete(self) -> None:
        """Answer; partitions that still wait have timed out."""
        for waiting in self._waiting:
            waiting.answer.error_code = ErrorCode.REQUEST_TIMED_OUT
            _count_late_error(waiting, ErrorCode.REQUEST_TIMED_OUT)
        if self._no_more_led and (hints := _leader_hints(self._context)) is not None:
            for waiting in self._no_more_led:
                _name_leader(hints, waiting.partition.topic_partition, waiting.answer)
            _add_nodes(hints, self._response)
        self.deferred.complete(self._response)


def _count_late_error(waiting: _Waiting, error: ErrorCode) -> None:
    """Count an error that came after the append, which has counted as a success."""
    topics = waiting.partition.environment.topics
    topics.not_produced += 1
    topics.produce_errors[error] += 1


def _append(
    context: RequestContext, request: ProduceRequest, topic: str, data: PartitionProduceData, outcome: _Outcome
) -> PartitionProduceResponse:
    """Append one partition's batches; note in ``outcome`` what delays the answer, and whether it is a refusal."""
    acks = request.acks
    index = data.index
    try:
        context.broker.metadata_cache.check_has(topic, index)
        if acks not in _ACKS:
            _refuse_acks(context, data)
        verified = outcome.verified
        if verified is not None and verified.errors:
            produce_transactions.check(verified, TopicPartition(topic, index))
        if topic in INTERNAL_TOPICS:
            _check_may_write_internal(context, topic)
        partition = context.broker.replica_manager.partition(topic, index)
        records = checked_records(data.records, context.api_version)
        try:
            result = (
                partition.append_records_to_leader(records, acks, may_prepare=True)
                if verified is None
                else produce_transactions.append(verified, partition, records, acks)
            )
        except KafkaError as error:
            outcome.has_refused = True
            return _refuse(PartitionProduceResponse(index=index), error, partition)
        if result.first_offset < 0 and context.api_version >= FIRST_BATCH_VERSION:
            # The batch announces more bytes than came, so nothing was appended: do not acknowledge it.
            partition.environment.topics.not_produced += 1
            raise not_one_batch(context.api_version)
    except PreparationNeeded as needed:
        answer = PartitionProduceResponse(index=index)
        outcome.to_prepare.append(_Unprepared(partition, needed.preparation, answer))
        return answer
    except KafkaError as error:
        outcome.has_refused = True
        return _refuse(PartitionProduceResponse(index=index), error)
    return _accept(PartitionProduceResponse(index=index), result, partition, acks, outcome)


def _refuse_acks(context: RequestContext, data: PartitionProduceData) -> None:
    """Refuse records that nobody could acknowledge, unless they have another fault.

    Raises:
        KafkaError: INVALID_REQUIRED_ACKS; INVALID_RECORD, UNSUPPORTED_COMPRESSION_TYPE.
    """
    checked_records(data.records, context.api_version)
    raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS)


def _accept(
    answer: PartitionProduceResponse, result: AppendResult, partition: Partition, acks: int, outcome: _Outcome
) -> PartitionProduceResponse:
    """Record the records' offsets, and note what the answer must wait for."""
    answer.base_offset = result.first_offset
    answer.log_append_time_ms = result.log_append_time_ms
    answer.log_start_offset = result.log_start_offset
    log = partition.leader_log
    is_flush_due = log is not None and log.is_flush_due
    if log is not None and is_flush_due:
        appends = partition.counts.appends
        outcome.to_flush.append(_Unflushed(partition, log, answer, appends[-2:]))
        del appends[-2:]
    if acks != 1:
        if acks == 0:
            partition.environment.topics.not_produced += 1
        elif partition.followers or is_flush_due:
            # Without followers the append has raised the high watermark.
            outcome.waiting.append(_Waiting(partition, result.last_offset + 1, answer))
    return answer


def _check_may_write_internal(context: RequestContext, topic: str) -> None:
    """Check that a client may write to internal topics: coordinators may, and clients that claim to be administrators.

    Raises:
        KafkaError: INVALID_TOPIC_EXCEPTION.
    """
    if context.client_id != ADMIN_CLIENT_ID:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot append to internal topic {topic}")


def _refuse(
    answer: PartitionProduceResponse, error: KafkaError, refuser: Partition | None = None
) -> PartitionProduceResponse:
    """Record why nothing was written; ``refuser`` is the partition, if its log has looked at the records."""
    log = None if refuser is None or error.code in _WITHOUT_LOG_START else refuser.leader_log
    record_errors = error.record_errors if isinstance(error, RecordValidationError) else ()
    answer.error_code = error.code
    # Kafka has no text here, so the error stays as it is if a text with a very long name does not fit.
    if len((error.message or "").encode()) <= STRING_BYTES_MAX:
        answer.error_message = error.message
    answer.base_offset = answer.log_append_time_ms = -1
    answer.log_start_offset = -1 if log is None else log.log_start_offset
    answer.record_errors = [
        BatchIndexAndErrorMessage(batch_index=each.batch_index, batch_index_error_message=each.message)
        for each in record_errors
    ]
    return answer


def _complete_refusals(context: RequestContext, response: ProduceResponse) -> Steps[None]:
    """Count what is refused, and add what an answer tells of it; a step is a partition.

    From ``RECORD_ERRORS_MAX`` records on, refused batches come without theirs. Since v10 the answer names the leaders
    of partitions that are led elsewhere, so that the producer need not ask for metadata.
    """
    errors = context.broker.replica_manager.environment.topics.produce_errors
    hints = _leader_hints(context)
    room = RECORD_ERRORS_MAX
    for topic in response.responses:
        for answer in topic.partition_responses:
            if answer.error_code != ErrorCode.NONE:
                errors[answer.error_code] += 1
            if len(answer.record_errors) > room:
                answer.record_errors = []
            room -= len(answer.record_errors)
            if hints is not None and answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                _name_leader(hints, TopicPartition(topic.name, answer.index), answer)
            yield
    if hints is not None:
        _add_nodes(hints, response)


def _leader_hints(context: RequestContext) -> LeaderHints | None:
    if context.api_version < 10:
        return None
    broker = context.broker
    return LeaderHints(broker.metadata_cache, broker.replica_manager.partitions, context.session.listener_name)


def _name_leader(hints: LeaderHints, topic_partition: TopicPartition, answer: PartitionProduceResponse) -> None:
    leader = hints.leader_of(topic_partition)
    if leader is not None:
        answer.current_leader = LeaderIdAndEpoch(leader_id=leader[0], leader_epoch=leader[1])


def _add_nodes(hints: LeaderHints, response: ProduceResponse) -> None:
    """Add the leaders' addresses that the answer does not have yet."""
    known_ids = {node.node_id for node in response.node_endpoints}
    response.node_endpoints += [
        NodeEndpoint(node_id=n.id, host=n.host, port=n.port, rack=n.rack)
        for n in hints.nodes.values()
        if n.id not in known_ids
    ]
