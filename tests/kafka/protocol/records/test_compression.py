"""Codecs against independent libraries, both ways; what other clients send; and bombs, which must not explode."""

from __future__ import annotations

import gzip
import random
import struct
import zlib
from collections.abc import Callable

import kafka.codec
import lz4.frame
import pytest
import snappy
import zstandard

from engine.common.errors import ErrorCode, KafkaError
from engine.kafka.protocol.records.compression import Codec, codec_named, codec_of, compress, decompress

CODECS = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
WORDS = b"the castle above had already become invisible "


def sample(size: int) -> bytes:
    """Return bytes that are half words, half noise: compressible, but only partly."""
    noise = random.Random(size).randbytes(size // 2)
    return (WORDS * (size // len(WORDS) + 1))[: size - len(noise)] + noise


SIZES = [0, 1, 100, 32 * 1024, 32 * 1024 + 1, 64 * 1024 - 1, 64 * 1024, 64 * 1024 + 1, 300_000]

OTHERS_READ: dict[Codec, Callable[[bytes], bytes]] = {
    Codec.GZIP: gzip.decompress,
    Codec.SNAPPY: lambda data: kafka.codec.snappy_decode(data) if len(data) > 16 else b"",
    Codec.LZ4: lz4.frame.decompress,
    Codec.ZSTD: lambda data: zstandard.ZstdDecompressor().decompress(data, max_output_size=1_000_000),
}
OTHERS_WRITE: dict[Codec, Callable[[bytes], bytes]] = {
    Codec.GZIP: gzip.compress,
    Codec.SNAPPY: kafka.codec.snappy_encode,
    Codec.LZ4: lambda data: lz4.frame.compress(data, block_linked=False),
    Codec.ZSTD: zstandard.ZstdCompressor(write_content_size=False).compress,
}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    ("codec", "magic"), [(codec, 2) for codec in Codec] + [(codec, 1) for codec in list(Codec)[:-1]]
)
def test_round_trip(codec: Codec, size: int, magic: int) -> None:
    data = sample(size)
    assert decompress(codec, compress(codec, data, magic=magic), magic=magic) == data


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("codec", CODECS)
def test_other_libraries_read_ours(codec: Codec, size: int) -> None:
    data = sample(size)
    assert OTHERS_READ[codec](compress(codec, data)) == data


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("codec", CODECS)
def test_ours_reads_other_libraries(codec: Codec, size: int) -> None:
    data = sample(size)
    assert decompress(codec, OTHERS_WRITE[codec](data)) == data


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("view", [bytes, bytearray, memoryview])
def test_any_buffer_will_do(codec: Codec, view: type) -> None:
    data = sample(5_000)
    for level in (None, 1):
        assert decompress(codec, view(compress(codec, view(data), level))) == data


def test_snappy_is_written_in_the_java_clients_framing_and_read_raw_too() -> None:
    data = sample(100_000)
    packed = compress(Codec.SNAPPY, data)
    assert packed.startswith(b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1))
    assert decompress(Codec.SNAPPY, snappy.compress(data)) == data


def test_snappy_streams_may_follow_one_another() -> None:
    """snappy-java allows it: a second frame header appears where a block's length would be."""
    assert decompress(Codec.SNAPPY, compress(Codec.SNAPPY, b"one ") + compress(Codec.SNAPPY, b"two")) == b"one two"


def test_gzip_members_may_follow_one_another_and_other_bytes_are_ignored() -> None:
    assert decompress(Codec.GZIP, gzip.compress(b"one ") + gzip.compress(b"two") + b"rest") == b"one two"


def test_lz4_frame_is_as_kafka_writes_it() -> None:
    """Independent blocks of 64 KB, no checksums, no content size: flags 0x60, block descriptor 0x40."""
    packed = compress(Codec.LZ4, sample(200_000))
    assert packed[:7] == b"\x04\x22\x4d\x18\x60\x40\x82"
    assert packed.endswith(bytes(4))


def test_lz4_of_format_v0_has_the_old_clients_header_checksum() -> None:
    data = sample(100_000)
    packed = compress(Codec.LZ4, data, magic=0)
    assert kafka.codec.lz4_encode_old_kafka(data)[:4] == packed[:4]
    assert kafka.codec.lz4_decode_old_kafka(packed) == data
    assert decompress(Codec.LZ4, packed, magic=0) == data
    assert decompress(Codec.LZ4, kafka.codec.lz4_encode_old_kafka(data), magic=0) == data
    with pytest.raises(KafkaError, match="lz4"):
        decompress(Codec.LZ4, packed, magic=1)


def test_lz4_of_format_v0_with_the_right_checksum_is_read_too() -> None:
    assert decompress(Codec.LZ4, compress(Codec.LZ4, b"abc", magic=1), magic=0) == b"abc"


@pytest.mark.parametrize("block_size", [4, 5, 6, 7])
@pytest.mark.parametrize("options", [{}, {"content_checksum": True}, {"block_checksum": True}, {"store_size": True}])
def test_lz4_frames_with_other_options_are_read(block_size: int, options: dict[str, bool]) -> None:
    data = sample(150_000)
    settings = {"store_size": False} | options
    packed = lz4.frame.compress(data, block_size=block_size, block_linked=False, **settings)
    assert decompress(Codec.LZ4, packed) == data
    assert decompress(Codec.LZ4, packed + b"what follows the frame is ignored") == data


def test_lz4_with_dependent_blocks_is_refused_as_by_kafka() -> None:
    packed = lz4.frame.compress(sample(150_000), block_linked=True)
    with pytest.raises(KafkaError, match="dependent blocks") as caught:
        decompress(Codec.LZ4, packed)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


def test_zstd_frames_may_follow_one_another_and_be_skippable() -> None:
    first, second = (zstandard.ZstdCompressor().compress(data) for data in (b"one ", b"two"))
    skippable = b"\x51\x2a\x4d\x18" + (3).to_bytes(4, "little") + b"xyz"
    assert decompress(Codec.ZSTD, first + skippable + second) == b"one two"


@pytest.mark.parametrize("level", [1, 2, 6, 9])
def test_higher_levels_are_handed_on(level: int) -> None:
    data = sample(100_000)
    assert compress(Codec.GZIP, data, level) == zlib_gzip(data, level)
    assert decompress(Codec.ZSTD, compress(Codec.ZSTD, data, level)) == data
    assert lz4.frame.decompress(compress(Codec.LZ4, data, level)) == data


def test_lz4_levels_beside_the_default_use_the_stronger_compressor() -> None:
    data = b"".join(b"%d %d;" % (i % 97, i * i % 1009) for i in range(30_000))
    assert len(compress(Codec.LZ4, data, 12)) < len(compress(Codec.LZ4, data))
    assert compress(Codec.LZ4, data, 9) == compress(Codec.LZ4, data)


def zlib_gzip(data: bytes, level: int) -> bytes:
    """Return what zlib writes, behind the header that Kafka's Java writes."""
    compressor = zlib.compressobj(level, zlib.DEFLATED, 31)
    return b"\x1f\x8b\x08" + bytes(6) + b"\xff" + (compressor.compress(data) + compressor.flush())[10:]


def old_zstd(data: bytes) -> bytes:
    return compress(Codec.ZSTD, data, magic=1)


def test_zstd_does_not_exist_below_format_v2() -> None:
    for call in (old_zstd, lambda data: decompress(Codec.ZSTD, data, magic=1)):
        with pytest.raises(KafkaError) as caught:
            call(b"abc")
        assert caught.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


BOMB_BYTES = 20_000_000


def flushed_zstd(data: bytes) -> bytes:
    """Return a frame of many small blocks: their number alone must not make a frame too large."""
    compressor = zstandard.ZstdCompressor(write_content_size=False).compressobj()
    parts = []
    for start in range(0, len(data), 100):
        parts.append(compressor.compress(data[start : start + 100]))
        parts.append(compressor.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK))
    parts.append(compressor.flush())
    return b"".join(parts)


