"""Sets throttles of reassignments on a live cluster, and removes them again, from any process.

The order makes them removable after a crash at any point: klamm marks topics before brokers get a rate, and removes
the rates of brokers before the marks.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field

from engine.admin.cluster.asking import FAILURES
from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import NotFound, Unreachable
from engine.admin.configs.access import alter_entity, config_reader
from engine.admin.configs.values import Entity, EntityType, known_configs, settings_of
from engine.admin.reassignment.access import (
    delete_broker_settings,
    read_topics,
    reassignment_changer,
    reassignment_reader,
)
from engine.admin.reassignment.lock import plan_in_the_way
from engine.admin.reassignment.log_dirs import read_log_dirs
from engine.admin.reassignment.moves import Flows, brokers_of
from engine.admin.reassignment.reassignment_file import PartitionMove
from engine.admin.reassignment.throttle_settings import (
    LOG_DIRS_RATE,
    RATES,
    REPLICA_LISTS,
    Throttle,
    ThrottleSettings,
    is_marked,
    marked_rates,
    merged_lists,
    released_settings,
    replica_lists,
    throttled_settings,
    unthrottled_settings,
)
from engine.admin.topics.access import topic_reader
from engine.common.errors import CoordinationError
from engine.common.model import TopicPartition
from engine.common.quantities import counted
from engine.common.snapshot import TopicSnapshot
from engine.kafka.zk.errors import NoAuth

HEARD_S_MAX = 5.0
"""How long brokers may take to read their throttle before the moves begin without them."""

_PAUSE_S = 0.05


@dataclass(frozen=True, slots=True)
class ClearedThrottles:
    """What lost klamm's throttle, and one sentence for each thing that could not or must not be touched.

    ``rates`` are the settings that each broker lost, with their values; ``foreign`` are the throttles of others that
    nothing needs.
    """

    topics: tuple[str, ...] = ()
    brokers: tuple[int, ...] = ()
    left: tuple[str, ...] = ()
    rates: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    foreign: Mapping[Entity, Mapping[str, str]] = field(default_factory=dict)


async def plan_throttle(
    cluster: Cluster,
    throttle: Throttle,
    flows: Flows,
    plan: Sequence[PartitionMove],
    live: Set[int],
    *,
    keeps_all: bool = False,
) -> ThrottleSettings:
    """Return the settings that throttle all moves.

    Args: keeps_all: where another client throttles all replicas of a topic, that stays.

    Raises:
        BadRequest: another client throttles a topic in a way that cannot be extended.
    """
    lists = replica_lists(flows) if throttle.replication_rate is not None else {}
    if throttle.log_dirs_rate is not None:
        for move in plan:
            if move.wanted_dirs:
                lists.setdefault(move.name.topic, {})
    topics = await read_topics(cluster, lists)
    settings = {
        name: throttled_settings(name, known_configs(topic), lists[name], throttle, keeps_all=keeps_all)
        for name, topic in topics.items()
    }
    brokers = _broker_settings(throttle, flows, plan, live)
    replaced = [
        (broker, key, value)
        for broker, wanted in brokers.items()
        for key, value in (await _broker_rates(cluster, broker)).items()
        if key in wanted and value != wanted[key]
    ]
    # An earlier plan that was not followed to its end has left its rates, and marks on topics that this plan does not
    # move.
    ours = marked_rates(known_configs(topic) for topic in await _throttled_topics(cluster, None)) if replaced else {}
    warnings = [
        f"broker {broker} has {key}={value}, set by another client: it is replaced, not restored"
        for broker, key, value in replaced
        if value not in ours[key]
    ]
    warnings += [
        f"another client throttles all replicas of topic {name}: that stays, and no mark says that klamm set the rate"
        for name, written in settings.items()
        if not written
    ]
    return ThrottleSettings({name: written for name, written in settings.items() if written}, brokers, tuple(warnings))


async def set_throttle(cluster: Cluster, settings: ThrottleSettings) -> None:
    """Write a throttle: first the marked topics, then the brokers' rates."""
    await _mark_topics(cluster, settings)
    for broker, additions in settings.brokers.items():
        await alter_entity(cluster, Entity(EntityType.BROKER, str(broker)), additions, ())
    late = await _late_broker(cluster, settings.brokers)
    if late is not None:
        cluster.complain(
            f"broker {late} does not report the throttle that klamm has set: until it reads its settings, it copies at "
            "full speed, and the rate cannot be removed over the wire"
        )
    cluster.observe(
        f"throttled {counted(len(settings.topics), 'topic')} and {counted(len(settings.brokers), 'broker')}"
    )


