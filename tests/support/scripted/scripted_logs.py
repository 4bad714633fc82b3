"""Leaders of the topic "t" that answer ListOffsets and Fetch from logs in memory, for tests of readers."""

from __future__ import annotations

import asyncio

from scripted_brokers import ScriptedCluster

from engine.common.errors import ErrorCode
from engine.common.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from engine.kafka.protocol.apis.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from engine.kafka.protocol.records.encode import encode_batch
from engine.kafka.protocol.records.record import Record

_WAIT_MS_MAX = 100


class Log:
    """A partition's records in batches of three.

    It reads as a broker does: whole batches, from the one with the offset.
    """

    def __init__(self, count: int, start: int = 0) -> None:
        self.start = start
        self.end = start + count
        self.batches = [
            (base, encode_batch(self._records(base), base_offset=base)) for base in range(start, self.end, 3)
        ]

    def _records(self, base: int) -> list[Record]:
        return [Record(offset, 1000 + offset, None, b"%d" % offset) for offset in range(base, min(base + 3, self.end))]

    def read(self, offset: int) -> bytes:
        batches = [data for base, data in self.batches if base + 3 > offset]
        return b"".join(batches[:2])


class LeaderScript:
    """Answers ListOffsets and Fetch from logs."""

    def __init__(self, logs: dict[int, Log]) -> None:
        self.logs = logs
        self.codes: dict[int, ErrorCode] = {}
        """The error that Fetch gets, by partition."""

    def list_offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        (topic,) = request.topics
        answers = []
        for asked in topic.partitions:
            log = self.logs[asked.partition_index]
            times = {LATEST_TIMESTAMP: log.end, EARLIEST_TIMESTAMP: log.start}
            later = max(log.start, asked.timestamp - 1000)
            offset = times.get(asked.timestamp, later if later < log.end else -1)
            answers.append(ListOffsetsPartitionResponse(partition_index=asked.partition_index, offset=offset))
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name=topic.name, partitions=answers)])

    async def fetch(self, request: FetchRequest) -> FetchResponse:
        """Answer as a broker does: where there is nothing to tell it waits, or the reader would ask again at once."""
        (topic,) = request.topics
        answers = [self._partition(asked.partition, asked.fetch_offset) for asked in topic.partitions]
        if not any(answer.records or answer.error_code for answer in answers):
            await asyncio.sleep(min(request.max_wait_ms, _WAIT_MS_MAX) / 1000)
        return FetchResponse(responses=[FetchableTopicResponse(topic=topic.topic, partitions=answers)])

    def _partition(self, partition: int, offset: int) -> PartitionData:
        log = self.logs[partition]
        code = self.codes.get(partition, ErrorCode.NONE)
        if code is ErrorCode.NONE and not log.start <= offset <= log.end:
            code = ErrorCode.OFFSET_OUT_OF_RANGE
        records = log.read(offset) if code is ErrorCode.NONE else b""
        return PartitionData(partition_index=partition, error_code=int(code), high_watermark=log.end, records=records)


def lead(cluster: ScriptedCluster, broker: int, logs: dict[int, Log]) -> LeaderScript:
    """Let a broker answer for these partitions."""
    script = LeaderScript(logs)
    cluster.brokers[broker].answers[ApiKey.LIST_OFFSETS] = script.list_offsets
    cluster.brokers[broker].answers[ApiKey.FETCH] = script.fetch
    return script
