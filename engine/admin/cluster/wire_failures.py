"""What a failure of the network, or an error code in a broker's answer, means to the caller."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from engine.admin.cluster.errors import AnswerLost, LoginRefused, NotFound, OutcomeUnknown, Refused, Unreachable
from engine.admin.cluster.remedies import GIVE_TIME, SEE_TOPICS, Give, Operation, Parameter, Phrase
from engine.common.errors import ErrorCode, error_code
from engine.kafka.client.errors import (
    ConnectFailed,
    ConnectionLost,
    NetworkError,
    NoCommonVersion,
    NotAdmitted,
    RequestTimedOut,
)
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.init_producer_id import InitProducerIdRequest
from engine.kafka.protocol.declaration import Request

WHERE_TO_LOOK: Mapping[ApiKey, Operation] = {
    ApiKey.ALTER_CLIENT_QUOTAS: Operation.DESCRIBE_CONFIGS,
    ApiKey.ALTER_CONFIGS: Operation.DESCRIBE_CONFIGS,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: Operation.LIST_REASSIGNMENTS,
    ApiKey.ALTER_REPLICA_LOG_DIRS: Operation.DESCRIBE_LOG_DIRS,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: Operation.LIST_USERS,
    ApiKey.CREATE_ACLS: Operation.LIST_ACLS,
    ApiKey.CREATE_DELEGATION_TOKEN: Operation.LIST_TOKENS,
    ApiKey.CREATE_PARTITIONS: Operation.DESCRIBE_TOPICS,
    ApiKey.CREATE_TOPICS: Operation.LIST_TOPICS,
    ApiKey.DELETE_ACLS: Operation.LIST_ACLS,
    ApiKey.DELETE_GROUPS: Operation.LIST_GROUPS,
    ApiKey.DELETE_RECORDS: Operation.LIST_EARLIEST_OFFSETS,
    ApiKey.DELETE_TOPICS: Operation.LIST_TOPICS,
    ApiKey.ELECT_LEADERS: Operation.DESCRIBE_TOPICS,
    ApiKey.EXPIRE_DELEGATION_TOKEN: Operation.LIST_TOKENS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Operation.DESCRIBE_CONFIGS,
    ApiKey.OFFSET_COMMIT: Operation.DESCRIBE_GROUP,
    ApiKey.OFFSET_DELETE: Operation.DESCRIBE_GROUP,
    ApiKey.RENEW_DELEGATION_TOKEN: Operation.LIST_TOKENS,
    ApiKey.WRITE_TXN_MARKERS: Operation.FIND_HANGING_TRANSACTIONS,
}
"""The requests by which an operator changes a cluster, and what shows whether one was carried out."""


def where_to_look(request: Request) -> Operation | None:
    """Return the operation that shows whether a request was carried out; None for requests that need no such look."""
    if getattr(request, "validate_only", False):
        return None
    if isinstance(request, InitProducerIdRequest) and request.transactional_id is not None:
        # It fences the producer before, and aborts what that left open.
        return Operation.LIST_TRANSACTIONS
    return WHERE_TO_LOOK.get(request.api_key)


LOSSES = (ConnectionLost, RequestTimedOut)
"""Errors that leave open whether a request was carried out."""


_LOST = Phrase(
    "the broker has ended, or none listens there: name a ZooKeeper with ", Parameter.ZOOKEEPER,
    "; or it asks for TLS or a login, or has another security.protocol: give ", Give(Parameter.COMMAND_CONFIG),
)  # fmt: skip


def outcome_unknown(error: NetworkError, look: Operation) -> OutcomeUnknown:
    """Return the error for a change whose answer was lost; ``look`` shows whether it was carried out."""
    message = f"{str(error).removesuffix(f': {error.address}')}; the request may still take effect"
    return OutcomeUnknown(message, where=error.address, hint=Phrase("look before you send it again: ", look))


def unreachable(error: NetworkError) -> Unreachable | Refused:
    """Return a failure of the network in words for users."""
    message = str(error).removesuffix(f": {error.address}")
    if isinstance(error, NoCommonVersion):
        return Refused(ErrorCode.UNSUPPORTED_VERSION, message, where=error.address)
    if isinstance(error, NotAdmitted):
        return LoginRefused(message, where=error.address, hint=error.hint)
    if isinstance(error, ConnectFailed):
        return Unreachable(message, where=error.address, hint="is a broker running there?")
    if isinstance(error, ConnectionLost):
        return AnswerLost(message, where=error.address, hint=error.hint or _LOST)
    if isinstance(error, RequestTimedOut):
        return AnswerLost(message, where=error.address, hint=GIVE_TIME)
    return Unreachable(message, where=error.address)


def refuse(code: int, message: str | None, where: str, *, topics: Sequence[str] = ()) -> None:
    """Raise what an error code in an answer means; do nothing if it is NONE. ``topics`` are those asked about."""
    known = error_code(code)
    if known is ErrorCode.NONE:
        return
    if known is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise NotFound(message or "does not exist", where=where, hint=SEE_TOPICS, topics=topics)
    raise Refused(known, message, where=where)
