"""Checks a cluster's health: once, or repeatedly until it is good enough.

It collects what the checks need: the snapshot, what each broker says about itself, and ZooKeeper's speed.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from engine.admin.cluster.asking import FAILURES, SILENT_LIMIT_S
from engine.admin.cluster.certificates import Validity, short_lives_ms
from engine.admin.cluster.client_properties import ClientProperties
from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import AdminError, Unreachable
from engine.admin.cluster.hung import hung_addresses, hung_after_s
from engine.admin.cluster.members import ClusterMembers, read_members
from engine.admin.cluster.rights import Right, missing_rights
from engine.admin.cluster.target import Source
from engine.admin.cluster.waits import Complain, Waits
from engine.admin.health.checks import ZOOKEEPER_SLOW_MS, assess, has_throttles
from engine.admin.health.report import (
    EXAMPLES_MAX,
    HealthFacts,
    HealthReport,
    HealthStatus,
    HoldingTransaction,
    used_percent,
    used_percents,
)
from engine.admin.log_dirs.describing import note_hidden_topics
from engine.admin.snapshots.taking import read_snapshot
from engine.admin.topics.access import SnapshotTopicReader, TopicReader, topic_reader
from engine.admin.topics.values import MIN_ISR, default_min_isr, topic_min_isrs
from engine.admin.transactions.hanging import OpenTransaction, OpenTransactions, find_holding
from engine.common.clock import Clock, SystemClock
from engine.common.errors import CoordinationError, ErrorCode, RemoteProtocolError
from engine.common.model import BrokerInfo, TopicPartition
from engine.common.snapshot import ClusterSnapshot
from engine.common.topic_names import TRANSACTION_STATE_TOPIC

if TYPE_CHECKING:
    from engine.kafka.client.broker_client import BrokerClient

PAUSE_S = 1.0
"""Between two checks of a cluster that is to become healthy."""
PROBE_S = 5.0
"""A broker that has not answered by then counts as silent."""
_PROBE_SHARE = 0.4
"""The largest share of the command's time: the rest must be read as well."""
_TRANSACTIONS_SHARE = 0.2
_SECOND_LOOK_S, _SECOND_LOOK_SHARE = 1.0, 0.1
_MEMBERS_SHARE = 0.2
_PINGS = 3
_BROKER_RESOURCE = 4
_FETCH_OF_3_7 = 16
"""The version of Fetch that came with Kafka 3.7."""

OnWait = Callable[[HealthReport, float], None]
"""Called with what is still wrong, and how many seconds the wait has lasted."""


@dataclass(frozen=True, slots=True)
class BrokerProbe:
    """What one broker reported; ``trouble`` says why if it reported nothing, ``hint`` what helps if TLS or the login
    failed.
    """

    controller_id: int | None = None
    offline_log_dirs: tuple[str, ...] = ()
    used_percents: Mapping[str, float] = field(default_factory=dict)
    """By log dir, how full its volume is."""
    trouble: str | None = None
    hint: str = ""
    caps_min_isr: bool = False
    min_isr: int | None = None
    """``min.insync.replicas`` of topics that have none of their own; its file may set it, so ZooKeeper lacks it."""
    is_kraft: bool = False
    denied: tuple[Right, ...] = ()
    """The missing rights that kept it from reporting everything."""
    release: str = ""
    """The release of Kafka whose APIs it offers; empty: unknown."""
    topics: frozenset[str] = frozenset()
    """Those that have replicas there, if it was asked."""
    certificate: Validity | None = None


async def read_health(
    cluster: Cluster,
    *,
    until_better_than: HealthStatus | None = None,
    examples_max: int | None = EXAMPLES_MAX,
    on_wait: OnWait = lambda report, waited_s: None,
) -> HealthReport:
    """Return a cluster's health.

    Args:
        until_better_than: check again while it is this bad, at most for the cluster's time-out.
        examples_max: this many cases of each reason are named; None: all.
        on_wait: called after each check that fails.

    Raises:
        Unreachable, TimeoutError: the cluster could not be read.
    """
    started = time.monotonic()
    deadline = started + cluster.timeout_s
    while True:
        async with asyncio.timeout(max(PAUSE_S, deadline - time.monotonic())):
            facts = await read_health_facts(cluster)
        report = assess(facts, examples_max)
        is_good = until_better_than is None or not report.is_as_bad_as(until_better_than)
        if is_good or time.monotonic() + PAUSE_S > deadline:
            return report
        on_wait(report, time.monotonic() - started)
        await asyncio.sleep(PAUSE_S)


