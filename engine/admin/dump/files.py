"""The content of a file that Kafka, or a broker of ours, wrote, as rows for ``klamm dump``. Asks no broker, prints
nothing.

The file's name tells its kind, as it does for Kafka. Also reads files that wait for deletion, and the cleaner's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from engine.admin.cluster.errors import BadRequest, NotFound
from engine.admin.dump.indexes import IndexOptions, dump_offset_index, dump_time_index, dump_transaction_index
from engine.admin.dump.payloads import PayloadDecoder
from engine.admin.dump.rows import Row
from engine.admin.dump.segments import SegmentOptions, dump_segment
from engine.admin.dump.small_files import (
    dump_clean_shutdown,
    dump_leader_epoch_checkpoint,
    dump_meta_properties,
    dump_offset_checkpoint,
    dump_partition_metadata,
    dump_producer_snapshot,
)
from engine.kafka.formats.checkpoints import LEADER_EPOCH_CHECKPOINT
from engine.kafka.formats.clean_shutdown import CLEAN_SHUTDOWN_FILE
from engine.kafka.formats.meta_properties import META_PROPERTIES_FILE
from engine.kafka.formats.partition_metadata import PARTITION_METADATA_FILE
from engine.kafka.formats.segment_files import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    offset_of_file_name,
)

_OFFSET_CHECKPOINT_SUFFIX = "-offset-checkpoint"
_INTERNAL_DECODERS = {
    "__consumer_offsets-": PayloadDecoder.OFFSETS,
    "__transaction_state-": PayloadDecoder.TRANSACTIONS,
}


class FileKind(StrEnum):
    """What kind of file it is."""

    SEGMENT = "segment"
    OFFSET_INDEX = "offset_index"
    TIME_INDEX = "time_index"
    TRANSACTION_INDEX = "transaction_index"
    PRODUCER_SNAPSHOT = "producer_snapshot"
    OFFSET_CHECKPOINT = "offset_checkpoint"
    LEADER_EPOCH_CHECKPOINT = "leader_epoch_checkpoint"
    PARTITION_METADATA = "partition_metadata"
    META_PROPERTIES = "meta_properties"
    CLEAN_SHUTDOWN = "clean_shutdown"


_BY_SUFFIX = {
    LOG_SUFFIX: FileKind.SEGMENT,
    OFFSET_INDEX_SUFFIX: FileKind.OFFSET_INDEX,
    TIME_INDEX_SUFFIX: FileKind.TIME_INDEX,
    TRANSACTION_INDEX_SUFFIX: FileKind.TRANSACTION_INDEX,
    SNAPSHOT_SUFFIX: FileKind.PRODUCER_SNAPSHOT,
}
_BY_NAME = {
    LEADER_EPOCH_CHECKPOINT: FileKind.LEADER_EPOCH_CHECKPOINT,
    PARTITION_METADATA_FILE: FileKind.PARTITION_METADATA,
    META_PROPERTIES_FILE: FileKind.META_PROPERTIES,
    CLEAN_SHUTDOWN_FILE: FileKind.CLEAN_SHUTDOWN,
}


@dataclass(frozen=True, slots=True)
class DumpOptions:
    """What is wanted. Names follow kafka-dump-log's options.

    ``deep_iteration`` shows records, ``print_data_log`` their keys and values too. ``decoder`` None uses the one for
    the topic, which the folder's name tells; naming one shows keys and values. ``verify_index_only`` leaves out entries
    and shows what is wrong with them, ``index_sanity_check`` makes the check of a starting broker.
    """

    deep_iteration: bool = False
    print_data_log: bool = False
    decoder: PayloadDecoder | None = None
    verify_index_only: bool = False
    index_sanity_check: bool = False
    max_bytes: int | None = None

    @property
    def has_payloads(self) -> bool:
        return self.print_data_log or self.decoder is not None


def kind_of_file(path: Path) -> FileKind | None:
    """Return what the file's name says it is; None for files that are not Kafka's."""
    name = path.name
    for suffix in (DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX):
        name = name.removesuffix(suffix)
    if name.endswith(_OFFSET_CHECKPOINT_SUFFIX):
        return FileKind.OFFSET_CHECKPOINT
    if name in _BY_NAME:
        return _BY_NAME[name]
    return _BY_SUFFIX.get(Path(name).suffix) if offset_of_file_name(name) is not None else None


def decoder_for(path: Path, options: DumpOptions) -> PayloadDecoder:
    """Return how to read the segment's records."""
    if options.decoder is not None:
        return options.decoder
    folder = path.absolute().parent.name
    return next((value for start, value in _INTERNAL_DECODERS.items() if folder.startswith(start)), PayloadDecoder.TEXT)


def files_to_dump(path: Path) -> list[Path]:
    """Return the path itself, or for a folder the files in it that can be dumped, by name.

    Raises:
        NotFound: there is no such path. BadRequest: it cannot be read.
    """
    try:
        return _files_to_dump(path)
    except OSError as error:
        raise _unreadable(path, error) from error


def _files_to_dump(path: Path) -> list[Path]:
    if not path.exists():
        raise NotFound("no such file or folder", where=str(path))
    if path.is_dir():
        found = sorted(each for each in path.iterdir() if each.is_file() and kind_of_file(each) is not None)
        if not found:
            hint = "name a log dir, or the folder of a partition in it, such as orders-0"
            raise NotFound("no file of Kafka's log dirs in the folder", where=str(path), hint=hint)
        return found
    return [path]


def dump_file(path: Path, options: DumpOptions | None = None) -> Iterator[Row]:
    """Yield the rows of one file as it is read. What is wrong with the file comes as ``Finding`` rows.

    Raises:
        NotFound: there is no such file. BadRequest: it is not one of Kafka's, or cannot be read.
    """
    if not path.exists():
        raise NotFound("no such file", where=str(path))
    kind = kind_of_file(path)
    if kind is None or path.is_dir():
        raise BadRequest(
            "not a file of Kafka's log dirs",
            where=str(path),
            hint="segments end in .log, indexes in .index, .timeindex or .txnindex, snapshots in .snapshot; "
            "checkpoints, partition.metadata and meta.properties are known by their names",
        )
    try:
        yield from _rows(kind, path, DumpOptions() if options is None else options)
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> BadRequest:
    return BadRequest(f"cannot be read: {error.strerror}", where=str(path))


def _rows(kind: FileKind, path: Path, options: DumpOptions) -> Iterator[Row]:
    index = IndexOptions(options.verify_index_only, options.index_sanity_check)
    match kind:
        case FileKind.SEGMENT:
            has_payloads = options.has_payloads
            segment = SegmentOptions(
                options.deep_iteration or has_payloads, has_payloads, decoder_for(path, options), options.max_bytes
            )
            return dump_segment(path, segment)
        case FileKind.OFFSET_INDEX:
            return dump_offset_index(path, index)
        case FileKind.TIME_INDEX:
            return dump_time_index(path, index)
        case FileKind.TRANSACTION_INDEX:
            return dump_transaction_index(path, index)
        case FileKind.PRODUCER_SNAPSHOT:
            return dump_producer_snapshot(path)
        case FileKind.OFFSET_CHECKPOINT:
            return dump_offset_checkpoint(path)
        case FileKind.LEADER_EPOCH_CHECKPOINT:
            return dump_leader_epoch_checkpoint(path)
        case FileKind.PARTITION_METADATA:
            return dump_partition_metadata(path)
        case FileKind.META_PROPERTIES:
            return dump_meta_properties(path)
        case FileKind.CLEAN_SHUTDOWN:
            return dump_clean_shutdown(path)
