"""Requests to a group coordinator on virtual time, as tests send them: join, sync, and making a group stable."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from coordinator_world import CoordinatorWorld
from virtual_time import run_virtual

from engine.broker.coordinator.groups.values import (
    Joining,
    JoinResult,
    Syncing,
    SyncResult,
)

T = TypeVar("T")


def with_world(test: Callable[[CoordinatorWorld], Awaitable[None]], **settings: str) -> None:
    """Run a test on virtual time with a coordinator that leads nothing yet."""

    async def run() -> None:
        world = CoordinatorWorld(**settings)
        try:
            await test(world)
        finally:
            await world.stop()

    run_virtual(run)


def joining(member_id: str = "", **of: object) -> Joining:
    values: dict[str, object] = {
        "client_id": "c",
        "client_host": "/h",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 30_000,
        "protocol_type": "consumer",
        "protocols": (("range", b"\0\0\0\0\0\1\0\4read\xff\xff\xff\xff"),),
    }
    return Joining(member_id, **(values | of))  # type: ignore[arg-type]


def join(world: CoordinatorWorld, group: str, member_id: str = "", **of: object) -> list[JoinResult]:
    answers: list[JoinResult] = []
    world.coordinator.join(group, joining(member_id, **of), answers.append)
    return answers


def sync(world: CoordinatorWorld, group: str, member_id: str, generation: int, **parts: bytes) -> list[SyncResult]:
    answers: list[SyncResult] = []
    world.coordinator.sync(group, Syncing(member_id, generation, parts), answers.append)
    return answers


async def stable(world: CoordinatorWorld, group: str) -> tuple[str, int]:
    """Bring a group of one member to a generation; return the member's id and the generation."""
    (joined,) = await answered(join(world, group))
    await answered(sync(world, group, joined.member_id, joined.generation_id, **{joined.member_id: b"part"}))
    return joined.member_id, joined.generation_id


async def answered(answers: list[T]) -> list[T]:
    async with asyncio.timeout(60):
        while not answers:
            await asyncio.sleep(0.01)
    return answers