async def read_health_facts(cluster: Cluster, clock: Clock | None = None) -> HealthFacts:
    """Read a cluster's health facts. A snapshot has only some of them.

    Raises:
        Unreachable: neither ZooKeeper nor any broker answers.
        MixedClusters: the named brokers are of another cluster than ZooKeeper's.
    """
    unreadable: list[str] = []
    clock = clock or SystemClock()
    snapshot = await read_snapshot(cluster, on_unreadable=unreadable.append)
    trouble = await cluster.zookeeper_trouble()
    hidden = frozenset(right.name for right in cluster.denied if right.is_of_settings and right.name)
    facts = HealthFacts(
        snapshot,
        unreadable_topics=tuple(unreadable),
        zookeeper_trouble=trouble,
        zookeepers_down=await _zookeepers_down(cluster) if trouble else (),
        hidden_settings=hidden,
    )
    match cluster.source:
        case Source.SNAPSHOT:
            facts = replace(
                facts,
                offline_log_dirs=_offline_log_dirs(snapshot, cluster.complain),
                used_percents=used_percents(snapshot.log_dirs),
            )
            return await _with_min_isr(facts, SnapshotTopicReader(snapshot))
        case Source.ZOOKEEPER:
            await _refuse_other_brokers(cluster)
            facts = await _with_plan(await _with_probes(facts, cluster, {}, clock), cluster)
            facts = await _with_hung_addresses(await _with_transactions(facts, cluster), cluster)
            return await _with_znodes(facts, cluster, clock)
        case Source.WIRE:
            facts = replace(facts, are_moves_known=not (await cluster.wire()).lacks_moves)
            facts = await _with_min_isr(facts, await topic_reader(cluster, on_unknown_settings=cluster.complain))
            facts = await _with_probes(facts, cluster, (await cluster.wire()).silent, clock)
            facts = await _with_transactions(await _with_plan(facts, cluster), cluster)
            return await _with_hung_addresses(facts, cluster)


async def _refuse_other_brokers(cluster: Cluster) -> None:
    """Raise MixedClusters if the named brokers, which changes go to, are not those of this ZooKeeper."""
    if cluster.target.bootstrap and cluster.target.may_ask_brokers:
        with suppress(TimeoutError, Unreachable, RemoteProtocolError):
            async with asyncio.timeout(min(PROBE_S, cluster.timeout_s * _TRANSACTIONS_SHARE)):
                await (await cluster.wire()).nodes()


def _offline_log_dirs(snapshot: ClusterSnapshot, complain: Complain) -> dict[int, tuple[str, ...]]:
    """Return the failed log dirs that a snapshot names; what it does not know goes to ``complain``."""
    if snapshot.failed_log_dirs is None:
        complain("this snapshot does not show whether log dirs have failed; one taken with sizes does")
    log_dirs: dict[int, tuple[str, ...]] = {}
    for failed in snapshot.failed_log_dirs or ():
        if failed.log_dir is None:
            complain(
                f"this snapshot does not show whether log dirs of broker {failed.broker} have failed: {failed.error}"
            )
        else:
            log_dirs[failed.broker] = (*log_dirs.get(failed.broker, ()), failed.log_dir)
    return log_dirs


async def _with_min_isr(facts: HealthFacts, reader: TopicReader) -> HealthFacts:
    return replace(facts, min_isr=await reader.min_isr(facts.snapshot.topics))


async def _with_plan(facts: HealthFacts, cluster: Cluster) -> HealthFacts:
    """Add who carries out a plan, if there is a throttle that it may need."""
    if not has_throttles(facts.snapshot):
        return facts
    from engine.admin.reassignment.lock import plan_in_the_way

    holder = await plan_in_the_way(cluster, None)
    return facts if holder is None else replace(facts, plan=holder.description)


async def _with_transactions(facts: HealthFacts, cluster: Cluster) -> HealthFacts:
    """Add the transactions that hold readers up, of partitions whose leaders answer. It takes a share of the time."""
    if not cluster.target.may_ask_brokers:
        return facts
    limit_s = min(PROBE_S, cluster.timeout_s * _TRANSACTIONS_SHARE)
    try:
        async with asyncio.timeout(limit_s):
            wire = await cluster.wire()
            for broker_id, why in facts.silent_brokers.items():
                wire.silent.setdefault(broker_id, why)
            holding = await read_holding(cluster, facts.snapshot)
    except TimeoutError:
        cluster.complain(f"open transactions are not checked: that took longer than {limit_s:g} s")
        return facts
    except (AdminError, RemoteProtocolError) as error:
        cluster.complain(f"open transactions are not checked: {error}")
        return facts
    for failure in holding.failures:
        cluster.complain(f"some open transactions are not checked: {failure}")
    return replace(facts, holding=tuple(map(holding_of, holding.transactions)))


