"""Writes znodes as a program before 0.9 would: kazoo, in a session of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from kazoo.client import KazooClient

Write = Callable[[Mapping[str, bytes], bool], None]
"""Writes znodes with their parents. New ones are ephemeral if the caller says so. Empty data removes a znode. A name
that ends in ``_`` gets ZooKeeper's next number."""


@contextmanager
def znode_writer(zookeeper: str) -> Iterator[Write]:
    """Yield the writer. It creates a missing chroot, and its ephemeral znodes go at the end."""
    server, slash, chroot = zookeeper.partition("/")
    client = KazooClient(server, timeout=10)
    client.start()

    def write(znodes: Mapping[str, bytes], is_ephemeral: bool) -> None:
        for path, data in znodes.items():
            whole = f"{slash}{chroot}{path}"
            if not data:
                client.delete(whole)
            elif path.endswith("_"):
                client.create(whole, data, ephemeral=is_ephemeral, sequence=True)
            elif client.exists(whole):
                client.set(whole, data)
            else:
                client.create(whole, data, ephemeral=is_ephemeral, makepath=True)

    try:
        yield write
    finally:
        client.stop()
        client.close()
