"""Controller, coordinators and ZooKeeper."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import Final

from engine.broker.controller.context import Census
from engine.broker.controller.events import ControllerState
from engine.broker.coordinator.groups.group import GroupState
from engine.broker.metrics.mbean import MBean, MBeans, Tags, gauges
from engine.broker.metrics.measures import Histogram, Ledger, Meter, Timer
from engine.broker.server.figures.measured import MeasuredBroker
from engine.broker.server.figures.network import connections
from engine.kafka.zk.session_keeper import SessionEvent

_CONTROLLER_TIMERS: Final = {
    ControllerState.CONTROLLER_CHANGE: "ControllerChange",
    ControllerState.BROKER_CHANGE: "LeaderElection",
    ControllerState.TOPIC_CHANGE: "TopicChange",
    ControllerState.TOPIC_DELETION: "TopicDeletion",
    ControllerState.ALTER_PARTITION_REASSIGNMENT: "PartitionReassignment",
    ControllerState.AUTO_LEADER_BALANCE: "AutoLeaderBalance",
    ControllerState.MANUAL_LEADER_BALANCE: "ManualLeaderBalance",
    ControllerState.CONTROLLED_SHUTDOWN: "ControlledShutdown",
    ControllerState.ISR_CHANGE: "IsrChange",
    ControllerState.LEADER_AND_ISR_RESPONSE_RECEIVED: "LeaderAndIsrResponseReceived",
    ControllerState.LOG_DIR_CHANGE: "LogDirChange",
    ControllerState.CONTROLLER_SHUTDOWN: "ControllerShutdown",
    ControllerState.UNCLEAN_LEADER_ELECTION_ENABLE: "UncleanLeaderElectionEnable",
    ControllerState.TOPIC_UNCLEAN_LEADER_ELECTION_ENABLE: "TopicUncleanLeaderElectionEnable",
    ControllerState.LIST_PARTITION_REASSIGNMENT: "ListPartitionReassignment",
    ControllerState.UPDATE_FEATURES: "UpdateFeatures",
}
"""Kafka's names of the timers; it has none for the answers to UpdateMetadata."""

_SESSION_METERS: Final = {
    "ZooKeeperAuthFailuresPerSec": "authfailures",
    "ZooKeeperDisconnectsPerSec": "disconnects",
    "ZooKeeperExpiresPerSec": "expires",
    "ZooKeeperReadOnlyConnectsPerSec": "readonlyconnects",
    "ZooKeeperSaslAuthenticationsPerSec": "saslauthentications",
    "ZooKeeperSyncConnectsPerSec": "syncconnects",
}
_SESSION_EVENTS: Final = {
    SessionEvent.AUTH_FAILED: "ZooKeeperAuthFailuresPerSec",
    SessionEvent.SUSPENDED: "ZooKeeperDisconnectsPerSec",
    SessionEvent.LOST: "ZooKeeperExpiresPerSec",
    SessionEvent.RECONNECTED: "ZooKeeperSyncConnectsPerSec",
    SessionEvent.NEW_SESSION: "ZooKeeperSyncConnectsPerSec",
}

_NO_MIGRATION: Final = 4
"""Kafka's number for a cluster that does not migrate to KRaft."""


