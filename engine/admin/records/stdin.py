"""Reads a file descriptor without blocking the event loop: a terminal, a pipe or a file."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator

CHUNK_BYTES = 1024 * 1024


async def read_chunks(descriptor: int) -> AsyncIterator[bytes]:
    """Yield what can be read, at most ``CHUNK_BYTES`` at a time, until the end.

    This waits for a pipe or terminal; a regular file is always ready, and is read at once.
    """
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    try:
        loop.add_reader(descriptor, ready.set)
    except PermissionError:
        while chunk := os.read(descriptor, CHUNK_BYTES):
            yield chunk
            await asyncio.sleep(0)
        return
    try:
        while True:
            await ready.wait()
            ready.clear()
            chunk = os.read(descriptor, CHUNK_BYTES)
            if not chunk:
                return
            yield chunk
    finally:
        loop.remove_reader(descriptor)
