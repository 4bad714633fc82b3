"""How each listener of a broker is protected: its TLS, and how the brokers reach each other's."""

from __future__ import annotations

import logging
import re
import ssl
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from engine.broker.security.login_settings import ListenerLogins
from engine.common.errors import ConfigError, RemoteProtocolError
from engine.common.model import SecurityProtocol
from engine.kafka.client.security import PLAINTEXT, Security, security_of
from engine.kafka.client.tls.certificate import alternative_names, subject_of
from engine.kafka.client.tls.context import (
    TlsSettings,
    check_trusts_itself,
    client_context,
    own_chain,
    server_context,
    tls_settings,
)
from engine.kafka.config.broker import BrokerConfig

logger = logging.getLogger("kafka.server.KafkaServer")

_TLS = (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)
_STORE_FILES = ("ssl.keystore.location", "ssl.truststore.location")

StoreVersions = tuple[tuple[int, int], ...]

_RULE = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?).*?|(.*?)"
_SPLITTER = re.compile(rf"\s*({_RULE})\s*(,\s*|$)")
_PARSER = re.compile(_RULE)
_ESCAPE_OR_REFERENCE = re.compile(r"\\(.)|\$(\d)|\\", re.DOTALL)
_RULES_KEY = "ssl.principal.mapping.rules"

Rule = Callable[[str], str | None]


class PrincipalRules:
    """``ssl.principal.mapping.rules``, tried in order: a certificate's subject becomes the name of a user (KIP-371)."""

    def __init__(self, text: str) -> None:
        """Raises ConfigError: a rule is malformed."""
        self._text = text
        self._rules: list[Rule] = []
        for match in _SPLITTER.finditer(text.strip()):
            if match[1]:
                self._rules.append(_rule(match[1]))

    def name_of(self, subject: str) -> str:
        """Return the user's name.

        Raises:
            RemoteProtocolError: no rule fits, so the peer has no name.
        """
        for rule in self._rules:
            name = rule(subject)
            if name is not None:
                return name
        raise RemoteProtocolError(f"{_RULES_KEY} has no rule that fits the certificate of {subject}")


class TlsListener:
    """The TLS of one listener. The stores may be changed while it serves."""

    tls: ssl.SSLContext
    """For new connections."""

    def __init__(self, config: BrokerConfig, listener_name: str, protocol: SecurityProtocol) -> None:
        """Raises ConfigError: something is missing or cannot be used."""
        self.name = listener_name
        self._protocol = protocol
        self._is_between_brokers = config.listener_settings.inter_broker_listener_name == listener_name
        self._rules = PrincipalRules(config.ssl_principal_mapping_rules)
        self.in_use = self.state(config)
        self._certificate, self.tls = self._made(config)

    def principal_of(self, certificate: bytes | None) -> str:
        """Return who shows this certificate (DER), or none.

        Raises:
            RemoteProtocolError: no rule fits its subject.
        """
        return "User:ANONYMOUS" if certificate is None else f"User:{self._rules.name_of(subject_of(certificate))}"

    def check(self, config: BrokerConfig) -> None:
        """Check stores before they are used.

        Raises:
            ConfigError: they cannot be used, or the certificate has another subject or fewer names than before.
        """
        certificate, _ = self._made(config)
        _check_same_names(self._certificate, certificate, config)

    def reload(self, config: BrokerConfig) -> None:
        """Use the stores that the settings name now; the old ones stay if these cannot be used."""
        state = self.state(config)
        try:
            certificate, tls = self._made(config)
            _check_same_names(self._certificate, certificate, config)
        except ConfigError as error:
            logger.error("The stores of listener %s stay as they were: %s", self.name, error)
        else:
            self.in_use, self._certificate, self.tls = state, certificate, tls
            client_context.cache_clear()
            logger.info("Listener %s uses its new stores for new connections", self.name)

    def state(self, config: BrokerConfig) -> tuple[TlsSettings, StoreVersions]:
        """Return what a change of the settings may change: the settings themselves, or the files that they name."""
        settings = tls_settings(config.listener_texts(self.name))
        texts = dict(settings.entries)
        versions = []
        for key in _STORE_FILES:
            with suppress(OSError, KeyError):
                status = Path(texts[key]).stat()
                versions.append((status.st_mtime_ns, status.st_ino))
        return settings, tuple(versions)

    def _made(self, config: BrokerConfig) -> tuple[bytes, ssl.SSLContext]:
        """Return the certificate that the settings name now, in DER, and the context for new connections."""
        own_config = config.of_listener(self.name)
        key = f"listener.name.{self.name.lower()}.ssl.client.auth"
        # With SASL, only the listener's own setting asks for certificates (KIP-684).
        is_own = self._protocol is SecurityProtocol.SSL or key in config.originals
        client_auth = own_config.ssl_client_auth if is_own else "none"
        settings = tls_settings(own_config.originals)
        try:
            context = server_context(settings, client_auth)
            if self._is_between_brokers:
                check_trusts_itself(settings)
        except ConfigError as error:
            raise ConfigError(f"listener {self.name}: {error}", key="listeners") from None
        return own_chain(settings)[0], context


