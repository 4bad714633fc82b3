"""The outcome of reading one partition for a Fetch request."""

from __future__ import annotations

from engine.broker.log.file_range import FileRange
from engine.common.errors import ErrorCode
from engine.kafka.formats.index_entries import AbortedTransaction


class PartitionRead:
    """What a Fetch answer says about one partition. All offsets are -1 if ``error`` is set, as in Kafka.

    ``records`` is None when there are none. ``aborted`` is a list for read_committed, else None. ``diverging_epoch`` is
    (leader epoch, end offset) if the follower's log has to be cut. ``log_end_offset`` is the leader's end before the
    read. ``is_cut_off``: there is a batch, and the limits leave no room for it; then ``aborted`` is None. Plain and
    slotted: one is made per partition and Fetch.
    """

    __slots__ = (
        "aborted",
        "diverging_epoch",
        "error",
        "high_watermark",
        "is_cut_off",
        "last_stable_offset",
        "log_end_offset",
        "log_start_offset",
        "preferred_read_replica",
        "records",
    )

    def __init__(
        self,
        error: ErrorCode,
        high_watermark: int = -1,
        last_stable_offset: int = -1,
        log_start_offset: int = -1,
        log_end_offset: int = -1,
        records: FileRange | None = None,
        preferred_read_replica: int = -1,
    ) -> None:
        self.error = error
        self.high_watermark = high_watermark
        self.last_stable_offset = last_stable_offset
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self.records = records
        self.aborted: list[AbortedTransaction] | None = None
        self.diverging_epoch: tuple[int, int] | None = None
        self.preferred_read_replica = preferred_read_replica
        self.is_cut_off = False

    @property
    def size_bytes(self) -> int:
        return 0 if self.records is None else self.records.size_bytes

    def __repr__(self) -> str:
        return (
            f"PartitionRead({self.error.name}, high_watermark={self.high_watermark}, "
            f"log_start_offset={self.log_start_offset}, log_end_offset={self.log_end_offset}, "
            f"size_bytes={self.size_bytes}, diverging_epoch={self.diverging_epoch})"
        )
