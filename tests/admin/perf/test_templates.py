"""Prepared batches are like all others: they read back, count correctly, and have valid checksums."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.admin.cluster.errors import BadRequest, NotFound
from engine.admin.perf.consumer import count_data
from engine.admin.perf.templates import (
    BatchTemplate,
    FreshTemplates,
    TemplatePool,
    drawn_from,
    random_letters,
    read_payloads,
    rising_numbers,
)
from engine.common.errors import KafkaError
from engine.kafka.protocol.records.attributes import Codec
from engine.kafka.protocol.records.checksum import verify_crc
from engine.kafka.protocol.records.decode import iter_records
from engine.kafka.protocol.records.encode import encode_batch
from engine.kafka.protocol.records.header import read_batch_header
from engine.kafka.protocol.records.legacy import encode_message_set
from engine.kafka.protocol.records.record import Record


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("wanted", [1, 2, 7])
def test_a_stamped_batch_is_what_an_encoder_makes(codec: Codec, wanted: int) -> None:
    values = [b"v" * size for size in (1, 0, 300, 70, 5, 9000, 2)]
    batch = BatchTemplate(values, codec, None).stamped(wanted, 1234, 77, 3, 40)
    assert verify_crc(batch, 0, len(batch))
    header = read_batch_header(batch)
    assert (header.record_count, header.last_offset_delta, header.codec) == (wanted, wanted - 1, codec)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (77, 3, 40)
    assert [(r.offset, r.timestamp_ms, r.key, r.value) for r in iter_records(batch)] == [
        (index, 1234, None, value) for index, value in enumerate(values[:wanted])
    ]
    if codec is Codec.NONE:
        records = [Record(offset=-1, timestamp_ms=1234, key=None, value=value, headers=()) for value in values[:wanted]]
        assert batch == encode_batch(records, producer_id=77, producer_epoch=3, base_sequence=40)


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=60), st.integers(0, 2**40), st.sampled_from(list(Codec)))
def test_any_values(values: list[bytes], time_ms: int, codec: Codec) -> None:
    template = BatchTemplate(values, codec, None)
    batch = template.stamped(len(values), time_ms, -1, -1, -1)
    assert [record.value for record in iter_records(batch)] == values
    total = sum(map(len, values))
    assert template.payload_bytes(len(values)) == total
    assert count_data(batch, 0, read_batch_header(batch)) == (len(values), total)


def _sizes(size: int) -> Iterator[bytes]:
    return (b"%d" % number + b"x" * (number * size % 97) for number in count())


@pytest.mark.parametrize("batch_bytes", [1, 100, 1000, 16_384])
def test_batches_are_as_full_as_they_may_be(batch_bytes: int) -> None:
    values = list(islice(_sizes(13), 3000))
    pool = TemplatePool(iter(values * 1000), batch_bytes, Codec.NONE)
    position = 0
    for _ in range(5):
        template = pool.next_template(2**31)
        size = template.record_count
        assert size == 1 or len(template.stamped(size, 0, -1, -1, -1)) <= batch_bytes
        more = BatchTemplate(values[position : position + size + 1], Codec.NONE, None)
        assert len(more.stamped(size + 1, 0, -1, -1, -1)) > batch_bytes, "one more would have been too much"
        position += size


def test_what_must_not_be_sent_twice_is_made_anew() -> None:
    fresh, got = FreshTemplates(rising_numbers(), 500, Codec.NONE), []
    for wanted in (3, 1, 1000, 5):
        template = fresh.next_template(wanted)
        assert template.record_count <= wanted
        batch = template.stamped(template.record_count, 0, -1, -1, -1)
        got += [int(record.value or b"") for record in iter_records(batch)]
    assert got == list(range(len(got)))


def test_keys_and_old_formats_are_counted_too() -> None:
    records = [
        Record(offset=n, timestamp_ms=5, key=b"k" * n, value=None if n % 2 else b"v" * 200, headers=(("h", b"1"),))
        for n in range(300)
    ]
    expected = (300, sum(len(r.key or b"") + len(r.value or b"") for r in records))
    batch = encode_batch(records, codec=Codec.ZSTD)
    assert count_data(batch, 0, read_batch_header(batch)) == expected
    plain = [Record(offset=n, timestamp_ms=5, key=b"k", value=b"value", headers=()) for n in range(10)]
    for magic in (0, 1):
        data = bytes(encode_message_set(plain, magic, codec=Codec.GZIP))
        assert count_data(data, 0, read_batch_header(data)) == (10, 60)


def test_a_batch_that_is_cut_is_no_count() -> None:
    batch = bytearray(encode_batch([Record(offset=0, timestamp_ms=0, key=None, value=b"x" * 50, headers=())]))
    batch[60] = 2
    with pytest.raises(KafkaError):
        count_data(batch, 0, read_batch_header(batch))


def test_payloads(tmp_path: Path) -> None:
    letters = random_letters(40)
    first, second = next(letters), next(letters)
    assert len(first) == len(second) == 40
    assert first != second
    assert first.isalpha() and first.isupper()
    assert next(random_letters(40)) == first, "the same in every run"
    file = tmp_path / "in.txt"
    file.write_bytes(b"one\ntwo\n\nthree\n")
    assert read_payloads(file, "\\n") == [b"one", b"two", b"", b"three"]
    assert read_payloads(file, "t") == [b"one\n", b"wo\n\n", b"hree\n"]
    assert set(islice(drawn_from([b"a", b"b"]), 50)) == {b"a", b"b"}
    file.write_bytes(b"")
    with pytest.raises(BadRequest, match="empty"):
        read_payloads(file, "\\n")
    with pytest.raises(BadRequest, match="delimiter"):
        read_payloads(file, "")
    with pytest.raises(NotFound):
        read_payloads(tmp_path / "absent", "\\n")
