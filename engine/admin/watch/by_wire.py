"""The brokers' side of a feed: each function reads one stage once, and stores nothing.

What it costs, with B brokers, P partitions, and G groups: metadata one request; offsets B and P / 2,000; reassignments
one (none if ZooKeeper reports them); log dirs B; groups B for the list, and per reading at most GROUPS_PER_READING
groups with one request each and a few for their ends and first unread records; probes two for each broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from engine.admin.cluster.asking import FAILURES, answer_limit
from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import Refused, Unreachable
from engine.admin.cluster.wire import WireCluster
from engine.admin.configs.by_wire import WireConfigReader, read_overrides_and
from engine.admin.configs.values import EntityType, settings_of
from engine.admin.groups.group_reading import list_groups
from engine.admin.groups.scope import FoundGroups, as_error, is_of_consumers, why_without_lag
from engine.admin.groups.values import GroupState, GroupType, ListedGroup
from engine.admin.health.reading import probe_brokers
from engine.admin.lag.group_lag import GroupLag
from engine.admin.lag.measuring import LagMeter
from engine.admin.lag.verdicts import LagStatus
from engine.admin.offsets.listing import FoundOffset, ask_offsets
from engine.admin.topics.values import MIN_ISR
from engine.admin.watch.frame import BrokerWords, WatchedGroup
from engine.admin.watch.link_states import failure_of
from engine.common.model import LATEST_TIMESTAMP, NO_LEADER, TopicPartition
from engine.common.snapshot import ClusterSnapshot, TopicSnapshot
from engine.common.turns import pieces_of
from engine.kafka.client.broker_client import LastAnswer
from engine.kafka.client.errors import Unchanged
from engine.kafka.protocol.apis.metadata import MetadataResponse

METADATA_LIMIT_S = 5.0
"""If a broker has not answered by then, ask the next one."""

GROUPS_PER_READING = 50
"""How many groups are measured at once. If there are more, they take turns."""

_PARTITIONS_PER_REQUEST = 2_000


async def read_metadata(wire: WireCluster, last: LastAnswer) -> MetadataResponse | None:
    """Return what any one broker says about all brokers and topics; None if that is what ``last`` has seen.

    Raises:
        Unreachable: no broker answers in time.
    """
    try:
        async with asyncio.timeout(METADATA_LIMIT_S) as limit:
            return await wire.metadata(None, last=last)
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise Unreachable(f"no answer within {METADATA_LIMIT_S:g} s") from error
    except Unchanged:
        return None


async def read_ends(
    wire: WireCluster, topics: Iterable[TopicSnapshot], live: frozenset[int], silent: Iterable[int] = ()
) -> tuple[dict[TopicPartition, int], tuple[str, ...], int]:
    """Return where the logs end, a line for each broker that did not answer, and how many requests it took.

    Brokers known to be ``silent`` are not asked.
    """
    by_leader: dict[int, list[TopicPartition]] = {}
    for topic in topics:
        for p in topic.partitions:
            if p.leader != NO_LEADER and p.leader in live:
                by_leader.setdefault(p.leader, []).append(TopicPartition(topic.name, p.partition))
    ends: dict[TopicPartition, int] = {}
    missing = [f"broker {leader} does not answer" for leader in sorted(silent) if by_leader.pop(leader, None)]

    async def ask(leader: int, names: list[TopicPartition]) -> int:
        count = 0
        try:
            for batch in pieces_of(names, _PARTITIONS_PER_REQUEST):
                count += 1
                async with answer_limit(wire, leader):
                    answers = await ask_offsets(wire, leader, dict.fromkeys(batch, LATEST_TIMESTAMP))
                ends.update(
                    {name: answer.offset for name, answer in answers.items() if isinstance(answer, FoundOffset)}
                )
            wire.silent.pop(leader, None)
        except FAILURES as error:
            missing.append(f"broker {leader}: {error}")
        return count

    counts = await asyncio.gather(*(ask(leader, names) for leader, names in sorted(by_leader.items())))
    return ends, tuple(missing), sum(counts)


async def read_wire_settings(
    wire: WireCluster, topics: Sequence[TopicSnapshot]
) -> tuple[dict[str, dict[str, str]], dict[int | None, Mapping[str, str]], dict[str, int], tuple[str, ...]]:
    """Return overrides of topics, dynamic settings of brokers, the effective min ISR, and what is missing.

    What this principal may not see is left out: the cluster notes which rights were missing.
    """
    names = [topic.name for topic in topics]
    missing: list[str] = []
    overrides, effective = await read_overrides_and(wire, names, MIN_ISR, missing.append)
    brokers: dict[int | None, Mapping[str, str]] = {}
    try:
        for described in await WireConfigReader(wire).describe_all(EntityType.BROKER, include_all=False):
            settings = settings_of(described)
            if settings:
                brokers[None if described.entity_name is None else int(described.entity_name)] = settings
    except Refused as error:
        if not failure_of(error).is_denied:
            raise
    min_isr = {name: int(value) for name, value in effective.items() if value is not None and value.isdecimal()}
    return overrides, brokers, min_isr, tuple(missing)


async def read_words(cluster: Cluster, snapshot: ClusterSnapshot, silent: Iterable[int] = ()) -> dict[int, BrokerWords]:
    """Ask each broker, over its own connection, who it thinks the controller is, and which log dirs are offline.

    Brokers known to be ``silent`` are not asked.
    """
    probes = await probe_brokers(snapshot, cluster.target.client_properties, dict.fromkeys(silent, "no answer"))
    return {
        # Each KRaft broker names some live broker: differences mean nothing.
        broker: BrokerWords(
            None if probe.is_kraft else probe.controller_id,
            probe.offline_log_dirs,
            probe.trouble or "",
            probe.caps_min_isr,
            probe.release,
            probe.min_isr,
            probe.certificate,
            probe.hint,
        )
        for broker, probe in probes.items()
    }


@dataclass(frozen=True, slots=True)
class ReadGroups:
    """The result of one reading of the groups; ``missing`` has a line for each missing thing."""

    groups: tuple[WatchedGroup, ...]
    missing: tuple[str, ...]
    requests: int


class GroupReader:
    """Reads groups repeatedly: all states each time, lag and members of ``per_reading`` of them in turn."""

    def __init__(self, meter: LagMeter, per_reading: int = GROUPS_PER_READING) -> None:
        self._meter = meter
        self._per_reading = per_reading
        self._known: dict[str, WatchedGroup] = {}
        self._turn: list[str] = []

    async def read(self, wire: WireCluster, now_ms: int) -> ReadGroups:
        """Return all groups as far as they are known so far.

        Raises:
            AdminError: no broker lists its groups.
        """
        listing = await list_groups(wire)
        listed = {group.group: group for group in listing.groups if is_of_consumers(group)}
        others = {group.group: of_other_protocol(group) for group in listing.groups if not is_of_consumers(group)}
        missing = [f"broker {broker}: {why}" for broker, why in sorted(listing.failures.items())]
        if listing.failures and not listing.groups and len(listing.failures) >= len(await wire.nodes()):
            broker, why = next(iter(listing.failures.items()))
            raise as_error(why, f"broker {broker}")
        # A broker that did not answer keeps its groups as they were.
        silent = set(listing.failures)
        kept = {
            name: group for name, group in self._known.items() if group.coordinator in silent and name not in listed
        }
        chosen = self._next(listed)
        measured_groups = FoundGroups(tuple(chosen), (), {}, {name: listed[name].coordinator for name in chosen})
        answer, _ = await self._meter.measure(chosen=measured_groups)
        measured = {group.group: group for group in answer.groups}
        missing += [
            f"{error}: {error.where}" if error.where else str(error)
            for error in answer.failures
            if not failure_of(error).is_denied
        ]
        groups = {name: self._watched(group, measured.get(name), now_ms) for name, group in listed.items()}
        self._known = kept | groups | others
        self._meter.forget_all_but(self._known)
        requests = len(await wire.nodes()) + 2 * len(chosen)
        return ReadGroups(tuple(self._known[name] for name in sorted(self._known)), tuple(missing), requests)

    def _next(self, listed: Mapping[str, ListedGroup]) -> list[str]:
        """Return the groups to measure next: those that never were, those in trouble, and who waited longest.

        Where not all are measured each time, those in trouble take at most half of the places.
        """
        still_listed = [name for name in self._turn if name in listed]
        known = set(still_listed)
        troubled = [name for name in still_listed if self._known[name].lag.status.is_trouble][: self._per_reading // 2]
        first = [*(name for name in listed if name not in known), *troubled]
        ordered = list(dict.fromkeys([*first, *still_listed]))
        chosen = ordered[: self._per_reading]
        self._turn = ordered[self._per_reading :] + chosen
        return chosen

    def _watched(self, listed: ListedGroup, lag: GroupLag | None, now_ms: int) -> WatchedGroup:
        known = self._known.get(listed.group)
        has_lag = lag is not None or (known is not None and known.has_lag)
        if lag is None:
            fresh = unmeasured(listed.group, listed.type, listed.state)
            lag = fresh if known is None else replace(known.lag, state=listed.state)
        sample = self._meter.latest.get((listed.group, lag.type))
        members = sample.members if sample is not None else None if known is None else known.members
        protocol = sample.protocol if sample is not None else "" if known is None else known.protocol
        since_ms = known.since_ms if known is not None and known.lag.state == lag.state else now_ms
        return WatchedGroup(lag, members, listed.coordinator, protocol, since_ms, has_lag)


# A group whose lag has not been measured yet


def unmeasured(name: str, kind: GroupType | None, state: GroupState | None) -> GroupLag:
    """Return what is known about a group that was only listed."""
    return GroupLag(
        name, kind, state, LagStatus.UNKNOWN, None, None, None, None, None, None, None, 0, 0, 0, 0, None, (),
    )  # fmt: skip


def of_other_protocol(listed: ListedGroup) -> WatchedGroup:
    """Return what is known about a group that is not of consumers, such as the workers of Kafka Connect."""
    lag = replace(unmeasured(listed.group, listed.type, listed.state), error=why_without_lag(listed))
    return WatchedGroup(lag, None, listed.coordinator, listed.protocol_type)
