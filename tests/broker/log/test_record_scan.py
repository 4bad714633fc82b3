"""The cleaner's loops over records, against the plain decoder: every size at which a number needs one more byte."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import accumulate, pairwise
from typing import Any

import pytest

from engine.broker.log.cleaner import record_scan
from engine.broker.log.cleaner.key_map import EXACT_KEY_BYTES_MAX, fold
from engine.broker.log.cleaner.record_runs import find_run
from engine.broker.log.cleaner.record_scan import (
    NotRecordsError,
    Survivors,
    counted_from_later,
    find_live,
    find_survivors,
    index_records,
    max_timestamp_delta,
    skip_records,
)
from engine.common.errors import KafkaError
from engine.kafka.protocol.records.encode import encode_records
from engine.kafka.protocol.records.record import Record

BASE = 1000
T0 = 1_700_000_000_000
FIRST_PLACE = 5 << 31

KEY_SIZES = (0, 1, 2, 50, 56, 57, 58, 62, 63, 64, 65, 127, 128, 8191, 8192, 8193)
VALUE_SIZES = (0, 1, 40, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 119, 120, 121, 8180, 8190, 20_000)
OFFSET_DELTAS = (0, 1, 31, 62, 63, 64, 65, 127, 128, 8190, 8191, 8192, 8193, 20_000, 1_050_000)
TIME_DELTAS = (0, -1, 1, -63, -64, -65, 63, 64, 65, 8191, -8192, 8192, -8193, 2_000_000, 2**40)


def known(key: bytes) -> bytes:
    return key if len(key) <= EXACT_KEY_BYTES_MAX else fold(key)


def section_of(records: list[Record], padding: bytes = b"") -> tuple[bytes, int]:
    """Return padding followed by the encoded records, and where the records begin."""
    return padding + bytes(encode_records(records, BASE, T0).data), len(padding)


def record(
    delta: int, key: bytes | None, value: bytes | None = b"v", *, time_delta: int = 0, base: int = BASE
) -> Record:
    return Record(offset=base + delta, timestamp_ms=T0 + time_delta, key=key, value=value)


def every_boundary(base: int = BASE) -> list[Record]:
    """Return records in which each number has each of its possible lengths, in one batch."""
    deltas = sorted({*OFFSET_DELTAS, *range(40, 75), *range(8170, 8215)})
    chosen = random.Random(7)
    return [
        record(
            delta,
            None if number % 11 == 5 else bytes([number % 251]) * KEY_SIZES[number % len(KEY_SIZES)],
            None if number % 7 == 3 else b"v" * VALUE_SIZES[number % len(VALUE_SIZES)],
            time_delta=chosen.choice(TIME_DELTAS),
            base=base,
        )
        for number, delta in enumerate(deltas)
    ]


def starts_of(records: list[Record], start: int, base: int = BASE) -> list[int]:
    """Return where each of the records begins, if the first does at ``start``."""
    return list(accumulate((len(encode_records([record], base, T0).data) for record in records), initial=start))[:-1]


def last_places(records: list[Record], first_place: int) -> dict[bytes, int]:
    """Return the place of each key's last record."""
    places = zip(records, starts_of(records, first_place), strict=True)
    return {known(record.key): place for record, place in places if record.key is not None}


def indexed(records: list[Record]) -> tuple[dict[bytes, int], int]:
    data, position = section_of(records, b"header")
    places: dict[bytes, int] = {}
    null_keys = index_records(data, position, len(data), len(records), FIRST_PLACE, places)
    return places, null_keys


def test_each_key_is_mapped_to_the_place_of_its_last_record() -> None:
    records = every_boundary()
    places, null_keys = indexed(records)
    assert places == last_places(records, FIRST_PLACE)
    assert null_keys == sum(record.key is None for record in records) > 0


@pytest.mark.parametrize("size", [*range(40, 70), *range(8180, 8200)])
def test_a_record_of_any_length_is_followed_by_the_next(size: int) -> None:
    """Lengths of one, two or three bytes: the same for keys, values and the record around them."""
    records = [record(0, b"a" * 40, b"x" * (size - 40)), record(1, b"k" * size), record(2, b"last")]
    places, _ = indexed(records)
    assert places == last_places(records, FIRST_PLACE)
    data, start = section_of(records)
    survivors = find_survivors(data, start, len(data), 3, 0, {}, keeps_tombstones=True)
    assert survivors == find_live(data, starts_of(records, start), len(data), keeps_tombstones=True)
    assert survivors.record_count == 3


