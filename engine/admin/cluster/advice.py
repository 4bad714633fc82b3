"""What a user should do next after an error code of Kafka: a sentence each. Most codes need none of their own."""

from __future__ import annotations

import re
from collections.abc import Mapping

from engine.admin.cluster.remedies import SEE_TOPICS, Do, Give, Operation, Parameter, Phrase, Words
from engine.common.errors import ErrorCode

_OUT_OF_SYNC = Phrase("see who is out of sync: ", Operation.DESCRIBE_UNDER_MIN_ISR)
_ADVICE: Mapping[ErrorCode, Words] = {
    ErrorCode.TOPIC_ALREADY_EXISTS: Phrase(
        "choose another name, or add ", Parameter.IF_NOT_EXISTS, " where an existing topic is fine"
    ),
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: SEE_TOPICS,
    ErrorCode.INVALID_REPLICATION_FACTOR: Phrase(
        "ask for no more replicas than there are live brokers: ", Operation.LIST_BROKERS
    ),
    ErrorCode.INVALID_REPLICA_ASSIGNMENT: "name each broker once per partition, and as many for every partition",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "use up to 249 letters, digits, dots, underscores and hyphens",
    ErrorCode.POLICY_VIOLATION: "the cluster's create or alter policy forbids it; ask whoever runs the cluster",
    ErrorCode.TOPIC_DELETION_DISABLED: "set delete.topic.enable=true on the brokers and restart them",
    ErrorCode.REASSIGNMENT_IN_PROGRESS: "wait for the reassignment to end, or cancel it, then try again",
    ErrorCode.NOT_CONTROLLER: "the controller has just changed; try again",
    ErrorCode.NOT_ENOUGH_REPLICAS: _OUT_OF_SYNC,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: Phrase("the records may have been stored; ", _OUT_OF_SYNC),
    ErrorCode.MESSAGE_TOO_LARGE: Phrase(
        "send smaller records, or raise max.message.bytes of the topic: ", Operation.ALTER_CONFIGS
    ),
    ErrorCode.RECORD_LIST_TOO_LARGE: "send smaller batches, or raise max.message.bytes and segment.bytes of the topic",
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: "tokens need delegation.token.secret.key in the brokers' files",
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: Phrase(
        "tokens are for those who are logged in by TLS or SASL, and not by a token: ", Give(Parameter.COMMAND_CONFIG)
    ),
    ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH: "only the token's owner and its renewers may do that",
    ErrorCode.SECURITY_DISABLED: Phrase(
        "brokers without authorizer.class.name allow everything; to prepare rules, write them to ZooKeeper: ",
        Give(Parameter.VIA, "zookeeper"),
    ),
    ErrorCode.LEADER_NOT_AVAILABLE: Phrase("the partition has no leader: ", Operation.DESCRIBE_UNAVAILABLE),
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "the leader has just changed; try again",
    ErrorCode.OFFSET_OUT_OF_RANGE: Phrase("start at an offset that still exists, or use ", Parameter.FROM_BEGINNING),
    ErrorCode.KAFKA_STORAGE_ERROR: "a log dir of that broker has failed; check its server.log",
    ErrorCode.REQUEST_TIMED_OUT: Phrase(
        "the change may still be carried out; check again, and give more time with ", Parameter.TIMEOUT
    ),
    ErrorCode.UNSUPPORTED_VERSION: Phrase(
        "the cluster is too old for this; it may work through ZooKeeper: ", Give(Parameter.ZOOKEEPER)
    ),
    ErrorCode.UNKNOWN_TOPIC_ID: Phrase("the topic was deleted or created again; ", SEE_TOPICS),
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: "the cluster limits how fast topics may be changed; wait and try again",
    ErrorCode.CORRUPT_MESSAGE: "the records were damaged in transit, or a null key was sent to a compacted topic",
    ErrorCode.INVALID_RECORD: "the topic does not accept such a record; a compacted topic requires a key",
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: Phrase(
        "the topic's message.format.version is older: before 0.11 records have no headers, no transactions, and are "
        "taken only with ",
        Parameter.NO_IDEMPOTENCE,
        "; before 0.10 they have no times",
    ),
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: Phrase("use another ", Parameter.COMPRESSION, "; zstd needs Kafka 2.1"),
}


ACCESS_DENIED: Mapping[ErrorCode, str] = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "topic",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "group",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "cluster",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "transactional id",
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: "delegation token",
}
"""Refusals because rights are missing, and the type of resource that the missing ACL is on."""

_UNKNOWN_KEY = re.compile(r"Unknown topic config name: (\S+)")
_TOO_MANY = "must not be larger"
_TOO_FEW = "must be larger than 0"
_COLLIDES = "collides with existing topic"
_NOT_DYNAMIC = "Cannot update these configs dynamically"
_OF_LISTENERS = re.compile(r"only per-listener using the listener prefix: (?:\w+\()?([\w.]+)")


def advice_for(code: ErrorCode, message: str = "", where: str = "") -> Words | None:
    """Return what to do next, or None if the error's own text says it best.

    ``message`` is the error's text, ``where`` what it is about, such as ``topic orders``.
    """
    if code in ACCESS_DENIED:
        return _advice_on_rights(ACCESS_DENIED[code], where)
    if code is ErrorCode.INVALID_CONFIG:
        return _advice_on_settings(message, where)
    if code is ErrorCode.INVALID_PARTITIONS and where.startswith("topic "):
        return _advice_on_partitions(message, where.removeprefix("topic "))
    if code is ErrorCode.INVALID_TOPIC_EXCEPTION and _COLLIDES in message:
        return "'.' and '_' are the same in metric names: choose a name that differs elsewhere"
    if _NOT_DYNAMIC in message:
        return "it is set in the broker's server.properties, and takes effect when the broker is restarted"
    if (key := _OF_LISTENERS.search(message)) is not None:
        return f"name the listener too, in small letters: listener.name.LISTENER.{key[1]}"
    if code in _ADVICE:
        return _ADVICE[code]
    return "try again" if code.is_retriable else None


def _advice_on_partitions(message: str, topic: str) -> Words | None:
    if _TOO_MANY in message:
        return None
    if _TOO_FEW in message:
        return "give at least one"
    return Phrase("topics only grow; see how many there are now: ", Do(Operation.DESCRIBE_TOPIC, topic))


def _advice_on_rights(kind: str, where: str) -> str:
    """Name the resource if ``where`` begins with its kind; a partition's rights are those of its topic."""
    is_named = where.startswith(f"{kind} ")
    resource = where.partition(" partition ")[0] if is_named else f"the {kind}"
    return f"access denied: ask an administrator of the cluster for an ACL on {resource}"


def _advice_on_settings(message: str, where: str) -> Words | None:
    kind, _, name = where.partition(" ")
    if kind == "broker" and name.isdigit():
        return Phrase("see keys and their values with: ", Do(Operation.DESCRIBE_ALL_BROKER_CONFIGS, name))
    if kind != "topic":
        return None
    look = Phrase("see keys and their values with: ", Do(Operation.DESCRIBE_ALL_TOPIC_CONFIGS, name))
    unknown = _UNKNOWN_KEY.search(message)
    nearest = _nearest_key(unknown[1]) if unknown is not None else None
    return look if nearest is None else Phrase(f"did you mean {nearest}? ", look)


def _nearest_key(key: str) -> str | None:
    from difflib import get_close_matches

    from engine.kafka.config.topic_configs import TOPIC_CONFIG_DEF

    return next(iter(get_close_matches(key, TOPIC_CONFIG_DEF.names, n=1)), None)
