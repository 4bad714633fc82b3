"""Checks the JSON that commands print against the schemas that the reference publishes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from golden import Seen
from jsonschema import Draft202012Validator

SCHEMAS = Path(__file__).parents[3] / "docs" / "reference" / "cli.schema.json"


def check_json(name: str, seen: Seen) -> None:
    """Check output against the definition called ``name``; for ``error``, the last line of stderr.

    A key that is not in the schema is an error here, although readers must tolerate more.
    """
    text = seen.err.splitlines()[-1] if name == "error" else seen.out
    schema = json.loads(SCHEMAS.read_text("utf-8"))
    assert name in schema["$defs"], f"no schema for {name}"
    strict = {"$defs": _closed(schema["$defs"]), "$ref": f"#/$defs/{name}"}
    found = [
        f"{error.json_path}: {error.message}" for error in Draft202012Validator(strict).iter_errors(json.loads(text))
    ]
    assert found == [], found[:5]


def _closed(schema: Any) -> Any:
    """Return a schema in which objects with named properties have no others."""
    if isinstance(schema, dict):
        closed = {key: _closed(value) for key, value in schema.items()}
        if "properties" in schema and "additionalProperties" not in schema and isinstance(schema["properties"], dict):
            closed["additionalProperties"] = False
        return closed
    return [_closed(part) for part in schema] if isinstance(schema, list) else schema
