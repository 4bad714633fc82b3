"""A folder of Parquet files that keep the lag of groups and queries, sample by sample.

    <root>/klamm.json                                          {"format": 1, "chunks": 2}
    <root>/day=2026-11-22/<time>-<sample>-<chunk>.parquet      one file for each sample and chunk
    <root>/day=2026-11-21/all-<chunk>-<number>.parquet         compacted; of several the greatest number counts

A group is always in the same chunk. A file keeps its name however often its sample is repeated after a kill, and exists
as a whole or not at all, so no sample occurs twice. ``COLUMNS`` is the schema. Needs pyarrow.
"""

from __future__ import annotations

import json
import re
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import AdminError, BadRequest, NotFound, Unreachable
from engine.admin.cluster.remedies import Operation, Phrase
from engine.admin.groups.committing import reset_offsets
from engine.admin.groups.group_reading import committed_offsets
from engine.admin.groups.reset_plan import GroupReset, PartitionReset
from engine.admin.groups.values import CommittedOffset, GroupType
from engine.admin.lag.history import POINTS_MAX
from engine.admin.lag.spark_positions import Query
from engine.admin.lag.verdicts import Point
from engine.common.model import TopicPartition

if TYPE_CHECKING:
    from pyarrow import fs as arrow_fs


FORMAT: Final = 1
COLUMNS: Final[Mapping[str, str]] = {
    "sample": "int64", "chunk": "int32", "time": "timestamp", "sampled_at": "timestamp", "cluster": "string",
    "kind": "string", "group": "string", "type": "string", "state": "string", "query_id": "string", "source": "string",
    "path": "string", "group_status": "string", "topic": "string", "partition": "int32", "status": "string",
    "reason": "string", "committed": "int64", "end": "int64", "start": "int64", "lag": "int64",
    "time_lag_ms": "int64", "planned": "int64", "planned_lag": "int64", "error": "string",
}  # fmt: skip
"""Names and types. ``time`` is when the sample was due, ``sampled_at`` when the logs' ends were read, both in UTC."""

CLUSTER_KIND: Final = "cluster"
"""The kind of a row about a cluster itself: it could not be asked, and none of its groups is known."""

_SETTINGS = "klamm.json"
_DAY_MS: Final = 86_400_000
_FILE = re.compile(r"(\d{13})-(\d{10})-(\d{3})\.parquet")

_MANY = re.compile(r"all-(\d{3})-(\d{6})\.parquet")
_SAMPLES: Final = b"klamm.samples"
_FILES_PER_GROUP: Final = 100
"""This many samples are read and written at a time."""

Rows = dict[str, list[Any]]
"""Columns by name, all equally long."""


@dataclass(frozen=True, slots=True)
class SampleFile:
    """One sample of a chunk, and the file that it is in."""

    path: str
    time_ms: int
    sample: int
    chunk: int


@dataclass(frozen=True, slots=True)
class DayFiles:
    """What is in a day's folder: samples in compacted files, those in files of their own, and files that no longer
    count.

    ``newest`` is the number of each chunk's compacted file.
    """

    folder: str
    kept: tuple[SampleFile, ...]
    fresh: tuple[SampleFile, ...]
    newest: Mapping[int, int]
    useless: tuple[str, ...]

    @property
    def samples(self) -> tuple[SampleFile, ...]:
        return (*self.kept, *self.fresh)


def chunk_of(name: str, chunks: int) -> int:
    """Return the chunk that a group, or a place of checkpoints, is in."""
    return zlib.crc32(name.encode()) % chunks


