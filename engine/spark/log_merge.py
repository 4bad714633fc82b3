"""Merges state-change logs as a Spark job: the bytes of the local merge, in parts whose names sort in their order.

Each part is a piece of time, which one task merges from its pieces of the logs: nothing is shuffled. If lines are too
far out of order for pieces, or clocks were changed, one task merges everything as the local command does.
"""

from __future__ import annotations

import math
import shutil
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from engine.admin.cluster.errors import Unreachable
from engine.admin.state_changes.entry_reader import Block, EntryReader, TagOf
from engine.admin.state_changes.log_files import replaced_logs
from engine.admin.state_changes.log_input import DamagedLog, LogInput, LogProblem, ProblemCounter, ProblemKind
from engine.admin.state_changes.merge import Batch, Merge, MergePlan, Source
from engine.admin.state_changes.merged_rows import text_chunks, text_tags
from engine.admin.state_changes.selection import Selection
from engine.admin.state_changes.zones import shifted
from engine.common.errors import OperationError
from engine.spark.hadoop_jvm import share_settings
from engine.spark.log_cuts import Piece, Segment, cut, expected_bytes, is_in_order_near_cuts, is_nearly_in_order
from engine.spark.store_path import StorePath
from engine.spark.workers import run_in_workers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PIECE_BYTES_MAX = 128 * 1024 * 1024
PIECE_BYTES_MIN = 8 * 1024 * 1024
_PIECES_PER_CORE_MIN = 3
_CHUNK_BYTES = 1 << 16
"""The size that the local merge uses: larger pieces of memory cost more than reading."""
_COPY_BYTES = 1 << 20
_DONE = "_SUCCESS"


@dataclass(frozen=True, slots=True)
class MergeResult:
    """What was written. ``reason`` says why one task merged everything; None if the logs could be cut."""

    parts: tuple[Path, ...]
    size_bytes: int
    problems: tuple[LogProblem, ...]
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class PartTask:
    """One part: a ``piece`` of the plan's logs, which are uncompressed at ``paths``, or all of them if it is None."""

    plan: MergePlan
    paths: tuple[Path, ...]
    piece: Piece | None
    path: Path


@dataclass(frozen=True, slots=True)
class PartResult:
    """The result of a part. ``taken_bytes`` of each log by its number, line feeds included."""

    path: Path
    size_bytes: int
    taken_bytes: dict[int, int]
    problems: tuple[LogProblem, ...]
    topics_met: frozenset[bytes]


def refuse_existing(out: Path) -> None:
    """Refuse an output that exists already.

    Raises:
        OperationError: it exists.
    """
    if out.exists() or out.is_symlink():
        raise OperationError(f"the output exists: {out}", hint="name another one, or remove it")


def merge_logs(
    spark: SparkSession, plan: MergePlan, out: Path, *, is_single: bool = False, piece_bytes: int | None = None
) -> MergeResult:
    """Merge into the folder ``out``, or into one file of this name; it appears only once it is complete.

    In a store, which cannot rename a folder, the parts appear one by one, and ``_SUCCESS`` when all of them exist.

    Raises:
        OperationError: the output exists, or a log is a pipe.
    """
    refuse_existing(out)
    pipe = next((file.source for file in plan.files if file.opened is not None), None)
    if pipe is not None:
        raise OperationError(f"a pipe can be read only once, and only here: {pipe}", hint="name files or folders")
    if any(isinstance(path, StorePath) and path.is_hadoops for path in (out, *(file.path for file in plan.files))):
        share_settings(spark)
    files = plan.files
    # Another machine may see the same file under another inode.
    plan = replace(plan, files=tuple(replace(file, inode=None) for file in files))
    work = out.absolute().with_name(f".{out.name}.{uuid.uuid4().hex[:8]}")
    work.mkdir(parents=True)
    is_in_place = isinstance(out, StorePath)
    parts = out if is_in_place and not is_single else work / "parts"
    try:
        result = _merge_into(spark, plan, work, parts, piece_bytes or _piece_bytes(spark, plan))
        result = replace(result, problems=(*result.problems, *replaced_logs(files)))
        if is_single:
            return _as_file(result, out if is_in_place else work / "file", out)
        if is_in_place:
            (out / _DONE).touch()
            return result
        return _as_folder(result, work / "folder", out)
    except BaseException:
        if is_in_place:
            _remove(out)
        raise
    finally:
        _remove(work)


def write_part(task: PartTask) -> PartResult:
    """Merge one part into its file. A second attempt writes the same bytes under the same name."""
    merge = PieceMerge(task.plan, task.paths, task.piece)
    is_in_place = isinstance(task.path, StorePath)
    unfinished = task.path if is_in_place else task.path.with_name(f".{task.path.name}.{uuid.uuid4().hex[:8]}")
    size = 0
    with unfinished.open("wb") as file:
        for chunk in text_chunks(merge.batches(text_tags(task.plan))):
            size += file.write(chunk)
    if not is_in_place:
        unfinished.replace(task.path)
    elif not size:
        unfinished.unlink()
    return PartResult(task.path, size, merge.taken_bytes, tuple(merge.problems), merge.topics_met)


