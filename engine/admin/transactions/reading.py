"""Transactions as their coordinators know them, and producers as the replicas of a partition know them (KIP-664)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from engine.admin.cluster.asking import PATIENCE_S, ask_all
from engine.admin.cluster.errors import AdminError, BadRequest, NotFound, Refused, Unknown
from engine.admin.cluster.remedies import Operation, Parameter, Phrase
from engine.admin.cluster.wire import WireCluster
from engine.admin.groups.group_reading import find_coordinators
from engine.admin.groups.scope import as_error
from engine.admin.offsets.listing import leaders_of
from engine.common.clock import SystemClock
from engine.common.errors import ErrorCode
from engine.common.model import TopicPartition
from engine.kafka.formats.transaction_state import TransactionState
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from engine.kafka.protocol.apis.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from engine.kafka.protocol.apis.find_coordinator import KeyType
from engine.kafka.protocol.apis.list_transactions import ListTransactionsRequest, ListTransactionsResponse

LIST_HINT = Phrase("list the transactions with: ", Operation.LIST_TRANSACTIONS)
_IDS_PER_REQUEST = 200
_PARTITIONS_PER_REQUEST = 200
_STATES = {state.kafka_name.lower(): state.kafka_name for state in TransactionState}
_ENDING = frozenset(
    state.kafka_name
    for state in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT, TransactionState.PREPARE_EPOCH_FENCE)
)


@dataclass(frozen=True, slots=True)
class TransactionFilter:
    """Which transactional ids are wanted; an empty tuple lets all pass."""

    states: tuple[str, ...] = ()
    producer_ids: tuple[int, ...] = ()
    longer_than_ms: int | None = None
    """Only transactions that have been open for longer (Kafka 3.8 and newer)."""


@dataclass(frozen=True, slots=True)
class ListedTransaction:
    """A transactional id as its coordinator lists it."""

    transactional_id: str
    coordinator: int
    producer_id: int
    state: str


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """What a coordinator knows of a transactional id. Start and duration are None if no transaction is open.

    ``partitions`` lack their marker: of a transaction that is ending, only those that still wait for it.
    """

    transactional_id: str
    coordinator: int
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    start_time_ms: int | None
    duration_ms: int | None
    partitions: tuple[TopicPartition, ...]

    @property
    def is_open(self) -> bool:
        """Whether some partitions may have records without a marker."""
        return self.state == TransactionState.ONGOING.kafka_name or self.is_ending

    @property
    def is_ending(self) -> bool:
        """Whether the outcome is certain, and markers are being written."""
        return self.state in _ENDING


@dataclass(frozen=True, slots=True)
class PartitionProducer:
    """A producer as a replica remembers it; None stands for what it does not know."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int | None
    """Leader epoch of the coordinator's partition in the producer's last marker."""
    last_sequence: int | None
    last_timestamp_ms: int | None
    start_offset: int | None
    """First offset of its open transaction."""


@dataclass(frozen=True, slots=True)
class TransactionsListed:
    """The transactional ids by name, and the brokers that did not list theirs."""

    transactions: tuple[ListedTransaction, ...]
    failures: tuple[AdminError, ...] = ()


def parse_states(texts: Iterable[str]) -> tuple[str, ...]:
    """Return Kafka's names of states, which may be written in any case and with commas between them.

    Raises:
        BadRequest: a word is not a state.
    """
    words = [word.strip() for text in texts for word in text.split(",")]
    for word in words:
        if word.lower() not in _STATES:
            hint = f"there are {', '.join(_STATES.values())}"
            raise BadRequest(f"not a state of transactions: {word!r}", where=Parameter.STATE, hint=hint)
    return tuple(dict.fromkeys(_STATES[word.lower()] for word in words))


async def list_transactions(wire: WireCluster, wanted: TransactionFilter = TransactionFilter()) -> TransactionsListed:
    """List the transactional ids of all live brokers, by name.

    A broker that is loading is asked again for a while. Raises Unreachable if no broker answers at all.
    """
    duration_ms = -1 if wanted.longer_than_ms is None else wanted.longer_than_ms

    async def of_brokers(ids: list[int]) -> Mapping[int, int]:
        return {broker_id: broker_id for broker_id in ids}

    async def ask(broker_id: int, _: list[int]) -> dict[int, list[ListedTransaction] | Unknown]:
        if duration_ms >= 0 and await wire.version(await wire.client_of(broker_id), ApiKey.LIST_TRANSACTIONS) < 1:
            message = "brokers before Kafka 3.8 do not report how long a transaction has been open"
            raise Refused(ErrorCode.UNSUPPORTED_VERSION, message, where=f"broker {broker_id}", hint=LIST_HINT)
        request = ListTransactionsRequest(
            state_filters=list(wanted.states), producer_id_filters=list(wanted.producer_ids)
        )
        if duration_ms >= 0:
            request.duration_filter = duration_ms
        response: ListTransactionsResponse = await wire.call_broker(broker_id, request)
        if response.error_code != ErrorCode.NONE:
            return {broker_id: Unknown.of_code(response.error_code)}
        return {
            broker_id: [
                ListedTransaction(state.transactional_id, broker_id, state.producer_id, state.transaction_state)
                for state in response.transaction_states
            ]
        }

    answers = await ask_all(wire, sorted(await wire.live_brokers()), of_brokers, ask, batch=1, patience_s=PATIENCE_S)
    failures = [_unlisted(broker, why) for broker, why in answers.items() if isinstance(why, Unknown)]
    # While a coordinator moves, two brokers may list the same id.
    by_id = {
        listing.transactional_id: listing
        for listed in answers.values()
        if not isinstance(listed, Unknown)
        for listing in listed
    }
    return TransactionsListed(tuple(by_id[name] for name in sorted(by_id)), tuple(failures))


