"""Changing the settings of topics, brokers and loggers: what AlterConfigs and IncrementalAlterConfigs share.

Each resource is checked and stored separately, so that a bad one does not hold back the others. A stored change takes
effect when ZooKeeper's change notification reaches the brokers, including this one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from engine.broker.handlers.answer_lists import repeated
from engine.broker.handlers.broker_loggers import change_loggers, check_logger_changes
from engine.broker.handlers.config_resources import (
    ResourceType,
    invalid_request,
    parse_broker_id,
    resource_text,
    resource_type,
    topic_exists,
)
from engine.broker.handlers.context import Broker
from engine.broker.handlers.in_turns import in_lists, in_turns
from engine.common.errors import ConfigError, CoordinationError, ErrorCode, KafkaError
from engine.kafka.config.alter import AlterOperation, ConfigChange, apply_changes, validate_broker_change
from engine.kafka.config.definition import ConfigDef
from engine.kafka.config.dynamic import BROKERS, DEFAULT_ENTITY, TOPICS
from engine.kafka.config.dynamic_keys import (
    BROKER_AND_THROTTLE_DEF,
    base_name,
    broker_config_key,
    usable_dynamic_config,
)
from engine.kafka.config.password_encoder import decoded, encoded
from engine.kafka.config.topic_config_values import validate_topic_config
from engine.kafka.config.topic_configs import TOPIC_CONFIG_DEF
from engine.kafka.config.values import REDACTED, InvalidConfigurationError, ReconfigurationError, RequirementError
from engine.kafka.protocol.apis import alter_configs, incremental_alter_configs
from engine.kafka.protocol.large_arrays import LazyArray
from engine.kafka.protocol.wire import STRING_BYTES_MAX
from engine.runtime.room import ask_others
from engine.runtime.turns import Breather, carry_out

logger = logging.getLogger("kafka.server.ZkAdminManager")

ResourceAnswer = TypeVar(
    "ResourceAnswer", alter_configs.AlterConfigsResourceResponse, incremental_alter_configs.AlterConfigsResourceResponse
)


@dataclass(frozen=True, slots=True)
class ResourceChange:
    """The changes requested for one resource; ``is_replacement`` drops all settings that are not named."""

    type_code: int
    name: str
    changes: Sequence[ConfigChange]
    is_replacement: bool

    @property
    def type(self) -> ResourceType:
        return resource_type(self.type_code)


@dataclass(frozen=True, slots=True)
class Outcome:
    code: ErrorCode = ErrorCode.NONE
    message: str | None = None


def answer(kind: type[ResourceAnswer], change: ResourceChange, outcome: Outcome) -> ResourceAnswer:
    """Return the response's entry for one resource."""
    return kind(
        error_code=outcome.code,
        error_message=outcome.message,
        resource_type=change.type_code,
        resource_name=change.name,
    )


