"""Rows of a dump, printed as they are read: Kafka's lines, or objects, or CSV with a header per kind of row.

Times are readable everywhere but in a pipe and under Kafka's name, where scripts expect the lines of its tool.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from datetime import datetime
from pathlib import Path

from cli.framework.stdout import data_stream
from cli.framework.talk import Talk
from cli.output.format import OutputFormat
from cli.output.printer import csv_line, json_text
from cli.output.report import Kind
from cli.output.values import iso_time, json_value, machine_text
from engine.admin.dump.payloads import PayloadDecoder
from engine.admin.dump.rows import (
    FINDINGS_OF_TIMES,
    BatchRow,
    Finding,
    FindingKind,
    RecordRow,
    Row,
    problem_lines,
    row_line,
)
from engine.common.moments import calendar_time
from engine.kafka.protocol.records.layout import NO_TIMESTAMP

_DAMAGE = frozenset(
    {
        FindingKind.CORRUPT,
        FindingKind.TRAILING_BYTES,
        FindingKind.INDEX_MISMATCH,
        FindingKind.OFFSET_NOT_FOUND,
        FindingKind.TIMESTAMP_MISMATCH,
        FindingKind.TIMESTAMP_OUT_OF_ORDER,
    }
)
"""Findings that no sound file has; a compacted one has holes between its offsets."""
_LINES = (OutputFormat.TABLE, OutputFormat.PLAIN, OutputFormat.KAFKA)


class DumpPrinter:
    """Prints file after file, each as it is read; only json and yaml, which are one value, wait for the end."""

    def __init__(self, output: OutputFormat, talk: Talk) -> None:
        self._output = output
        self._time_text = _readable if output is OutputFormat.TABLE else str
        self._talk = talk
        self._documents: list[dict[str, object]] = []
        self._problems: list[str] = []
        self._csv_kind: str | None = None
        self.is_damaged = False

    def print_file(self, path: Path, decoder: PayloadDecoder, rows: Iterable[Row]) -> None:
        findings: list[Finding] = []
        damaged: list[BatchRow] = []
        document: dict[str, object] = {"file": str(path), "rows": []}
        with data_stream() as stream:
            if self._output in _LINES:
                stream.write(f"Dumping {path}\n")
            for row in rows:
                self._note(row, findings, damaged)
                if self._output in (OutputFormat.JSON, OutputFormat.YAML):
                    listed = document["rows"]
                    assert isinstance(listed, list)
                    listed.append(json_value(_named_values(row)))
                else:
                    stream.write(self._text(row, path, decoder))
        self._documents.append(document)
        self._problems += problem_lines(path, findings, time_text=self._time_text)
        if damaged:
            at = f"the first at offset {damaged[0].base_offset}, position {damaged[0].position}"
            batches = "1 batch" if len(damaged) == 1 else f"{len(damaged)} batches"
            self._problems.append(f"{path}: {batches} with a wrong checksum, {at}")

    def end(self) -> None:
        """Print what had to wait for the end: a single document, or the problems of all files."""
        with data_stream() as stream:
            if self._output is OutputFormat.JSON:
                stream.write(json_text(self._documents) + "\n")
            elif self._output is OutputFormat.YAML:
                import yaml

                stream.write(yaml.safe_dump(self._documents, sort_keys=False, allow_unicode=True, width=4096))
        if self._output in _LINES:
            for line in self._problems:
                self._talk.remind(line)

    def _note(self, row: Row, findings: list[Finding], damaged: list[BatchRow]) -> None:
        if isinstance(row, Finding):
            findings.append(row)
            self.is_damaged = self.is_damaged or row.finding in _DAMAGE
        elif isinstance(row, (BatchRow, RecordRow)):
            self.is_damaged = self.is_damaged or row.is_valid is False
            if isinstance(row, BatchRow) and row.is_valid is False:
                damaged.append(row)

    def _text(self, row: Row, path: Path, decoder: PayloadDecoder) -> str:
        if self._output is OutputFormat.JSONL:
            return json_text(json_value({"file": path, **_named_values(row)}), is_indented=False) + "\n"
        if self._output is OutputFormat.CSV:
            return self._csv(row, path)
        line = row_line(row, path, decoder, time_text=self._time_text)
        return "" if line is None else f"{line}\n"

    def _csv(self, row: Row, path: Path) -> str:
        values = _named_values(row)
        head = "" if row.kind == self._csv_kind else csv_line(("file", *values))
        self._csv_kind = row.kind
        return head + csv_line((str(path), *map(_csv_cell, values.values())))


def _named_values(row: Row) -> dict[str, object]:
    """Return a row's fields with times in place of milliseconds."""
    values = {field.name: getattr(row, field.name) for field in fields(row)}
    if isinstance(row, Finding) and row.finding in FINDINGS_OF_TIMES:
        return values | {"subject": _time(row.subject), "found": _time(row.found)}
    return {name.removesuffix("_ms"): _time(value) if name.endswith("_ms") else value for name, value in values.items()}


def _time(time_ms: int | None) -> datetime | int | None:
    return None if time_ms is None or time_ms == NO_TIMESTAMP else calendar_time(time_ms)


def _readable(time_ms: int) -> str:
    time = _time(time_ms)
    return iso_time(time) if isinstance(time, datetime) else str(time_ms)


def _csv_cell(value: object) -> str:
    is_structure = isinstance(value, (dict, list))
    return json_text(value, is_indented=False) if is_structure else machine_text(Kind.TEXT, value)