@pytest.mark.parametrize("keeps_tombstones", [True, False])
def test_survivors_are_those_at_or_beyond_the_map_s_place(keeps_tombstones: bool) -> None:
    records = every_boundary()
    own_places = dict(zip(records, starts_of(records, FIRST_PLACE), strict=True))
    for seed in range(20):
        chosen = random.Random(seed)
        places = {
            known(record.key): place + chosen.choice((-1, 0, 1))
            for record, place in own_places.items()
            if record.key is not None and chosen.random() < 0.7
        }
        data, start = section_of(records, b"x" * (seed % 3))
        survivors = find_survivors(
            data, start, len(data), len(records), FIRST_PLACE, places, keeps_tombstones=keeps_tombstones
        )
        stays = [
            record
            for record, place in own_places.items()
            if record.key is not None and place >= places.get(known(record.key), place)
        ]
        kept = [record for record in stays if keeps_tombstones or record.value is not None]
        assert survivors.bounds == bounds_of(records, kept, start)
        assert survivors.has_tombstone == (keeps_tombstones and any(record.value is None for record in kept))
        assert survivors.null_keys == sum(record.key is None for record in records)


@pytest.mark.parametrize("delta", [0, 1, 2, 64, 65, 8191, 8192, 20_000, 1_050_000, 1_050_001])
def test_records_before_an_offset_are_skipped(delta: int) -> None:
    records = every_boundary()
    data, start = section_of(records, b"pad")
    skipped = sum(record.offset < BASE + delta for record in records)
    expected = [*starts_of(records, start), len(data)][skipped]
    assert skip_records(data, start, len(data), delta) == (expected, skipped)


def test_records_that_are_cut_off_or_end_before_they_begin_are_not_skipped() -> None:
    data, start = section_of([record(0, b"a")])
    with pytest.raises(NotRecordsError):
        skip_records(data[:2], start, len(data), 1)
    with pytest.raises(NotRecordsError):
        skip_records(b"\x01" + data[1:], start, len(data), 1)


def test_without_tombstones_none_is_told_of() -> None:
    records = [record(0, b"a"), record(1, b"b")]
    data, start = section_of(records)
    assert not find_survivors(data, start, len(data), 2, 0, {}, keeps_tombstones=True).has_tombstone
    assert not find_live(data, starts_of(records, start), len(data), keeps_tombstones=True).has_tombstone


@pytest.mark.parametrize("keeps_tombstones", [True, False])
@pytest.mark.parametrize("base", [0, BASE])
def test_live_records_are_found_at_their_places(base: int, keeps_tombstones: bool) -> None:
    records = [record for record in every_boundary(base) if record.key is not None]
    data = b"pad" + bytes(encode_records(records, base, T0).data)
    starts = dict(zip(records, starts_of(records, 3, base), strict=True))
    for seed in range(20):
        chosen = random.Random(seed)
        live = [record for record in records if chosen.random() < 0.5] or records[:1]
        live_found = find_live(data, [starts[record] for record in live], len(data), keeps_tombstones=keeps_tombstones)
        kept = [record for record in live if keeps_tombstones or record.value is not None]
        assert live_found.bounds == bounds_of(records, kept, 3, base)
        assert live_found.has_tombstone == (keeps_tombstones and any(record.value is None for record in kept))
        assert live_found.null_keys == 0


def test_a_place_whose_record_is_cut_off_is_refused() -> None:
    records = [record(0, b"a"), record(1, b"b")]
    data, start = section_of(records)
    with pytest.raises(NotRecordsError):
        find_live(data[:-3], starts_of(records, start), len(data) - 3, keeps_tombstones=True)


def alike(count: int, key_bytes: int = 14, value_bytes: int = 80, *, first_delta: int = 0) -> list[Record]:
    """Return records of which each has another key, of one size, and another time."""
    return [
        record(delta, b"%0*d" % (key_bytes, delta % 300), b"v" * value_bytes, time_delta=delta % 100)
        for delta in range(first_delta, first_delta + count)
    ]


def odd_ones(records: list[Record]) -> dict[str, list[Record]]:
    """Return the records with one of them changed, in each way that ends a run."""
    middle = len(records) // 2
    offset, key = records[middle].offset, records[middle].key
    changed: dict[str, dict[str, Any]] = {
        "a key of another size": {"key": b"another"},
        "a null key": {"key": None, "value": b"v" * 95},
        "an empty key": {"key": b""},
        "a key that takes from the value": {"key": b"k" * 15, "value": b"v" * 79},
        "a tombstone": {"value": None},
        "a value of another size": {"value": b"short"},
        "a later time": {"timestamp_ms": T0 + 200},
        "an earlier time": {"timestamp_ms": T0 - 5},
        "a much later time, and less value": {"timestamp_ms": T0 + 10_000, "value": b"v" * 78},
        "a very long key": {"key": b"k" * 100},
        "a very large record": {"value": b"v" * 10_000},
        "headers": {"headers": (("h", b"x"),), "value": b"v" * 76},
    }
    assert key is not None
    fields = {name: getattr(records[middle], name) for name in Record.__slots__}
    made = {
        name: [*records[:middle], Record(**fields | change), *records[middle + 1 :]] for name, change in changed.items()
    }
    made["a gap in the offsets"] = [r for r in records if r.offset != offset]
    return made


