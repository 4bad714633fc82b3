"""DescribeClientQuotas (48): v0–v1.

Behaviour
* The quotas of users, client ids and addresses that meet all conditions, read from ZooKeeper. Checks and messages are
  Kafka's: conditions on addresses and on users or client ids exclude each other.
* A value in ZooKeeper that is not a number is left out; in Kafka the whole answer is then UNKNOWN_SERVER_ERROR.

Version notes
* v1 flexible, otherwise the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain

from engine.broker.handlers.config_resources import invalid_request
from engine.broker.handlers.context import Broker, RequestContext
from engine.broker.handlers.in_turns import in_turns
from engine.broker.handlers.registry import handles
from engine.common.errors import CoordinationError, ErrorCode, KafkaError
from engine.kafka.config.quota_keys import CLIENT_QUOTAS, IP_QUOTAS, parse_quota
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from engine.kafka.zk.configs import DEFAULT_ENTITY, ConfigType, desanitized, sanitized

EXACT, DEFAULT, ANY = 0, 1, 2
_USER, _CLIENT, _IP = "user", "client-id", "ip"
_SAID = {_USER: "user", _CLIENT: "client", _IP: "ip"}

Parts = dict[str, str | None]
"""An entity's names by type; None is the default."""


@handles(ApiKey.DESCRIBE_CLIENT_QUOTAS, requires=["DescribeConfigs Cluster"])
async def describe_client_quotas(
    context: RequestContext, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    try:
        conditions = _conditions(request.components)
        entities = await _entities(context.broker, conditions, strict=request.strict)
    except KafkaError as error:
        return DescribeClientQuotasResponse(error_code=error.code, error_message=error.message, entries=None)
    texts = await context.broker.zk.configs.get_entities_configs(list(entities))
    entries = await in_turns(entities, lambda path: _entry(entities[path], texts[path]))
    # Kafka says nothing with an empty message here, not with none.
    return DescribeClientQuotasResponse(error_message="", entries=[entry for entry in entries if entry is not None])


def _conditions(components: Sequence[ComponentData]) -> dict[str, ComponentData]:
    for component in components:
        how = component.match_type
        if how not in (EXACT, DEFAULT, ANY) or (how == EXACT and component.match is None):
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
    conditions: dict[str, ComponentData] = {}
    for component in components:
        kind = component.entity_type
        if kind not in _SAID:
            if not kind:
                raise invalid_request("Unexpected empty filter component entity type")
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Custom entity type '{kind}' not supported")
        if kind in conditions:
            raise invalid_request(f"Duplicate {_SAID[kind]} filter component entity type")
        conditions[kind] = component
    if _IP in conditions and len(conditions) > 1:
        raise invalid_request(
            "Invalid entity filter component combination, IP filter component should not be used with user or clientId "
            "filter component."
        )
    return conditions


async def _entities(broker: Broker, conditions: Mapping[str, ComponentData], *, strict: bool) -> dict[str, Parts]:
    """Return the entities that meet the conditions, by their paths below ``/config``."""
    znodes = broker.zk.configs
    wants_ips = _IP in conditions or (not conditions and not strict)
    wants_clients = _IP not in conditions
    paths: list[tuple[str, Parts]] = []
    if wants_ips:
        paths += [
            (f"{ConfigType.IP.value}/{n}", {_IP: _named(n)}) for n in await znodes.get_entity_names(ConfigType.IP)
        ]
    if wants_clients and (_USER in conditions or not strict):
        users = await _names(broker, ConfigType.USER, conditions.get(_USER))
        paths += [(f"{ConfigType.USER.value}/{user}", {_USER: _named(user)}) for user in users]
        if _CLIENT in conditions or not strict:
            pairs = await znodes.get_clients_of_users()
            paths += [(f"users/{u}/clients/{c}", {_USER: _named(u), _CLIENT: _named(c)}) for u, c in pairs]
    if wants_clients and (_CLIENT in conditions or not strict):
        clients = await _names(broker, ConfigType.CLIENT, conditions.get(_CLIENT))
        paths += [(f"{ConfigType.CLIENT.value}/{client}", {_CLIENT: _named(client)}) for client in clients]
    return {path: parts for path, parts in paths if _meets(parts, conditions, strict)}


async def _names(broker: Broker, kind: ConfigType, condition: ComponentData | None) -> Sequence[str]:
    """Return the znodes that may meet a condition: one, if it names one."""
    if condition is None or condition.match_type == ANY:
        return await broker.zk.configs.get_entity_names(kind)
    return [DEFAULT_ENTITY if condition.match_type == DEFAULT else sanitized(condition.match or "")]


def _meets(parts: Parts, conditions: Mapping[str, ComponentData], strict: bool) -> bool:
    for kind in chain(parts, conditions):
        condition = conditions.get(kind)
        if condition is None:
            if strict:
                return False
        elif kind not in parts:
            return False
        elif condition.match_type != ANY:
            wanted = None if condition.match_type == DEFAULT else condition.match
            if parts[kind] != wanted:
                return False
    return True


def _entry(parts: Parts, texts: Mapping[str, str] | CoordinationError) -> EntryData | None:
    if isinstance(texts, CoordinationError):
        raise texts
    values = []
    for key in IP_QUOTAS if _IP in parts else CLIENT_QUOTAS:
        if key in texts:
            try:
                values.append(ValueData(key=key, value=parse_quota(key, texts[key])))
            except ValueError:
                continue
    if not values:
        return None
    return EntryData(entity=[EntityData(entity_type=k, entity_name=n) for k, n in parts.items()], values=values)


def _named(znode: str) -> str | None:
    return None if znode == DEFAULT_ENTITY else desanitized(znode)
