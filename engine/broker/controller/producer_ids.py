"""A broker's producer ids: it claims them in blocks from the controller (KIP-730) or, before IBP 3.0, from ZooKeeper.

``ProducerIdBlocks`` is pure; ``ProducerIdManager`` fetches the next block when nine tenths of the current one are used.
No two brokers ever give out the same id, nor does one broker twice. A restart loses the unused ids of its block.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from engine.common.errors import ErrorCode, KafkaError, KlammError, error_code
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.allocate_producer_ids import AllocateProducerIdsRequest
from engine.kafka.zk.cluster import ProducerIdBlock
from engine.runtime.supervisor import Supervisor

if TYPE_CHECKING:
    from engine.broker.replication.controller_channel import ControllerChannel

logger = logging.getLogger(__name__)

PREFETCH_FRACTION = 0.9
"""The used fraction of a block at which the next one is fetched."""

WAIT_MS = 1_000
"""How long a request waits for a block before the broker tells its sender to retry."""

RETRY_BACKOFF_MS = 50
"""The wait after a block could not be claimed (Kafka: RPCProducerIdManager)."""


class ProducerIdBlocks:
    """The current block and the next one."""

    def __init__(self) -> None:
        self._next_id = 0
        self._end = 0
        self._prefetch_at = 0
        self._next_block: ProducerIdBlock | None = None

    def claim(self) -> int | None:
        """Return an id that was never given out, or None if no block has one left."""
        if self._next_id >= self._end and self._next_block is not None:
            block, self._next_block = self._next_block, None
            self._next_id = block.first_producer_id
            self._end = block.first_producer_id + block.size
            self._prefetch_at = block.first_producer_id + int(block.size * PREFETCH_FRACTION)
        if self._next_id >= self._end:
            return None
        claimed = self._next_id
        self._next_id += 1
        return claimed

    @property
    def wants_block(self) -> bool:
        return self._next_block is None and self._next_id >= self._prefetch_at

    def put(self, block: ProducerIdBlock) -> None:
        """Keep a block for when the current one is used up.

        Raises:
            ValueError: its ids make no sense, or are below ids that were given out.
        """
        if block.first_producer_id < 0 or block.size <= 0 or block.first_producer_id < self._end:
            raise ValueError(f"not a block of new producer ids: {block}, the last one ended before {self._end}")
        self._next_block = block


async def block_from_controller(channel: ControllerChannel, broker_id: int, broker_epoch: int) -> ProducerIdBlock:
    """Ask the controller once, by AllocateProducerIds.

    Raises:
        KafkaError: the controller refused.
        KlammError: it could not be asked.
    """
    request = AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=broker_epoch)
    response, _ = await channel.ask(ApiKey.ALLOCATE_PRODUCER_IDS, lambda _: request)
    if response.error_code != ErrorCode.NONE:
        raise KafkaError(error_code(response.error_code), "the controller gave no block of producer ids")
    return ProducerIdBlock(broker_id, response.producer_id_start, response.producer_id_len)


class ProducerIdManager:
    """Gives out producer ids, and fetches blocks in time."""

    def __init__(self, next_block: Callable[[], Awaitable[ProducerIdBlock]]) -> None:
        """``next_block`` claims a block, and raises KlammError if none is available now."""
        self._next_block = next_block
        self._blocks = ProducerIdBlocks()
        self._supervisor = Supervisor("producer-ids")
        self._fetch: asyncio.Task[None] | None = None

    async def next_producer_id(self) -> int:
        """Return a new producer id; waits a while for the first block.

        Raises:
            KafkaError: COORDINATOR_LOAD_IN_PROGRESS, which clients take as "ask again soon".
        """
        claimed = self._blocks.claim()
        if claimed is None:
            self._fetch_if_wanted()
            if self._fetch is not None:
                await asyncio.wait((self._fetch,), timeout=WAIT_MS / 1000)
            claimed = self._blocks.claim()
        self._fetch_if_wanted()
        if claimed is None:
            raise KafkaError(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "Producer ID block is full. Waiting for next block"
            )
        return claimed

    async def close(self) -> None:
        """End a fetch that is under way."""
        await self._supervisor.stop()

    def _fetch_if_wanted(self) -> None:
        if self._blocks.wants_block and (self._fetch is None or self._fetch.done()):
            self._fetch = self._supervisor.start(self._fetch_block(), "next-block")

    async def _fetch_block(self) -> None:
        """Fetch until there is a block; meanwhile requests get the answer to retry."""
        while True:
            try:
                self._blocks.put(await self._next_block())
            except (KlammError, ValueError) as error:
                logger.warning("Could not claim a block of producer ids, trying again reason=%s", error)
                await asyncio.sleep(RETRY_BACKOFF_MS / 1000)
            else:
                return
