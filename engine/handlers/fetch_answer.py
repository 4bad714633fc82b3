"""From what was read to a Fetch answer in the version of the request."""

from __future__ import annotations

import struct

from engine.common.errors import ErrorCode, KafkaError
from engine.common.model import TopicPartition
from engine.handlers.context import RequestContext
from engine.handlers.fetch_reads import BATCHES_VERSION, FetchReads
from engine.handlers.fetch_sessions import INVALID_SESSION_ID, FetchContext, FetchPartition, PartitionOutcome
from engine.handlers.leader_hint import LeaderHints
from engine.protocol.apis.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from engine.protocol.records.convert import down_convert
from engine.protocol.records.header import iter_batches
from engine.protocol.records.layout import LOG_OVERHEAD
from engine.replication.partition_read import PartitionRead, read_error
from engine.storage.file_range import OpenFile, read_fully

DOWN_CONVERTED_BYTES_MAX = 128 * 1024
"""Bytes that are converted for one answer to an old reader: a few milliseconds' work; it asks for the rest again."""

_NO_RECORDS = b""
_SIZE_OF_ENTRY = struct.Struct(">qi")
_LEADER_ERRORS = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


def session_error(code: ErrorCode) -> FetchResponse:
    """Return the answer to a request whose session is not valid."""
    return FetchResponse(error_code=code, session_id=INVALID_SESSION_ID, responses=[])


def build_response(context: RequestContext, fetch: FetchContext, reads: FetchReads) -> FetchResponse:
    """Put what was read into an answer; within a session only what the reader does not know yet."""
    version = context.api_version
    hints = LeaderHints(context) if version >= 16 else None
    budget = [DOWN_CONVERTED_BYTES_MAX]
    responses: list[FetchableTopicResponse] = []
    current: FetchableTopicResponse | None = None
    for wanted, read in zip(reads.partitions, reads.reads, strict=True):
        records: object = read.records
        if version < BATCHES_VERSION and records is not None:
            read, records = _down_converted(read, version, wanted.fetch_offset, budget)
        if not fetch.must_answer(wanted, _outcome(read)):
            continue
        key = wanted.key
        if current is None or (current.topic_id if version >= 13 else current.topic) != (
            key.topic_id if version >= 13 else key.topic
        ):
            current = FetchableTopicResponse(topic=key.topic, topic_id=key.topic_id, partitions=[])
            responses.append(current)
        data = _partition_data(key.partition, read, records)
        if hints is not None and read.error in _LEADER_ERRORS:
            _name_new_leader(hints, wanted, data)
        current.partitions.append(data)
    response = FetchResponse(session_id=fetch.session_id, responses=responses)
    if hints is not None and hints.nodes:
        response.node_endpoints = [
            NodeEndpoint(node_id=n.id, host=n.host, port=n.port, rack=n.rack) for n in hints.nodes.values()
        ]
    return response


def _outcome(read: PartitionRead) -> PartitionOutcome:
    return PartitionOutcome(
        error_code=read.error,
        size_bytes=read.size_bytes,
        high_watermark=read.high_watermark,
        log_start_offset=read.log_start_offset,
        must_tell=read.diverging_epoch is not None or read.preferred_read_replica >= 0,
    )


def _partition_data(index: int, read: PartitionRead, records: object) -> PartitionData:
    diverging = read.diverging_epoch
    aborted = read.aborted
    return PartitionData(
        partition_index=index,
        error_code=read.error,
        high_watermark=read.high_watermark,
        last_stable_offset=read.last_stable_offset,
        log_start_offset=read.log_start_offset,
        diverging_epoch=None if diverging is None else EpochEndOffset(epoch=diverging[0], end_offset=diverging[1]),
        aborted_transactions=None
        if aborted is None
        else [AbortedTransaction(producer_id=t.producer_id, first_offset=t.first_offset) for t in aborted],
        preferred_read_replica=read.preferred_read_replica,
        records=_NO_RECORDS if records is None else records,
    )


def _name_new_leader(hints: LeaderHints, wanted: FetchPartition, data: PartitionData) -> None:
    if wanted.topic is None:
        return
    leader = hints.leader_of(TopicPartition(wanted.topic, wanted.key.partition))
    if leader is not None:
        data.current_leader = LeaderIdAndEpoch(leader_id=leader[0], leader_epoch=leader[1])


def _down_converted(
    read: PartitionRead, version: int, fetch_offset: int, budget: list[int]
) -> tuple[PartitionRead, bytes | None]:
    """Return the records in the magic an old reader understands; an error where they cannot be converted.

    A portion that holds nothing for such a reader (control batches) must not end the answer, or it would ask for ever.
    """
    records = read.records
    if records is None or budget[0] <= 0:
        return read, None
    magic = 0 if version < 2 else 1
    position, end = records.position, records.position + records.size_bytes
    try:
        while position < end:
            portion = _whole_batches(records.file, position, end, budget[0])
            if not portion:
                break
            position += len(portion)
            budget[0] -= len(portion)
            converted = down_convert(portion, magic, fetch_offset)
            if converted:
                return read, converted
    except KafkaError as error:
        return read_error(error.code), None
    return read, None


def _whole_batches(file: OpenFile, position: int, end: int, size_wanted: int) -> bytes:
    """Return about ``size_wanted`` bytes of whole batches, at least one batch where one is whole before ``end``."""
    if end - position < LOG_OVERHEAD:
        return b""
    _, length = _SIZE_OF_ENTRY.unpack(read_fully(file.fd, position, LOG_OVERHEAD))
    size = min(end - position, max(size_wanted, LOG_OVERHEAD + length))
    data = read_fully(file.fd, position, size)
    whole = sum(header.size_bytes for _, header in iter_batches(data))
    return data[:whole]
