"""Replication under older inter-broker protocols, and topics without an id."""

from __future__ import annotations

from pathlib import Path

import pytest
from replicated_brokers import NO_TOPIC_ID, TP, world
from virtual_time import in_virtual_time

from engine.broker.replication.settings import ReplicationSettings
from engine.kafka.config.log_config import LogConfig
from engine.kafka.config.metadata_version import MetadataVersion
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.records.header import iter_batches


def settings(ibp: MetadataVersion = MetadataVersion.IBP_3_9_IV0) -> ReplicationSettings:
    return ReplicationSettings(0, inter_broker_protocol_version=ibp, replica_lag_time_max_ms=5000)


OLD_AND_NEW = [
    MetadataVersion.IBP_0_10_2_IV0,
    MetadataVersion.IBP_0_11_0_IV2,
    MetadataVersion.IBP_2_6_IV0,
    MetadataVersion.IBP_2_7_IV2,
    MetadataVersion.IBP_3_9_IV0,
]


@pytest.mark.parametrize("ibp", OLD_AND_NEW[1:], ids=str)
@in_virtual_time
async def test_a_returning_leader_cuts_what_nobody_else_had(tmp_path: Path, ibp: MetadataVersion) -> None:
    """It cuts by OffsetForLeaderEpoch before 2.7, by the Fetch answer since; the next test cuts by high watermark."""
    async with world(tmp_path, 1, 2, 3, settings=settings(ibp)) as w:
        await w.lead(1)
        w.produce(1, b"common")
        await w.until_equal(2, 3)
        w.cut |= {frozenset((1, 2)), frozenset((1, 3))}
        for n in range(5):
            w.produce(1, b"only on 1: %d" % n)
        await w.lead(2, isr=(2, 3), tell=(2, 3))
        w.produce(2, b"after the election")
        await w.until(lambda: w.log(3).log_end_offset == 2, "3 follows 2")
        w.cut.clear()
        await w.tell(1)
        await w.until_equal(1, 3)
        assert w.log_bytes(1) == w.log_bytes(2) == w.log_bytes(3)
        await w.until(lambda: set(w.states[TP].isr) == {1, 2, 3}, "1 is in the ISR again")
        asked = {key for source, _, key, _, _ in w.sent if source == 1}
        assert (ApiKey.OFFSET_FOR_LEADER_EPOCH in asked) == (ibp < MetadataVersion.IBP_2_7_IV1)


@pytest.mark.parametrize("ibp", OLD_AND_NEW, ids=str)
@in_virtual_time
async def test_fetch_is_asked_in_the_version_of_the_inter_broker_protocol(tmp_path: Path, ibp: MetadataVersion) -> None:
    wanted = dict(zip(OLD_AND_NEW, (3, 5, 11, 12, 17), strict=True))[ibp]
    async with world(tmp_path, 1, 2, settings=settings(ibp)) as w:
        await w.lead(1)
        w.produce(1, b"x")
        await w.until_equal(2)
        assert {version for _, _, key, version, _ in w.sent if key is ApiKey.FETCH} == {wanted}


@in_virtual_time
async def test_topics_without_an_id_are_fetched_by_name(tmp_path: Path) -> None:
    async with world(tmp_path, 1, 2, topic_id=NO_TOPIC_ID) as w:
        await w.lead(1)
        w.produce(1, b"x")
        await w.until_equal(2)
        assert {version for _, _, key, version, _ in w.sent if key is ApiKey.FETCH} == {12}


@pytest.mark.parametrize(
    ("ibp", "version"), [(MetadataVersion.IBP_0_9_0, "0.9.0"), (MetadataVersion.IBP_0_10_2_IV0, "0.10.2")], ids=str
)
@pytest.mark.parametrize("codec", ["producer", "gzip", "lz4"])
@in_virtual_time
async def test_before_0_11_replicas_are_equal_in_the_old_message_format(
    tmp_path: Path, ibp: MetadataVersion, version: str, codec: str
) -> None:
    log_config = LogConfig(segment_bytes=4096, message_format_version=version, compression_type=codec)
    async with world(tmp_path, 1, 2, 3, settings=settings(ibp), log_config=log_config) as w:
        await w.lead(1)
        for n in range(30):
            w.produce(1, b"a%d" % n, b"b" * 300)
        await w.until_equal(2, 3)
        await w.lead(2)
        w.produce(2, b"after the election", b"c" * 700)
        await w.until_equal(1, 3)
        assert w.log_bytes(1) == w.log_bytes(2) == w.log_bytes(3) != b""
        assert {header.magic for _, header in iter_batches(w.log_bytes(3))} == {log_config.record_magic}


@in_virtual_time
async def test_in_format_2_brokers_before_0_11_get_their_records_converted(tmp_path: Path) -> None:
    """Kafka's leader converts too: log.message.format.version serves for that until all brokers are new."""
    async with world(tmp_path, 1, 2, settings=settings(MetadataVersion.IBP_0_10_2_IV0)) as w:
        await w.lead(1)
        w.produce(1, b"x", b"y")
        await w.until_equal(2)
        assert [header.magic for _, header in iter_batches(w.log_bytes(1))] == [2]
        assert [header.magic for _, header in iter_batches(w.log_bytes(2))] == [1, 1]
