"""Recorded znode trees, loaded into a real ZooKeeper."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest

from engine.kafka.zk.client import ZkClient
from engine.kafka.zk.errors import ZooKeeperError
from engine.kafka.zk.operations import Create, SetData
from engine.local.zookeeper import EmbeddedZooKeeper

TREES = Path(__file__).parents[3] / "fixtures" / "trees"


async def load_tree(connect: str, name: str) -> None:
    """Make the znodes of ``fixtures/trees/<name>.jsonl``, with the data versions they had.

    Ephemeral nodes become persistent, because their brokers are not here to own them.
    """
    lines = (TREES / f"{name}.jsonl").read_text("utf-8").splitlines()
    znodes = [json.loads(line) for line in lines]
    async with await ZkClient.connect(connect, session_timeout_ms=10_000) as zk:
        for znode in znodes:
            if znode["path"] == "/":
                continue
            data = None if znode["data"] is None else znode["data"].encode()
            writes = [SetData(znode["path"], data) for _ in range(znode["version"])]
            (outcome,) = await zk.multi_many([[Create(znode["path"], data), *writes]])
            assert not isinstance(outcome, ZooKeeperError), outcome


@pytest.fixture(scope="session")
def recorded(zookeeper: EmbeddedZooKeeper) -> Callable[[str], str]:
    """Return a function from a recorded tree's name to the connect string of its copy, which is read-only."""
    loaded: dict[str, str] = {}

    def connect_string(name: str) -> str:
        if name not in loaded:
            loaded[name] = f"{zookeeper.connect_string}/recorded-{uuid4().hex[:8]}"
            asyncio.run(load_tree(loaded[name], name))
        return loaded[name]

    return connect_string
