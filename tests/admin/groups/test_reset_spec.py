"""Kafka's notation for a reset: dates, durations, topics with partitions, files; and malformed ones."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.admin.cluster.errors import BadRequest
from engine.admin.groups.reset_plan import (
    before_now,
    offsets_text,
    parse_datetime,
    parse_iso_duration,
    parse_offsets_file,
    parse_topic_scope,
)
from engine.common.model import TopicPartition

NOON = 1_582_977_600_000


@pytest.mark.parametrize(
    ("text", "timestamp_ms"),
    [
        ("2020-02-29T12:00:00.000", NOON),
        ("2020-02-29T12:00:00.123", NOON + 123),
        ("2020-02-29T12:00:00.000Z", NOON),
        ("2020-02-29T14:00:00.000+02:00", NOON),
        ("2020-02-29T14:00:00.000+02", NOON),
        ("2020-02-29T11:30:00.000-00:30", NOON),
        ("2020-02-29T12:00", NOON),
        ("1960-01-01T00:00:00.000", 0),
    ],
)
def test_dates(text: str, timestamp_ms: int) -> None:
    assert parse_datetime(text) == timestamp_ms


@pytest.mark.parametrize("text", ["yesterday", "2020-02-30T00:00:00.000", "T", ""])
def test_what_is_no_date(text: str) -> None:
    with pytest.raises(BadRequest, match="not a time"):
        parse_datetime(text)


@pytest.mark.parametrize(
    ("text", "duration"),
    [
        ("PT30M", timedelta(minutes=30)),
        ("P1DT2H", timedelta(days=1, hours=2)),
        ("pt0.5s", timedelta(milliseconds=500)),
        ("PT-1.5S", timedelta(milliseconds=-1500)),
        ("-PT1H", timedelta(hours=-1)),
        ("PT1H-30M", timedelta(minutes=30)),
        ("P7D", timedelta(days=7)),
    ],
)
def test_durations(text: str, duration: timedelta) -> None:
    assert parse_iso_duration(text) == duration
    now = datetime(2020, 2, 29, 12, tzinfo=UTC)
    assert before_now(duration, now) == NOON - round(duration.total_seconds() * 1000)


@pytest.mark.parametrize("text", ["soon", "P", "PT", "P1DT", "PT1H30", "P1Y", "P1W", "", "PT99999999999999H"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(BadRequest, match="not a duration"):
        parse_iso_duration(text)


def test_a_duration_before_all_time_is_the_beginning() -> None:
    assert before_now(parse_iso_duration("P999999999D"), datetime.now(UTC)) == 0


def test_topics_with_partitions() -> None:
    assert parse_topic_scope(["a", "b:2,0", "b:1", "c:3", "c"]).topics == (("a", None), ("b", (0, 1, 2)), ("c", None))
    for text in ("", ":1", "a:", "a:x", "a:1,", "a:-1", "a:1:2", "a:²"):
        with pytest.raises(BadRequest, match="not a topic with partitions"):
            parse_topic_scope([text])


def test_files_of_one_group_and_of_several() -> None:
    offsets_of_g = parse_offsets_file("t,0,5\r\n\r\nt,1,-3\n", "f", only_group="g")
    assert offsets_of_g == {"g": {TopicPartition("t", 0): 5, TopicPartition("t", 1): -3}}
    several = '"g,1",t,0,5\nh,t,0,6\n'
    for only_group in ("g", None):
        offsets = parse_offsets_file(several, "f", only_group=only_group)
        assert offsets == {"g,1": {TopicPartition("t", 0): 5}, "h": {TopicPartition("t", 0): 6}}


@pytest.mark.parametrize(
    ("text", "where", "message"),
    [
        ("", "f", "the file has no offsets"),
        ("t,0,x\n", "f:1", "not an offset"),
        ("t,0,5\nt,1\n", "f:2", "not an offset"),
        ("t,0,5\ng,t,1,5\n", "f:2", "not an offset"),
        ("g,t,1,5\nt,0,5\n", "f:2", "not an offset"),
        (",0,5\n", "f:1", "not an offset"),
        ("t,-1,5\n", "f:1", "not an offset"),
        ("t,0,9223372036854775808\n", "f:1", "not an offset"),
        ("TOPIC,PARTITION,OFFSET\n", "f:1", "not an offset"),
        ("t,0,5\nt,0,6\n", "f:2", "occurs twice"),
        ("a,b,c,d,e\n", "f:1", "not an offset"),
    ],
)
def test_bad_files_name_the_line(text: str, where: str, message: str) -> None:
    with pytest.raises(BadRequest, match=message) as caught:
        parse_offsets_file(text, "f", only_group="g")
    assert caught.value.where == where


def test_a_file_without_groups_wants_one_to_be_named() -> None:
    with pytest.raises(BadRequest, match="the group is missing"):
        parse_offsets_file("t,0,5\n", "f", only_group=None)


names = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=20)
partitions = st.builds(TopicPartition, names, st.integers(0, 2**31 - 1))
offsets = st.dictionaries(partitions, st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=4)


@given(st.dictionaries(names, offsets, min_size=1, max_size=4))
def test_what_is_written_is_read_back(wanted: dict[str, dict[TopicPartition, int]]) -> None:
    assert parse_offsets_file(offsets_text(wanted, with_group=True), "f", only_group=None) == wanted
    group, only = next(iter(wanted.items()))
    text = offsets_text({group: only}, with_group=False)
    assert parse_offsets_file(text, "f", only_group=group) == {group: only}
