"""Quotas and credentials over the wire: Describe- and AlterClientQuotas (KIP-546), SCRAM credentials (KIP-554)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from engine.admin.cluster.asking import ANSWER_LIMIT_S, ONLY_ANSWER_SHARE
from engine.admin.cluster.errors import Refused
from engine.admin.cluster.remedies import Give, Parameter, Phrase
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
from engine.admin.configs.values import Entity, EntityConfigs, EntityType
from engine.common.errors import ErrorCode
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
from engine.kafka.protocol.apis.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)

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


async def alter_quotas(
    wire: WireCluster,
    entity: Entity,
    additions: Mapping[str, str],
    deletions: Sequence[str],
    *,
    validate_only: bool = False,
) -> None:
    """Set and drop quotas of one entity, all or none.

    Raises:
        BadRequest: something is not a quota, not a number, or not set.
        Refused: the cluster rejects it.
    """
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
