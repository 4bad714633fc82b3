"""Prints a report on stdout in the format that the user asked for. Each printer loads its library on first use."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import TextIO

from cli.output.format import OutputFormat, is_terminal
from cli.output.report import Fields, Kind, Report, Section, Table
from cli.output.values import RIGHT, escape_controls, escape_for_terminal, human_text, json_value, machine_text
from engine.common.collection import collector_paused
from engine.common.metric import prometheus_lines

_encoded = json.JSONEncoder(ensure_ascii=False).encode
_SHORT_LIST = 16
_JUST_NUMBERS = {int}
_CSV_BYTES = 64 * 1024


def print_report(report: Report, output: OutputFormat, stream: TextIO) -> None:
    """Write the whole report to ``stream``."""
    if output is OutputFormat.TABLE:
        from cli.output.terminal_tables import print_sections

        print_sections(report, stream)
        return
    lines = _lines(report, output)
    stream.writelines(map(escape_for_terminal, lines) if is_terminal(stream) else lines)


def json_text(data: object, *, is_indented: bool = True) -> str:
    """Return ``data`` as JSON without a line end. Indented, a list of plain values stays on one line."""
    with collector_paused():
        value = json_value(data)
        return _indented(value, "") if is_indented else _encoded(value)


def plain_line(cells: Iterable[str]) -> str:
    """Return one tab-separated line; an empty cell is a dash, so that words can be counted."""
    return "\t".join(escape_controls(cell) or "-" for cell in cells) + "\n"


def csv_line(cells: Iterable[str]) -> str:
    """Return one line of CSV (RFC 4180 quoting, line feed at the end)."""
    import csv

    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(list(cells))
    return line.getvalue()


def _lines(report: Report, output: OutputFormat) -> Iterator[str]:
    match output:
        case OutputFormat.JSON:
            yield json_text(report.data) + "\n"
        case OutputFormat.JSONL:
            items = report.data if isinstance(report.data, (list, tuple)) else [report.data]
            for item in items:
                yield json_text(item, is_indented=False) + "\n"
        case OutputFormat.YAML:
            yield _yaml_text(report.data)
        case OutputFormat.CSV:
            yield from _csv_lines(report.table)
        case OutputFormat.MARKDOWN:
            yield from _markdown_lines(report)
        case OutputFormat.PROMETHEUS:
            yield from prometheus_lines(report.metrics)
        case _:
            yield from _plain_lines(report.table)


def _markdown_lines(report: Report) -> Iterator[str]:
    """Yield what a person sees on a terminal: titles, lines of text and GitHub's tables, a blank line between them."""
    sections = report.sections or (Section(body=report.table),)
    parts = [part for section in sections for part in _markdown_parts(section)]
    yield "\n\n".join(parts) + "\n" if parts else ""


def _markdown_parts(section: Section) -> Iterator[str]:
    from tabulate import tabulate

    if section.title is not None:
        yield f"### {_markdown_text(section.title)}"
    if section.text:
        yield "\n".join(f"{_markdown_text(line)}  " for line in section.text).rstrip()
    if isinstance(section.body, Fields):
        rows = [[_markdown_text(name), _markdown_cell(Kind.TEXT, value)] for name, value in section.body.pairs]
        yield tabulate(rows, headers=("", ""), tablefmt="pipe", disable_numparse=True)
    elif section.body is not None and section.body.rows:
        columns = section.body.columns
        rows = [
            [_markdown_cell(c.kind, value) for c, value in zip(columns, row, strict=True)] for row in section.body.rows
        ]
        align = ["right" if c.kind in RIGHT else "left" for c in columns]
        headings = [_markdown_text(c.heading) for c in columns]
        yield tabulate(rows, headings, tablefmt="pipe", disable_numparse=True, colalign=align)


def _markdown_cell(kind: Kind, value: object) -> str:
    return _markdown_text(human_text(kind, value))


def _markdown_text(text: str) -> str:
    """Return text in which nothing is taken for markup: names of topics have underscores, regular expressions stars."""
    return re.sub(r"([\\`*_{}\[\]<>|#])", r"\\\1", escape_controls(text))


def _indented(value: object, indent: str) -> str:
    deeper = indent + "  "
    if isinstance(value, dict) and value:
        lines = [f"{deeper}{_encoded_key(key)}: {_short(v) or _indented(v, deeper)}" for key, v in value.items()]
        return "{\n" + ",\n".join(lines) + f"\n{indent}}}"
    if isinstance(value, list) and any(isinstance(item, (dict, list)) for item in value):
        return "[\n" + ",\n".join([f"{deeper}{_indented(item, deeper)}" for item in value]) + f"\n{indent}]"
    return _encoded(value)


def _short(value: object) -> str | None:
    """Return numbers and short lists of them, most of a large answer, without asking the encoder."""
    if type(value) is int:
        return str(value)
    if isinstance(value, list) and len(value) < _SHORT_LIST and set(map(type, value)) <= _JUST_NUMBERS:
        return _encoded_ids(tuple(value))
    return "null" if value is None else None


@lru_cache(maxsize=8192)
def _encoded_ids(ids: tuple[int, ...]) -> str:
    return f"[{', '.join(map(str, ids))}]"


@lru_cache(maxsize=1024)
def _encoded_key(key: str) -> str:
    return _encoded(key)


def _plain_lines(table: Table) -> Iterator[str]:
    shown = [index for index, column in enumerate(table.columns) if column.in_plain]
    for row in table.rows:
        yield plain_line(machine_text(table.columns[i].kind, row[i]) for i in shown)


def _cells(table: Table, row: Sequence[object]) -> list[str]:
    return [machine_text(column.kind, value) for column, value in zip(table.columns, row, strict=True)]


def _csv_lines(table: Table) -> Iterator[str]:
    import csv

    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow([column.name for column in table.columns])
    for row in table.rows:
        writer.writerow(_cells(table, row))
        if written.tell() > _CSV_BYTES:
            yield written.getvalue()
            written.seek(0)
            written.truncate()
    yield written.getvalue()


def _yaml_text(data: object) -> str:
    import yaml

    # libyaml writes the same four times faster, where it is installed.
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    with collector_paused():
        text: str = yaml.dump(json_value(data), Dumper=dumper, sort_keys=False, allow_unicode=True, width=4096)
    return text