async def renew_throttle(cluster: Cluster, settings: ThrottleSettings) -> None:
    """Restore what somebody has removed from a throttle that was set before its moves started.

    Another process that cleans up takes it for a leftover, because nothing moves under it yet. A rate that somebody has
    replaced stays.
    """
    await _mark_topics(cluster, settings)
    rates = await _rates_of_brokers(cluster, settings.brokers)
    for broker, wanted in settings.brokers.items():
        present = rates[broker]
        missing = {} if isinstance(present, str) else {k: v for k, v in wanted.items() if k not in present}
        if missing:
            cluster.observe(f"broker {broker} has lost its throttle; klamm sets it again")
            await alter_entity(cluster, Entity(EntityType.BROKER, str(broker)), missing, ())


async def release_partitions(cluster: Cluster, names: Set[TopicPartition]) -> None:
    """Let replicas of partitions that have arrived copy at full speed, while others of their topics still move.

    Brokers hold back every listed follower that lacks a record, so under load one in sync would fall out of its ISR.
    """
    for topic, described in (await read_topics(cluster, sorted({name.topic for name in names}))).items():
        partitions = {name.partition for name in names if name.topic == topic}
        if lists := released_settings(known_configs(described), partitions):
            await alter_entity(cluster, Entity(EntityType.TOPIC, topic), lists, ())


async def _mark_topics(cluster: Cluster, settings: ThrottleSettings) -> None:
    topics = await read_topics(cluster, settings.topics)
    for name, wanted in settings.topics.items():
        topic = topics.get(name)
        additions = wanted if topic is None else merged_lists(known_configs(topic), wanted)
        if additions:
            await alter_entity(cluster, Entity(EntityType.TOPIC, name), additions, ())


