"""What a command shows in every place: terminals of two widths, with and without colour, and a pipe.

A golden file is a transcript of one command. KLAMM_WRITE_GOLDEN=1 writes it; review it before you keep it.
``check_json`` compares JSON with the schemas that the reference publishes, ``check_report`` does both for a report that
no command made.
"""

from __future__ import annotations

import io
import json
import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from cli.framework.invocation import Invocation
from cli.framework.talk import Talk
from cli.main import main
from cli.output.format import OutputFormat, default_format, is_terminal
from cli.output.printer import json_text, print_report
from cli.output.report import Report

GOLDEN = Path(__file__).parents[3] / "fixtures" / "cli"
_ESCAPE = "\x1b"
_SHOWN_ESCAPE = "␛"
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class Terminal(io.StringIO):
    """A stream that claims to be a terminal."""

    def isatty(self) -> bool:
        return True

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return "utf-8"


@dataclass(frozen=True)
class Seen:
    """The output of one run."""

    code: int
    out: str
    err: str


def on_terminal(run: Callable[[], int], monkeypatch: pytest.MonkeyPatch, width: int, **env: str) -> Seen:
    """Run with both streams on a terminal of ``width`` columns."""
    return _run(run, monkeypatch, Terminal, {"COLUMNS": str(width), "TERM": "xterm-256color"} | env)


def in_pipe(run: Callable[[], int], monkeypatch: pytest.MonkeyPatch) -> Seen:
    """Run with both streams in a pipe."""
    return _run(run, monkeypatch, io.StringIO, {})


def _run(
    run: Callable[[], int], monkeypatch: pytest.MonkeyPatch, stream: type[io.StringIO], env: Mapping[str, str]
) -> Seen:
    with monkeypatch.context() as patch:
        for name in ("COLUMNS", "NO_COLOR", "TERM"):
            patch.delenv(name, raising=False)
        for name, value in env.items():
            patch.setenv(name, value)
        out, err = stream(), stream()
        patch.setattr(sys, "stdin", io.StringIO())
        patch.setattr(sys, "stdout", out)
        patch.setattr(sys, "stderr", err)
        code = run()
    return Seen(code, out.getvalue(), err.getvalue())


def command(*words: str | Path) -> Callable[[], int]:
    """Return a run of ``klamm`` with these words."""
    return lambda: main([str(word) for word in words])


def check_text(path: Path, text: str) -> None:
    """Compare with a golden file, or write it."""
    if os.environ.get("KLAMM_WRITE_GOLDEN"):
        path.write_text(text, "utf-8")
    assert text == path.read_text("utf-8")


def check_golden(
    scene: str, run: Callable[[], int], monkeypatch: pytest.MonkeyPatch, masks: Mapping[str, str] | None = None
) -> None:
    """Compare everything that a command shows with ``fixtures/cli/<scene>.txt``.

    No line is wider than its terminal, and the text is the same with and without colour.
    """
    narrow, wide = (on_terminal(run, monkeypatch, width, NO_COLOR="1") for width in (80, 140))
    coloured, piped = on_terminal(run, monkeypatch, 80), in_pipe(run, monkeypatch)
    parts = [
        ("80 columns", narrow.out),
        ("140 columns", "" if wide.out == narrow.out else wide.out),
        ("80 columns, in colour", "" if coloured.out == narrow.out else coloured.out.replace(_ESCAPE, _SHOWN_ESCAPE)),
        ("a pipe", piped.out),
        ("stderr in a pipe", piped.err),
    ]
    text = "".join(f"== {title}\n{body}" for title, body in parts if body) + f"== code {piped.code}\n"
    for secret, mask in (masks or {}).items():
        text = text.replace(secret, mask)
    check_text(GOLDEN / f"{scene}.txt", text)
    assert _plain(coloured.out) == narrow.out
    assert _COLOURS.sub("", coloured.err) == narrow.err
    assert _ESCAPE not in narrow.out + wide.out + piped.out + narrow.err + piped.err
    for seen, width in ((narrow, 80), (wide, 140)):
        # A reassignment file is one line, however long.
        assert all(len(line) <= width for line in seen.out.splitlines() if not line.startswith("{"))
    assert {narrow.code, wide.code, coloured.code, piped.code} == {piped.code}


def _plain(text: str) -> str:
    return "".join(f"{line.rstrip(' ')}\n" for line in _COLOURS.sub("", text).splitlines())


SCHEMAS = Path(__file__).parents[3] / "docs" / "reference" / "cli.schema.json"


def check_json(name: str, seen: Seen) -> None:
    """Check output against the definition called ``name``; for ``error``, the last line of stderr.

    A key that is not in the schema is an error here, although readers must tolerate more.
    """
    text = seen.err.splitlines()[-1] if name == "error" else seen.out
    schema = json.loads(SCHEMAS.read_text("utf-8"))
    assert name in schema["$defs"], f"no schema for {name}"
    strict = {"$defs": _closed(schema["$defs"]), "$ref": f"#/$defs/{name}"}
    errors = [
        f"{error.json_path}: {error.message}" for error in Draft202012Validator(strict).iter_errors(json.loads(text))
    ]
    assert errors == [], errors[:5]


def check_report(scene: str, name: str, report: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check what a command that returns this report prints: in every place, and as JSON."""

    def run() -> int:
        output = default_format(is_terminal=is_terminal(sys.stdout))
        Invocation(output=output, talk=Talk()).print(report)
        return report.exit_code

    check_golden(scene, run, monkeypatch)
    check_json(name, Seen(report.exit_code, json_text(report.data), ""))


def printed(report: Report, output: OutputFormat) -> str:
    """Return what is printed of a report in this format; as a table, without a terminal."""
    stream = io.StringIO()
    print_report(report, output, stream)
    return stream.getvalue()


def _closed(schema: Any) -> Any:
    """Return a schema in which objects with named properties have no others."""
    if isinstance(schema, dict):
        closed = {key: _closed(value) for key, value in schema.items()}
        if "properties" in schema and "additionalProperties" not in schema and isinstance(schema["properties"], dict):
            closed["additionalProperties"] = False
        return closed
    return [_closed(part) for part in schema] if isinstance(schema, list) else schema


def paths_in(value: object) -> set[str]:
    """Return the names of what stands in JSON, alone and after those that it stands in; lists add none."""
    if isinstance(value, list):
        return set[str]().union(*map(paths_in, value))
    if not isinstance(value, dict):
        return set()
    below = {name: paths_in(inner) for name, inner in value.items()}
    return {*below, *(f"{name}_{path}" for name, paths in below.items() for path in paths)}.union(*below.values())
