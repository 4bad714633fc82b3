"""What operations on Spark have written."""

from __future__ import annotations

from cli.output.report import Column, Kind, Report, Table
from engine.spark.log_merge import MergeResult

_PARTS = (Column("path"), Column("size_bytes", Kind.NUMBER))


def merge_report(result: MergeResult) -> Report:
    """A row for each part, in reading order."""
    rows = [(str(path), path.stat().st_size) for path in result.parts]
    value = [{"path": path, "size_bytes": size} for path, size in rows]
    why = () if result.reason is None else (f"merged by one task: {result.reason}",)
    return Report(value, Table(_PARTS, rows), notes=(f"merged {result.size_bytes} bytes", *why))
