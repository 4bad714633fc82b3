"""State-change logs made for tests: entries of brokers, written to files as brokers roll them, and read back merged."""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from engine.admin.state_changes.log_files import find_logs, look_at_logs
from engine.admin.state_changes.merge import MergePlan, MergeWish, plan_merge
from engine.admin.state_changes.merged_rows import MergedRow, row_tag, rows_of, text_chunks, text_tags
from engine.admin.state_changes.zones import Zone

BEGIN = datetime(2026, 11, 21, 2)
IN_UTC: dict[int | None, Zone] = {None: UTC}


def start(ms: float) -> str:
    """Return the time of a line, this many milliseconds after 02:00."""
    moment = BEGIN + timedelta(milliseconds=ms)
    return f"[{moment:%Y-%m-%d %H:%M:%S},{moment.microsecond // 1000:03d}]"


@dataclass(frozen=True)
class Entry:
    """One entry of one broker; ``text`` has no line feed at its end."""

    ms: int
    broker: int
    text: str

    @property
    def lines(self) -> list[str]:
        return self.text.split("\n")


def entry(ms: int, broker: int, message: str, more: Sequence[str] = (), level: str = "INFO") -> Entry:
    """Return an entry in the words of Kafka 3.9."""
    first = f"{start(ms)} {level} [Broker id={broker}] {message} (state.change.logger)"
    return Entry(ms, broker, "\n".join([first, *more]))


def recorded_entries(folder: Path) -> list[str]:
    """Return the first line of every entry in recorded logs, in the order of time."""
    lines = [line for log in sorted(folder.rglob("state-change.log")) for line in log.read_text().splitlines()]
    return sorted((line for line in lines if line.startswith("[20")), key=lambda line: line[:25])


def said_at(folder: Path, text: str) -> str:
    """Return when a recorded log says this first, as klamm prints it: ``2026-11-21 12:22:58.172``."""
    return next(line[1:24] for line in recorded_entries(folder) if text in line).replace(",", ".")


def write_log(path: Path, lines: Iterable[str], *, is_gzip: bool = False) -> Path:
    """Write lines to a file, compressed or not."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = "".join(f"{line}\n" for line in lines).encode()
    path.write_bytes(gzip.compress(data) if is_gzip else data)
    return path


def plan_of(*paths: Path, wish: MergeWish | None = None) -> MergePlan:
    """Return the plan of merging files and folders, whose times are UTC."""
    return plan_merge(look_at_logs(find_logs(paths)), wish or MergeWish(zones=IN_UTC))


def merged_text(plan: MergePlan) -> str:
    return b"".join(text_chunks(plan.merge(text_tags(plan), in_bursts=True))).decode()


def merged_lines(plan: MergePlan) -> list[tuple[str, str]]:
    """Return the merged lines, each with the broker it came from."""
    return [
        (label.strip(), line) for label, _, line in (text.partition(" | ") for text in merged_text(plan).splitlines())
    ]


def merged_rows(plan: MergePlan) -> list[MergedRow]:
    clock = plan.utc_clock()
    return [row for batch in plan.merge(row_tag) for row in rows_of(batch, clock)]
