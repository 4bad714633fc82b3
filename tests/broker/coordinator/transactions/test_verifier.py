"""Whether a partition belongs to a transaction: asked here, or of another broker, and what the producer is told."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from event_loop import staged
from transaction_world import HERE, STATE_PARTITION, THERE, TransactionWorld
from virtual_time import run_virtual

from engine.broker.coordinator.transactions import verifier
from engine.broker.coordinator.transactions.state_machine import ProducerIdAndEpoch
from engine.broker.coordinator.transactions.verifier import TransactionVerifier, Verified
from engine.broker.log.producer_sequences import Verification
from engine.common.errors import ErrorCode, KafkaError
from engine.common.model import TopicPartition
from engine.kafka.client.errors import ConnectionLost, NoCommonVersion
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)

E = ErrorCode
A, B = TopicPartition("a", 0), TopicPartition("a", 1)
PRODUCER = ProducerIdAndEpoch(1000, 0)


class Coordinator:
    """Another broker's: it answers with ``error`` for each partition."""

    def __init__(self) -> None:
        self.requests: list[tuple[int, AddPartitionsToTxnRequest]] = []
        self.error = E.NONE
        self.top_error = E.NONE
        self.left_out: set[TopicPartition] = set()
        self.also_named: list[str] = []
        self.failure: Exception | None = None
        self.version = 5
        self.is_held = asyncio.Event()
        self.is_held.set()

    async def connect(self) -> None:
        if isinstance(self.failure, NoCommonVersion):
            raise self.failure

    async def version_for(self, key: ApiKey) -> int:
        assert key is ApiKey.ADD_PARTITIONS_TO_TXN
        return self.version

    async def send(self, request: AddPartitionsToTxnRequest, api_version: int) -> AddPartitionsToTxnResponse:
        self.requests.append((api_version, request))
        await self.is_held.wait()
        if self.failure is not None:
            raise self.failure
        if self.top_error is not E.NONE:
            return AddPartitionsToTxnResponse(error_code=self.top_error)
        return AddPartitionsToTxnResponse(
            results_by_transaction=[AddPartitionsToTxnResult(transactional_id=name) for name in self.also_named]
            + [
                AddPartitionsToTxnResult(
                    transactional_id=asked.transactional_id,
                    topic_results=[
                        AddPartitionsToTxnTopicResult(
                            name=topic.name,
                            results_by_partition=[
                                AddPartitionsToTxnPartitionResult(partition_index=i, partition_error_code=self.error)
                                for i in topic.partitions
                                if TopicPartition(topic.name, i) not in self.left_out
                            ],
                        )
                        for topic in asked.topics
                    ],
                )
                for asked in request.transactions
            ]
        )


class World(TransactionWorld):
    """The transaction's coordinator is ``leader``; the data partitions are led here, unless a test says otherwise."""

    def __init__(self, leader: int = THERE) -> None:
        super().__init__()
        self.metadata.leaders[STATE_PARTITION] = leader
        self.other = Coordinator()
        self.open: set[TopicPartition] = set()
        self.is_known = True
        """Whether the other broker's address is."""
        self.refusals: dict[TopicPartition, ErrorCode] = {}
        replica_manager = SimpleNamespace(
            partitions={}, partition=lambda topic, index: self._partition(TopicPartition(topic, index))
        )
        connections = SimpleNamespace(
            to=lambda broker_id: self.other if self.is_known and broker_id == THERE else None,
            close=self._close,
        )
        self.verifier = TransactionVerifier(
            HERE,
            self.coordinator,
            cast("Any", replica_manager),
            cast("Any", self.metadata),
            cast("Any", connections),
            self.clock,
        )

    def _partition(self, partition: TopicPartition) -> Any:
        if partition in self.refusals:
            raise KafkaError(self.refusals[partition])

        def begin(*of: int) -> Verification | None:
            assert of[:3] == (PRODUCER.producer_id, 7, of[2])
            return None if partition in self.open else Verification(7, of[2], of[3])

        log = SimpleNamespace(producers=SimpleNamespace(begin_verification=begin))
        return SimpleNamespace(led_log=lambda: log)

    def begin(
        self, *partitions: TopicPartition, name: str = "t", epoch: int = 0, knows_abortable: bool = True
    ) -> Verified:
        return self.verifier.begin(
            name,
            ProducerIdAndEpoch(PRODUCER.producer_id, epoch),
            dict.fromkeys(partitions or (A,), 7),
            knows_abortable=knows_abortable,
        )

    async def settled(self, **of: Any) -> dict[TopicPartition, ErrorCode]:
        verified = self.begin(**of)
        async with asyncio.timeout(100):
            await self.verifier.settle(verified)
        return verified.errors


