"""The ``sasl.*`` properties of Kafka's clients, checked before anything connects, and the exchange they ask for."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from urllib.parse import unquote, urlsplit

from engine.common.errors import ConfigError
from engine.kafka.client.jaas import LoginModule, parse_jaas_config
from engine.kafka.client.sasl.exchange import Exchange, plain_exchange
from engine.kafka.client.sasl.oauthbearer import (
    expires_at_s,
    extensions_of,
    oauthbearer_exchange,
    subject_of_token,
    token_from_command,
    token_from_file,
    token_from_provider,
    token_of_aws,
    unsecured_token,
)
from engine.kafka.client.sasl.scram import HASHES, scram_exchange
from engine.kafka.client.tls.context import client_context, tls_settings

TOKEN_URL = "sasl.oauthbearer.token.endpoint.url"
TOKEN_COMMAND = "klamm.oauthbearer.token.command"
"""A key of klamm's own: the command that prints a token."""
_MECHANISMS = ("PLAIN", *HASHES, "OAUTHBEARER", "GSSAPI", "AWS_MSK_IAM")
_MSK_HANDLER = "IAMOAuthBearerLoginCallbackHandler"
"""The end of the Java class that makes tokens for Amazon's MSK."""
_STRIMZI_URL = "oauth.token.endpoint.uri"
_STRIMZI_OPTIONS = {"oauth.client.id": "clientId", "oauth.client.secret": "clientSecret", "oauth.scope": "scope"}
_RENEWED_AFTER = 0.8
"""A token is asked for again after this share of its life, as in Kafka (``sasl.login.refresh.window.factor``)."""


@dataclass(frozen=True, slots=True)
class SaslSettings:
    """How to log in. The options hold passwords and stay out of ``repr``."""

    mechanism: str
    options: tuple[tuple[str, str], ...] = field(repr=False)
    token_url: str | None = field(default=None, repr=False)
    token_command: str | None = field(default=None, repr=False)
    service: str = ""
    """Kerberos: the brokers' service, ``kafka`` in ``kafka/host@REALM``."""

    @property
    def identity(self) -> str:
        """The user and mechanism of the login, for people: ``alice by SCRAM-SHA-512``."""
        options = dict(self.options)
        names = ("username", "clientId", "unsecuredLoginStringClaim_sub", "principal", "awsProfileName", "awsRoleArn")
        name = next((options[known] for known in names if options.get(known)), None)
        return f"{name} by {self.mechanism}" if name else self.mechanism

    @property
    def principal(self) -> str | None:
        """Who this is to the brokers, by their default rules; None if only they know, or no token was sent yet."""
        options = dict(self.options)
        if options.get("tokenauth", "").lower() == "true":
            return None
        name = {
            "PLAIN": options.get("username"),
            **dict.fromkeys(HASHES, options.get("username")),
            "OAUTHBEARER": self._subject,
            # The default rule leaves the host and the realm out.
            "GSSAPI": self._kerberos_name.partition("@")[0].partition("/")[0],
        }.get(self.mechanism)
        return f"User:{name}" if name else None

    @property
    def _subject(self) -> str | None:
        """The subject of an unsecured token, or of the token that was sent last."""
        options = dict(self.options)
        if self.token_url or self.token_command:
            return subject_of_token(_tokens[self][0]) if self in _tokens else None
        claim = options.get("unsecuredLoginPrincipalClaimName", "sub")
        return options.get(f"unsecuredLoginStringClaim_{claim}")

    @property
    def _kerberos_name(self) -> str:
        options = dict(self.options)
        if self.mechanism != "GSSAPI" or options.get("principal"):
            return options.get("principal", "")
        from engine.kafka.client.sasl.kerberos import ticket_owner

        return ticket_owner(options) or ""

    @property
    def mechanism_asked_for(self) -> str:
        """The name of the mechanism in the handshake: MSK takes its tokens by OAUTHBEARER, too."""
        return "OAUTHBEARER" if self.mechanism == "AWS_MSK_IAM" else self.mechanism


def sasl_settings(entries: Mapping[str, str], jaas: LoginModule | None = None) -> SaslSettings:
    """Return how the properties log in; ``jaas`` is the module of a JAAS file, which ``sasl.jaas.config`` outweighs.

    Raises:
        ConfigError: the mechanism is unknown, or what it needs is missing.
    """
    mechanism = entries.get("sasl.mechanism", "GSSAPI")
    if mechanism not in _MECHANISMS:
        raise ConfigError(f"sasl.mechanism={mechanism} is not supported; klamm has {', '.join(_MECHANISMS)}")
    jaas_config = entries.get("sasl.jaas.config")
    module = parse_jaas_config(jaas_config) if jaas_config else jaas
    if module is None:
        other = "; sasl.username and sasl.password are librdkafka's keys" if "sasl.username" in entries else ""
        raise ConfigError(
            f"sasl.jaas.config is missing: {_named(entries)} needs it, or a JAAS file with a section KafkaClient{other}"
        )
    if mechanism == "OAUTHBEARER" and entries.get("sasl.login.callback.handler.class", "").endswith(_MSK_HANDLER):
        mechanism = "AWS_MSK_IAM"
    if mechanism in ("GSSAPI", "AWS_MSK_IAM"):
        return _of_other_libraries(mechanism, entries, module)
    if mechanism == "OAUTHBEARER" and _STRIMZI_URL in module.options:
        entries, module = _of_strimzi(entries, module)
    url, command = entries.get(TOKEN_URL), entries.get(TOKEN_COMMAND)
    if mechanism != "OAUTHBEARER":
        _require(module, mechanism, "username", "password")
    elif url and urlsplit(url).scheme not in ("file", "http", "https"):
        raise ConfigError(f"{TOKEN_URL} must begin with https:, http: or file:")
    elif url and urlsplit(url).scheme != "file":
        _require(module, mechanism, "clientId", "clientSecret")
    return SaslSettings(mechanism, tuple(module.options.items()), url, command)


