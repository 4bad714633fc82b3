"""What replication throttles do to the reassignments under way: whether a throttle limits them or never lets them end.

Pure. A throttle limits what a broker sends (leader) and receives (follower) of the replicas that topics list as
throttled.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from engine.admin.analysis.moves import CopyProgress, CopyState, MovesBoard, throttle_of
from engine.admin.reassignment.throttle_settings import REPLICA_LISTS
from engine.admin.watch.frame import Frame
from engine.common.model import TopicPartition
from engine.common.quantities import counted, rate_text

GOAL_S = 3_600
"""A suggested rate copies what is left within an hour, together with what is produced."""
_AT_LIMIT, _FAR_BELOW = 0.85, 0.25
"""Two copies that a throttle held up were seen to use 45 % of it: only far below that is it known not to be the limit.
"""
_ROUND_TO = 1_000_000
_TOPICS_MAX, _BROKERS_MAX = 3, 8
"""More than this many are counted, not named."""


class ThrottleVerdict(StrEnum):
    NEVER_ENDS = "the move can never finish"
    """At least as much is produced to the moving partitions as the throttle lets through."""
    IS_THE_LIMIT = "the throttle is the limit"
    NOT_THE_LIMIT = "the throttle is not what holds the move up"
    UNKNOWN = "the throttle may be the limit or not"


@dataclass(frozen=True, slots=True)
class ThrottleAdvice:
    """One throttled side of one broker. Rates are bytes a second.

    Attributes:
        is_leader: what it sends; else what it receives.
        rate: the throttle; ``used`` what is copied through it, None: not measured yet.
        inflow: what is produced to the partitions that are copied through it.
        remaining_bytes: what is left to copy through it.
        left_s: how long that takes at the throttle's full rate; None: forever.
        suggested_rate: a rate at which it ends within an hour, in whole MB/s; None: it does at this one, or the
            throttle is not what holds it up.
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

    @property
    def is_burst(self) -> bool:
        """Whether more goes through it now than it allows in the long run: brokers pause after that."""
        return self.used is not None and self.used > 2 * self.rate

    @property
    def holds_up(self) -> bool:
        """Whether it is too low to be meant: the copies never end under it, or it is a crawl."""
        is_crawl = self.suggested_rate is not None and self.rate < _ROUND_TO
        return self.verdict is ThrottleVerdict.NEVER_ENDS or is_crawl


def throttle_advice(frame: Frame, moves: MovesBoard) -> list[ThrottleAdvice]:
    """Return the throttles that copies go through, beginning with those that never let them end."""
    advice: list[ThrottleAdvice] = []
    going = [copy for copy in moves.copies if copy.state is not CopyState.DONE]
    for is_leader in (True, False):
        by_throttle: dict[tuple[int, int], list[CopyProgress]] = {}
        for copy in going:
            broker = copy.source if is_leader else copy.broker
            if (rate := throttle_of(frame, copy.name, broker, is_leader=is_leader)) is not None:
                by_throttle.setdefault((broker, rate), []).append(copy)
        advice += [_advice(*throttle, copies, is_leader=is_leader) for throttle, copies in by_throttle.items()]
    advice = [
        replace(verdict, verdict=ThrottleVerdict.UNKNOWN)
        if verdict.verdict is ThrottleVerdict.NOT_THE_LIMIT and _is_shared(frame, verdict)
        else verdict
        for verdict in advice
    ]
    order = list(ThrottleVerdict)
    return sorted(advice, key=lambda verdict: (order.index(verdict.verdict), verdict.broker, not verdict.is_leader))


def throttle_texts(advice: Sequence[ThrottleAdvice]) -> list[tuple[str, ThrottleVerdict]]:
    """Say of throttles what they do; brokers with the same one, that does the same, share a sentence."""
    alike: dict[tuple[ThrottleVerdict, bool, int], list[ThrottleAdvice]] = {}
    for throttle in advice:
        alike.setdefault((throttle.verdict, throttle.is_leader, throttle.rate), []).append(throttle)
    sides: dict[tuple[ThrottleVerdict, int, tuple[int, ...]], list[ThrottleAdvice]] = {}
    for (verdict, _, rate), throttles in alike.items():
        sides.setdefault((verdict, rate, tuple(throttle.broker for throttle in throttles)), []).extend(throttles)
    return [(_text_of(rate, brokers, throttles), verdict) for (verdict, rate, brokers), throttles in sides.items()]


