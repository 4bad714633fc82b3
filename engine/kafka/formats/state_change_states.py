"""A partition's state as ``state-change.log`` prints it: six notations since Kafka 0.8.2, one value.

They are those of ``LeaderIsrAndControllerEpoch`` (``(Leader:1,ISR:1,2,LeaderEpoch:5,…)``), of ``LeaderAndIsr`` (JSON
until 1.0, ``LeaderAndIsr(leader=1, …)`` since), and of the partition states in LeaderAndIsr and UpdateMetadata
requests.
"""

from __future__ import annotations

import json
import re
from typing import NamedTuple


class PrintedState(NamedTuple):
    """Leadership of a partition. Fields that a notation lacks are None; ``partition_epoch`` is the znode's version."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int | None = None
    controller_epoch: int | None = None
    is_recovering: bool | None = None
    """Whether the leader was elected out of sync and has not recovered; known since 3.2."""


_LEADER_ISR = re.compile(
    r"\(Leader:(-?\d{1,10}),ISR:([\d,]*),(?:LeaderRecoveryState:(\w+),)?LeaderEpoch:(-?\d{1,10})(?:,ZkVersion:(-?\d{1,10}))?"
    r",ControllerEpoch:(-?\d{1,10})\)"
)
_LEADER_AND_ISR = re.compile(
    r"LeaderAndIsr\(leader=(-?\d{1,10}), leaderEpoch=(-?\d{1,10}), "
    r"(?:isr=\w+\(([\d, ]*)\)|isrWithBrokerEpoch=\w+\(((?:BrokerState\([^)]*\)(?:, )?)*)\))"
    r"(?:, leaderRecoveryState=(\w+))?, (?:zkVersion|partitionEpoch)=(-?\d{1,10})\)"
)
_REQUEST_STATE = re.compile(
    r"controllerEpoch=(-?\d{1,10}), leader=(-?\d{1,10}), leaderEpoch=(-?\d{1,10}), isr=\[?([\d, ]*?)\]?"
    r", (?:zkVersion|partitionEpoch)=(-?\d{1,10})\b(?:.*?leaderRecoveryState=(\d))?"
)
_JSON_STATE = re.compile(r"\{(?=[^{}]*\"leader\")[^{}]*+\}")
_BROKER_ID = re.compile(r"brokerId=(\d{1,10})")
_ID = re.compile(r"\d{1,10}")


def state_in(message: str) -> PrintedState | None:
    """Return the first state in a message, or None if it has none."""
    if "Leader:" in message:
        return _from_leader_isr(message)
    if "LeaderAndIsr(leader=" in message:
        return _from_leader_and_isr(message)
    if "leaderEpoch=" in message:
        return _from_request(message)
    if '"leader"' in message:
        return _from_json(message)
    return None


def broker_ids(text: str) -> tuple[int, ...]:
    """Return the ids in a list such as ``1,2`` or ``[1, 2]``."""
    return tuple(map(int, _ID.findall(text)))


def _is_recovering(word: str | None) -> bool | None:
    return None if word is None else word in ("RECOVERING", "1")


def _from_leader_isr(message: str) -> PrintedState | None:
    match = _LEADER_ISR.search(message)
    if match is None:
        return None
    leader, isr, recovery, leader_epoch, zk_version, controller_epoch = match.groups()
    return PrintedState(
        int(leader),
        int(leader_epoch),
        broker_ids(isr),
        int(zk_version) if zk_version is not None else None,
        int(controller_epoch),
        _is_recovering(recovery),
    )


def _from_leader_and_isr(message: str) -> PrintedState | None:
    match = _LEADER_AND_ISR.search(message)
    if match is None:
        return None
    leader, leader_epoch, ids, brokers, recovery, partition_epoch = match.groups()
    isr = broker_ids(ids) if brokers is None else tuple(map(int, _BROKER_ID.findall(brokers)))
    return PrintedState(
        int(leader), int(leader_epoch), isr, int(partition_epoch), is_recovering=_is_recovering(recovery)
    )


def _from_request(message: str) -> PrintedState | None:
    match = _REQUEST_STATE.search(message)
    if match is None:
        return None
    controller_epoch, leader, leader_epoch, isr, partition_epoch, recovery = match.groups()
    return PrintedState(
        int(leader),
        int(leader_epoch),
        broker_ids(isr),
        int(partition_epoch),
        int(controller_epoch),
        _is_recovering(recovery),
    )


def _from_json(message: str) -> PrintedState | None:
    match = _JSON_STATE.search(message)
    if match is None:
        return None
    try:
        document = json.loads(match[0])
        return PrintedState(
            int(document["leader"]),
            int(document["leader_epoch"]),
            tuple(map(int, document["isr"])),
            controller_epoch=document.get("controller_epoch"),
        )
    except (ValueError, KeyError, TypeError):
        return None
