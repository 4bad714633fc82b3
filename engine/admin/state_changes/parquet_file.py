"""Merged rows as a Parquet file, by pyarrow, which comes with the ``spark`` extra and is loaded only here."""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any

from engine.admin.cluster.errors import BadRequest
from engine.admin.state_changes.merged_rows import MergedRow, epoch_ms

_ROWS_PER_GROUP = 50_000


def write_parquet(path: Path, rows: Iterable[MergedRow]) -> int:
    """Write rows to ``path``, which appears only once it is whole; return the number of rows.

    Raises:
        BadRequest: pyarrow is not installed.
        OSError: the file cannot be written.
    """
    arrow, parquet = _pyarrow()
    schema = _schema(arrow)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    count = 0
    source = iter(rows)
    try:
        with parquet.ParquetWriter(str(unfinished), schema, compression="zstd") as writer:
            while group := list(islice(source, _ROWS_PER_GROUP)):
                writer.write_table(arrow.Table.from_arrays(_columns(arrow, schema, group), schema=schema))
                count += len(group)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
    return count


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        hint = "install it with: pip install 'klamm[spark]'"
        raise BadRequest("Parquet needs pyarrow, which is not installed", hint=hint) from None
    return pyarrow, pyarrow.parquet


def _schema(arrow: Any) -> Any:
    return arrow.schema(
        [
            ("time", arrow.timestamp("ms", tz="UTC")),
            ("level", arrow.dictionary(arrow.int32(), arrow.string())),
            ("broker", arrow.int32()),
            ("role", arrow.dictionary(arrow.int32(), arrow.string())),
            ("controller_epoch", arrow.int32()),
            ("topic", arrow.string()),
            ("partition", arrow.int32()),
            ("partitions", arrow.list_(arrow.string())),
            ("message", arrow.string()),
            ("source", arrow.dictionary(arrow.int32(), arrow.string())),
        ]
    )


def _columns(arrow: Any, schema: Any, rows: list[MergedRow]) -> list[Any]:
    values: list[list[Any]] = [
        [epoch_ms(row.utc_start) for row in rows],
        [row.level for row in rows],
        [row.broker for row in rows],
        [row.role for row in rows],
        [row.controller_epoch for row in rows],
        [row.topic for row in rows],
        [row.partition for row in rows],
        [row.partitions for row in rows],
        [row.message for row in rows],
        [row.source for row in rows],
    ]
    return [_array(arrow, column, field.type) for column, field in zip(values, schema, strict=True)]


def _array(arrow: Any, values: list[Any], kind: Any) -> Any:
    if arrow.types.is_dictionary(kind):
        return arrow.array(values, arrow.string()).dictionary_encode().cast(kind)
    return arrow.array(values, kind)
