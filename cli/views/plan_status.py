"""Where a plan stands: partitions by state, who holds the lock, what the journal tells."""

from __future__ import annotations

from collections.abc import Mapping

from cli.output.report import Column, Fields, Kind, Report, Section, Table
from engine.admin.reassignment.journal import JournalRecord
from engine.admin.reassignment.lock_holder import Holder
from engine.admin.reassignment.waves import Standing
from engine.common.model import TopicPartition


def plan_status_report(
    standings: Mapping[TopicPartition, Standing], holder: Holder | None, record: JournalRecord | None
) -> Report:
    """A figure for each state, then lock and journal."""
    counts = {one: sum(standing is one for standing in standings.values()) for one in Standing}
    last = record.last if record is not None and record.events else None
    data = {
        "partitions": len(standings),
        **{one.value: count for one, count in counts.items()},
        "under_way": [str(name) for name, one in standings.items() if one is Standing.MOVING],
        "lock": holder,
        "journal": None if last is None else dict(last),
    }
    columns = (Column("partitions", Kind.NUMBER), *(Column(one.value, Kind.NUMBER) for one in Standing), Column("lock"))
    table = Table(columns, [(len(standings), *counts.values(), None if holder is None else str(holder))])
    pairs: list[tuple[str, object]] = [("partitions", len(standings))]
    pairs += [(one.value, count) for one, count in counts.items() if count]
    pairs.append(("lock", "free" if holder is None else f"{holder}, for {holder.what}"))
    if last is not None:
        told = ", ".join(f"{key} {value}" for key, value in last.items() if key not in ("time", "event"))
        pairs.append(("journal", f"{last['time']} {last['event']}" + (f": {told}" if told else "")))
    notes = ["the journal's last line was cut short"] if record is not None and record.is_torn else []
    return Report(data, table, (Section(body=Fields(pairs)),), notes)