async def read_holding(cluster: Cluster, snapshot: ClusterSnapshot) -> OpenTransactions:
    """Return the transactions that hold readers up, of partitions whose leaders answer.

    A cluster without the coordinators' topic has had none, and is not asked; but the topic is hidden from most logins.
    """
    if not cluster.may_hide_topics and all(topic.name != TRANSACTION_STATE_TOPIC for topic in snapshot.topics):
        return OpenTransactions(())
    wire = await cluster.wire()
    talking = set(snapshot.live_broker_ids) - wire.silent.keys()
    names = [
        TopicPartition(topic.name, partition.partition)
        for topic in snapshot.topics
        if not topic.is_marked_for_deletion
        for partition in topic.partitions
        if partition.leader in talking
    ]
    return await find_holding(wire, names) if names else OpenTransactions(())


def holding_of(transaction: OpenTransaction) -> HoldingTransaction:
    """Return an open transaction as the checks want it."""
    known = None if transaction.is_hanging else transaction.description
    return HoldingTransaction(
        str(transaction.name),
        transaction.start_offset,
        transaction.producer.producer_id,
        transaction.age_ms if known is None else known.duration_ms,
        transaction.is_hanging,
        transaction.transactional_id,
        None if known is None else known.state,
    )


async def _with_probes(facts: HealthFacts, cluster: Cluster, silent: Mapping[int, str], clock: Clock) -> HealthFacts:
    limit_s = min(PROBE_S, cluster.timeout_s * _PROBE_SHARE)
    ask = partial(
        probe_brokers,
        properties=cluster.target.client_properties,
        silent=silent,
        limit_s=limit_s,
        waits=cluster.waits,
        has_topics=cluster.may_hide_topics,
    )
    probes = await ask(facts.snapshot)
    if _doubts_controller(facts.snapshot, probes):
        # Another one may have been elected between the two readings.
        await asyncio.sleep(min(_SECOND_LOOK_S, cluster.timeout_s * _SECOND_LOOK_SHARE))
        members = await _members_now(cluster)
        if members is not None:
            snapshot = replace(
                facts.snapshot,
                brokers=members.brokers,
                controller_id=members.controller_id,
                controller_epoch=members.controller_epoch,
            )
            facts = replace(facts, snapshot=snapshot)
            # Whoever hung before would take as long again.
            probes = await ask(snapshot, silent=_silent_in(probes), limit_s=limit_s / 2)
    idle_controller = await _idle_controller(facts.snapshot, cluster, silent, probes)
    for probe in probes.values():
        cluster.note_denied(probe.denied)
    if cluster.may_hide_topics:
        stored = frozenset[str]().union(*(probe.topics for probe in probes.values()))
        await note_hidden_topics(cluster, stored, (topic.name for topic in facts.snapshot.topics))
    if cluster.source is Source.ZOOKEEPER:
        default = default_min_isr(facts.snapshot.broker_configs, (probe.min_isr for probe in probes.values()))
        facts = replace(facts, min_isr=topic_min_isrs(facts.snapshot.topics, default))
    return replace(
        facts,
        seen_controllers={broker: probe.controller_id for broker, probe in probes.items() if probe.trouble is None},
        offline_log_dirs={broker: probe.offline_log_dirs for broker, probe in probes.items() if probe.offline_log_dirs},
        used_percents={broker: probe.used_percents for broker, probe in probes.items() if probe.used_percents},
        caps_min_isr=bool(probes) and all(probe.caps_min_isr for probe in probes.values()),
        is_kraft=any(probe.is_kraft for probe in probes.values()),
        idle_controller=idle_controller,
        silent_brokers=_silent_in(probes),
        refusals={broker: probe.hint for broker, probe in probes.items() if probe.hint},
        certificates_left_ms=short_lives_ms(
            {broker: probe.certificate for broker, probe in probes.items() if probe.certificate}, clock.now_ms()
        ),
    )


def _silent_in(probes: Mapping[int, BrokerProbe]) -> dict[int, str]:
    return {broker: probe.trouble for broker, probe in probes.items() if probe.trouble is not None}


async def _members_now(cluster: Cluster) -> ClusterMembers | None:
    """Return who is in the cluster; None if nobody says it in a share of the time."""
    limit_s = min(PROBE_S, cluster.timeout_s * _MEMBERS_SHARE)
    try:
        async with asyncio.timeout(limit_s):
            return await read_members(cluster)
    except (TimeoutError, CoordinationError, *FAILURES) as error:
        why = str(error) or f"no answer within {limit_s:g} s"
        cluster.complain(f"the controller is that of a moment ago, because it could not be read again: {why}")
        return None


