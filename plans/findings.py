"""What a check of a plan finds: values only."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from engine.common.model import TopicPartition


class Check(StrEnum):
    """What is checked."""

    CLUSTER = "cluster"
    DIGEST = "digest"
    DRIFT = "drift"
    TARGETS = "targets"
    FIGURES = "figures"
    RACKS = "racks"
    FACTOR = "factor"
    CAPACITY = "capacity"
    MOVES = "moves"
    BYTES = "bytes"
    LEADER_CHANGES = "leader_changes"
    TIME = "time"
    BROKERS = "brokers"
    TOPICS = "topics"


OF_CLUSTER = (Check.CLUSTER, Check.DIGEST, Check.DRIFT, Check.TARGETS, Check.FIGURES)
"""What is always looked at; the others are those of a policy."""


class Lack(StrEnum):
    """What is missing, so that a rule of a policy cannot be checked."""

    SIZES = "sizes"
    THROTTLE = "throttle"
    LOG_DIR = "log dir"
    """The broker has no log dir of the rule's name."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, or (not ``is_error``) worth a look; ``line`` is that of the plan file."""

    check: Check
    message: str
    line: int = 1
    is_error: bool = True
    partition: TopicPartition | None = None
    rule: str | None = None
    """The policy's rule, such as ``limits.moves``."""
    lacks: Lack | None = None
    """What has to be known to judge whether the rule is kept."""


def cannot_tell(check: Check, rule: str, why: str, line: int, lacks: Lack = Lack.SIZES) -> Finding:
    """Return the finding that a rule cannot be checked."""
    return Finding(check, f"whether {rule} is kept is unknown: {why}", line, rule=rule, lacks=lacks)
