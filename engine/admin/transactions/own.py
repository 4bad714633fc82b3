"""The transactions of a command that sends records: one transactional id, one transaction after the other (KIP-98)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Any

from engine.admin.cluster.asking import answer_limit
from engine.admin.cluster.errors import (
    AdminError,
    AnswerLost,
    LoginRefused,
    NotFound,
    OutcomeUnknown,
    Refused,
    Unknown,
    Unreachable,
)
from engine.admin.cluster.remedies import GIVE_TIME, Do, Operation, Phrase
from engine.admin.cluster.wire import RETRY_PAUSE_S, WireCluster
from engine.admin.groups.group_reading import find_coordinators
from engine.common.errors import ErrorCode, error_code
from engine.common.model import TopicPartition
from engine.kafka.protocol.apis.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from engine.kafka.protocol.apis.end_txn import EndTxnRequest
from engine.kafka.protocol.apis.find_coordinator import KeyType
from engine.kafka.protocol.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from engine.kafka.protocol.declaration import Request

TRANSACTION_TIMEOUT_MS = 60_000
"""Kafka's default of a producer's ``transaction.timeout.ms``."""

_ADD_OF_CLIENTS = 3
"""The last version of AddPartitionsToTxn for clients; later ones are for brokers (KIP-890)."""
_PASSING = frozenset({ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
_FENCED = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
_ABORT_LIMIT_S = 3.0


class OwnTransaction:
    """One transactional id. ``open`` it, then ``add`` partitions before records go there, and ``end`` it; and again.

    Every request may be repeated: a coordinator answers a second AddPartitionsToTxn or EndTxn as the first.
    """

    def __init__(
        self,
        wire: WireCluster,
        transactional_id: str,
        *,
        timeout_ms: int = TRANSACTION_TIMEOUT_MS,
        patience_s: float = 30.0,
    ) -> None:
        """``patience_s`` is how long one step may take, through moves of the coordinator."""
        self._wire = wire
        self._transactional_id = transactional_id
        self._timeout_ms = timeout_ms
        self._patience_s = patience_s
        self._home: int | None = None
        self._added: set[TopicPartition] = set()
        self.producer_id = -1
        self.producer_epoch = -1

    @property
    def transactional_id(self) -> str:
        return self._transactional_id

    def has(self, partition: TopicPartition) -> bool:
        """Whether records may go to a partition as part of the transaction."""
        return partition in self._added

    async def open(self) -> None:
        """Get a producer id, which fences the earlier producer with the transactional id and aborts what it left open.

        Raises:
            Refused, Unreachable: the cluster rejects a request, or does not answer.
        """
        request = InitProducerIdRequest(
            transactional_id=self._transactional_id, transaction_timeout_ms=self._timeout_ms
        )
        response: InitProducerIdResponse = await self._ask(request, lambda answer: [answer.error_code])
        self.producer_id, self.producer_epoch = response.producer_id, response.producer_epoch

    async def add(self, partitions: Iterable[TopicPartition]) -> None:
        """Make partitions part of the transaction, which begins it if they are the first."""
        new = sorted(set(partitions) - self._added)
        if not new:
            return
        topics: dict[str, list[int]] = {}
        for topic, index in new:
            topics.setdefault(topic, []).append(index)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.producer_epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=name, partitions=numbers) for name, numbers in topics.items()
            ],
        )
        await self._ask(request, _partition_codes, version_max=_ADD_OF_CLIENTS)
        self._added |= set(new)

    async def end(self, *, commit: bool) -> None:
        """Commit or abort it; the coordinator then writes the markers. Without partitions there is nothing to end.

        Raises:
            OutcomeUnknown: no coordinator confirmed it in time.
        """
        if not self._added:
            return
        request = EndTxnRequest(
            transactional_id=self._transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            committed=commit,
        )
        try:
            await self._ask(request, lambda answer: [answer.error_code])
        except AnswerLost as error:
            word = "committed" if commit else "aborted"
            message = f"no broker has confirmed that the transaction is {word}"
            look = Phrase("see its state: ", Do(Operation.DESCRIBE_TRANSACTION, self._transactional_id))
            raise OutcomeUnknown(message, where=error.where, hint=look) from error
        self._added.clear()

    async def try_to_abort(self) -> bool:
        """Abort it if that is possible within seconds; return whether nothing is open any more.

        For a caller that ends because of another failure, which counts more. The cluster aborts it by itself after its
        time-out.
        """
        try:
            async with asyncio.timeout(_ABORT_LIMIT_S):
                await self.end(commit=False)
        except (AdminError, TimeoutError):
            return False
        return True

    async def _ask(
        self, request: Request, codes_of: Callable[[Any], list[int]], *, version_max: int | None = None
    ) -> Any:
        """Ask the coordinator, wherever it moves, until the answer is final."""
        deadline = time.monotonic() + self._patience_s
        while True:
            why: Exception
            try:
                response = await self._ask_once(request, version_max)
                code = next((known for number in codes_of(response) if (known := error_code(number))), ErrorCode.NONE)
                if code is ErrorCode.NONE:
                    return response
                why = self._refusal(code)
                if not (code.is_retriable or code in _PASSING):
                    raise why
            except LoginRefused:
                raise
            except (Unreachable, NotFound) as error:
                why = error
            if time.monotonic() >= deadline:
                raise why
            self._home = None
            await asyncio.sleep(RETRY_PAUSE_S)

    async def _ask_once(self, request: Request, version_max: int | None) -> Any:
        if self._home is None:
            home = (await find_coordinators(self._wire, [self._transactional_id], KeyType.TRANSACTION))[
                self._transactional_id
            ]
            if isinstance(home, Unknown):
                if home.code is not None and not home.code.is_retriable:
                    raise self._refusal(home.code)
                raise Unreachable(home.message, where=f"transactional id {self._transactional_id}", hint=GIVE_TIME)
            self._home = home
        # Half of the patience: a frozen coordinator is not waited for to the end, and another one may take over.
        async with answer_limit(self._wire, self._home, self._patience_s / 2):
            return await self._wire.call_broker(self._home, request, version_max=version_max)

    def _refusal(self, code: ErrorCode) -> Refused:
        where = f"transactional id {self._transactional_id}"
        if code in _FENCED:
            hint = "another producer has taken it, or the transaction took longer than its time-out"
            return Refused(code, "this producer is fenced", where=where, hint=hint)
        return Refused(code, where=where)


def _partition_codes(response: AddPartitionsToTxnResponse) -> list[int]:
    """Return the codes, the one with a reason first: beside it, others are only OPERATION_NOT_ATTEMPTED."""
    codes = [
        partition.partition_error_code
        for topic in response.results_by_topic_v3_and_below
        for partition in topic.results_by_partition
    ]
    return sorted(codes, key=lambda code: code == ErrorCode.OPERATION_NOT_ATTEMPTED)
