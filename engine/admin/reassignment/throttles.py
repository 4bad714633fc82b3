"""Throttles of reassignments put on a live cluster, and taken off again by whoever comes along.

The order is what makes them removable whatever happens in between: topics are marked before brokers get a rate, and
brokers lose it before the marks go.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import AdminError, Unreachable
from engine.admin.configs.access import alter_entity, config_reader
from engine.admin.configs.values import Entity, EntityType, known_configs, settings_of
from engine.admin.reassignment.access import delete_broker_settings, reassignment_reader
from engine.admin.reassignment.moves import Flows, brokers_of
from engine.admin.reassignment.plan_file import PartitionMove
from engine.admin.reassignment.running import read_topics
from engine.admin.reassignment.throttle_settings import (
    RATES,
    Throttle,
    ThrottleSettings,
    is_marked,
    marked_rates,
    replica_lists,
    throttled_settings,
    unthrottled_settings,
)
from engine.admin.topics.access import topic_reader
from engine.common.model import TopicPartition
from engine.common.snapshot import TopicSnapshot

HEARD_S_MAX = 5.0
"""So long brokers may take to hear of their throttle before the moves begin without them."""

_PAUSE_S = 0.05


@dataclass(frozen=True, slots=True)
class ClearedThrottles:
    """What lost klamm's throttle, and in a sentence each what could not or must not be touched."""

    topics: tuple[str, ...] = ()
    brokers: tuple[int, ...] = ()
    left: tuple[str, ...] = ()


async def plan_throttle(
    cluster: Cluster, throttle: Throttle, flows: Flows, plan: Sequence[PartitionMove], live: Set[int]
) -> ThrottleSettings:
    """Return the settings that put all moves under a throttle.

    Raises:
        BadRequest: a topic is throttled by somebody else in a way that cannot be added to.
    """
    lists = replica_lists(flows) if throttle.replication_rate is not None else {}
    if throttle.log_dirs_rate is not None:
        for move in plan:
            if move.wanted_dirs:
                lists.setdefault(move.name.topic, {})
    topics = await read_topics(cluster, lists)
    settings = {name: throttled_settings(name, known_configs(topics[name]), lists[name], throttle) for name in topics}
    brokers = await _broker_settings(cluster, throttle, flows, plan, live)
    ours = marked_rates(known_configs(topic) for topic in topics.values())
    warnings = []
    for broker, wanted in brokers.items():
        present = await _broker_rates(cluster, broker)
        for key, value in present.items():
            if key in wanted and value != wanted[key] and value not in ours[key]:
                warnings.append(
                    f"broker {broker} has {key}={value}, set by somebody else: it is replaced, not restored"
                )
    return ThrottleSettings(settings, brokers, tuple(warnings))


async def set_throttle(cluster: Cluster, settings: ThrottleSettings) -> None:
    """Write a throttle: first the marked topics, then the brokers' rates."""
    for topic, additions in settings.topics.items():
        await alter_entity(cluster, Entity(EntityType.TOPIC, topic), additions, ())
    for broker, additions in settings.brokers.items():
        await alter_entity(cluster, Entity(EntityType.BROKER, str(broker)), additions, ())
    await _wait_until_told(cluster, settings.brokers)
    cluster.observe(f"throttled {len(settings.topics)} topics and {len(settings.brokers)} brokers")


async def clear_throttles(
    cluster: Cluster,
    moving: Set[TopicPartition],
    topics_of_plan: Sequence[str] | None,
    own_rates: Mapping[str, str] | None = None,
) -> ClearedThrottles:
    """Take klamm's throttles off everything that does not move any more; what others set stays.

    ``moving`` are the partitions that are still under way. While any throttled topic has one of them, brokers keep
    their rates. ``topics_of_plan`` are looked at first: where none of them is marked, no other topic is read. None
    looks at all topics. ``own_rates`` are those that the caller has set itself: they need no mark. Where nobody tells
    the settings of topics nothing is taken off, and that is said.
    """
    try:
        marked = await _marked_topics(cluster, topics_of_plan)
    except Unreachable as error:
        return ClearedThrottles(left=(f"whether a throttle is left cannot be told now: {error.message}",))
    still = {name.topic for name in moving}
    done = [topic for topic in marked if topic.name not in still]
    brokers: list[int] = []
    left: list[str] = []
    if len(done) == len(marked) and (done or topics_of_plan is None):
        ours = {key: set(rates) for key, rates in marked_rates(known_configs(topic) for topic in marked).items()}
        for key, rate in (own_rates or {}).items():
            ours[key].add(rate)
        brokers, left = await _clear_brokers(cluster, ours)
    if any("cannot" in one for one in left):
        # The marks have to stay: they tell whoever comes later which rates are klamm's.
        return ClearedThrottles((), tuple(brokers), tuple(left))
    for topic in done:
        additions, deletions = unthrottled_settings(known_configs(topic))
        await alter_entity(cluster, Entity(EntityType.TOPIC, topic.name), additions, deletions)
    return ClearedThrottles(tuple(topic.name for topic in done), tuple(brokers), tuple(left))


