"""An idempotent producer that chooses its sequences exactly: to repeat, to skip, to come back after a crash."""

from __future__ import annotations

import time
from typing import Any

from wire_client import WireClient, produce

from engine.common.errors import ErrorCode
from engine.kafka.protocol.apis.init_producer_id import InitProducerIdRequest
from engine.kafka.protocol.records.encode import encode_batch
from engine.kafka.protocol.records.record import Record

NOW_MS = time.time_ns() // 1_000_000
"""A start forgets a producer whose records are older than a day, as in Kafka."""


class SequencedProducer:
    """One producer id; the caller chooses the first sequence of every batch."""

    def __init__(self, client: WireClient) -> None:
        answer = client.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000), 4)
        assert answer.error_code == ErrorCode.NONE
        self.producer_id: int = answer.producer_id
        self.producer_epoch: int = answer.producer_epoch

    def batch(self, first_sequence: int, count: int, producer_epoch: int | None = None) -> bytes:
        """Return the batch with these sequences; the same sequences always give the same bytes."""
        values = [(first_sequence + index) % 2**31 for index in range(count)]
        return encode_batch(
            [Record(index, NOW_MS, None, b"%d:%d" % (self.producer_id, value)) for index, value in enumerate(values)],
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch if producer_epoch is None else producer_epoch,
            base_sequence=first_sequence,
        )

    def send(
        self, client: WireClient, topic: str, first_sequence: int, count: int, producer_epoch: int | None = None
    ) -> Any:
        """Produce one batch with acks=all; return the partition's answer."""
        return produce(client, topic, self.batch(first_sequence, count, producer_epoch), acks=-1)
