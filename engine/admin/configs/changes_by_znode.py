"""Settings altered through the znodes: written, then announced to all brokers by a change notification.

Checked here as a broker would check them, except for what depends on a broker's own file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from engine.admin.cluster.advice import advice_for
from engine.admin.cluster.errors import BadRequest
from engine.admin.configs.values import Entity, EntityType
from engine.common.errors import ConfigError, ErrorCode
from engine.config.broker import BrokerConfig
from engine.config.dynamic_keys import is_password, validate_dynamic_config
from engine.config.topic_configs import validate_topic_config
from engine.zk.kafka_client import KafkaZkClient
from engine.zk.znodes.controller_znodes import ControllerZNode


async def alter_configs_zk(
    kafka: KafkaZkClient,
    entity: Entity,
    additions: Mapping[str, str],
    deletions: Sequence[str],
    *,
    validate_only: bool = False,
) -> None:
    """Set and delete settings of an entity, all or none.

    Raises:
        BadRequest: a setting to be deleted is not set, or one to be set is unknown or has a bad value.
    """
    name = "<default>" if entity.name is None else entity.name
    path = f"{entity.type.value}/{name}"
    if entity.type is EntityType.TOPIC:
        configs = await topic_configs_after(kafka, name, additions, deletions)
    else:
        configs = changed_settings(await kafka.get_entity_configs(path), additions, deletions, str(entity))
        check_broker_configs(additions, is_default=entity.name is None)
    if not validate_only:
        has_controller = await kafka.client.exists(ControllerZNode.path) is not None
        await kafka.change_entity_configs(path, configs, check_controller=has_controller)


async def topic_configs_after(
    kafka: KafkaZkClient, topic: str, additions: Mapping[str, str], deletions: Sequence[str]
) -> dict[str, str]:
    """Return a topic's overrides as they will be; errors as ``alter_configs_zk``."""
    present = await kafka.get_entity_configs(f"topics/{topic}")
    configs = changed_settings(present, additions, deletions, f"topic {topic}")
    check_topic_configs({key: value for key, value in configs.items() if key in additions or key not in present})
    return configs


def changed_settings(
    present: Mapping[str, str], additions: Mapping[str, str], deletions: Sequence[str], where: str
) -> dict[str, str]:
    """Return settings with the changes made; raises BadRequest where one to be deleted is not set."""
    absent = [key for key in deletions if key not in present]
    if absent:
        hint = "see what is set with: klamm configs describe"
        raise BadRequest(f"invalid config(s): {', '.join(absent)} (not set)", where=where, hint=hint)
    return {key: value for key, value in present.items() if key not in deletions} | dict(additions)


def check_topic_configs(configs: Mapping[str, str]) -> None:
    """Raise BadRequest where a topic cannot have these settings."""
    # What a broker has in its file is not known here; Kafka's defaults stand in for it.
    anybody = BrokerConfig.from_properties({"zookeeper.connect": "unknown"})
    try:
        validate_topic_config(configs, anybody)
    except ConfigError as error:
        hint = advice_for(ErrorCode.INVALID_CONFIG, str(error), "topic")
        raise BadRequest(str(error), hint=hint) from error


def check_broker_configs(configs: Mapping[str, str], *, is_default: bool) -> None:
    """Raise BadRequest where a broker, or all of them by default, cannot be given these settings at run time."""
    secret = sorted(key for key in configs if is_password(key))
    if secret:
        hint = "brokers store it encrypted with a secret of theirs: use --bootstrap-server"
        raise BadRequest(f"{secret[0]} is a secret and cannot be set through ZooKeeper", hint=hint)
    try:
        validate_dynamic_config(configs, is_per_broker=not is_default)
    except ConfigError as error:
        raise BadRequest(str(error), hint="what is set now: klamm configs describe --broker ID") from error