@pytest.mark.parametrize("first_delta", [0, 1, 50, 57, 63, 64, 8100, 8185, 8192])
@pytest.mark.parametrize("count", [1, 7, 8, 9, 40, 64, 100, 200, 1100])
def test_runs_of_records_are_read_as_each_of_them(count: int, first_delta: int) -> None:
    records = alike(count, first_delta=first_delta)
    for name, some in {"all alike": records, **odd_ones(records)}.items():
        data, start = section_of(some, b"pad")
        places: dict[bytes, int] = {}
        null_keys = index_records(data, start, len(data), len(some), FIRST_PLACE, places) if some else 0
        assert (places, null_keys) == (last_places(some, FIRST_PLACE), sum(r.key is None for r in some)), name
        starts = starts_of(some, start)
        for every in (1, 3, 50):
            live = [number for number, r in enumerate(some) if r.key is not None][::every]
            live_found = find_live(data, [starts[number] for number in live], len(data), keeps_tombstones=False)
            kept = [some[number] for number in live if some[number].value is not None]
            assert live_found.bounds == bounds_of(some, kept, start), name


def test_records_of_one_form_are_a_run() -> None:
    """Otherwise the tests above would try the loops alone."""
    for records in (alike(100), alike(100, value_bytes=500), alike(100, key_bytes=63)):
        data, start = section_of(records, b"pad")
        runs = []
        while (run := find_run(data, start, len(data), len(records))) is not None:
            runs.append(run.record_count)
            start += run.record_count * run.size_bytes
        assert runs == [64, 36]
        assert start == len(data)


@pytest.mark.parametrize(
    ("first_delta", "count", "value_bytes", "time_delta"),
    [
        (0, 8, 100, 0),
        (5, 50, 100, -64),
        (64, 36, 100, 0),
        (64, 1000, 100, 0),
        (64, 1500, 100, 0),
        (8100, 92, 43, 0),
        (0, 20, 43, 0),
        (0, 20, 8120, 0),
    ],
)
def test_a_run_tells_its_place_and_its_keys(first_delta: int, count: int, value_bytes: int, time_delta: int) -> None:
    records = [
        record(delta, b"%015d" % delta, b"v" * value_bytes, time_delta=time_delta)
        for delta in range(first_delta, first_delta + count)
    ]
    data, start = section_of(records, b"pad")
    run = find_run(data, start, len(data), count)
    assert run is not None
    assert (run.record_count, run.delta) == (count, first_delta)
    assert list(run.keys(data, start)) == [each.key for each in records]


def test_a_run_ends_where_offsets_or_sizes_take_another_byte() -> None:
    for first_delta, later_bytes in ((50, 99), (0, 300)):
        sizes = [100] * 14 + [later_bytes] * 26
        records = [record(first_delta + number, b"key", b"v" * size) for number, size in enumerate(sizes)]
        data, start = section_of(records, b"pad")
        run = find_run(data, start, len(data), len(records))
        assert run is not None
        assert run.record_count == 14


@pytest.mark.parametrize(
    "made",
    {
        "a length of three bytes": lambda delta: b"\x80\x80\0\0" + bytes([delta << 1]) + b"\2k" + bytes(8187),
        "a key's length of two bytes": lambda delta: (
            bytes([168, 1, 0, 0, delta << 1, 128, 1]) + b"k" * 64 + b"\x1a" + bytes(14)
        ),
        "nothing after the key": lambda delta: bytes([28, 0, 0, delta << 1, 20]) + b"k" * 10,
        "a time of another length": lambda delta: (
            bytes([40, 0, 1 if delta == 4 else 129, 1, delta << 1, 20]) + b"k" * 10 + bytes(5)
        ),
    }.items(),
    ids=lambda named: named[0].replace(" ", "-"),
)
def test_what_looks_like_a_run_and_is_not_is_none(made: tuple[str, Callable[[int], bytes]]) -> None:
    data = b"".join(map(made[1], range(8)))
    assert find_run(data, 0, len(data), 8) is None


@pytest.mark.parametrize("at", range(0, 3000, 7))
def test_a_changed_byte_in_a_run_means_what_it_means_elsewhere(at: int) -> None:
    """A run is not looked at record by record; what it skips must be what the loop reads, or refuses."""
    data, start = section_of(alike(30))
    at %= len(data)
    for byte in (0, 1, 2, 60, 127, 128, 200, 255):
        changed = data[:at] + bytes([byte]) + data[at + 1 :]
        outcomes = []
        for scan in (index_records, _one_by_one):
            places: dict[bytes, int] = {}
            try:
                outcomes.append((scan(changed, start, len(data), 30, FIRST_PLACE, places), places))
            except (NotRecordsError, KafkaError) as error:
                outcomes.append((type(error), {}))
        assert outcomes[0] == outcomes[1]


