"""Settings as rows, with their source."""

from __future__ import annotations

from collections.abc import Sequence

from cli.output.report import Column, Kind, Report, Section, Table, Tone
from engine.admin.configs import ConfigSource, EntityConfigs


def _source_tone(value: object) -> Tone | None:
    return Tone.QUIET if value is ConfigSource.DEFAULT_CONFIG else None


_SETTING = (
    Column("name"),
    Column("value"),
    Column("source", tone=_source_tone),
    Column("sensitive", Kind.FLAG),
    Column("read_only", Kind.FLAG),
)
_ALL = (Column("entity_type"), Column("entity_name"), *_SETTING)


def configs_report(found: Sequence[EntityConfigs], *, is_single: bool) -> Report:
    """A section per entity that has settings; one entity also where it has none."""
    rows = [
        (one.entity_type, one.entity_name or "<default>", c.name, c.value, c.source, c.sensitive, c.read_only)
        for one in found
        for c in one.configs
    ]
    shown = [one for one in found if one.configs]
    sections = [
        Section(
            f"{one.entity_type.value}: {one.entity_name or 'default of all'}",
            Table(_SETTING, [(c.name, c.value, c.source, c.sensitive, c.read_only) for c in one.configs]),
        )
        for one in shown
    ]
    notes = () if shown else ("nothing is set",)
    return Report(found[0] if is_single else found, Table(_ALL, rows), sections, notes)
