"""What shortens, renames and closes a log: retention, truncation, deletion."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from engine.common.errors import ErrorCode, KafkaError, StorageError
from engine.formats.partition_metadata import PARTITION_METADATA_FILE, encode_partition_metadata
from engine.formats.segment_files import CLEANED_SUFFIX, DELETED_SUFFIX
from engine.storage.log_core import LogCore, open_segment
from engine.storage.producer_replay import rebuild_producer_state
from engine.storage.segment import LogSegment
from engine.storage.segment_swap import NewSegment, swap_in
from engine.storage.small_files import replace_file

logger = logging.getLogger(__name__)


class LogMaintenance(LogCore):
    """The part of ``Log`` that keeps it in shape."""

    __slots__ = ()

    # --- start offset and retention

    def increment_log_start_offset(self, offset: int) -> bool:
        """Move the log's start to ``offset``; return whether it moved. Segments before it go at the next retention.

        Raises:
            KafkaError: OFFSET_OUT_OF_RANGE beyond the high watermark; KAFKA_STORAGE_ERROR when the disk fails.
        """
        self._check_online()
        if offset > self.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Cannot increment the log start offset to {offset} of partition {self.topic_partition} since it is "
                f"larger than the high watermark {self.high_watermark}",
            )
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = offset
        self.is_end_unsynced |= offset > self.recovery_point
        self.recovery_point = max(self.recovery_point, offset)
        self._schedule_flush()
        try:
            self.leader_epochs.truncate_from_start(offset)
        except OSError as error:
            raise self._storage_error("moving the log's start", error) from error
        self.producers.on_log_start_offset(offset)
        self._refresh_first_unstable()
        if self.on_start_moved is not None:
            self.on_start_moved()
        logger.info("Incremented log start offset partition=%s offset=%d", self.topic_partition, offset)
        return True

    def delete_old_segments(self, now_ms: int) -> int:
        """Drop segments that are before the log's start, too old or too many; return how many.

        Only segments wholly below the high watermark go. Their files are removed after ``file.delete.delay.ms``.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR when the disk fails.
        """
        self._check_online()
        deleted = self._delete_from_start(self._is_before_start, "its records are before the log start offset")
        if self.config.is_deleted_by_retention:
            deleted += self._delete_by_size()
            deleted += self._delete_by_time(now_ms)
        return deleted

    def _is_before_start(self, segment: LogSegment) -> bool:
        following = self._segments.after(segment)
        return following is not None and following.base_offset <= self.log_start_offset

    def _delete_by_size(self) -> int:
        retention_bytes = self.config.retention_bytes
        excess_bytes = self.size_bytes - retention_bytes
        if retention_bytes < 0 or excess_bytes < 0:
            return 0

        def is_excess(segment: LogSegment) -> bool:
            nonlocal excess_bytes
            if excess_bytes < segment.size_bytes:
                return False
            excess_bytes -= segment.size_bytes
            return True

        return self._delete_from_start(is_excess, f"the log is larger than retention.bytes={retention_bytes}")

    def _delete_by_time(self, now_ms: int) -> int:
        retention_ms = self.config.retention_ms
        if retention_ms < 0:
            return 0
        why = f"its records are older than retention.ms={retention_ms}"
        return self._delete_from_start(lambda segment: now_ms - segment.largest_timestamp_ms() > retention_ms, why)

    def _delete_from_start(self, is_deletable: Callable[[LogSegment], bool], why: str) -> int:
        """Drop the leading segments for which ``is_deletable``; the active one only when it has records."""
        deletable: list[LogSegment] = []
        try:
            for segment in self._segments:
                following = self._segments.after(segment)
                end_offset = self.log_end_offset if following is None else following.base_offset
                if self.high_watermark < end_offset or (following is None and segment.size_bytes == 0):
                    break
                if not is_deletable(segment):
                    break
                deletable.append(segment)
            if not deletable:
                return 0
            if len(deletable) == len(self._segments):
                self.roll()
            following = self._segments.after(deletable[-1])
            if following is not None:
                self.increment_log_start_offset(following.base_offset)
            for segment in deletable:
                logger.info("Deleting a segment because %s partition=%s segment=%r", why, self.topic_partition, segment)
            self._remove_segments(deletable)
        except OSError as error:
            raise self._storage_error("deleting segments", error) from error
        return len(deletable)

    def _remove_segments(self, segments: list[LogSegment]) -> None:
        """Take segments and their snapshots out of the log; the files go later."""
        paths: list[Path] = []
        self.is_folder_unsynced = True
        for segment in segments:
            self._segments.remove(segment)
            segment.change_suffix(DELETED_SUFFIX)
            segment.close_file()
            paths += segment.file_paths()
            snapshot = self.producers.snapshots.mark_deleted(segment.base_offset)
            paths += [] if snapshot is None else [snapshot]
        self._environment.delete_later(self.log_dir, paths, self.config.file_delete_delay_ms)

    # --- compaction

    def replace_segments(self, replaced: list[LogSegment], new: Sequence[NewSegment]) -> list[LogSegment]:
        """Put segments that are there as ``.cleaned`` files in the place of the neighbours they were made of.

        A crash at any point is mended by the next start: before all files are ``.swap`` they are thrown away, from
        then on they take their place. Return the new segments, the first of which has the first one's base offset.

        Raises:
            StorageError: the files are not there; nothing is changed.
            KafkaError: KAFKA_STORAGE_ERROR when the disk fails.
        """
        self._check_online()
        cleaned = [self._cleaned_segment(one) for one in new]
        bases = {segment.base_offset for segment in cleaned}
        self.is_folder_unsynced = True
        try:
            paths = swap_in(cleaned, replaced)
            for segment in replaced:
                self._segments.remove(segment)
                snapshot = (
                    None if segment.base_offset in bases else self.producers.snapshots.mark_deleted(segment.base_offset)
                )
                paths += [] if snapshot is None else [snapshot]
        except OSError as error:
            raise self._storage_error("putting a cleaned segment in place", error) from error
        for segment in cleaned:
            self._segments.add(segment)
        self._environment.delete_later(self.log_dir, paths, self.config.file_delete_delay_ms)
        return cleaned

    def _cleaned_segment(self, new: NewSegment) -> LogSegment:
        segment = open_segment(
            self.dir,
            new.base_offset,
            new.size_bytes,
            self.config,
            now_ms=self._environment.clock.now_ms(),
            has_transaction_index=new.has_transaction_index,
            suffix=CLEANED_SUFFIX,
        )
        if not segment.path.exists() or segment.path.stat().st_size != new.size_bytes:
            raise StorageError("The cleaned segment is not what was reported", path=str(segment.path))
        return segment

    # --- truncation

    def truncate_to(self, offset: int) -> bool:
        """Drop all records from ``offset`` on; return whether there were any.

        Epochs that begin at the end are dropped in any case: they may be of a leadership that wrote nothing.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR when the disk fails.
        """
        if offset < 0:
            raise ValueError(f"Cannot truncate partition {self.topic_partition} to a negative offset ({offset}).")
        self._check_online()
        try:
            if offset >= self.log_end_offset:
                self.leader_epochs.truncate_from_end(self.log_end_offset)
                return False
            logger.info(
                "Truncating partition=%s to_offset=%d log_end_offset=%d",
                self.topic_partition,
                offset,
                self.log_end_offset,
            )
            if self._segments.first.base_offset > offset:
                self.truncate_fully_and_start_at(offset)
            else:
                self._truncate_within(offset)
        except OSError as error:
            raise self._storage_error(f"truncating to offset {offset}", error) from error
        return True

    def _truncate_within(self, offset: int) -> None:
        self._note_cut(offset)
        self._remove_segments([segment for segment in self._segments if segment.base_offset > offset])
        self._segments.last.truncate_to(offset, self._environment.clock.now_ms())
        self._active.replace(self._segments.last)
        self.leader_epochs.truncate_from_end(offset)
        self.log_start_offset = min(offset, self.log_start_offset)
        self._end_at(offset)

    def truncate_fully_and_start_at(self, offset: int, log_start_offset: int | None = None) -> None:
        """Drop all records and go on at ``offset``.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR when the disk fails.
        """
        self._check_online()
        try:
            self._note_cut(0)
            self._remove_segments(list(self._segments))
            segment = self._new_segment(offset)
            self._segments.add(segment)
            self._active.replace(segment)
            self.leader_epochs.clear()
            self.producers.truncate_fully_and_start_at(offset)
            self.log_start_offset = offset if log_start_offset is None else log_start_offset
            self._end_at(offset)
            self.recovery_point = offset
            self.update_high_watermark(offset)
        except OSError as error:
            raise self._storage_error(f"starting anew at offset {offset}", error) from error

    def _end_at(self, offset: int) -> None:
        self._set_log_end_offset(offset)
        self._schedule_flush()
        now_ms = self._environment.clock.now_ms()
        rebuild_producer_state(self.producers, self._segments, self.log_start_offset, offset, now_ms=now_ms)
        self.producers.on_high_watermark(self.high_watermark)
        self._refresh_first_unstable()

    # --- topic id, folder, end

    def assign_topic_id(self, topic_id: bytes) -> None:
        """Give the log the topic id it has not got yet, and note it in its folder.

        Raises:
            KafkaError: INCONSISTENT_TOPIC_ID where it has another one; KAFKA_STORAGE_ERROR when the disk fails.
        """
        if self.topic_id == topic_id:
            return
        if self.topic_id is not None:
            raise KafkaError(
                ErrorCode.INCONSISTENT_TOPIC_ID,
                f"Tried to assign topic ID {topic_id.hex()} to log for topic partition {self.topic_partition}, but log "
                f"already contained topic ID {self.topic_id.hex()}",
            )
        try:
            self.write_topic_id(topic_id)
        except OSError as error:
            raise self._storage_error("writing partition metadata", error) from error

    def write_topic_id(self, topic_id: bytes) -> None:
        """Note the topic id of a log that has none, which nobody else uses yet. Raises OSError."""
        replace_file(self.dir / PARTITION_METADATA_FILE, encode_partition_metadata(topic_id), sync=False)
        self.topic_id = topic_id
        self.is_metadata_unsynced = True

    def rename_dir(self, name: str) -> None:
        """Rename the partition's folder within its log dir.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR when the disk fails.
        """
        target = self.log_dir / name
        try:
            self.dir.rename(target)
        except OSError as error:
            raise self._storage_error(f"renaming its folder to {name}", error) from error
        self.dir = target
        self.nothing_is_synced()
        for segment in self._segments:
            segment.move_to(target)
        self.leader_epochs.folder = target
        self.producers.move_to(target)

    def release_idle_files(self) -> None:
        """Close files that were not used since the last call."""
        for segment in self._segments:
            segment.release_idle()

    def close(self) -> None:
        """Leave everything in order for the next start: snapshot at the end, indexes complete and trimmed.

        Flush then: what is written here is to reach the disk too. Raises KafkaError KAFKA_STORAGE_ERROR when the disk
        fails.
        """
        self._check_online()
        try:
            self.producers.take_snapshot()
            for segment in self._segments:
                segment.close()
        except OSError as error:
            raise self._storage_error("closing", error) from error

    def abandon(self) -> None:
        """Let go of all files as they are: the log dir has failed, or the log's folder is to be removed."""
        self.is_offline = True
        for segment in self._segments:
            segment.close_file()
