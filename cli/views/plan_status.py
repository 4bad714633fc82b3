"""How far a plan is: partitions by state, who holds the lock, what the journal says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cli.output.report import Column, Fields, Kind, Report, Section, Table
from engine.admin.reassignment.journal import JournalRecord
from engine.admin.reassignment.lock_holder import Holder
from engine.admin.reassignment.waves import Standing
from engine.common.model import TopicPartition
from engine.common.quantities import counted, size_text


def plan_status_report(
    standings: Mapping[TopicPartition, Standing],
    holder: Holder | None,
    record: JournalRecord | None,
    *,
    is_back: bool = False,
) -> Report:
    """A figure for each state, then lock and journal. ``is_back``: the standings are those of the rollback."""
    counts = {kind: sum(standing is kind for standing in standings.values()) for kind in Standing}
    last = record.last if record is not None and record.events else None
    direction = "rollback" if is_back else "plan"
    data = {
        "direction": direction,
        "partitions": len(standings),
        **{standing.value: count for standing, count in counts.items()},
        "under_way": [str(name) for name, standing in standings.items() if standing is Standing.MOVING],
        "lock": holder,
        "journal": None if last is None else dict(last),
    }
    columns = (
        Column("partitions", Kind.NUMBER),
        *(Column(standing.value, Kind.NUMBER) for standing in Standing),
        Column("lock"),
        Column("direction"),
    )
    row = (len(standings), *counts.values(), None if holder is None else str(holder), direction)
    others = [
        f"{count} {standing.value}" for standing, count in counts.items() if count and standing is not Standing.DONE
    ]
    line = ", ".join([f"{direction}: {counts[Standing.DONE]} of {len(standings)} done", *others])
    pairs = [("lock", "free" if holder is None else f"{holder}, for {holder.what}")]
    if record is not None and last is not None:
        begun: Mapping[str, Any] = next((event for event in reversed(record.events) if event["event"] == "begun"), {})
        pairs.append(("journal", f"{last['time']} {_event_told(last, str(begun.get('what', '')))}"))
    notes = ["the journal's last line was cut short"] if record is not None and record.is_torn else []
    return Report(data, Table(columns, [row]), (Section(text=(line,), body=Fields(pairs)),), notes)


def _event_told(event: Mapping[str, Any], run: str = "") -> str:
    """Return what an event of a journal says, in words. ``run`` is what its run did: ``rollback plan.json``."""
    match event:
        case {"event": "journal"}:
            return "the journal was started"
        case {"event": "begun", "what": what, "who": who, "waves": int(waves)}:
            return f"{what} was started by {who}: {counted(waves, 'wave')}"
        case {"event": "wave", "wave": wave, "of": of, "partitions": [*names]}:
            return f"wave {wave} of {of} has started: {counted(len(names), 'partition')}"
        case {"event": "throttle", "rate": int(rate), "topics": [*topics], "brokers": [*brokers]}:
            where = f"topics {_listed(topics)}" if topics else ""
            where += f"{' and ' if topics and brokers else ''}brokers {_listed(brokers)}" if brokers else ""
            return f"a throttle of {size_text(rate)}/s was set on {where}"
        case {"event": "asked", "throttle": int(rate)}:
            return f"somebody asked for a throttle of {size_text(rate)}/s"
        case {"event": "wave_done", "wave": wave}:
            return f"wave {wave} is done"
        case {"event": "election", "partitions": [*names]}:
            return f"the election of {counted(len(names), 'preferred leader')} has started"
        case {"event": "done", "throttles_left": [*left]}:
            return "; ".join([f"{run or 'all'} is done", *map(str, left)])
        case {"event": "stopped", "wave": wave, "reason": reason, "throttles_left": [*left]}:
            where = f"in wave {wave}" if wave else "before the first wave"
            stopped = f"{run} stopped" if run else "stopped"
            return "; ".join([f"{stopped} {where}: {reason or 'reason unknown'}", *map(str, left)])
    return str(event["event"])


def _listed(names: Sequence[object]) -> str:
    return ", ".join(map(str, names))
