"""What kafka-configs prints."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import unquote

from cli.output.report import KafkaText
from cli.views.kafka.hash_order import in_hash_order
from engine.admin.configs.values import ConfigEntry, ConfigSource, Entity, EntityConfigs, EntityType

_DEFAULT = "<default>"
_RATE = 1e-3, 1e7
"""Java writes doubles outside this range with an exponent."""


def configs_text(entities: Sequence[EntityConfigs], *, shows_all: bool) -> KafkaText:
    """``--describe``: settings below the name of their entity; quotas and credentials in a line each."""
    if any(entity.entity_type.is_of_clients for entity in entities):
        quotas = [_quota_line(entity) for entity in entities if _of(entity, ConfigSource.CLIENT_QUOTA)]
        credentials = [_credential_line(entity) for entity in entities if _of(entity, ConfigSource.SCRAM_CREDENTIAL)]
        return KafkaText("".join(quotas + credentials))
    topics = [entity for entity in entities if entity.entity_type is EntityType.TOPIC]
    ordered = in_hash_order(topics, lambda topic: topic.entity_name or "") if topics else entities
    return KafkaText("".join(_settings(entity, shows_all=shows_all) for entity in ordered if entity.error is None))


def _settings(entity: EntityConfigs, *, shows_all: bool) -> str:
    if entity.entity_name is None:
        head = f"Default configs for {entity.entity_type.value} in the cluster are:"
    else:
        kind = entity.entity_type.value.removesuffix("s")
        head = f"{'All' if shows_all else 'Dynamic'} configs for {kind} {entity.entity_name} are:"
    return "".join(f"{line}\n" for line in (head, *map(_setting_line, entity.configs)))


def _setting_line(entry: ConfigEntry) -> str:
    synonyms = ", ".join(f"{s.source.value}:{s.name}={_value(s.value)}" for s in entry.synonyms)
    is_sensitive = "true" if entry.sensitive else "false"
    return f"  {entry.name}={_value(entry.value)} sensitive={is_sensitive} synonyms={{{synonyms}}}"


def _value(value: str | None) -> str:
    return "null" if value is None else value


def _of(entity: EntityConfigs, source: ConfigSource) -> list[ConfigEntry]:
    return [entry for entry in entity.configs if entry.source is source]


def _quota_line(entity: EntityConfigs) -> str:
    quotas = _of(entity, ConfigSource.CLIENT_QUOTA)
    entries = in_hash_order(quotas, lambda entry: entry.name, len(quotas))
    values = ", ".join(f"{entry.name}={java_double(float(entry.value or 0))}" for entry in entries)
    return f"Quota configs for {_whose(entity)} are {values}\n"


def _credential_line(entity: EntityConfigs) -> str:
    values = ", ".join(f"{entry.name}={entry.value}" for entry in _of(entity, ConfigSource.SCRAM_CREDENTIAL))
    return f"SCRAM credential configs for user-principal '{entity.entity_name}' are {values}\n"


def _whose(entity: EntityConfigs) -> str:
    match entity.entity_type:
        case EntityType.USER:
            return _one_of("user-principal", entity.entity_name)
        case EntityType.CLIENT:
            return _one_of("client-id", entity.entity_name)
        case EntityType.IP:
            return _one_of("ip", entity.entity_name)
    user, _, client = (entity.entity_name or "").partition("/")
    parts = (("user-principal", user), ("client-id", client))
    return ", ".join(_one_of(kind, None if name == _DEFAULT else unquote(name)) for kind, name in parts)


def _one_of(kind: str, name: str | None) -> str:
    return f"the default {kind}" if name is None else f"{kind} '{name}'"


def java_double(value: float) -> str:
    """Return a number as Java's ``Double.toString`` writes it."""
    low, high = _RATE
    if value == 0 or low <= abs(value) < high:
        return repr(value)
    digits, _, exponent = f"{value:e}".partition("e")
    mantissa = repr(value / 10.0 ** int(exponent)) if value else digits
    return f"{mantissa}E{int(exponent)}"


def altered_text(entity: Entity, *, by_shortcuts: bool = False) -> KafkaText:
    """``--alter``, once it is done. Of a user's client it names the user; ``by_shortcuts`` the client."""
    kind, name = entity.type.value, entity.name
    if entity.type is EntityType.USER_CLIENT:
        kind = kind.split("/")[by_shortcuts]
        part = (name or "").split("/")[by_shortcuts]
        name = None if part == _DEFAULT else unquote(part)
    if name is None:
        return KafkaText(f"Completed updating default config for {kind} in the cluster.\n")
    return KafkaText(f"Completed updating config for {kind.removesuffix('s')} {name}.\n")
