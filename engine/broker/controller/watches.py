"""What the active controller watches in ZooKeeper, and the event for each change.

This registers the callbacks; reading a znode arms them, which is why the core reads again after each event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from engine.broker.controller import events
from engine.broker.controller import instructions as do
from engine.broker.controller.events import ControllerEvent
from engine.kafka.zk.admin_nodes import DeleteTopicsZNode, PreferredReplicaElectionZNode, ReassignPartitionsZNode
from engine.kafka.zk.brokers import BrokerIdsZNode, BrokerIdZNode
from engine.kafka.zk.client import ZkClient
from engine.kafka.zk.notifications import IsrChangeNotificationZNode, LogDirEventNotificationZNode
from engine.kafka.zk.topics import TopicPartitionStateZNode, TopicsZNode, TopicZNode
from engine.kafka.zk.watches import WatchCallback, WatchEvent, WatchEventKind

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
