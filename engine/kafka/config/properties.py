"""Java's ``.properties`` files: what ``java.util.Properties`` reads and writes. Text in, mapping out; no files.

The rules: ``#`` and ``!`` start a comment line; a key ends at the first unescaped ``=``, ``:`` or blank; a line that
ends in an odd number of backslashes continues in the next one; ``\\n \\t \\r \\f \\uXXXX`` are escapes, any other
backslash is dropped; if a key occurs twice, the last value counts. The caller decides a file's encoding: Kafka reads
ISO 8859-1 and has escapes for the rest.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from engine.common.errors import ConfigError

_BLANKS = " \t\f"
_LINE_END = re.compile(r"\r\n|\r|\n")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}
_ESCAPED = {"\n": "\\n", "\t": "\\t", "\r": "\\r", "\f": "\\f"} | {sign: f"\\{sign}" for sign in "\\=:#!"}
_UNICODE_DIGITS = re.compile(r"[0-9a-fA-F]{4}")


def parse_override(text: str) -> tuple[str, str]:
    """Read one ``--override key=value``.

    Raises:
        ConfigError: there is no ``=`` or no key.
    """
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"An override is written key=value, not '{text}'.")
    return key.strip(), value.strip()


def parse_properties(text: str) -> dict[str, str]:
    """Return the keys and values of a file's text, in the order of first appearance.

    Raises:
        ConfigError: a ``\\u`` is not followed by four hexadecimal digits.
    """
    properties: dict[str, str] = {}
    for line_number, line in _logical_lines(text):
        key, value = _split(line)
        try:
            properties[_unescape(key)] = _unescape(value)
        except ValueError as error:
            raise ConfigError(f"Line {line_number}: {error}") from error
    return properties


def format_properties(properties: Mapping[str, str]) -> str:
    """Return a file's text that reads back as ``properties``, in ASCII."""
    lines = [f"{_escape(key, is_key=True)}={_escape(value, is_key=False)}" for key, value in properties.items()]
    return "".join(f"{line}\n" for line in lines)


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    started: list[str] = []
    first_number = 1
    for number, natural in enumerate(_LINE_END.split(text), start=1):
        line = natural.lstrip(_BLANKS)
        if not started:
            first_number = number
            if not line or line[0] in "#!":
                continue
        if _is_continued(line):
            started.append(line[:-1])
            continue
        yield first_number, "".join([*started, line])
        started = []
    if "".join(started):
        yield first_number, "".join(started)


def _is_continued(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _split(line: str) -> tuple[str, str]:
    position = 0
    while position < len(line) and line[position] not in "=: \t\f":
        position += 2 if line[position] == "\\" else 1
    key, rest = line[:position], line[position:].lstrip(_BLANKS)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANKS)
    return key, rest


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    units: list[str] = []
    position = 0
    while position < len(text):
        character = text[position]
        position += 1
        if character != "\\" or position == len(text):
            units.append(character if character != "\\" else "")
            continue
        escape = text[position]
        position += 1
        if escape == "u":
            digits = text[position : position + 4]
            if not _UNICODE_DIGITS.fullmatch(digits):
                raise ValueError("Malformed \\uxxxx encoding.")
            units.append(chr(int(digits, 16)))
            position += 4
        else:
            units.append(_ESCAPES.get(escape, escape))
    return "".join(units).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _escape(text: str, *, is_key: bool) -> str:
    written: list[str] = []
    for position, character in enumerate(text):
        if character == " " and (is_key or position == 0):
            written.append("\\ ")
        elif character in _ESCAPED:
            written.append(_ESCAPED[character])
        elif " " <= character <= "~":
            written.append(character)
        else:
            units = character.encode("utf-16-be", "surrogatepass")
            written.extend(f"\\u{units[i]:02X}{units[i + 1]:02X}" for i in range(0, len(units), 2))
    return "".join(written)
