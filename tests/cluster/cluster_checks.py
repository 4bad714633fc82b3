"""What must hold in a quiet cluster, whatever happened before."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fault_cluster import FaultCluster
from replica_files import assert_identical, replica_folder
from sequence_writers import Writer, assert_nothing_lost
from tailing_reader import TailingReader
from wire_client import WireClient, describe_topic

from engine.common.errors import ErrorCode
from engine.kafka.protocol.apis.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from engine.kafka.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic
from engine.kafka.protocol.records.header import BatchHeader, iter_batches


def replica_folders(cluster: FaultCluster, topic: str) -> list[list[Path]]:
    """Return the folders of the replicas, for each partition of a topic."""
    return [
        [replica_folder(cluster.broker(r).spec.log_dirs, topic, partition) for r in assignment.replicas]
        for (_, partition), assignment in cluster.assignments([topic]).items()
    ]


def what_brokers_say(cluster: FaultCluster, topic: str) -> str:
    """Return what each broker says about a topic's partitions: leader, epoch and end of the log."""
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
    """Return the batches in the first replica of each partition."""
    return [
        [header for path in sorted(folder.glob("*.log")) for _, header in iter_batches(path.read_bytes())]
        for folder, *_ in replica_folders(cluster, topic)
    ]


def sent_under_later_epochs(batches: Sequence[BatchHeader]) -> set[int]:
    """Return the offsets of records whose idempotent producer has changed its epoch since it began.

    librdkafka does so when a leader misses a sequence number, and resends all unacknowledged records. Records that the
    old leader had stored then exist twice. No broker can recognise such a copy, because its sequences start over.
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
            response = client.ask(asked, 9)
        partitions = response.topics[0].partitions
        if {b.node_id for b in response.brokers} != running or not partitions or any(p.error_code for p in partitions):
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
    """Check every promise for one topic whose writers have stopped. Return the number of acknowledged records.

    All partitions have leaders and all ISRs are full. Acknowledged records are there once, in order, at their offsets.
    What the reader has read is unchanged. All replicas are equal, byte for byte. No znode of an operation is left.
    """
    cluster.wait_in_sync([topic], timeout_s=timeout_s)
    # A new controller tells a broker only about brokers that have registered again. A client that asks such a broker
    # keeps the short list for minutes: librdkafka does not ask again about a topic that it knows.
    cluster.wait_for("every broker tells clients the same", lambda: all_tell_the_same(cluster, topic))
    for writer in writers:
        writer.check()
    partitions = len(cluster.assignments([topic]))
    batches = batches_in_logs(cluster, topic)
    later = [sent_under_later_epochs(headers) for headers in batches]
    try:
        checked = assert_nothing_lost(cluster.bootstrap, topic, partitions, writers, reader, sent_again=later)
    except AssertionError as error:
        text = "\n".join(str(header) for headers in batches for header in headers)
        raise AssertionError(f"{error}\n{what_brokers_say(cluster, topic)}\n{text}") from error
    assert_identical(replica_folders(cluster, topic))
    cluster.wait_for("no znode is left", lambda: not cluster.leftovers(), timeout_s=15.0)
    return checked
