"""A follower's partition in a fetch session that was read to its end and has nothing new while it stays the same.

Most partitions of a session are in this state most of the time. Once the follower knows everything about one, it is
*settled*: no Fetch looks at it until the partition reports a change. So the cost of a round depends only on the news.
"""

from __future__ import annotations

from engine.broker.fetch.session_cache import FetchPartition, FetchSession
from engine.broker.log.log import Log
from engine.broker.replication.isr import FollowerState
from engine.broker.replication.partition import Partition
from engine.broker.replication.partition_read import PartitionRead

End = tuple[Partition | None, int, int]
"""A partition with its readable end and leader epoch at the time of a read."""


class SteadyRead:
    """The result of a read to the end, and the signs that another read would find the same."""

    __slots__ = ("_session", "_wanted", "end", "follower", "isr_state", "leader_epoch", "log", "partition", "read")

    def __init__(self, partition: Partition, log: Log, follower: FollowerState, read: PartitionRead) -> None:
        self.partition = partition
        self.log = log
        self.follower = follower
        self.leader_epoch = partition.leader_epoch
        self.isr_state = partition.isr_state
        self.read = read
        self.end: End = (partition, log.log_end_offset, partition.leader_epoch)
        self._session: FetchSession | None = None
        self._wanted: FetchPartition | None = None

    def renewed(self, fetch_offset: int, now_ms: int | None) -> PartitionRead | None:
        """Return the read with current watermarks if it still holds; None if the partition must be read.

        It also notes the fetch, unless that has happened already (``now_ms`` is None).
        """
        log, read = self.log, self.read
        if not self._stands(fetch_offset):
            return None
        if read.high_watermark != log.high_watermark:
            read.high_watermark, read.last_stable_offset = log.high_watermark, log.last_stable_offset
        read.log_start_offset = log.log_start_offset
        if now_ms is not None:
            self.follower.note_fetch_from_end(now_ms)
        return read

    def settle(self, session: FetchSession, wanted: FetchPartition) -> None:
        """Skip the partition until it changes, if the follower knows everything about it."""
        log = self.log
        if (
            wanted.sent_high_watermark != log.high_watermark
            or wanted.sent_log_start_offset != log.log_start_offset
            or not self._stands(wanted.fetch_offset)
        ):
            return
        self._session, self._wanted = session, wanted
        session.settle(wanted)
        self.partition.settle(self)
        self.follower.join_session(session.last_fetch)

    def wake(self) -> None:
        """Look at the partition in the session's next request, or now if one is waiting."""
        session, wanted = self._session, self._wanted
        assert session is not None and wanted is not None
        self.follower.leave_session(session.last_fetch)
        session.wake(wanted)
        self.partition.environment.wakeups.mark(session)

    def release(self) -> None:
        """Forget the session: it is over, or asks for something else."""
        if self._session is not None:
            self.partition.unsettle(self)
            self.follower.leave_session(self._session.last_fetch)

    def _stands(self, fetch_offset: int) -> bool:
        partition = self.partition
        return (
            partition.leader_log is self.log
            and self.log.log_end_offset == fetch_offset
            and partition.leader_epoch == self.leader_epoch
            and partition.isr_state is self.isr_state
        )


def steady_read(partition: Partition, replica_id: int, fetch_offset: int, read: PartitionRead) -> SteadyRead | None:
    """Return the state that makes the next read needless: the follower is in sync and at the leader's end."""
    log = partition.leader_log
    if log is None or read.records is not None or log.log_end_offset != fetch_offset:
        return None
    follower = partition.followers.get(replica_id)
    if follower is None or replica_id not in partition.isr_state.committed:
        return None
    return SteadyRead(partition, log, follower, read)
