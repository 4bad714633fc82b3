"""Quotas as rows: whose, which, how much."""

from __future__ import annotations

from collections.abc import Sequence

from cli.output.report import Column, Kind, Report, Section, Table
from engine.admin.configs.quota_reading import OwnedQuota
from engine.admin.configs.values import Entity

_COLUMNS = (Column("user"), Column("client_id"), Column("ip"), Column("quota"), Column("value", Kind.NUMBER))


def quotas_report(found: Sequence[OwnedQuota]) -> Report:
    """All that is set."""
    rows = [(one.user, one.client_id, one.ip, one.quota, one.value) for one in found]
    notes = () if found else ("no quota is set",)
    return Report(found, Table(_COLUMNS, rows), (Section(body=Table(_COLUMNS, rows)),) if found else (), notes)


def in_force_report(entity: Entity, found: Sequence[OwnedQuota]) -> Report:
    """What counts for one client, with the level that says so."""
    report = quotas_report(found)
    if not found:
        return Report(found, report.table, (), (f"nothing limits {entity}",))
    return report
