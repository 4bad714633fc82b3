"""A table written for other programs: CSV and JSON, exact values, all columns, the visible rows. Pure."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from enum import Enum
from typing import Any

from engine.common.model import TopicPartition
from tui.cells import Column


def as_csv(columns: Sequence[Column], items: Sequence[Any]) -> str:
    """Return a header and a line per row; what is not known is empty, lists have commas."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([column.name for column in columns])
    writer.writerows([_csv_cell(_value(column.value(item))) for column in columns] for item in items)
    return out.getvalue()


def as_json(columns: Sequence[Column], items: Sequence[Any]) -> str:
    """Return a list of objects, one per row, with a key per column."""
    rows = [{column.name: _value(column.value(item)) for column in columns} for item in items]
    return json.dumps(rows, ensure_ascii=False, indent=2) + "\n"


def _value(value: Any) -> Any:
    match value:
        case Enum():
            return value.value
        case TopicPartition():
            return str(value)
        case tuple() | list():
            return [_value(one) for one in value]
        case set() | frozenset():
            return sorted(_value(one) for one in value)
        case None | bool() | int() | float() | str():
            return value
    return str(value)


def _csv_cell(value: Any) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case list():
            return ",".join(map(str, value))
    return str(value)
