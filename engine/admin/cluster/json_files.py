"""Reads the JSON files of Kafka's tools: an object with a list of partitions, or of topics. Pure."""

from __future__ import annotations

import json
from typing import Any

from engine.admin.cluster.errors import BadRequest


def parse_document(text: str, where: str, example: str) -> dict[str, Any]:
    """Return the object in a file.

    Raises:
        BadRequest: the file is empty, or no JSON object; ``example`` says how to write one.
    """
    if not text.strip():
        raise BadRequest("the file is empty", where=where, hint=example)
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"not JSON: {error}", where=where, hint=example) from error
    if not isinstance(document, dict):
        raise BadRequest("not a JSON object", where=where, hint=example)
    return document


def check_version(document: dict[str, Any], where: str) -> None:
    """Raise BadRequest if a document has another version than 1, which it need not name."""
    version = document.get("version", 1)
    if version != 1:
        raise BadRequest(f"not supported version field value {json.dumps(version)}", where=where)