def _named(entries: Mapping[str, str]) -> str:
    return entries.get("sasl.mechanism") or "GSSAPI, Kafka's default without sasl.mechanism,"


def _of_other_libraries(mechanism: str, entries: Mapping[str, str], module: LoginModule) -> SaslSettings:
    service = entries.get("sasl.kerberos.service.name") or module.options.get("serviceName", "")
    if mechanism == "GSSAPI" and not service:
        raise ConfigError(f"{_named(entries)} needs sasl.kerberos.service.name, which is usually kafka")
    if mechanism == "GSSAPI" and module.options.get("useKeyTab", "").lower() == "true":
        _require(module, mechanism, "keyTab", "principal")
    return SaslSettings(mechanism, tuple(sorted(module.options.items())), service=service)


def _of_strimzi(entries: Mapping[str, str], module: LoginModule) -> tuple[Mapping[str, str], LoginModule]:
    """Return what the options of Strimzi's OAuth library mean in Kafka's own words: client credentials."""
    options = {}
    for name, value in module.options.items():
        known = _STRIMZI_OPTIONS.get(name) or (name.removeprefix("oauth.") if name.startswith("oauth.ssl.") else None)
        if known is None and name.startswith("oauth.") and name != _STRIMZI_URL:
            raise ConfigError(
                f"the JAAS option {name} is not supported; klamm asks {_STRIMZI_URL} by client credentials"
            )
        options[known or name] = value
    return {**entries, TOKEN_URL: options.pop(_STRIMZI_URL)}, replace(module, options=options)


def exchange_for(settings: SaslSettings, host: str) -> Exchange:
    """Return a new exchange with the broker at a host. It may wait for a token, so call it beside the loop.

    Raises:
        SaslError: no token or ticket can be obtained.
    """
    options = dict(settings.options)
    if settings.mechanism == "GSSAPI":
        from engine.kafka.client.sasl.kerberos import kerberos_exchange

        return kerberos_exchange(settings.service, host, options)
    if settings.mechanism == "AWS_MSK_IAM":
        return oauthbearer_exchange(token_of_aws(options, host), {})
    if settings.mechanism == "OAUTHBEARER":
        return oauthbearer_exchange(_token(settings, options), extensions_of(options))
    username, password = options["username"], options["password"]
    if settings.mechanism == "PLAIN":
        return plain_exchange(username, password)
    is_token = options.get("tokenauth", "").lower() == "true"
    return scram_exchange(settings.mechanism, username, password, is_token=is_token)


_tokens: dict[SaslSettings, tuple[str, float]] = {}
"""Tokens in use, and when to ask for the next (0: always): a cluster's brokers are given the same one."""


def _token(settings: SaslSettings, options: Mapping[str, str]) -> str:
    now_s = time.time()
    token, renew_at_s = _tokens.get(settings, ("", 0.0))
    if now_s < renew_at_s:
        return token
    url = urlsplit(settings.token_url or "")
    if settings.token_command:
        token = token_from_command(settings.token_command)
    elif url.scheme == "file":
        # Other programs renew it, whenever they like.
        _tokens[settings] = token_from_file(Path(unquote(url.path))), 0.0
        return _tokens[settings][0]
    elif settings.token_url:
        ask = partial(token_from_provider, settings.token_url, options["clientId"], options["clientSecret"])
        ssl = client_context(tls_settings(options)) if url.scheme == "https" else None
        token = ask(options.get("scope"), ssl=ssl)
    else:
        token = unsecured_token(options)
    expires_s = expires_at_s(token)
    _tokens[settings] = token, 0.0 if expires_s is None else now_s + (expires_s - now_s) * _RENEWED_AFTER
    return token


def forget_token(settings: SaslSettings) -> None:
    """Forget a token that a broker refuses, so that the next login asks for another."""
    _tokens.pop(settings, None)


def _require(module: LoginModule, mechanism: str, *names: str) -> None:
    for name in names:
        if not module.options.get(name):
            raise ConfigError(f"the JAAS options for {mechanism} lack {name}")