BOMBS = [
    (Codec.GZIP, gzip.compress(bytes(BOMB_BYTES))),
    (Codec.GZIP, b"".join([gzip.compress(bytes(BOMB_BYTES // 100))] * 100)),
    (Codec.SNAPPY, snappy.compress(bytes(BOMB_BYTES))),
    (Codec.SNAPPY, compress(Codec.SNAPPY, bytes(BOMB_BYTES))),
    (Codec.LZ4, lz4.frame.compress(bytes(BOMB_BYTES), block_linked=False)),
    (Codec.LZ4, lz4.frame.compress(bytes(BOMB_BYTES), block_linked=False, block_size=7)),
    (Codec.ZSTD, zstandard.ZstdCompressor().compress(bytes(BOMB_BYTES))),
    (Codec.ZSTD, zstandard.ZstdCompressor(write_content_size=False).compress(bytes(BOMB_BYTES))),
]


@pytest.mark.parametrize(("codec", "bomb"), BOMBS)
def test_bombs_are_too_large(codec: Codec, bomb: bytes) -> None:
    with pytest.raises(KafkaError, match="decompress to more than the 1000000 bytes allowed") as caught:
        decompress(codec, bomb, size_max=1_000_000)
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize(("codec", "bomb"), BOMBS)
def test_the_limit_is_exact(codec: Codec, bomb: bytes) -> None:
    assert len(decompress(codec, bomb, size_max=BOMB_BYTES)) == BOMB_BYTES
    with pytest.raises(KafkaError) as caught:
        decompress(codec, bomb, size_max=BOMB_BYTES - 1)
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE


def test_many_small_zstd_blocks_are_no_bomb() -> None:
    data = sample(50_000)
    packed = flushed_zstd(data)
    assert decompress(Codec.ZSTD, packed, size_max=len(data)) == data


def test_a_snappy_length_that_the_bytes_cannot_hold_takes_no_memory() -> None:
    with pytest.raises(KafkaError, match="says that it holds 1073741824") as caught:
        decompress(Codec.SNAPPY, b"\x80\x80\x80\x80\x04" + b"x" * 20, size_max=2**31)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("codec", CODECS)
def test_truncated_streams_are_corrupt(codec: Codec) -> None:
    packed = compress(codec, sample(70_000))
    for size in [*range(40), len(packed) // 2, len(packed) - 9, len(packed) - 1]:
        if codec is Codec.SNAPPY and size == 16:
            continue  # a frame header alone is an empty stream
        with pytest.raises(KafkaError) as caught:
            decompress(codec, packed[:size])
        assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("garbage", [b"", b"\x01", b"not compressed at all", bytes(100), b"\xff" * 100])
def test_garbage_is_corrupt(codec: Codec, garbage: bytes) -> None:
    with pytest.raises(KafkaError) as caught:
        decompress(codec, garbage)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


def test_names_of_codecs() -> None:
    assert [codec.kafka_name for codec in Codec] == ["none", "gzip", "snappy", "lz4", "zstd"]
    assert [codec_named(codec.kafka_name) for codec in Codec] == list(Codec)
    assert codec_named("uncompressed") is Codec.NONE
    assert codec_of(0xF8 | 3) is Codec.LZ4
    with pytest.raises(ValueError, match="unknown compression type 'producer'"):
        codec_named("producer")


@pytest.mark.parametrize("level", range(1, 18))
def test_every_level_that_kafka_allows_for_lz4_works(level: int) -> None:
    data = sample(70_000)
    assert lz4.frame.decompress(compress(Codec.LZ4, data, level)) == data


@pytest.mark.parametrize("level", [-131072, -1, 0, 3, 19, 22])
def test_every_kind_of_level_that_kafka_allows_for_zstd_works(level: int) -> None:
    data = sample(70_000)
    assert zstandard.ZstdDecompressor().decompress(compress(Codec.ZSTD, data, level), max_output_size=100_000) == data