class ClusterFigures:
    def __init__(self, server: MeasuredBroker, ledger: Ledger) -> None:
        self._server = server
        self._ledger = ledger
        self._sessions = {name: Meter(event, ledger.since_s) for name, event in _SESSION_METERS.items()}
        self._sessions["ZooKeeperSyncConnectsPerSec"].count = 1
        self._zookeeper_latencies = Histogram()
        self._census = Census()

    def start(self) -> None:
        """Begin to count what happens to the session."""
        self._server.zk.client.add_session_listener(self._on_session)

    def tick(self) -> None:
        for meter in self._sessions.values():
            meter.tick(self._ledger.ticks)
        for timer in self._server.controller.times.values():
            timer.tick(self._ledger.ticks)

    def _on_session(self, event: SessionEvent) -> None:
        self._sessions[_SESSION_EVENTS[event]].count += 1

    def zookeeper(self) -> MBeans:
        """Yield the session."""
        now_s = self._ledger.now_s
        state = "CONNECTED" if not self._server.is_zookeeper_away else "CONNECTING"
        yield from gauges("kafka.server", "SessionExpireListener", {"SessionState": state})
        for name, meter in self._sessions.items():
            yield MBean("kafka.server", "SessionExpireListener", name, (), meter.attributes(now_s, self._ledger.ticks))
        self.take_latencies(now_s)
        latencies = self._zookeeper_latencies.attributes()
        yield MBean("kafka.server", "ZooKeeperClientMetrics", "ZooKeeperRequestLatencyMs", (), latencies)

    def take_latencies(self, now_s: float) -> None:
        """Take in how long ZooKeeper took to answer."""
        latencies, histogram = self._server.zk.client.latencies, self._zookeeper_latencies
        histogram.take((1000 * took_s for took_s in latencies.recent_s), now_s)
        latencies.recent_s.clear()
        histogram.count, histogram.total = latencies.count, 1000 * latencies.total_s
        histogram.max = 1000 * latencies.slowest_s

    def look(self) -> Iterator[None]:
        """Count what the controller knows of partitions, if this broker is the one; yields after every few."""
        self._census = Census()
        if self._server.controller.is_active:
            self._census = yield from self._server.controller.core.context.census()

    def controller(self) -> MBeans:
        """Yield the controller's figures, whether this broker is the controller or not. Call ``look`` first."""
        now_s = self._ledger.now_s
        controller = self._server.controller
        context = controller.core.context
        is_active = controller.is_active
        census = self._census
        yield from gauges("kafka.controller", "KafkaController", {
            "ActiveBrokerCount": len(context.live_brokers) if is_active else 0,
            "ActiveControllerCount": int(is_active),
            "ControllerState": int(controller.state),
            "FencedBrokerCount": 0,
            "GlobalPartitionCount": sum(map(len, context.assignments.values())) if is_active else 0,
            "GlobalTopicCount": len(context.topics) if is_active else 0,
            "OfflinePartitionsCount": census.offline,
            "PreferredReplicaImbalanceCount": census.imbalanced,
            "ReplicasIneligibleToDeleteCount": census.undeletable,
            "ReplicasToDeleteCount": census.to_delete,
            "TopicsIneligibleToDeleteCount": len(context.topics_ineligible_for_deletion),
            "TopicsToDeleteCount": len(context.topics_to_be_deleted),
            "ZkMigrationState": _NO_MIGRATION,
        })  # fmt: skip
        for state, name in _CONTROLLER_TIMERS.items():
            timer = controller.times.get(state) or Timer(now_s, self._ledger.ticks)
            attributes = timer.attributes(now_s, self._ledger.ticks)
            yield MBean("kafka.controller", "ControllerStats", f"{name}RateAndTimeMs", (), attributes)
        unclean = self._ledger.meter("unclean elections", "elections", context.unclean_elections_total)
        yield MBean("kafka.controller", "ControllerStats", "UncleanLeaderElectionsPerSec", (), unclean)
        yield from gauges("kafka.controller", "ControllerEventManager", {"EventQueueSize": controller.event_queue_size})
        yield MBean(
            "kafka.controller", "ControllerEventManager", "EventQueueTimeMs", (), controller.queue_times_ms.attributes()
        )
        total = {"TotalQueueSize": controller.total_request_queue_size}
        yield from gauges("kafka.controller", "ControllerChannelManager", total)
        for broker_id, channel in list(controller.channels.items()):
            tags: Tags = (("broker-id", str(broker_id)),)
            yield connections(self._ledger, "controller-channel-metrics", tags, channel.totals)
            yield from gauges("kafka.controller", "ControllerChannelManager", {"QueueSize": channel.waiting}, tags)
            attributes = channel.times.attributes(now_s, self._ledger.ticks)
            yield MBean("kafka.controller", "ControllerChannelManager", "RequestRateAndQueueTimeMs", tags, attributes)

    def coordinators(self) -> MBeans:
        """Yield groups and transactions."""
        groups = list(self._server.group_coordinator.groups)
        states = Counter(group.state for group in groups)
        yield from gauges("kafka.coordinator.group", "GroupMetadataManager", {
            "NumGroups": len(groups),
            "NumGroupsCompletingRebalance": states[GroupState.COMPLETING_REBALANCE],
            "NumGroupsDead": states[GroupState.DEAD],
            "NumGroupsEmpty": states[GroupState.EMPTY],
            "NumGroupsPreparingRebalance": states[GroupState.PREPARING_REBALANCE],
            "NumGroupsStable": states[GroupState.STABLE],
            "NumOffsets": sum(len(group.offsets) for group in groups),
        })  # fmt: skip
        transactions = self._server.transaction_coordinator
        unknown, failed = transactions.waiting_markers
        yield from gauges("kafka.coordinator.transaction", "TransactionMarkerChannelManager", {
            "LogAppendRetryQueueSize": failed,
            "UnknownDestinationQueueSize": unknown,
        })  # fmt: skip
        for type_, owned in (
            ("group-coordinator-metrics", self._server.group_coordinator.groups),
            ("transaction-coordinator-metrics", transactions.transactions),
        ):
            loads = owned.load_times_ms
            totals: dict[str, object] = {
                "partition-load-time-avg": sum(loads) / len(loads) if loads else math.nan,
                "partition-load-time-max": max(loads, default=math.nan),
            }
            if type_.startswith("group"):
                totals |= self._group_totals()
            yield MBean("kafka.server", type_, None, (), totals)

    def _group_totals(self) -> dict[str, object]:
        now_s = self._ledger.now_s
        attributes: dict[str, object] = {}
        for name, total in self._server.group_coordinator.totals().items():
            attributes[f"{name}-count"] = float(total)
            attributes[f"{name}-rate"] = self._ledger.rate(name, now_s, total)
        return attributes