async def clear_throttles(
    cluster: Cluster,
    moving: Set[TopicPartition],
    topics_of_plan: Sequence[str] | None,
    own_rates: Mapping[str, str] | None = None,
    given: Set[int] = frozenset(),
    *,
    is_preview: bool = False,
    holds_lock: bool = False,
    names_foreign: bool = False,
) -> ClearedThrottles:
    """Remove klamm's throttles from everything that no longer moves; what others set stays.

    While a plan is carried out, all throttles stay: between two waves nothing moves, and the throttle is needed
    again. Only the caller that ``holds_lock`` knows better.

    ``moving`` are the partitions that are still under way. While any throttled topic has one of them, brokers keep
    their rates. It checks ``topics_of_plan`` first: if none of them is marked, it reads no other topic. None checks all
    topics, and so do ``own_rates``: rates that the caller has set itself, which need no mark. If the settings of topics
    cannot be read, it removes nothing and says so. A broker that does not answer keeps its rates, and the topics keep
    their marks for a later run; all other brokers lose theirs. The same holds for brokers that the caller has ``given``
    a rate and that are dead, if their settings cannot be read. A preview returns the same, and removes nothing. With
    ``names_foreign``, topics whose replicas another client throttles are left over, too, and once nothing moves,
    ``foreign`` has what others have set.
    """
    try:
        throttled = await _throttled_topics(cluster, None if own_rates else topics_of_plan)
    except Unreachable as error:
        return ClearedThrottles(left=(f"cannot tell now whether a throttle is left: {error.message}",))
    marked = [topic for topic in throttled if is_marked(known_configs(topic))]
    if marked and not holds_lock:
        holder = await plan_in_the_way(cluster, None)
        if holder is not None:
            return ClearedThrottles(left=(f"throttles stay while a plan is carried out: {holder}: {holder.what}",))
    still = {name.topic for name in moving} | await _moving_between_dirs(cluster, marked)
    done = [topic for topic in marked if topic.name not in still]
    others = [topic for topic in marked if topic.name in still]
    if others:
        return await _clear_topics(cluster, done, await _rates_left(cluster, done, others), is_preview=is_preview)
    if not done and topics_of_plan is not None and not own_rates:
        return ClearedThrottles()
    ours = {key: set(rates) for key, rates in marked_rates(known_configs(topic) for topic in marked).items()}
    for key, rate in (own_rates or {}).items():
        ours[key].add(rate)
    brokers = await _clear_brokers(cluster, ours, given, is_preview=is_preview)
    cleared = tuple(brokers.cleared)
    if brokers.is_partial:
        # The marks must stay: they show a later run which rates are klamm's.
        return ClearedThrottles((), cleared, brokers.left, brokers.cleared)
    topics = await _clear_topics(cluster, done, {}, is_preview=is_preview)
    theirs = {
        Entity(EntityType.TOPIC, topic.name): {key: value for key in REPLICA_LISTS if (value := configs.get(key))}
        for topic in throttled
        if names_foreign and topic.name not in still and not is_marked(configs := known_configs(topic))
    }
    lists = tuple(
        f"{entity} keeps {key}: no mark says that klamm set it" for entity, keys in theirs.items() for key in keys
    )
    if not names_foreign or still:
        return ClearedThrottles(topics.topics, cleared, brokers.left + topics.left + lists, brokers.cleared)
    default, rates = Entity(EntityType.BROKER, None), dict[Entity, dict[str, str]]()
    with suppress(*FAILURES, CoordinationError):
        if default_rates := await _rates_of(cluster, default):
            rates[default] = default_rates
    left = (*brokers.left, *_rates_kept(rates), *topics.left, *lists)
    return ClearedThrottles(topics.topics, cleared, left, brokers.cleared, {**brokers.foreign, **rates, **theirs})


async def delete_throttles(cluster: Cluster, throttles: Mapping[Entity, Mapping[str, str]]) -> dict[Entity, str]:
    """Delete throttle settings, klamm's or not: those of brokers first. Return why some could not be deleted."""
    live = await (await topic_reader(cluster)).live_brokers()
    failed = {}
    for entity in sorted(throttles, key=lambda entity: entity.type is not EntityType.BROKER):
        try:
            if entity.type is EntityType.BROKER and entity.name is not None:
                broker = int(entity.name)
                await delete_broker_settings(cluster, broker, [*throttles[entity]], is_alive=broker in live)
            else:
                await alter_entity(cluster, entity, {}, [*throttles[entity]])
        except FAILURES as error:
            failed[entity] = f"{entity}: its throttle cannot be removed now: {error}"
    return failed


async def _moving_between_dirs(cluster: Cluster, marked: Sequence[TopicSnapshot]) -> set[str]:
    """Return the marked topics with a move between log dirs under way; lists of reassignments do not show these.

    If no broker can be reached, no such move is known.
    """
    held = {
        TopicPartition(topic.name, partition.partition): partition.assignment.replicas
        for topic in marked
        if marked_rates([known_configs(topic)])[LOG_DIRS_RATE]
        for partition in topic.partitions
    }
    if not held:
        return set()
    try:
        log_dirs = await read_log_dirs(
            cluster, {broker for replicas in held.values() for broker in replicas}, list(held)
        )
    except Unreachable:
        return set()
    return {name.topic for (name, _), place in log_dirs.places.items() if place.future_dir is not None}


async def _rates_left(
    cluster: Cluster, done: Sequence[TopicSnapshot], others: Sequence[TopicSnapshot]
) -> dict[str, Set[str]]:
    """Return the brokers' rates, by setting, that only marks of the ``done`` topics identify as klamm's.

    Two operators who set rates at the same time each replace some of the other's. The last to end removes all.
    """
    theirs = marked_rates(known_configs(topic) for topic in others)
    only = {key: rates - theirs[key] for key, rates in marked_rates(known_configs(topic) for topic in done).items()}
    if not any(only.values()):
        return {}
    rates_by_broker = (await _rates_of_brokers(cluster, await _brokers_with_settings(cluster))).values()
    if any(isinstance(rates, str) for rates in rates_by_broker):
        return dict(only)
    return {
        key: rates & {present[key] for present in rates_by_broker if not isinstance(present, str) and key in present}
        for key, rates in only.items()
    }