def unpack(task: tuple[Path, Path]) -> LogProblem | None:
    """Write a log uncompressed to the second path, up to the first fault; return what is wrong with it."""
    source, target = task
    log = LogInput(source, _COPY_BYTES)
    with target.open("wb") as file:
        try:
            while chunk := log.read():
                file.write(chunk)
        except DamagedLog as error:
            message = f"{error}; the result contains what comes before that"
            return LogProblem(str(source), ProblemKind.DAMAGED, message)
        finally:
            log.close()
    return None


@dataclass
class PieceMerge:
    """Merges one piece of the logs with the code of the local merge, and counts what it takes of each log."""

    plan: MergePlan
    paths: Sequence[Path]
    piece: Piece | None
    taken_bytes: dict[int, int] = field(default_factory=dict)
    counters: list[ProblemCounter] = field(default_factory=list)

    @property
    def problems(self) -> list[LogProblem]:
        """What is wrong with the logs, as far as they were read."""
        return [problem for counter in self._used_counters for problem in counter.problems]

    @property
    def topics_met(self) -> frozenset[bytes]:
        """The requested topics that appear in the logs."""
        return frozenset(topic for counter in self._used_counters for topic in counter.topics_met)

    @property
    def _used_counters(self) -> Sequence[ProblemCounter]:
        return self.plan.counters if self.piece is None else self.counters

    def batches(self, tag_of: TagOf[bytes]) -> Iterator[Batch[bytes]]:
        """Yield the merge."""
        if self.piece is None:
            yield from self.plan.merge(tag_of, in_bursts=True)
        else:
            yield from Merge([self._source(self.piece, segment, tag_of) for segment in self.piece.segments])

    def _source(self, piece: Piece, segment: Segment, tag_of: TagOf[bytes]) -> Source[bytes]:
        file, lead = self.plan.files[segment.number], self.plan.lead_start(segment.number)
        counter = ProblemCounter(file.source)
        self.counters.append(counter)
        selection = _within(self.plan.selection, piece)

        def count(size_bytes: int) -> None:
            self.taken_bytes[segment.number] = self.taken_bytes.get(segment.number, 0) + size_bytes

        def open_reader() -> EntryReader[bytes]:
            part = LogInput(self.paths[segment.number], _CHUNK_BYTES, begin=segment.begin, end=segment.end)
            return _CountingReader(
                replace(file, opened=part),
                tag_of,
                selection,
                counter,
                chunk_bytes=_CHUNK_BYTES,
                clock=self.plan.clock_of(file),
                lead_start=lead,
                in_bursts=True,
            ).counting(count)

        return Source(max(lead, piece.start or b""), open_reader, counter)


class _CountingReader(EntryReader[bytes]):
    """Counts how many bytes of a log were taken."""

    def counting(self, count: Callable[[int], None]) -> _CountingReader:
        self._count = count
        return self

    def read(self) -> Block[bytes] | None:
        block = super().read()
        if block is not None:
            self._count(sum(map(len, block.entries)) + len(block.entries))
        return block


def _within(selection: Selection, piece: Piece) -> Selection:
    """Return the selection within a piece."""
    end = None if piece.stop is None else shifted(piece.stop, -timedelta(milliseconds=1))
    starts = [start for start in (piece.start, selection.start) if start is not None]
    ends = [bound for bound in (end, selection.end) if bound is not None]
    return replace(selection, start=max(starts, default=None), end=min(ends, default=None))


def _piece_bytes(spark: SparkSession, plan: MergePlan) -> int:
    """Return the size of pieces at which all cores get equally many, so that they end together."""
    cores = spark.sparkContext.defaultParallelism
    pieces_per_core = max(_PIECES_PER_CORE_MIN, math.ceil(plan.size_bytes / (cores * PIECE_BYTES_MAX)))
    return max(math.ceil(plan.size_bytes / (cores * pieces_per_core)), PIECE_BYTES_MIN)


def _remove(path: Path) -> None:
    if isinstance(path, StorePath):
        # The earlier error is the one to report.
        with suppress(OSError, Unreachable):
            path.remove()
    else:
        shutil.rmtree(path, ignore_errors=True)


def _merge_into(spark: SparkSession, plan: MergePlan, work: Path, parts: Path, piece_bytes: int) -> MergeResult:
    reason = _why_not_cut(plan)
    if reason is None:
        paths, damages = _unpacked(spark, plan, work)
        # Lines that a filter leaves out cannot be counted afterwards.
        reason = _why_doubtful(spark, plan, paths) if plan.selection != Selection() else None
    if reason is None:
        pieces = [piece for piece in cut(plan, paths, piece_bytes) if _has_wanted(plan.selection, piece)]
        results = _run(spark, plan, paths, pieces, parts)
        reason = _why_unsound(spark, plan, paths, results) if plan.selection == Selection() else None
        if reason is None:
            return _result(plan, results, damages)
    _remove(parts)
    whole = _run(spark, plan, tuple(file.path for file in plan.files), [None], parts)
    return replace(_result(plan, whole, ()), reason=reason)


