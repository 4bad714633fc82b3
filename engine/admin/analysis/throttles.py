"""What replication throttles do to the reassignments under way: whether a throttle limits them or never lets them end.

Pure. A throttle limits what a broker sends (leader) and takes (follower) of the replicas that topics list as throttled.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from engine.admin.analysis.moves import CopyProgress, CopyState, MovesBoard, throttle_of
from engine.admin.watch.frame import Frame
from engine.common.model import TopicPartition

GOAL_S = 3_600
"""A suggested rate copies what is left within an hour, together with what is produced."""
_AT_LIMIT, _FAR_BELOW = 0.85, 0.25
"""Two copies that a throttle held up were seen to use 45 % of it: only far below that is it known not to be the limit.
"""
_ROUND_TO = 1_000_000


class ThrottleVerdict(StrEnum):
    """What a throttle does."""

    NEVER_ENDS = "can never finish"
    """At least as much is produced to the moving partitions as the throttle lets through."""
    IS_THE_LIMIT = "is the limit"
    NOT_THE_LIMIT = "is not what holds it up"
    UNKNOWN = "may be the limit or not"


@dataclass(frozen=True, slots=True)
class ThrottleAdvice:
    """One throttled side of one broker. Rates are bytes a second.

    Attributes:
        is_leader: what it sends; else what it takes.
        rate: the throttle; ``used`` what is copied through it, None: not measured yet.
        inflow: what is produced to the partitions that are copied through it.
        remaining_bytes: what is left to copy through it.
        left_s: how long that takes at the throttle's full rate; None: forever.
        suggested_rate: the rate at which it ends within an hour, if it never does under the throttle; else None.
    """

    broker: int
    is_leader: bool
    rate: int
    used: float | None
    inflow: float
    remaining_bytes: int
    verdict: ThrottleVerdict
    left_s: float | None
    suggested_rate: int | None


def throttle_advice(frame: Frame, moves: MovesBoard) -> list[ThrottleAdvice]:
    """Return the throttles that copies go through, beginning with those that never let them end."""
    found: list[ThrottleAdvice] = []
    going = [copy for copy in moves.copies if copy.state is not CopyState.DONE]
    for is_leader in (True, False):
        by_throttle: dict[tuple[int, int], list[CopyProgress]] = {}
        for one in going:
            broker = one.source if is_leader else one.broker
            if (rate := throttle_of(frame, one.name, broker, is_leader=is_leader)) is not None:
                by_throttle.setdefault((broker, rate), []).append(one)
        found += [_advice(*throttle, copies, is_leader=is_leader) for throttle, copies in by_throttle.items()]
    found = [
        replace(verdict, verdict=ThrottleVerdict.UNKNOWN)
        if verdict.verdict is ThrottleVerdict.NOT_THE_LIMIT and _is_shared(frame, verdict)
        else verdict
        for verdict in found
    ]
    order = list(ThrottleVerdict)
    return sorted(found, key=lambda one: (order.index(one.verdict), one.broker, not one.is_leader))


def _is_shared(frame: Frame, advice: ThrottleAdvice) -> bool:
    """Whether replicas that do not move, and are out of the ISR, are copied through a throttle too."""
    for topic in () if frame.cluster is None else frame.cluster.topics:
        for partition in topic.partitions if topic.configs else ():
            if len(partition.isr) == len(partition.replicas):
                continue
            out = {*partition.replicas} - {*partition.isr, *partition.assignment.adding_replicas}
            is_through = partition.leader == advice.broker if advice.is_leader else advice.broker in out
            name = TopicPartition(topic.name, partition.partition)
            if out and is_through and throttle_of(frame, name, advice.broker, is_leader=advice.is_leader) is not None:
                return True
    return False


def _advice(broker: int, rate: int, copies: list[CopyProgress], *, is_leader: bool) -> ThrottleAdvice:
    inflow = sum(copy.inflow or 0.0 for copy in copies)
    remaining = sum((copy.total_bytes or 0) - (copy.copied_bytes or 0) for copy in copies)
    rates = [copy.rate for copy in copies if copy.rate is not None]
    used = sum(rates) if rates else None
    steady_rates = [copy.steady_rate for copy in copies if copy.steady_rate is not None]
    steady = sum(steady_rates) if len(steady_rates) == len(copies) else None
    left_s = remaining / (rate - inflow) if rate > inflow else None
    if rate <= inflow:
        verdict = ThrottleVerdict.NEVER_ENDS
    elif used is None:
        verdict = ThrottleVerdict.UNKNOWN
    elif used >= rate * _AT_LIMIT:
        verdict = ThrottleVerdict.IS_THE_LIMIT
    elif steady is not None and max(used, steady) < rate * _FAR_BELOW:
        verdict = ThrottleVerdict.NOT_THE_LIMIT
    else:
        verdict = ThrottleVerdict.UNKNOWN
    wanted = inflow + remaining / GOAL_S
    is_too_low = verdict in (ThrottleVerdict.NEVER_ENDS, ThrottleVerdict.IS_THE_LIMIT) and wanted > rate
    suggested = -(-int(wanted + 1) // _ROUND_TO) * _ROUND_TO if is_too_low else None
    return ThrottleAdvice(broker, is_leader, rate, used, inflow, remaining, verdict, left_s, suggested)
