"""Preferred leaders: how far leadership is from where it should be, and what an election would change. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from engine.admin.analysis.tallies import Tally
from engine.admin.health.checks import IMBALANCE_PERCENT_MAX
from engine.admin.watch.frame import Frame

_SETTING = "leader.imbalance.per.broker.percentage"


@dataclass(frozen=True, slots=True)
class BrokerLeadership:
    """One broker.

    Attributes:
        leaders_now: partitions that it leads.
        leaders_after: partitions that it would lead after a preferred election.
        preferred: partitions that it should lead.
        led_elsewhere: those of them that it does not lead.
        cannot_lead: those of these for which it is not in sync, so that an election changes nothing.
        imbalance_percent: ``led_elsewhere`` of ``preferred``, as the controller counts.
        is_beyond_limit: the controller would hold an election by itself, if that is enabled.
    """

    broker: int
    is_alive: bool
    leaders_now: int
    leaders_after: int
    preferred: int
    led_elsewhere: int
    cannot_lead: int
    imbalance_percent: int
    is_beyond_limit: bool


@dataclass(frozen=True, slots=True)
class Leadership:
    """The whole cluster: an election would change ``moves`` leaders; the controller acts above ``limit_percent``."""

    brokers: tuple[BrokerLeadership, ...]
    moves: int
    limit_percent: int


def leadership(frame: Frame, tally: Tally) -> Leadership:
    """Return the leadership now, and after a preferred election of all partitions."""
    live = frozenset() if frame.cluster is None else frame.cluster.live_broker_ids
    limit = _limit_percent(frame)
    brokers = sorted({*live, *tally.leaders, *tally.preferred})
    return Leadership(
        tuple(_broker(broker, broker in live, tally, limit) for broker in brokers), tally.electable.total(), limit
    )


def _broker(broker: int, is_alive: bool, tally: Tally, limit_percent: int) -> BrokerLeadership:
    preferred, elsewhere = tally.preferred[broker], tally.led_elsewhere[broker]
    now = tally.leaders[broker]
    return BrokerLeadership(
        broker,
        is_alive,
        now,
        now + tally.electable[broker] - tally.left_by_election[broker],
        preferred,
        elsewhere,
        elsewhere - tally.electable[broker],
        round(100 * elsewhere / preferred) if preferred else 0,
        is_alive and elsewhere * 100 > preferred * limit_percent,
    )


def _limit_percent(frame: Frame) -> int:
    """Return the cluster-wide dynamic setting; Kafka's default if there is none."""
    configs = {} if frame.cluster is None else frame.cluster.broker_configs.get(None, {})
    text = configs.get(_SETTING, "")
    return int(text) if text.isdecimal() else IMBALANCE_PERCENT_MAX
