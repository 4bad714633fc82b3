"""What a user can do about a failure, as values: the engine says what to do, the interface says how.

An error or a piece of advice holds a ``Phrase``: plain text with operations and parameters in it. A command line
spells an operation as a command and a parameter as an option; a dashboard may show them as a button and a field.
Nothing in ``engine.admin`` spells a command or an option itself. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol


class Operation(Enum):
    """Something that a user can do or look at. The value names it if no interface spells it."""

    LIST_TOPICS = "the list of topics"
    DESCRIBE_TOPICS = "the description of topics"
    DESCRIBE_TOPIC = "the description of the topic"
    DESCRIBE_UNDER_MIN_ISR = "the partitions under min ISR"
    DESCRIBE_UNAVAILABLE = "the partitions without a leader"
    DESCRIBE_UNAVAILABLE_OF_TOPIC = "the partitions without a leader of the topic"
    LIST_BROKERS = "the list of brokers"
    DESCRIBE_CONFIGS = "the settings"
    DESCRIBE_TOPIC_CONFIGS = "the settings of the topic"
    DESCRIBE_ALL_TOPIC_CONFIGS = "all settings of the topic"
    DESCRIBE_BROKER_CONFIGS = "the settings of the broker"
    DESCRIBE_ALL_BROKER_CONFIGS = "all settings of the broker"
    ALTER_CONFIGS = "a change of settings"
    ADD_TOPIC_CONFIG = "a change of the topic's setting"
    ALTER_TOPIC_CONFIGS = "a change of the topic's settings"
    ALTER_BROKER_CONFIGS = "a change of the broker's settings"
    ALTER_BROKER_DEFAULTS = "a change of the settings of all brokers"
    ELECT_PREFERRED_OF_ALL = "an election of all preferred leaders"
    ELECT_UNCLEAN = "an unclean election"
    LIST_REASSIGNMENTS = "the list of reassignments"
    VERIFY_REASSIGNMENT = "the verification of a reassignment"
    AWAIT_REASSIGNMENT = "the wait for a reassignment"
    RESUME_PLAN = "the resumption of the plan"
    PLAN_REBALANCE = "a plan that levels the brokers"
    LIMIT_PRODUCERS = "a quota for all producers"
    ADD_ACL = "a new rule:"
    LIST_ACLS = "the list of access rules"
    LIST_TOKENS = "the list of tokens"
    LIST_USERS = "the list of users"
    LIST_GROUPS = "the list of groups"
    DESCRIBE_GROUP = "the description of the group"
    LIST_TRANSACTIONS = "the list of transactions"
    DESCRIBE_TRANSACTION = "the description of the transaction"
    DESCRIBE_PRODUCERS = "the producers of the partition"
    FIND_HANGING_TRANSACTIONS = "the search for hanging transactions"
    TERMINATE_TRANSACTION = "the end of the transaction"
    LIST_OFFSETS = "the offsets"
    DESCRIBE_LOG_DIRS = "the log dirs"
    LIST_EARLIEST_OFFSETS = "the earliest offsets"
    TAKE_SNAPSHOT = "a snapshot of the cluster"
    SET_DEFAULT_PROFILE = "another default profile"
    TAKE_SNAPSHOT_WITH_SIZES = "a snapshot of the cluster with sizes"
    READ_ZNODE = "the znode"
    READ_RAW_ZNODE = "the bytes of the znode"
    LIST_ZNODES = "the znodes below"
    CHECK_ZOOKEEPER = "a look at ZooKeeper's root"
    KEEP_LAG_HISTORY = "keep a lag history"
    VERIFY_REPLICAS = "a comparison of the replicas of the topic"
    MERGE_STATE_CHANGES = "the merged state-change logs"
    START_LOCAL_CLUSTER = "a local cluster"


class Parameter(Enum):
    """Something that a user can give with an operation. The value names it if no interface spells it."""

    ADD_CONFIG = "settings to add"
    ADD_CONFIG_FILE = "a file of settings to add"
    ADDITIONAL = "additional"
    ALLOW_FACTOR_CHANGE = "a change of the replication factor"
    ACL_GROUP = "group of the rule"
    ACL_OPERATION = "operation of the rule"
    ACL_ON_CLUSTER = "the cluster"
    ACL_PATTERN_TYPE = "pattern type of the rule"
    ACL_PRINCIPAL = "principal of the rule"
    ACL_TOPIC = "topic of the rule"
    ACL_TRANSACTIONAL_ID = "transactional id of the rule"
    ACL_USER = "user of the rule"
    ACLS_OF = "all rules of a principal"
    ALL_CONFIGS = "all settings"
    ALL_GROUPS = "all groups"
    BOOTSTRAP_SERVERS = "bootstrap servers"
    BROKER_LIST = "broker list"
    BROKER_LOGGER = "broker logger"
    BY_DURATION = "duration to shift by"
    CLUSTER = "cluster"
    COMMAND_CONFIG = "client properties"
    COMPRESSION = "compression"
    COORDINATOR_EPOCH = "coordinator epoch"
    CONFIG = "settings"
    DELETE_CONFIG = "settings to delete"
    FORCE = "force"
    FROM_BEGINNING = "the beginning"
    GROUP = "group"
    JAAS_CONFIG = "JAAS file"
    HISTORY = "history file"
    IF_NOT_EXISTS = "if not exists"
    JSON_FILE = "JSON file"
    LOG_DIRS_THROTTLE = "throttle of moves between log dirs"
    NO_IDEMPOTENCE = "no idempotence"
    OUTPUT = "output format"
    PARTITION = "partition"
    PARTITIONS = "partitions"
    PAYLOAD_DELIMITER = "payload delimiter"
    PRINT_METRICS = "printed metrics"
    PRODUCER_ID = "producer id"
    PRODUCER_PROPERTIES = "producer properties"
    REPLICA_ASSIGNMENT = "replica assignment"
    REPLICATION_FACTOR = "replication factor"
    SNAPSHOT = "snapshot"
    START_OFFSET = "start offset"
    STATE = "state"
    THROTTLE = "throttle"
    TIME = "time"
    TIMEOUT = "timeout"
    TO_DATETIME = "date to reset to"
    TO_EARLIEST = "earliest offset"
    TO_LATEST = "latest offset"
    TO_OFFSET = "offset to reset to"
    TOPIC = "topic"
    TOPIC_PARTITIONS = "topic partitions"
    TRANSACTIONAL_ID = "transactional id"
    TYPE = "type"
    VIA = "side"
    ZOOKEEPER = "ZooKeeper address"


@dataclass(frozen=True, slots=True)
class Do:
    """An operation on something: the topic, broker, znode or setting that ``value`` names."""

    operation: Operation
    value: str


@dataclass(frozen=True, slots=True)
class Give:
    """A parameter with its value; None leaves the value to the user."""

    parameter: Parameter
    value: str | None = None


class Speller(Protocol):
    """An interface's words for operations and parameters."""

    def operation(self, operation: Operation, value: str | None) -> str:
        """Return how to call the operation; without a value, the user fills it in."""

    def parameter(self, parameter: Parameter) -> str:
        """Return the name of the parameter."""

    def given(self, parameter: Parameter, value: str | None) -> str:
        """Return how to give the parameter a value; None shows the kind of value instead."""


