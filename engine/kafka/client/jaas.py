"""JAAS as Kafka's clients read it: the property ``sasl.jaas.config``, and files with named sections.

The tokens are those of Java's ``StreamTokenizer``: words, quoted texts with backslash escapes, signs, ``//`` and
``/* */`` comments. A quoted text ends with its line at the latest, a comment with the file.
"""

from __future__ import annotations

import re
import shlex
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from engine.common.errors import ConfigError

_TOKEN = re.compile(
    r"""(?P<skip>\s+|//[^\n]*|/\*.*?(?:\*/|\Z))
    |"(?P<double>(?:\\.|[^"\\\n])*)"?
    |'(?P<single>(?:\\.|[^'\\\n])*)'?
    |(?P<word>[A-Za-z_$*\-\u00a0-\uffff][\w$*.\-\u00a0-\uffff]*)
    |(?P<sign>.)""",
    re.DOTALL | re.VERBOSE,
)
_ESCAPE = re.compile(r"\\([0-3]?[0-7]{1,2}|.)", re.DOTALL)
_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_FLAGS = ("required", "requisite", "sufficient", "optional")


@dataclass(frozen=True, slots=True)
class LoginModule:
    """One login module. Its options hold passwords and stay out of ``repr``."""

    class_name: str
    flag: str
    options: Mapping[str, str] = field(repr=False)


_Token = tuple[str, str]
"""Its kind (``text``, or ``sign`` for what is neither a word nor quoted) and its content."""


def parse_jaas_config(text: str) -> LoginModule:
    """Read the value of ``sasl.jaas.config``, which names exactly one login module.

    Raises:
        ConfigError: the value is malformed; the message repeats no value.
    """
    tokens = _tokens(text)
    module = _module(tokens)
    if tokens:
        raise ConfigError("sasl.jaas.config names more than one login module")
    return module


def parse_jaas_file(text: str) -> dict[str, list[LoginModule]]:
    """Read a JAAS file: login modules by section name, such as ``KafkaClient``.

    Raises:
        ConfigError: the text is malformed; the message repeats no value.
    """
    tokens = _tokens(text)
    sections: dict[str, list[LoginModule]] = {}
    while tokens:
        name = _expect_text(tokens, "the name of a section")
        _expect_sign(tokens, "{", f"after {name}")
        modules = sections.setdefault(name, [])
        while tokens and tokens[0] != ("sign", "}"):
            modules.append(_module(tokens))
        _expect_sign(tokens, "}", f"at the end of {name}")
        _expect_sign(tokens, ";", f"at the end of {name}")
    return sections


def java_properties(environment: Mapping[str, str]) -> dict[str, str]:
    """Return Java's system properties that ``KAFKA_OPTS`` sets; as in Java, the last of a name counts."""
    options = shlex.split(environment.get("KAFKA_OPTS", ""))
    pairs = (option.removeprefix("-D").partition("=") for option in options if option.startswith("-D"))
    return {name: value for name, _, value in pairs}


JAAS_FILE_PROPERTY = "java.security.auth.login.config"


def jaas_section(named: Path | None, environment: Mapping[str, str], section: str) -> list[LoginModule] | None:
    """Return a section of the JAAS file, which is ``named`` or else the one of ``KAFKA_OPTS``.

    None means that there is no such file; a file without the section gives an empty list.

    Raises:
        ConfigError: the file cannot be read, or is malformed.
    """
    path, origin = named, ""
    if path is None:
        path_text = java_properties(environment).get(JAAS_FILE_PROPERTY)
        if not path_text:
            return None
        path, origin = Path(path_text.removeprefix("file:")), "that KAFKA_OPTS names "
    try:
        return parse_jaas_file(path.read_text(encoding="utf-8-sig")).get(section, [])
    except OSError as error:
        raise ConfigError(f"the JAAS file {origin}cannot be read ({error.strerror}): {path}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"the JAAS file {origin}is not text: {path}") from None
    except ConfigError as error:
        raise ConfigError(f"{error}: {path}") from None


def _module(tokens: deque[_Token]) -> LoginModule:
    """Take one login module from the tokens."""
    class_name = _expect_text(tokens, "a login module's class")
    flag = _expect_text(tokens, "a control flag")
    if flag.lower() not in _FLAGS:
        raise ConfigError(f"JAAS: the control flag after a login module's class is not one of {', '.join(_FLAGS)}")
    options: dict[str, str] = {}
    while tokens and tokens[0] != ("sign", ";"):
        key = _expect_text(tokens, "an option's name")
        if len(tokens) < 2 or tokens.popleft() != ("sign", "=") or tokens[0][0] != "text":
            # The name may be the rest of a password.
            raise ConfigError(
                f"JAAS: option {len(options) + 1} has no value: put values that are no plain words into quotes"
            )
        options[key] = tokens.popleft()[1]
    _expect_sign(tokens, ";", "at the end of the login module")
    return LoginModule(class_name, flag.lower(), options)


def _tokens(text: str) -> deque[_Token]:
    tokens: deque[_Token] = deque()
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup
        if kind in ("double", "single"):
            tokens.append(("text", _ESCAPE.sub(_unescaped, match[kind])))
        elif kind == "word":
            tokens.append(("text", match["word"]))
        elif kind == "sign":
            tokens.append(("sign", match["sign"]))
    return tokens


def _unescaped(match: re.Match[str]) -> str:
    escape = match[1]
    return chr(int(escape, 8)) if escape[0] in "01234567" else _ESCAPES.get(escape, escape)


def _expect_text(tokens: deque[_Token], expected: str) -> str:
    if not tokens or tokens[0][0] != "text":
        raise ConfigError(f"JAAS: {expected} is missing")
    return tokens.popleft()[1]


def _expect_sign(tokens: deque[_Token], sign: str, where: str) -> None:
    if not tokens or tokens.popleft() != ("sign", sign):
        raise ConfigError(f"JAAS: '{sign}' is missing {where}")
