"""How the dashboard words the engine's advice: an operation is a screen or one of its keys."""

from __future__ import annotations

from collections.abc import Mapping

from engine.admin.cluster.remedies import Operation, Parameter, Words
from tui.units import plain

_PLACES: Mapping[Operation, str] = {
    Operation.LIST_TOPICS: "screen Topics (3)",
    Operation.DESCRIBE_TOPICS: "screen Partitions (4)",
    Operation.DESCRIBE_TOPIC: "the topic's partitions (:t {})",
    Operation.DESCRIBE_UNDER_MIN_ISR: "screen Partitions (4), only trouble (z)",
    Operation.DESCRIBE_UNAVAILABLE: "screen Partitions (4), only trouble (z)",
    Operation.DESCRIBE_UNAVAILABLE_OF_TOPIC: "the topic's partitions (:t {})",
    Operation.LIST_BROKERS: "screen Brokers (2)",
    Operation.ALTER_CONFIGS: "settings (A) of the topic or broker",
    Operation.DELETE_CONFIGS: "settings (A) of the topic or broker",
    Operation.ELECT_PREFERRED_OF_ALL: "an election (E) of the preferred leaders",
    Operation.ELECT_UNCLEAN: "an unclean election (U) of the partitions",
    Operation.LIST_REASSIGNMENTS: "screen Reassignments (6)",
    Operation.VERIFY_REASSIGNMENT: "X on screen Reassignments (6)",
    Operation.AWAIT_REASSIGNMENT: "screen Reassignments (6)",
    Operation.RESUME_PLAN: "resume (R) on screen Plans (7), with {} open",
    Operation.LIST_GROUPS: "screen Groups (5)",
    Operation.DESCRIBE_GROUP: "the group (:g {})",
    Operation.LIST_OFFSETS: "screen Partitions (4)",
    Operation.LIST_EARLIEST_OFFSETS: "screen Partitions (4)",
    Operation.READ_ZNODE: "screen ZooKeeper (:zk {})",
    Operation.READ_RAW_ZNODE: "screen ZooKeeper (:zk {})",
    Operation.LIST_ZNODES: "screen ZooKeeper (:zk {})",
    Operation.START_LOCAL_CLUSTER: "klamm local up",
}


class DashboardSpeller:
    """Spells operations as screens and keys, parameters in plain words."""

    def operation(self, operation: Operation, value: str | None) -> str:
        place = _PLACES.get(operation)
        if place is None:
            return operation.value if value is None else f"{operation.value} {value}"
        return place.replace("{}", value or "…")

    def parameter(self, parameter: Parameter) -> str:
        return parameter.value

    def given(self, parameter: Parameter, value: str | None) -> str:
        return parameter.value if value is None else f"{parameter.value} {value}"


def spelled(text: Words) -> str:
    """Return the engine's text for a person, in the dashboard's words."""
    whole = plain(text if isinstance(text, str) else text.spell(_SPELLER))
    # One screen may stand for several commands.
    return "; ".join(dict.fromkeys(whole.split("; ")))


_SPELLER = DashboardSpeller()
