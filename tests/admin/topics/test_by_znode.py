"""Topics read from znodes, some of which are damaged or may not be read."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from event_loop import staged

from engine.admin.topics.by_znode import ZkTopicReader
from engine.common.snapshot import TopicSnapshot
from engine.kafka.zk.client import ZkClient
from engine.kafka.zk.errors import NoAuth, ZnodeFormatError
from engine.kafka.zk.operations import Acl

WRITE_ONLY = (Acl(2, "world", "anyone"),)
TOPIC = b'{"version":3,"partitions":{"0":[1,2]},"adding_replicas":{},"removing_replicas":{}}'
STATE = b'{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":4,"isr":[1,2]}'
CONFIG = b'{"version":1,"config":{"retention.ms":"5"}}'
NAMES = ["a", "b"]


def on_two_topics(scene: Callable[[ZkClient], Awaitable[None]], *, zk_chroot: str) -> None:
    """Play a scene where the topics ``a`` and ``b`` have one partition each, led by 1, and one setting."""

    async def playing() -> None:
        async with await ZkClient.connect(zk_chroot, session_timeout_ms=6_000) as zk:
            for name in NAMES:
                await zk.ensure_path(f"/config/topics/{name}")
                await zk.set(f"/config/topics/{name}", CONFIG)
                await zk.ensure_path(f"/brokers/topics/{name}/partitions/0/state")
                await zk.set(f"/brokers/topics/{name}", TOPIC)
                await zk.set(f"/brokers/topics/{name}/partitions/0/state", STATE)
            await scene(zk)

    asyncio.run(playing())


def told(topics: list[TopicSnapshot]) -> list[tuple[str, int, dict[str, str]]]:
    return [(topic.name, topic.partitions[0].leader, dict(topic.configs or {})) for topic in topics]


@staged(on_two_topics)
async def test_topics_that_are_whole(zk: ZkClient, /) -> None:
    wanted = [(name, 1, {"retention.ms": "5"}) for name in NAMES]
    assert told(await ZkTopicReader(zk).topics(["b", "a", "b", "none"])) == wanted
    await zk.delete("/config/topics/a")
    await zk.delete("/brokers/topics/a/partitions/0/state")
    assert told(await ZkTopicReader(zk).topics(NAMES)) == [("a", -1, {}), wanted[1]]


@pytest.mark.parametrize("path", ["/brokers/topics/a", "/brokers/topics/a/partitions/0/state", "/config/topics/a"])
@staged(on_two_topics)
async def test_what_nobody_understands_of_one_is_told_and_left_out_or_raised(zk: ZkClient, /, path: str) -> None:
    await zk.set(path, b"{")
    complaints: list[str] = []
    topics = await ZkTopicReader(zk, on_unreadable=complaints.append).topics(NAMES)
    whole = ("b", 1, {"retention.ms": "5"})
    assert told(topics) == ([("a", 1, {}), whole] if path.startswith("/config") else [whole])
    assert topics[0].configs is None or topics[0].name == "b"
    assert len(complaints) == 1
    assert path in complaints[0]
    with pytest.raises(ZnodeFormatError, match=path):
        await ZkTopicReader(zk).topics(NAMES)


@pytest.mark.parametrize("path", ["/brokers/topics/a", "/brokers/topics/a/partitions/0/state", "/config/topics/a"])
@staged(on_two_topics)
async def test_one_that_may_not_be_read_is_an_error_for_everybody(zk: ZkClient, /, path: str) -> None:
    await zk.set_acl(path, WRITE_ONLY)
    complaints: list[str] = []
    with pytest.raises(NoAuth, match=path):
        await ZkTopicReader(zk, on_unreadable=complaints.append).topics(NAMES)
    assert complaints == []
