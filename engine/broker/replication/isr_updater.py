"""The seam between a leader that wants another ISR and the code that carries it out.

Two implementations: ``alter_partition`` asks the controller (inter-broker protocol 2.7-IV2 and later), ``zk_isr``
writes the partition's state znode (earlier).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from engine.common.errors import ErrorCode
from engine.common.model import LeaderAndIsr, TopicPartition


@dataclass(frozen=True, slots=True)
class IsrUpdate:
    """A requested change. ``leader_and_isr.partition_epoch`` is the one it is based on; ``topic_id`` may be zero."""

    topic_partition: TopicPartition
    topic_id: bytes
    leader_and_isr: LeaderAndIsr
    controller_epoch: int


IsrOutcome = LeaderAndIsr | ErrorCode
"""The outcome: the partition's state with its new epoch, or why there is none."""


class IsrUpdater(Protocol):
    """Carries ISR changes out, one at a time per partition."""

    def submit(self, update: IsrUpdate, on_done: Callable[[IsrOutcome], None], *, is_retry: bool = False) -> None:
        """Begin the change; the event loop calls ``on_done`` once, later, never within this call.

        ``is_retry`` says that the same change failed a moment ago, so that a pause is due.
        """
