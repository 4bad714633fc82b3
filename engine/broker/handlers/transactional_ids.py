"""What the handlers of transactions share: when there are none, and which error an old client understands."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import TypeVar

from engine.broker.handlers.context import RequestContext
from engine.common.errors import ErrorCode
from engine.common.model import TopicPartition
from engine.kafka.config.metadata_version import MetadataVersion

R = TypeVar("R")


def are_transactions_refused(context: RequestContext) -> bool:
    """Whether the brokers' protocol is from before transactions: some broker may not know markers."""
    return context.broker.config.inter_broker_protocol_version < MetadataVersion.IBP_0_11_0_IV0


def understood(error: ErrorCode, api_version: int, *, fenced_since: int) -> ErrorCode:
    """Return the error for a client: before ``fenced_since`` none knows PRODUCER_FENCED."""
    is_unknown = error is ErrorCode.PRODUCER_FENCED and api_version < fenced_since
    return ErrorCode.INVALID_PRODUCER_EPOCH if is_unknown else error


def by_topic(
    errors: Iterable[tuple[TopicPartition, ErrorCode]], result: Callable[[int, ErrorCode], R]
) -> Generator[None, None, Iterable[tuple[str, list[R]]]]:
    """Return the partitions' results by topic, in the order in which the topics came. It yields after each of them."""
    topics: dict[str, list[R]] = {}
    for (topic, index), error in errors:
        topics.setdefault(topic, []).append(result(index, error))
        yield
    return topics.items()
