"""From a broker's settings to the logins of its listeners: mechanisms, login modules, users."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial

from engine.broker.network.routes import RouteTable
from engine.broker.security.delegation_tokens import DelegationTokens
from engine.broker.security.kerberos import Acceptor
from engine.broker.security.logins import LoginPolicy, Mechanism
from engine.broker.security.sasl_mechanisms import (
    Candidate,
    LoggedIn,
    ServerExchange,
    oauthbearer_server,
    plain_server,
    scram_server,
    unsecured_validator,
)
from engine.broker.security.signed_tokens import URL, VALIDATORS, SigningKeys, signed_validator
from engine.common.errors import ConfigError
from engine.common.model import SecurityProtocol
from engine.kafka.client.jaas import LoginModule, jaas_section, parse_jaas_config
from engine.kafka.config.broker import BrokerConfig
from engine.kafka.config.values import java_trim
from engine.kafka.formats.scram_credential import HASHES, ScramCredential

logger = logging.getLogger(__name__)

_SASL = (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)
_SECURITY = "org.apache.kafka.common.security"
_MODULES = {
    "PLAIN": f"{_SECURITY}.plain.PlainLoginModule",
    **dict.fromkeys(HASHES, f"{_SECURITY}.scram.ScramLoginModule"),
    "OAUTHBEARER": f"{_SECURITY}.oauthbearer.OAuthBearerLoginModule",
    "GSSAPI": "com.sun.security.auth.module.Krb5LoginModule",
}
_HANDLERS = {
    "PLAIN": f"{_SECURITY}.plain.internals.PlainServerCallbackHandler",
    "OAUTHBEARER": f"{_SECURITY}.oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler",
}
"""Java classes that do what is done here anyway."""
_DEFAULT_PRINCIPAL_BUILDER = f"{_SECURITY}.authenticator.DefaultKafkaPrincipalBuilder"

UserText = Callable[[str, str], str | None]
"""Returns the text of a user's setting by the user's name and the setting's."""