class Lake:
    """One such folder: on this machine, or in an object store that pyarrow knows."""

    def __init__(self, text: str) -> None:
        """Open the place; nothing is read yet.

        Raises:
            BadRequest: pyarrow is missing.
            Unreachable: the store cannot be opened.
        """
        try:
            from pyarrow import fs
        except ImportError:
            hint = 'pip install "klamm[spark]"'
            raise BadRequest("Parquet needs pyarrow, which is not installed", where=text, hint=hint) from None
        from engine.admin.lag.stores import arrow_place

        self.shown = text
        self._filesystem: arrow_fs.FileSystem
        self._filesystem, self._root = arrow_place(text)
        self._known_many: dict[str, list[SampleFile]] = {}
        self._is_local = isinstance(self._filesystem, fs.LocalFileSystem)

    def prepare(self, chunks: int) -> int:
        """Create the folder unless it exists; return its number of chunks, which never changes.

        Raises:
            BadRequest: it contains something else, or has another format.
        """
        known = self._settings()
        if known is not None:
            return known
        if self._entries(self._root):
            hint = "give a folder that is empty or does not exist yet"
            raise BadRequest("not a lag history: the folder has other files in it", where=self.shown, hint=hint)
        self._filesystem.create_dir(self._root, recursive=True)
        self._write(f"{self._root}/{_SETTINGS}", json.dumps({"format": FORMAT, "chunks": chunks}).encode() + b"\n")
        return chunks

    def check(self) -> None:
        """Raise NotFound or BadRequest if there is no history."""
        if self._settings() is None:
            hint = Phrase("start one with: ", Operation.KEEP_LAG_HISTORY)
            raise NotFound("there is no lag history", where=self.shown, hint=hint)

    def files(self, since_ms: int, until_ms: int) -> list[SampleFile]:
        """Return the files of a span of time, in its order."""
        files = []
        first, last = day_of(since_ms), day_of(until_ms)
        for name in self.days():
            if first <= name.removeprefix("day=") <= last:
                files += [sample for sample in self.day(name).samples if since_ms <= sample.time_ms <= until_ms]
        return sorted(files, key=lambda file: (file.time_ms, file.sample, file.chunk))

    def days(self) -> list[str]:
        """Return the names of the folders of days."""
        return [name for name in self._entries(self._root) if name.startswith("day=")]

    def day(self, name: str) -> DayFiles:
        """Return what is in a day's folder. A sample in a compacted file counts only there."""
        folder = f"{self._root}/{name}"
        single, many = dict[tuple[int, int], SampleFile](), dict[int, dict[int, list[SampleFile]]]()
        for file in self._entries(folder):
            path = f"{folder}/{file}"
            if (match := _FILE.fullmatch(file)) is not None:
                piece = SampleFile(path, int(match[1]), int(match[2]), int(match[3]))
                single[piece.sample, piece.chunk] = piece
            elif (match := _MANY.fullmatch(file)) is not None and (kept := self._kept(path, int(match[1]))) is not None:
                many.setdefault(int(match[1]), {})[int(match[2])] = kept
        newest = {chunk: max(numbers) for chunk, numbers in many.items()}
        kept = [piece for chunk, number in newest.items() for piece in many[chunk][number]]
        covered = {(piece.sample, piece.chunk) for piece in kept}
        fresh = [piece for key, piece in single.items() if key not in covered]
        useless = [piece.path for key, piece in single.items() if key in covered]
        useless += [
            f"{folder}/{_many_name(chunk, number)}"
            for chunk, numbers in many.items()
            for number in numbers.keys() - {newest[chunk]}
        ]
        return DayFiles(folder, tuple(kept), tuple(fresh), newest, tuple(useless))

    def _kept(self, path: str, chunk: int) -> list[SampleFile] | None:
        """Return the samples in a compacted file; None if it was not written to its end, or is gone again."""
        from pyarrow import ArrowInvalid, parquet

        if path not in self._known_many:
            try:
                noted = parquet.read_metadata(path, filesystem=self._filesystem).metadata or {}
            except (FileNotFoundError, ArrowInvalid):
                return None
            if _SAMPLES not in noted:
                return None
            pairs = json.loads(noted[_SAMPLES])
            self._known_many[path] = [SampleFile(path, time_ms, sample, chunk) for time_ms, sample in pairs]
        return self._known_many[path]

    def write_many(self, day: DayFiles, chunk: int, files: Sequence[SampleFile]) -> None:
        """Write samples of a chunk as one file, which counts once it is whole."""
        from pyarrow import parquet

        path = f"{day.folder}/{_many_name(chunk, day.newest.get(chunk, 0) + 1)}"
        scratch = self._scratch(path)
        with (
            self._filesystem.open_output_stream(scratch) as stream,
            parquet.ParquetWriter(stream, schema(), compression="zstd") as writer,
        ):
            for low in range(0, len(files), _FILES_PER_GROUP):
                writer.write_table(self.read(files[low : low + _FILES_PER_GROUP], list(COLUMNS)))
            writer.add_key_value_metadata({_SAMPLES: json.dumps([(file.time_ms, file.sample) for file in files])})
        if scratch != path:
            self._filesystem.move(scratch, path)

    def delete(self, paths: Sequence[str]) -> None:
        """Delete files; ignore those that are gone already."""
        for path in paths:
            with suppress(FileNotFoundError):
                self._filesystem.delete_file(path)

    def write(self, time_ms: int, sample: int, chunk: int, rows: Rows) -> None:
        """Write a file, or write it again."""
        import pyarrow
        from pyarrow import parquet

        table = pyarrow.table(rows, schema=schema())
        folder = f"{self._root}/day={day_of(time_ms)}"
        if self._is_local:
            self._filesystem.create_dir(folder, recursive=True)
        sink = pyarrow.BufferOutputStream()
        parquet.write_table(table, sink, compression="zstd")
        self._write(f"{folder}/{time_ms:013d}-{sample:010d}-{chunk:03d}.parquet", sink.getvalue())

    def read(self, files: Sequence[SampleFile], columns: Sequence[str], only: Any = None) -> Any:
        """Return a table of these files' columns; ``only`` is a pyarrow expression that rows must satisfy.

        The files are in time order, without gaps.
        """
        import pyarrow
        from pyarrow import dataset

        if not files:
            return pyarrow.table({name: [] for name in columns}, schema=_chosen(columns))
        paths = list(dict.fromkeys(file.path for file in files))
        if len(paths) < len(files):
            times = [pyarrow.scalar(file.time_ms, schema().field("time").type) for file in (files[0], files[-1])]
            is_of_them = (dataset.field("time") >= times[0]) & (dataset.field("time") <= times[1])
            only = is_of_them if only is None else only & is_of_them
        samples = dataset.dataset(paths, schema=schema(), filesystem=self._filesystem, format="parquet")
        return samples.to_table(columns=list(columns), filter=only)

    def points_before(self, time_ms: int, chunk: int, cluster: str, groups: Sequence[str]) -> LakePoints:
        """Return what the last samples before a time have about some groups in a chunk, in time order."""
        from pyarrow import compute

        earlier = [file for file in self.files(time_ms - _DAY_MS, time_ms - 1) if file.chunk == chunk]
        is_wanted = (
            (compute.field("cluster") == cluster)
            & (compute.field("kind") == "group")
            & compute.field("group").isin(list(groups))
        )
        names = ("sampled_at", "group", "type", "topic", "partition", "committed", "end")
        table = self.read(earlier[-(POINTS_MAX - 1) :], names, is_wanted).sort_by("sampled_at")
        columns = [table["sampled_at"].cast("int64").to_pylist(), *(table[name].to_pylist() for name in names[1:])]
        points: LakePoints = {}
        for moment_ms, group, kind, topic, partition, committed, end in zip(*columns, strict=True):
            if topic is not None:
                series = points.setdefault((group, GroupType(kind)), {})
                series.setdefault(TopicPartition(topic, partition), []).append(Point(moment_ms, committed, end))
        return points

    def readers_before(self, time_ms: int, chunk: int | None, cluster: str) -> list[dict[str, Any]]:
        """Return a cluster's readers in the last sample before a time, by what distinguishes them.

        ``chunk`` None is any.
        """
        from pyarrow import compute

        earlier = [file for file in self.files(time_ms - _DAY_MS, time_ms - 1) if chunk in (None, file.chunk)]
        is_wanted = (compute.field("cluster") == cluster) & (compute.field("kind") != CLUSTER_KIND)
        names = ["kind", "group", "type", "query_id", "source", "path"]
        last = [piece for piece in earlier if piece.time_ms == earlier[-1].time_ms]
        table = self.read(last, names, is_wanted)
        readers: list[dict[str, Any]] = table.group_by(names).aggregate([]).to_pylist()
        return readers

    def _settings(self) -> int | None:
        try:
            with self._filesystem.open_input_stream(f"{self._root}/{_SETTINGS}") as stream:
                document = json.loads(stream.read())
            version, chunks = document["format"], int(document["chunks"])
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise BadRequest("not a lag history: klamm.json is damaged", where=self.shown) from error
        except OSError as error:
            raise Unreachable(f"cannot be read: {error}", where=self.shown) from error
        if version != FORMAT:
            raise BadRequest(f"a lag history of format {version}; only {FORMAT} can be read", where=self.shown)
        return chunks

    def _entries(self, folder: str) -> list[str]:
        from engine.admin.lag.stores import arrow_entries

        try:
            entries = arrow_entries(self._filesystem, folder)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise Unreachable(f"cannot be read: {error}", where=self.shown) from error
        return sorted(entry.name for entry in entries if not entry.name.startswith((".", "_")))

    def _write(self, path: str, content: Any) -> None:
        scratch = self._scratch(path)
        with self._filesystem.open_output_stream(scratch) as stream:
            stream.write(content)
        if scratch != path:
            self._filesystem.move(scratch, path)

    def _scratch(self, path: str) -> str:
        """Return where to write a file first: an object store shows it once it is whole, a disk at once."""
        return f"{path.rpartition('/')[0]}/.{path.rpartition('/')[2]}.arriving" if self._is_local else path


