"""A producer that sends random requests about its transactions, some of which must be refused.

It says exactly what goes over the wire, which no client library lets a test do: it commits twice, sends the opposite
outcome afterwards, adds partitions that it never writes to and writes to some that it never added, goes on as a former
producer, and asks again where an answer is lost.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from transaction_promises import Outcome, Written
from wire_client import ConnectionClosed, WireClient, describe_topic

from engine.common.errors import ErrorCode
from engine.kafka.protocol.apis.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from engine.kafka.protocol.apis.end_txn import EndTxnRequest
from engine.kafka.protocol.apis.find_coordinator import FindCoordinatorRequest
from engine.kafka.protocol.apis.init_producer_id import InitProducerIdRequest
from engine.kafka.protocol.apis.metadata import MetadataRequest
from engine.kafka.protocol.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from engine.kafka.protocol.declaration import Request
from engine.kafka.protocol.records.encode import encode_batch
from engine.kafka.protocol.records.record import Record

Who = tuple[int, int]
"""Producer id and epoch."""

NOBODY: Who = (-1, -1)
_STEP_S = 15.0
_ANSWER_S = 4.0
_AGAIN = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""Errors after which a producer looks for the leader or coordinator, and asks again."""

_STEPS = {
    "init": 1,
    "go on": 1,
    "add": 8,
    "produce": 12,
    "produce twice": 2,
    "commit": 5,
    "abort": 2,
    "end again": 2,
    "end otherwise": 2,
    "stray": 2,
    "former": 3,
}