def play(test: Callable[[World], Awaitable[None]], leader: int = THERE) -> None:
    async def run() -> None:
        world = World(leader)
        if leader == HERE:
            await world.lead()
        await test(world)
        await world.verifier.stop()
        await world.stop()

    run_virtual(run)


@staged(play, HERE)
async def test_this_brokers_own_coordinator_answers_at_once(world: World, /) -> None:
    world.add("a", partitions=2)
    await world.begun([A])
    verified = world.begin(A, B)
    assert world.verifier.settle_here(verified)
    assert verified.errors == {B: E.TRANSACTION_ABORTABLE}
    assert set(verified.verifications) == {A, B} and world.other.requests == []


@staged(play)
async def test_another_broker_is_asked_in_the_version_for_brokers(world: World, /) -> None:
    verified = world.begin(A, B)
    assert not world.verifier.settle_here(verified)
    await world.verifier.settle(verified)
    assert verified.errors == {}
    ((version, request),) = world.other.requests
    (asked,) = request.transactions
    assert (version, asked.verify_only, asked.transactional_id) == (5, True, "t")
    assert (asked.producer_id, asked.producer_epoch) == PRODUCER
    assert [(topic.name, topic.partitions) for topic in asked.topics] == [("a", [0, 1])]


@staged(play)
async def test_nobody_is_asked_about_what_is_open_already_or_cannot_be_appended(world: World, /) -> None:
    world.open = {A}
    world.refusals = {B: E.NOT_LEADER_OR_FOLLOWER}
    verified = world.begin(A, B)
    assert world.verifier.settle_here(verified)
    assert verified.errors == {B: E.NOT_LEADER_OR_FOLLOWER} and verified.verifications == {}


@pytest.mark.parametrize(
    ("error", "expected", "told_old"),
    [
        (E.PRODUCER_FENCED, E.INVALID_PRODUCER_EPOCH, E.INVALID_PRODUCER_EPOCH),
        (E.TRANSACTION_ABORTABLE, E.TRANSACTION_ABORTABLE, E.INVALID_TXN_STATE),
        (E.INVALID_PRODUCER_ID_MAPPING, E.INVALID_PRODUCER_ID_MAPPING, E.INVALID_PRODUCER_ID_MAPPING),
        (E.CONCURRENT_TRANSACTIONS, E.CONCURRENT_TRANSACTIONS, E.CONCURRENT_TRANSACTIONS),
        (E.NOT_COORDINATOR, E.NOT_COORDINATOR, E.NOT_COORDINATOR),
    ],
)
@staged(play)
async def test_the_errors_are_those_that_producers_know(world: World, /, error: E, expected: E, told_old: E) -> None:
    world.other.error = error
    assert await world.settled() == {A: expected}
    assert await world.settled(knows_abortable=False) == {A: told_old}


@pytest.mark.parametrize(
    ("error", "expected"),
    [(E.CLUSTER_AUTHORIZATION_FAILED, E.INVALID_TXN_STATE), (E.UNKNOWN_SERVER_ERROR, E.UNKNOWN_SERVER_ERROR)],
)
@staged(play)
async def test_a_coordinator_that_refuses_the_question(world: World, /, error: E, expected: E) -> None:
    world.other.top_error = error
    assert await world.settled() == {A: expected}


@staged(play)
async def test_a_partition_that_the_answer_leaves_out_is_not_approved(world: World, /) -> None:
    world.other.left_out = {B}
    verified = world.begin(A, B)
    await world.verifier.settle(verified)
    assert verified.errors == {B: E.NETWORK_EXCEPTION}


@staged(play)
async def test_a_coordinator_that_does_not_answer(world: World, /) -> None:
    world.other.failure = ConnectionLost("the broker was killed", address="there:1")
    assert await world.settled() == {A: E.NETWORK_EXCEPTION}
    world.other.failure = RuntimeError("a fault of the program")
    assert await world.settled() == {A: E.NETWORK_EXCEPTION}
    world.other.failure = None
    assert await world.settled() == {}


@staged(play)
async def test_whoever_comes_while_a_question_fails_is_answered_too(world: World, /) -> None:
    world.other.is_held.clear()
    world.other.failure = RuntimeError("a fault of the program")
    first = asyncio.create_task(world.settled())
    await asyncio.sleep(0.1)
    second = asyncio.create_task(world.settled(name="u"))
    await asyncio.sleep(0.1)
    world.other.is_held.set()
    assert (await first, await second) == ({A: E.NETWORK_EXCEPTION}, {A: E.NETWORK_EXCEPTION})


