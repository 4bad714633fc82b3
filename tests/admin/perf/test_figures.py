"""Latencies and settings: exact where they say so, and the translation of Kafka's own settings."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.admin.cluster.errors import BadRequest
from engine.admin.perf.producer_settings import ProducerSettings, parse_property, settings_from
from engine.admin.perf.results import LatencyTally
from engine.kafka.protocol.records.attributes import Codec


@given(st.lists(st.floats(0, 5000), min_size=1, max_size=300))
def test_percentiles_are_those_of_the_sorted_list(values: list[float]) -> None:
    tally = LatencyTally()
    for value in values:
        tally.add(value)
    ordered = sorted(values)
    for share in (0.0, 0.5, 0.95, 0.99, 0.999, 1.0):
        exact = ordered[min(int(share * len(values)), len(values) - 1)]
        percentile = tally.percentile(share)
        assert percentile is not None
        assert abs(percentile - exact) <= 0.1
    assert tally.max_ms == max(values)
    assert tally.avg_ms == pytest.approx(sum(values) / len(values))


@given(st.floats(0, 1000), st.floats(0, 1000), st.integers(1, 5000))
def test_a_spread_is_the_records_one_by_one(least: float, width: float, count: int) -> None:
    together, single = LatencyTally(), LatencyTally()
    together.add_spread(least, least + width, count)
    for index in range(count):
        single.add(least + width * (index + 0.5) / count)
    assert together.count == count
    assert together.max_ms == pytest.approx(least + width)
    assert together.avg_ms == pytest.approx(single.avg_ms, abs=0.2)
    for share in (0.5, 0.95, 0.99):
        mine, exact = together.percentile(share), single.percentile(share)
        assert mine is not None and exact is not None
        assert abs(mine - exact) <= 0.3 + width / count


def test_nothing_measured_is_nothing_told() -> None:
    summary = LatencyTally().summary()
    assert {summary.avg_ms, summary.max_ms, summary.p50_ms, summary.p999_ms} == {None}


def test_millions_of_records_take_little_room() -> None:
    tally, source = LatencyTally(), random.Random(1)
    for _ in range(20_000):
        least = source.random() * 5
        tally.add_spread(least, least + 1, 160)
    assert tally.count == 3_200_000
    assert len(tally._steps) < 100


def test_defaults_are_kafkas() -> None:
    settings = settings_from({})
    assert settings == ProducerSettings()
    assert (settings.acks, settings.batch_bytes, settings.linger_ms, settings.in_flight_max) == (-1, 16_384, 0, 5)
    assert settings.is_idempotent


def test_settings_by_kafkas_names() -> None:
    settings = settings_from(
        {
            "compression.zstd.level": "9",
            "compression.gzip.level": "1",
            "acks": "1",
            "compression.type": "zstd",
            "batch.size": "8196",
            "linger.ms": "5",
            "max.in.flight.requests.per.connection": "10",
            "delivery.timeout.ms": "1000",
            "client.id": "me",
            "bootstrap.servers": "a:1",
            "buffer.memory": "67108864",
            "key.serializer": "x",
        }
    )
    assert (settings.acks, settings.codec, settings.level) == (1, Codec.ZSTD, 9)
    assert (settings.batch_bytes, settings.linger_ms, settings.in_flight_max) == (8196, 5, 10)
    assert not settings.is_idempotent, "as in Kafka: acks other than all turn it off"
    assert (settings.delivery_timeout_ms, settings.client_id, settings.ignored) == (1000, "me", ("buffer.memory",))


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("acks", "2", "acks are all, 1 or 0"),
        ("batch.size", "0", "is not between 1"),
        ("linger.ms", "x", "is not a whole number"),
        ("compression.type", "rar", "unknown compression type"),
        ("compression.zstd.level", "23", "is not between -131072 and 22"),
        ("compression.gzip.level", "0", "is not between 1 and 9"),
        ("enable.idempotence", "maybe", "neither true nor false"),
        ("interceptor.classes", "a.B", "Java classes"),
        ("partitioner.class", "a.B", "Java classes"),
        ("transaction.timeout.ms", "0", "is not between 1"),
    ],
)
def test_what_cannot_be_is_refused(name: str, value: str, message: str) -> None:
    with pytest.raises(BadRequest, match=message) as caught:
        settings_from({name: value})
    assert caught.value.where == name


def test_contradictions_are_refused() -> None:
    with pytest.raises(BadRequest, match="requires acks=all"):
        settings_from({"acks": "0", "enable.idempotence": "true"})
    with pytest.raises(BadRequest, match="at most 5"):
        settings_from({"max.in.flight.requests.per.connection": "6", "enable.idempotence": "true"})
    for name, value in {"acks": "1", "enable.idempotence": "false"}.items():
        with pytest.raises(BadRequest, match="requires") as caught:
            settings_from({"transactional.id": "t", name: value})
        assert caught.value.where == "transactional.id"
    for text in ("x", "=1", ""):
        with pytest.raises(BadRequest, match="NAME=VALUE"):
            parse_property(text)
    assert parse_property("a= b=c ") == ("a", "b=c")