def _doubts_controller(snapshot: ClusterSnapshot, probes: Mapping[int, BrokerProbe]) -> bool:
    """Whether a broker names another controller than the snapshot. Each broker of KRaft names some live one."""
    if any(probe.is_kraft for probe in probes.values()):
        return False
    return any(probe.controller_id not in (None, snapshot.controller_id) for probe in probes.values())


async def _idle_controller(
    snapshot: ClusterSnapshot, cluster: Cluster, silent: Mapping[int, str], probes: dict[int, BrokerProbe]
) -> str | None:
    """Return why a controller did not answer as controller, if it answers as a broker: then take that as its probe.

    Such a controller waits for a ZooKeeper that has lost its majority.
    """
    for broker in snapshot.brokers:
        if broker.id == snapshot.controller_id and broker.id in silent:
            properties, has_topics = cluster.target.client_properties, cluster.may_hide_topics
            probe = await _probe(broker, properties, SILENT_LIMIT_S, cluster.waits, has_topics)
            if probe.trouble is None:
                probes[broker.id] = probe
                return silent[broker.id]
    return None


async def _with_hung_addresses(facts: HealthFacts, cluster: Cluster) -> HealthFacts:
    """Add which of the addresses that the caller named hang, if a broker is missing."""
    snapshot = facts.snapshot
    held = {broker for topic in snapshot.topics for p in topic.partitions for broker in p.assignment.replicas}
    if held <= set(snapshot.live_broker_ids):
        return facts
    limit_s = hung_after_s(cluster.timeout_s)
    return replace(facts, hung_addresses=await hung_addresses(cluster.target, snapshot.brokers, limit_s))


async def probe_brokers(
    snapshot: ClusterSnapshot,
    properties: ClientProperties,
    silent: Mapping[int, str],
    *,
    limit_s: float = PROBE_S,
    waits: Waits | None = None,
    has_topics: bool = False,
) -> dict[int, BrokerProbe]:
    """Ask all live brokers at the same time, over connections of their own, so that a frozen one delays nobody.

    This does not wait again for brokers known to be ``silent``. With ``has_topics`` they name the topics of all their
    replicas.
    """
    async with asyncio.TaskGroup() as group:
        tasks = {
            broker.id: group.create_task(
                _probe(broker, properties, limit_s, waits or Waits(), has_topics), name=f"probe-{broker.id}"
            )
            for broker in snapshot.brokers
            if broker.id not in silent
        }
    probes = {broker: task.result() for broker, task in tasks.items()}
    return probes | {b.id: BrokerProbe(trouble=silent[b.id]) for b in snapshot.brokers if b.id in silent}


async def _probe(
    broker: BrokerInfo, properties: ClientProperties, limit_s: float, waits: Waits, has_topics: bool
) -> BrokerProbe:
    from engine.kafka.client.broker_client import BrokerClient
    from engine.kafka.client.errors import NetworkError, NotAdmitted

    endpoint = broker.endpoint_for(properties.security_protocol)
    if endpoint is None:
        return BrokerProbe()
    limit_ms = int(limit_s * 1000)
    client = BrokerClient(
        endpoint.host,
        endpoint.port,
        client_id=properties.client_id,
        connect_timeout_ms=limit_ms,
        request_timeout_ms=limit_ms,
        security=properties.security,
    )
    try:
        with waits.on(client.address):
            async with asyncio.timeout(limit_s):
                await client.connect()
                return await _ask(client, broker.id, has_topics)
    except TimeoutError:
        return BrokerProbe(trouble=f"no answer within {limit_s:g} s")
    except NotAdmitted as error:
        return BrokerProbe(trouble=str(error), hint=error.hint or "")
    except (NetworkError, RemoteProtocolError, OSError) as error:
        return BrokerProbe(trouble=str(error))
    finally:
        await client.close()


