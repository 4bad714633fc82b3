"""``meta.properties`` in a log dir: the broker and cluster that own the dir (version 0: ZooKeeper mode)."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from engine.common.errors import ConfigError, CorruptFileError
from engine.kafka.config.properties import format_properties, parse_properties

META_PROPERTIES_FILE = "meta.properties"


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """The file's content. Missing keys are None; ``directory_id`` comes from clusters that began a KRaft migration."""

    version: int = 0
    broker_id: int | None = None
    cluster_id: str | None = None
    directory_id: str | None = None


def encode_meta_properties(properties: MetaProperties, now_ms: int) -> str:
    """Return the file's text as Kafka 3.9 writes it: an empty comment line, the date, the keys."""
    date = time.strftime("%a %b %d %H:%M:%S UTC %Y", time.gmtime(now_ms / 1000))
    pairs: dict[str, str] = {}
    if properties.broker_id is not None:
        pairs["broker.id" if properties.version == 0 else "node.id"] = str(properties.broker_id)
    if properties.directory_id is not None:
        pairs["directory.id"] = properties.directory_id
    pairs["version"] = str(properties.version)
    if properties.cluster_id is not None:
        pairs["cluster.id"] = properties.cluster_id
    return f"#\n#{date}\n" + format_properties(pairs)


def decode_meta_properties(text: str, location: str) -> MetaProperties:
    """Return the file's content. A missing version is version 0.

    Raises:
        CorruptFileError: the version or the id is not a number.
    """
    try:
        pairs = parse_properties(text)
        version = _number(pairs, "version") or 0
        broker_id = _number(pairs, "broker.id" if version == 0 else "node.id")
    except (ValueError, ConfigError) as error:
        raise CorruptFileError(f"Malformed {location}: {error}", path=location) from error
    return MetaProperties(version, broker_id, pairs.get("cluster.id"), pairs.get("directory.id"))


def check_meta_properties(
    by_path: Mapping[str, MetaProperties], *, cluster_id: str | None, broker_id: int | None
) -> tuple[str | None, int | None]:
    """Check that all log dirs belong to this broker of this cluster, in Kafka 3.9's words.

    ``by_path`` has each existing file. If ``cluster_id`` or ``broker_id`` is None, the first file that has
    one decides. Returns both as known afterwards.

    Raises:
        ConfigError: a dir belongs to another cluster or broker, or to a KRaft cluster.
    """
    for path, properties in by_path.items():
        if properties.version != 0:
            raise ConfigError(
                f"Found unexpected version in {path}. ZK-based brokers that are not migrating only support version 0 "
                "(which is implicit when the `version` field is missing).",
                key="log.dirs",
            )
        cluster_id = properties.cluster_id if cluster_id is None else cluster_id
        if properties.cluster_id is not None and properties.cluster_id != cluster_id:
            raise ConfigError(
                f"Invalid cluster.id in: {path}. Expected {cluster_id}, but read {properties.cluster_id}",
                key="log.dirs",
            )
        broker_id = properties.broker_id if broker_id is None else broker_id
        if properties.broker_id is not None and properties.broker_id != broker_id:
            raise ConfigError(
                f"Stored node id {properties.broker_id} doesn't match previous node id {broker_id} in {path}. If you "
                "moved your data, make sure your configured node id matches. If you intend to create a new node, you "
                "should remove all data in your data directories.",
                key="broker.id",
            )
    return cluster_id, broker_id


def _number(pairs: Mapping[str, str], key: str) -> int | None:
    try:
        return int(pairs[key]) if key in pairs else None
    except ValueError as error:
        raise ValueError(f"{key} is {pairs[key]!r}, expected a number") from error
