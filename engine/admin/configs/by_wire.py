"""Settings, quotas and credentials over the wire.

DescribeConfigs and IncrementalAlterConfigs, which changes only what is named (KIP-339), for topics and brokers;
Describe- and AlterClientQuotas (KIP-546) and SCRAM credentials (KIP-554) for users, clients and addresses.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence

from engine.admin.cluster.asking import ANSWER_LIMIT_S, ONLY_ANSWER_SHARE, answer_limit, beside_limit_s
from engine.admin.cluster.errors import FailureKind, Refused, Unreachable
from engine.admin.cluster.remedies import Give, Parameter, Phrase
from engine.admin.cluster.waits import Complain
from engine.admin.cluster.wire import WireCluster
from engine.admin.cluster.wire_failures import refuse
from engine.admin.configs.quotas import (
    SCRAM_MECHANISMS,
    check_dropped,
    client_entity_configs,
    entity_of,
    parse_quotas,
    part_names,
    parts_of,
)
from engine.admin.configs.values import (
    ConfigEntry,
    ConfigSource,
    ConfigSynonym,
    Entity,
    EntityConfigs,
    EntityType,
    not_set,
)
from engine.common.errors import ErrorCode, RemoteProtocolError
from engine.common.quantities import counted
from engine.kafka.protocol.apis.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    OpData,
    RequestEntityData,
    RequestEntryData,
)
from engine.kafka.protocol.apis.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from engine.kafka.protocol.apis.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from engine.kafka.protocol.apis.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)
from engine.kafka.protocol.apis.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

_TOPICS_PER_REQUEST = 500


class WireConfigReader:
    """Reads settings from brokers."""

    def __init__(self, wire: WireCluster, keys: Sequence[str] | None = None) -> None:
        self._wire = wire
        self._keys = keys

    async def describe(self, entity: Entity, *, include_all: bool) -> EntityConfigs:
        if entity.type.is_of_clients:
            (described,) = await describe_clients(self._wire, entity.type, entity)
            return described
        return await describe_entity(self._wire, entity, include_all=include_all, keys=self._keys)

    async def describe_all(self, kind: EntityType, *, include_all: bool) -> list[EntityConfigs]:
        if kind.is_of_clients:
            return await describe_clients(self._wire, kind, None)
        if kind is EntityType.TOPIC:
            return await _describe_all_topics(self._wire, include_all=include_all)
        entities = [Entity(kind, str(broker_id)) for broker_id in sorted(await self._wire.live_brokers())]
        default = Entity(kind, None)
        defaults = []
        if kind is EntityType.BROKER:
            defaults = [await describe_entity(self._wire, default, include_all=include_all)]
        # All at the same time, so that a broker not yet known to be dead delays no other.
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._described_or_not(entity, include_all), name=f"configs-of-{entity.name}")
                for entity in entities
            ]
        return [*(task.result() for task in tasks), *defaults]

    async def _described_or_not(self, entity: Entity, include_all: bool) -> EntityConfigs:
        try:
            return await describe_entity(self._wire, entity, include_all=include_all)
        except (Unreachable, RemoteProtocolError) as error:
            return EntityConfigs(entity.type, entity.name, (), str(error))


async def describe_entity(
    wire: WireCluster, entity: Entity, *, include_all: bool, keys: Sequence[str] | None = None
) -> EntityConfigs:
    """Return an entity's settings: those set for it, or (``include_all``) all that are in force.

    With ``keys``, only these: a broker has more than two hundred.

    Raises:
        NotFound: there is no such topic or broker.
        Refused: the cluster does not return them.
        Unreachable: no broker answers, or the named one does not within its time limit.
    """
    resource = DescribeConfigsResource(
        resource_type=entity.type.resource_type,
        resource_name=entity.name or "",
        configuration_keys=None if keys is None else list(keys),
    )
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True)
    if entity.type is EntityType.TOPIC:
        response = await wire.ask_what_zookeeper_keeps(request, limit_s=ANSWER_LIMIT_S)
    elif entity.name is None:
        response = await wire.call_any(request, limit_s=min(ANSWER_LIMIT_S, wire.operation_s * ONLY_ANSWER_SHARE))
    else:
        async with answer_limit(wire, int(entity.name)):
            response = await wire.call_broker(int(entity.name), request)
    (result,) = response.results
    refuse(result.error_code, result.error_message, str(entity), topics=entity.topics)
    return _described(entity, result, include_all=include_all)


def _described(entity: Entity, result: DescribeConfigsResult, *, include_all: bool) -> EntityConfigs:
    entries = [_entry(config) for config in result.configs]
    wanted = entries if include_all else [entry for entry in entries if _is_set_for(entity, entry)]
    return EntityConfigs(entity.type, entity.name, tuple(sorted(wanted, key=lambda entry: entry.name)))


async def _describe_all_topics(wire: WireCluster, *, include_all: bool) -> list[EntityConfigs]:
    response = await wire.metadata(None)
    topics = sorted(topic.name for topic in response.topics if topic.name is not None)
    return [
        _described(Entity(EntityType.TOPIC, result.resource_name), result, include_all=include_all)
        async for result in _describe_topics(wire, topics, keys=None, with_synonyms=True, skips_hidden=True)
        if result.error_code == ErrorCode.NONE
    ]


async def read_overrides(
    wire: WireCluster, topics: Sequence[str], on_unknown: Complain | None = None
) -> dict[str, dict[str, str]]:
    """Return the overrides of topics; one that has just vanished has none.

    ``on_unknown`` gets the topics whose settings no broker returns soon; they are left out. Without it, this raises.
    """
    return (await read_overrides_and(wire, topics, None, on_unknown))[0]


async def read_overrides_and(
    wire: WireCluster, topics: Sequence[str], key: str | None, on_unknown: Complain | None = None
) -> tuple[dict[str, dict[str, str]], dict[str, str | None]]:
    """Return the overrides of topics, and the value in force of one setting, from the same answers."""
    overrides: dict[str, dict[str, str]] = {}
    effective: dict[str, str | None] = {}
    async for result in _describe_topics(wire, topics, keys=None, on_unknown=on_unknown):
        overrides[result.resource_name] = {
            config.name: config.value or ""
            for config in result.configs
            if _source_of(config) is ConfigSource.DYNAMIC_TOPIC_CONFIG
        }
        effective[result.resource_name] = next((config.value for config in result.configs if config.name == key), None)
    return overrides, effective


async def read_set_anywhere(wire: WireCluster, topics: Sequence[str]) -> dict[str, tuple[ConfigEntry, ...]]:
    """Return all settings of topics in the order of the brokers' answer, also those that are defaults."""
    return {
        result.resource_name: tuple(_entry(config) for config in result.configs)
        async for result in _describe_topics(wire, topics, keys=None)
    }