async def _ask(client: BrokerClient, broker_id: int, has_topics: bool) -> BrokerProbe:
    from engine.admin.brokers.self_report import release_of
    from engine.kafka.client.errors import NoCommonVersion
    from engine.kafka.protocol.api_keys import ApiKey
    from engine.kafka.protocol.apis.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
    from engine.kafka.protocol.apis.metadata import MetadataRequest, MetadataResponse

    metadata: MetadataResponse = await client.call(MetadataRequest(topics=[], allow_auto_topic_creation=False))
    denied: tuple[Right, ...] = ()
    try:
        dirs: DescribeLogDirsResponse = await client.call(
            request := DescribeLogDirsRequest(topics=None if has_topics else [])
        )
        denied = tuple(missing_rights(request, dirs))
    except NoCommonVersion:
        # Brokers before 1.0 end themselves when a log dir fails.
        dirs = DescribeLogDirsResponse(results=[])
    offline = tuple(result.log_dir for result in dirs.results if result.error_code != ErrorCode.NONE)
    offered = await client.api_versions()
    fullness = {result.log_dir: used_percent(result.total_bytes, result.usable_bytes) for result in dirs.results}
    return BrokerProbe(
        metadata.controller_id if metadata.controller_id >= 0 else None,
        offline,
        {path: percent for path, percent in fullness.items() if percent is not None},
        caps_min_isr=offered.get(ApiKey.FETCH, (0, -1))[1] >= _FETCH_OF_3_7,
        # Only a controller that is a broker tells the others who the controller is.
        is_kraft=ApiKey.LEADER_AND_ISR not in offered,
        min_isr=await _own_min_isr(client, broker_id),
        denied=denied,
        release=release_of(offered) or "",
        topics=frozenset(topic.name for result in dirs.results for topic in result.topics),
        certificate=Validity.of(client.certificate),
    )


async def _own_min_isr(client: BrokerClient, broker_id: int) -> int | None:
    """Return the min ISR that the broker takes for topics without one; None if it does not say. It knows by itself."""
    from engine.kafka.client.errors import NetworkError
    from engine.kafka.protocol.apis.describe_configs import (
        DescribeConfigsRequest,
        DescribeConfigsResource,
        DescribeConfigsResponse,
    )

    resource = DescribeConfigsResource(
        resource_type=_BROKER_RESOURCE, resource_name=str(broker_id), configuration_keys=[MIN_ISR]
    )
    try:
        answer: DescribeConfigsResponse = await client.call(DescribeConfigsRequest(resources=[resource]))
    except NetworkError:
        return None
    texts = (config.value for result in answer.results for config in result.configs if config.name == MIN_ISR)
    return next((int(text) for text in texts if text is not None and text.isdecimal()), None)


async def _with_znodes(facts: HealthFacts, cluster: Cluster, clock: Clock) -> HealthFacts:
    """Add what only ZooKeeper knows: the tools' list of reassignments, ages of deletions, clocks; and its own state."""
    from engine.kafka.zk.kafka_client import KafkaZkClient

    kafka = KafkaZkClient(await cluster.zookeeper())
    listed = await kafka.admin.get_reassignments() or {}
    marked_ms = await kafka.admin.get_topic_deletion_times()
    registrations = await kafka.brokers.get_broker_registrations()
    apart_ms = {broker: read.clock_apart_ms for broker, read in registrations.items()}
    took_ms = await zookeeper_delay_ms(kafka.controller.controller_exists)
    cluster.observe(f"ZooKeeper answered within {took_ms:.1f} ms")
    return replace(
        facts,
        listed_reassignments=tuple(sorted(map(str, listed))),
        deletion_ages_ms={topic: max(0, clock.now_ms() - at_ms) for topic, at_ms in marked_ms.items()},
        clocks_apart_ms={broker: apart for broker, apart in apart_ms.items() if apart is not None},
        zookeepers_down=await _zookeepers_down(cluster),
        zookeeper_ms=took_ms,
    )


async def _zookeepers_down(cluster: Cluster) -> tuple[str, ...]:
    from engine.admin.cluster.zookeeper import servers_down

    target = cluster.target
    return () if target.zookeeper is None else await servers_down(target.zookeeper, target.zookeeper_security)


async def zookeeper_delay_ms(read: Callable[[], Awaitable[object]]) -> float:
    """Return how long ZooKeeper takes for a read, without what klamm itself takes on a busy machine.

    Where it seems slow, klamm may be late: the same way through a thread, without ZooKeeper, is taken off, and the
    fastest of a few reads counts.
    """
    fastest_ms = math.inf
    for _ in range(_PINGS):
        started = time.monotonic()
        await read()
        answered = time.monotonic()
        took_ms = (answered - started) * 1000
        if took_ms > ZOOKEEPER_SLOW_MS:
            await asyncio.to_thread(time.monotonic)
            took_ms -= (time.monotonic() - answered) * 1000
        fastest_ms = min(fastest_ms, max(0.0, took_ms))
        if fastest_ms <= ZOOKEEPER_SLOW_MS:
            break
    return fastest_ms
