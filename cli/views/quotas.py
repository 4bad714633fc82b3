"""Quotas as rows: whose, which, how much."""

from __future__ import annotations

from collections.abc import Sequence

from cli.exit_codes import ExitCode
from cli.output.report import Column, Kind, Report, Section, Table, Tone
from cli.views.brokers_metrics import SAY_WHERE
from engine.admin.brokers.quota_usage import QuotaUsage, UsageOfBrokers
from engine.admin.configs.quota_reading import OwnedQuota
from engine.admin.configs.values import Entity
from engine.common.quantities import size_text

_COLUMNS = (Column("user"), Column("client_id"), Column("ip"), Column("quota"), Column("value", Kind.NUMBER))

NEAR_PERCENT = 80


def _near_tone(value: object) -> Tone | None:
    return Tone.WARNING if isinstance(value, int | float) and value >= NEAR_PERCENT else None


_USAGE = (
    Column("broker", Kind.NUMBER),
    Column("user"),
    Column("client_id"),
    Column("quota"),
    Column("used", Kind.NUMBER),
    Column("limit", Kind.NUMBER),
    Column("used_percent", Kind.NUMBER, title="Used %", tone=_near_tone),
    Column("throttled_ms", Kind.DURATION_MS, title="Throttled", tone=Tone.BAD),
)
_MACHINE = (*_USAGE, Column("reason"))


def usage_report(answer: UsageOfBrokers) -> Report:
    """A row per client, quota and broker, those that are held back first; for machines one per silent broker, too."""
    shown = [
        (*_whose(usage), _amount(usage, usage.used), _amount(usage, usage.limit), *_how_near(usage))
        for usage in answer.usages
    ]
    throttled = {(usage.user, usage.client_id) for usage in answer.usages if usage.throttled_ms}
    near = {
        (usage.user, usage.client_id) for usage in answer.usages if (usage.used_percent or 0) >= NEAR_PERCENT
    } - throttled
    is_anybody_limited = answer.has_quotas or bool(answer.usages)
    troubles = answer.troubles if is_anybody_limited else ()
    rows = [
        *(
            (*_whose(usage), _rounded(usage.used), _rounded(usage.limit), *_how_near(usage), None)
            for usage in answer.usages
        ),
        *((broker, *(None,) * len(_USAGE[1:]), why) for broker, why in troubles),
    ]
    notes = [f"broker {broker} does not report: {why}" for broker, why in troubles]
    if troubles:
        notes.append(SAY_WHERE)
    if not is_anybody_limited:
        notes.append("no quota is set, so no client is limited")
    elif not answer.usages and not troubles:
        notes.append("no client with a quota was active in the last hour")
    elif answer.usages:
        notes.append(f"throttled: {len(throttled)}; at {NEAR_PERCENT} % or more: {len(near)}")
    sections = (Section(body=Table(_USAGE, shown)),) if shown else ()
    code = ExitCode.BAD_ANSWER if troubles else ExitCode.DONE
    table = Table(_MACHINE, rows)
    return Report(table.records(), table, sections, tuple(notes), code)


def _whose(usage: QuotaUsage) -> tuple[object, ...]:
    return (usage.broker, usage.user, usage.client_id, usage.quota)


def _how_near(usage: QuotaUsage) -> tuple[object, ...]:
    return (_rounded(usage.used_percent), None if usage.throttled_ms is None else round(usage.throttled_ms))


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)


def _amount(usage: QuotaUsage, value: float | None) -> str | None:
    """Return an amount with its unit, for a person."""
    if value is None:
        return None
    if usage.quota.endswith("byte_rate"):
        return f"{size_text(round(value))}/s"
    return f"{value:.1f} %" if usage.quota == "request_percentage" else f"{value:.1f}/s"


def quotas_report(quotas: Sequence[OwnedQuota], *, some_are_hidden: bool = False) -> Report:
    """All that is set, as far as it can be seen."""
    table = Table.of(_COLUMNS, quotas)
    notes = () if quotas else ("no quota that can be seen is set" if some_are_hidden else "no quota is set",)
    return Report(quotas, table, (Section(body=table),) if quotas else (), notes)


def in_force_report(entity: Entity, quotas: Sequence[OwnedQuota]) -> Report:
    """What counts for one client, with the level that says so."""
    report = quotas_report(quotas)
    if not quotas:
        return Report(quotas, report.table, (), (f"nothing limits {entity}",))
    return report
