"""Records and batches per second: ours, in pure Python, beside kafka-python (pure Python) and aiokafka (C extension).

Every figure is the best of ``ROUNDS`` over the same batches in one process; the ratio is against the faster peer.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import aiokafka.record.default_records as aio

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka.record.default_records as py

from engine.kafka.protocol.records.attributes import Codec
from engine.kafka.protocol.records.checksum import verify_crc
from engine.kafka.protocol.records.compression import compress, decompress
from engine.kafka.protocol.records.convert import down_convert
from engine.kafka.protocol.records.decode import iter_records, record_section
from engine.kafka.protocol.records.encode import encode_batch
from engine.kafka.protocol.records.header import iter_batches, read_batch_header
from engine.kafka.protocol.records.record import Record
from engine.kafka.protocol.records.validate import AppendRules, prepare_append, scan_section

ROUNDS = int(os.environ.get("KLAMM_BENCH_ROUNDS", "5"))
COUNT = 10_000
NOW = 1_700_000_000_000
SHAPES = {
    "10-byte values": (10, ()),
    "100-byte values": (100, ()),
    "100-byte values, 2 headers": (100, (("trace", b"0123456789abcdef"), ("kind", b"order"))),
}


def main() -> None:
    """Print all figures."""
    print(f"{COUNT:,} records a batch, best of {ROUNDS}; million records per second")
    print(f"{'':34} {'ours':>8} {'kafka-py':>9} {'aiokafka':>9} {'ratio':>7}")
    for name, (size, headers) in SHAPES.items():
        _record_rows(name, [Record(i, NOW + i, b"k%d" % i, b"v" * size, list(headers)) for i in range(COUNT)])
    _append_rows()
    _codec_rows()
    _header_rows()


def _record_rows(name: str, records: list[Record]) -> None:
    batch = encode_batch(records)
    header = read_batch_header(batch)
    section = record_section(batch, 0, header)
    _row(f"encode, {name}", lambda: encode_batch(records), *(_encoder(module, records) for module in (py, aio)))
    _row(f"iterate, {name}", lambda: _drain(iter_records(batch)), *(_reader(module, batch) for module in (py, aio)))
    _row(f"scan, {name}", lambda: scan_section(header, section))


def _append_rows() -> None:
    """The leader's slow paths: the cost of a produce request that cannot be stored unchanged."""
    records = [Record(i, NOW + i, b"k%d" % i, b"v" * 100) for i in range(COUNT)]
    plain, gzip = (encode_batch(records, codec=codec) for codec in (Codec.NONE, Codec.GZIP))
    old = down_convert(plain, 1, 0)
    for name, batch, rules in (
        ("append, keys and times checked", plain, AppendRules(is_compacted=True, timestamp_after_max_ms=10**9)),
        ("append, recompressed as lz4", gzip, AppendRules(codec=Codec.LZ4)),
        ("append, up from format v1", old, AppendRules()),
    ):
        _row(name, lambda batch=batch, rules=rules: _prepare(batch, rules))
    _row("fetch, down to format v1", lambda: down_convert(plain, 1, 0))


def _prepare(batch: bytes, rules: AppendRules) -> None:
    prepare_append(batch, rules, first_offset=0, leader_epoch=0, now_ms=NOW)


def _codec_rows() -> None:
    data = b"".join(b"%d some words and %d numbers\n" % (i * 7919 % 100_003, i) for i in range(40_000))
    print(f"\n{len(data) / 1e6:.1f} MB of text; MB per second\n{'':34} {'pack':>8} {'unpack':>9} {'size':>9}")
    for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD):
        packed = compress(codec, data)
        speeds = (_best(lambda: compress(codec, data)), _best(lambda: decompress(codec, packed)))  # noqa: B023
        pack, unpack = (len(data) / 1e6 / seconds for seconds in speeds)
        print(f"{codec.kafka_name:34} {pack:8.0f} {unpack:9.0f} {len(packed) / len(data):9.0%}")


def _header_rows() -> None:
    batch = encode_batch([Record(0, NOW, b"k", b"v" * 100)])
    many = batch * COUNT
    large = encode_batch([Record(0, NOW, None, bytes(1_000_000))])
    print(f"\n{'':34} {'ours':>8}")
    walk = _best(lambda: _drain(iter_batches(many)))
    print(f"{'headers walked, million/s':34} {COUNT / walk / 1e6:8.2f}")
    small = _best(lambda: [verify_crc(batch, 0, len(batch)) for _ in range(COUNT)])
    print(f"{'checksum of 170 bytes, µs':34} {small / COUNT * 1e6:8.2f}")
    print(f"{'checksum of 1 MB, GB/s':34} {len(large) / _best(lambda: verify_crc(large, 0, len(large))) / 1e9:8.1f}")


def _encoder(module: Any, records: list[Record]) -> Callable[[], object]:
    def encode() -> object:
        builder = module.DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 10_000_000)
        for record in records:
            builder.append(record.offset, record.timestamp_ms, record.key, record.value, record.headers)
        return builder.build()

    return encode


def _reader(module: Any, batch: bytes) -> Callable[[], object]:
    return lambda: _drain(module.DefaultRecordBatch(batch))


def _drain(items: Iterable[object]) -> None:
    for _ in items:
        pass


def _row(name: str, ours: Callable[[], object], *peers: Callable[[], object]) -> None:
    speed, *others = (COUNT / _best(call) / 1e6 for call in (ours, *peers))
    columns = "".join(f" {other:9.2f}" for other in others)
    ratio = f" {speed / max(others):7.2f}" if others else ""
    print(f"{name:34} {speed:8.2f}{columns}{ratio}", flush=True)


def _best(call: Callable[[], object]) -> float:
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


if __name__ == "__main__":
    main()
