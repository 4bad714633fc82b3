"""Appending what a leader has sent to its follower: batches with offsets, epochs and checksums as they are."""

from __future__ import annotations

from engine.protocol.records.checksum import verify_crc
from engine.protocol.records.header import BatchHeader, iter_batches
from engine.protocol.records.layout import NO_TIMESTAMP
from engine.storage.append_origin import AppendOrigin
from engine.storage.log_write import LogWrites, PlacedBatches
from engine.storage.results import NO_APPEND_TIME, AppendResult, OffsetsOutOfOrder, UnexpectedAppendOffset


class FollowerAppends(LogWrites):
    """The following side of ``Log``."""

    __slots__ = ()

    def append_as_follower(self, records: memoryview) -> AppendResult:
        """Append batches of the leader as they are, offsets and leader epochs included.

        Messages of v0 and v1 are taken too; they clear the epoch cache. An incomplete batch at the end is left away.

        Raises:
            UnexpectedAppendOffset: they begin before the log's end.
            OffsetsOutOfOrder: they do not ascend.
            KafkaError: CORRUPT_MESSAGE; KAFKA_STORAGE_ERROR when the disk fails.
        """
        self._check_online()
        headers = list(iter_batches(records))
        if not headers:
            return self._nothing(-1)
        self._check_replicated(records, headers)
        appended_bytes = 0
        for run in self._runs(headers):
            appended_bytes += self._append_run(records, run)
        first, last = headers[0][1], headers[-1][1]
        count = sum(max(header.record_count, 0) for _, header in headers)
        return AppendResult(
            first.base_offset,
            last.last_offset,
            NO_APPEND_TIME,
            self.log_start_offset,
            count,
            appended_bytes,
            last.partition_leader_epoch,
        )

    def _check_replicated(self, records: memoryview, headers: list[tuple[int, BatchHeader]]) -> None:
        last_offset = -1
        for position, header in headers:
            if header.last_offset <= last_offset:
                raise OffsetsOutOfOrder(
                    f"Out of order offsets found in append to {self.topic_partition}: {header.last_offset} follows "
                    f"{last_offset}"
                )
            last_offset = header.last_offset
            if not verify_crc(records, position, header.size_bytes):
                raise self._corrupt(header.crc)
        first_offset = headers[0][1].base_offset
        if first_offset < self.log_end_offset:
            raise UnexpectedAppendOffset(
                f"Unexpected offset in append to {self.topic_partition}. First offset {first_offset} is less than the "
                f"next offset {self.log_end_offset}. Last offset in append: {last_offset}. "
                f"Log start offset = {self.log_start_offset}",
                first_offset=first_offset,
                last_offset=last_offset,
            )

    def _runs(self, headers: list[tuple[int, BatchHeader]]) -> list[list[tuple[int, BatchHeader]]]:
        """Split batches that do not fit into one segment."""
        segment_bytes = self.config.segment_bytes
        first_position = headers[0][0]
        if headers[-1][0] + headers[-1][1].size_bytes - first_position <= segment_bytes:
            return [headers]
        runs: list[list[tuple[int, BatchHeader]]] = []
        run_bytes = 0
        for position, header in headers:
            if not runs or run_bytes + header.size_bytes > segment_bytes:
                runs.append([])
                run_bytes = 0
            runs[-1].append((position, header))
            run_bytes += header.size_bytes
        return runs

    def _append_run(self, records: memoryview, headers: list[tuple[int, BatchHeader]]) -> int:
        max_timestamp_ms, max_timestamp_offset = NO_TIMESTAMP, headers[0][1].base_offset
        latest_epoch = self.leader_epochs.latest_epoch
        for _, header in headers:
            if header.max_timestamp > max_timestamp_ms:
                max_timestamp_ms, max_timestamp_offset = header.max_timestamp, header.last_offset
            if header.partition_leader_epoch != latest_epoch or header.magic < 2:
                self._follow_epoch(header)
                latest_epoch = self.leader_epochs.latest_epoch
        start = headers[0][0]
        end = headers[-1][0] + headers[-1][1].size_bytes
        batches = PlacedBatches(
            records[start:end],
            [(position - start, header) for position, header in headers],
            headers[0][1].base_offset,
            headers[-1][1].last_offset,
            max_timestamp_ms,
            max_timestamp_offset,
            NO_APPEND_TIME,
        )
        self._write(batches, self._check_producers(batches, AppendOrigin.REPLICATION))
        return end - start

    def _follow_epoch(self, header: BatchHeader) -> None:
        if header.magic >= 2:
            if header.partition_leader_epoch >= 0:
                self.assign_leader_epoch(header.partition_leader_epoch, header.base_offset)
        else:
            self.clear_leader_epochs()
