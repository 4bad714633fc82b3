"""Which records somebody wants to see, by regular expressions on key, value and headers. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from engine.admin.cluster.errors import BadRequest

Headers = Sequence[tuple[str, bytes | None]]
RecordFilter = Callable[[bytes | None, bytes | None, Headers], bool]

_FORM = re.compile(r"(key|value|header\.[^=]+)=(.*)", re.DOTALL)


def parse_record_filter(text: str) -> RecordFilter:
    """Return a check of key, value and headers; the regular expression may match anywhere in them.

    Forms: ``REGEX`` (of key or value), ``key=REGEX``, ``value=REGEX``, ``header.NAME=REGEX``.

    Raises:
        BadRequest: it is not a regular expression.
    """
    form = _FORM.fullmatch(text)
    field, pattern_text = (form[1], form[2]) if form is not None else ("", text)
    try:
        pattern = re.compile(pattern_text.encode())
    except re.error as error:
        raise BadRequest(f"not a regular expression: {pattern_text!r} ({error})") from error

    def matches(data: bytes | None) -> bool:
        return data is not None and pattern.search(data) is not None

    if field == "key":
        return lambda key, value, headers: matches(key)
    if field == "value":
        return lambda key, value, headers: matches(value)
    if field:
        name = field.removeprefix("header.")
        return lambda key, value, headers: any(matches(data) for header, data in headers if header == name)
    return lambda key, value, headers: matches(key) or matches(value)
