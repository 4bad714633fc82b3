"""A partition's folder: its name, its topic id, and what a power failure could still undo in it.

It also knows whether the log dir has failed, and turns disk errors into the errors that a log's callers see.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from engine.broker.log.disk_jobs import DirKeeper
from engine.broker.log.small_files import replace_file
from engine.common.errors import ErrorCode, KafkaError
from engine.common.model import TopicPartition
from engine.kafka.formats.partition_metadata import PARTITION_METADATA_FILE, encode_partition_metadata

_PATHS: dict[Path, Path] = {}


def shared_path(log_dir: Path) -> Path:
    """Return the same object for equal log dirs: to compare thousands of paths by their parts takes long."""
    return _PATHS.setdefault(log_dir, log_dir)


class PartitionFolder:
    """The folder of one log. Other classes own the segments, epochs and snapshots in it."""

    __slots__ = (
        "_is_entry_unsynced",
        "_is_metadata_unsynced",
        "_keeper",
        "is_offline",
        "is_unsynced",
        "log_dir",
        "path",
        "topic_id",
        "topic_partition",
    )

    def __init__(self, path: Path, topic_partition: TopicPartition, topic_id: bytes | None, keeper: DirKeeper) -> None:
        self.path = path
        self.log_dir = shared_path(path.parent)
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.is_offline = False
        self.is_unsynced = False
        """Files in it have been created, renamed or removed since a flush last brought it to the disk."""
        self._is_entry_unsynced = False
        """It has been created or renamed since a flush last brought its log dir to the disk."""
        self._is_metadata_unsynced = False
        self._keeper = keeper

    # --- failure

    def check_online(self) -> None:
        """Raise KafkaError KAFKA_STORAGE_ERROR if the log dir has failed."""
        if self.is_offline:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"The log dir {self.log_dir} of {self.topic_partition} is offline due to a previous failure",
            )

    def failed(self, what: str, error: OSError) -> KafkaError:
        """Report that the log dir failed while ``what``, and return what to raise."""
        message = f"Error while {what} for {self.topic_partition} in dir {self.log_dir}: {error.strerror or error}"
        self._keeper.fail_dir(self.log_dir, message, error)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, message)

    @contextmanager
    def reporting(self, what: str) -> Iterator[None]:
        """Report an OSError, and raise KafkaError KAFKA_STORAGE_ERROR for it. Not for the hot path."""
        try:
            yield
        except OSError as error:
            raise self.failed(what, error) from error

    # --- name and topic id

    def write_topic_id(self, topic_id: bytes) -> None:
        """Note the topic id in the folder. Raises OSError."""
        replace_file(self.path / PARTITION_METADATA_FILE, encode_partition_metadata(topic_id), sync=False)
        self.topic_id = topic_id
        self._is_metadata_unsynced = True

    def rename(self, name: str) -> None:
        """Rename the folder within its log dir. Raises OSError."""
        target = self.log_dir / name
        self.path.rename(target)
        self.path = target

    # --- what the disk does not know yet

    def nothing_is_synced(self) -> None:
        """Assume that nothing in the folder is on disk, whatever a running flush achieves."""
        self._is_metadata_unsynced = self.is_unsynced = self._is_entry_unsynced = True

    def take_unsynced(self, changed: list[Path]) -> list[Path]:
        """Return ``changed`` and the parts of the folder that are not on disk; from now on they count as if they
        were.
        """
        paths = list(changed)
        if self._is_metadata_unsynced:
            paths.append(self.path / PARTITION_METADATA_FILE)
            self._is_metadata_unsynced = False
        if paths or self.is_unsynced:
            paths.append(self.path)
            self.is_unsynced = False
        if self._is_entry_unsynced:
            paths.append(self.log_dir)
            self._is_entry_unsynced = False
        return paths