def _one_by_one(data: bytes, start: int, end: int, count: int, first_place: int, places: dict[bytes, int]) -> int:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_scan, "find_run", lambda *_: None)
        return index_records(data, start, end, count, first_place, places)


def test_a_tombstone_in_a_run_is_told_of() -> None:
    records = [record(delta, b"key-%d" % delta, None) for delta in range(10)]
    data, start = section_of(records)
    live = starts_of(records, start)[1:9]
    live_records = find_live(data, live, len(data), keeps_tombstones=True)
    assert (live_records.bounds, live_records.has_tombstone) == (bounds_of(records, records[1:9], start), True)
    live_records = find_live(data, live, len(data), keeps_tombstones=False)
    assert (live_records.bounds, live_records.has_tombstone) == ([], False)


@pytest.mark.parametrize("change", ["one less", "one more", "cut", "key over the end"])
def test_bytes_that_are_not_the_records_are_refused(change: str) -> None:
    records = [record(0, b"a" * 10, b""), record(1, b"b" * 10, b"")]
    data, start = section_of(records)
    count, end = len(records), len(data)
    if change == "one less":
        count -= 1
    elif change == "one more":
        count += 1
    elif change == "cut":
        data, end = data[:-3], end - 3
    else:
        key_length_at = data.index(b"a") - 1
        # The key would end where its record ends, which leaves no room for a value.
        data = data[:key_length_at] + bytes([(10 + 2) << 1]) + data[key_length_at + 1 :]
    with pytest.raises(NotRecordsError):
        index_records(data, start, end, count, FIRST_PLACE, {})
    with pytest.raises(NotRecordsError):
        find_survivors(data, start, end, count, FIRST_PLACE, {}, keeps_tombstones=True)


def test_the_largest_timestamp_of_the_survivors() -> None:
    records = [record for record in every_boundary() if record.key is not None]
    data, start = section_of(records)
    starts = dict(zip(records, starts_of(records, start), strict=True))
    for seed in range(20):
        kept = random.Random(seed).sample(records, 8)
        live = sorted(starts[record] for record in kept)
        live_found = find_live(data, live, len(data), keeps_tombstones=True)
        assert (
            max_timestamp_delta(data, live_found, max(TIME_DELTAS)) == max(record.timestamp_ms for record in kept) - T0
        )


def test_a_survivor_with_the_largest_possible_time_ends_the_search() -> None:
    records = [record(0, b"a", time_delta=5), record(1, b"b", time_delta=3)]
    data, start = section_of(records)
    survivors = find_survivors(data, start, len(data), 2, 0, {}, keeps_tombstones=True)
    assert max_timestamp_delta(data, survivors, 5) == 5
    assert max_timestamp_delta(data, survivors, 3) == 3, "the last one's; the caller says that none is larger"


def test_the_largest_time_may_be_before_the_base() -> None:
    records = [record(number, b"a", time_delta=delta) for number, delta in enumerate((-65, -64, -65))]
    data, start = section_of(records)
    survivors = Survivors(bounds_of(records, records, start), has_tombstone=False, null_keys=0)
    assert max_timestamp_delta(data, survivors, 5) == -64, "one byte, all bits of which but the first are set"


@pytest.mark.parametrize("shift_ms", [1, 2, 63, 64, 65, 128, 8191, 8192, 2**21, 2**41])
def test_survivors_are_as_if_encoded_with_a_later_base(shift_ms: int) -> None:
    records = every_boundary()
    data, start = section_of(records, b"padding")
    kept = [each for each in records if random.Random(shift_ms + each.offset).random() < 0.5]
    survivors = Survivors(bounds_of(records, kept, start), has_tombstone=False, null_keys=0)
    later = bytes(encode_records(kept, BASE, T0 + shift_ms).data)
    assert counted_from_later(data, survivors, shift_ms) == later


def test_a_removed_record_between_survivors_has_no_say_about_the_time() -> None:
    records = [record(0, b"a"), record(1, b"b", time_delta=5), record(2, b"c", time_delta=3)]
    data, start = section_of(records)
    live = find_live(data, starts_of(records, start)[::2], len(data), keeps_tombstones=True)
    assert max_timestamp_delta(data, live, 5) == 3


def bounds_of(records: list[Record], kept: list[Record], start: int, base: int = BASE) -> list[int]:
    """Return where each of the kept records begins and ends."""
    ends = list(accumulate((len(encode_records([record], base, T0).data) for record in records), initial=start))
    wanted = {record.offset for record in kept}
    places = zip(records, pairwise(ends), strict=True)
    return [place for record, bounds in places if record.offset in wanted for place in bounds]