@pytest.mark.parametrize(("named", "errors"), [("nobody's", {}), ("t", {A: E.NETWORK_EXCEPTION})])
@staged(play)
async def test_an_answer_may_name_ids_that_nobody_asked_about_or_one_twice(
    world: World, /, named: str, errors: dict[TopicPartition, E], caplog: pytest.LogCaptureFixture
) -> None:
    world.other.also_named = [named]
    assert await world.settled() == errors
    assert not caplog.records


@staged(play)
async def test_a_coordinator_that_is_just_new_enough_is_asked(world: World, /) -> None:
    world.other.version = 4
    world.other.error = E.CONCURRENT_TRANSACTIONS
    assert await world.settled() == {A: E.CONCURRENT_TRANSACTIONS}
    ((version, _),) = world.other.requests
    assert version == 4


@staged(play)
async def test_a_coordinator_whose_address_is_unknown_is_not_available(world: World, /) -> None:
    world.is_known = False
    assert await world.settled() == {A: E.COORDINATOR_NOT_AVAILABLE}
    world.is_known = True
    assert await world.settled() == {}


@pytest.mark.parametrize("version", [3, None])
@staged(play)
async def test_a_coordinator_that_is_too_old_to_be_asked_is_not_asked(world: World, /, version: int | None) -> None:
    if version is None:
        world.other.failure = NoCommonVersion("too old", address="there:1")
    else:
        world.other.version = version
    assert await world.settled() == {} and world.other.requests == []


@staged(play)
async def test_without_a_coordinator_producers_ask_again(world: World, /) -> None:
    world.metadata.alive.discard(THERE)
    assert await world.settled() == {A: E.COORDINATOR_NOT_AVAILABLE}
    del world.metadata.leaders[STATE_PARTITION]
    assert await world.settled() == {A: E.COORDINATOR_NOT_AVAILABLE}


@staged(play)
async def test_questions_that_come_meanwhile_travel_together(world: World, /) -> None:
    world.other.is_held.clear()
    asking = [asyncio.create_task(world.settled(name=f"t{number}")) for number in range(20)]
    await asyncio.sleep(1)
    more = [asyncio.create_task(world.settled(name=f"u{number}")) for number in range(5)]
    await asyncio.sleep(1)
    assert len(world.other.requests) == 1
    world.other.is_held.set()
    assert await asyncio.gather(*asking, *more) == [{}] * 25
    assert [len(request.transactions) for _, request in world.other.requests] in ([20, 5], [1, 24])


@staged(play)
async def test_of_two_questions_about_an_id_that_wait_the_later_producers_counts(world: World, /) -> None:
    world.other.is_held.clear()
    busy = asyncio.create_task(world.settled(name="other"))
    await asyncio.sleep(1)
    old = asyncio.create_task(world.settled(epoch=0))
    await asyncio.sleep(1)
    repeated = asyncio.create_task(world.settled(epoch=0))
    await asyncio.sleep(1)
    assert await old == {A: E.NETWORK_EXCEPTION}, "its client has sent it again"
    new = asyncio.create_task(world.settled(epoch=1))
    await asyncio.sleep(1)
    assert await repeated == {A: E.INVALID_PRODUCER_EPOCH}
    assert await world.settled(epoch=0) == {A: E.INVALID_PRODUCER_EPOCH}
    world.other.is_held.set()
    assert [await busy, await new] == [{}, {}]


@staged(play)
async def test_nobody_waits_for_a_broker_that_stops(world: World, /) -> None:
    world.other.is_held.clear()
    asking = [asyncio.create_task(world.settled(name="t"))]
    await asyncio.sleep(1)
    asking.append(asyncio.create_task(world.settled(name="u")))
    await asyncio.sleep(1)
    await world.verifier.stop()
    assert await asyncio.gather(*asking) == [{A: E.NETWORK_EXCEPTION}] * 2


@staged(play)
async def test_failures_and_the_time_of_questions_are_counted(world: World, /, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter((1.0, 1.5))
    monkeypatch.setattr(verifier, "time", SimpleNamespace(monotonic=lambda: next(ticks)))
    world.other.error = E.TRANSACTION_ABORTABLE
    world.other.left_out = {B}
    verified = world.begin(A, B)
    await world.verifier.settle(verified)
    assert world.verifier.failures_total == 2
    assert (world.verifier.times_ms.count, world.verifier.times_ms.total) == (1, 500)