def _text_of(rate: int, brokers: Sequence[int], throttles: Sequence[ThrottleAdvice]) -> str:
    """Say what one throttle of these brokers does, to what they send, to what they receive, or to both."""
    sides = {throttle.is_leader for throttle in throttles}
    does = [word + "s" * (len(brokers) == 1) for word, side in (("send", True), ("receive", False)) if side in sides]
    who = f"broker {brokers[0]}" if len(brokers) == 1 else _brokers_text(brokers)
    suggested = max(throttle.suggested_rate or 0 for throttle in throttles)
    more = f": {rate_text(suggested)} would let it end within an hour" if suggested else ""
    verdict = throttles[0].verdict
    effect = "" if verdict is ThrottleVerdict.UNKNOWN else f"; {verdict.value}"
    return f"{who} {' and '.join(does)} under a throttle of {rate_text(rate)}{effect}{more}"


def _brokers_text(brokers: Sequence[int]) -> str:
    return (
        f"brokers {', '.join(map(str, brokers))}" if len(brokers) <= _BROKERS_MAX else counted(len(brokers), "broker")
    )


def what_is_held(frame: Frame) -> str:
    """Say what the throttles in force do while nothing moves; empty if they do nothing.

    Brokers hold back only replicas that are out of sync (``ReplicaManager`` of Kafka 3.9).
    """
    held: dict[str, int] = {}
    for topic in () if frame.cluster is None else frame.cluster.topics:
        if not topic.configs or topic.configs.keys().isdisjoint(REPLICA_LISTS):
            continue
        for partition in topic.partitions:
            name = TopicPartition(topic.name, partition.partition)
            for broker in partition.replicas:
                for is_leader in (True, False):
                    rate = throttle_of(frame, name, broker, is_leader=is_leader)
                    held[topic.name] = min(rate or sys.maxsize, held.get(topic.name, sys.maxsize))
    limited = sorted(name for name, rate in held.items() if rate < sys.maxsize)
    if not limited:
        return ""
    of = ", ".join(limited) if len(limited) <= _TOPICS_MAX else counted(len(limited), "topic")
    return f"replicas of {of} that are out of sync copy under a throttle of {rate_text(min(held.values()))}"


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
    # No rate helps a copy whose destination is down.
    copies = [copy for copy in copies if not copy.is_blocked] or copies
    inflow = sum(copy.inflow or 0.0 for copy in copies)
    remaining = sum((copy.total_bytes or 0) - (copy.copied_bytes or 0) for copy in copies)
    rates = [copy.rate for copy in copies if copy.rate is not None]
    used = sum(rates) if rates else None
    steady_rates = [copy.steady_rate for copy in copies if copy.steady_rate is not None]
    steady = sum(steady_rates) if len(steady_rates) == len(copies) else None
    left_s = remaining / (rate - inflow) if rate > inflow else None
    if all(copy.is_blocked for copy in copies):
        verdict = ThrottleVerdict.NOT_THE_LIMIT
    elif rate <= inflow:
        verdict = ThrottleVerdict.NEVER_ENDS
    elif used is None:
        verdict = ThrottleVerdict.UNKNOWN
    elif used >= rate * _AT_LIMIT:
        verdict = ThrottleVerdict.IS_THE_LIMIT
    elif steady is not None and max(used, steady) < rate * _FAR_BELOW:
        verdict = ThrottleVerdict.NOT_THE_LIMIT
    else:
        verdict = ThrottleVerdict.UNKNOWN
    wanted = -(-int(inflow + remaining / GOAL_S + 1) // _ROUND_TO) * _ROUND_TO
    is_too_low = verdict in (ThrottleVerdict.NEVER_ENDS, ThrottleVerdict.IS_THE_LIMIT) or rate < _ROUND_TO
    may_be = is_too_low and verdict is not ThrottleVerdict.NOT_THE_LIMIT
    ends_soon = left_s is not None and left_s <= GOAL_S
    suggested = wanted if may_be and wanted > rate and not ends_soon else None
    return ThrottleAdvice(broker, is_leader, rate, used, inflow, remaining, verdict, left_s, suggested)
