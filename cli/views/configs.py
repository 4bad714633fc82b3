"""Settings as rows, with their source."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from cli.exit_codes import ExitCode
from cli.output.report import Column, Kind, Nothing, Report, Section, Table, Tone, cells_of
from cli.views.kafka import configs as kafka
from engine.admin.configs.quotas import limits_nobody
from engine.admin.configs.values import ConfigChange, ConfigEntry, ConfigSource, Entity, EntityConfigs

_SETTING = (
    Column("name"),
    Column("value"),
    Column("source", tone={ConfigSource.DEFAULT_CONFIG: Tone.QUIET}),
    Column("sensitive", Kind.FLAG),
    Column("read_only", Kind.FLAG),
    Column("synonyms", Kind.LIST),
)
_CHANGES = (Column("entity_type"), Column("entity_name"), Column("name"), Column("old"), Column("new"))
_ALL = (Column("entity_type"), Column("entity_name"), *_SETTING)


def configs_report(
    entities: Sequence[EntityConfigs], *, is_single: bool, shows_all: bool = False, may_lack_some: bool = False
) -> Report:
    """A section per entity that has settings. A single entity has its section even without settings."""
    rows = [
        (entity.entity_type, entity.entity_name or "<default>", *_row(entry))
        for entity in entities
        for entry in entity.configs
    ]
    shown = [entity for entity in entities if entity.configs]
    notes: tuple[str, ...] = () if shown else (Nothing("nothing is set") if may_lack_some else "nothing is set",)
    failed = [entity for entity in entities if entity.error is not None]
    if failed:
        notes = tuple(
            f"not known: {entity.entity_type.value} {entity.entity_name or '<default>'}: {entity.error}"
            for entity in failed
        )
    code = ExitCode.BAD_ANSWER if failed else ExitCode.DONE
    return Report(
        entities[0] if is_single else entities,
        Table(_ALL, rows),
        [_section(entity) for entity in shown],
        notes,
        code,
        as_kafka=lambda: kafka.configs_text(entities, shows_all=shows_all),
    )


def altered_report(
    entity: Entity, changes: Sequence[ConfigChange], *, is_dry_run: bool, by_shortcuts: bool = False
) -> Report:
    """What was changed, or would be: each setting before and after.

    ``by_shortcuts``: a client of a user was named by ``--user`` and ``--client``.
    """
    result = "would_be_altered" if is_dry_run else "altered"
    data = {"entity_type": entity.type, "entity_name": entity.name, "result": result, "changes": changes}
    table = Table(
        _CHANGES, [(entity.type, entity.name or "<default>", *cells_of(_CHANGES[2:], change)) for change in changes]
    )
    shown = Table.of(_CHANGES[2:], changes)
    as_kafka = None if is_dry_run else partial(kafka.altered_text, entity, by_shortcuts=by_shortcuts)
    notes = [
        f"{change.name}={change.new} limits nobody" for change in changes if limits_nobody(change.name, change.new)
    ]
    title = f"{entity}: {result.replace('_', ' ')}"
    return Report(data, table, (Section(title, shown),), notes=tuple(notes), as_kafka=as_kafka)


def _row(entry: ConfigEntry) -> tuple[object, ...]:
    synonyms = [f"{s.source.value}:{s.name}={'' if s.value is None else s.value}" for s in entry.synonyms]
    return (*cells_of(_SETTING[:-1], entry), synonyms)


def _section(entity: EntityConfigs) -> Section:
    """Leave out what tells a person nothing: flags that no setting has, a synonym that is the setting itself."""
    rows = [(*cells_of(_SETTING[:-1], entry), [s.source.value for s in entry.synonyms[1:]]) for entry in entity.configs]
    columns = (*_SETTING[:-1], Column("overrides", Kind.LIST, tone=lambda _: Tone.QUIET))
    table = Table(columns, rows).unless_empty("sensitive", "read_only", "overrides")
    return Section(f"{entity.entity_type.value}: {entity.entity_name or 'default of all'}", table)
