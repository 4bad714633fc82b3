"""What must hold of a cluster once it is quiet, whatever happened before."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fault_cluster import FaultCluster
from replica_files import assert_identical, replica_folder
from sequence_writers import Writer, assert_nothing_lost
from tailing_reader import TailingReader
from wire_client import WireClient, describe_topic

from engine.common.errors import ErrorCode
from engine.protocol.apis.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from engine.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic
from engine.protocol.records.header import BatchHeader, iter_batches


def replica_folders(cluster: FaultCluster, topic: str) -> list[list[Path]]:
    """Return per partition of a topic the folders of its replicas."""
    return [
        [replica_folder(cluster.broker(r).spec.log_dirs, topic, partition) for r in assignment.replicas]
        for (_, partition), assignment in cluster.assignments([topic]).items()
    ]


def what_brokers_say(cluster: FaultCluster, topic: str) -> str:
    """Return what each broker tells of a topic's partitions: leader and epoch, and where the log ends."""
    lines = []
    for broker_id in cluster.running:
        with WireClient(cluster.broker(broker_id).address) as client:
            for p in describe_topic(client, topic).partitions:
                wanted = ListOffsetsPartition(
                    partition_index=p.partition_index, timestamp=-1, current_leader_epoch=p.leader_epoch
                )
                asked = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[wanted])])
                end = client.ask(asked, 5).topics[0].partitions[0]
                lines.append(
                    f"broker {broker_id}: {topic}-{p.partition_index} leader {p.leader_id} epoch {p.leader_epoch} "
                    f"error {ErrorCode(p.error_code).name}; end {end.offset} {ErrorCode(end.error_code).name}"
                )
    return "\n".join(lines)


def batches_in_logs(cluster: FaultCluster, topic: str) -> list[list[BatchHeader]]:
    """Return the batches that the first replica of each partition holds."""
    return [
        [header for path in sorted(folder.glob("*.log")) for _, header in iter_batches(path.read_bytes())]
        for folder, *_ in replica_folders(cluster, topic)
    ]


def sent_under_later_epochs(batches: Sequence[BatchHeader]) -> set[int]:
    """Return the offsets of records whose idempotent producer had taken another epoch since it began.

    librdkafka takes one when a leader misses a sequence number, and sends all again that nobody has acknowledged; what
    the old leader had stored then stands there twice. No broker can know such a copy: its sequence starts over.
    """
    first: dict[int, int] = {}
    return {
        offset
        for header in batches
        if header.producer_epoch > first.setdefault(header.producer_id, header.producer_epoch)
        for offset in range(header.base_offset, header.last_offset + 1)
    }


def all_tell_the_same(cluster: FaultCluster, topic: str) -> bool:
    """Return whether every broker tells clients of all running ones, and of a leader for each partition."""
    running = set(cluster.running)
    for broker_id in running:
        with WireClient(cluster.broker(broker_id).address) as client:
            asked = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
            told = client.ask(asked, 9)
        partitions = told.topics[0].partitions
        if {b.node_id for b in told.brokers} != running or not partitions or any(p.error_code for p in partitions):
            return False
    return True


def assert_quiet_and_whole(
    cluster: FaultCluster,
    topic: str,
    writers: Sequence[Writer],
    *,
    reader: TailingReader | None = None,
    timeout_s: float = 60.0,
) -> int:
    """Check every promise for one topic; its writers have stopped. Return the number of acknowledged records.

    All partitions are led and all ISRs full; acknowledged records are there once, in order, at their offsets;
    what the reader has read stands unchanged; all replicas are the same to the byte; no znode of an operation is left.
    """
    cluster.wait_in_sync([topic], timeout_s=timeout_s)
    # A client that is told by a broker which has not heard of all others yet (a new controller tells of those that have
    # registered again) keeps that for minutes: librdkafka asks no more for a topic it knows.
    cluster.wait_for("every broker tells clients the same", lambda: all_tell_the_same(cluster, topic))
    for writer in writers:
        writer.check()
    partitions = len(cluster.assignments([topic]))
    batches = batches_in_logs(cluster, topic)
    later = [sent_under_later_epochs(headers) for headers in batches]
    try:
        checked = assert_nothing_lost(cluster.bootstrap, topic, partitions, writers, reader, sent_again=later)
    except AssertionError as error:
        told = "\n".join(str(header) for headers in batches for header in headers)
        raise AssertionError(f"{error}\n{what_brokers_say(cluster, topic)}\n{told}") from error
    assert_identical(replica_folders(cluster, topic))
    cluster.wait_for("no znode is left", lambda: not cluster.leftovers(), timeout_s=15.0)
    return checked
