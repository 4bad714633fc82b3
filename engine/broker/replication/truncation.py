"""Where a follower cuts its log, given the leader's answer about a leader epoch: pure.

KIP-101 (cut by leader epoch, not at the high watermark), KIP-279 (both sides' epochs count), KIP-595 (the Fetch answer
says it). Source: Kafka 3.9.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

UNDEFINED_EPOCH = -1
UNDEFINED_EPOCH_OFFSET = -1


@dataclass(frozen=True, slots=True)
class Truncation:
    """Cut to ``offset``; if it is not complete, the follower has to ask the leader again, for an older epoch."""

    offset: int
    is_complete: bool

    def __str__(self) -> str:
        return f"TruncationState(offset={self.offset}, completed={str(self.is_complete).lower()})"


def truncation_for(
    leader_epoch: int,
    end_offset: int,
    *,
    fallback_offset: int,
    log_end_offset: int,
    end_offset_for_epoch: Callable[[int], tuple[int, int]],
) -> Truncation:
    """Return the cut for a leader's answer (``leader_epoch``, ``end_offset``).

    Args:
        leader_epoch: the leader's largest epoch at or below the requested one; -1 from leaders before 2.0.
        end_offset: the leader's end of that epoch; -1 if it knows none.
        fallback_offset: where to cut if the leader knows nothing: the follower's high watermark.
        log_end_offset: the follower's own end, which bounds the cut.
        end_offset_for_epoch: the follower's own (largest epoch <= the given one, its end offset); (-1, -1) if none.
    """
    if end_offset == UNDEFINED_EPOCH_OFFSET:
        return Truncation(fallback_offset, True)
    if leader_epoch == UNDEFINED_EPOCH:
        return Truncation(min(end_offset, log_end_offset), True)
    own_epoch, own_end_offset = end_offset_for_epoch(leader_epoch)
    if own_end_offset == UNDEFINED_EPOCH_OFFSET:
        # All own epochs are newer than the answer: with nothing to compare, the leader's end is the best guess.
        return Truncation(min(end_offset, log_end_offset), True)
    if own_epoch != leader_epoch:
        return Truncation(min(own_end_offset, log_end_offset), False)
    return Truncation(min(own_end_offset, end_offset, log_end_offset), True)
