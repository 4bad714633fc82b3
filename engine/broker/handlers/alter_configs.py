"""AlterConfigs (33): v0–v2.

Behaviour
* Replaces all overrides of a topic, or all dynamic settings of this broker or of all brokers (resource name ""):
  settings that are not named are dropped. IncrementalAlterConfigs is better; only that API can change loggers.
* The errors are the same as there.

Version notes
* v2 flexible, otherwise the same.
"""

from __future__ import annotations

from engine.broker.handlers.config_changes import ResourceChange, answer, change_configs
from engine.broker.handlers.context import RequestContext
from engine.broker.handlers.in_turns import each_part, in_turns
from engine.broker.handlers.registry import handles
from engine.kafka.config.alter import AlterOperation, ConfigChange
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from engine.runtime import turns


@handles(ApiKey.ALTER_CONFIGS, requires=["AlterConfigs Cluster", "AlterConfigs Topic"])
async def alter_configs(context: RequestContext, request: AlterConfigsRequest) -> AlterConfigsResponse:
    """Replace the settings of each resource."""
    asked = await turns.carry_out(
        each_part(request.resources, lambda resource: resource.configs, _change, _replacement)
    )
    outcomes = await change_configs(context.broker, asked, validate_only=request.validate_only)
    responses = await in_turns(
        zip(asked, outcomes, strict=True), lambda one: answer(AlterConfigsResourceResponse, *one)
    )
    return AlterConfigsResponse(responses=responses)


def _change(_: AlterConfigsResource, config: AlterableConfig) -> ConfigChange:
    return ConfigChange(config.name, AlterOperation.SET, config.value)


def _replacement(resource: AlterConfigsResource, changes: list[ConfigChange]) -> ResourceChange:
    return ResourceChange(resource.resource_type, resource.resource_name, tuple(changes), is_replacement=True)
