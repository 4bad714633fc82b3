"""Versions of the inter-broker protocol (IBP), and what each of them means for requests, znodes and records.

Brokers talk to each other, and a controller to its brokers, in the versions that ``inter.broker.protocol.version``
names; nothing is negotiated. What only concerns KRaft is left out.
Source: MetadataVersion and ControllerChannelManager of Kafka 3.9.
"""

from __future__ import annotations

from enum import IntEnum
from functools import lru_cache
from typing import Final


class MetadataVersion(IntEnum):
    """Every IBP that Kafka 3.9 knows, oldest first: they compare by age. ``str()`` gives the name, e.g. ``2.6-IV0``."""

    IBP_0_8_0 = 0
    IBP_0_8_1 = 1
    IBP_0_8_2 = 2
    IBP_0_9_0 = 3
    IBP_0_10_0_IV0 = 4
    IBP_0_10_0_IV1 = 5
    IBP_0_10_1_IV0 = 6
    IBP_0_10_1_IV1 = 7
    IBP_0_10_1_IV2 = 8
    IBP_0_10_2_IV0 = 9
    IBP_0_11_0_IV0 = 10
    IBP_0_11_0_IV1 = 11
    IBP_0_11_0_IV2 = 12
    IBP_1_0_IV0 = 13
    IBP_1_1_IV0 = 14
    IBP_2_0_IV0 = 15
    IBP_2_0_IV1 = 16
    IBP_2_1_IV0 = 17
    IBP_2_1_IV1 = 18
    IBP_2_1_IV2 = 19
    IBP_2_2_IV0 = 20
    IBP_2_2_IV1 = 21
    IBP_2_3_IV0 = 22
    IBP_2_3_IV1 = 23
    IBP_2_4_IV0 = 24
    IBP_2_4_IV1 = 25
    IBP_2_5_IV0 = 26
    IBP_2_6_IV0 = 27
    IBP_2_7_IV0 = 28
    IBP_2_7_IV1 = 29
    IBP_2_7_IV2 = 30
    IBP_2_8_IV0 = 31
    IBP_2_8_IV1 = 32
    IBP_3_0_IV0 = 33
    IBP_3_0_IV1 = 34
    IBP_3_1_IV0 = 35
    IBP_3_2_IV0 = 36
    IBP_3_3_IV0 = 37
    IBP_3_3_IV1 = 38
    IBP_3_3_IV2 = 39
    IBP_3_3_IV3 = 40
    IBP_3_4_IV0 = 41
    IBP_3_5_IV0 = 42
    IBP_3_5_IV1 = 43
    IBP_3_5_IV2 = 44
    IBP_3_6_IV0 = 45
    IBP_3_6_IV1 = 46
    IBP_3_6_IV2 = 47
    IBP_3_7_IV0 = 48
    IBP_3_7_IV1 = 49
    IBP_3_7_IV2 = 50
    IBP_3_7_IV3 = 51
    IBP_3_7_IV4 = 52
    IBP_3_8_IV0 = 53
    IBP_3_9_IV0 = 54
    IBP_4_0_IV0 = 55
    IBP_4_0_IV1 = 56

    @property
    def text(self) -> str:
        """The full name, e.g. ``0.10.2-IV0``."""
        release, dash, level = self.name.removeprefix("IBP_").partition("_IV")
        return release.replace("_", ".") + (f"-IV{level}" if dash else "")

    @property
    def short_text(self) -> str:
        """Only the release, e.g. ``0.10.2``."""
        return self.text.partition("-")[0]

    def __str__(self) -> str:
        return self.text


_V = MetadataVersion
LATEST_PRODUCTION: Final = _V.IBP_3_9_IV0
"""The newest finished version of Kafka 3.9; later ones are known by their full name only."""

_BY_NAME: Final = {version.text: version for version in MetadataVersion} | {
    version.short_text: version for version in MetadataVersion if version <= LATEST_PRODUCTION
}


