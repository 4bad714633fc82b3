"""One Fetch: the records of some partitions from one broker. The caller decides whom to ask, and when to ask again."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from engine.admin.cluster.errors import BadRequest, Unknown
from engine.admin.cluster.wire import WireCluster
from engine.admin.cluster.wire_failures import refuse
from engine.common.errors import ErrorCode
from engine.common.model import CONSUMER_REPLICA_ID, IsolationLevel, TopicPartition
from engine.kafka.protocol.apis.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData

# From version 13 on, Fetch names topics by id (KIP-516). That would need a request for the ids first, brokers before
# Kafka 3.1 would still need the names, and every broker up to Kafka 4 still accepts version 12.
_VERSION_MAX = 12


class FetchFrom(NamedTuple):
    """Where to read in a partition, and how many bytes at most. The first batch of an answer comes whole (KIP-74)."""

    offset: int
    max_bytes: int


async def fetch(
    wire: WireCluster,
    broker_id: int,
    wanted: Mapping[TopicPartition, FetchFrom],
    *,
    max_bytes: int,
    max_wait_ms: int = 0,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    replica_id: int = CONSUMER_REPLICA_ID,
    timeout_ms: int | None = None,
) -> dict[TopicPartition, PartitionData | Unknown]:
    """Return one broker's answer for each partition: data without an error, or why there is none.

    While a quota holds this client back, the broker answers without partitions: wait as long as it says, and ask again.

    Args:
        max_bytes: the limit of the whole answer.
        max_wait_ms: how long the broker may wait for the first record.
        replica_id: DEBUGGING_REPLICA_ID reads any replica up to its log end.
        timeout_ms: how long to wait for the answer; None is the connection's own limit.

    Raises:
        NotFound: no live broker has this id.
        Unreachable: it does not answer.
        Refused: it refuses the request as a whole.
    """
    topics: dict[str, list[FetchPartition]] = {}
    for (topic, partition), start in wanted.items():
        asked = FetchPartition(partition=partition, fetch_offset=start.offset, partition_max_bytes=start.max_bytes)
        topics.setdefault(topic, []).append(asked)
    request = FetchRequest(
        replica_id=replica_id,
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=max_bytes,
        isolation_level=isolation,
        topics=[FetchTopic(topic=topic, partitions=partitions) for topic, partitions in topics.items()],
    )
    while True:
        response: FetchResponse = await wire.call_broker(
            broker_id, request, version_max=_VERSION_MAX, timeout_ms=timeout_ms
        )
        refuse(response.error_code, None, f"broker {broker_id}")
        if response.responses or not response.throttle_time_ms:
            break
        await asyncio.sleep(response.throttle_time_ms / 1000)
    shown = {
        TopicPartition(topic.topic, data.partition_index): data
        for topic in response.responses
        for data in topic.partitions
    }
    return {name: _answer(shown.get(name)) for name in wanted}


def _answer(data: PartitionData | None) -> PartitionData | Unknown:
    if data is None:
        return Unknown("the broker left it out of its answer")
    return data if data.error_code == ErrorCode.NONE else Unknown.of_code(data.error_code)


Headers = Sequence[tuple[str, bytes | None]]
RecordFilter = Callable[[bytes | None, bytes | None, Headers], bool]

_FORM = re.compile(r"(key|value|header\.[^=]+)=(.*)", re.DOTALL)


def parse_record_filter(text: str) -> RecordFilter:
    """Return a check of key, value and headers; the regular expression may match anywhere in them.

    Forms: ``REGEX`` (of key or value), ``key=REGEX``, ``value=REGEX``, ``header.NAME=REGEX``.

    Raises:
        BadRequest: it is not a regular expression.
    """
    form = _FORM.fullmatch(text)
    field, pattern_text = (form[1], form[2]) if form is not None else ("", text)
    try:
        pattern = re.compile(pattern_text.encode())
    except re.error as error:
        raise BadRequest(f"not a regular expression: {pattern_text!r} ({error})") from error

    def matches(data: bytes | None) -> bool:
        return data is not None and pattern.search(data) is not None

    if field == "key":
        return lambda key, value, headers: matches(key)
    if field == "value":
        return lambda key, value, headers: matches(value)
    if field:
        name = field.removeprefix("header.")
        return lambda key, value, headers: any(matches(data) for header, data in headers if header == name)
    return lambda key, value, headers: matches(key) or matches(value)
