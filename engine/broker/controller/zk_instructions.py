"""Carries out what the core asks of ZooKeeper: reads and writes, and watches with the event for each change.

It decides nothing. A failed epoch check and a lost session mean the same to the core: this broker is no longer the
controller. Only reading a znode arms its watch, which is why the core reads again after each event.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any, TypeVar

from engine.broker.controller import events
from engine.broker.controller import instructions as do
from engine.broker.controller.context import ControllerEpoch
from engine.broker.controller.dispatch import Row, on, table
from engine.broker.controller.events import ControllerEvent
from engine.broker.controller.instructions import AdminRequest, Instruction
from engine.broker.controller.logs import controller_log
from engine.broker.controller.options import ControllerOptions
from engine.common.errors import CoordinationError
from engine.kafka.zk.admin_nodes import DeleteTopicsZNode, PreferredReplicaElectionZNode, ReassignPartitionsZNode
from engine.kafka.zk.brokers import BrokerIdsZNode, BrokerIdZNode
from engine.kafka.zk.client import ZkClient
from engine.kafka.zk.cluster import FeatureStatus, FinalizedFeatures
from engine.kafka.zk.errors import ControllerMoved, SessionLost, ZnodeFormatError
from engine.kafka.zk.kafka_client import KafkaZkClient
from engine.kafka.zk.notifications import IsrChangeNotificationZNode, LogDirEventNotificationZNode
from engine.kafka.zk.topics import TopicPartitionStateZNode, TopicsZNode, TopicZNode
from engine.kafka.zk.watches import WatchCallback, WatchEvent, WatchEventKind

T = TypeVar("T")

_UNCLEAN = "unclean.leader.election.enable"


class ZkInstructions:
    """The ZooKeeper half of the loop, for one term as controller."""

    def __init__(
        self,
        zk: KafkaZkClient,
        options: ControllerOptions,
        epoch: ControllerEpoch,
        unclean_by_default: Callable[[], bool],
    ) -> None:
        self._zk = zk
        self._options = options
        self._epoch = epoch
        self._unclean_by_default = unclean_by_default
        self._log = controller_log(options.controller_id)
        self._table = table(*self._reads(), *self._writes())

    async def perform(self, instruction: Instruction[Any]) -> Any:
        """Carry out one instruction and return its result.

        Raises:
            ControllerMoved: the epoch check failed, or the session ended.
            CoordinationError: ZooKeeper refused it for another reason.
        """
        try:
            return await self._table[type(instruction)](instruction)
        except SessionLost as error:
            raise ControllerMoved(str(error)) from error

    def _reads(self) -> list[Row[Awaitable[object]]]:
        zk = self._zk
        return [
            on(do.ReadBrokers, lambda _: zk.brokers.get_all_brokers_with_epochs()),
            on(do.ReadBroker, lambda read: zk.brokers.get_broker(read.broker_id)),
            on(do.ReadTopics, lambda _: zk.topics.get_all_topics()),
            on(do.ReadTopicAssignments, lambda read: zk.topics.get_topic_assignments(read.topics)),
            on(do.ReadPartitionIds, lambda read: zk.partitions.get_partition_ids(read.topic)),
            on(do.ReadPartitionStates, lambda read: zk.partitions.get_partition_states(read.partitions)),
            on(do.ReadTopicDeletions, lambda _: zk.admin.get_topic_deletions()),
            on(do.ReadReassignments, lambda _: _admin_request(zk.admin.get_reassignments(), {})),
            on(do.ReadPreferredElection, lambda _: _admin_request(zk.admin.get_preferred_election(), ())),
            on(do.ReadIsrChangeNotifications, lambda _: zk.notifications.get_isr_change_notifications()),
            on(do.ReadLogDirEvents, lambda _: zk.notifications.get_log_dir_events()),
            on(do.ReadUncleanElectionEnabled, lambda read: self._read_unclean_election_enabled(read.topics)),
        ]

    def _writes(self) -> list[Row[Awaitable[object]]]:
        zk, guard = self._zk, self._epoch.zk_version
        return [
            on(do.CreatePartitionStates, lambda write: zk.partitions.create_partition_states(write.states, guard)),
            on(
                do.UpdateLeaderAndIsr,
                lambda write: zk.partitions.update_partition_states(write.states, self._epoch.controller_epoch, guard),
            ),
            on(do.SetTopicAssignments, self._set_topic_assignments),
            on(do.DeleteTopicZNodes, self._delete_topic_znodes),
            on(do.DeleteTopicDeletions, lambda write: zk.admin.delete_topic_deletions(write.topics, guard)),
            on(do.SetReassignments, lambda write: zk.admin.set_reassignments(write.reassignments, guard)),
            on(do.DeletePreferredElection, lambda _: zk.admin.delete_preferred_election(guard)),
            on(
                do.DeleteIsrChangeNotifications,
                lambda write: zk.notifications.delete_isr_change_notifications(write.names, guard),
            ),
            on(do.DeleteLogDirEvents, lambda write: zk.notifications.delete_log_dir_events(write.names, guard)),
            on(do.SetUpFeatures, lambda _: self._set_up_features()),
            on(do.AllocateProducerIdBlock, lambda write: zk.cluster.allocate_producer_id_block(write.broker_id)),
        ]

    async def _set_topic_assignments(self, wanted: do.SetTopicAssignments) -> list[str]:
        """Write assignments and return the topics that could not be written."""
        outcomes = await self._zk.topics.set_topic_assignments(wanted.assignments, self._epoch.zk_version)
        return [topic for topic, outcome in outcomes.items() if not isinstance(outcome, int)]

    async def _delete_topic_znodes(self, deleted: do.DeleteTopicZNodes) -> None:
        guard = self._epoch.zk_version
        await self._zk.topics.delete_topic_znode(deleted.topic, guard)
        await self._zk.topics.delete_topic_configs((deleted.topic,), guard)
        await self._zk.admin.delete_topic_deletions((deleted.topic,), guard)

    async def _read_unclean_election_enabled(self, topics: tuple[str, ...]) -> dict[str, bool | CoordinationError]:
        default = self._unclean_by_default()
        enabled: dict[str, bool | CoordinationError] = {}
        for topic, overrides in (await self._zk.configs.get_topic_configs(topics)).items():
            if isinstance(overrides, CoordinationError):
                enabled[topic] = overrides
            else:
                text = overrides.get(_UNCLEAN)
                enabled[topic] = default if text is None else text.strip().lower() == "true"
        return enabled

    async def _set_up_features(self) -> None:
        before = await self._zk.cluster.get_features()
        enabled = self._options.is_feature_versioning_supported
        status = FeatureStatus.ENABLED if enabled else FeatureStatus.DISABLED
        await self._zk.cluster.set_up_features(status, self._options.feature_znode_version)
        after = await self._zk.cluster.get_features()
        if after is not None and after != before:
            verb = "Creating" if before is None else "Updating"
            self._log.info(f"{verb} FeatureZNode at path: /feature with contents: {_features_text(after)}")


async def _admin_request(reading: Awaitable[T | None], nothing: T) -> AdminRequest[T] | None:
    """Return what is requested through a znode; None if it does not exist."""
    try:
        request = await reading
    except ZnodeFormatError as error:
        return AdminRequest(nothing, str(error))
    return None if request is None else AdminRequest(request)


def _features_text(features: FinalizedFeatures) -> str:
    levels = ", ".join(f"{name} -> {level}" for name, level in features.features.items())
    return f"FeatureZNode({features.json_version},{features.status.name.capitalize()},Map({levels}))"


_CHILDREN: tuple[tuple[str, ControllerEvent], ...] = (
    (BrokerIdsZNode.path, events.BrokerChange()),
    (TopicsZNode.path, events.TopicChange()),
    (DeleteTopicsZNode.path, events.TopicDeletionRequested()),
    (LogDirEventNotificationZNode.path, events.LogDirEventNotification()),
    (IsrChangeNotificationZNode.path, events.IsrChangeNotification()),
)
_REQUESTS: tuple[tuple[str, ControllerEvent], ...] = (
    (PreferredReplicaElectionZNode.path, events.ZkPreferredElection()),
    (ReassignPartitionsZNode.path, events.ZkPartitionReassignment()),
)
_CONTENT = (WatchEventKind.CREATED, WatchEventKind.DATA_CHANGED)


class ControllerWatches:
    """The watches of one term as controller. None of them outlives it."""

    def __init__(self, client: ZkClient, on_event: Callable[[ControllerEvent], None]) -> None:
        self._client = client
        self._on_event = on_event
        self._callbacks: dict[str, WatchCallback] = {}

    async def perform(self, instruction: do.WatchInstruction) -> None:
        match instruction:
            case do.WatchCluster():
                await self._watch_cluster()
            case do.WatchBrokers(broker_ids):
                await self._watch_brokers(broker_ids)
            case do.UnwatchBrokers(broker_ids):
                for broker_id in broker_ids:
                    self._unwatch(BrokerIdZNode.path(broker_id))
            case do.WatchTopics(topics):
                for topic in topics:
                    self._watch_data(TopicZNode.path(topic), events.PartitionModifications(topic))
            case do.UnwatchTopics(topics):
                for topic in topics:
                    self._unwatch(TopicZNode.path(topic))
            case do.WatchPartitionState(partition):
                path = TopicPartitionStateZNode.path(partition)
                self._watch_data(path, events.PartitionReassignmentIsrChange(partition))
                await self._client.exists(path)
            case do.UnwatchPartitionState(partition):
                self._unwatch(TopicPartitionStateZNode.path(partition))

    async def _watch_cluster(self) -> None:
        """Watch what every controller watches; nodes of ``/admin`` are armed at once, because they may not exist."""
        for path, event in _CHILDREN:
            self._callbacks[path] = partial(self._on_children, event)
            self._client.watch_children(path, self._callbacks[path])
        for path, event in _REQUESTS:
            self._watch_data(path, event)
            await self._client.exists(path)

    async def _watch_brokers(self, broker_ids: tuple[int, ...]) -> None:
        for broker_id in broker_ids:
            self._watch_data(BrokerIdZNode.path(broker_id), events.BrokerModification(broker_id))
        await self._client.exists_many([BrokerIdZNode.path(b) for b in broker_ids])

    def retire(self) -> Iterator[None]:
        """Forget every watch, one with each step: 50,000 hold the event loop for 60 ms or more."""
        for path in list(self._callbacks):
            self._unwatch(path)
            yield

    def _watch_data(self, path: str, event: ControllerEvent) -> None:
        if path not in self._callbacks:
            self._callbacks[path] = partial(self._on_data, event)
            self._client.watch_data(path, self._callbacks[path])

    def _unwatch(self, path: str) -> None:
        callback = self._callbacks.pop(path, None)
        if callback is not None:
            self._client.unwatch(path, callback)

    def _on_children(self, event: ControllerEvent, notice: WatchEvent) -> None:
        if notice.kind is not WatchEventKind.NEW_SESSION:
            self._on_event(event)

    def _on_data(self, event: ControllerEvent, notice: WatchEvent) -> None:
        if notice.kind in _CONTENT:
            self._on_event(event)