async def _clear_topics(
    cluster: Cluster, topics: Sequence[TopicSnapshot], rates_left: Mapping[str, Set[str]], *, is_preview: bool
) -> ClearedThrottles:
    cleared, left = [], []
    for topic in topics:
        additions, deletions = unthrottled_settings(known_configs(topic), rates_left)
        try:
            if (additions or deletions) and not is_preview:
                await alter_entity(cluster, Entity(EntityType.TOPIC, topic.name), additions, deletions)
        except NotFound:
            continue
        except FAILURES as error:
            left.append(f"topic {topic.name}: its throttle cannot be removed now: {error}")
            continue
        if is_marked(additions):
            left.append(f"topic {topic.name} keeps the mark of a rate that brokers have while other topics move")
        else:
            cleared.append(topic.name)
    return ClearedThrottles(tuple(cleared), left=tuple(left))


def _broker_settings(
    throttle: Throttle, flows: Flows, plan: Sequence[PartitionMove], live: Set[int]
) -> dict[int, dict[str, str]]:
    settings: dict[int, dict[str, str]] = {}
    if throttle.replication_rate is not None:
        rates = Throttle(throttle.replication_rate).broker_settings
        settings = {broker: dict(rates) for broker in brokers_of(flows) & live}
    if throttle.log_dirs_rate is not None:
        rates = Throttle(None, throttle.log_dirs_rate).broker_settings
        for broker in {broker for move in plan for broker in move.wanted_dirs} & live:
            settings.setdefault(broker, {}).update(rates)
    return dict(sorted(settings.items()))


async def _throttled_topics(cluster: Cluster, topics_of_plan: Sequence[str] | None) -> list[TopicSnapshot]:
    """Return the topics with throttled replicas, whoever throttles them; none if none of the plan's is marked.

    Raises:
        Unreachable: no broker answers.
    """
    if topics_of_plan is not None:
        of_plan = await read_topics(cluster, topics_of_plan)
        if not any(is_marked(known_configs(topic)) for topic in of_plan.values()):
            return []
    reader = await topic_reader(cluster, on_unreadable=cluster.complain, on_unknown_settings=cluster.observe)
    topics = await reader.topics([entry.topic for entry in await reader.names()])
    return [topic for topic in topics if any(known_configs(topic).get(key) for key in REPLICA_LISTS)]


async def _late_broker(cluster: Cluster, wanted: Mapping[int, Mapping[str, str | None]]) -> int | None:
    """Wait until brokers report the rates that they were given, or (None) that these are gone; return one that does
    not.

    A broker learns its own settings from a notification in ZooKeeper, usually within a tenth of a second. Until then it
    copies at the old speed. Removing a new throttle too early would leave the rate behind, because the broker does not
    report it yet; and a rate reported after its removal looks like another client's, because its mark is gone.
    ZooKeeper has the rate at once, so this asks the brokers themselves, and ZooKeeper only if no broker is named.
    """
    deadline = time.monotonic() + HEARD_S_MAX
    for broker, rates in wanted.items():
        while not await _tells(cluster, broker, rates, deadline - time.monotonic()):
            if time.monotonic() >= deadline:
                return broker
            await asyncio.sleep(_PAUSE_S)
    return None


async def _tells(cluster: Cluster, broker: int, rates: Mapping[str, str | None], limit_s: float) -> bool:
    """Whether a broker reports these rates; one that has died or is frozen does not."""
    with suppress(Unreachable, TimeoutError):
        async with asyncio.timeout(limit_s):
            in_force = await _broker_rates(cluster, broker, wants_broker=True)
            return all(in_force.get(key) == rate for key, rate in rates.items())
    return False


