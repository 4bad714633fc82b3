"""The checks before an append that does not take the short path, the placing of its batches, and what appends return.

It writes nothing: ``Log`` writes what passes.
"""

from __future__ import annotations

import logging
from time import perf_counter
from typing import NamedTuple

from engine.broker.log.append_origin import AppendOrigin
from engine.broker.log.environment import LogEnvironment
from engine.broker.log.placed_batches import NO_APPEND_TIME, AppendTerms, PlacedBatches, PositionedHeader, stamped
from engine.broker.log.preparation import Preparation, PreparationNeeded, is_long_work
from engine.broker.log.producer_sequences import BatchMetadata, CompletedTransaction, ProducerAppend
from engine.broker.log.producer_state import ProducerStateManager
from engine.common.errors import ErrorCode, KafkaError, KlammError
from engine.common.model import TopicPartition
from engine.kafka.config.log_config import LogConfig
from engine.kafka.formats.control_records import read_end_transaction_marker
from engine.kafka.protocol.records.append_rules import RefusedAppend, RefusedAs
from engine.kafka.protocol.records.attributes import Codec
from engine.kafka.protocol.records.checksum import verify_crc
from engine.kafka.protocol.records.convert import in_old_format
from engine.kafka.protocol.records.header import iter_batches
from engine.kafka.protocol.records.layout import NO_TIMESTAMP
from engine.kafka.protocol.records.validate import check_batch, invalid_append, prepare_append

NO_OFFSET = -1


class AppendResult:
    """Where records went. All offsets are -1 if there was nothing to append.

    ``log_append_time_ms`` is -1 except for topics with LogAppendTime and for duplicates. A duplicate has the offsets
    of the batch that was appended before. ``size_bytes`` is what came, also of a duplicate; another form may be stored.
    """

    __slots__ = (
        "first_offset",
        "is_duplicate",
        "last_offset",
        "leader_epoch",
        "log_append_time_ms",
        "log_start_offset",
        "record_count",
        "size_bytes",
    )

    def __init__(
        self,
        first_offset: int,
        last_offset: int,
        log_append_time_ms: int,
        log_start_offset: int,
        record_count: int,
        size_bytes: int,
        leader_epoch: int,
        is_duplicate: bool = False,
    ) -> None:
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.log_append_time_ms = log_append_time_ms
        self.log_start_offset = log_start_offset
        self.record_count = record_count
        self.size_bytes = size_bytes
        self.leader_epoch = leader_epoch
        self.is_duplicate = is_duplicate

    def __repr__(self) -> str:
        return (
            f"AppendResult(first_offset={self.first_offset}, last_offset={self.last_offset}, "
            f"records={self.record_count}, bytes={self.size_bytes}, is_duplicate={self.is_duplicate})"
        )


class UnexpectedAppendOffset(KlammError):
    """A follower's fetched records begin before the end of its log. Kafka's UnexpectedAppendOffsetException."""

    def __init__(self, message: str, *, first_offset: int, last_offset: int) -> None:
        super().__init__(message)
        self.first_offset = first_offset
        self.last_offset = last_offset


class OffsetsOutOfOrder(KlammError):
    """A follower's fetched batches are not in ascending order. Kafka's OffsetsOutOfOrderException."""


logger = logging.getLogger(__name__)

_CLIENT = AppendOrigin.CLIENT


class CheckedProducers(NamedTuple):
    """The result of the producers' checks."""

    appends: dict[int, ProducerAppend]
    completed: list[CompletedTransaction]
    duplicate: BatchMetadata | None


