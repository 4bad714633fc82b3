"""Znodes with which brokers tell the controller about ISR changes and failed log dirs. Codecs only."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from engine.common.model import TopicPartition
from engine.kafka.zk.znodes.admin_znodes import decode_partition_list, partition_list
from engine.kafka.zk.znodes.fields import Fields, encode_json


class IsrChangeNotificationZNode:
    """Parent of the ISR notifications; the controller watches its children."""

    path: Final = "/isr_change_notification"


class IsrChangeNotificationSequenceZNode:
    """Partitions whose leader wrote a new ISR to the state znode (0.9 up to IBP 2.7-IV1)."""

    prefix: Final = "isr_change_"
    create_path: Final = "/isr_change_notification/isr_change_"

    @staticmethod
    def path(name: str) -> str:
        return f"{IsrChangeNotificationZNode.path}/{name}"

    @staticmethod
    def encode(partitions: Iterable[TopicPartition]) -> bytes:
        return encode_json({"version": 1, "partitions": partition_list(partitions)})

    @staticmethod
    def decode(name: str, data: bytes) -> tuple[TopicPartition, ...]:
        return decode_partition_list(Fields.parse(IsrChangeNotificationSequenceZNode.path(name), data))


class LogDirEventNotificationZNode:
    """Parent of the log-dir notifications; the controller watches its children."""

    path: Final = "/log_dir_event_notification"


class LogDirEventNotificationSequenceZNode:
    """A broker says that one of its log dirs failed (KIP-112)."""

    prefix: Final = "log_dir_event_"
    create_path: Final = "/log_dir_event_notification/log_dir_event_"

    @staticmethod
    def path(name: str) -> str:
        return f"{LogDirEventNotificationZNode.path}/{name}"

    @staticmethod
    def encode(broker_id: int) -> bytes:
        return encode_json({"version": 1, "broker": broker_id, "event": 1})

    @staticmethod
    def decode(name: str, data: bytes) -> int:
        """Return the broker's id."""
        return Fields.parse(LogDirEventNotificationSequenceZNode.path(name), data).integer("broker")
