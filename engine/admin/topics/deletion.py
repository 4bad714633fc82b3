"""Waits until a deletion is done: all replicas are gone and the name is free. Brokers forget a topic long before.

Brokers forget a topic when its deletion begins, and from then on answer that it does not exist. The controller
removes the topic and its mark when every replica is gone. A replica on a dead broker delays that until the broker is
back; until then no topic of that name can be created.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence, Set
from contextlib import suppress

from engine.admin.cluster.asking import FAILURES
from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import AdminError, NotFound, Refused, StillUnderWay
from engine.admin.cluster.remedies import Operation, Phrase
from engine.admin.cluster.wire import RETRY_PAUSE_S, WireCluster
from engine.common.errors import CoordinationError, ErrorCode
from engine.common.topic_names import invalid_topic_name
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.create_topics import CreatableTopic, CreateTopicsRequest

Replicas = Mapping[str, Set[int]]
"""The brokers that hold replicas of each topic."""

_DELAYED = Phrase("dead brokers with its replicas delay it; see who is alive: ", Operation.LIST_BROKERS)
_LOOK_SHARE = 0.1
"""The share of a command's time for asking why brokers do not know a topic."""
_VALIDATES_SINCE = 1
"""From this version on CreateTopics can be asked to check only (Kafka 0.10.2)."""


async def wait_until_gone(
    names: Sequence[str],
    replicas: Replicas,
    marked_of: Callable[[Sequence[str]], Awaitable[Collection[str]]],
    live_brokers: Callable[[], Awaitable[Set[int]]],
    limit_s: float,
) -> dict[str, tuple[int, ...]]:
    """Return the topics that are still marked after ``limit_s``, each with the dead brokers that hold it up.

    It does not wait longer for topics that dead brokers hold up.
    """
    deadline = time.monotonic() + limit_s
    left = await marked_of(names)
    while True:
        live = await live_brokers() if left else frozenset()
        held_up = {name: tuple(sorted(replicas.get(name, frozenset()) - live)) for name in left}
        if all(held_up.values()) or time.monotonic() >= deadline:
            return held_up
        await asyncio.sleep(RETRY_PAUSE_S)
        left = await marked_of(list(left))


async def marked_topics(cluster: Cluster, names: Iterable[str], *, limit_s: float) -> Collection[str]:
    """Return which of these are marked for deletion, as ZooKeeper says, or else as brokers show it."""
    names = [name for name in names if invalid_topic_name(name) is None]
    if not names:
        return []
    if cluster.target.may_ask_zookeeper:
        from engine.kafka.zk.kafka_client import KafkaZkClient

        kafka = KafkaZkClient(await cluster.zookeeper())
        return set(await kafka.admin.get_topic_deletions()).intersection(names)
    try:
        return await _marked_by_wire(await cluster.wire(), names, limit_s=limit_s)
    except AdminError as error:
        cluster.observe(f"it is not known whether a deletion is done: {error}")
        return []


async def being_deleted(cluster: Cluster, error: AdminError) -> NotFound | None:
    """Return a better error for topics or partitions that do not exist, if some of the topics are being deleted."""
    limit_s = cluster.timeout_s * _LOOK_SHARE
    try:
        async with asyncio.timeout(limit_s):
            marked = await marked_topics(cluster, error.topics, limit_s=limit_s)
    except (TimeoutError, CoordinationError, *FAILURES):
        return None
    if not marked:
        return None
    known: Collection[str] = ()
    with suppress(TimeoutError, CoordinationError, *FAILURES):
        async with asyncio.timeout(limit_s):
            known = await known_topics(await cluster.wire(), sorted(marked)) if cluster.target.may_ask_brokers else ()
    named = ", ".join(sorted(marked))
    if set(marked) == set(error.topics) and not known:
        return NotFound(f"brokers do not know {named} any more: marked for deletion", hint=_DELAYED)
    # The others may be misspelt, or a partition that was asked for.
    return NotFound(Phrase(error.message, f"; marked for deletion: {named}"), where=error.where, hint=error.hint)


async def _marked_by_wire(wire: WireCluster, names: Sequence[str], *, limit_s: float) -> list[str]:
    """Return which topics that brokers do not know any more still block their names.

    Raises:
        Unreachable: no controller answers.
    """
    client = await wire.client_of(await wire.reachable_controller_id())
    if not names or await wire.version(client, ApiKey.CREATE_TOPICS) < _VALIDATES_SINCE:
        return []
    tried = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
    request = CreateTopicsRequest(topics=tried, timeout_ms=int(limit_s * 1000), validate_only=True)
    answer = await wire.ask_controller(request, lambda r: [t.error_code for t in r.topics], limit_s=limit_s)
    blocked = [t.name for t in answer.topics if t.error_code == ErrorCode.TOPIC_ALREADY_EXISTS]
    known = await known_topics(wire, blocked)
    return [name for name in blocked if name not in known]


async def known_topics(wire: WireCluster, names: Sequence[str]) -> dict[str, frozenset[int]]:
    """Return the topics that the controller knows, each with the brokers that hold its replicas."""
    if not names:
        return {}
    answer = await wire.metadata(names, broker_id=await wire.reachable_controller_id())
    return {
        topic.name: frozenset(broker for partition in topic.partitions for broker in partition.replica_nodes)
        for topic in answer.topics
        if topic.name is not None and topic.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    }


def still_being_deleted(name: str) -> StillUnderWay:
    """Return the error for a topic that brokers do not know any more, while its name is not free yet."""
    return StillUnderWay(f"topic {name!r} is marked for deletion already", hint=_DELAYED)


def refused_while_marked(name: str, dead: Sequence[int] = ()) -> Refused:
    """Return the error for a new topic whose name an old one still blocks."""
    delay = (
        f"it waits for broker {', '.join(map(str, dead))}, " if dead else "dead brokers with its replicas delay it, "
    )
    hint = Phrase(delay, "and the name is free when it is done; see who is alive: ", Operation.LIST_BROKERS)
    message = f"Topic '{name}' is marked for deletion"
    return Refused(ErrorCode.TOPIC_ALREADY_EXISTS, message, where=f"topic {name}", hint=hint)