async def _broker_rates(cluster: Cluster, broker: int, *, wants_broker: bool = False) -> dict[str, str]:
    """Return the rates of a broker. With ``wants_broker`` ask the broker itself, if brokers are named."""
    return await _rates_of(cluster, Entity(EntityType.BROKER, str(broker)), wants_broker=wants_broker)


async def _rates_of(cluster: Cluster, entity: Entity, *, wants_broker: bool = False) -> dict[str, str]:
    reader = await config_reader(cluster, wants_brokers=wants_broker, keys=RATES)
    settings = settings_of(await reader.describe(entity, include_all=False))
    return {key: value for key, value in settings.items() if key in RATES}


async def _brokers_with_settings(cluster: Cluster) -> Set[int]:
    """Return the live brokers, and those that have settings of their own if they can be listed."""
    live = await (await topic_reader(cluster)).live_brokers()
    try:
        return live | await (await reassignment_reader(cluster)).configured_brokers()
    except NoAuth as error:
        # Who may not read them could remove no throttle from them either.
        cluster.note_hidden_znode(error.path or "")
        return live


async def _rates_of_brokers(cluster: Cluster, brokers: Iterable[int]) -> dict[int, dict[str, str] | str]:
    """Return the rates of each broker, or why it does not return them. Ask all at once: some may be silent."""

    async def ask(broker: int) -> dict[str, str] | str:
        try:
            return await _broker_rates(cluster, broker)
        except (*FAILURES, CoordinationError) as error:
            return str(error)

    async with asyncio.TaskGroup() as group:
        tasks = {broker: group.create_task(ask(broker), name=f"rates-of-{broker}") for broker in sorted(brokers)}
    return {broker: task.result() for broker, task in tasks.items()}


@dataclass(frozen=True, slots=True)
class _ClearedBrokers:
    """Brokers that lost their rates, and which rates are left. ``is_partial``: some of those may be klamm's."""

    cleared: Mapping[int, Mapping[str, str]]
    left: tuple[str, ...]
    is_partial: bool
    foreign: Mapping[Entity, Mapping[str, str]]


async def _clear_brokers(
    cluster: Cluster, ours: Mapping[str, Set[str]], given: Set[int], *, is_preview: bool
) -> _ClearedBrokers:
    live = await (await topic_reader(cluster)).live_brokers()
    asked = await _brokers_with_settings(cluster)
    unknown = set() if (await reassignment_changer(cluster)).is_znode else given - asked
    cleared: dict[int, dict[str, str]] = {}
    foreign: dict[Entity, dict[str, str]] = {}
    failed = [f"broker {broker}: its rate cannot be removed while it is not alive" for broker in sorted(unknown)]
    for broker, present in (await _rates_of_brokers(cluster, asked)).items():
        if isinstance(present, str):
            failed.append(f"broker {broker}: cannot tell now whether it has a rate of klamm's: {present}")
            continue
        deletions = [key for key, value in present.items() if value in ours[key]]
        if kept := {key: value for key, value in present.items() if key not in deletions}:
            foreign[Entity(EntityType.BROKER, str(broker))] = kept
        if not deletions:
            continue
        try:
            if not is_preview:
                await delete_broker_settings(cluster, broker, deletions, is_alive=broker in live)
            cleared[broker] = {key: present[key] for key in deletions}
        except FAILURES as error:
            failed.append(f"broker {broker}: {', '.join(deletions)} cannot be removed now: {error}")
    gone = {broker: dict.fromkeys(rates) for broker, rates in cleared.items() if broker in live}
    late = None if is_preview else await _late_broker(cluster, gone)
    if late is not None:
        cluster.complain(
            f"broker {late} still reports the throttle that klamm has removed: it copies no faster until it reads "
            "its settings"
        )
    return _ClearedBrokers(cleared, (*_rates_kept(foreign), *failed), bool(failed), foreign)


def _rates_kept(foreign: Mapping[Entity, Mapping[str, str]]) -> list[str]:
    return [
        f"{entity} keeps {key}={value}: no mark says that klamm set it"
        for entity, rates in foreign.items()
        for key, value in rates.items()
    ]
