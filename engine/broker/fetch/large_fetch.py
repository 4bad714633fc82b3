"""Reading very many partitions for one Fetch, piece by piece, in turns with other requests.

Each piece is read and answered like a whole request; the pieces share the limits of the answer. It registers no API.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

from engine.broker.fetch.answer import build_response, throttled_response
from engine.broker.fetch.conversion import Conversion, needs_conversion
from engine.broker.fetch.reads import FetchBroker, FetchParameters, FetchReads, MakeReads
from engine.broker.fetch.session_cache import FetchContext, FetchPartition
from engine.broker.network.request import LargeAnswer
from engine.kafka.protocol.apis.fetch import FetchResponse, NodeEndpoint
from engine.runtime.turns import Breather

FETCHED_AT_ONCE_MAX: Final = 10_000
"""Partitions in one piece; they take about ten milliseconds."""

PIECE_SIZE: Final = 500

WAIT_MS_MAX: Final = 500
"""Maximum wait, the default of consumers and followers. Until then the broker cannot notice that the peer is gone."""

LOOK_MS: Final = 50
"""How often it checks for news: wake-ups from each of 200,000 partitions would cost more than checking them."""


async def fetch_in_turns(
    broker: FetchBroker,
    parameters: FetchParameters,
    opened: FetchContext,
    make_reads: MakeReads,
    throttle_ms: Callable[[Iterable[FetchReads]], int],
) -> LargeAnswer:
    """Read the requested partitions, wait a little if that is not enough, and answer.

    The caller has taken the session. ``throttle_ms`` says how long the reader has to wait, given what was read.
    """
    is_refused = False
    try:
        reads = _FetchInTurns(broker, parameters, opened, make_reads)
        await reads.read()
        await reads.wait()
        wait_ms = throttle_ms(reads.pieces)
        if wait_ms > 0:
            is_refused = not opened.is_incremental
            return LargeAnswer(throttled_response(opened, wait_ms))
        return LargeAnswer(await reads.answer())
    finally:
        if opened.session is not None and is_refused:
            opened.session.release()
        elif opened.session is not None:
            broker.fetch_sessions.give_back(opened.session, broker.clock.monotonic_ms())


class _FetchInTurns:
    """One request under way."""

    def __init__(
        self, broker: FetchBroker, parameters: FetchParameters, opened: FetchContext, make_reads: MakeReads
    ) -> None:
        self._make_reads = make_reads
        self._broker = broker
        self._parameters = parameters
        self._opened = opened
        self._breather = Breather()
        self.pieces: list[FetchReads] = []

    async def read(self) -> None:
        """Read every partition in order, within the limits of the answer."""
        opened, limits = self._opened, self._parameters
        for start in range(0, len(opened.partitions), PIECE_SIZE):
            partitions = opened.partitions[start : start + PIECE_SIZE]
            resolve_topic_ids(self._broker, limits.api_version, partitions)
            part = FetchContext(partitions, opened.session, is_incremental=opened.is_incremental)
            piece = self._make_reads(self._broker, limits, part)
            piece.read_all()
            self.pieces.append(piece)
            limits = _left(limits, piece)
            await self._breather.give_way()

    async def wait(self) -> None:
        """Wait until there is enough to read or other news, or until the reader's time is up."""
        clock = self._broker.clock
        until_ms = clock.monotonic_ms() + min(self._parameters.max_wait_ms, WAIT_MS_MAX)
        while not self._is_satisfied() and (left_ms := until_ms - clock.monotonic_ms()) > 0:
            await asyncio.sleep(min(LOOK_MS, left_ms) / 1000)
            await self._read_what_grew()

    async def _read_what_grew(self) -> None:
        limits = self._parameters
        for piece in self.pieces:
            # It may get less than before if an earlier one has more.
            piece.parameters = limits
            piece.join_awoken()
            if piece.size_bytes or piece.may_have_grown():
                piece.read_again()
            limits = _left(limits, piece)
            await self._breather.give_way()

    def _is_satisfied(self) -> bool:
        session = self._opened.session
        named = self._opened.partitions if session is None else session.partitions
        if not self.pieces or sum(piece.unread for piece in self.pieces) == len(named):
            return True
        found_bytes = sum(piece.found_bytes for piece in self.pieces)
        return found_bytes >= self._parameters.min_bytes or any(piece.tells_at_once for piece in self.pieces)

    async def answer(self) -> FetchResponse:
        """Merge the answers of the pieces."""
        whole = FetchResponse(session_id=self._opened.session_id, responses=[])
        nodes: dict[int, NodeEndpoint] = {}
        for piece in self.pieces:
            if needs_conversion(self._parameters.api_version, piece):
                part = await converted_response(self._broker, self._opened, piece)
            else:
                part = build_response(self._broker, self._opened, piece)
            topics = part.responses
            last = whole.responses[-1] if whole.responses else None
            if last is not None and topics and (last.topic, last.topic_id) == (topics[0].topic, topics[0].topic_id):
                last.partitions += topics.pop(0).partitions
            whole.responses += topics
            nodes.update((node.node_id, node) for node in part.node_endpoints)
            await self._breather.give_way()
        whole.node_endpoints = list(nodes.values())
        return whole


def _left(limits: FetchParameters, piece: FetchReads) -> FetchParameters:
    """Return what is left of the limits after a piece."""
    if not piece.size_bytes:
        return limits
    return replace(limits, max_bytes=max(0, limits.max_bytes - piece.size_bytes), may_exceed=False)


def resolve_topic_ids(broker: FetchBroker, api_version: int, partitions: Iterable[FetchPartition]) -> None:
    """Look up the names of topic ids; a topic unknown at the session's start may be known by now."""
    if api_version < 13:
        return
    cache = broker.metadata_cache
    for partition in partitions:
        if partition.topic is None:
            partition.topic = cache.topic_name(partition.key.topic_id)


async def converted_response(broker: FetchBroker, opened: FetchContext, reads: FetchReads) -> FetchResponse:
    """Answer an old reader; a thread converts its records."""
    offsets = [wanted.fetch_offset for wanted in reads.partitions]
    topics = broker.replica_manager.environment.topics
    work = Conversion(reads.parameters.api_version, offsets, reads.reads)
    converted = await broker.offloader.run(work.run)
    for wanted, count in zip(reads.partitions, work.counts, strict=True):
        if wanted.topic is not None and count:
            topics.of(wanted.topic).fetch_conversions += count
    topics.fetched_conversions.add(work.took_s, sum(len(records or b"") for _, records in converted))
    return build_response(broker, opened, reads, converted)
