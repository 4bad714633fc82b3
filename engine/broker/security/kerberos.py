"""The server's side of GSSAPI (RFC 4752) by the library ``gssapi``, and Kafka's short names of Kerberos principals."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from engine.broker.security.sasl_mechanisms import LoggedIn, LoginRefused, ServerExchange
from engine.common.errors import ConfigError
from engine.kafka.client.jaas import LoginModule
from engine.kafka.client.sasl.kerberos import EXTRA, reason_of

SERVICE_KEY: Final = "sasl.kerberos.service.name"
RULES_KEY: Final = "sasl.kerberos.principal.to.local.rules"

_NO_LAYER = b"\x01\x00\x00\x00"
"""Neither integrity nor encryption, and so no size of what would be wrapped: TLS does that."""
_PRINCIPAL = re.compile(r"([^/@]*)(?:/([^/@]*))?@([^/@]*)")
_RULE = re.compile(
    r"(?P<default>DEFAULT)|RULE:\[(?P<count>\d+):(?P<format>[^\]]*)\](?:\((?P<match>[^)]*)\))?"
    r"(?:s/(?P<from>[^/]*)/(?P<to>[^/]*)/(?P<all>g)?)?/?(?P<case>[LU])?"
)
_PARAMETER = re.compile(r"\$(\d+)")
_REPLACEMENT = re.compile(r"\\(.)|\$(\d)", re.DOTALL)

Rule = Callable[[Sequence[str]], str | None]
"""Returns the short name of realm, service and perhaps host; None if the rule is not about them."""


class Acceptor:
    """This broker's key, with which it reads the tickets that clients bring. No KDC is asked."""

    def __init__(self, module: LoginModule, service: str | None, rules: Sequence[str]) -> None:
        """Raises ConfigError: something is missing, malformed, or would need a cache of tickets."""
        options = module.options
        if not (service or options.get("serviceName")):
            raise ConfigError(f"{SERVICE_KEY} is missing: GSSAPI needs it, and it is usually kafka", key=SERVICE_KEY)
        if options.get("useKeyTab", "").lower() != "true" or not options.get("keyTab") or not options.get("principal"):
            raise ConfigError("the login module of GSSAPI needs useKeyTab=true, keyTab and principal")
        keytab, principal = options["keyTab"].removeprefix("FILE:").removeprefix("file:"), options["principal"]
        if not Path(keytab).is_file():
            raise ConfigError(f"there is no keytab {keytab}")
        try:
            self._library: Any = importlib.import_module("gssapi")
        except ImportError:
            raise ConfigError(f"GSSAPI needs the extra kerberos: {EXTRA}") from None
        kind = self._library.NameType.kerberos_principal
        try:
            name = self._library.Name(principal, kind)
            self._credentials = self._library.Credentials(name=name, usage="accept", store={"keytab": f"FILE:{keytab}"})
            # The library tells no default realm, but adds it to a name that has none.
            full = str(self._library.Name("a", kind).canonicalize(self._library.MechType.kerberos))
        except self._library.exceptions.GSSError as error:
            raise ConfigError(f"the keytab {keytab} has no key of {principal}: {reason_of(error)}") from None
        self._rules = short_name_rules(rules, full.partition("@")[2])

    def begin(self) -> ServerExchange:
        """Read a client's ticket, and let it prove that it may use it. Raises LoginRefused."""
        errors = self._library.exceptions.GSSError
        token = yield b""
        try:
            context = self._library.SecurityContext(creds=self._credentials, usage="accept")
            answer = context.step(token) or b""
            while not context.complete:
                answer = context.step((yield answer)) or b""
            if answer:
                # The client has nothing more to say for now.
                yield answer
            chosen = context.unwrap((yield context.wrap(_NO_LAYER, False).message)).message
            principal = str(context.initiator_name)
        except errors as error:
            raise LoginRefused(f"Kerberos: {reason_of(error)}") from None
        if len(chosen) < 4 or chosen[0] != _NO_LAYER[0]:
            raise LoginRefused("the client wants a security layer that nobody offered")
        # As in Kafka, the ticket says who logs in, whatever identity the client asks for.
        return LoggedIn(short_name(principal, self._rules))


def short_name_rules(texts: Sequence[str], default_realm: str) -> list[Rule]:
    """Return the rules by which principals become users' names.

    Raises:
        ConfigError: a rule is malformed.
    """
    return [_rule(text, default_realm) for text in texts]


def short_name(principal: str, rules: Sequence[Rule]) -> str:
    """Return the user's name of a principal: that of the first rule that is about it.

    Raises:
        LoginRefused: none is, or its name has ``/`` or ``@``.
    """
    match = _PRINCIPAL.fullmatch(principal)
    if match is None:
        if "@" in principal:
            raise LoginRefused(f"the principal {principal} is malformed")
        return principal
    service, host, realm = match.groups()
    parts = [realm, service] if host is None else [realm, service, host]
    for rule in rules:
        name = rule(parts)
        if name is not None:
            return name
    raise LoginRefused(f"no rule of {RULES_KEY} is about {principal}")


def _rule(text: str, default_realm: str) -> Rule:
    match = _RULE.fullmatch(text)
    if match is None:
        raise ConfigError(
            f"{RULES_KEY}: `{text}` is not a rule: it is DEFAULT, or RULE:[n:format](pattern)s/from/to/", key=RULES_KEY
        )
    if match["default"]:
        return lambda parts: parts[1] if parts[0] == default_realm else None
    count, case = int(match["count"]), match["case"]
    try:
        # As in Java, where \w and its like mean ASCII.
        wanted = re.compile(match["match"], re.ASCII) if match["match"] is not None else None
        source = re.compile(match["from"], re.ASCII) if match["from"] is not None else None
    except re.error as error:
        raise ConfigError(f"{RULES_KEY}: `{text}` has a malformed pattern: {error}", key=RULES_KEY) from None
    if any(int(number) > count for number in _PARAMETER.findall(match["format"])):
        raise ConfigError(f"{RULES_KEY}: `{text}` uses more parts than it is about", key=RULES_KEY)

    def apply(parts: Sequence[str]) -> str | None:
        if len(parts) - 1 != count:
            return None
        name = _PARAMETER.sub(lambda parameter: parts[int(parameter[1])], match["format"])
        if wanted is not None and not wanted.fullmatch(name):
            return None
        if source is not None:
            name = source.sub(lambda part: _replaced(match["to"], part), name, count=0 if match["all"] else 1)
        if re.search("[/@]", name):
            raise LoginRefused(f"the rule {text} makes a name with / or @")
        return name.lower() if case == "L" else name.upper() if case == "U" else name

    return apply


def _replaced(replacement: str, match: re.Match[str]) -> str:
    """Fill in the groups of Java's ``$1``."""
    try:
        return _REPLACEMENT.sub(lambda each: each[1] or match[int(each[2])] or "", replacement)
    except IndexError:
        raise LoginRefused(f"a rule of {RULES_KEY} has no group for {replacement}") from None
