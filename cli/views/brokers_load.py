"""What brokers carry, as bars; how a plan changes that, as heat before and after."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from cli.output.report import Column, Drawing, Kind, Report, Section, Table, Tone, cells_of
from engine.admin.brokers.load import BrokerLoad, PlannedLoad
from engine.common.quantities import counted, plural, size_text


def _alive_tone(value: object) -> Tone | None:
    return None if value else Tone.BAD


_LOAD = (
    Column("broker", Kind.NUMBER),
    Column("rack"),
    Column("alive", Kind.FLAG, tone=_alive_tone),
    Column("replica_count", Kind.NUMBER, title="Replicas", drawing=Drawing.BAR),
    Column("leader_count", Kind.NUMBER, title="Leads", drawing=Drawing.BAR),
    Column("preferred_count", Kind.NUMBER, title="Preferred"),
    Column("size_bytes", Kind.BYTES, title="Size", drawing=Drawing.BAR),
)
_RATES = (
    Column("messages_in_rate", Kind.NUMBER, title="Messages/s"),
    Column("bytes_in_rate", Kind.BYTES, title="In/s"),
    Column("bytes_out_rate", Kind.BYTES, title="Out/s"),
)
BEFORE_AND_AFTER = (
    Column("replicas_before", Kind.NUMBER, title="Replicas", drawing=Drawing.HEAT, scale="replicas"),
    Column("replicas_after", Kind.NUMBER, title="after", drawing=Drawing.HEAT, scale="replicas"),
    Column("leaders_before", Kind.NUMBER, title="Leads", drawing=Drawing.HEAT, scale="leaders"),
    Column("leaders_after", Kind.NUMBER, title="after", drawing=Drawing.HEAT, scale="leaders"),
    Column("bytes_before", Kind.BYTES, title="Size", drawing=Drawing.HEAT, scale="bytes"),
    Column("bytes_after", Kind.BYTES, title="after", drawing=Drawing.HEAT, scale="bytes"),
)
"""What a broker carries before and after a plan, as heat: each figure on one scale with the others of its kind."""
_PLANNED = (Column("broker", Kind.NUMBER), *BEFORE_AND_AFTER)


def load_report(
    loads: Sequence[BrokerLoad], troubles: Mapping[int, str] | None = None, *, seen_by: str | None = None
) -> Report:
    """One row per broker; for a person with bars, and without unknown figures.

    Args:
        troubles: the reasons of brokers that do not report their rates; None: rates were not asked for.
        seen_by: from whom a part of the cluster is hidden.
    """
    rates = _RATES if troubles is not None else ()
    rows = [(*cells_of(_LOAD, load), *map(_whole, cells_of(rates, load))) for load in loads]
    table = Table((*_LOAD, *rates), rows)
    notes = [f"the rates of broker {broker} are not known: {why}" for broker, why in (troubles or {}).items()]
    return Report(
        loads,
        table,
        (Section(body=table.without_empty(keeps=("broker", "alive"))),),
        (*_spread_notes(loads, seen_by), *notes),
    )


def _whole(rate: object) -> int | None:
    return round(rate) if isinstance(rate, int | float) else None


def heat_section(loads: Sequence[PlannedLoad], partition_count: int, copied_bytes: int) -> Section:
    """Return the heat map of a plan: each broker's part of its partitions, before and after."""
    copied = f", {size_text(copied_bytes)} to copy" if copied_bytes else ""
    title = f"What brokers carry of {counted(partition_count, 'partition')}, before and after{copied}"
    return Section(title, Table.of(_PLANNED, loads).without_empty(keeps=("broker",)))


def _spread_notes(loads: Sequence[BrokerLoad], seen_by: str | None) -> tuple[str, ...]:
    live = [load for load in loads if load.alive]
    if not live:
        return ("no broker is alive",)
    notes = [
        f"{counted(len(live), 'live broker')}, on each: "
        f"{_spread([load.replica_count for load in live], str)} replicas, "
        f"{_spread([load.leader_count for load in live], str)} led"
    ]
    sizes = [load.size_bytes for load in live if load.size_bytes is not None]
    if sizes:
        notes[0] += f", {_spread(sizes, size_text)}"
    if seen_by is not None:
        notes[0] += f", as far as {seen_by} may see"
    if len(sizes) < len(live):
        silent = ", ".join(str(load.broker) for load in live if load.size_bytes is None)
        notes.append(f"the sizes of {plural('broker', len(live) - len(sizes))} {silent} are not known")
    return tuple(notes)


def _spread(values: Sequence[int], text: Callable[[int], str]) -> str:
    low, high = text(min(values)), text(max(values))
    return low if low == high else f"{low} to {high}"