async def read_effective(
    wire: WireCluster, topics: Sequence[str], key: str, on_unknown: Complain | None = None
) -> dict[str, str | None]:
    """Return the value in force of one setting for each topic, None for one that has just vanished.

    ``on_unknown`` as for ``read_overrides``.
    """
    results = _describe_topics(wire, topics, keys=[key], on_unknown=on_unknown)
    return {result.resource_name: next((config.value for config in result.configs), None) async for result in results}


async def _describe_topics(
    wire: WireCluster,
    topics: Sequence[str],
    keys: list[str] | None,
    *,
    with_synonyms: bool = False,
    on_unknown: Complain | None = None,
    skips_hidden: bool = False,
) -> AsyncIterator[DescribeConfigsResult]:
    """Yield the topics' settings as they come: after each answer an event loop does other things.

    With ``on_unknown`` or ``skips_hidden`` those are left out that this principal may not see.
    """
    for start in range(0, len(topics), _TOPICS_PER_REQUEST):
        resources = [
            DescribeConfigsResource(
                resource_type=EntityType.TOPIC.resource_type, resource_name=topic, configuration_keys=keys
            )
            for topic in topics[start : start + _TOPICS_PER_REQUEST]
        ]
        request = DescribeConfigsRequest(resources=resources, include_synonyms=with_synonyms)
        try:
            results = await _answers(wire, request, on_unknown, skips_hidden=skips_hidden)
        except (Unreachable, RemoteProtocolError) as error:
            if on_unknown is None:
                raise
            # A broker that waits for ZooKeeper now will wait for it with the next topics as well.
            left = len(topics) - start
            on_unknown(f"settings of {counted(left, 'topic')} are not known: {error}")
            break
        for result in results:
            yield result


async def _answers(
    wire: WireCluster, request: DescribeConfigsRequest, on_unknown: Complain | None, *, skips_hidden: bool
) -> list[DescribeConfigsResult]:
    """Return the answers about topics; that about a topic which has vanished has its error code."""
    limit_s = ANSWER_LIMIT_S if on_unknown is None else beside_limit_s(wire)
    response: DescribeConfigsResponse = await wire.ask_what_zookeeper_keeps(request, limit_s=limit_s)
    results = []
    for result in response.results:
        try:
            if result.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                refuse(result.error_code, result.error_message, f"topic {result.resource_name}")
        except Refused as error:
            # ``WireCluster.denied`` has what is hidden.
            if error.kind is FailureKind.AUTHORIZATION and (skips_hidden or on_unknown is not None):
                continue
            if on_unknown is None:
                raise
            on_unknown(f"settings of topic {result.resource_name} are not known: {error}")
        else:
            results.append(result)
    return results