LakePoints = dict[tuple[str, GroupType], dict[TopicPartition, list[Point]]]


def schema() -> Any:
    return _chosen(list(COLUMNS))


def _many_name(chunk: int, number: int) -> str:
    return f"all-{chunk:03d}-{number:06d}.parquet"


def _chosen(columns: Sequence[str]) -> Any:
    import pyarrow

    types = {
        "int64": pyarrow.int64(),
        "int32": pyarrow.int32(),
        "string": pyarrow.string(),
        "timestamp": pyarrow.timestamp("ms", "UTC"),
    }
    return pyarrow.schema([(name, types[COLUMNS[name]]) for name in columns])


def day_of(time_ms: int) -> str:
    return f"{datetime.fromtimestamp(time_ms / 1000, UTC):%Y-%m-%d}"


# Commits a Spark query's position to a Kafka group, so that tools that know only groups can see it.
#
# Only finished batches count. Spark never reads the group: commits to it move no query.


def groups_of(query: Query, group: str) -> dict[str, Mapping[TopicPartition, int]]:
    """Return what to commit, by group: one group, or one per source if two sources read the same topic.

    Raises:
        BadRequest: the query has not finished a batch.
    """
    sources = {source: offsets for source in query.kafka_sources if (offsets := query.committed(source))}
    if not sources:
        raise BadRequest("no batch is finished yet, there is nothing to commit", where=query.path)
    topics = Counter(topic for offsets in sources.values() for topic in {name.topic for name in offsets})
    if max(topics.values()) == 1:
        return {group: {name: offset for offsets in sources.values() for name, offset in offsets.items()}}
    return {f"{group}-{source}": offsets for source, offsets in sources.items()}


async def plan_mirror(cluster: Cluster, query: Query, group: str) -> list[GroupReset]:
    """Return the commits to make, with what is committed now."""
    wanted = groups_of(query, group)
    present = await committed_offsets(await cluster.wire(), wanted)
    plans = []
    for name, offsets in wanted.items():
        before = present[name]
        resets = []
        for partition, offset in sorted(offsets.items()):
            known = before.get(partition) if isinstance(before, Mapping) else None
            current = known.offset if isinstance(known, CommittedOffset) else None
            resets.append(PartitionReset(name, *partition, current, offset))
        plans.append(GroupReset(name, GroupType.CLASSIC, -1, tuple(resets)))
    return plans


async def mirror(cluster: Cluster, plans: list[GroupReset]) -> tuple[list[PartitionReset], list[AdminError]]:
    """Commit; return the outcome for each partition, and the failures. A group with members is refused."""
    return await reset_offsets(cluster, plans)
