"""What happened between two frames of one cluster. Pure, and quick: it skips what both frames share."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from functools import lru_cache
from typing import Protocol

from engine.admin.cluster.target import Side
from engine.admin.groups.values import GroupMember
from engine.admin.watch.events import Event, EventKind
from engine.admin.watch.frame import Frame, LinkState, Stage, StageSource, WatchedGroup
from engine.common.listing import first_few
from engine.common.model import NO_CONTROLLER, NO_LEADER, TopicPartition
from engine.common.snapshot import ClusterSnapshot, PartitionSnapshot, TopicSnapshot
from engine.common.turns import at_once

_MEMBERS_NAMED = 6
_EVENTS_A_TURN = 1_000
WATCHED_WITHIN_MS = 100
"""ZooKeeper reports a watched change within this time."""


class _MakeEvent(Protocol):
    """Makes an event of one partition."""

    def __call__(self, kind: EventKind, old: str, new: str, broker: int | None = None, reason: str = "") -> Event: ...


_SECRET = ("password", "secret", "jaas", "credential")


def diff(before: Frame, after: Frame) -> tuple[Event, ...]:
    """Return what happened between two frames of one feed, in an order that reads well: causes first.

    A fact that becomes known for the first time is not an event.
    """
    return at_once(diff_in_turns(before, after))


def diff_in_turns(before: Frame, after: Frame) -> Generator[None, None, tuple[Event, ...]]:
    """Find the same in turns of an event loop: a lost broker of a large cluster makes events by the ten thousand."""
    events: list[Event] = []
    for event in _events(before, after):
        events.append(event)
        if len(events) % _EVENTS_A_TURN == 0:
            yield
    return tuple(events)


def _events(before: Frame, after: Frame) -> Iterator[Event]:
    yield from _links(before, after)
    if before.cluster is not None and after.cluster is not None:
        if before.cluster is not after.cluster:
            yield from _brokers(before, after, before.cluster, after.cluster)
            yield from _controller(before, after, before.cluster, after.cluster)
            if before.stage(Stage.SETTINGS).read_at_ms is not None:
                yield from _broker_configs(after, before.cluster, after.cluster)
            if before.stage(Stage.METADATA).read_at_ms is not None:
                yield from _topics(before, after, before.cluster, after.cluster)
        if before.words is not after.words:
            yield from _silent_brokers(before, after, after.cluster)
        if before.log_dirs is not after.log_dirs:
            yield from _log_dirs(before, after)
        if before.groups is not after.groups and before.stage(Stage.GROUPS).read_at_ms is not None:
            yield from _groups(before, after)


def _links(before: Frame, after: Frame) -> Iterator[Event]:
    for side in Side:
        was, now = before.link(side), after.link(side)
        if was.state is now.state:
            continue
        name = "ZooKeeper" if side is Side.ZOOKEEPER else "brokers"
        if was.state is LinkState.CONNECTED:
            yield Event(after.at_ms, EventKind.CONNECTION_LOST, name, was.state, now.state, reason=now.cause)
        elif was.state is LinkState.CONNECTING or was.last_answer_ms is None:
            # It was never connected before: a first connection, or a first attempt that failed.
            continue
        elif now.state is LinkState.CONNECTED:
            yield Event(after.at_ms, EventKind.CONNECTION_BACK, name, was.state, now.state)


def _brokers(before: Frame, after: Frame, was: ClusterSnapshot, now: ClusterSnapshot) -> Iterator[Event]:
    if was.brokers is now.brokers:
        return
    old, new = ({broker.id: broker for broker in frame.brokers} for frame in (was, now))
    within_ms = _within_ms(before, after, Stage.MEMBERS)
    for broker_id in sorted(old.keys() | new.keys()):
        first, second = old.get(broker_id), new.get(broker_id)
        if first is None:
            kind = EventKind.BROKER_UP
        elif second is None:
            kind = EventKind.BROKER_DOWN
        elif -1 not in (first.broker_epoch, second.broker_epoch) and first.broker_epoch != second.broker_epoch:
            kind = EventKind.BROKER_REREGISTERED
        else:
            continue
        yield Event(after.at_ms, kind, f"broker {broker_id}", within_ms=within_ms, broker=broker_id)


def _silent_brokers(before: Frame, after: Frame, now: ClusterSnapshot) -> Iterator[Event]:
    asked = sorted(before.words.keys() & after.words.keys() & now.live_broker_ids)
    if any(all(frame.words[broker].trouble for broker in asked) for frame in (before, after)):
        # If no broker answers, the connection is lost, which is an event of its own.
        return
    for broker in asked:
        was, trouble = before.words[broker].trouble, after.words[broker].trouble
        if bool(was) != bool(trouble):
            kind = EventKind.BROKER_SILENT if trouble else EventKind.BROKER_ANSWERS
            yield Event(after.at_ms, kind, f"broker {broker}", broker=broker, reason=trouble)


def _controller(before: Frame, after: Frame, was: ClusterSnapshot, now: ClusterSnapshot) -> Iterator[Event]:
    same_epoch = was.controller_epoch == now.controller_epoch or None in (was.controller_epoch, now.controller_epoch)
    if was.controller_id == now.controller_id and same_epoch:
        return
    old, new = (
        "none" if broker_id == NO_CONTROLLER else str(broker_id) for broker_id in (was.controller_id, now.controller_id)
    )
    is_gone = was.controller_id != NO_CONTROLLER and was.controller_id not in now.live_broker_ids
    yield Event(
        after.at_ms,
        EventKind.CONTROLLER_MOVED,
        "controller",
        old,
        new,
        _within_ms(before, after, Stage.MEMBERS),
        broker=None if now.controller_id == NO_CONTROLLER else now.controller_id,
        reason=f"broker {was.controller_id} is down" if is_gone else "",
    )


def _broker_configs(after: Frame, was: ClusterSnapshot, now: ClusterSnapshot) -> Iterator[Event]:
    if was.broker_configs is now.broker_configs:
        return
    for broker_id in sorted(
        was.broker_configs.keys() | now.broker_configs.keys(), key=lambda broker: (broker is not None, broker)
    ):
        old, new = was.broker_configs.get(broker_id, {}), now.broker_configs.get(broker_id, {})
        if old != new:
            subject = "all brokers" if broker_id is None else f"broker {broker_id}"
            yield Event(after.at_ms, EventKind.BROKER_CONFIG_CHANGED, subject, *_changed(old, new), broker=broker_id)


def _topics(before: Frame, after: Frame, was: ClusterSnapshot, now: ClusterSnapshot) -> Iterator[Event]:
    if was.topics is now.topics:
        return
    old = {topic.name: topic for topic in was.topics}
    within_ms = _within_ms(before, after, Stage.METADATA)
    for topic in now.topics:
        first = old.pop(topic.name, None)
        if first is topic:
            continue
        if first is None:
            count = str(len(topic.partitions))
            yield Event(after.at_ms, EventKind.TOPIC_CREATED, topic.name, "", count, within_ms, topic=topic.name)
        elif first.topic_id != topic.topic_id and first.topic_id and topic.topic_id:
            yield Event(after.at_ms, EventKind.TOPIC_RECREATED, topic.name, within_ms=within_ms, topic=topic.name)
        else:
            yield from _topic(before, after, within_ms, first, topic)
    for name in old:
        yield Event(after.at_ms, EventKind.TOPIC_DELETED, name, within_ms=within_ms, topic=name)


def _topic(
    before: Frame, after: Frame, within_ms: int | None, was: TopicSnapshot, now: TopicSnapshot
) -> Iterator[Event]:
    if now.is_marked_for_deletion and not was.is_marked_for_deletion:
        yield Event(after.at_ms, EventKind.TOPIC_DELETION_STARTED, now.name, topic=now.name)
    if was.configs is not None and now.configs is not None and was.configs != now.configs:
        changed = _changed(was.configs, now.configs)
        yield Event(after.at_ms, EventKind.TOPIC_CONFIG_CHANGED, now.name, *changed, topic=now.name)
    if was.partitions is now.partitions:
        return
    if len(was.partitions) < len(now.partitions):
        counts = str(len(was.partitions)), str(len(now.partitions))
        yield Event(after.at_ms, EventKind.PARTITIONS_ADDED, now.name, *counts, topic=now.name)
    old = {partition.partition: partition for partition in was.partitions}
    in_turn = after.stage(Stage.METADATA).source is StageSource.ROTATION
    for partition in now.partitions:
        first = old.get(partition.partition)
        if first is not None and first is not partition:
            name = TopicPartition(now.name, partition.partition)
            seen_within_ms = _turn_ms(before, after, name) if in_turn else within_ms
            yield from _partition(after, seen_within_ms, name, first, partition)


def _partition(
    after: Frame, within_ms: int | None, name: TopicPartition, was: PartitionSnapshot, now: PartitionSnapshot
) -> Iterator[Event]:
    live = after.cluster.live_broker_ids if after.cluster is not None else frozenset()

    def event(kind: EventKind, old: str, new: str, broker: int | None = None, reason: str = "") -> Event:
        subject, old, new, reason = map(_shared, (str(name), old, new, reason))
        return Event(after.at_ms, kind, subject, old, new, within_ms, broker, name.topic, name.partition, reason)

    if was.leader == NO_LEADER and not was.isr:
        # It had no state so far. Its first leader and ISR are one event: no replica caught up.
        if now.leader != NO_LEADER:
            yield event(EventKind.FIRST_LEADER, "", _leader(now), now.leader, f"created with ISR {_ids(now.isr)}")
        yield from _reassignment(event, was, now)
        return
    if was.leader != now.leader:
        kind = EventKind.PARTITION_OFFLINE if now.leader == NO_LEADER else EventKind.LEADER_CHANGED
        broker = was.leader if now.leader == NO_LEADER else now.leader
        yield event(kind, _leader(was), _leader(now), broker, _why_another_leads(was, now, live))
    if was.isr != now.isr and set(was.isr) != set(now.isr):
        yield _isr_event(event, was, now, live)
    yield from _reassignment(event, was, now)


def _why_another_leads(was: PartitionSnapshot, now: PartitionSnapshot, live: frozenset[int]) -> str:
    if was.leader != NO_LEADER and was.leader not in live:
        return f"broker {was.leader} is down"
    if now.leader == NO_LEADER:
        return ""
    if was.leader == NO_LEADER and now.leader not in was.isr:
        return "an unclean election: it was not in sync"
    if was.leader != NO_LEADER and was.leader not in now.replicas:
        return f"broker {was.leader} has no replica any more"
    return "the preferred replica leads" if now.leader == now.preferred_leader else ""


def _isr_event(event: _MakeEvent, was: PartitionSnapshot, now: PartitionSnapshot, live: frozenset[int]) -> Event:
    left = [broker for broker in was.isr if broker not in now.isr]
    came = [broker for broker in now.isr if broker not in was.isr]
    kind = EventKind.ISR_CHANGED if left and came else EventKind.ISR_SHRANK if left else EventKind.ISR_GREW
    parts = [f"{broker} left, down" if broker not in live else f"{broker} left" for broker in left]
    # Brokers and znodes are read at different times, so whether a reassignment added the replica is not certain.
    parts += [f"{broker} caught up" for broker in came]
    who = (left or came)[0] if len(left) + len(came) == 1 else None
    return event(kind, _ids(was.isr), _ids(now.isr), who, ", ".join(parts))


def _reassignment(event: _MakeEvent, was: PartitionSnapshot, now: PartitionSnapshot) -> Iterator[Event]:
    old, new = was.assignment, now.assignment
    if old == new:
        return
    if new.is_being_reassigned and not old.is_being_reassigned:
        yield event(EventKind.REASSIGNMENT_STARTED, _ids(new.origin_replicas), _ids(new.target_replicas))
    elif new.is_being_reassigned:
        if old.target_replicas != new.target_replicas:
            yield event(EventKind.REASSIGNMENT_CHANGED, _ids(old.target_replicas), _ids(new.target_replicas))
    elif old.is_being_reassigned and set(new.replicas) == set(old.origin_replicas):
        yield event(EventKind.REASSIGNMENT_CANCELLED, _ids(old.target_replicas), _ids(new.replicas))
    else:
        # One that began and ended between two looks shows only by its result.
        yield event(EventKind.REASSIGNMENT_FINISHED, _ids(old.origin_replicas), _ids(new.replicas))


def _log_dirs(before: Frame, after: Frame) -> Iterator[Event]:
    old = {
        (log_dir.broker, log_dir.log_dir): log_dir.error for log_dir in before.log_dirs if log_dir.log_dir is not None
    }
    for log_dir in after.log_dirs:
        key = log_dir.broker, log_dir.log_dir
        if key not in old or bool(old[key]) == bool(log_dir.error):
            continue
        kind = EventKind.LOG_DIR_FAILED if log_dir.error else EventKind.LOG_DIR_BACK
        within_ms = _within_ms(before, after, Stage.LOG_DIRS)
        subject = f"broker {log_dir.broker}: {log_dir.log_dir}"
        yield Event(after.at_ms, kind, subject, within_ms=within_ms, broker=log_dir.broker, reason=log_dir.error or "")


def _groups(before: Frame, after: Frame) -> Iterator[Event]:
    old = {(group.lag.group, group.lag.type): group for group in before.groups}
    within_ms = _within_ms(before, after, Stage.GROUPS)
    for group in after.groups:
        first = old.pop((group.lag.group, group.lag.type), None)
        subject, state = f"group {group.name}", group.lag.state or ""
        if first is None:
            yield Event(after.at_ms, EventKind.GROUP_APPEARED, subject, "", state, within_ms)
            continue
        if first.lag.state != group.lag.state and first.lag.state and group.lag.state:
            yield Event(after.at_ms, EventKind.GROUP_STATE_CHANGED, subject, first.lag.state, state, within_ms)
        yield from _group_members(after.at_ms, subject, first, group)
    for name, _ in old:
        yield Event(after.at_ms, EventKind.GROUP_VANISHED, f"group {name}", within_ms=within_ms)


def _group_members(at_ms: int, subject: str, was: WatchedGroup, now: WatchedGroup) -> Iterator[Event]:
    """Report who came and who left. The time is unknown: with many groups, members are read in turn."""
    if was.members is now.members or was.members is None or now.members is None:
        return
    # A static member that restarts has another id, but is the same one.
    old, new = (
        {member.group_instance_id or member.member_id: member for member in group.members or ()} for group in (was, now)
    )
    parts = [f"{_member(old[key])} left" for key in old if key not in new]
    parts += [f"{_member(new[key])} joined" for key in new if key not in old]
    if parts:
        reason = first_few(parts, _MEMBERS_NAMED)
        yield Event(at_ms, EventKind.GROUP_MEMBERS_CHANGED, subject, str(len(old)), str(len(new)), reason=reason)


def _member(member: GroupMember) -> str:
    return f"{member.group_instance_id or member.client_id} at {member.host}"


def _within_ms(before: Frame, after: Frame, stage: Stage) -> int | None:
    """Return how long a change of this stage's data could have gone unseen."""
    was_ms, now_ms = before.stage(stage).read_at_ms, after.stage(stage).read_at_ms
    if was_ms is None or now_ms is None:
        return None
    if after.stage(stage).source is StageSource.WATCH and before.link(Side.ZOOKEEPER).state is LinkState.CONNECTED:
        return WATCHED_WITHIN_MS
    return max(0, now_ms - was_ms)


def _turn_ms(before: Frame, after: Frame, name: TopicPartition) -> int | None:
    """Return the time between the readings of a partition's state, where states are read in rotation."""
    was_ms, now_ms = before.read_at_ms.get(name), after.read_at_ms.get(name)
    return None if was_ms is None or now_ms is None else max(0, now_ms - was_ms)


@lru_cache(maxsize=4096)
def _shared(text: str) -> str:
    """Return one object for equal texts: viewers keep events by the ten thousand."""
    return text


def _changed(old: Mapping[str, str], new: Mapping[str, str]) -> tuple[str, str]:
    keys = [key for key in sorted(old.keys() | new.keys()) if old.get(key) != new.get(key)]
    return _settings(old, keys), _settings(new, keys)


def _settings(configs: Mapping[str, str], keys: list[str]) -> str:
    return ", ".join(f"{key}={_shown(key, configs[key])}" for key in keys if key in configs)


def _shown(key: str, value: str) -> str:
    return "[hidden]" if any(word in key for word in _SECRET) else value


def _leader(partition: PartitionSnapshot) -> str:
    return "none" if partition.leader == NO_LEADER else str(partition.leader)


def _ids(brokers: tuple[int, ...]) -> str:
    return ",".join(map(str, brokers))
