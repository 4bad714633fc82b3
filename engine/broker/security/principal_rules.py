"""``ssl.principal.mapping.rules``: turn a certificate's subject into the name of a user (KIP-371). Pure."""

from __future__ import annotations

import re
from collections.abc import Callable

from engine.common.errors import ConfigError, RemoteProtocolError

_RULE = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?).*?|(.*?)"
_SPLITTER = re.compile(rf"\s*({_RULE})\s*(,\s*|$)")
_PARSER = re.compile(_RULE)
_ESCAPE_OR_REFERENCE = re.compile(r"\\(.)|\$(\d)|\\", re.DOTALL)
_KEY = "ssl.principal.mapping.rules"

Rule = Callable[[str], str | None]


class PrincipalRules:
    """The rules of a broker, tried in order."""

    def __init__(self, text: str) -> None:
        """Raises ConfigError: a rule is malformed."""
        self._text = text
        self._rules: list[Rule] = []
        for found in _SPLITTER.finditer(text.strip()):
            if found[1]:
                self._rules.append(_rule(found[1]))

    def name_of(self, subject: str) -> str:
        """Return the user's name.

        Raises:
            RemoteProtocolError: no rule fits, so that nobody knows who this is.
        """
        for rule in self._rules:
            name = rule(subject)
            if name is not None:
                return name
        raise RemoteProtocolError(f"{_KEY} has no rule that fits the certificate of {subject}")


def _rule(text: str) -> Rule:
    match = _PARSER.fullmatch(text)
    if match is None or match[5]:
        raise ConfigError(f"{_KEY}: `{text}` is no rule. Write RULE:pattern/replacement/ or DEFAULT", key=_KEY)
    if match[1]:
        return lambda subject: subject
    try:
        pattern = re.compile(match[2])
    except re.error as error:
        raise ConfigError(f"{_KEY}: the pattern of `{text}` is malformed: {error}", key=_KEY) from None
    replacement, case = _python_replacement(match[3], pattern.groups), match[4]

    def apply(subject: str) -> str | None:
        if pattern.fullmatch(subject) is None:
            return None
        name = pattern.sub(replacement, subject)
        return name.lower() if case == "L" else name.upper() if case == "U" else name

    return apply


def _python_replacement(text: str, groups: int) -> str:
    """Return Java's replacement in Python's notation; a reference to a group that does not exist is text."""

    def translated(found: re.Match[str]) -> str:
        if found[2] is None:
            return (found[1] or "").replace("\\", "\\\\")
        return f"\\g<{found[2]}>" if int(found[2]) <= groups else found[0]

    return _ESCAPE_OR_REFERENCE.sub(translated, text)
