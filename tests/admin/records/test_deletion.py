"""Files that say from which offset on records are kept, and malformed ones."""

from __future__ import annotations

import json
import re

import pytest

from engine.admin.cluster.errors import BadRequest
from engine.admin.records.deletion import parse_offset_file
from engine.common.model import TopicPartition


def offsets_text(*entries: object, version: object = 1) -> str:
    return json.dumps({"version": version, "partitions": list(entries)})


ONE = {"topic": "t", "partition": 0, "offset": 5}


def test_a_file_of_offsets() -> None:
    offsets = parse_offset_file(offsets_text(ONE, ONE | {"partition": 1, "offset": -1}), "f")
    assert offsets == {TopicPartition("t", 0): 5, TopicPartition("t", 1): -1}
    assert parse_offset_file(json.dumps({"partitions": [ONE]}), "f")


def test_a_file_of_very_many_partitions_is_read_in_one_go() -> None:
    """Comparing each with all others would take minutes."""
    entries = [ONE | {"partition": number} for number in range(50_000)]
    assert len(parse_offset_file(offsets_text(*entries), "f")) == 50_000
    with pytest.raises(BadRequest, match="t-7"):
        parse_offset_file(offsets_text(*entries, ONE | {"partition": 7}), "f")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nonsense", "not JSON"),
        ("", "the file is empty"),
        ("[]", "not a JSON object"),
        ('{"version":1}', "missing partitions field"),
        ('{"partitions":{}}', "missing partitions field"),
        (offsets_text(), "lists no partition"),
        (offsets_text(ONE, version=2), "not supported version field value 2"),
        (offsets_text(ONE, ONE | {"offset": 6}), "contains duplicate topic partitions: t-0"),
        (offsets_text({"topic": "t", "partition": 0}), "not a partition with an offset"),
        (offsets_text(ONE | {"offset": "5"}), "not a partition with an offset"),
        (offsets_text(ONE | {"offset": True}), "not a partition with an offset"),
        (offsets_text(ONE | {"partition": -1}), "not a partition with an offset"),
        (offsets_text(ONE | {"offset": -2}), "not a partition with an offset"),
        (offsets_text(ONE | {"topic": None}), "not a partition with an offset"),
        (offsets_text("t-0"), "not a partition with an offset"),
    ],
)
def test_files_that_are_not_offsets(text: str, message: str) -> None:
    with pytest.raises(BadRequest, match=re.escape(message)) as error:
        parse_offset_file(text, "f")
    assert error.value.where == "f"
