"""The controller's log lines: Kafka's logger names, its prefixes, and how it writes values (Kafka 3.9).

People and tools that know Kafka's wording read controller.log and state-change.log, so these loggers may write nothing
else. Where the lines go is not decided here.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from typing import Any

from engine.common.listing import listed
from engine.common.model import LeaderAndIsr, LeaderIsrAndControllerEpoch, ReplicaAssignment

TRACE = 5
"""Kafka's TRACE, for which Python's logging has no name."""


class PrefixedLogger:
    """A logger whose lines all start with the same words in brackets."""

    __slots__ = ("_logger", "_prefix")

    def __init__(self, name: str, prefix: str) -> None:
        self._logger = logging.getLogger(name)
        self._prefix = prefix

    @property
    def is_trace_enabled(self) -> bool:
        return self._logger.isEnabledFor(TRACE)

    @property
    def is_debug_enabled(self) -> bool:
        return self._logger.isEnabledFor(logging.DEBUG)

    def trace(self, message: str) -> None:
        self._logger.log(TRACE, self._prefix + message)

    def debug(self, message: str) -> None:
        self._logger.debug(self._prefix + message)

    def info(self, message: str, error: BaseException | None = None) -> None:
        self._logger.info(self._prefix + message, exc_info=error)

    def warning(self, message: str, error: BaseException | None = None) -> None:
        self._logger.warning(self._prefix + message, exc_info=error)

    def error(self, message: str, error: BaseException | None = None) -> None:
        self._logger.error(self._prefix + message, exc_info=error)


@lru_cache(maxsize=64)
def state_change_log(controller_id: int, controller_epoch: int | None) -> PrefixedLogger:
    """Return state-change.log as the controller writes it; some code paths do not know the epoch."""
    epoch = "" if controller_epoch is None else f" epoch={controller_epoch}"
    return PrefixedLogger("state.change.logger", f"[Controller id={controller_id}{epoch}] ")


def controller_log(controller_id: int) -> PrefixedLogger:
    return PrefixedLogger("kafka.controller.KafkaController", f"[Controller id={controller_id}] ")


def partition_machine_log(controller_id: int) -> PrefixedLogger:
    return PrefixedLogger(
        "kafka.controller.ZkPartitionStateMachine", f"[PartitionStateMachine controllerId={controller_id}] "
    )


def replica_machine_log(controller_id: int) -> PrefixedLogger:
    return PrefixedLogger(
        "kafka.controller.ZkReplicaStateMachine", f"[ReplicaStateMachine controllerId={controller_id}] "
    )


def topic_deletion_log(controller_id: int) -> PrefixedLogger:
    return PrefixedLogger("kafka.controller.TopicDeletionManager", f"[Topic Deletion Manager {controller_id}] ")


def request_batch_log() -> PrefixedLogger:
    return PrefixedLogger("kafka.controller.ControllerBrokerRequestBatch", "")


def channel_manager_log(controller_id: int) -> PrefixedLogger:
    return PrefixedLogger(
        "kafka.controller.ControllerChannelManager", f"[Channel manager on controller {controller_id}]: "
    )


def request_send_log(controller_id: int) -> PrefixedLogger:
    return PrefixedLogger("kafka.controller.RequestSendThread", f"[RequestSendThread controllerId={controller_id}] ")


def event_log(controller_id: int) -> PrefixedLogger:
    return PrefixedLogger(
        "kafka.controller.ControllerEventManager$ControllerEventThread",
        f"[ControllerEventThread controllerId={controller_id}] ",
    )


def comma(values: Iterable[object]) -> str:
    """Scala's ``mkString(",")``; values beyond ``LISTED_MAX`` are counted, as below."""
    return ",".join(listed(_sized(values)))


def scala(name: str, values: Iterable[object]) -> str:
    """A Scala collection: ``Set(1, 2)``."""
    return f"{name}({', '.join(listed(_sized(values)))})"


def scala_map(name: str, values: Mapping[Any, object]) -> str:
    """A Scala map: ``Map(a -> 1, b -> 2)``."""
    entries = listed(values.items(), lambda entry: f"{entry[0]} -> {entry[1]}")
    return f"{name}({', '.join(entries)})"


def _sized(values: Iterable[object]) -> Collection[object]:
    return values if isinstance(values, Collection) else list(values)


def leader_and_isr_text(state: LeaderAndIsr) -> str:
    """Kafka 3.5 to 3.9's LeaderAndIsr; broker epochs of ISR members are unknown in ZooKeeper mode."""
    isr = scala("List", (f"BrokerState(brokerId={replica}, brokerEpoch=-1)" for replica in state.isr))
    return (
        f"LeaderAndIsr(leader={state.leader}, leaderEpoch={state.leader_epoch}, isrWithBrokerEpoch={isr}, "
        f"leaderRecoveryState={state.leader_recovery_state.name}, partitionEpoch={state.partition_epoch})"
    )


def leadership_text(leadership: LeaderIsrAndControllerEpoch) -> str:
    """Kafka 3.2 to 3.9's LeaderIsrAndControllerEpoch."""
    state = leadership.leader_and_isr
    return (
        f"(Leader:{state.leader},ISR:{comma(state.isr)},LeaderRecoveryState:{state.leader_recovery_state.name},"
        f"LeaderEpoch:{state.leader_epoch},ZkVersion:{state.partition_epoch},"
        f"ControllerEpoch:{leadership.controller_epoch})"
    )


def assignment_text(assignment: ReplicaAssignment) -> str:
    return (
        f"ReplicaAssignment(replicas={comma(assignment.replicas)}, "
        f"addingReplicas={comma(assignment.adding_replicas)}, "
        f"removingReplicas={comma(assignment.removing_replicas)})"
    )
