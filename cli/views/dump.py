"""Rows of a dump, printed as they are read: Kafka's lines, or objects, or CSV with a header per kind of row."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path

from cli.framework.stdout import data_stream
from cli.framework.talk import Talk
from cli.output.format import OutputFormat
from cli.output.printer import csv_line, json_text
from cli.output.report import Kind
from cli.output.values import json_value, machine_text
from engine.admin.dump.payloads import PayloadDecoder
from engine.admin.dump.rows import BatchRow, Finding, FindingKind, RecordRow, Row
from engine.admin.dump.text import problem_lines, row_line

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


class DumpPrinter:
    """Prints file after file, each as it is read; only json and yaml, which are one value, wait for the end."""

    def __init__(self, output: OutputFormat, talk: Talk) -> None:
        self._output = output
        self._talk = talk
        self._documents: list[dict[str, object]] = []
        self._problems: list[str] = []
        self._csv_kind: str | None = None
        self.is_damaged = False

    def print_file(self, path: Path, decoder: PayloadDecoder, rows: Iterable[Row]) -> None:
        """Print the rows of one file."""
        findings: list[Finding] = []
        damaged: list[BatchRow] = []
        document: dict[str, object] = {"file": str(path), "rows": []}
        with data_stream() as stream:
            if self._output in (OutputFormat.TABLE, OutputFormat.PLAIN):
                stream.write(f"Dumping {path}\n")
            for row in rows:
                self._note(row, findings, damaged)
                if self._output in (OutputFormat.JSON, OutputFormat.YAML):
                    listed = document["rows"]
                    assert isinstance(listed, list)
                    listed.append(json_value(row))
                else:
                    stream.write(self._text(row, path, decoder))
        self._documents.append(document)
        self._problems += problem_lines(path, findings)
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
        if self._output in (OutputFormat.TABLE, OutputFormat.PLAIN):
            for line in self._problems:
                self._talk.say(line)

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
            value = json_value(row)
            assert isinstance(value, dict)
            return json_text({"file": str(path), **value}, is_indented=False) + "\n"
        if self._output is OutputFormat.CSV:
            return self._csv(row, path)
        line = row_line(row, path, decoder)
        return "" if line is None else f"{line}\n"

    def _csv(self, row: Row, path: Path) -> str:
        names = [field.name for field in fields(row)]
        cells = [_csv_cell(getattr(row, name)) for name in names]
        head = "" if row.kind == self._csv_kind else csv_line(("file", *names))
        self._csv_kind = row.kind
        return head + csv_line((str(path), *cells))


def _csv_cell(value: object) -> str:
    is_structure = isinstance(value, (dict, list))
    return json_text(value, is_indented=False) if is_structure else machine_text(Kind.TEXT, value)