async def _broker_settings(
    cluster: Cluster, throttle: Throttle, flows: Flows, plan: Sequence[PartitionMove], live: Set[int]
) -> dict[int, dict[str, str]]:
    found: dict[int, dict[str, str]] = {}
    if throttle.replication_rate is not None:
        rates = Throttle(throttle.replication_rate).broker_settings
        found = {broker: dict(rates) for broker in brokers_of(flows) & live}
    if throttle.log_dirs_rate is not None:
        rates = Throttle(None, throttle.log_dirs_rate).broker_settings
        for broker in {broker for move in plan for broker in move.wanted_dirs} & live:
            found.setdefault(broker, {}).update(rates)
    return dict(sorted(found.items()))


async def _marked_topics(cluster: Cluster, topics_of_plan: Sequence[str] | None) -> list[TopicSnapshot]:
    """Return the topics that are marked; none where none of the plan's is.

    Raises:
        Unreachable: nobody tells.
    """
    if topics_of_plan is not None:
        of_plan = await read_topics(cluster, topics_of_plan)
        if not any(is_marked(known_configs(topic)) for topic in of_plan.values()):
            return []
    reader = await topic_reader(cluster, on_unreadable=cluster.complain, on_unknown_settings=cluster.observe)
    topics = await reader.topics([entry.topic for entry in await reader.names()])
    return [topic for topic in topics if is_marked(known_configs(topic))]


async def _wait_until_told(cluster: Cluster, wanted: Mapping[int, Mapping[str, str]]) -> None:
    """Wait until brokers tell the rates that they were given, and so keep to them.

    A broker hears of its own settings by a notification in ZooKeeper, mostly within a tenth of a second. Before that
    it copies at full speed, and tells of no rate: whoever took the throttle off would leave the rate behind.
    """
    deadline = time.monotonic() + HEARD_S_MAX
    for broker, rates in wanted.items():
        while not rates.items() <= (await _broker_rates(cluster, broker)).items():
            if time.monotonic() >= deadline:
                cluster.complain(
                    f"broker {broker} does not tell of the throttle it was given: until it hears of its settings it "
                    "copies at full speed, and the rate cannot be taken off by the wire"
                )
                return
            await asyncio.sleep(_PAUSE_S)


async def _broker_rates(cluster: Cluster, broker: int) -> dict[str, str]:
    reader = await config_reader(cluster)
    found = settings_of(await reader.describe(Entity(EntityType.BROKER, str(broker)), include_all=False))
    return {key: value for key, value in found.items() if key in RATES}


async def _clear_brokers(cluster: Cluster, ours: Mapping[str, Set[str]]) -> tuple[list[int], list[str]]:
    live = await (await topic_reader(cluster)).live_brokers()
    cleared, left = [], []
    configured = await (await reassignment_reader(cluster)).configured_brokers()
    for broker in sorted(live | configured):
        present = await _broker_rates(cluster, broker)
        deletions = [key for key, value in present.items() if value in ours[key]]
        left += [
            f"broker {broker} keeps {key}={value}: no mark says that klamm set it"
            for key, value in present.items()
            if key not in deletions
        ]
        if not deletions:
            continue
        try:
            await delete_broker_settings(cluster, broker, deletions, is_alive=broker in live)
            cleared.append(broker)
        except AdminError as error:
            left.append(f"broker {broker}: {', '.join(deletions)} cannot be taken off now: {error.message}")
    return cleared, left
