"""Logs by partition and by topic: a change of a topic's settings must not have to look at every log."""

from __future__ import annotations

from engine.broker.log.log import Log
from engine.common.model import TopicPartition


class LogTable(dict[TopicPartition, Log]):
    """A dict that also knows its logs by topic. Do not call ``popitem``, ``update`` or ``clear`` on it."""

    def __init__(self) -> None:
        super().__init__()
        self._by_topic: dict[str, dict[TopicPartition, Log]] = {}

    def of_topic(self, topic: str) -> list[Log]:
        """Return the logs of a topic's partitions."""
        return list(self._by_topic.get(topic, {}).values())

    def __setitem__(self, topic_partition: TopicPartition, log: Log) -> None:
        super().__setitem__(topic_partition, log)
        self._by_topic.setdefault(topic_partition.topic, {})[topic_partition] = log

    def __delitem__(self, topic_partition: TopicPartition) -> None:
        super().__delitem__(topic_partition)
        of_topic = self._by_topic[topic_partition.topic]
        del of_topic[topic_partition]
        if not of_topic:
            del self._by_topic[topic_partition.topic]

    def setdefault(self, topic_partition: TopicPartition, log: Log) -> Log:
        """Return the partition's log; if there is none, store ``log`` as it."""
        known = super().setdefault(topic_partition, log)
        if known is log:
            self[topic_partition] = log
        return known

    def pop(self, topic_partition: TopicPartition) -> Log | None:  # type: ignore[override]
        """Remove a partition's log and return it, or None if there is none."""
        log = self.get(topic_partition)
        if log is not None:
            del self[topic_partition]
        return log