async def change_configs(
    broker: Broker,
    resources: Sequence[Any],
    change_of: Callable[[Any], ConfigChange],
    take: Callable[[ResourceChange, Outcome], None],
    *,
    is_replacement: bool,
    validate_only: bool,
) -> None:
    """Check and, unless ``validate_only``, store the changes; ``take`` gets their outcomes in the same order.

    Args:
        resources: those of a request.
        change_of: returns the change of one setting.
    """
    breather = Breather()
    twice = await carry_out(repeated(lambda: ((asked.resource_type, asked.resource_name) for asked in resources)))
    for asked in resources:
        await breather.give_way()
        if (asked.resource_type, asked.resource_name) in twice:
            change = ResourceChange(asked.resource_type, asked.resource_name, (), is_replacement)
            take(change, Outcome(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once."))
            continue
        configs = asked.configs
        changes = configs.mapped(change_of) if isinstance(configs, LazyArray) else await in_turns(configs, change_of)
        change = ResourceChange(asked.resource_type, asked.resource_name, changes, is_replacement)
        take(change, await _outcome(broker, change, validate_only))


async def _outcome(broker: Broker, asked: ResourceChange, validate_only: bool) -> Outcome:
    try:
        await _change(broker, asked, validate_only)
    except KafkaError as error:
        outcome = Outcome(error.code, error.message)
    except InvalidConfigurationError as error:
        outcome = Outcome(ErrorCode.INVALID_CONFIG, str(error))
    except ConfigError as error:
        whose = resource_text(asked.type_code, asked.name)
        outcome = Outcome(ErrorCode.INVALID_CONFIG, f"Invalid config value for resource {whose}: {error}")
    except CoordinationError as error:
        logger.error("Error processing alter configs request for resource %s: %s", asked.name, error)
        return Outcome(ErrorCode.REQUEST_TIMED_OUT, f"Cannot store the settings in ZooKeeper: {error}")
    else:
        return Outcome()
    logger.info(
        "[Admin Manager on Broker %d]: Error processing alter configs request for resource %s: %s",
        broker.broker_id,
        resource_text(asked.type_code, asked.name),
        outcome.message,
    )
    return outcome


async def _change(broker: Broker, asked: ResourceChange, validate_only: bool) -> None:
    await _check_form(asked)
    match asked.type:
        case ResourceType.TOPIC:
            await _change_topic(broker, asked, validate_only)
        case ResourceType.BROKER:
            await _change_broker(broker, asked, validate_only)
        case ResourceType.BROKER_LOGGER if not asked.is_replacement:
            _change_loggers(broker, asked, validate_only)
        case ResourceType.CLIENT_METRICS:
            raise invalid_request(
                "AlterConfigs is only supported for topics and brokers, but resource type is CLIENT_METRICS"
            )
        case _:
            raise invalid_request(f"Unknown resource type {asked.type_code}")


async def _check_form(asked: ResourceChange) -> None:
    if await carry_out(repeated(lambda: (change.name for change in asked.changes))):
        raise invalid_request("Error due to duplicate config keys")
    without_value: list[str] = []
    breather = Breather()
    for changes in in_lists(asked.changes):
        without_value += [
            change.name
            for change in changes
            if change.value is None and (asked.is_replacement or change.operation != AlterOperation.DELETE)
        ]
        if sum(map(len, without_value)) > STRING_BYTES_MAX:
            # Too long to be sent: the client never sees the rest.
            break
        await breather.give_way()
    if without_value:
        raise invalid_request(f"Null value not supported for : {', '.join(without_value)}")


async def _change_topic(broker: Broker, asked: ResourceChange, validate_only: bool) -> None:
    topic = asked.name
    if not topic:
        raise invalid_request("Default topic resources are not allowed.")
    ask_others()
    stored = {} if asked.is_replacement else await broker.zk.configs.get_entity_configs(f"{TOPICS}/{topic}")
    texts = await _apply(stored, asked.changes, TOPIC_CONFIG_DEF, {})
    if not await topic_exists(broker, topic):
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{topic}' does not exist.")
    validate_topic_config(texts, broker.dynamic_configs.current)
    if not validate_only:
        _log_update(broker, f"Updating topic {topic}", texts)
        await broker.zk.configs.change_entity_configs(f"{TOPICS}/{topic}", texts)


async def _change_broker(broker: Broker, asked: ResourceChange, validate_only: bool) -> None:
    is_per_broker = bool(asked.name)
    if is_per_broker and parse_broker_id(asked.name, "Node id") != broker.broker_id:
        raise invalid_request(f"Unexpected broker id, expected {broker.broker_id}, but received {asked.name}")
    entity = asked.name or DEFAULT_ENTITY
    ask_others()
    stored = {} if asked.is_replacement else await broker.zk.configs.get_entity_configs(f"{BROKERS}/{entity}")
    encoder = broker.dynamic_configs.password_encoder
    clear, _ = await asyncio.to_thread(decoded, stored, encoder)
    # A password that another secret encrypted stays as it is.
    kept = {name: text for name, text in stored.items() if name not in clear}
    readable = {name: text for name, text in clear.items() if name not in kept}
    usable, _ = usable_dynamic_config(readable, is_per_broker=is_per_broker)
    texts = await _apply(usable, asked.changes, BROKER_AND_THROTTLE_DEF, kept)
    _validate_broker(broker, texts, is_per_broker)
    await _check_stores(broker, texts, is_per_broker)
    if not validate_only:
        try:
            new = await asyncio.to_thread(encoded, texts, encoder, stored)
        except ConfigError as error:
            raise invalid_request(str(error)) from error
        whose = f"broker {asked.name}" if is_per_broker else "brokers"
        _log_update(broker, f"Updating {whose}", texts)
        await broker.zk.configs.change_entity_configs(f"{BROKERS}/{entity}", {**new, **kept})


def _validate_broker(broker: Broker, texts: Mapping[str, str], is_per_broker: bool) -> None:
    try:
        validate_broker_change(texts, broker.dynamic_configs, is_per_broker=is_per_broker)
    except RequirementError as error:
        raise invalid_request(f"requirement failed: {error}") from error
    except ReconfigurationError as error:
        raise invalid_request(f"Invalid dynamic configuration: {error}") from error
    except ConfigError as error:
        raise invalid_request(str(error)) from error


async def _check_stores(broker: Broker, texts: Mapping[str, str], is_per_broker: bool) -> None:
    """Try out new listeners and changed stores, in a thread: unpacking one may take tenths of a second."""
    if any(name == "listeners" or base_name(name).startswith("ssl.") for name in texts):
        try:
            await asyncio.to_thread(
                broker.check_listeners, broker.dynamic_configs.preview(texts, is_per_broker=is_per_broker)
            )
        except ConfigError as error:
            raise invalid_request(f"Invalid dynamic configuration: {error}") from error


def _change_loggers(broker: Broker, asked: ResourceChange, validate_only: bool) -> None:
    if parse_broker_id(asked.name, "Node id") != broker.broker_id:
        raise invalid_request(f"Unexpected node id. Expected {broker.broker_id}, but received {asked.name}")
    check_logger_changes(asked.changes)
    if not validate_only:
        change_loggers(asked.changes)


async def _apply(
    stored: Mapping[str, str], changes: Sequence[ConfigChange], definition: ConfigDef, kept: dict[str, str]
) -> dict[str, str]:
    """Return the texts after the changes; ``kept`` loses those of the same names."""
    known, breather = set(AlterOperation), Breather()
    for some in in_lists(changes):
        unknown = next((c.operation for c in some if c.operation not in known), None)
        if unknown is not None:
            raise invalid_request(f"Unknown operations type {unknown}")
        await breather.give_way()
    texts = dict(stored)
    for some in in_lists(changes):
        apply_changes(texts, some, definition)
        for change in some:
            kept.pop(change.name, None)
        if definition is TOPIC_CONFIG_DEF:
            # The first that no topic has is refused in the end, and the others are not needed for that.
            for name in [name for name in texts if name not in definition and name not in stored][1:]:
                del texts[name]
        await breather.give_way()
    return texts


def _log_update(broker: Broker, what: str, texts: Mapping[str, str]) -> None:
    shown = ",".join(f"{name} -> {_loggable(name, text)}" for name, text in texts.items())
    logger.info("[Admin Manager on Broker %d]: %s with new configuration : %s", broker.broker_id, what, shown)


def _loggable(name: str, text: str) -> str:
    key = TOPIC_CONFIG_DEF.get(name) or broker_config_key(name)
    return REDACTED if key is None or key.is_sensitive else text