def _is_set_for(entity: Entity, entry: ConfigEntry) -> bool:
    """Whether kafka-configs shows the setting without --all; loggers are all shown."""
    match entity.type, entity.name:
        case EntityType.TOPIC, _:
            return entry.source is ConfigSource.DYNAMIC_TOPIC_CONFIG
        case EntityType.BROKER, None:
            return entry.source is ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
        case EntityType.BROKER, _:
            return entry.source is ConfigSource.DYNAMIC_BROKER_CONFIG
        case _:
            return True


def _entry(answer: DescribeConfigsResourceResult) -> ConfigEntry:
    return ConfigEntry(
        name=answer.name,
        value=answer.value,
        source=_source_of(answer),
        sensitive=answer.is_sensitive,
        read_only=answer.read_only,
        synonyms=tuple(ConfigSynonym(s.name, s.value, ConfigSource.of_code(s.source)) for s in answer.synonyms),
        documentation=answer.documentation,
    )


_SET, _DELETE = 0, 1

SETTLE_S = 2.0
"""How long a broker may take to read its own settings after a notification in ZooKeeper before one counts as not set.

For a topic's settings, a broker reads ZooKeeper when it is asked.
"""

_PAUSE_S = 0.05


async def alter_configs(
    wire: WireCluster,
    entity: Entity,
    additions: Mapping[str, str],
    deletions: Sequence[str],
    *,
    validate_only: bool = False,
) -> None:
    """Set and delete settings of an entity, all or none.

    Raises:
        BadRequest: a setting to be deleted is not set, or a quota is unknown or has a bad value.
        NotFound: there is no such topic or broker.
        Refused: the cluster rejects it; the message is the cluster's.
    """
    if entity.type.is_of_clients:
        await _alter_quotas(wire, entity, additions, deletions, validate_only=validate_only)
        return
    if deletions:
        await _check_deletions(wire, entity, deletions)
    changes = [AlterableConfig(name=key, config_operation=_SET, value=value) for key, value in additions.items()]
    changes += [AlterableConfig(name=key, config_operation=_DELETE, value=None) for key in deletions]
    resource = AlterConfigsResource(
        resource_type=entity.type.resource_type, resource_name=entity.name or "", configs=changes
    )
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    if entity.type is EntityType.TOPIC or entity.name is None:
        response = await wire.call_any(request)
    else:
        response = await wire.call_broker(int(entity.name), request)
    (result,) = response.responses
    refuse(result.error_code, result.error_message, str(entity), topics=entity.topics)


async def _check_deletions(wire: WireCluster, entity: Entity, deletions: Sequence[str]) -> None:
    if entity.type is EntityType.BROKER_LOGGER:
        return
    deadline = time.monotonic() + (SETTLE_S if entity.type is EntityType.BROKER else 0.0)
    while True:
        described = await describe_entity(wire, entity, include_all=False, keys=deletions)
        present = {entry.name for entry in described.configs}
        absent = [key for key in deletions if key not in present]
        if not absent:
            return
        if time.monotonic() >= deadline:
            break
        await asyncio.sleep(_PAUSE_S)
    raise not_set(entity, absent)


def _source_of(answer: DescribeConfigsResourceResult) -> ConfigSource:
    if answer.config_source == -1:
        # Version 0 reports only whether it is a default.
        return ConfigSource.DEFAULT_CONFIG if answer.is_default else ConfigSource.DYNAMIC_TOPIC_CONFIG
    return ConfigSource.of_code(answer.config_source)


_EXACT, _DEFAULT, _ANY = 0, 1, 2
_ANYBODY = "anybody"
"""A user who need not exist."""


async def describe_clients(
    wire: WireCluster, kind: EntityType, entity: Entity | None, *, has_quotas: bool = True, has_credentials: bool = True
) -> list[EntityConfigs]:
    """Return what is set for one entity, or (None) for all of a kind that have anything.

    Quotas and credentials need different rights: a caller that wants only one of them does not ask for the other.

    Raises:
        Refused: the brokers do not support quotas, or do not return them.
    """
    quotas = await _quotas(wire, kind, entity) if has_quotas else {}
    credentials: dict[Entity, dict[str, int | None]] = {}
    if has_credentials and kind is EntityType.USER and (entity is None or entity.name is not None):
        credentials = await _credentials(wire, entity)
    chosen = {*quotas, *credentials} if entity is None else {entity}
    return [
        client_entity_configs(client, quotas.get(client, {}), credentials.get(client, {}))
        for client in sorted(chosen, key=lambda client: client.name or "")
    ]


