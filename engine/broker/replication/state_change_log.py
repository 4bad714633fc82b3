"""The lines that a broker writes to ``state-change.log``, in Kafka 3.9's own words.

It has only the sentences; the callers decide when. The server sets up handlers, levels and files.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from engine.common.model import TopicPartition
from engine.common.topic_id import ZERO_TOPIC_ID, topic_id_text
from engine.kafka.protocol.apis.leader_and_isr import LeaderAndIsrPartitionState

TRACE = 5
"""Kafka's TRACE: below Python's DEBUG."""

logging.addLevelName(TRACE, "TRACE")


def topic_id_option(topic_id: bytes | None) -> str:
    """Return a topic id as Scala prints an optional one: ``Some(<22 characters>)`` or ``None``."""
    return "None" if topic_id is None or topic_id == ZERO_TOPIC_ID else f"Some({topic_id_text(topic_id)})"


def id_option(value: int | None) -> str:
    """Return a number as Scala prints an optional one."""
    return "None" if value is None else f"Some({value})"


def ids_text(replicas: Iterable[int]) -> str:
    """Return replica ids as Kafka lists them: ``[1,2]``."""
    return "[" + ",".join(map(str, replicas)) + "]"


def partition_state_text(topic_partition: TopicPartition, state: LeaderAndIsrPartitionState) -> str:
    """Return the state as Kafka 3.9 prints it in its logs."""
    return (
        f"LeaderAndIsrPartitionState(topicName='{topic_partition.topic}', "
        f"partitionIndex={topic_partition.partition}, controllerEpoch={state.controller_epoch}, "
        f"leader={state.leader}, leaderEpoch={state.leader_epoch}, isr={list(state.isr)}, "
        f"partitionEpoch={state.partition_epoch}, replicas={list(state.replicas)}, "
        f"addingReplicas={list(state.adding_replicas)}, removingReplicas={list(state.removing_replicas)}, "
        f"isNew={str(state.is_new).lower()}, leaderRecoveryState={state.leader_recovery_state})"
    )


class StateChangeLogger:
    """``state.change.logger`` with the prefix of one broker."""

    def __init__(self, broker_id: int) -> None:
        self._logger = logging.getLogger("state.change.logger")
        self._prefix = f"[Broker id={broker_id}] "

    @property
    def is_tracing(self) -> bool:
        """Whether per-partition lines are wanted: they are expensive to make."""
        return self._logger.isEnabledFor(TRACE)

    def trace(self, sentence: str) -> None:
        self._logger.log(TRACE, "%s%s", self._prefix, sentence)

    def info(self, sentence: str) -> None:
        self._logger.info("%s%s", self._prefix, sentence)

    def warning(self, sentence: str) -> None:
        self._logger.warning("%s%s", self._prefix, sentence)

    def error(self, sentence: str, cause: BaseException | None = None) -> None:
        self._logger.error("%s%s", self._prefix, sentence, exc_info=cause)