class Walker:
    """One transactional id. ``note`` receives each transaction before the first request of it."""

    def __init__(
        self, bootstrap: str, topic: str, partitions: int, name: str, *, seed: str, note: Callable[[Written], None]
    ) -> None:
        self._addresses = bootstrap.split(",")
        self._topic, self._partitions, self._name = topic, range(partitions), name
        self._rng = random.Random(seed)
        self._note = note
        self._clients: dict[str, WireClient] = {}
        self._where: dict[int | None, str] = {}
        """The leader of each partition, and of None the coordinator, as far as known."""
        self._who = NOBODY
        self._formers: list[Who] = []
        self._sequences: dict[int, int] = {}
        self._open: Written | None = None
        self._added: set[int] = set()
        self._last_end: bool | None = None
        """Whether the last transaction of this producer was committed, if it was ended."""
        self._may_commit = True
        """Whether all records of the transaction are acknowledged."""
        self._must_begin_anew = True
        """An answer was lost: the request may still come, and must then meet a later epoch. Kafka's clients know no
        such danger, because their connections keep the order, but a frozen broker can read an old one late.
        """
        self._number = 0
        self.answers: Counter[str] = Counter()
        """How often each step was answered with each error."""

    def walk(self, is_over: Callable[[], bool]) -> None:
        """Take random steps, and leave no transaction open."""
        while not is_over():
            self.step()
            time.sleep(self._rng.uniform(0.0, 0.02))
        if self._open is not None:
            self._end("abort", is_commit=False)
        self._drop()

    def step(self) -> None:
        """Take a step."""
        if self._who == NOBODY or (self._must_begin_anew and self._open is None):
            self._begin_anew("init")
            return
        (step,) = self._rng.choices(list(_STEPS), list(_STEPS.values()))
        match step:
            case "init" | "go on":
                self._begin_anew(step)
            case "add":
                self._add()
            case "produce" | "produce twice":
                self._produce(step)
            case "commit" | "abort" if self._open is not None and self._added:
                self._end(step, is_commit=step == "commit" and self._may_commit)
            case "end again" | "end otherwise" if self._open is None and self._last_end is not None:
                is_commit = self._last_end is (step == "end again")
                if self._ask(step, None, *self._ending(self._who, is_commit=is_commit), _end_error) is None:
                    self._must_begin_anew = True
            case "stray":
                self._write_astray()
            case "former" if self._formers:
                self._act_as_former()

    # -- steps

    def _begin_anew(self, step: str) -> None:
        """Get the next epoch. What is open is aborted."""
        of = self._who if step == "go on" else NOBODY
        request = InitProducerIdRequest(
            transactional_id=self._name, transaction_timeout_ms=6_000, producer_id=of[0], producer_epoch=of[1]
        )
        self._close(Outcome.ABORTED)
        answer = self._ask(step, None, request, 4, lambda answer: answer.error_code)
        if answer is None or answer.error_code:
            self._must_begin_anew = True
            return
        if self._who != NOBODY:
            self._formers = [*self._formers, self._who][-3:]
        self._who = (answer.producer_id, answer.producer_epoch)
        self._sequences, self._last_end, self._must_begin_anew = {}, None, False

    def _add(self) -> None:
        wanted = self._rng.sample(self._partitions, self._rng.randint(1, len(self._partitions)))
        if self._open is None:
            self._number += 1
            self._open = Written(f"{self._name}/{self._number}", outcome=Outcome.ABORTED)
            self._note(self._open)
        answer = self._ask("add", None, *self._adding(self._who, wanted), _add_error)
        if answer is None or _add_error(answer):
            self._give_up()
        else:
            self._added |= set(wanted)

    def _produce(self, step: str) -> None:
        if self._open is None or not self._added or not self._may_commit:
            return
        partition = self._rng.choice(sorted(self._added))
        values = self._open.values.setdefault(partition, [])
        values.append(f"{self._open.name}/{partition}/{len(values)}")
        request = self._producing(self._who, partition, values[-1])
        for _ in range(1 + (step == "produce twice")):
            answer = self._ask(step, partition, *request, _produce_error)
            if answer is None or _produce_error(answer):
                self._give_up()
                return
        self._sequences[partition] = self._sequences.get(partition, 0) + 1

    def _end(self, step: str, *, is_commit: bool) -> None:
        assert self._open is not None
        if is_commit:
            self._open.outcome = Outcome.UNKNOWN
        answer = self._ask(step, None, *self._ending(self._who, is_commit=is_commit), _end_error)
        if answer is None or answer.error_code:
            self._must_begin_anew = True
            self._close(self._open.outcome)
        else:
            self._close(Outcome.COMMITTED if is_commit else Outcome.ABORTED)
            self._last_end = is_commit

    def _write_astray(self) -> None:
        """Write to a partition that the transaction does not have, as a late batch of the last one does."""
        if self._must_begin_anew or not (others := [p for p in self._partitions if p not in self._added]):
            return
        partition = self._rng.choice(others)
        answer = self._ask(
            "stray", partition, *self._producing(self._who, partition, self._refused(partition)), _produce_error, 0
        )
        if answer is None or _produce_error(answer) in (*_AGAIN, ErrorCode.NONE):
            # It may come later, with a sequence that the next batch would have.
            self._give_up()

    def _act_as_former(self) -> None:
        former, partition = self._rng.choice(self._formers), self._rng.choice(self._partitions)
        match self._rng.choice(("produce", "add", "commit", "abort")):
            case "produce":
                value = self._refused(partition)
                self._ask("former", partition, *self._producing(former, partition, value), _produce_error, 0)
            case "add":
                self._ask("former", None, *self._adding(former, [partition]), _add_error, 0)
            case end:
                self._ask("former", None, *self._ending(former, is_commit=end == "commit"), _end_error, 0)

    def _refused(self, partition: int) -> str:
        """Return a value that nobody may read."""
        self._number += 1
        name = f"{self._name}/refused-{self._number}"
        self._note(Written(name, {partition: [f"{name}/0"]}, Outcome.ABORTED))
        return f"{name}/0"

    def _give_up(self) -> None:
        """Only an abort, or a new epoch, can follow."""
        self._must_begin_anew, self._may_commit = True, False

    def _close(self, outcome: Outcome) -> None:
        if self._open is not None:
            self._open.outcome = outcome
        self._open, self._added, self._may_commit = None, set(), True

    # -- requests

    def _adding(self, who: Who, partitions: list[int]) -> tuple[Request, int]:
        topics = [AddPartitionsToTxnTopic(name=self._topic, partitions=partitions)]
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._name,
            v3_and_below_producer_id=who[0],
            v3_and_below_producer_epoch=who[1],
            v3_and_below_topics=topics,
        )
        return request, 3

    def _ending(self, who: Who, *, is_commit: bool) -> tuple[Request, int]:
        request = EndTxnRequest(
            transactional_id=self._name, producer_id=who[0], producer_epoch=who[1], committed=is_commit
        )
        return request, 3

    def _producing(self, who: Who, partition: int, value: str) -> tuple[Request, int]:
        batch = encode_batch(
            [Record(timestamp_ms=time.time_ns() // 1_000_000, value=value.encode())],
            producer_id=who[0],
            producer_epoch=who[1],
            base_sequence=self._sequences.get(partition, 0),
            transactional=True,
        )
        data = [
            TopicProduceData(name=self._topic, partition_data=[PartitionProduceData(index=partition, records=batch)])
        ]
        return ProduceRequest(transactional_id=self._name, acks=-1, timeout_ms=3_000, topic_data=data), 11

    # -- the wire

    def _ask(
        self,
        step: str,
        partition: int | None,
        request: Request,
        version: int,
        error_of: Callable[[Any], int],
        timeout_s: float = _STEP_S,
    ) -> Any:
        """Ask a partition's leader, or the coordinator, until the answer is final; None if there is none."""
        until = time.monotonic() + timeout_s
        is_lost = False
        while True:
            answer = self._ask_once(partition, request, version)
            is_lost |= answer is None
            error = "no answer" if answer is None else ErrorCode(error_of(answer)).name
            self.answers[f"{step}: {error}"] += 1
            is_final = answer is not None and ErrorCode(error_of(answer)) not in _AGAIN
            if is_final or time.monotonic() >= until:
                self._must_begin_anew |= is_lost and step != "former"
                return answer if is_final or not timeout_s else None
            self._where.clear()
            time.sleep(0.02)

    def _ask_once(self, partition: int | None, request: Request, version: int) -> Any:
        try:
            return self._client(self._find(partition)).ask(request, version)
        except (ConnectionClosed, OSError, LookupError):
            self._drop()
            return None

    def _find(self, partition: int | None) -> str:
        if partition not in self._where:
            client = self._client(self._rng.choice(self._addresses))
            if partition is None:
                asked = FindCoordinatorRequest(key=self._name, key_type=1)
                found = client.ask(asked, 2)
                if found.error_code:
                    raise LookupError("the coordinator is not known")
                self._where[None] = f"{found.host}:{found.port}"
            else:
                brokers = {b.node_id: f"{b.host}:{b.port}" for b in client.ask(MetadataRequest(topics=[]), 1).brokers}
                for each in describe_topic(client, self._topic).partitions:
                    if each.leader_id in brokers:
                        self._where[each.partition_index] = brokers[each.leader_id]
        return self._where[partition]

    def _client(self, address: str) -> WireClient:
        if address not in self._clients:
            self._clients[address] = WireClient(address, timeout_s=_ANSWER_S)
        return self._clients[address]

    def _drop(self) -> None:
        for client in self._clients.values():
            with suppress(OSError):
                client.socket.close()
        self._clients.clear()
        self._where.clear()


def _add_error(answer: Any) -> int:
    errors = [p.partition_error_code for t in answer.results_by_topic_v3_and_below for p in t.results_by_partition]
    return next(filter(None, errors), 0)


def _produce_error(answer: Any) -> int:
    error = int(answer.responses[0].partition_responses[0].error_code)
    return 0 if error == ErrorCode.DUPLICATE_SEQUENCE_NUMBER else error


def _end_error(answer: Any) -> int:
    return int(answer.error_code)
