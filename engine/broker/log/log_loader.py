"""Opens a partition's folder: after an orderly stop it checks the end, after a crash it reads the unflushed part.

May run in a thread: it touches nothing but the folder, and ``environment.delete_later``.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from engine.broker.log.environment import LogEnvironment
from engine.broker.log.leader_epoch_cache import LeaderEpochCache
from engine.broker.log.log import Gap, Log
from engine.broker.log.log_files import open_segment
from engine.broker.log.partition_folder import PartitionFolder
from engine.broker.log.producer_replay import rebuild_producer_state
from engine.broker.log.producer_snapshots import ProducerSnapshots
from engine.broker.log.producer_state import ProducerStateManager
from engine.broker.log.segment import LogSegment
from engine.broker.log.segment_folder import OFFSET_MAX, SegmentFolder
from engine.broker.log.segment_list import SegmentList
from engine.broker.log.segment_recovery import RecoveryProgress, recover_segment
from engine.broker.log.segment_split import SegmentOverflow, split_segment
from engine.broker.log.segment_swap import swap_in
from engine.broker.log.small_files import is_blank_text, sync_path
from engine.common.errors import CorruptFileError
from engine.kafka.config.log_config import LogConfig
from engine.kafka.formats.checkpoints import LOG_START_OFFSET_CHECKPOINT
from engine.kafka.formats.log_dir_names import CLEANED_SUFFIX, DELETED_SUFFIX, LogDirKind, parse_log_dir_name
from engine.kafka.formats.partition_metadata import PARTITION_METADATA_FILE, decode_partition_metadata

logger = logging.getLogger(__name__)

LOST_OFFSETS_MAX = 2**30
"""A gap of so many is none that a crash has made: a segment that was split may have it."""


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """The values of a log dir's checkpoint files for one log; 0 for no entry."""

    log_start_offset: int = 0
    recovery_point: int = 0
    had_clean_shutdown: bool = True
    is_cleaned: bool = False
    """The cleaner has worked on the log: a segment may end before the next one begins."""


def load_log(folder: Path, config: LogConfig, environment: LogEnvironment, checkpoints: Checkpoints) -> Log:
    """Open a partition's folder, creating it if it does not exist.

    Raises:
        OSError: the disk fails.
        StorageError: a file in the folder is unusable (CorruptFileError), or the folder's name is not a partition's.
    """
    is_new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    log = _LogLoader(folder, config, environment, checkpoints).load()
    if is_new or not checkpoints.had_clean_shutdown:
        log.flush_state.nothing_is_synced()
        log.flush_state.is_end_unsynced = not checkpoints.had_clean_shutdown
    return log


