"""ApiVersions (18), versions 0–4: which APIs and versions a broker answers.

The answer to an unknown version is UNSUPPORTED_VERSION in version 0. The answer's header always has version 0.

Version notes
* 3: flexible, name and version of the client (KIP-511), features (KIP-584)
* 4: a feature's least version may be 0 (KAFKA-17011)
"""

from __future__ import annotations

from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.declaration import Request, Response, Struct, field
from engine.kafka.protocol.types import BOOL, INT16, INT32, INT64, STRING, Array


class ApiVersionsRequest(Request, key=ApiKey.API_VERSIONS):
    client_software_name: str = field(STRING, since=3)
    client_software_version: str = field(STRING, since=3)


class ApiVersion(Struct):
    """One API and its versions, inclusive."""

    api_key: int = field(INT16)
    min_version: int = field(INT16)
    max_version: int = field(INT16)


class SupportedFeatureKey(Struct):
    """A feature the broker could run at these versions."""

    name: str = field(STRING, since=3)
    min_version: int = field(INT16, since=3)
    max_version: int = field(INT16, since=3)


class FinalizedFeatureKey(Struct):
    """A feature's effective version levels in the cluster."""

    name: str = field(STRING, since=3)
    max_version_level: int = field(INT16, since=3)
    min_version_level: int = field(INT16, since=3)


class ApiVersionsResponse(Response, key=ApiKey.API_VERSIONS):
    """The APIs, and the features."""

    error_code: int = field(INT16)
    api_keys: list[ApiVersion] = field(Array(ApiVersion))
    throttle_time_ms: int = field(INT32, since=1)
    supported_features: list[SupportedFeatureKey] = field(Array(SupportedFeatureKey), since=3, tag=0)
    finalized_features_epoch: int = field(INT64, since=3, default=-1, tag=1)
    """Version of the feature znode; -1 if unknown."""
    finalized_features: list[FinalizedFeatureKey] = field(Array(FinalizedFeatureKey), since=3, tag=2)
    zk_migration_ready: bool = field(BOOL, since=3, tag=3)
    """Only KRaft controllers set it."""
