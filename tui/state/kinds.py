"""How the dashboard shows each finding of ``klamm cluster health``: its words, its rows, the keys that repair it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from engine.admin.health.report import Check
from engine.admin.watch.events import EventKind
from tui.state.location import Location, Only


class Kind(NamedTuple):
    """What the dashboard makes of a finding of health.

    Attributes:
        single: its row for one case; ``{}`` is how many.
        many: its row for any other number, if that differs.
        opens: where its rows are.
        mends: the actions that may mend it.
        begins_with: what it begins with: the incident with such an event is its cause.
    """

    single: str
    many: str = ""
    opens: Location = Location("brokers")
    mends: tuple[str, ...] = ()
    begins_with: EventKind | None = None


def _of(only: Only) -> Location:
    return Location("partitions", only=only)


_MOVES, _ZOOKEEPER = Location("reassignments"), Location("zookeeper")
KINDS: Mapping[Check, Kind] = {
    Check.NO_CONTROLLER: Kind("no controller", begins_with=EventKind.CONTROLLER_MOVED),
    Check.SEVERAL_CONTROLLERS: Kind("several controllers"),
    Check.UNREADABLE_TOPICS: Kind(
        "{} topic unreadable", "{} topics unreadable",
        Location("zookeeper", path="/brokers/topics", only=Only.UNREADABLE),
    ),
    Check.UNKNOWN_SETTINGS: Kind(
        "settings not known", opens=Location("topics", only=Only.SETTINGS_UNKNOWN),
    ),
    Check.OFFLINE_PARTITIONS: Kind(
        "{} partition offline", "{} partitions offline", _of(Only.OFFLINE), ("leader.elect_unclean",),
        EventKind.PARTITION_OFFLINE,
    ),
    Check.UNDER_MIN_ISR: Kind(
        "{} partition under min ISR", "{} partitions under min ISR", _of(Only.UNDER_MIN_ISR),
        begins_with=EventKind.ISR_SHRANK,
    ),
    Check.MIN_ISR_ABOVE_FACTOR: Kind(
        "{} min ISR above its factor", "{} min ISR above their factor", _of(Only.MIN_ISR_ABOVE_FACTOR),
    ),
    Check.UNDER_REPLICATED_DEAD_BROKER: Kind(
        "{} under-replicated", opens=_of(Only.UNDER_REPLICATED),
        begins_with=EventKind.ISR_SHRANK,
    ),
    Check.UNDER_REPLICATED_LAGGING: Kind(
        "{} under-replicated, lagging", opens=_of(Only.BEHIND), begins_with=EventKind.ISR_SHRANK,
    ),
    Check.UNDER_REPLICATED_MOVING: Kind(
        "{} under-replicated, moving", opens=_MOVES, mends=("reassignment.throttle",),
    ),
    Check.OFFLINE_LOG_DIRS: Kind(
        "{} log dir failed", "{} log dirs failed", Location("brokers", only=Only.DIR_FAILED), ("plan.retire",),
        EventKind.LOG_DIR_FAILED,
    ),
    Check.FULL_LOG_DIRS: Kind("{} log dir almost full", "{} log dirs almost full"),
    Check.RACK_VIOLATIONS: Kind(
        "{} partition in too few racks", "{} partitions in too few racks", _of(Only.AGAINST_RACKS),
    ),
    Check.BROKERS_WITHOUT_RACK: Kind("{} broker without a rack", "{} brokers without a rack", Location("brokers")),
    Check.PREFERRED_LEADER_IMBALANCE: Kind(
        "{} broker leads too few", "{} brokers lead too few", _of(Only.NOT_PREFERRED), ("leader.elect",),
        EventKind.LEADER_CHANGED,
    ),
    Check.RUNNING_REASSIGNMENTS: Kind(
        "{} reassignment runs", "{} reassignments run", _MOVES, ("reassignment.cancel", "reassignment.throttle"),
    ),
    Check.LEAKED_THROTTLES: Kind(
        "{} throttle setting left", "{} throttle settings left", _MOVES, ("reassignment.unthrottle",),
    ),
    Check.HANGING_TRANSACTIONS: Kind(
        "{} transaction hangs", "{} transactions hang", _of(Only.HELD_UP), ("transactions.abort",),
    ),
    Check.LONG_TRANSACTIONS: Kind("{} transaction takes long", "{} transactions take long", _of(Only.HELD_UP)),
    Check.DELETION_STUCK: Kind("{} deletion stuck", "{} deletions stuck", Location("topics", only=Only.DELETION_STUCK)),
    Check.BROKER_CLOCKS: Kind("{} broker's clock is wrong", "{} brokers' clocks are wrong"),
    Check.EXPIRING_CERTIFICATES: Kind("{} certificate expires soon", "{} certificates expire soon"),
    Check.ZOOKEEPER_UNREACHABLE: Kind("ZooKeeper unreachable", opens=_ZOOKEEPER),
    Check.ZOOKEEPER_SERVERS_DOWN: Kind(
        "{} ZooKeeper server down", "{} ZooKeeper servers down", opens=_ZOOKEEPER,
    ),
    Check.ZOOKEEPER_SLOW: Kind("ZooKeeper slow", opens=_ZOOKEEPER),
}  # fmt: skip
