"""IncrementalAlterConfigs (44): v0–v1 (KIP-339).

Behaviour
* Sets, deletes, appends to and subtracts from single settings of topics, of this broker, of all brokers (resource
  name "") and of this broker's loggers; all other settings stay.
* Only the broker itself changes its own settings; others answer INVALID_REQUEST.
* Bad topic values are INVALID_CONFIG and bad broker values INVALID_REQUEST, as in Kafka 3.9. An unknown operation is
  INVALID_REQUEST and an APPEND to an unknown key INVALID_CONFIG; Kafka fails with UNKNOWN_SERVER_ERROR.
* Two concurrent requests for one resource may undo each other, as in Kafka: the last writer wins.

Version notes
* v1 flexible, otherwise the same.
"""

from __future__ import annotations

from engine.broker.handlers.answer_lists import answer_list
from engine.broker.handlers.config_changes import answer, change_configs
from engine.broker.handlers.context import RequestContext
from engine.broker.handlers.registry import handles
from engine.kafka.config.alter import ConfigChange
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


@handles(ApiKey.INCREMENTAL_ALTER_CONFIGS, requires=["AlterConfigs Cluster", "AlterConfigs Topic"])
async def incremental_alter_configs(
    context: RequestContext, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    responses = answer_list(context, IncrementalAlterConfigsResponse, "responses")
    await change_configs(
        context.broker,
        request.resources,
        lambda config: ConfigChange(config.name, config.config_operation, config.value),
        lambda change, outcome: responses.append(answer(AlterConfigsResourceResponse, change, outcome)),
        is_replacement=False,
        validate_only=request.validate_only,
    )
    return IncrementalAlterConfigsResponse(responses=responses)
