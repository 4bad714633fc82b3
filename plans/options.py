"""The input of the planner: the strategy, and everything that bounds it. Values only."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Strategy(StrEnum):
    """What a plan is for."""

    REBALANCE = "rebalance"
    DECOMMISSION = "decommission"
    REPLACE = "replace"
    EXPAND = "expand"
    RACKS = "racks"
    FACTOR = "factor"
    MOVE = "move"
    LEADERS = "leaders"
    LOG_DIRS = "log-dirs"


class Aim(StrEnum):
    """What should be level between the brokers when the plan is done."""

    REPLICAS = "replicas"
    LEADERS = "leaders"
    BYTES = "bytes"


class Minimise(StrEnum):
    """Which figure comes first among plans that meet the aim."""

    MOVES = "moves"
    BYTES = "bytes"


@dataclass(frozen=True, slots=True)
class Replacement:
    """What broker ``old`` holds goes to broker ``new``."""

    old: int
    new: int


@dataclass(frozen=True, slots=True)
class BrokerCapacity:
    """How many bytes of partitions a broker may hold."""

    broker: int
    bytes: int


@dataclass(frozen=True, slots=True)
class LogDirCapacity:
    """How many bytes of partitions a log dir may hold."""

    broker: int
    log_dir: str
    bytes: int


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """Everything that a plan depends on, apart from the cluster.

    ``brokers`` is the argument of decommission, expand, move and log-dirs; ``replication_factor`` that of factor.
    ``aim`` and ``minimise`` are None for the strategy's default; the options of a finished plan name what was used.
    ``pins`` and the like are texts as they were typed.
    """

    brokers: tuple[int, ...] = ()
    replacements: tuple[Replacement, ...] = ()
    replication_factor: int | None = None
    aim: tuple[Aim, ...] | None = None
    topics: tuple[str, ...] = ()
    exclude_topics: tuple[str, ...] = ()
    exclude_brokers: tuple[int, ...] = ()
    pins: tuple[str, ...] = ()
    minimise: Minimise | None = None
    tolerance_percent: float = 5.0
    max_moves: int | None = None
    max_bytes: int | None = None
    broker_capacities: tuple[BrokerCapacity, ...] = ()
    log_dir_capacities: tuple[LogDirCapacity, ...] = ()
    keep_dead: bool = False
    throttle: int | None = None
    time_limit_s: float | None = None
