"""What must hold of a cluster once it is quiet, whatever happened before."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fault_cluster import FaultCluster
from replica_files import assert_identical, replica_folder
from sequence_writers import Writer, assert_nothing_lost
from tailing_reader import TailingReader


def replica_folders(cluster: FaultCluster, topic: str) -> list[list[Path]]:
    """Return per partition of a topic the folders of its replicas."""
    return [
        [replica_folder(cluster.broker(r).spec.log_dirs, topic, partition) for r in assignment.replicas]
        for (_, partition), assignment in cluster.assignments([topic]).items()
    ]


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
    for writer in writers:
        writer.check()
    partitions = len(cluster.assignments([topic]))
    checked = assert_nothing_lost(cluster.bootstrap, topic, partitions, writers, reader)
    assert_identical(replica_folders(cluster, topic))
    cluster.wait_for("no znode is left", lambda: not cluster.leftovers(), timeout_s=15.0)
    return checked
