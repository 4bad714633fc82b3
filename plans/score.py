"""The score card of a plan: what it costs, what no plan can go below, and the cluster before and after. Values only.

None means unknown: sizes that no broker reported, a makespan without a throttle.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from plans.json_values import LATER


@dataclass(frozen=True, slots=True)
class Bounds:
    """For each figure by itself, what no plan that meets the aim can go below."""

    moves: int
    bytes: int | None
    leader_changes: int


@dataclass(frozen=True, slots=True)
class Measures:
    """How level the cluster is, over the remaining live brokers.

    ``bytes_cv`` is the standard deviation of the brokers' bytes, divided by their mean. ``topic_excess`` counts the
    replicas above their topic's even share, rounded up, of each broker.
    """

    replica_range: int
    leader_range: int
    bytes_cv: float | None
    rack_violations: int
    topic_excess: int


@dataclass(frozen=True, slots=True)
class BrokerScore:
    """What one broker holds before and after, what goes in and out, and what it sends as a leader."""

    broker: int
    rack: str | None
    alive: bool
    replicas_before: int
    replicas_after: int
    leaders_before: int
    leaders_after: int
    bytes_before: int | None
    bytes_after: int | None
    replicas_in: int
    replicas_out: int
    bytes_in: int | None
    bytes_out: int | None
    bytes_sent: int | None


@dataclass(frozen=True, slots=True)
class LogDirScore:
    """What one log dir holds before and after. ``total_bytes`` and ``usable_bytes`` are those of its volume."""

    broker: int
    log_dir: str
    total_bytes: int | None
    usable_bytes: int | None
    replicas_before: int
    replicas_after: int
    bytes_before: int | None
    bytes_after: int | None
    replicas_in: int
    replicas_out: int
    bytes_in: int | None
    bytes_out: int | None


@dataclass(frozen=True, slots=True)
class Score:
    """What a plan does and costs.

    ``moves`` counts replicas that are copied, ``leader_changes`` partitions whose first replica changes, ``reordered``
    partitions with the same replicas in another order. ``remaining_moves`` is what a cap has left undone. ``gap`` is
    (achieved - bound) / bound of the figure that is minimised first; None if the bound is 0 and the figure is not, or
    if ``remaining_bytes`` are outside the tolerance, because no plan was found that meets the aim.
    """

    moves: int
    bytes: int | None
    leader_changes: int
    reordered: int
    remaining_moves: int
    lower_bound: Bounds
    gap: float | None
    is_optimal: bool
    solver: str
    makespan_s: float | None
    before: Measures
    after: Measures
    brokers: tuple[BrokerScore, ...] = ()
    log_dirs: tuple[LogDirScore, ...] = ()
    remaining_bytes: int = field(default=0, metadata=LATER)
