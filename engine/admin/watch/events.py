"""What happened in a cluster between two frames. Values only; ``diff`` finds them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from engine.common.model import TopicPartition


class EventKind(StrEnum):
    BROKER_DOWN = "broker_down"
    BROKER_UP = "broker_up"
    BROKER_REREGISTERED = "broker_reregistered"
    """No frame saw it missing: it has restarted, or lost its session and got a new one."""
    BROKER_SILENT = "broker_silent"
    """It is registered, and no longer answers."""
    BROKER_ANSWERS = "broker_answers"
    """It was silent, and answers again."""
    CONTROLLER_MOVED = "controller_moved"
    FIRST_LEADER = "first_leader"
    """A new partition has got its first leader, and the ISR that comes with it."""
    LEADER_CHANGED = "leader_changed"
    PARTITION_OFFLINE = "partition_offline"
    """Its leader is gone, and no other was elected."""
    ISR_SHRANK = "isr_shrank"
    ISR_GREW = "isr_grew"
    ISR_CHANGED = "isr_changed"
    """Some replicas left it and others came."""
    TOPIC_CREATED = "topic_created"
    TOPIC_DELETED = "topic_deleted"
    TOPIC_DELETION_STARTED = "topic_deletion_started"
    TOPIC_RECREATED = "topic_recreated"
    """The same name with another topic id."""
    PARTITIONS_ADDED = "partitions_added"
    REASSIGNMENT_STARTED = "reassignment_started"
    REASSIGNMENT_CHANGED = "reassignment_changed"
    REASSIGNMENT_FINISHED = "reassignment_finished"
    REASSIGNMENT_CANCELLED = "reassignment_cancelled"
    TOPIC_CONFIG_CHANGED = "topic_config_changed"
    BROKER_CONFIG_CHANGED = "broker_config_changed"
    LOG_DIR_FAILED = "log_dir_failed"
    LOG_DIR_BACK = "log_dir_back"
    GROUP_APPEARED = "group_appeared"
    GROUP_VANISHED = "group_vanished"
    GROUP_STATE_CHANGED = "group_state_changed"
    GROUP_MEMBERS_CHANGED = "group_members_changed"
    """``before`` and ``after`` count them; ``reason`` names who came and who left."""
    GROUP_STALLED = "group_stalled"
    """It commits nothing though records wait for it, and that is not its pace."""
    GROUP_READS_AGAIN = "group_reads_again"
    CONNECTION_LOST = "connection_lost"
    """The feed lost ZooKeeper or the brokers; this says nothing about the cluster's state."""
    CONNECTION_BACK = "connection_back"


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened.

    Attributes:
        at_ms: when the feed saw it (wall clock).
        within_ms: it happened at most this long before that; what came and went between two looks is not seen at all.
        None: unknown, as after a lost connection.
        subject: what it happened to, for a person: ``orders-3``, ``broker 2``, ``group billing``.
        before, after: the old and the new value as text; empty if there is none.
        broker: the broker it is about, or None.
        topic, partition: the topic and partition it is about; ``partition`` is None for a whole topic.
        reason: why, if that follows from what is known (``broker 2 is down``); else empty.
    """

    at_ms: int
    kind: EventKind
    subject: str
    before: str = ""
    after: str = ""
    within_ms: int | None = None
    broker: int | None = None
    topic: str | None = None
    partition: int | None = None
    reason: str = ""

    @property
    def topic_partition(self) -> TopicPartition | None:
        """The partition it is about, or None."""
        return None if self.topic is None or self.partition is None else TopicPartition(self.topic, self.partition)
