"""Inter-broker protocol versions, compared with Kafka's MetadataVersion, version by version."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.kafka.config import metadata_version as mv
from engine.kafka.config.metadata_version import MetadataVersion, parse_metadata_version

FACTS = json.loads(
    (Path(__file__).parents[3] / "fixtures" / "config" / "kafka-3.9.1-metadata-versions.json").read_text()
)
COMPARED: dict[str, Callable[[MetadataVersion], int]] = {
    "fetch": mv.fetch_version,
    "offset_for_leader_epoch": mv.offset_for_leader_epoch_version,
    "list_offsets": mv.list_offsets_version,
    "write_txn_markers": mv.write_txn_markers_version,
    "record_magic": mv.highest_record_magic,
    "group_metadata_value": mv.group_metadata_value_version,
    "offset_commit_value": lambda v: mv.offset_commit_value_version(v, has_expire_timestamp=False),
    "offset_commit_value_expiring": lambda v: mv.offset_commit_value_version(v, has_expire_timestamp=True),
    "offset_for_leader_epoch_supported": mv.is_offset_for_leader_epoch_supported,
    "feature_versioning": mv.is_feature_versioning_supported,
    "truncation_on_fetch": mv.is_truncation_on_fetch_supported,
    "alter_partition": mv.is_alter_partition_supported,
    "topic_ids": mv.is_topic_id_supported,
    "allocate_producer_ids": mv.is_allocate_producer_ids_supported,
    "leader_recovery": mv.is_leader_recovery_supported,
}


def test_knows_all_versions_in_order() -> None:
    assert [str(version) for version in MetadataVersion] == [row["name"] for row in FACTS["versions"]]
    assert [version.short_text for version in MetadataVersion] == [row["short"] for row in FACTS["versions"]]
    assert list(MetadataVersion) == sorted(MetadataVersion)


@pytest.mark.parametrize("fact", COMPARED)
def test_means_what_kafka_means(fact: str) -> None:
    ours = {str(version): COMPARED[fact](version) for version in MetadataVersion}
    assert ours == {row["name"]: row[fact] for row in FACTS["versions"]}


@pytest.mark.parametrize(("text", "expected"), FACTS["parsed"].items())
def test_reads_versions_as_kafka(text: str, expected: str) -> None:
    if expected.startswith("! "):
        with pytest.raises(ValueError) as caught:
            parse_metadata_version(text)
        assert str(caught.value) == expected[2:]
    else:
        assert str(parse_metadata_version(text)) == expected


@pytest.mark.parametrize(
    (
        "text",
        "leader_and_isr",
        "update_metadata",
        "stop_replica",
        "broker_znode",
        "feature_znode",
    ),
    [
        # What a Kafka 3.9 controller sends (ControllerChannelManager) and writes (ZkData), oldest version first.
        ("0.8.2", 0, 0, 0, 2, 1),
        ("0.9.0", 0, 1, 0, 2, 1),
        ("0.10.0-IV0", 0, 1, 0, 2, 1),
        ("0.10.0-IV1", 0, 2, 0, 4, 1),
        ("0.10.2", 0, 3, 0, 4, 1),
        ("1.0", 1, 4, 0, 4, 1),
        ("2.2-IV0", 2, 5, 1, 4, 1),
        ("2.4-IV0", 3, 5, 1, 4, 1),
        ("2.4", 4, 6, 2, 4, 1),
        ("2.6", 4, 6, 3, 4, 1),
        ("2.7-IV0", 4, 6, 3, 5, 1),
        ("2.8-IV0", 4, 6, 3, 5, 1),
        ("2.8", 5, 7, 3, 5, 1),
        ("3.2", 6, 7, 3, 5, 1),
        ("3.3-IV0", 6, 7, 3, 5, 2),
        ("3.4", 7, 8, 4, 5, 2),
        ("3.9", 7, 8, 4, 5, 2),
    ],
)
def test_controller_versions(
    text: str,
    leader_and_isr: int,
    update_metadata: int,
    stop_replica: int,
    broker_znode: int,
    feature_znode: int,
) -> None:
    ibp = parse_metadata_version(text)
    assert mv.leader_and_isr_version(ibp) == leader_and_isr
    assert mv.update_metadata_version(ibp) == update_metadata
    assert mv.stop_replica_version(ibp) == stop_replica
    assert mv.broker_id_znode_version(ibp) == broker_znode
    assert mv.feature_znode_version(ibp) == feature_znode


def test_format_version_is_ignored_since_3_0() -> None:
    assert not mv.is_message_format_version_ignored(parse_metadata_version("3.0-IV0"))
    assert mv.is_message_format_version_ignored(parse_metadata_version("3.0"))
