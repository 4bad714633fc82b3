"""Where a follower cuts its log, given what the leader says of a leader epoch: pure.

KIP-101 (cut by leader epoch, not by high watermark), KIP-279 (both sides' epochs count), KIP-595 (the leader tells it
in the Fetch answer). Source: Kafka 3.9.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

UNDEFINED_EPOCH = -1
UNDEFINED_EPOCH_OFFSET = -1


@dataclass(frozen=True, slots=True)
class Truncation:
    """Cut to ``offset``; when it is not complete, the leader has to be asked once more, for an older epoch."""

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
        leader_epoch: largest epoch the leader knows at or below the one asked for; -1 from leaders before 2.0.
        end_offset: the leader's end of that epoch; -1 when it knows none.
        fallback_offset: where to cut when the leader knows nothing: the follower's high watermark.
        log_end_offset: the follower's own end; nothing is ever cut above it.
        end_offset_for_epoch: the follower's own (largest epoch <= asked, its end offset); (-1, -1) when it has none.
    """
    if end_offset == UNDEFINED_EPOCH_OFFSET:
        return Truncation(fallback_offset, True)
    if leader_epoch == UNDEFINED_EPOCH:
        return Truncation(min(end_offset, log_end_offset), True)
    own_epoch, own_end_offset = end_offset_for_epoch(leader_epoch)
    if own_end_offset == UNDEFINED_EPOCH_OFFSET:
        # All own epochs are younger than the leader's answer: nothing to compare, the leader's end is the best guess.
        return Truncation(min(end_offset, log_end_offset), True)
    if own_epoch != leader_epoch:
        return Truncation(min(own_end_offset, log_end_offset), False)
    return Truncation(min(own_end_offset, end_offset, log_end_offset), True)