async def _alter_quotas(
    wire: WireCluster, entity: Entity, additions: Mapping[str, str], deletions: Sequence[str], *, validate_only: bool
) -> None:
    wanted = parse_quotas(entity, additions)
    if deletions:
        check_dropped(entity, deletions, (await _quotas(wire, entity.type, entity)).get(entity, {}))
    entry = RequestEntryData(
        entity=[RequestEntityData(entity_type=kind, entity_name=name) for kind, name in parts_of(entity)],
        ops=[
            *(OpData(key=key, value=value, remove=False) for key, value in wanted.items()),
            *(OpData(key=key, value=0.0, remove=True) for key in deletions),
        ],
    )
    request = AlterClientQuotasRequest(entries=[entry], validate_only=validate_only)
    try:
        response: AlterClientQuotasResponse = await wire.call_any(request)
    except Refused as error:
        if error.code is ErrorCode.UNSUPPORTED_VERSION:
            hint = "quotas would have no effect there: Kafka before 2.6 does not support them over the wire"
            raise Refused(error.code, "the brokers do not support quotas", where=str(entity), hint=hint) from error
        raise
    for answer in response.entries:
        refuse(answer.error_code, answer.error_message, str(entity))


async def _quotas(wire: WireCluster, kind: EntityType, entity: Entity | None) -> dict[Entity, dict[str, str]]:
    if entity is None:
        components = [ComponentData(entity_type=part, match_type=_ANY, match=None) for part in part_names(kind)]
    else:
        components = [
            ComponentData(entity_type=part, match_type=_DEFAULT if name is None else _EXACT, match=name)
            for part, name in parts_of(entity)
        ]
    request = DescribeClientQuotasRequest(components=components, strict=True)
    try:
        response: DescribeClientQuotasResponse = await wire.ask_what_zookeeper_keeps(request, limit_s=ANSWER_LIMIT_S)
    except Refused as error:
        if error.code is ErrorCode.UNSUPPORTED_VERSION:
            hint = Phrase("ZooKeeper may hold some, without effect there: ", Give(Parameter.ZOOKEEPER))
            raise Refused(error.code, "the brokers do not support quotas", where=kind.value, hint=hint) from error
        raise
    refuse(response.error_code, response.error_message, f"quotas of {kind.value}")
    quotas = {}
    for entry in response.entries or ():
        named = entity_of((part.entity_type, part.entity_name) for part in entry.entity)
        if named is not None:
            quotas[named] = {value.key: str(value.value) for value in entry.values}
    return quotas


async def _credentials(wire: WireCluster, entity: Entity | None) -> dict[Entity, dict[str, int | None]]:
    """Return the iterations of users' credentials; none if the brokers are too old to have any."""
    try:
        if entity is None:
            # Whoever may not see users gets no answer to a request for all of them from Kafka up to 3.9, which fails to
            # build its refusal. To a request that names a user it answers.
            await _ask_for_credentials(wire, [UserName(name=_ANYBODY)])
        users = None if entity is None else [UserName(name=entity.name or "")]
        response = await _ask_for_credentials(wire, users)
    except Refused as error:
        if error.code is ErrorCode.UNSUPPORTED_VERSION:
            return {}
        raise
    credentials: dict[Entity, dict[str, int | None]] = {}
    for result in response.results:
        # A user without credentials is reported as RESOURCE_NOT_FOUND.
        if result.error_code == ErrorCode.NONE:
            credentials[Entity(EntityType.USER, result.user)] = {
                SCRAM_MECHANISMS.get(info.mechanism, f"mechanism {info.mechanism}"): info.iterations
                for info in result.credential_infos
            }
    return credentials


async def _ask_for_credentials(wire: WireCluster, users: list[UserName] | None) -> DescribeUserScramCredentialsResponse:
    # In some releases only the controller answers for credentials; it always can.
    response: DescribeUserScramCredentialsResponse = await wire.ask_controller(
        DescribeUserScramCredentialsRequest(users=users),
        lambda answer: [answer.error_code],
        limit_s=wire.operation_s * ONLY_ANSWER_SHARE,
    )
    refuse(response.error_code, response.error_message, "credentials of users")
    return response
