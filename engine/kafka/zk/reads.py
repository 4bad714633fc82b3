"""Reads of single znodes that every subject needs: missing znodes, and decoded answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from engine.common.errors import CoordinationError
from engine.kafka.zk.client import ReadOutcome, ZkClient
from engine.kafka.zk.errors import NoNode, ZnodeFormatError, ZooKeeperError
from engine.kafka.zk.operations import ZnodeStat
from engine.kafka.zk.watches import WatchEvent

T = TypeVar("T")

Decode = Callable[[bytes, ZnodeStat], T]
"""Decodes a znode's data and stat; raises ZnodeFormatError if it cannot."""


async def read_znode(client: ZkClient, path: str, decode: Decode[T]) -> T | None:
    """Return a znode's decoded content, or None if there is no such znode; arms the path's data callbacks either way.

    Raises:
        ZnodeFormatError: it cannot be understood.
    """
    try:
        data, stat = await client.get(path)
    except NoNode:
        return None
    return decode(data, stat)


async def children_or_empty(client: ZkClient, path: str) -> list[str]:
    """Return the names of a znode's children; a znode that does not exist has none."""
    try:
        return await client.children(path)
    except NoNode:
        return []


def decoded(outcome: ReadOutcome, decode: Decode[T]) -> T | CoordinationError | None:
    """Return one of many znodes, decoded; None if there is none, an error if it cannot be read or decoded."""
    if isinstance(outcome, NoNode):
        return None
    if isinstance(outcome, ZooKeeperError):
        return outcome
    try:
        return decode(*outcome)
    except ZnodeFormatError as error:
        return error


def or_raise(read: T | CoordinationError) -> T:
    """Return the value; raise it if it is an error."""
    if isinstance(read, CoordinationError):
        raise read
    return read


async def wait_until_gone(client: ZkClient, path: str, timeout_s: float) -> bool:
    """Wait until a znode is gone; return False if it still exists after ``timeout_s``."""
    changed = asyncio.Event()

    def on_change(_: WatchEvent) -> None:
        changed.set()

    client.watch_data(path, on_change)
    try:
        async with asyncio.timeout(timeout_s):
            while await client.exists(path) is not None:
                await changed.wait()
                changed.clear()
    except TimeoutError:
        return False
    finally:
        client.unwatch(path, on_change)
    return True