@lru_cache(maxsize=64)
def parse_metadata_version(text: str) -> MetadataVersion:
    """Read a version as operators write it: ``3.9``, ``3.9-IV0``, ``0.10.2``, ``2.6.1`` (the last part is dropped).

    A release's short name means its last IV.

    Raises:
        ValueError: Kafka 3.9 knows no such version.
    """
    parts = text.split(".")
    wanted = 3 if text.startswith("0.") else 2
    version = _BY_NAME.get(".".join(parts[:wanted]) if len(parts) > wanted else text)
    if version is None:
        raise ValueError(f"Version {text} is not a valid version")
    return version


Steps = tuple[tuple[MetadataVersion, int], ...]

_LEADER_AND_ISR: Final[Steps] = (
    (_V.IBP_3_4_IV0, 7),
    (_V.IBP_3_2_IV0, 6),
    (_V.IBP_2_8_IV1, 5),
    (_V.IBP_2_4_IV1, 4),
    (_V.IBP_2_4_IV0, 3),
    (_V.IBP_2_2_IV0, 2),
    (_V.IBP_1_0_IV0, 1),
)
_UPDATE_METADATA: Final[Steps] = (
    (_V.IBP_3_4_IV0, 8),
    (_V.IBP_2_8_IV1, 7),
    (_V.IBP_2_4_IV1, 6),
    (_V.IBP_2_2_IV0, 5),
    (_V.IBP_1_0_IV0, 4),
    (_V.IBP_0_10_2_IV0, 3),
    (_V.IBP_0_10_0_IV1, 2),
    (_V.IBP_0_9_0, 1),
)
_STOP_REPLICA: Final[Steps] = ((_V.IBP_3_4_IV0, 4), (_V.IBP_2_6_IV0, 3), (_V.IBP_2_4_IV1, 2), (_V.IBP_2_2_IV0, 1))
_FETCH: Final[Steps] = (
    (_V.IBP_3_9_IV0, 17),
    (_V.IBP_3_7_IV4, 16),
    (_V.IBP_3_5_IV1, 15),
    (_V.IBP_3_5_IV0, 14),
    (_V.IBP_3_1_IV0, 13),
    (_V.IBP_2_7_IV1, 12),
    (_V.IBP_2_3_IV1, 11),
    (_V.IBP_2_1_IV2, 10),
    (_V.IBP_2_0_IV1, 8),
    (_V.IBP_1_1_IV0, 7),
    (_V.IBP_0_11_0_IV1, 5),
    (_V.IBP_0_11_0_IV0, 4),
    (_V.IBP_0_10_1_IV1, 3),
    (_V.IBP_0_10_0_IV0, 2),
    (_V.IBP_0_9_0, 1),
)
_OFFSET_FOR_LEADER_EPOCH: Final[Steps] = (
    (_V.IBP_2_8_IV0, 4),
    (_V.IBP_2_3_IV1, 3),
    (_V.IBP_2_1_IV1, 2),
    (_V.IBP_2_0_IV0, 1),
)
_LIST_OFFSETS: Final[Steps] = (
    (_V.IBP_3_9_IV0, 9),
    (_V.IBP_3_5_IV0, 8),
    (_V.IBP_3_0_IV1, 7),
    (_V.IBP_2_8_IV0, 6),
    (_V.IBP_2_2_IV1, 5),
    (_V.IBP_2_1_IV1, 4),
    (_V.IBP_2_0_IV1, 3),
    (_V.IBP_0_11_0_IV0, 2),
    (_V.IBP_0_10_1_IV2, 1),
)


def leader_and_isr_version(ibp: MetadataVersion) -> int:
    """Return the version in which a controller sends LeaderAndIsr."""
    return _step(_LEADER_AND_ISR, ibp)


def update_metadata_version(ibp: MetadataVersion) -> int:
    """Return the version in which a controller sends UpdateMetadata."""
    return _step(_UPDATE_METADATA, ibp)


def stop_replica_version(ibp: MetadataVersion) -> int:
    """Return the version in which a controller sends StopReplica."""
    return _step(_STOP_REPLICA, ibp)


def fetch_version(ibp: MetadataVersion) -> int:
    """Return a follower's Fetch version. From 13 on Fetch names topics by id: a topic without one uses 12."""
    return _step(_FETCH, ibp)


def offset_for_leader_epoch_version(ibp: MetadataVersion) -> int:
    """Return a follower's OffsetForLeaderEpoch version."""
    return _step(_OFFSET_FOR_LEADER_EPOCH, ibp)


