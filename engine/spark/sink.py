"""Writes rows to Kafka from Spark's tasks: columns key, value, headers, topic and partition, like Spark's own sink.

Each task has a producer of its own, idempotent by default. A task that Spark repeats sends its rows again: each record
arrives at least once, as with Spark's own sink.

The process that plans a write only checks options and columns; only tasks import the code that sends.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from importlib import util
from typing import TYPE_CHECKING, Any

from engine.admin.cluster.errors import BadRequest
from engine.common.model import ACKS_ALL
from engine.kafka.protocol.records.attributes import Codec, codec_named
from engine.spark.kafka_options import connection

if TYPE_CHECKING:
    from engine.admin.cluster.wire import WireCluster
    from engine.admin.records.produce import Producer, ProducerOptions

FLUSH_BYTES = 8 * 1024 * 1024
"""How much is gathered before it is sent, over all partitions."""

_KINDS = {
    "key": ("binary", "string"),
    "value": ("binary", "string"),
    "topic": ("string",),
    "partition": ("int",),
    "headers": ("array<struct<key:string,value:binary>>",),
}
_OPTIONS = ("topic", "includeheaders", "checkpointlocation", "path")
_ACKS = {"all": ACKS_ALL, "-1": ACKS_ALL, "0": 0, "1": 1}


def check_sink(options: Mapping[str, str], columns: Sequence[tuple[str, str]], *, overwrites: bool) -> None:
    """Refuse rows that cannot be written, and options that cannot be honoured.

    Raises:
        BadRequest: the message says which.
    """
    lowered = {name.lower(): value for name, value in options.items()}
    unknown = [name for name in lowered if name not in _OPTIONS and not name.startswith("kafka.")]
    if unknown:
        raise BadRequest(f"no such option: {unknown[0]}", hint="there are topic and kafka.*")
    if overwrites:
        raise BadRequest("a topic cannot be overwritten", hint='write with mode("append")')
    names = [name for name, _ in columns]
    if "value" not in names:
        raise BadRequest("there is no column value", hint="give the column to send the name value")
    if "topic" not in names and "topic" not in lowered:
        raise BadRequest("nothing names the topic", hint="give the option topic, or a column of this name")
    for name, kind in columns:
        if kind not in _KINDS.get(name, ()):
            wanted = " or ".join(_KINDS.get(name, ())) or f"one of the columns {', '.join(_KINDS)}"
            raise BadRequest(f"the column {name} has the type {kind}", hint=f"it must be {wanted}")
    connection(lowered)
    _producer_settings(lowered)


def write_rows(options: Mapping[str, str], batches: Iterable[Any]) -> int:
    """Send the rows of Arrow batches and wait until they are acknowledged; return how many there were.

    Raises:
        BadRequest: a row has no topic, or a header no key.
        NotFound: there is no such topic or partition.
        Refused, Unreachable: the cluster rejects a request, or does not answer.
    """
    import asyncio

    _check_libraries()
    return asyncio.run(_write(options, batches))


def _check_libraries() -> None:
    """Reading needs none of klamm's compiled libraries; writing needs checksums and codecs."""
    missing = [name for name in ("crc32c", "cramjam") if util.find_spec(name) is None]
    if missing:
        names = " and ".join(missing)
        raise BadRequest(
            f"writing needs {names} in the executors' Python", hint=f"pip install {' '.join(missing)} there"
        )


async def _write(options: Mapping[str, str], batches: Iterable[Any]) -> int:
    from engine.spark.broker_offsets import opened
    from engine.spark.row_batches import even_parts

    lowered = {name.lower(): value for name, value in options.items()}
    async with opened(connection(lowered)) as wire:
        writer = _Writer(wire, lowered)
        for rows in even_parts(batches, FLUSH_BYTES):
            await writer.write(rows)
        return writer.count


class _Writer:
    """Sends rows, by a producer for each topic."""

    def __init__(self, wire: WireCluster, given: Mapping[str, str]) -> None:
        self._wire = wire
        # The option wins over the column, as in Spark's own sink.
        self._topic = given.get("topic")
        self._options = _producer_options(given)
        self._producers: dict[str, Producer] = {}
        self.count = 0

    async def write(self, rows: Any) -> None:
        """Send the rows of an Arrow batch and wait until they are acknowledged."""
        from engine.spark.row_batches import by_topic

        time_ms = time.time_ns() // 1_000_000
        for topic, topic_rows in [(self._topic, rows)] if self._topic else by_topic(rows):
            self._add(await self._producer(topic), topic_rows, time_ms)
        for producer in self._producers.values():
            await producer.flush()
        self.count += rows.num_rows

    def _add(self, producer: Producer, rows: Any, time_ms: int) -> None:
        from engine.spark.encoding import batches_of, record_columns
        from engine.spark.row_batches import partitions_of

        records, batch_bytes = record_columns(rows), self._options.batch_bytes
        partitions = partitions_of(rows, records, producer, batch_bytes)
        for partition, section in batches_of(records, partitions, batch_bytes, time_ms):
            producer.add_encoded(partition, section)

    async def _producer(self, topic: str) -> Producer:
        from engine.admin.records.produce import Producer

        if topic not in self._producers:
            producer = Producer(self._wire, topic, self._options)
            await producer.open()
            self._producers[topic] = producer
        return self._producers[topic]


def _producer_options(given: Mapping[str, str]) -> ProducerOptions:
    from engine.admin.records.produce import ProducerOptions

    acks, codec, is_idempotent, delivery_timeout_s = _producer_settings(given)
    return ProducerOptions(acks, codec, is_idempotent=is_idempotent, delivery_timeout_s=delivery_timeout_s)


def _producer_settings(given: Mapping[str, str]) -> tuple[int, Codec, bool, float]:
    acks, idempotence = given.get("kafka.acks", "all"), given.get("kafka.enable.idempotence", "true").lower()
    if acks not in _ACKS:
        raise BadRequest("kafka.acks must be all, 1 or 0", where=acks)
    delivery = given.get("kafka.delivery.timeout.ms", "120000")
    if not delivery.isdecimal():
        raise BadRequest("kafka.delivery.timeout.ms must be a number", where=delivery)
    codec = _codec(given.get("kafka.compression.type", "none"))
    return _ACKS[acks], codec, idempotence != "false", int(delivery) / 1000


def _codec(name: str) -> Codec:
    try:
        return codec_named(name)
    except ValueError as error:
        raise BadRequest(str(error)) from None