class _LogLoader:
    def __init__(self, folder: Path, config: LogConfig, environment: LogEnvironment, checkpoints: Checkpoints) -> None:
        self._folder = folder
        self._config = config
        self._environment = environment
        self._checkpoints = checkpoints
        self._topic_partition, self._kind = parse_log_dir_name(folder.name)
        self._files = SegmentFolder(folder)
        self._segments = SegmentList()
        self._leader_epochs = LeaderEpochCache.load(
            folder, is_kept=config.record_magic >= 2, may_be_lost=not checkpoints.had_clean_shutdown
        )
        self._progress = RecoveryProgress(environment)
        self._now_ms = environment.clock.now_ms()
        self._gap: Gap | None = None
        self._recovered: ProducerStateManager | None = None
        """The producer state at the end of the segment that was recovered last."""

    def load(self) -> Log:
        self._files.clear_up()
        recovery_point, end_offset = self._load_sound_segments()
        self._leader_epochs.truncate_from_end(end_offset)
        log_start_offset = max(self._checkpoints.log_start_offset, self._segments.first.base_offset)
        self._leader_epochs.truncate_from_start(self._checkpoints.log_start_offset)
        producers = self._load_producers(log_start_offset, end_offset)
        log = Log(
            PartitionFolder(self._folder, self._topic_partition, self._read_topic_id(), self._environment),
            self._config,
            self._environment,
            self._segments,
            self._leader_epochs,
            producers,
            log_start_offset=log_start_offset,
            log_end_offset=end_offset,
            recovery_point=recovery_point,
        )
        log.gap = self._gap
        for segment in self._segments:
            segment.close_file()
        return log

    # --- segments

    def _load_sound_segments(self) -> tuple[int, int]:
        """Load the segments; return the log's recovery point and its end."""
        while True:
            try:
                self._load_segments()
                if self._leader_epochs.was_blank and not self._checkpoints.had_clean_shutdown:
                    self._find_epochs()
                if self._kind is not LogDirKind.DELETE:
                    return self._recover()
                if not len(self._segments):
                    self._create_segment(0)
                return 0, 0
            except SegmentOverflow as overflow:
                self._split(overflow.segment)

    def _split(self, segment: LogSegment) -> None:
        """Replace one segment by several, and read the folder again: they have no indexes yet."""
        new = [self._open(part.base_offset, part.size_bytes, CLEANED_SUFFIX) for part in split_segment(segment)]
        logger.warning(
            "A segment reaches too far for its indexes: it is split, and theirs are rebuilt path=%s into=%s",
            segment.path,
            [part.base_offset for part in new],
        )
        replaced = swap_in(new, [segment])
        sync_path(self._folder)
        self._environment.delete_later(self._folder.parent, replaced, self._config.file_delete_delay_ms)
        self._files, self._segments = SegmentFolder(self._folder), SegmentList()

    def _open(self, base_offset: int, size_bytes: int, suffix: str = "") -> LogSegment:
        return open_segment(
            self._folder,
            base_offset,
            size_bytes,
            self._config,
            now_ms=self._now_ms,
            has_transaction_index=self._files.has_transaction_index(base_offset),
            suffix=suffix,
        )

    def _load_segments(self) -> None:
        for base_offset in self._files.base_offsets:
            segment = self._open(base_offset, self._files.log_size_bytes(base_offset))
            if not self._is_sound(segment) and not self._is_unflushed(segment):
                self._recover_segment(segment)
            self._segments.add(segment)

    def _end_of(self, segment: LogSegment) -> int:
        """Return where the next segment begins."""
        return next((base for base in self._files.base_offsets if base > segment.base_offset), OFFSET_MAX)

    def _is_unflushed(self, segment: LogSegment) -> bool:
        """Whether the segment will be recovered in its turn anyway: what follows damage there goes too."""
        return not self._checkpoints.had_clean_shutdown and self._end_of(segment) > self._checkpoints.recovery_point

    def _is_sound(self, segment: LogSegment) -> bool:
        if not self._files.has_offset_index(segment.base_offset):
            logger.error("A segment has no offset index: its indexes are rebuilt path=%s", segment.path)
            segment.create_indexes()
            return False
        if not self._files.has_time_index(segment.base_offset):
            segment.time_index.trim()
        try:
            segment.transaction_index.check()
        except CorruptFileError as error:
            logger.warning("A segment's indexes are rebuilt, one of them is damaged path=%s: %s", segment.path, error)
            return False
        return True

    def _create_segment(self, base_offset: int) -> None:
        segment = open_segment(
            self._folder, base_offset, 0, self._config, now_ms=self._now_ms, has_transaction_index=False
        )
        segment.create_files(preallocated_bytes=self._config.segment_bytes if self._config.preallocate else 0)
        self._segments.add(segment)

    def _remove_segments(self, segments: list[LogSegment]) -> None:
        paths: list[Path] = []
        for segment in segments:
            logger.info("Deleting a segment as part of recovery segment=%r", segment)
            self._segments.remove(segment)
            segment.change_suffix(DELETED_SUFFIX)
            segment.close_file()
            paths += segment.file_paths()
        snapshots = ProducerSnapshots.list_folder(self._folder)
        marked = [snapshots.mark_deleted(segment.base_offset) for segment in segments]
        paths += [path for path in marked if path is not None]
        self._environment.delete_later(self._folder.parent, paths, self._config.file_delete_delay_ms)

    # --- recovery

    def _recover(self) -> tuple[int, int]:
        """Repair the log; return its recovery point and its end."""
        if not self._checkpoints.had_clean_shutdown:
            self._recover_unflushed()
        end_offset = self._end_offset_unless_before_start()
        if not len(self._segments):
            self._create_segment(self._checkpoints.log_start_offset)
        self._segments.last.preallocate_indexes()
        self._segments.last.load_max_timestamp()
        if end_offset is None:
            end_offset = self._segments.last.read_next_offset()
        elif self._checkpoints.had_clean_shutdown:
            return end_offset, end_offset
        return min(self._checkpoints.recovery_point, end_offset), end_offset

    def _recover_unflushed(self) -> None:
        unflushed = self._segments.reaching(self._checkpoints.recovery_point)
        for index, segment in enumerate(unflushed):
            logger.info(
                "Recovering an unflushed segment partition=%s base_offset=%d bytes=%d done=%d/%d",
                self._topic_partition,
                segment.base_offset,
                segment.size_bytes,
                index,
                len(unflushed),
            )
            following = unflushed[index + 1 :]
            if self._recover_segment(segment, following):
                return
            if following and self._gap is None and self._misses_what_follows(segment):
                self._on_gap(segment.read_next_offset(), following)
                if self._kind is LogDirKind.FUTURE:
                    return

    def _misses_what_follows(self, segment: LogSegment) -> bool:
        """Whether records between this segment and the next are gone.

        Neither was flushed, and a power failure has taken the end of the first only; or the cleaner has.
        """
        return 0 < self._end_of(segment) - segment.read_next_offset() < LOST_OFFSETS_MAX

    def _on_gap(self, offset: int, following: list[LogSegment]) -> None:
        """End a copy for another log dir at the gap, and note it in any other log.

        Whoever copies goes on where its log ends, and would never get what is missing. But this may be the last copy of
        what follows: only a follower cuts it off, when its leader has answered. What the cleaner has left out, a copy
        gets again without harm.
        """
        is_of_crash = not (self._config.is_compacted or self._checkpoints.is_cleaned)
        if self._kind is LogDirKind.FUTURE:
            outcome = "the segments after it are removed"
            self._remove_for_good(following)
        else:
            outcome = "a follower fetches it again"
            self._gap = Gap(offset, is_of_crash)
        logger.log(
            logging.WARNING if is_of_crash else logging.INFO,
            "A segment ends before the next one begins, since a crash or a cleaning: %s partition=%s end_offset=%d "
            "next_base_offset=%d",
            outcome,
            self._topic_partition,
            offset,
            following[0].base_offset,
        )

    def _remove_for_good(self, segments: list[LogSegment]) -> None:
        """Remove segments, so that no power failure brings them back."""
        self._remove_segments(segments)
        sync_path(self._folder)

    def _recover_segment(self, segment: LogSegment, following: list[LogSegment] | None = None) -> int:
        """Recover one segment with its own producer state, which stays behind as a snapshot.

        ``following`` go too if the segment is damaged, and before it is cut: where it ends then, the damage shows no
        more, and after a power failure they would be back.
        """
        producers = self._new_producers(ProducerSnapshots.list_folder(self._folder))
        rebuild_producer_state(
            producers, self._segments, self._checkpoints.log_start_offset, segment.base_offset, now_ms=self._now_ms
        )
        cut_bytes = recover_segment(
            segment,
            self._end_of(segment),
            producers,
            self._leader_epochs,
            self._progress,
            before_cut=lambda: self._remove_for_good(following) if following else None,
        )
        producers.take_snapshot()
        self._recovered = producers
        if cut_bytes:
            logger.warning(
                "A batch is damaged or not whole: cut it and what follows it partition=%s base_offset=%d cut_bytes=%d "
                "end_offset=%d",
                self._topic_partition,
                segment.base_offset,
                cut_bytes,
                segment.read_next_offset(),
            )
        return cut_bytes

    def _end_offset_unless_before_start(self) -> int | None:
        """Return the log's end; if the log ends before it starts, drop everything and return None."""
        if not len(self._segments):
            return None
        end_offset = self._sound_end(self._segments.last)
        log_start_offset = self._checkpoints.log_start_offset
        if end_offset >= log_start_offset:
            return end_offset
        if self._is_newer_than_checkpoints():
            return self._recover_without_checkpoints()
        logger.warning(
            "Deleting all segments because the log ends before its start; were files deleted by hand? "
            "partition=%s log_end_offset=%d log_start_offset=%d",
            self._topic_partition,
            end_offset,
            log_start_offset,
        )
        self._remove_segments(list(self._segments))
        self._leader_epochs.clear()
        self._new_producers(ProducerSnapshots.list_folder(self._folder)).truncate_fully_and_start_at(log_start_offset)
        return None

    def _is_newer_than_checkpoints(self) -> bool:
        """Whether the replica was created after its start was noted: then the start is an earlier topic's."""
        try:
            noted_ns = (self._folder.parent / LOG_START_OFFSET_CHECKPOINT).stat().st_mtime_ns
            made_ns = (self._folder / PARTITION_METADATA_FILE).stat().st_mtime_ns
        except FileNotFoundError:
            return False
        return noted_ns < made_ns

    def _recover_without_checkpoints(self) -> int:
        """Recover the whole log, and return its end: the checkpoints are not about this replica."""
        logger.warning(
            "The checkpoints of a partition are older than its folder and contradict its log. They belong to a deleted "
            "topic of the same name and are ignored partition=%s log_start_offset=%d recovery_point=%d",
            self._topic_partition,
            self._checkpoints.log_start_offset,
            self._checkpoints.recovery_point,
        )
        self._checkpoints = Checkpoints(had_clean_shutdown=self._checkpoints.had_clean_shutdown)
        if not self._checkpoints.had_clean_shutdown:
            self._recover_unflushed()
        return self._sound_end(self._segments.last)

    def _sound_end(self, segment: LogSegment) -> int:
        """Return the log's end. Cut bytes after it that are not a batch: no reader would find what follows them."""
        end_offset, position = segment.read_end()
        if position == segment.size_bytes:
            return end_offset
        logger.warning(
            "A log was closed in order, says its log dir, and does not end in a whole batch: its last segment is "
            "recovered partition=%s base_offset=%d",
            self._topic_partition,
            segment.base_offset,
        )
        self._recover_segment(segment)
        return segment.read_next_offset()

    # --- besides the segments

    def _find_epochs(self) -> None:
        """Find all leader epochs in the batches: their file was lost in a crash of the machine."""
        self._leader_epochs.was_blank = False
        if not self._has_epochs():
            return
        logger.warning(
            "The leader epochs of a partition were lost in a crash and are looked for in all its batches "
            "partition=%s path=%s",
            self._topic_partition,
            self._leader_epochs.path,
        )
        self._leader_epochs.clear()
        for segment in self._segments:
            for _, header in segment.iter_batches():
                if header.magic >= 2 and header.partition_leader_epoch > self._leader_epochs.latest_epoch:
                    self._leader_epochs.assign(header.partition_leader_epoch, header.base_offset)

    def _has_epochs(self) -> bool:
        """Whether the log begins with batches that have leader epochs; those of the old formats have none."""
        first = next((header for segment in self._segments for _, header in segment.iter_batches()), None)
        return first is not None and first.magic >= 2 and first.partition_leader_epoch >= 0

    def _load_producers(self, log_start_offset: int, end_offset: int) -> ProducerStateManager:
        recovered = self._recovered
        if recovered is not None and recovered.map_end_offset == end_offset:
            # A snapshot keeps only a producer's last batch. After kill -9 of all replicas, a producer that had several
            # in flight sends all of them again: the state just read knows the last five, and accepts none twice.
            recovered.snapshots.remove_stray(self._segments.base_offsets)
            recovered.truncate_and_reload(log_start_offset, end_offset, self._now_ms)
            recovered.on_high_watermark(end_offset)
            recovered.expire(self._now_ms)
            return recovered
        # A recovery deletes snapshots, even after an orderly stop if a segment's index is missing.
        was_changed = not self._checkpoints.had_clean_shutdown or recovered is not None
        snapshots = (
            ProducerSnapshots.list_folder(self._folder)
            if was_changed
            else ProducerSnapshots(self._folder, self._files.snapshot_offsets)
        )
        snapshots.remove_stray(self._segments.base_offsets)
        producers = self._new_producers(snapshots)
        rebuild_producer_state(
            producers,
            self._segments,
            log_start_offset,
            end_offset,
            now_ms=self._now_ms,
            had_clean_shutdown=self._checkpoints.had_clean_shutdown,
        )
        return producers

    def _new_producers(self, snapshots: ProducerSnapshots) -> ProducerStateManager:
        return ProducerStateManager(
            self._topic_partition, snapshots, expiration_ms=self._environment.producer_id_expiration_ms
        )

    def _read_topic_id(self) -> bytes | None:
        if PARTITION_METADATA_FILE not in self._files.sizes:
            return None
        path = self._folder / PARTITION_METADATA_FILE
        if not self._environment.keeps_topic_ids:
            # Old controllers lose the id, and after the next upgrade the topic gets another one. As in Kafka.
            path.unlink()
            return None
        text = path.read_text("utf-8")
        try:
            if not is_blank_text(text):
                return decode_partition_metadata(text, str(path))
        except CorruptFileError:
            if self._checkpoints.had_clean_shutdown:
                raise
        logger.warning(
            "The topic id of a partition was lost in a crash: the controller will send it again path=%s", path
        )
        return None