def list_offsets_version(ibp: MetadataVersion) -> int:
    """Return a follower's ListOffsets version; version 0 has another form of answer."""
    return _step(_LIST_OFFSETS, ibp)


def write_txn_markers_version(ibp: MetadataVersion) -> int:
    """Return the version in which a transaction coordinator sends WriteTxnMarkers."""
    return 1 if ibp >= _V.IBP_2_8_IV0 else 0


def broker_id_znode_version(ibp: MetadataVersion) -> int:
    """Return the JSON version of ``/brokers/ids/<id>``: 5 has features, 4 listener names, 2 only endpoints."""
    if ibp >= _V.IBP_2_7_IV0:
        return 5
    return 4 if ibp >= _V.IBP_0_10_0_IV1 else 2


def feature_znode_version(ibp: MetadataVersion) -> int:
    """Return the JSON version of ``/feature``: 2 no longer has minimum levels (KIP-778)."""
    return 2 if ibp >= _V.IBP_3_3_IV0 else 1


def highest_record_magic(ibp: MetadataVersion) -> int:
    """Return the newest record format (magic) that brokers of this version exchange."""
    if ibp >= _V.IBP_0_11_0_IV0:
        return 2
    return 1 if ibp >= _V.IBP_0_10_0_IV0 else 0


def group_metadata_value_version(ibp: MetadataVersion) -> int:
    """Return the version of a group's value in ``__consumer_offsets``."""
    if ibp >= _V.IBP_2_3_IV0:
        return 3
    if ibp >= _V.IBP_2_1_IV0:
        return 2
    return 1 if ibp >= _V.IBP_0_10_1_IV0 else 0


def offset_commit_value_version(ibp: MetadataVersion, *, has_expire_timestamp: bool) -> int:
    """Return the version of an offset's value in ``__consumer_offsets``; 1 is the last with its own expiry."""
    if ibp < _V.IBP_2_1_IV0 or has_expire_timestamp:
        return 1
    return 2 if ibp < _V.IBP_2_1_IV1 else 3


def is_offset_for_leader_epoch_supported(ibp: MetadataVersion) -> bool:
    """Followers truncate by leader epoch instead of by high watermark (KIP-101)."""
    return ibp >= _V.IBP_0_11_0_IV2


def are_prefixed_acls_supported(ibp: MetadataVersion) -> bool:
    """All brokers obey access rules for prefixes (KIP-290)."""
    return ibp >= _V.IBP_2_0_IV1


def is_feature_versioning_supported(ibp: MetadataVersion) -> bool:
    """The feature znode is in use (KIP-584)."""
    return ibp >= _V.IBP_2_7_IV0


def is_truncation_on_fetch_supported(ibp: MetadataVersion) -> bool:
    """A Fetch answer carries the diverging epoch, so that followers need no separate request (KIP-595)."""
    return ibp >= _V.IBP_2_7_IV1


def is_alter_partition_supported(ibp: MetadataVersion) -> bool:
    """Leaders ask the controller to change an ISR instead of writing it to ZooKeeper (KIP-497)."""
    return ibp >= _V.IBP_2_7_IV2


def is_topic_id_supported(ibp: MetadataVersion) -> bool:
    """Topics get an id (KIP-516)."""
    return ibp >= _V.IBP_2_8_IV0


def is_allocate_producer_ids_supported(ibp: MetadataVersion) -> bool:
    """The controller hands out blocks of producer ids (KIP-730)."""
    return ibp >= _V.IBP_3_0_IV0


def is_zstd_supported(ibp: MetadataVersion) -> bool:
    """Brokers know the codec zstd (KIP-110)."""
    return ibp >= _V.IBP_2_1_IV0


def is_leader_recovery_supported(ibp: MetadataVersion) -> bool:
    """The state znode shows that a leader was elected uncleanly (KIP-704)."""
    return ibp >= _V.IBP_3_2_IV0


def is_message_format_version_ignored(ibp: MetadataVersion) -> bool:
    """``message.format.version`` no longer counts: everything is written in format 2 (KIP-724)."""
    return ibp >= _V.IBP_3_0_IV1


def _step(steps: Steps, ibp: MetadataVersion) -> int:
    return next((version for since, version in steps if ibp >= since), 0)
