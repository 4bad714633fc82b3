"""YAML of what ``json_value`` gives: block style, one value a line. PyYAML needs seconds for ten thousand rows.

A text stands bare where no reader could take it for anything else, and otherwise as JSON has it, which is YAML too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import lru_cache

_BARE = re.compile(r"[A-Za-z_/][A-Za-z0-9_./@+-]*(?: [A-Za-z0-9_./@+(-][A-Za-z0-9_./@+()-]*)*")
_WORDS_OF_YAML = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
"""Read as something else than texts, in any mixture of capitals, by some reader or other."""
_UNPRINTABLE = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")
"""Taken as they are by JSON, but not by YAML. The escape of two surrogates for one character is JSON's alone."""
_encoded = json.JSONEncoder(ensure_ascii=False).encode


def yaml_text(value: object) -> str:
    """Return a document of one value, made of dicts, lists, texts, numbers, booleans and None."""
    if isinstance(value, dict | list) and value:
        return "".join(_lines(value, ""))
    return f"{_scalar(value)}\n"


def _lines(value: dict[str, object] | list[object], indent: str, first: str | None = None) -> Iterator[str]:
    """Give the lines of a collection that is not empty; the first of them begins with ``first`` in place of indent."""
    start = indent if first is None else first
    if isinstance(value, dict):
        for key, item in value.items():
            # A list is indented no further than its key, as PyYAML has it.
            yield from _entry(f"{start}{_text(key)}:", item, indent if isinstance(item, list) else f"{indent}  ")
            start = indent
        return
    for item in value:
        if isinstance(item, dict | list) and item:
            yield from _lines(item, f"{indent}  ", f"{start}- ")
        else:
            yield f"{start}- {_scalar(item)}\n"
        start = indent


def _entry(head: str, item: object, indent: str) -> Iterator[str]:
    if isinstance(item, dict | list) and item:
        yield f"{head}\n"
        yield from _lines(item, indent)
    else:
        yield f"{head} {_scalar(item)}\n"


def _scalar(value: object) -> str:
    kind = type(value)
    if kind is int:
        return str(value)
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, float) and value == value and abs(value) != float("inf"):
        # YAML 1.1 wants a dot before an exponent.
        text = repr(value)
        return text if "." in text or "e" not in text else text.replace("e", ".0e")
    if isinstance(value, float):
        return {"nan": ".nan", "inf": ".inf"}.get(str(value), "-.inf")
    # None, a boolean or an empty collection.
    return _encoded(value)


@lru_cache(maxsize=4096)
def _text(value: str) -> str:
    is_bare = _BARE.fullmatch(value) is not None and value.lower() not in _WORDS_OF_YAML
    return value if is_bare else _UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", _encoded(value))
