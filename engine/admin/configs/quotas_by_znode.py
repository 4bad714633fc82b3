"""Quotas and credentials as the znodes below ``/config/users``, ``/config/clients`` and ``/config/ips`` hold them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from engine.admin.configs.quotas import (
    SCRAM_MECHANISMS,
    check_dropped,
    client_entity_configs,
    entity_of,
    parse_quotas,
    parts_of,
)
from engine.admin.configs.values import Entity, EntityConfigs, EntityType
from engine.kafka.config.quota_keys import QuotaKey
from engine.kafka.config.values import double_text
from engine.kafka.zk.configs import DEFAULT_ENTITY, ConfigType, desanitized, sanitized
from engine.kafka.zk.errors import NoAuth, ZnodeFormatError
from engine.kafka.zk.kafka_client import KafkaZkClient
from engine.kafka.zk.reads import or_raise

_TYPES = {
    EntityType.USER: (ConfigType.USER, "user"),
    EntityType.CLIENT: (ConfigType.CLIENT, "client-id"),
    EntityType.IP: (ConfigType.IP, "ip"),
}
_ITERATIONS = re.compile(r"(?:^|,)iterations=(\d+)")


async def describe_clients_zk(kafka: KafkaZkClient, kind: EntityType, entity: Entity | None) -> list[EntityConfigs]:
    """Return what is set for one entity, or (None) for all of a kind that have anything.

    Raises:
        ZnodeFormatError: what is set for the one cannot be understood.
        NoAuth: it may not be read.
    """
    if entity is not None:
        wanted = {_path(entity): entity}
    elif kind is EntityType.USER_CLIENT:
        wanted = await _clients_of_users(kafka)
    else:
        wanted = await _all_of(kafka, kind)
    described = []
    for path, read in (await kafka.configs.get_entities_configs(list(wanted))).items():
        if isinstance(read, ZnodeFormatError | NoAuth) and entity is None:
            described.append(EntityConfigs(kind, wanted[path].name, (), str(read)))
            continue
        settings = or_raise(read)
        if settings or entity is not None:
            described.append(_described(wanted[path], settings))
    return described


async def _all_of(kafka: KafkaZkClient, kind: EntityType) -> dict[str, Entity]:
    entity_type, part = _TYPES[kind]
    names = await kafka.configs.get_entity_names(entity_type)
    entities = {name: entity_of([(part, _named(name))]) for name in names}
    return {f"{entity_type.value}/{name}": quotas for name, quotas in entities.items() if quotas is not None}


async def _clients_of_users(kafka: KafkaZkClient) -> dict[str, Entity]:
    entities = {}
    for user, client in await kafka.configs.get_clients_of_users():
        entity = entity_of([("user", _named(user)), ("client-id", _named(client))])
        if entity is not None:
            entities[_path_of_client(user, client)] = entity
    return entities


async def alter_quotas_zk(
    kafka: KafkaZkClient,
    entity: Entity,
    additions: Mapping[str, str],
    deletions: Sequence[str],
    *,
    validate_only: bool = False,
) -> None:
    """Set and drop quotas of one entity, all or none, and notify the brokers.

    Raises:
        BadRequest: something is not a quota, not a number, or not set.
    """
    wanted = parse_quotas(entity, additions)
    path = _path(entity)
    present = await kafka.configs.get_entity_configs(path)
    check_dropped(entity, deletions, present)
    if validate_only:
        return
    kept = {key: text for key, text in present.items() if key not in deletions}
    kept |= {key: str(int(value)) if QuotaKey(key).is_whole else double_text(value) for key, value in wanted.items()}
    await kafka.configs.change_entity_configs(path, kept, check_controller=await kafka.controller.controller_exists())


def _path(entity: Entity) -> str:
    """Return the path of an entity's settings below ``/config``."""
    parts = [DEFAULT_ENTITY if name is None else sanitized(name) for _, name in parts_of(entity)]
    if entity.type is EntityType.USER_CLIENT:
        return _path_of_client(*parts)
    return f"{_TYPES[entity.type][0].value}/{parts[0]}"


def _path_of_client(user: str, client: str) -> str:
    return f"{ConfigType.USER.value}/{user}/{ConfigType.CLIENT.value}/{client}"


def _named(znode: str) -> str | None:
    return None if znode == DEFAULT_ENTITY else desanitized(znode)


def _described(entity: Entity, settings: Mapping[str, str]) -> EntityConfigs:
    quotas: dict[str, str] = {}
    credentials: dict[str, int | None] = {}
    for key, text in settings.items():
        if key in SCRAM_MECHANISMS.values():
            match = _ITERATIONS.search(text)
            credentials[key] = None if match is None else int(match[1])
        else:
            quotas[key] = _as_by_wire(text)
    return client_entity_configs(entity, quotas, credentials)


def _as_by_wire(text: str) -> str:
    """Return a quota as brokers report it, always with a fraction; anything but a number stays as it is."""
    try:
        return str(float(text))
    except ValueError:
        return text
