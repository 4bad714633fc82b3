"""AlterConfigs (33): v0–v2.

Behaviour
* Replaces all overrides of a topic, or all dynamic settings of this broker or of all brokers (resource name ""):
  settings that are not named are dropped. IncrementalAlterConfigs is better; only that API can change loggers.
* The errors are the same as there.

Version notes
* v2 flexible, otherwise the same.
"""

from __future__ import annotations

from engine.broker.handlers.answer_lists import answer_list
from engine.broker.handlers.config_changes import answer, change_configs
from engine.broker.handlers.context import RequestContext
from engine.broker.handlers.registry import handles
from engine.kafka.config.alter import AlterOperation, ConfigChange
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


@handles(ApiKey.ALTER_CONFIGS, requires=["AlterConfigs Cluster", "AlterConfigs Topic"])
async def alter_configs(context: RequestContext, request: AlterConfigsRequest) -> AlterConfigsResponse:
    responses = answer_list(context, AlterConfigsResponse, "responses")
    await change_configs(
        context.broker,
        request.resources,
        lambda config: ConfigChange(config.name, AlterOperation.SET, config.value),
        lambda change, outcome: responses.append(answer(AlterConfigsResourceResponse, change, outcome)),
        is_replacement=True,
        validate_only=request.validate_only,
    )
    return AlterConfigsResponse(responses=responses)
