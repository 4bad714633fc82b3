"""How the dashboard words advice: an operation is a screen or a key; if it has neither, a command.

The engine's advice names operations. The planner does not know the dashboard, and words its texts for the command line:
there options become fields of the plan's form, and commands keys.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from engine.admin.cluster.remedies import Operation, Parameter, Words
from tui.drawing.units import plain

_PLACES: Mapping[Operation, str] = {
    Operation.LIST_TOPICS: "screen Topics (3)",
    Operation.DESCRIBE_TOPICS: "screen Partitions (4)",
    Operation.DESCRIBE_TOPIC: "the topic's partitions (:t {})",
    Operation.DESCRIBE_UNDER_MIN_ISR: "screen Partitions (4), problems only (z)",
    Operation.DESCRIBE_UNAVAILABLE: "screen Partitions (4), problems only (z)",
    Operation.DESCRIBE_UNAVAILABLE_OF_TOPIC: "the topic's partitions (:t {})",
    Operation.LIST_BROKERS: "screen Brokers (2)",
    Operation.DESCRIBE_CONFIGS: "klamm configs describe --entity-type {}",
    Operation.DESCRIBE_TOPIC_CONFIGS: "the line above the topic's partitions (:t {})",
    Operation.DESCRIBE_ALL_TOPIC_CONFIGS: "klamm configs describe --topic {} --all",
    Operation.DESCRIBE_BROKER_CONFIGS: "klamm configs describe --broker {}",
    Operation.DESCRIBE_ALL_BROKER_CONFIGS: "klamm configs describe --broker {} --all",
    Operation.ALTER_CONFIGS: "settings (A) of the topic or broker",
    Operation.ADD_TOPIC_CONFIG: "{}, in the settings (A) of the topic",
    Operation.ALTER_TOPIC_CONFIGS: "settings (A) of the topic",
    Operation.ALTER_BROKER_CONFIGS: "settings (A) of the broker",
    Operation.ALTER_BROKER_DEFAULTS: "klamm configs alter --broker-defaults",
    Operation.ELECT_PREFERRED_OF_ALL: "elect the preferred leaders (E)",
    Operation.ELECT_UNCLEAN: "an unclean election (U) of the partitions",
    Operation.LIST_REASSIGNMENTS: "see screen Reassignments (6)",
    Operation.VERIFY_REASSIGNMENT: "X on screen Overview (1) or Reassignments (6)",
    Operation.AWAIT_REASSIGNMENT: "see screen Reassignments (6)",
    Operation.RESUME_PLAN: "resume (R) on screen Plans (7), with {} open",
    Operation.PLAN_REBALANCE: "rebalance (B)",
    Operation.LIMIT_PRODUCERS: "quota (Q)",
    Operation.LIST_GROUPS: "screen Groups (5)",
    Operation.DESCRIBE_GROUP: "the group (:g {})",
    Operation.LIST_OFFSETS: "screen Partitions (4)",
    Operation.LIST_EARLIEST_OFFSETS: "screen Partitions (4)",
    Operation.ADD_ACL: "klamm acls add",
    Operation.LIST_ACLS: "klamm acls list",
    Operation.LIST_TOKENS: "klamm tokens list",
    Operation.LIST_USERS: "klamm users list",
    Operation.LIST_TRANSACTIONS: "klamm transactions list",
    Operation.DESCRIBE_TRANSACTION: "klamm transactions describe {}",
    Operation.DESCRIBE_PRODUCERS: "klamm transactions producers {}",
    Operation.FIND_HANGING_TRANSACTIONS: "klamm transactions find-hanging",
    Operation.TERMINATE_TRANSACTION: "klamm transactions force-terminate {}",
    Operation.DESCRIBE_LOG_DIRS: "klamm brokers log-dirs",
    Operation.SET_DEFAULT_PROFILE: "klamm profiles default",
    Operation.TAKE_SNAPSHOT: "klamm cluster snapshot",
    Operation.TAKE_SNAPSHOT_WITH_SIZES: "klamm cluster snapshot --sizes {}",
    Operation.READ_ZNODE: "screen ZooKeeper (:zk {})",
    Operation.READ_RAW_ZNODE: "screen ZooKeeper (:zk {})",
    Operation.LIST_ZNODES: "screen ZooKeeper (:zk {})",
    Operation.CHECK_ZOOKEEPER: "screen ZooKeeper (0)",
    Operation.VERIFY_REPLICAS: "klamm replicas verify --topic {}",
    Operation.MERGE_STATE_CHANGES: "klamm state-changes merge {}",
    Operation.START_LOCAL_CLUSTER: "klamm local up",
    Operation.KEEP_LAG_HISTORY: "klamm spark lag --out {}",
}
_RULE: Mapping[Parameter, str] = {
    Parameter.ACL_GROUP: "--group {}",
    Parameter.ACL_OPERATION: "--operation {}",
    Parameter.ACL_ON_CLUSTER: "--cluster-resource",
    Parameter.ACL_PATTERN_TYPE: "--resource-pattern-type {}",
    Parameter.ACL_PRINCIPAL: "--allow-principal {}",
    Parameter.ACL_TOPIC: "--topic {}",
    Parameter.ACL_TRANSACTIONAL_ID: "--transactional-id {}",
    Parameter.ACL_USER: "--user-principal {}",
}
"""The parts of a new access rule, which an administrator types as a command."""


class DashboardSpeller:
    """Spells operations as screens and keys, parameters in plain words."""

    def operation(self, operation: Operation, value: str | None) -> str:
        return _PLACES[operation].replace("{}", value or "…")

    def parameter(self, parameter: Parameter) -> str:
        return _RULE.get(parameter, parameter.value).partition(" {")[0]

    def given(self, parameter: Parameter, value: str | None) -> str:
        if parameter in _RULE:
            return _RULE[parameter].replace("{}", value or "…")
        return parameter.value if value is None else f"{parameter.value} {value}"


def spelled(text: Words) -> str:
    """Return the engine's text for users, in the dashboard's words."""
    whole = plain(text if isinstance(text, str) else text.spell(_SPELLER))
    # One screen may stand for several commands.
    return "; ".join(dict.fromkeys(whole.split("; ")))


_SPELLER = DashboardSpeller()

_SPELLED = tuple(
    (re.compile(pattern), words)
    for pattern, words in (
        (r", or from a snapshot taken with --sizes", ""),
        (r", or a longer --time-limit,", ""),
        (r"a higher --time-limit", "a higher Time limit"),
        (r"klamm topics list", "screen Topics (3)"),
        (r"klamm reassign list", "screen Reassignments (6)"),
        (r"write klamm plan factor 3", "write 3 in Replicas"),
        (r"write it with klamm plan … --out FILE", "make it with N and save it with w"),
        (r"klamm reassign execute takes it", "N makes a plan of klamm"),
        (r"rebalance --aim …", "a rebalance plan with Level what"),
        (r"with --keep-dead", "with keep in Dead brokers"),
        (r"remove --pin", "take them out of Stay as they are"),
        (r"the file of --capacity", "the file in Capacities"),
        (r"remove --aim (\w+)", r"take \1 out of Level what"),
        (r"--aim (\w+)", r"\1 in Level what"),
        (r"--minimise (\w+)", r"\1 in Fewest"),
        (r"with --tolerance (\d[\w.]*)", r"with \1 in Tolerance"),
        (r"--tolerance", "Tolerance"),
        (r"--max-bytes", "Bytes at most"),
        (r"--capacity", "Capacities"),
        (r"--throttle", "Throttle"),
    )
)


def planner_words(text: str) -> str:
    """Return the planner's text in the words of the dashboard's forms and keys."""
    for pattern, words in _SPELLED:
        text = pattern.sub(words, text)
    return text