@dataclass(frozen=True, slots=True, init=False)
class Phrase:
    """Text for users, with operations and parameters that an interface spells.

    ``str()`` spells them in plain words, for logs and wherever there is no interface.
    """

    parts: tuple[str | Operation | Do | Parameter | Give, ...]

    def __init__(self, *parts: Part) -> None:
        flat = [piece for part in parts for piece in (part.parts if isinstance(part, Phrase) else (part,))]
        object.__setattr__(self, "parts", tuple(flat))

    def spell(self, speller: Speller) -> str:
        """Return the words, with the interface's own for operations and parameters."""
        return "".join(_spelled(part, speller) for part in self.parts)

    def __str__(self) -> str:
        """Return plain words: "list the topics with: " ends before the operation that no interface spells here."""
        texts: list[str] = []
        for part in self.parts:
            if isinstance(part, Operation | Do) and texts and texts[-1].endswith(_WITH):
                texts[-1] = texts[-1].removesuffix(_WITH)
            else:
                texts.append(_spelled(part, _PLAIN))
        return "".join(texts)


_WITH = " with: "

Part = str | Operation | Do | Parameter | Give | Phrase
"""What a phrase is made of; an operation alone is one without a value."""

Words = str | Phrase
"""What a person reads: a text that any interface can show, or a phrase."""


def words(part: Part) -> Words:
    return part if isinstance(part, str | Phrase) else Phrase(part)


# Advice that several nouns give.
SEE_TOPICS = Phrase("list the topics with: ", Operation.LIST_TOPICS)
START_IT = Phrase("is it running there? check the address, or start one here: ", Operation.START_LOCAL_CLUSTER)
UNRESOLVED = " (the name cannot be resolved)"
"""Follows the address."""
CHECK_NAME = "check the spelling of the name, and this machine's name servers"
GIVE_TIME = Phrase("give it more time with ", Give(Parameter.TIMEOUT))
NAME_ZOOKEEPER = Phrase(
    "give ",
    Give(Parameter.ZOOKEEPER, "HOST:PORT[/chroot]"),
    "; a cluster of Kafka 4 (KRaft) has none: ask for brokers, topics, settings and groups over the wire",
)
USE_BROKERS = Phrase("use ", Parameter.BOOTSTRAP_SERVERS)
FIND_BROKERS = Phrase("give ", Parameter.BOOTSTRAP_SERVERS, ", or find brokers with ", Give(Parameter.VIA, "wire"))


def _spelled(part: str | Operation | Do | Parameter | Give, speller: Speller) -> str:
    match part:
        case str():
            return part
        case Operation():
            return speller.operation(part, None)
        case Do(operation, value):
            return speller.operation(operation, value)
        case Parameter():
            return speller.parameter(part)
        case Give(parameter, value):
            return speller.given(parameter, value)


class _PlainWords:
    """Names operations and parameters by their enum values."""

    def operation(self, operation: Operation, value: str | None) -> str:
        return operation.value if value is None else f"{operation.value} {value}"

    def parameter(self, parameter: Parameter) -> str:
        return parameter.value

    def given(self, parameter: Parameter, value: str | None) -> str:
        return parameter.value if value is None else f"{parameter.value}={value}"


_PLAIN = _PlainWords()
