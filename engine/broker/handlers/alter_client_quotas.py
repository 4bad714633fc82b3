"""AlterClientQuotas (49): v0–v1.

Behaviour
* Sets and removes quotas of users, client ids and addresses, each entity all or none; one that is refused holds no
  other back. Checks and messages are Kafka's, which allows 0 and negative values.
* Of an entity that is named more than once, all changes are made in their order, and the last one is answered.
* They are stored in ZooKeeper, and take effect when its change notification reaches the brokers. An entity without
  settings loses its znode, and a user that is left with nothing loses its own.

Version notes
* v1 flexible, otherwise the same.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import Counter
from collections.abc import Sequence

from engine.broker.handlers.answer_lists import answer_list, answer_lists, each_once, repeated
from engine.broker.handlers.config_resources import invalid_request
from engine.broker.handlers.context import Broker, RequestContext
from engine.broker.handlers.in_turns import AT_ONCE_MAX, in_lists
from engine.broker.handlers.registry import handles
from engine.common.errors import CoordinationError, ErrorCode, KafkaError
from engine.kafka.config.quota_keys import CLIENT_QUOTAS, IP_QUOTAS, QuotaKey
from engine.kafka.config.values import double_text
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    OpData,
    RequestEntryData,
    ResponseEntityData,
    ResponseEntryData,
)
from engine.kafka.zk.configs import DEFAULT_ENTITY, ConfigType, sanitized
from engine.runtime.room import ask_others
from engine.runtime.turns import Breather, carry_out

logger = logging.getLogger("kafka.server.ZkAdminManager")

_TYPES = _USER, _CLIENT, _IP = "user", "client-id", "ip"

Entity = dict[str, str | None]
"""An entity's names by type; None is the default."""

_Key = frozenset[tuple[str, str | None]]

_EPSILON = 1e-6
"""How far a whole number may be off as a floating-point number."""


@handles(ApiKey.ALTER_CLIENT_QUOTAS, requires=["AlterConfigs Cluster"])
async def alter_client_quotas(context: RequestContext, request: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
    breather = Breather()
    entries = answer_list(context, AlterClientQuotasResponse, "entries")
    twice = await carry_out(repeated(lambda: map(_key, request.entries)))
    ahead: Counter[_Key | None] = Counter()
    for entry in request.entries if twice else ():
        await breather.give_way()
        if (key := _key(entry)) in twice:
            ahead[key] += 1
    for entry in request.entries:
        await breather.give_way()
        named, parts = await _named(context, entry, breather)
        answer = ResponseEntryData(entity=parts)
        try:
            await _alter(context.broker, named, entry.ops, breather, validate_only=request.validate_only)
        except KafkaError as error:
            answer.error_code, answer.error_message = error.code, error.message
        except CoordinationError as error:
            logger.warning("Cannot change quotas entity=%r: %s", entry.entity, error)
            answer.error_code = ErrorCode.UNKNOWN_SERVER_ERROR
        if twice and (key := _key(entry)) in twice:
            # Kafka keeps one answer for each entity: the last.
            ahead[key] -= 1
            if ahead[key]:
                continue
        entries.append(answer)
    return AlterClientQuotasResponse(entries=entries)


def _key(entry: RequestEntryData) -> _Key | None:
    """Return who the entry is about; None if it names more than an entity can have."""
    if len(entry.entity) > AT_ONCE_MAX:
        return None
    return frozenset({part.entity_type: part.entity_name for part in entry.entity}.items())


async def _named(
    context: RequestContext, entry: RequestEntryData, breather: Breather
) -> tuple[Entity, list[ResponseEntityData]]:
    """Return the names by their types, of a type that comes twice the last, and the same for the answer.

    Of very many types the names of some are left out: one that does not exist is among the others.
    """
    named: Entity = {}
    if len(entry.entity) <= AT_ONCE_MAX:
        named.update((part.entity_type, part.entity_name) for part in entry.entity)
        return named, [ResponseEntityData(entity_type=kind, entity_name=name) for kind, name in named.items()]
    lists = answer_lists(context, AlterClientQuotasResponse, "entries.entity")
    answered: list[ResponseEntityData] = [] if lists is None else lists.of_parts()
    pairs = await carry_out(each_once(context, lambda: ((part.entity_type, part.entity_name) for part in entry.entity)))
    for kind, name in pairs:
        if kind is not None:
            if len(named) <= len(_TYPES):
                named[kind] = name
            answered.append(ResponseEntityData(entity_type=kind, entity_name=name))
        await breather.give_way()
    return named, answered if lists is None else lists.settled(answered)


async def _alter(
    broker: Broker, entity: Entity, changes: Sequence[OpData], breather: Breather, *, validate_only: bool
) -> None:
    path = await _path(entity, breather)
    ask_others()
    texts = await broker.zk.configs.get_entity_configs(path)
    known = IP_QUOTAS if path.startswith(f"{ConfigType.IP.value}/") else CLIENT_QUOTAS
    for ops in in_lists(changes):
        _apply(texts, ops, known)
        await breather.give_way()
    rate = texts.get(QuotaKey.CONNECTION_RATE)
    if rate is not None and rate.startswith("-"):
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
    if not validate_only:
        await broker.zk.configs.change_entity_configs(path, texts)


async def _path(entity: Entity, breather: Breather) -> str:
    """Return the path of an entity's settings below ``/config``."""
    if not entity:
        raise invalid_request("Invalid empty client quota entity")
    names = {}
    for kind, name in entity.items():
        await breather.give_way()
        if kind not in _TYPES:
            raise invalid_request(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise invalid_request(f"Empty {kind} not supported")
        names[kind] = DEFAULT_ENTITY if name is None else sanitized(name)
    if _IP in names:
        if len(names) > 1:
            raise invalid_request(
                "Invalid quota entity combination, IP entity should not be used with user/client ID entity."
            )
        await _check_address(names[_IP])
        return f"{ConfigType.IP.value}/{names[_IP]}"
    if _USER not in names:
        return f"{ConfigType.CLIENT.value}/{names[_CLIENT]}"
    path = f"{ConfigType.USER.value}/{names[_USER]}"
    return f"{path}/{ConfigType.CLIENT.value}/{names[_CLIENT]}" if _CLIENT in names else path


async def _check_address(name: str) -> None:
    if name == DEFAULT_ENTITY:
        return
    try:
        await asyncio.get_running_loop().getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise invalid_request(f"{name} is not a valid IP or resolvable host.") from None


def _apply(texts: dict[str, str], ops: Sequence[OpData], known: Sequence[QuotaKey]) -> None:
    for op in ops:
        if op.remove:
            texts.pop(op.key, None)
        elif op.key not in known:
            raise invalid_request(f"Invalid configuration key {op.key}")
        else:
            texts[op.key] = _text(QuotaKey(op.key), op.value)


def _text(key: QuotaKey, value: float) -> str:
    """Return a value as Kafka writes it into ZooKeeper."""
    if not key.is_whole:
        return double_text(value)
    limit = int(key.highest)
    whole = 0 if value != value else int(max(-limit - 1, min(limit, value + _EPSILON)))
    if abs(whole - value) > _EPSILON:
        kind = "INT" if key is QuotaKey.CONNECTION_RATE else "LONG"
        raise invalid_request(f"Configuration {key} must be a {kind} value")
    return str(whole)
