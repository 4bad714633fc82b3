"""Checkpoints, partition.metadata, meta.properties and the clean-shutdown file: as Kafka wrote them, and damaged."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest
from log_folders import NOW_MS, RECORDED

from engine.common.errors import ConfigError, CorruptFileError
from engine.common.model import TopicPartition
from engine.common.topic_id import topic_id_text
from engine.kafka.formats.checkpoints import (
    EpochEntry,
    decode_leader_epoch_checkpoint,
    decode_offset_checkpoint,
    encode_leader_epoch_checkpoint,
    encode_offset_checkpoint,
)
from engine.kafka.formats.clean_shutdown import decode_clean_shutdown, encode_clean_shutdown
from engine.kafka.formats.meta_properties import (
    MetaProperties,
    check_meta_properties,
    decode_meta_properties,
    encode_meta_properties,
)
from engine.kafka.formats.partition_metadata import decode_partition_metadata, encode_partition_metadata

DATA = RECORDED / "clean" / "data"
OFFSET_CHECKPOINTS = [
    "replication-offset-checkpoint",
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "cleaner-offset-checkpoint",
]


@pytest.mark.parametrize("name", OFFSET_CHECKPOINTS)
def test_kafkas_offset_checkpoints_read_and_write_the_same(name: str) -> None:
    text = (DATA / name).read_text()
    offsets = decode_offset_checkpoint(text, name)
    assert offsets
    assert encode_offset_checkpoint(offsets) == text


def test_what_kafkas_checkpoints_say() -> None:
    high_watermarks = decode_offset_checkpoint((DATA / "replication-offset-checkpoint").read_text(), "hw")
    assert high_watermarks[TopicPartition("segments", 0)] == 120
    starts = decode_offset_checkpoint((DATA / "log-start-offset-checkpoint").read_text(), "start")
    assert starts == {TopicPartition("deleted-records", 0): 17}


@pytest.mark.parametrize("partition", ["codec-none-0", "empty-0", "deleted-records-0"])
def test_kafkas_leader_epochs_read_and_write_the_same(partition: str) -> None:
    text = (DATA / partition / "leader-epoch-checkpoint").read_text()
    entries = decode_leader_epoch_checkpoint(text, partition)
    assert encode_leader_epoch_checkpoint(entries) == text
    if partition == "codec-none-0":
        assert entries == [EpochEntry(0, 0), EpochEntry(1, 12), EpochEntry(2, 14)]


@pytest.mark.parametrize("text", ["", "0\n", "0\n0\n"])
def test_an_empty_checkpoint_has_no_entries(text: str) -> None:
    assert decode_offset_checkpoint(text, "x") == {}


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("1\n0\n", "Unrecognised version:1, expected version: 0 in checkpoint file at: /d/f"),
        ("0\n2\nt 0 5\n", "Expected [2] entries in checkpoint file [/d/f], but found only [1]"),
        ("0\n1\nt 0\n", "Malformed line in checkpoint file [/d/f]: t 0"),
        ("0\n1\nt 0 x\n", "Malformed line in checkpoint file [/d/f]: t 0 x"),
        ("0\nmany\n", "Malformed line in checkpoint file [/d/f]: many"),
        ("\0\0\0\n", "Malformed line in checkpoint file [/d/f]: \0\0\0"),
    ],
)
def test_a_damaged_checkpoint_is_told_in_kafkas_words(text: str, what: str) -> None:
    with pytest.raises(CorruptFileError) as caught:
        decode_offset_checkpoint(text, "/d/f")
    assert str(caught.value) == what
    assert caught.value.path == "/d/f"


def test_partition_metadata_as_kafka_writes_it() -> None:
    text = (DATA / "segments-0" / "partition.metadata").read_text()
    topic_id = decode_partition_metadata(text, "x")
    assert topic_id_text(topic_id) == text.splitlines()[1].removeprefix("topic_id: ")
    assert encode_partition_metadata(topic_id) == text


def test_partition_metadata_of_a_later_version_is_read() -> None:
    text = "version: 1\ntopic_id: wfJuR0USQHiLn7iBiOubkg\nmore: 1\n"
    assert topic_id_text(decode_partition_metadata(text, "x")) == "wfJuR0USQHiLn7iBiOubkg"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "version: 0",
        "version: 0\n",
        "version: x\ntopic_id: wfJuR0USQHiLn7iBiOubkg",
        "version: -1\ntopic_id: wfJuR0USQHiLn7iBiOubkg",
        "version: 0\ntopic_id: short",
        "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA",
        "version: 0\ntopic_id",
    ],
)
def test_damaged_partition_metadata_is_refused(text: str) -> None:
    with pytest.raises(CorruptFileError, match="here"):
        decode_partition_metadata(text, "here")


def test_clean_shutdown_file_as_kafka_writes_it() -> None:
    text = (DATA / ".kafka_cleanshutdown").read_text()
    assert encode_clean_shutdown() == text
    assert decode_clean_shutdown(text) == -1
    assert decode_clean_shutdown('{"version":0,"brokerEpoch":42}') == 42
    for older in ("", "[]", "{}", "{"):
        assert decode_clean_shutdown(older) is None


def test_meta_properties_as_kafka_writes_them() -> None:
    text = (DATA / "meta.properties").read_text()
    properties = decode_meta_properties(text, "x")
    (cluster_id,) = re.findall(r"^cluster\.id=(.{22})$", text, re.MULTILINE)
    assert properties == MetaProperties(0, 0, cluster_id)
    written = datetime.strptime(text.splitlines()[1], "#%a %b %d %H:%M:%S UTC %Y").replace(tzinfo=UTC)
    ours = encode_meta_properties(properties, int(written.timestamp() * 1000))
    assert ours == text
    assert decode_meta_properties(encode_meta_properties(properties, NOW_MS), "x") == properties


def test_meta_properties_of_other_times() -> None:
    assert decode_meta_properties("broker.id=3\n", "x") == MetaProperties(0, 3)
    assert decode_meta_properties("version=1\nnode.id=4\ncluster.id=c\ndirectory.id=d\n", "x") == MetaProperties(
        1, 4, "c", "d"
    )
    with pytest.raises(CorruptFileError, match="broken"):
        decode_meta_properties("broker.id=three\n", "broken")


def test_log_dirs_of_another_broker_or_cluster_are_refused_in_kafkas_words() -> None:
    """The texts are those of the recorded scenes 04-wrong-broker-id and 05-wrong-cluster-id."""
    path = "/data/kafka-0/meta.properties"
    with pytest.raises(ConfigError) as caught:
        check_meta_properties({path: MetaProperties(0, 7, "NEOx")}, cluster_id="NEOx", broker_id=0)
    assert str(caught.value) == (
        "Stored node id 7 doesn't match previous node id 0 in /data/kafka-0/meta.properties. If you moved your data, "
        "make sure your configured node id matches. If you intend to create a new node, you should remove all data in "
        "your data directories."
    )
    with pytest.raises(ConfigError) as caught:
        properties = {path: MetaProperties(0, 0, "AAAAAAAAAAAAAAAAAAAAAA")}
        check_meta_properties(properties, cluster_id="NEOxFD9dQMetrKV0PTcUuw", broker_id=0)
    assert str(caught.value) == (
        "Invalid cluster.id in: /data/kafka-0/meta.properties. Expected NEOxFD9dQMetrKV0PTcUuw, but read "
        "AAAAAAAAAAAAAAAAAAAAAA"
    )
    with pytest.raises(ConfigError, match="only support version 0"):
        check_meta_properties({path: MetaProperties(1, 0, "c")}, cluster_id="c", broker_id=0)


def test_log_dirs_tell_who_the_broker_is() -> None:
    first, second = MetaProperties(0, None, "c"), MetaProperties(0, 5, None)
    assert check_meta_properties({"a": first, "b": second}, cluster_id=None, broker_id=None) == ("c", 5)
    assert check_meta_properties({}, cluster_id="c", broker_id=None) == ("c", None)
    with pytest.raises(ConfigError, match="Stored node id 6 doesn't match previous node id 5 in b"):
        check_meta_properties({"a": second, "b": MetaProperties(0, 6)}, cluster_id="c", broker_id=None)