class ListenerLogins:
    """The settings of the logins on one listener, checked."""

    def __init__(self, config: BrokerConfig, listener_name: str, environment: Mapping[str, str]) -> None:
        """Raises ConfigError: something is missing, unknown, or would have to be done by a Java class."""
        self.name = listener_name
        self._config = config.of_listener(listener_name)
        self._environment = environment
        if not self._config.sasl_enabled_mechanisms:
            raise self._error("sasl.enabled.mechanisms names no mechanism")
        self.modules = {
            mechanism: self._checked_module(mechanism) for mechanism in self._config.sasl_enabled_mechanisms
        }

        try:
            self._of_tokens = self._config.with_prefix("oauthbearer.")
        except ConfigError as error:
            raise self._error(str(error)) from None
        self._keys = self._checked_keys()
        self._acceptor = self._checked_acceptor()
        self._max_reauth_ms = {mechanism: self._checked_lifetime(mechanism) for mechanism in self.modules}

    def policy(
        self, routes: RouteTable, user_text: UserText, now_ms: Callable[[], int], tokens: DelegationTokens | None = None
    ) -> LoginPolicy:
        """Return how peers log in; without ``tokens`` nobody does with a token."""
        config = self._config
        mechanisms = {
            name: Mechanism(self._exchanges(name, user_text, now_ms, tokens), self._max_reauth_ms[name])
            for name in self.modules
        }
        return LoginPolicy(
            mechanisms,
            config.connection_failed_authentication_delay_ms,
            config.sasl_server_max_receive_size,
            now_ms,
            routes,
        )

    async def start(self) -> None:
        """Read what logins are checked with and is not among the settings.

        Raises:
            ConfigError: it cannot be read.
        """
        if self._keys is not None:
            try:
                await self._keys.start()
            except ConfigError as error:
                raise self._error(str(error)) from None

    async def stop(self) -> None:
        """Read no more of it."""
        if self._keys is not None:
            await self._keys.stop()

    def client_module(self, mechanism: str) -> LoginModule | None:
        """Return by which login module this broker logs in at the others."""
        if mechanism not in self.modules:
            raise self._error(
                f"sasl.mechanism.inter.broker.protocol={mechanism} is not among sasl.enabled.mechanisms="
                f"{','.join(self.modules)}, but brokers log in at this listener"
            )
        return self.modules[mechanism]

    def _checked_module(self, mechanism: str) -> LoginModule | None:
        if mechanism not in _MODULES:
            raise self._error(f"sasl.enabled.mechanisms: {mechanism} is not one of {', '.join(_MODULES)}")
        handler = self._text(f"{mechanism.lower()}.sasl.server.callback.handler.class")
        if handler not in (None, _HANDLERS.get(mechanism)) and not self._is_signed(mechanism):
            raise self._error(f"{mechanism.lower()}.sasl.server.callback.handler.class={handler} is a Java class, "
                              "which this broker cannot run")  # fmt: skip
        module = self._module(mechanism)
        if module is None and mechanism not in HASHES:
            raise self._error(
                f"listener.name.{self.name.lower()}.{mechanism.lower()}.sasl.jaas.config is missing, and there is no "
                "JAAS file with a section KafkaServer"
            )
        return module

    def _is_signed(self, mechanism: str) -> bool:
        handler = self._text("oauthbearer.sasl.server.callback.handler.class")
        return mechanism == "OAUTHBEARER" and handler in VALIDATORS

    def _checked_keys(self) -> SigningKeys | None:
        module = self.modules.get("OAUTHBEARER")
        if module is None:
            return None
        if not self._is_signed("OAUTHBEARER"):
            # Kafka would let in any client that writes a token itself. An operator who names keys does not mean that.
            if self._of_tokens.sasl_oauthbearer_jwks_endpoint_url:
                raise self._error(
                    f"{URL} is set, but nothing checks tokens by it: set listener.name."
                    f"{self.name.lower()}.oauthbearer.sasl.server.callback.handler.class={VALIDATORS[0]}"
                )
            return None
        try:
            return SigningKeys(self._of_tokens, module.options)
        except ConfigError as error:
            raise self._error(str(error)) from None

    def _checked_acceptor(self) -> Acceptor | None:
        module, config = self.modules.get("GSSAPI"), self._config
        if module is None:
            return None
        try:
            rules = config.sasl_kerberos_principal_to_local_rules
            return Acceptor(module, config.sasl_kerberos_service_name, rules)
        except ConfigError as error:
            raise self._error(str(error)) from None

    def _module(self, mechanism: str) -> LoginModule | None:
        wanted = _MODULES[mechanism]
        jaas_config = self._text(f"{mechanism.lower()}.sasl.jaas.config")
        try:
            if jaas_config is not None:
                module = parse_jaas_config(jaas_config)
                if module.class_name != wanted:
                    raise ConfigError(f"the login module of {mechanism} is {module.class_name} instead of {wanted}")
                return module
            sections = (f"{self.name.lower()}.KafkaServer", "KafkaServer")
            modules = next(filter(None, (jaas_section(None, self._environment, section) for section in sections)), [])
        except ConfigError as error:
            raise self._error(str(error)) from None
        return next((module for module in modules if module.class_name == wanted), None)

    def _text(self, name: str) -> str | None:
        text = self._config.originals.get(name)
        return None if text is None else java_trim(text)

    def _checked_lifetime(self, mechanism: str) -> int:
        name = f"{mechanism.lower()}.connections.max.reauth.ms"
        text = self._text(name)
        if text is None:
            return self._config.connections_max_reauth_ms
        try:
            return int(text)
        except ValueError:
            raise self._error(f"{name}={text} is not a number of milliseconds") from None

    def _exchanges(
        self, mechanism: str, user_text: UserText, now_ms: Callable[[], int], tokens: DelegationTokens | None
    ) -> Callable[[], ServerExchange]:
        module = self.modules[mechanism]
        options = {} if module is None else module.options
        if mechanism == "PLAIN":
            prefix = "user_"
            users = {key.removeprefix(prefix): value for key, value in options.items() if key.startswith(prefix)}
            return partial(plain_server, users)
        if self._keys is not None and mechanism == "OAUTHBEARER":
            return partial(oauthbearer_server, signed_validator(self._of_tokens, self._keys, now_ms))
        if self._acceptor is not None and mechanism == "GSSAPI":
            return self._acceptor.begin
        if mechanism == "OAUTHBEARER":
            return partial(oauthbearer_server, unsecured_validator(options, now_ms))

        def candidate_of(name: str, is_token: bool) -> Candidate | None:
            if is_token:
                return None if tokens is None else tokens.candidate(mechanism, name)
            text = user_text(name, mechanism)
            try:
                return None if text is None else (ScramCredential.decode(text), LoggedIn(name))
            except ValueError:
                logger.error("The %s credential of user %s in ZooKeeper is malformed: nobody can log in with it",
                             mechanism, name)  # fmt: skip
                return None

        return partial(scram_server, mechanism, candidate_of)

    def _error(self, text: str) -> ConfigError:
        return ConfigError(f"listener {self.name}: {text}", key="listeners")


def listener_logins(
    config: BrokerConfig, environment: Mapping[str, str], only: str | None = None
) -> dict[str, ListenerLogins]:
    """Return the logins of the listeners with SASL, by name; ``only`` that one's.

    Raises:
        ConfigError: one of them cannot be served as it is meant; the text names the listener and the key.
    """
    endpoints = config.listener_settings.listeners
    is_secured = any(endpoint.security_protocol is not SecurityProtocol.PLAINTEXT for endpoint in endpoints)
    if is_secured and config.principal_builder_class not in (None, "", _DEFAULT_PRINCIPAL_BUILDER):
        raise ConfigError(
            f"principal.builder.class={config.principal_builder_class} is a Java class, which this broker cannot run",
            key="principal.builder.class",
        )
    return {
        endpoint.listener_name: ListenerLogins(config, endpoint.listener_name, environment)
        for endpoint in endpoints
        if endpoint.security_protocol in _SASL and only in (None, endpoint.listener_name)
    }