class AppendChecks:
    """The checks of one log's appends. It keeps the demands of the topic's settings, and asks the log's producers."""

    __slots__ = ("_clock", "_config", "_environment", "_producers", "_topic_partition", "terms")

    def __init__(
        self,
        topic_partition: TopicPartition,
        config: LogConfig,
        producers: ProducerStateManager,
        environment: LogEnvironment,
    ) -> None:
        self._topic_partition = topic_partition
        self._producers = producers
        self._clock = environment.clock
        self._environment = environment
        self.update_config(config)

    def update_config(self, config: LogConfig) -> None:
        self._config = config
        self.terms = AppendTerms.of(config, takes_zstd=self._environment.takes_zstd)

    # --- a leader

    def place(
        self,
        records: memoryview,
        first_offset: int,
        leader_epoch: int,
        *,
        origin: AppendOrigin,
        may_prepare: bool,
        prepared: Preparation | None,
    ) -> PlacedBatches | None:
        """Check what a leader received, and stamp it; return None if it is empty.

        Raises what ``Log.append_as_leader`` raises, except for producers.
        """
        if records.readonly:
            records = memoryview(bytearray(records))
        headers = list(iter_batches(records))
        if not headers:
            return None
        self._check_sent(records, headers, origin)
        self._check_codec(headers)
        terms, now_ms = self.terms, self._clock.now_ms()
        is_prepared = prepared is not None and prepared.rules is terms.rules
        if is_prepared or all(terms.takes_as_it_is(header, origin) for _, header in headers):
            append_time_ms = now_ms if terms.stamps_append_time else NO_APPEND_TIME
            batches = stamped(
                records, headers, first_offset=first_offset, leader_epoch=leader_epoch, append_time_ms=append_time_ms
            )
        elif may_prepare and terms.rules.magic >= 2 and is_long_work(headers):
            raise PreparationNeeded(Preparation(records, terms.rules, now_ms))
        else:
            batches = self._prepared(records, first_offset, leader_epoch, origin)
        size_bytes = len(batches.records)
        if size_bytes > self._config.segment_bytes:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"Message batch size is {size_bytes} bytes in append to partition {self._topic_partition}, which "
                f"exceeds the maximum configured segment size of {self._config.segment_bytes}.",
            )
        return batches

    def _check_sent(self, records: memoryview, headers: list[PositionedHeader], origin: AppendOrigin) -> None:
        """Check sizes, headers and checksums of what was sent."""
        for position, header in headers:
            if header.magic >= 2 and origin is _CLIENT and header.base_offset != 0:
                raise invalid_append(
                    f"The baseOffset of the record batch in the append to {self._topic_partition} should be 0, but it "
                    f"is {header.base_offset}",
                    None,
                )
            self._check_batch_size(header.size_bytes)
            if not verify_crc(records, position, header.size_bytes):
                raise self.corrupt(header.crc)
            check_batch(header, from_client=origin is _CLIENT)
        if len(headers) > 1 and origin is _CLIENT and headers[0][1].magic >= 2:
            raise invalid_append(
                f"A producer sent {len(headers)} batches for {self._topic_partition} at once; only one is allowed", None
            )

    def _check_codec(self, headers: list[PositionedHeader]) -> None:
        """Store no codec that followers may not know: they would stop replicating."""
        if self._environment.takes_zstd:
            return
        codec = self.terms.rules.codec
        if Codec.ZSTD in ([header.codec for _, header in headers] if codec is None else [codec]):
            raise KafkaError(
                ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
                "Produce requests to inter.broker.protocol.version < 2.1 broker are not allowed to use ZStandard "
                "compression",
            )

    def _prepared(
        self, records: memoryview, first_offset: int, leader_epoch: int, origin: AppendOrigin
    ) -> PlacedBatches:
        """Give the batches their offsets if their headers alone are not enough."""
        rules = self.terms.rules
        begun_s = perf_counter()
        prepared = prepare_append(
            records,
            rules,
            first_offset=first_offset,
            leader_epoch=leader_epoch,
            now_ms=self._clock.now_ms(),
            from_client=origin is _CLIENT,
        )
        stored = prepared.records
        if rules.magic < 2:
            stored = in_old_format(prepared.records, rules.magic)
        headers = list(iter_batches(stored))
        if prepared.is_rebuilt or stored is not prepared.records:
            for _, header in headers:
                self._check_batch_size(header.size_bytes)
            self._environment.note_converted(
                self._topic_partition.topic, prepared.record_count, perf_counter() - begun_s, len(stored)
            )
        return PlacedBatches(
            memoryview(stored),
            headers,
            prepared.first_offset,
            prepared.last_offset,
            prepared.max_timestamp if rules.magic else NO_TIMESTAMP,
            prepared.last_offset,
            prepared.log_append_time_ms,
        )

    def _check_batch_size(self, size_bytes: int) -> None:
        if size_bytes > self._config.max_message_bytes:
            raise KafkaError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"The record batch size in the append to {self._topic_partition} is {size_bytes} bytes which exceeds "
                f"the maximum configured value of {self._config.max_message_bytes}.",
            )

    # --- a follower

    def up_to_epoch(self, headers: list[PositionedHeader], leader_epoch: int | None) -> list[PositionedHeader]:
        """Return the batches before the first one of a later leader epoch; messages of v0 and v1 have none."""
        if leader_epoch is None:
            return headers
        for index, (_, header) in enumerate(headers):
            if header.magic >= 2 and header.partition_leader_epoch > leader_epoch:
                logger.info(
                    "Skipping what was fetched of %s from offset %d on, because its partition leader epoch %d is "
                    "higher than the replica's current leader epoch %d",
                    self._topic_partition,
                    header.base_offset,
                    header.partition_leader_epoch,
                    leader_epoch,
                )
                return headers[:index]
        return headers

    def check_replicated(
        self, records: memoryview, headers: list[PositionedHeader], log_start_offset: int, end_offset: int
    ) -> None:
        """Check what a leader sent to its follower, whose log covers start to end.

        Raises what ``Log.append_as_follower`` raises.
        """
        last_offset = -1
        for position, header in headers:
            if header.last_offset <= last_offset:
                raise OffsetsOutOfOrder(
                    f"Out of order offsets found in append to {self._topic_partition}: {header.last_offset} follows "
                    f"{last_offset}"
                )
            last_offset = header.last_offset
            if not verify_crc(records, position, header.size_bytes):
                raise self.corrupt(header.crc)
        first_offset = headers[0][1].base_offset
        if first_offset < end_offset:
            raise UnexpectedAppendOffset(
                f"Unexpected offset in append to {self._topic_partition}. First offset {first_offset} is less than the "
                f"next offset {end_offset}. Last offset in append: {last_offset}. "
                f"Log start offset = {log_start_offset}",
                first_offset=first_offset,
                last_offset=last_offset,
            )

    # --- both

    def check_producers(self, batches: PlacedBatches, origin: AppendOrigin) -> CheckedProducers:
        """Check sequences, epochs and transactions; stop at the first duplicate.

        Raises KafkaError as ``Log.append_as_leader`` does.
        """
        appends: dict[int, ProducerAppend] = {}
        completed: list[CompletedTransaction] = []
        for position, header in batches.headers:
            producer_id = header.producer_id
            if producer_id < 0:
                continue
            if origin is AppendOrigin.CLIENT:
                known = self._producers.producers.get(producer_id)
                duplicate = (
                    None
                    if known is None
                    else known.find_duplicate(header.producer_epoch, header.base_sequence, header.last_sequence)
                )
                if duplicate is not None:
                    return CheckedProducers(appends, completed, duplicate)
            append = appends.get(producer_id)
            if append is None:
                append = appends[producer_id] = self._producers.prepare(producer_id, origin)
            if not header.is_control:
                if header.is_transactional and origin is not AppendOrigin.REPLICATION:
                    self._check_verified(append)
                append.add_data(header, header.base_offset)
                continue
            marker = read_end_transaction_marker(batches.records, position, header)
            ended = None if marker is None else append.end_transaction(marker, header)
            if ended is not None:
                completed.append(ended)
        return CheckedProducers(appends, completed, None)

    def _check_verified(self, append: ProducerAppend) -> None:
        """Check that the coordinator knows of the transaction, so that it will end it here (KIP-890).

        Raises:
            KafkaError: INVALID_TXN_STATE.
        """
        if self._environment.verifies_transactions and not append.may_write_transaction:
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, "Record was not part of an ongoing transaction")

    def corrupt(self, crc: int) -> KafkaError:
        """Return the error for a batch with a wrong checksum."""
        return RefusedAppend(
            ErrorCode.CORRUPT_MESSAGE,
            f"Record is corrupt (stored crc = {crc}) in topic partition {self._topic_partition}.",
            {RefusedAs.INVALID_CRC: 1},
        )
