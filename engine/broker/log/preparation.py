"""Work on the records of a large append, done in a thread because it would block the event loop.

A batch must be unpacked if its codec is not the topic's, if the topic is compacted or limits timestamps, or if its
format is old. That takes up to a second for a megabyte of small records.
"""

from __future__ import annotations

from time import perf_counter

from engine.kafka.protocol.records.append_rules import AppendRules
from engine.kafka.protocol.records.header import BatchHeader
from engine.kafka.protocol.records.validate import prepare_append

PREPARED_BYTES = 16 * 1024
PREPARED_RECORDS = 1_000
"""From either limit on, a thread does the work. Below, it takes a millisecond at most, as long as the thread switch."""


class Preparation:
    """One append's records, and what the topic demands of them.

    ``run`` touches nothing else and may run in any thread.
    """

    __slots__ = ("_now_ms", "converted", "records", "rules", "took_s")

    def __init__(self, records: memoryview, rules: AppendRules, now_ms: int) -> None:
        self.records = memoryview(bytearray(records))
        """What the client sent; after ``run``, the one batch of version 2 that can be appended as it is."""
        self.rules = rules
        self.converted = 0
        """How many records ``run`` gave another form."""
        self.took_s = 0.0
        """For how long it worked."""
        self._now_ms = now_ms

    def run(self) -> None:
        """Check and convert the records.

        Raises:
            KafkaError: the log refuses them, see ``prepare_append``.
        """
        begun_s = perf_counter()
        prepared = prepare_append(self.records, self.rules, first_offset=0, leader_epoch=0, now_ms=self._now_ms)
        self.converted = prepared.record_count if prepared.is_rebuilt else 0
        records = prepared.records
        is_writable = isinstance(records, memoryview) and not records.readonly
        self.records = memoryview(records if is_writable else bytearray(records))
        self.took_s = perf_counter() - begun_s


class PreparationNeeded(Exception):
    """Nothing was appended: run ``preparation`` in a thread and append again with it."""

    def __init__(self, preparation: Preparation) -> None:
        super().__init__("these records must be prepared outside the event loop")
        self.preparation = preparation


def is_long_work(headers: list[tuple[int, BatchHeader]]) -> bool:
    """Return whether unpacking these batches would block the event loop for long."""
    size_bytes = sum(header.size_bytes for _, header in headers)
    # In old formats the number of records is known only after unpacking.
    return size_bytes >= PREPARED_BYTES or sum(header.record_count for _, header in headers) >= PREPARED_RECORDS
