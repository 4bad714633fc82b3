"""Blocks of producer ids: no id twice, the next block in time, and what happens without one."""

from __future__ import annotations

import pytest
from event_loop import in_event_loop
from hypothesis import given
from hypothesis import strategies as st

from engine.broker.controller import producer_ids
from engine.broker.controller.instructions import ProducerIdBlock
from engine.broker.controller.producer_ids import ProducerIdBlocks, ProducerIdManager, block_from_controller
from engine.common.errors import ErrorCode, KafkaError, OperationError
from engine.kafka.protocol.apis.allocate_producer_ids import AllocateProducerIdsResponse


@given(sizes=st.lists(st.integers(1, 30), min_size=1, max_size=6))
def test_every_id_is_given_once_and_in_order(sizes: list[int]) -> None:
    blocks = ProducerIdBlocks()
    first, given_out = 0, []
    for size in sizes:
        assert blocks.wants_block
        blocks.put(ProducerIdBlock(0, first, size))
        first += size + 7  # others have the ids in between
        claimed = blocks.claim()
        while claimed is not None:
            given_out.append(claimed)
            if blocks.wants_block:
                break
            claimed = blocks.claim()
    assert given_out == sorted(set(given_out))


def test_the_next_block_is_wanted_when_nine_tenths_are_used() -> None:
    blocks = ProducerIdBlocks()
    blocks.put(ProducerIdBlock(0, 1000, 10))
    claimed = [blocks.claim() for _ in range(8)]
    assert claimed == list(range(1000, 1008))
    assert not blocks.wants_block
    blocks.claim()
    assert blocks.wants_block
    blocks.put(ProducerIdBlock(0, 3000, 10))
    assert [blocks.claim(), blocks.claim()] == [1009, 3000]


@pytest.mark.parametrize(
    ("given_out", "block"),
    [
        (0, ProducerIdBlock(0, -1, 10)),
        (0, ProducerIdBlock(0, 100, 0)),
        (0, ProducerIdBlock(0, 100, -1)),
        (1, ProducerIdBlock(0, 100, 0)),
        (1, ProducerIdBlock(0, 0, 10)),
        (1, ProducerIdBlock(0, 9, 10)),
        (10, ProducerIdBlock(0, 9, 10)),
    ],
)
def test_senseless_blocks_are_refused(given_out: int, block: ProducerIdBlock) -> None:
    """If two producers had the same id, records of one would count as duplicates of the other's."""
    blocks = ProducerIdBlocks()
    if given_out:
        blocks.put(ProducerIdBlock(0, 0, 10))
        assert [blocks.claim() for _ in range(given_out)] == list(range(given_out))
    with pytest.raises(ValueError, match="not a block of new producer ids"):
        blocks.put(block)
    assert blocks.claim() == (given_out if 0 < given_out < 10 else None)


def test_the_smallest_block_may_follow_right_behind_the_last_one() -> None:
    blocks = ProducerIdBlocks()
    claimed = []
    for first in (0, 1, 2):
        blocks.put(ProducerIdBlock(0, first, 1))
        claimed += [blocks.claim(), blocks.claim()]
    assert claimed == [0, None, 1, None, 2, None]


class Source:
    """Gives blocks of two, after failing as often as told."""

    def __init__(self, failures: int = 0) -> None:
        self.asked = 0
        self.failures = failures

    async def next_block(self) -> ProducerIdBlock:
        self.asked += 1
        if self.asked <= self.failures:
            raise OperationError("not now")
        return ProducerIdBlock(7, self.asked * 10, 2)


@in_event_loop
async def test_the_first_request_waits_for_the_first_block() -> None:
    source = Source(failures=2)
    manager = ProducerIdManager(source.next_block)
    assert await manager.next_producer_id() == 30
    assert [await manager.next_producer_id() for _ in range(3)] == [31, 40, 41]
    await manager.close()


@in_event_loop
async def test_while_there_is_none_clients_are_told_to_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_ids, "WAIT_MS", 20)
    source = Source(failures=10**9)
    manager = ProducerIdManager(source.next_block)
    with pytest.raises(KafkaError) as refusal:
        await manager.next_producer_id()
    assert refusal.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    await manager.close()


class Channel:
    """A controller that gives the answers it is told to."""

    def __init__(self, response: AllocateProducerIdsResponse) -> None:
        self.response = response
        self.requests: list[object] = []

    async def ask(self, key: object, build: object) -> tuple[AllocateProducerIdsResponse, int]:
        self.requests.append(build(0))  # type: ignore[operator]
        return self.response, 0


@in_event_loop
async def test_blocks_come_from_the_controller() -> None:
    channel = Channel(AllocateProducerIdsResponse(producer_id_start=5000, producer_id_len=1000))
    assert await block_from_controller(channel, 3, 42) == ProducerIdBlock(3, 5000, 1000)  # type: ignore[arg-type]
    assert (channel.requests[0].broker_id, channel.requests[0].broker_epoch) == (3, 42)  # type: ignore[attr-defined]
    channel.response = AllocateProducerIdsResponse(error_code=77)
    with pytest.raises(KafkaError, match="STALE_BROKER_EPOCH"):
        await block_from_controller(channel, 3, 42)  # type: ignore[arg-type]