def tls_listeners(config: BrokerConfig, only: str | None = None) -> dict[str, TlsListener]:
    """Return the listeners with TLS, by name; ``only`` that one. Reads their stores.

    Raises:
        ConfigError: one of them cannot serve; the text names the listener, the key and the file.
    """
    return {
        endpoint.listener_name: TlsListener(config, endpoint.listener_name, endpoint.security_protocol)
        for endpoint in config.listener_settings.listeners
        if endpoint.security_protocol in _TLS and only in (None, endpoint.listener_name)
    }


def inter_broker_security(config: BrokerConfig, logins: Mapping[str, ListenerLogins]) -> Security:
    """Return how this broker connects to the others: as itself, with its own stores and login.

    Raises:
        ConfigError: something is missing or malformed.
    """
    settings = config.listener_settings
    name, protocol = settings.inter_broker_listener_name, settings.inter_broker_security_protocol
    if protocol is SecurityProtocol.PLAINTEXT:
        return PLAINTEXT
    own_config = config.of_listener(name)
    texts = {**own_config.originals, "security.protocol": protocol.name}
    module = None
    if name in logins:
        mechanism = own_config.sasl_mechanism_inter_broker_protocol
        module = logins[name].client_module(mechanism)
        texts = {key: text for key, text in texts.items() if key != "sasl.jaas.config"} | {"sasl.mechanism": mechanism}
    try:
        return security_of(texts, module)
    except ConfigError as error:
        raise ConfigError(f"listener {name}, where brokers log in: {error}", key="listeners") from None


def _check_same_names(before: bytes, after: bytes, config: BrokerConfig) -> None:
    """Accept a new certificate only with the same subject and names: else clients would not find this broker."""
    if not config.ssl_allow_dn_changes and subject_of(before) != subject_of(after):
        raise ConfigError(
            f"the new certificate is for {subject_of(after)}, the old one for {subject_of(before)}: "
            "ssl.allow.dn.changes=true allows that",
            key="ssl.keystore.location",
        )
    if not config.ssl_allow_san_changes and not alternative_names(before) <= alternative_names(after):
        raise ConfigError(
            "the new certificate lacks alternative names of the old one: ssl.allow.san.changes=true allows that",
            key="ssl.keystore.location",
        )


def _rule(text: str) -> Rule:
    match = _PARSER.match(text)
    if match is None or match.end() < len(text):
        raise ConfigError(
            f"{_RULES_KEY}: `{text}` is not a rule. Write RULE:pattern/replacement/ or DEFAULT", key=_RULES_KEY
        )
    if match[1]:
        return lambda subject: subject
    try:
        # As in Java, where \w and its like mean ASCII.
        pattern = re.compile(match[2], re.ASCII)
    except re.error as error:
        raise ConfigError(f"{_RULES_KEY}: the pattern of `{text}` is malformed: {error}", key=_RULES_KEY) from None
    replacement, case = _python_replacement(match[3], pattern.groups), match[4]

    def apply(subject: str) -> str | None:
        if pattern.fullmatch(subject) is None:
            return None
        name = pattern.sub(replacement, subject)
        return name.lower() if case == "L" else name.upper() if case == "U" else name

    return apply


def _python_replacement(text: str, groups: int) -> str:
    """Return Java's replacement in Python's notation; a reference to a group that does not exist is text."""

    def translated(match: re.Match[str]) -> str:
        if match[2] is None:
            return (match[1] or "").replace("\\", "\\\\")
        return f"\\g<{match[2]}>" if int(match[2]) <= groups else match[0]

    return _ESCAPE_OR_REFERENCE.sub(translated, text)
