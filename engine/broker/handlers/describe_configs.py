"""DescribeConfigs (32): v0–v4.

Behaviour
* Any broker describes topics, which it reads from ZooKeeper together. Only a broker itself describes its settings and
  loggers; others answer INVALID_REQUEST. Resource name "" is the default of all brokers and shows what is set there.
* Value, source, synonyms and type are as in Kafka 3.9; secrets and settings of unknown type have no value. A value of a
  topic in ZooKeeper that cannot be used is left out; in Kafka the answer is then UNKNOWN_SERVER_ERROR.
* A missing topic is UNKNOWN_TOPIC_OR_PARTITION without a message. One resource of a type that has no settings makes
  the whole request INVALID_REQUEST.

Version notes
* v0 has "is default" instead of the source; like Kafka 3.9 we leave it false.   * v1 source and synonyms (KIP-226)
* v3 type and documentation (KIP-569); the sentences are klamm's own.   * v4 flexible
"""

from __future__ import annotations

import logging

from engine.broker.handlers.answer_lists import answer_list
from engine.broker.handlers.broker_loggers import logger_levels
from engine.broker.handlers.config_resources import ResourceType, invalid_request, parse_broker_id, resource_type
from engine.broker.handlers.context import Broker, RequestContext
from engine.broker.handlers.in_turns import in_lists, in_turns
from engine.broker.handlers.registry import handles
from engine.common.errors import CoordinationError, ErrorCode, KafkaError
from engine.common.topic_names import check_topic_name
from engine.kafka.config.describe import (
    ConfigSource,
    DescribedConfig,
    describe_broker,
    describe_broker_defaults,
    describe_topic,
)
from engine.kafka.config.dynamic import TOPICS
from engine.kafka.config.values import ConfigType
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from engine.kafka.protocol.large_arrays import LazyArray
from engine.runtime.room import ask_others
from engine.runtime.turns import Breather

logger = logging.getLogger("kafka.server.ConfigHelper")


@handles(ApiKey.DESCRIBE_CONFIGS, requires=["DescribeConfigs Cluster", "DescribeConfigs Topic"])
async def describe_configs(context: RequestContext, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    breather = Breather()
    odd = None
    for resources in in_lists(request.resources):
        odd = odd or next((r for r in resources if resource_type(r.resource_type) is ResourceType.UNKNOWN), None)
        await breather.give_way()
    if odd is not None:
        message = f"Unexpected resource type {odd.resource_type} for resource {odd.resource_name}"
        refusal = invalid_request(message)
        return DescribeConfigsResponse(
            results=await in_turns(
                request.resources,
                lambda resource: _result(resource, refusal),
                answer_list(context, DescribeConfigsResponse, "results"),
            )
        )
    results = answer_list(context, DescribeConfigsResponse, "results")
    described: dict[tuple[int, str, tuple[str, ...] | None], DescribeConfigsResult] = {}
    for resource in request.resources:
        keys = resource.configuration_keys
        if isinstance(keys, LazyArray):
            keys = resource.configuration_keys = list(dict.fromkeys(await in_turns(keys, str)))
        asked = (resource.resource_type, resource.resource_name, None if keys is None else tuple(keys))
        result = described.get(asked) or await _describe(context.broker, request, resource)
        if result.configs:
            # Named once more, it takes no more memory.
            described[asked] = result
        results.append(result)
        await breather.give_way()
    return DescribeConfigsResponse(results=results)


async def _describe(
    broker: Broker, request: DescribeConfigsRequest, resource: DescribeConfigsResource
) -> DescribeConfigsResult:
    try:
        described = await _described(broker, resource)
    except KafkaError as error:
        logger.info("Error processing describe configs request for resource %s: %s", resource.resource_name, error)
        return _result(resource, error)
    except CoordinationError as error:
        logger.error("Error processing describe configs request for resource %s: %s", resource.resource_name, error)
        message = f"Cannot read the settings from ZooKeeper: {error}"
        return _result(resource, KafkaError(ErrorCode.REQUEST_TIMED_OUT, message))
    result = _result(resource, None)
    result.configs = [_config(config, request) for config in described]
    return result


async def _described(broker: Broker, resource: DescribeConfigsResource) -> list[DescribedConfig]:
    name, keys = resource.resource_name, resource.configuration_keys
    match resource_type(resource.resource_type):
        case ResourceType.TOPIC:
            check_topic_name(name)
            if name not in broker.metadata_cache.topics:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")
            ask_others()
            overrides = await broker.zk.configs.get_entity_configs(f"{TOPICS}/{name}")
            return describe_topic(overrides, broker.dynamic_configs, keys)
        case ResourceType.BROKER:
            return _described_broker(broker, name, keys)
        case ResourceType.BROKER_LOGGER:
            return _described_loggers(broker, name, keys)
        case _:
            raise invalid_request("Config type client-metrics is only supported on KRaft clusters")


def _described_broker(broker: Broker, name: str, keys: list[str] | None) -> list[DescribedConfig]:
    if not name:
        return describe_broker_defaults(broker.dynamic_configs, keys)
    if parse_broker_id(name, "Broker id") != broker.broker_id:
        raise invalid_request(f"Unexpected broker id, expected {broker.broker_id} or empty string, but received {name}")
    return describe_broker(broker.dynamic_configs, keys)


def _described_loggers(broker: Broker, name: str, keys: list[str] | None) -> list[DescribedConfig]:
    if not name:
        raise invalid_request("Broker id must not be empty")
    if parse_broker_id(name, "Broker id") != broker.broker_id:
        raise invalid_request(f"Unexpected broker id, expected {broker.broker_id} but received {name}")
    wanted = set(keys or ())
    return [
        DescribedConfig(
            name=logger_name,
            value=level,
            source=ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG,
            type=ConfigType.UNKNOWN,
            is_sensitive=False,
            is_read_only=False,
            synonyms=(),
            documentation="",
        )
        for logger_name, level in logger_levels().items()
        if not wanted or logger_name in wanted
    ]


def _result(resource: DescribeConfigsResource, error: KafkaError | None) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=ErrorCode.NONE if error is None else error.code,
        error_message="" if error is None else error.message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def _config(described: DescribedConfig, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    synonyms = described.synonyms if request.include_synonyms else ()
    return DescribeConfigsResourceResult(
        name=described.name,
        value=described.value,
        read_only=described.is_read_only,
        config_source=described.source,
        is_sensitive=described.is_sensitive,
        synonyms=[DescribeConfigsSynonym(name=s.name, value=s.value, source=s.source) for s in synonyms],
        config_type=described.type,
        documentation=described.documentation if request.include_documentation else None,
    )