def _unpacked(spark: SparkSession, plan: MergePlan, work: Path) -> tuple[tuple[Path, ...], tuple[LogProblem, ...]]:
    """Return the paths of the uncompressed logs; compressed ones are unpacked beside the output."""
    paths = [file.path.absolute() for file in plan.files]
    targets = {path: work / f"log-{number:05d}" for number, path in enumerate(paths) if is_gzip(path)}
    damages = run_in_workers(spark, unpack, list(targets.items()))
    problems = tuple(problem for problem in damages if problem is not None)
    return tuple(targets.get(path, path) for path in paths), problems


def is_gzip(path: Path) -> bool:
    """Whether a file begins like a gzip."""
    with path.open("rb") as file:
        return file.read(2) == b"\x1f\x8b"


def _run(
    spark: SparkSession, plan: MergePlan, paths: tuple[Path, ...], pieces: Sequence[Piece | None], folder: Path
) -> list[PartResult]:
    folder.mkdir()
    tasks = [PartTask(plan, paths, piece, folder / f"part-{number:05d}.log") for number, piece in enumerate(pieces)]
    return run_in_workers(spark, write_part, tasks)


def _why_not_cut(plan: MergePlan) -> str | None:
    merged = next((file.source for file in plan.files if file.is_merged), None)
    if merged is not None:
        return f"{merged} is the result of a merge"
    return "clocks were changed meanwhile" if plan.has_changed_clocks else None


def _has_wanted(selection: Selection, piece: Piece) -> bool:
    is_before = selection.start is not None and piece.stop is not None and piece.stop <= selection.start
    is_after = selection.end is not None and piece.start is not None and piece.start > selection.end
    return not (is_before or is_after)


def _why_doubtful(spark: SparkSession, plan: MergePlan, paths: Sequence[Path]) -> str | None:
    """Return why the selected parts may differ from the local merge: an entry is too far from its place."""
    answers = run_in_workers(spark, is_in_order_near_cuts, paths)
    for file, is_fine in zip(plan.files, answers, strict=True):
        if not is_fine:
            return f"lines of {file.source} stand too far from their place"
    return None


def _why_unsound(
    spark: SparkSession, plan: MergePlan, paths: Sequence[Path], results: Sequence[PartResult]
) -> str | None:
    """Return why the parts may differ from the local merge: an entry was missed, or is too far from its place."""
    for number, (file, path) in enumerate(zip(plan.files, paths, strict=True)):
        if sum(result.taken_bytes.get(number, 0) for result in results) != expected_bytes(path):
            return f"lines of {file.source} stand too far from their place"
    moved = {
        problem.source
        for result in results
        for problem in result.problems
        if problem.kind in (ProblemKind.REORDERED, ProblemKind.LATE)
    }
    doubtful = [(file.source, path) for file, path in zip(plan.files, paths, strict=True) if file.source in moved]
    answers = run_in_workers(spark, is_nearly_in_order, [path for _, path in doubtful])
    for (source, _), is_fine in zip(doubtful, answers, strict=True):
        if not is_fine:
            return f"lines of {source} stand too far from their place"
    return None


def _result(plan: MergePlan, results: Sequence[PartResult], damages: Sequence[LogProblem]) -> MergeResult:
    counters = {file.source: ProblemCounter(file.source) for file in plan.files}
    for problem in [*damages, *(problem for result in results for problem in result.problems)]:
        if problem.count:
            counters[problem.source].count(problem.kind, problem.count)
        else:
            counters[problem.source].tell(problem.kind, problem.message)
    for counter in counters.values():
        counter.topics_met.update(topic for result in results for topic in result.topics_met)
    problems = replace(plan, counters=tuple(counters.values())).problems
    parts = tuple(result.path for result in results if result.size_bytes)
    return MergeResult(parts, sum(result.size_bytes for result in results), tuple(problems))


def _as_folder(result: MergeResult, staged: Path, out: Path) -> MergeResult:
    staged.mkdir()
    parts = []
    for number, part in enumerate(result.parts):
        part.replace(staged / f"part-{number:05d}.log")
        parts.append(out / f"part-{number:05d}.log")
    (staged / _DONE).touch()
    refuse_existing(out)
    staged.replace(out)
    return replace(result, parts=tuple(parts))


def _as_file(result: MergeResult, staged: Path, out: Path) -> MergeResult:
    with staged.open("wb") as target:
        for part in result.parts:
            with part.open("rb") as source:
                shutil.copyfileobj(source, target, _COPY_BYTES)
            part.unlink()
    if staged != out:
        refuse_existing(out)
        staged.replace(out)
    return replace(result, parts=(out,))
