"""librdkafka, from the confluent-kafka wheel, through ctypes: a load that costs the client next to nothing per record.

The Python calls of confluent-kafka cost more than a broker does. Here one call hands over thousands of records.
``python rdkafka.py`` is a producer process that prints its figures as JSON.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.util
import json
import mmap
import resource
import time
from collections.abc import Mapping
from pathlib import Path

_PRODUCER = 0
_ERROR_TEXT_BYTES = 512
_PIECE_BYTES = 4 * 1024 * 1024
_PIECES_AHEAD = 8


class Message(ctypes.Structure):
    """rd_kafka_message_t."""

    _fields_ = (
        ("err", ctypes.c_int),
        ("rkt", ctypes.c_void_p),
        ("partition", ctypes.c_int32),
        ("payload", ctypes.c_char_p),
        ("len", ctypes.c_size_t),
        ("key", ctypes.c_char_p),
        ("key_len", ctypes.c_size_t),
        ("offset", ctypes.c_int64),
        ("private", ctypes.c_void_p),
    )


def library() -> ctypes.CDLL:
    """Load the librdkafka that the installed confluent-kafka brings."""
    spec = importlib.util.find_spec("confluent_kafka")
    assert spec is not None and spec.origin is not None, "confluent-kafka is not installed"
    folder = Path(spec.origin).parent.parent / "confluent_kafka.libs"
    (path,) = folder.glob("librdkafka*.so*")
    lib = ctypes.CDLL(str(path))
    lib.rd_kafka_conf_new.restype = ctypes.c_void_p
    lib.rd_kafka_conf_set.argtypes = [
        ctypes.c_void_p,
        ctypes.c_char_p,
        ctypes.c_char_p,
        ctypes.c_char_p,
        ctypes.c_size_t,
    ]
    lib.rd_kafka_new.restype = ctypes.c_void_p
    lib.rd_kafka_new.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]
    lib.rd_kafka_topic_new.restype = ctypes.c_void_p
    lib.rd_kafka_topic_new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    lib.rd_kafka_produce_batch.argtypes = [
        ctypes.c_void_p,
        ctypes.c_int32,
        ctypes.c_int,
        ctypes.POINTER(Message),
        ctypes.c_int,
    ]
    lib.rd_kafka_poll.argtypes = [ctypes.c_void_p, ctypes.c_int]
    lib.rd_kafka_flush.argtypes = [ctypes.c_void_p, ctypes.c_int]
    lib.rd_kafka_outq_len.argtypes = [ctypes.c_void_p]
    lib.rd_kafka_topic_destroy.argtypes = [ctypes.c_void_p]
    lib.rd_kafka_destroy.argtypes = [ctypes.c_void_p]
    return lib


class UsedPages:
    """Memory that is freed as fast as a broker writes, so that the kernel has pages which were in use a moment ago.

    A virtual machine may give free pages back to its host. Then a write into a new page costs ten times as much, which
    hides what brokers themselves cost. A machine that has run for long has none: its cache fills its memory.
    The pieces are huge pages, because a file system takes large blocks of pages, not single ones.
    """

    def __init__(self, size_bytes: int) -> None:
        self._pieces: list[mmap.mmap] = []
        for _ in range(-(-size_bytes // _PIECE_BYTES) + _PIECES_AHEAD):
            piece = mmap.mmap(-1, _PIECE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            piece.madvise(mmap.MADV_HUGEPAGE)
            piece.write(bytes(_PIECE_BYTES))
            self._pieces.append(piece)
        self._count = len(self._pieces)

    def free_until(self, size_bytes: int) -> None:
        """Free what a broker needs for this many bytes, and a few pieces more."""
        kept = self._count - _PIECES_AHEAD - size_bytes // _PIECE_BYTES
        while len(self._pieces) > max(0, kept):
            self._pieces.pop().close()


class BulkProducer:
    """A librdkafka producer that gets arrays of equal records, and spreads them over the partitions round robin."""

    def __init__(self, settings: Mapping[str, str], topic: str) -> None:
        self._lib = library()
        error = ctypes.create_string_buffer(_ERROR_TEXT_BYTES)
        conf = self._lib.rd_kafka_conf_new()
        for key, value in settings.items():
            if self._lib.rd_kafka_conf_set(conf, key.encode(), value.encode(), error, _ERROR_TEXT_BYTES):
                raise ValueError(f"librdkafka refuses {key}={value}: {error.value.decode()}")
        self._handle = self._lib.rd_kafka_new(_PRODUCER, conf, error, _ERROR_TEXT_BYTES)
        if not self._handle:
            raise RuntimeError(f"librdkafka does not start: {error.value.decode()}")
        self._topic = self._lib.rd_kafka_topic_new(self._handle, topic.encode(), None)

    def produce(self, payload: bytes, count: int, partitions: int, pages: UsedPages, chunk: int = 5000) -> None:
        """Hand over ``count`` records, then wait until all are delivered or have failed."""
        # librdkafka does not copy payloads here and changes only ``err``, so one array serves all calls.
        messages = (Message * chunk)(*(Message(payload=payload, len=len(payload)) for _ in range(chunk)))
        sent = turn = 0
        while sent < count:
            pages.free_until((sent - self._lib.rd_kafka_outq_len(self._handle)) * len(payload))
            wanted = min(chunk, count - sent)
            done = 0
            while done < wanted:
                pointer = ctypes.cast(ctypes.byref(messages, done * ctypes.sizeof(Message)), ctypes.POINTER(Message))
                accepted = self._lib.rd_kafka_produce_batch(self._topic, turn % partitions, 0, pointer, wanted - done)
                if accepted < wanted - done:
                    self._lib.rd_kafka_poll(self._handle, 5)
                done += accepted
            sent += wanted
            turn += 1
        while self._lib.rd_kafka_flush(self._handle, 1000) != 0:
            if self._lib.rd_kafka_outq_len(self._handle) == 0:
                break

    def close(self) -> None:
        """Destroy the librdkafka handle."""
        self._lib.rd_kafka_topic_destroy(self._topic)
        self._lib.rd_kafka_destroy(self._handle)


def main() -> None:
    """Produce as the options say; print elapsed seconds and this process's CPU seconds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--partitions", type=int, default=6)
    parser.add_argument("--chunk", type=int, default=5000)
    parser.add_argument("settings", nargs="*", help="key=value for librdkafka")
    options = parser.parse_args()
    producer = BulkProducer(dict(text.split("=", 1) for text in options.settings), options.topic)
    payload = bytes(33 + i % 90 for i in range(options.size))
    pages = UsedPages(options.count * options.size)
    begin = time.perf_counter()
    producer.produce(payload, options.count, options.partitions, pages, options.chunk)
    elapsed_s = time.perf_counter() - begin
    producer.close()
    used = resource.getrusage(resource.RUSAGE_SELF)
    print(json.dumps({"elapsed_s": elapsed_s, "client_cpu_s": used.ru_utime + used.ru_stime}))


if __name__ == "__main__":
    main()
