"""UpdateFeatures (57), versions 0–1: change finalized feature levels (KIP-584).

Version notes
* 0: allow_downgrade   * 1: upgrade type, validate_only
"""

from __future__ import annotations

from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.declaration import Request, Response, Struct, field
from engine.kafka.protocol.types import BOOL, INT8, INT16, INT32, STRING, Array


class FeatureUpdateKey(Struct):
    feature: str = field(STRING)
    max_version_level: int = field(INT16)
    """Below 1: delete the feature."""
    allow_downgrade: bool = field(BOOL, until=0, ignorable=False)
    upgrade_type: int = field(INT8, since=1, default=1, ignorable=False)
    """1 upgrade only, 2 lossless downgrade, 3 any downgrade."""


class UpdateFeaturesRequest(Request, key=ApiKey.UPDATE_FEATURES):
    timeout_ms: int = field(INT32, default=60000)
    feature_updates: list[FeatureUpdateKey] = field(Array(FeatureUpdateKey))
    validate_only: bool = field(BOOL, since=1, ignorable=False)


class UpdatableFeatureResult(Struct):
    feature: str = field(STRING)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable_since=0)


class UpdateFeaturesResponse(Response, key=ApiKey.UPDATE_FEATURES):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable_since=0)
    results: list[UpdatableFeatureResult] = field(Array(UpdatableFeatureResult))
