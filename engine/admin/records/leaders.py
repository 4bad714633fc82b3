"""The leaders of a topic's partitions, and a reader task for each. The caller does the reading itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import NamedTuple

from engine.admin.cluster.errors import LoginRefused, NotFound, Refused, Unknown, Unreachable
from engine.admin.cluster.waits import Observer
from engine.admin.cluster.wire import WireCluster
from engine.admin.cluster.wire_failures import refuse
from engine.admin.topics.selection import topic_not_found
from engine.common.errors import ErrorCode, error_code


class LedTopic(NamedTuple):
    """A topic's id, zero before Kafka 2.8, and its leaders by partition, some of them NO_LEADER."""

    id: bytes
    leaders: dict[int, int]


async def led_topics(wire: WireCluster, topics: Sequence[str]) -> dict[str, LedTopic]:
    """Return those of the topics that exist. A new topic may have no partitions yet.

    Raises:
        Refused, Unreachable: the cluster rejects a request, or does not answer.
    """
    response = await wire.metadata(topics)
    led: dict[str, LedTopic] = {}
    for topic in response.topics:
        if topic.name is None or topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            continue
        if not error_code(topic.error_code).is_retriable:
            refuse(topic.error_code, None, f"topic {topic.name}")
        leaders = {partition.partition_index: partition.leader_id for partition in topic.partitions}
        led[topic.name] = LedTopic(topic.topic_id, leaders)
    return led


async def topic_leaders(wire: WireCluster, topics: Sequence[str]) -> dict[str, dict[int, int]]:
    """Return each topic's leaders by partition, some of them NO_LEADER. A new topic may have no partitions yet.

    Raises:
        NotFound: there is no such topic.
        Refused, Unreachable: the cluster rejects a request, or does not answer.
    """
    led = await led_topics(wire, topics)
    if missing := [name for name in topics if name not in led]:
        raise topic_not_found(missing[:1])
    return {name: led[name].leaders for name in topics}


def check_partitions(topic: str, wanted: Iterable[int], known: Collection[int]) -> None:
    """Raise NotFound for the first partition that a topic does not have, if its partitions are known."""
    for partition in wanted:
        if known and partition not in known:
            raise partition_not_found(topic, partition, len(known))


def partition_not_found(topic: str, partition: int, count: int) -> NotFound:
    """Return the error for a partition that a topic of this many partitions does not have."""
    return NotFound(f"topic {topic!r} has no partition {partition}", hint=f"it has the partitions 0 to {count - 1}")


def refuse_lasting(unknown: Unknown, where: str) -> None:
    """Raise what a partition's failure means, unless asking for the leader again is likely to help."""
    if unknown.code is None:
        raise Refused(ErrorCode.UNKNOWN_SERVER_ERROR, unknown.message, where=where)
    if not (unknown.code.is_retriable or unknown.code.is_invalid_metadata):
        refuse(unknown.code, None, where)


class LeaderReaders:
    """A task for each broker that leads something to read. The caller looks for leaders, and starts their readers.

    Args:
        name: of the tasks.
        read: reads what one broker leads, and returns when it no longer leads a wanted partition.
        lose: forgets what an unreachable broker leads: the caller must look for leaders again.
        fail: called with every other failure, which ends that reader.
    """

    def __init__(
        self,
        name: str,
        *,
        read: Callable[[int], Awaitable[None]],
        lose: Callable[[int], None],
        fail: Callable[[Exception], Awaitable[None]],
        observe: Observer,
    ) -> None:
        self._name = name
        self._read = read
        self._lose = lose
        self._fail = fail
        self._observe = observe
        self._tasks: dict[int, asyncio.Task[None]] = {}

    def start(self, leader_ids: Iterable[int]) -> None:
        """Make sure that each of these brokers has a reader."""
        for leader_id in leader_ids:
            if leader_id not in self._tasks or self._tasks[leader_id].done():
                name = f"{self._name}: broker {leader_id}"
                self._tasks[leader_id] = asyncio.create_task(self._run(leader_id), name=name)

    async def stop(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        self._tasks.clear()

    async def _run(self, leader_id: int) -> None:
        try:
            await self._read(leader_id)
        except LoginRefused as error:
            await self._fail(error)
        except (Unreachable, NotFound) as error:
            self._observe(f"lost broker {leader_id} ({error}), looking for the leaders")
            self._lose(leader_id)
        except Exception as error:
            # The outermost frame of the task: the caller raises it where the failure matters.
            await self._fail(error)