async def describe_transactions(
    wire: WireCluster, transactional_ids: Iterable[str], *, coordinators: Mapping[str, int] | None = None
) -> dict[str, TransactionDescription | Unknown]:
    """Describe transactional ids, by name; an unknown one is an Unknown with TRANSACTIONAL_ID_NOT_FOUND."""

    async def ask(broker_id: int, names: list[str]) -> dict[str, TransactionDescription | Unknown]:
        request = DescribeTransactionsRequest(transactional_ids=names)
        response: DescribeTransactionsResponse = await wire.call_broker(broker_id, request)
        now_ms = SystemClock().now_ms()
        descriptions: dict[str, TransactionDescription | Unknown] = {}
        for state in response.transaction_states:
            if state.error_code != ErrorCode.NONE:
                descriptions[state.transactional_id] = Unknown.of_code(state.error_code)
                continue
            start_ms = state.transaction_start_time_ms if state.transaction_start_time_ms >= 0 else None
            descriptions[state.transactional_id] = TransactionDescription(
                state.transactional_id,
                broker_id,
                state.producer_id,
                state.producer_epoch,
                state.transaction_state,
                state.transaction_timeout_ms,
                start_ms,
                None if start_ms is None else max(0, now_ms - start_ms),
                tuple(
                    sorted(TopicPartition(topic.topic, index) for topic in state.topics for index in topic.partitions)
                ),
            )
        return descriptions

    return await ask_all(
        wire,
        transactional_ids,
        lambda names: find_coordinators(wire, names, KeyType.TRANSACTION),
        ask,
        batch=_IDS_PER_REQUEST,
        known=coordinators,
    )


def transaction_failure(transactional_id: str, why: Unknown) -> AdminError:
    """Return the failure of a transactional id that cannot be described."""
    if why.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        return NotFound(f"transactional id {transactional_id!r} does not exist", hint=LIST_HINT)
    return as_error(why, f"transactional id {transactional_id}")


async def describe_producers(
    wire: WireCluster, partitions: Iterable[TopicPartition], *, broker_id: int | None = None
) -> dict[TopicPartition, tuple[PartitionProducer, ...] | Unknown]:
    """Return who has written to each partition, as its leader knows, or else as a broker's own replica knows."""

    async def homes(names: list[TopicPartition]) -> Mapping[TopicPartition, int | Unknown]:
        return await leaders_of(wire, names) if broker_id is None else dict.fromkeys(names, broker_id)

    async def ask(
        asked_id: int, names: list[TopicPartition]
    ) -> Mapping[TopicPartition, tuple[PartitionProducer, ...] | Unknown]:
        by_topic: dict[str, list[int]] = {}
        for topic, index in names:
            by_topic.setdefault(topic, []).append(index)
        request = DescribeProducersRequest(
            topics=[TopicRequest(name=topic, partition_indexes=indexes) for topic, indexes in by_topic.items()]
        )
        response: DescribeProducersResponse = await wire.call_broker(asked_id, request)
        return {
            TopicPartition(topic.name, partition.partition_index): Unknown.of_code(
                partition.error_code, partition.error_message
            )
            if partition.error_code != ErrorCode.NONE
            else tuple(
                PartitionProducer(
                    producer.producer_id,
                    producer.producer_epoch,
                    _known(producer.coordinator_epoch),
                    _known(producer.last_sequence),
                    _known(producer.last_timestamp),
                    _known(producer.current_txn_start_offset),
                )
                for producer in partition.active_producers
            )
            for topic in response.topics
            for partition in topic.partitions
        }

    return await ask_all(wire, partitions, homes, ask, batch=_PARTITIONS_PER_REQUEST)


def _known(number: int) -> int | None:
    return None if number < 0 else number


def _unlisted(broker_id: int, why: Unknown) -> AdminError:
    own = replace(why, message=why.message.removesuffix(f": broker {broker_id}"))
    error = as_error(own, f"broker {broker_id}")
    error.where = None
    error.message = f"the transactions of broker {broker_id} are not known: {error.message}"
    return error
