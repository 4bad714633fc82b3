"""What brokers' state-change logs say about one partition, in the last day that they cover. Everything here blocks."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from engine.admin.state_changes.log_files import FoundLogs, LogFile, find_logs, look_at_logs
from engine.admin.state_changes.log_input import LogProblem, ProblemKind
from engine.admin.state_changes.merge import MergeWish, plan_merge
from engine.admin.state_changes.merged_rows import MergedRow, Role, epoch_ms, row_of, row_tag
from engine.admin.state_changes.zones import Zone, shifted
from engine.common.model import TopicPartition
from engine.kafka.formats.state_change_events import PrintedState, StateSeen
from engine.kafka.formats.state_change_lines import parse_entry
from engine.kafka.formats.state_change_sentences import events_of
from engine.runtime.offload import in_daemon_thread

LOOK_BACK = timedelta(hours=24)
ENTRIES_MAX = 5_000


@dataclass(frozen=True, slots=True)
class PartitionEntry:
    """One entry that names the partition. ``state`` is the state that it prints, if any."""

    number: int
    row: MergedRow
    state: PrintedState | None

    @property
    def at_ms(self) -> int | None:
        """When it was written; None if its line has no time."""
        return epoch_ms(self.row.utc_start)

    @property
    def is_by_controller(self) -> bool:
        return self.row.role is Role.CONTROLLER


@dataclass(frozen=True, slots=True)
class PartitionLog:
    """The entries in time order, without the ``left_out`` older ones.

    ``size_bytes`` is what was read, ``problems`` what was wrong with the logs.
    """

    entries: tuple[PartitionEntry, ...]
    left_out: int
    file_count: int
    size_bytes: int
    problems: tuple[LogProblem, ...]
    look_back: timedelta = LOOK_BACK


def read_partition_log(paths: Sequence[Path], name: TopicPartition, *, zone: Zone = None) -> PartitionLog:
    """Read what files and folders say about a partition. ``zone`` is the zone of the logs' times; None is this
    machine's.

    Raises:
        NotFound: no path exists, or no folder has a state-change log in it.
        BadRequest: nothing is named.
    """
    logs = look_at_logs(find_logs(paths))
    wish = MergeWish(_start(logs), None, (name.topic,), (str(name.partition),), zones={None: zone})
    plan = plan_merge(logs, wish)
    clock = plan.utc_clock()
    kept: deque[PartitionEntry] = deque(maxlen=ENTRIES_MAX)
    count = 0
    for batch in plan.merge(row_tag):
        starts = batch.starts if clock is None else clock.starts(batch.starts)
        for start, origin, entry in zip(starts, batch.tags, batch.entries, strict=True):
            kept.append(PartitionEntry(count, row_of(start, origin, entry), _state(entry, name)))
            count += 1
    # No line about the partition is not a problem here: the result is empty.
    problems = tuple(problem for problem in plan.problems if problem.kind is not ProblemKind.NO_MENTION)
    return PartitionLog(tuple(kept), count - len(kept), len(plan.files), plan.size_bytes, problems)


async def partition_log(paths: Sequence[Path], name: TopicPartition) -> PartitionLog:
    """Read it outside the event loop; see ``read_partition_log``."""
    return await in_daemon_thread(lambda: read_partition_log(paths, name), "state-change-logs")


def _start(logs: FoundLogs) -> str | None:
    """A day before the last line: logs that were collected last week also have a last day."""
    last = max((_last(file) for file in logs.files), default=None)
    return None if last is None else shifted(last, -LOOK_BACK).decode("ascii").strip("[]")


def _last(file: LogFile) -> bytes:
    return file.last_start or file.first_start


def _state(entry: bytes, name: TopicPartition) -> PrintedState | None:
    line = parse_entry(entry)
    for event in () if line is None else events_of(line):
        if isinstance(event, StateSeen) and event.partition == name:
            return event.state
    return None
