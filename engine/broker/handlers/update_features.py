"""UpdateFeatures (57): v0–v1.

Behaviour
* With ZooKeeper no feature has a level (KIP-584): every update is INVALID_REQUEST, with Kafka's texts. A feature that
  comes twice gets one result, that of the first update.
* Only the controller answers; other brokers say NOT_CONTROLLER. Before IBP 2.7, which knows no features, the whole
  request is INVALID_REQUEST.

Version notes
* v0 a flag allows downgrades   * v1 upgrade type, validate only: it changes nothing here
"""

from __future__ import annotations

from engine.broker.handlers.answer_lists import answer_list, repeated
from engine.broker.handlers.context import RequestContext
from engine.broker.handlers.in_turns import Steps, in_steps
from engine.broker.handlers.registry import handles
from engine.common.errors import ErrorCode
from engine.kafka.config.metadata_version import is_feature_versioning_supported
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE = 1, 2, 3


@handles(ApiKey.UPDATE_FEATURES, requires=["Alter Cluster"])
@in_steps
def update_features(context: RequestContext, request: UpdateFeaturesRequest) -> Steps[UpdateFeaturesResponse]:
    if not context.broker.controller.is_active:
        return UpdateFeaturesResponse(
            error_code=ErrorCode.NOT_CONTROLLER, error_message="This is not the correct controller for this cluster."
        )
    if not is_feature_versioning_supported(context.broker.config.inter_broker_protocol_version):
        return UpdateFeaturesResponse(
            error_code=ErrorCode.INVALID_REQUEST, error_message="Feature versioning system is disabled."
        )
    results = answer_list(context, UpdateFeaturesResponse, "results")
    answered: set[str] = set()
    twice = yield from repeated(lambda: (update.feature for update in request.feature_updates))
    for update in request.feature_updates:
        yield
        if update.feature in answered:
            continue
        if update.feature in twice:
            answered.add(update.feature)
        results.append(
            UpdatableFeatureResult(
                feature=update.feature, error_code=ErrorCode.INVALID_REQUEST, error_message=_refusal(update)
            )
        )
    return UpdateFeaturesResponse(results=results)


def _refusal(update: FeatureUpdateKey) -> str:
    kind = _SAFE_DOWNGRADE if update.allow_downgrade else update.upgrade_type
    if not update.feature:
        return "Feature name can not be empty."
    if kind not in (_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE):
        return "Received unknown upgrade type."
    if update.max_version_level >= 1:
        return "Could not apply finalized feature update because the provided feature is not supported."
    if kind != _UPGRADE:
        return "Can not delete non-existing finalized feature."
    return (
        f"Can not provide versionLevel: {update.max_version_level} less than 1 "
        "without setting the SAFE downgradeType in the request."
    )
