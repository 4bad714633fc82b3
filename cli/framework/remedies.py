"""How the command line spells the engine's advice: operations as commands, parameters as options.

The engine's errors, warnings and advice hold ``Phrase``s, which name operations and parameters without the words of any
interface. Only this module has the command line's words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from engine.admin.cluster.remedies import Operation, Parameter, Words

COMMANDS: Mapping[Operation, str] = {
    Operation.LIST_TOPICS: "klamm topics list",
    Operation.DESCRIBE_TOPICS: "klamm topics describe",
    Operation.DESCRIBE_TOPIC: "klamm topics describe {TOPIC}",
    Operation.DESCRIBE_UNDER_MIN_ISR: "klamm topics describe --under-min-isr-partitions",
    Operation.DESCRIBE_UNAVAILABLE: "klamm topics describe --unavailable-partitions",
    Operation.DESCRIBE_UNAVAILABLE_OF_TOPIC: "klamm topics describe {TOPIC} --unavailable-partitions",
    Operation.LIST_BROKERS: "klamm brokers list",
    Operation.DESCRIBE_CONFIGS: "klamm configs describe --entity-type {TYPE}",
    Operation.DESCRIBE_TOPIC_CONFIGS: "klamm configs describe --topic {TOPIC}",
    Operation.DESCRIBE_ALL_TOPIC_CONFIGS: "klamm configs describe --topic {TOPIC} --all",
    Operation.DESCRIBE_BROKER_CONFIGS: "klamm configs describe --broker {ID}",
    Operation.DESCRIBE_ALL_BROKER_CONFIGS: "klamm configs describe --broker {ID} --all",
    Operation.ALTER_CONFIGS: "klamm configs alter",
    Operation.ADD_TOPIC_CONFIG: "klamm configs alter --topic T --add-config {KEY=VALUE}",
    Operation.ALTER_TOPIC_CONFIGS: "klamm configs alter --topic {TOPIC}",
    Operation.ALTER_BROKER_CONFIGS: "klamm configs alter --broker {ID}",
    Operation.ALTER_BROKER_DEFAULTS: "klamm configs alter --broker-defaults",
    Operation.ELECT_PREFERRED_OF_ALL: "klamm elect preferred --all-topic-partitions",
    Operation.ELECT_UNCLEAN: "klamm elect unclean --topic {TOPIC} --partition {N}",
    Operation.LIST_REASSIGNMENTS: "klamm reassign list",
    Operation.VERIFY_REASSIGNMENT: "klamm reassign verify --all",
    Operation.AWAIT_REASSIGNMENT: "klamm reassign verify --all --wait",
    Operation.RESUME_PLAN: "klamm plan resume {FILE}",
    Operation.PLAN_REBALANCE: "klamm plan rebalance",
    Operation.LIMIT_PRODUCERS: "klamm quotas set --client-defaults --producer-byte-rate {BYTES}",
    Operation.ADD_ACL: "klamm acls add",
    Operation.LIST_ACLS: "klamm acls list",
    Operation.LIST_TOKENS: "klamm tokens list",
    Operation.LIST_USERS: "klamm users list",
    Operation.LIST_GROUPS: "klamm groups list",
    Operation.DESCRIBE_GROUP: "klamm groups describe --group {ID}",
    Operation.LIST_TRANSACTIONS: "klamm transactions list",
    Operation.DESCRIBE_TRANSACTION: "klamm transactions describe {ID}",
    Operation.DESCRIBE_PRODUCERS: "klamm transactions producers {TOPIC-PARTITION}",
    Operation.FIND_HANGING_TRANSACTIONS: "klamm transactions find-hanging",
    Operation.TERMINATE_TRANSACTION: "klamm transactions force-terminate {ID}",
    Operation.LIST_OFFSETS: "klamm offsets",
    Operation.DESCRIBE_LOG_DIRS: "klamm brokers log-dirs",
    Operation.LIST_EARLIEST_OFFSETS: "klamm offsets --time earliest",
    Operation.SET_DEFAULT_PROFILE: "klamm profiles default {NAME}",
    Operation.TAKE_SNAPSHOT: "klamm cluster snapshot {FILE}",
    Operation.TAKE_SNAPSHOT_WITH_SIZES: "klamm cluster snapshot --sizes {FILE}",
    Operation.READ_ZNODE: "klamm zk get {PATH}",
    Operation.READ_RAW_ZNODE: "klamm zk get {PATH} --raw",
    Operation.LIST_ZNODES: "klamm zk tree {PATH} --depth 1",
    Operation.CHECK_ZOOKEEPER: "klamm zk get / --zookeeper {HOST:PORT}",
    Operation.VERIFY_REPLICAS: "klamm replicas verify --topic {TOPIC}",
    Operation.MERGE_STATE_CHANGES: "klamm state-changes merge {broker-*/logs}",
    Operation.START_LOCAL_CLUSTER: "klamm local up",
    Operation.KEEP_LAG_HISTORY: "klamm spark lag --out {PATH}",
}
"""The command for each operation. Braces mark the place of its value, and hold the text for an unknown one."""

_NAME_NO_CLUSTER = {
    Operation.ADD_ACL, Operation.CHECK_ZOOKEEPER, Operation.MERGE_STATE_CHANGES, Operation.START_LOCAL_CLUSTER,
}  # fmt: skip
"""Commands that look at no cluster, or at one that they name by themselves, or that an administrator has to run."""

OPTIONS: Mapping[Parameter, str] = {
    Parameter.ADD_CONFIG: "--add-config {KEY=VALUE}",
    Parameter.ADD_CONFIG_FILE: "--add-config-file {FILE}",
    Parameter.ADDITIONAL: "--additional",
    Parameter.ALLOW_FACTOR_CHANGE: "--allow-replication-factor-change",
    Parameter.ACL_GROUP: "--group {ID}",
    Parameter.ACL_OPERATION: "--operation {OPERATION}",
    Parameter.ACL_ON_CLUSTER: "--cluster-resource",
    Parameter.ACL_PATTERN_TYPE: "--resource-pattern-type {TYPE}",
    Parameter.ACL_PRINCIPAL: "--allow-principal {User:NAME}",
    Parameter.ACL_TOPIC: "--topic {NAME}",
    Parameter.ACL_TRANSACTIONAL_ID: "--transactional-id {ID}",
    Parameter.ACL_USER: "--user-principal {PRINCIPAL}",
    Parameter.ACLS_OF: "--all-of {PRINCIPAL}",
    Parameter.ALL_CONFIGS: "--all",
    Parameter.ALL_GROUPS: "--all-groups",
    Parameter.BOOTSTRAP_SERVERS: "--bootstrap-server {HOST:PORT}",
    Parameter.BROKER_LIST: "--broker-list {IDS}",
    Parameter.BROKER_LOGGER: "--broker-logger {ID}",
    Parameter.BY_DURATION: "--by-duration {DURATION}",
    Parameter.CLUSTER: "--cluster {NAME}",
    Parameter.COMMAND_CONFIG: "--command-config {FILE}",
    Parameter.JAAS_CONFIG: "--jaas-config {FILE}",
    Parameter.COMPRESSION: "--compression {CODEC}",
    Parameter.COORDINATOR_EPOCH: "--coordinator-epoch {NUMBER}",
    Parameter.CONFIG: "--config {KEY=VALUE}",
    Parameter.DELETE_CONFIG: "--delete-config {KEY}",
    Parameter.FORCE: "--force",
    Parameter.FROM_BEGINNING: "--from-beginning",
    Parameter.GROUP: "--group {ID}",
    Parameter.HISTORY: "--history {FILE}",
    Parameter.IF_NOT_EXISTS: "--if-not-exists",
    Parameter.NO_IDEMPOTENCE: "--no-idempotence",
    Parameter.JSON_FILE: "--path-to-json-file {FILE}",
    Parameter.LOG_DIRS_THROTTLE: "--replica-alter-log-dirs-throttle {BYTES}",
    Parameter.OUTPUT: "-o {FORMAT}",
    Parameter.PARTITION: "--partition {NUMBER}",
    Parameter.PARTITIONS: "--partitions {COUNT}",
    Parameter.PAYLOAD_DELIMITER: "--payload-delimiter {TEXT}",
    Parameter.PRINT_METRICS: "--print-metrics",
    Parameter.PRODUCER_ID: "--producer-id {NUMBER}",
    Parameter.PRODUCER_PROPERTIES: "--producer-props {NAME=VALUE}",
    Parameter.REPLICA_ASSIGNMENT: "--replica-assignment {BROKERS}",
    Parameter.REPLICATION_FACTOR: "--replication-factor {COUNT}",
    Parameter.SNAPSHOT: "--snapshot {FILE}",
    Parameter.START_OFFSET: "--start-offset {OFFSET}",
    Parameter.STATE: "--state {STATE}",
    Parameter.THROTTLE: "--throttle {BYTES}",
    Parameter.TIME: "--time {TIME}",
    Parameter.TIMEOUT: "--timeout {SECONDS}",
    Parameter.TO_DATETIME: "--to-datetime {TIME}",
    Parameter.TO_EARLIEST: "--to-earliest",
    Parameter.TO_LATEST: "--to-latest",
    Parameter.TO_OFFSET: "--to-offset {OFFSET}",
    Parameter.TOPIC: "--topic {NAME}",
    Parameter.TOPIC_PARTITIONS: "--topic-partitions {RULES}",
    Parameter.TRANSACTIONAL_ID: "--transactional-id {ID}",
    Parameter.TYPE: "--type {TYPE}",
    Parameter.VIA: "--via {zookeeper|wire}",
    Parameter.ZOOKEEPER: "--zookeeper {HOST:PORT}",
}
"""What each parameter is called, followed by the kind of value that it takes."""

_PLACE = re.compile(r"\{(.*?)\}")


class CommandLineSpeller:
    """Spells operations as commands that can be typed, and parameters as options.

    ``completed`` adds to a command what it needs to be pasted.
    """

    def __init__(self, completed: Callable[[str], str] = lambda command: command) -> None:
        self._completed = completed

    def operation(self, operation: Operation, value: str | None) -> str:
        command = _filled(COMMANDS[operation], value)
        return command if operation in _NAME_NO_CLUSTER else self._completed(command)

    def parameter(self, parameter: Parameter) -> str:
        return OPTIONS[parameter].partition(" ")[0]

    def given(self, parameter: Parameter, value: str | None) -> str:
        return _filled(OPTIONS[parameter], value)


def spelled(text: Words, completed: Callable[[str], str] | None = None) -> str:
    """Return what the engine says, in the command line's words; ``completed`` adds to a command what it lacks."""
    speller = _SPELLER if completed is None else CommandLineSpeller(completed)
    return text if isinstance(text, str) else text.spell(speller)


def _filled(form: str, value: str | None) -> str:
    return _PLACE.sub(lambda place: place[1] if value is None else value, form)


_SPELLER = CommandLineSpeller()
