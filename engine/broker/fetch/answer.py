"""Turns what was read into a Fetch answer of the request's version."""

from __future__ import annotations

from engine.broker.fetch.conversion import Converted
from engine.broker.fetch.reads import FetchBroker, FetchReads
from engine.broker.fetch.session_cache import INVALID_SESSION_ID, FetchContext, FetchPartition
from engine.broker.replication.metadata_cache import LeaderHints
from engine.broker.replication.partition import Partition
from engine.broker.replication.partition_read import PartitionRead
from engine.common.errors import NO_ERROR, ErrorCode
from engine.common.model import TopicPartition
from engine.kafka.protocol.apis.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)

STORAGE_ERROR_UNKNOWN_VERSION = 5
"""Up to this version a reader may not know the error and give up. If told that the leader is elsewhere, it retries."""

_NO_RECORDS = b""
_LEADER_ERRORS = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


def session_error(code: ErrorCode, session_id: int = INVALID_SESSION_ID) -> FetchResponse:
    """Return the answer to a request whose session is not valid."""
    return FetchResponse(error_code=code, session_id=session_id, responses=[])


def _superseded(fetch: FetchContext) -> FetchResponse:
    # As in Kafka the answer names the session, which stays open.
    return session_error(
        ErrorCode.INVALID_FETCH_SESSION_EPOCH, fetch.session_id if fetch.is_incremental else INVALID_SESSION_ID
    )


def throttled_response(fetch: FetchContext, throttle_ms: int) -> FetchResponse:
    """Return the empty answer to a consumer that has to wait: it asks again for the same, and a new session is none."""
    if fetch.is_superseded:
        response = _superseded(fetch)
    else:
        session_id = fetch.session_id if fetch.is_incremental else INVALID_SESSION_ID
        response = FetchResponse(session_id=session_id, responses=[])
    response.throttle_time_ms = throttle_ms
    return response


def build_response(
    broker: FetchBroker, fetch: FetchContext, reads: FetchReads, converted: Converted | None = None
) -> FetchResponse:
    """Build the answer from what was read, or from its conversion for an old reader; in a session only from what is
    new.
    """
    if fetch.is_superseded:
        return _superseded(fetch)
    version = reads.parameters.api_version
    hints = None
    if version >= 16:
        hosted = broker.replica_manager.partitions
        hints = LeaderHints(broker.metadata_cache, hosted, reads.parameters.listener_name)
    responses: list[FetchableTopicResponse] = []
    current: FetchableTopicResponse | None = None
    records_read = ((read, read.records) for read in reads.reads) if converted is None else converted
    is_incremental = fetch.is_incremental
    fetched = broker.replica_manager.environment.topics.fetched
    replica_id = reads.parameters.replica_id
    for wanted, (read, records), (partition, _, _) in zip(reads.partitions, records_read, reads.ends, strict=True):
        if is_incremental and records is None and _is_known(wanted, read):
            continue
        if not fetch.must_answer(wanted, read):
            continue
        if partition is not None and read.records is not None:
            if replica_id < 0:
                partition.counts.sent.append(read.records.size_bytes)
            else:
                _count_replication(broker, partition, replica_id, read.records.size_bytes)
        key = wanted.key
        if current is None or (current.topic_id if version >= 13 else current.topic) != (
            key.topic_id if version >= 13 else key.topic
        ):
            current = FetchableTopicResponse(topic=key.topic, topic_id=key.topic_id, partitions=[])
            responses.append(current)
        data = _partition_data(key.partition, read, records)
        if version <= STORAGE_ERROR_UNKNOWN_VERSION and read.error is ErrorCode.KAFKA_STORAGE_ERROR:
            data.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        if hints is not None and read.error in _LEADER_ERRORS:
            _name_new_leader(hints, wanted, data)
        fetched.append(data.error_code)
        current.partitions.append(data)
    reads.settle()
    response = FetchResponse(session_id=fetch.session_id, responses=responses)
    if hints is not None and hints.nodes:
        response.node_endpoints = [
            NodeEndpoint(node_id=n.id, host=n.host, port=n.port, rack=n.rack) for n in hints.nodes.values()
        ]
    return response


def _is_known(wanted: FetchPartition, read: PartitionRead) -> bool:
    """Return whether a partition has no news. This is quick, since most partitions of a session have none."""
    return (
        wanted.sent_high_watermark == read.high_watermark
        and wanted.sent_log_start_offset == read.log_start_offset
        and read.error is NO_ERROR
        and read.diverging_epoch is None
        and read.preferred_read_replica < 0
    )


def _count_replication(broker: FetchBroker, partition: Partition, replica_id: int, size_bytes: int) -> None:
    topics = partition.environment.topics
    quota = broker.replica_manager.leader_quota
    if quota.has_throttled and quota.is_throttled(partition.topic_partition):
        quota.record(size_bytes)
    topics.replication_bytes_out += size_bytes
    if replica_id in partition.assignment.adding_replicas:
        topics.reassignment_bytes_out += size_bytes


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
