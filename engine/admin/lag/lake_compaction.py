"""Merges many files of a lag history into few, while samples are added and others read it.

It touches only days that are over. It first writes a chunk's samples as one new file, which counts once it is whole,
then deletes the files that this replaces. Whatever a killed run leaves, readers see each sample once, and the next run
removes the rest.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.admin.lag.lake import Lake, SampleFile, day_of


@dataclass(frozen=True, slots=True)
class CompactedDay:
    """A day whose files became fewer."""

    day: str
    files_before: int
    files_after: int


def compact(lake: Lake, now_ms: int) -> list[CompactedDay]:
    """Compact all days before today; return those with something to do.

    Raises:
        NotFound, BadRequest, Unreachable: there is no history, or it cannot be written.
    """
    lake.check()
    today = f"day={day_of(now_ms)}"
    found = [_compact_day(lake, name) for name in lake.days() if name < today]
    return [one for one in found if one is not None]


def _compact_day(lake: Lake, name: str) -> CompactedDay | None:
    day = lake.day(name)
    files_before = len({one.path for one in day.samples} | set(day.useless))
    for chunk in sorted({one.chunk for one in day.fresh}):
        files = sorted((one for one in day.samples if one.chunk == chunk), key=_by_time)
        if len(files) > 1:
            lake.write_many(day, chunk, files)
    after = lake.day(name)
    if not after.useless:
        return None
    lake.delete(after.useless)
    return CompactedDay(name.removeprefix("day="), files_before, len({one.path for one in after.samples}))


def _by_time(one: SampleFile) -> tuple[int, int]:
    return one.time_ms, one.sample
