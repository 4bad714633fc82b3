"""A broker's own TLS and logins: its listeners', and those by which it connects to other brokers.

Who a peer is and what it may do is decided in ``engine.broker.security``; this only makes the parts and keeps them on
the current settings.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import NamedTuple

from engine.broker.handlers.sasl_login import api_versions_before_login, unknown_version_before_login
from engine.broker.network.routes import HandlerSpec, RouteTable
from engine.broker.security.delegation_tokens import DelegationTokens
from engine.broker.security.listener_security import TlsListener, inter_broker_security, tls_listeners
from engine.broker.security.login_settings import ListenerLogins, listener_logins
from engine.broker.security.logins import LoginPolicy
from engine.common.clock import Clock
from engine.common.errors import ConfigError
from engine.kafka.client.security import Security
from engine.kafka.config.broker import BrokerConfig
from engine.kafka.config.dynamic import USERS, DynamicConfigs
from engine.kafka.formats.scram_credential import HASHES
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.zk.configs import sanitized
from engine.runtime.supervisor import Supervisor


class OwnSecurity:
    """The TLS and logins of one broker."""

    def __init__(self, config: BrokerConfig) -> None:
        """Read the stores of all listeners.

        Raises:
            ConfigError: a listener cannot be served as it is meant.
        """
        self.tls_listeners: dict[str, TlsListener] = tls_listeners(config)
        self._logins = listener_logins(config, os.environ)
        self.login_policies: dict[str, LoginPolicy] = {}
        """How peers log in on each listener with SASL, from ``offer_logins`` on."""
        self._between_brokers = inter_broker_security(config, self._logins)
        self._unfollow: dict[str, Callable[[], None]] = {}
        """Makes a listener with TLS follow the settings no longer; by listener."""

    def between_brokers(self) -> Security:
        """Return how this broker connects to others now."""
        return self._between_brokers

    async def start(self) -> None:
        """Read what logins are checked with and is not among the settings.

        Raises:
            ConfigError: it cannot be read.
        """
        for logins in self._logins.values():
            await logins.start()

    async def stop(self) -> None:
        """Stop reading it."""
        for logins in self._logins.values():
            await logins.stop()

    def check_own_user(self, configs: DynamicConfigs) -> None:
        """Refuse to start as a user that no broker would let in.

        Raises:
            ConfigError: brokers log in by SCRAM, and ZooKeeper has no credential of this broker's user.
        """
        sasl = self._between_brokers.sasl
        if sasl is not None and sasl.mechanism in HASHES:
            user = dict(sasl.options)["username"]
            if sasl.mechanism not in configs.stored_texts(USERS, sanitized(user)):
                raise ConfigError(
                    f"brokers log in as user {user} by {sasl.mechanism}, of which ZooKeeper has no credential",
                    key="sasl.mechanism.inter.broker.protocol",
                )

    def offer_logins(
        self,
        handlers: Mapping[int, HandlerSpec],
        configs: DynamicConfigs,
        clock: Clock,
        tokens: DelegationTokens | None,
    ) -> None:
        """Let peers log in on listeners with SASL. Until then, they reach only what a login needs."""
        before: dict[int, HandlerSpec] = {
            key: handlers[key] for key in (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
        }
        versions = replace(handlers[ApiKey.API_VERSIONS], handler=api_versions_before_login, large_handler=None)
        routes = RouteTable({**before, ApiKey.API_VERSIONS: versions}, unknown_version_before_login)

        def user_text(user: str, name: str) -> str | None:
            return configs.stored_texts(USERS, sanitized(user)).get(name)

        def policy_of(logins: ListenerLogins) -> LoginPolicy:
            return logins.policy(routes.of_listener(), user_text, clock.now_ms, tokens)

        self._policy_of = policy_of
        self.login_policies.update((name, policy_of(logins)) for name, logins in self._logins.items())

    async def add(self, name: str, config: BrokerConfig, configs: DynamicConfigs, supervisor: Supervisor) -> None:
        """Protect a listener that is new.

        Raises:
            ConfigError: it cannot be served as it is meant.
        """
        protections = await asyncio.to_thread(_protections, config, name)
        for logins in protections.logins.values():
            await logins.start()
        self._logins |= protections.logins
        self.login_policies |= {name: self._policy_of(logins) for name, logins in protections.logins.items()}
        self.tls_listeners |= protections.tls
        for listener in protections.tls.values():
            self._follow_stores(listener, configs, supervisor)

    async def drop(self, name: str) -> None:
        """Forget a listener that has closed."""
        self.tls_listeners.pop(name, None)
        if (unfollow := self._unfollow.pop(name, None)) is not None:
            unfollow()
        self.login_policies.pop(name, None)
        if (logins := self._logins.pop(name, None)) is not None:
            await logins.stop()

    def check(self, config: BrokerConfig, serves: Collection[str]) -> None:
        """Check settings before they take effect. ``serves`` are the listeners that are open.

        Raises:
            ConfigError: a new listener cannot be served as it is meant, or one cannot use its new stores.
        """
        for endpoint in config.listener_settings.listeners:
            if endpoint.listener_name not in serves:
                _protections(config, endpoint.listener_name)
        for listener in self.tls_listeners.values():
            if listener.state(config) != listener.in_use:
                listener.check(config)

    def follow(self, configs: DynamicConfigs, supervisor: Supervisor) -> None:
        """Use new stores from the moment when the settings name them.

        As in Kafka, a file that has changed counts when the broker's settings are written again.
        """
        for listener in self.tls_listeners.values():
            self._follow_stores(listener, configs, supervisor)

    def _follow_stores(self, listener: TlsListener, configs: DynamicConfigs, supervisor: Supervisor) -> None:
        async def reload() -> None:
            # Unpacking a store may take tenths of a second.
            await asyncio.to_thread(listener.reload, configs.current)
            self._between_brokers = inter_broker_security(configs.current, self._logins)

        def look(state: object) -> None:
            if state != listener.in_use:
                supervisor.start(reload(), "stores")

        self._unfollow[listener.name] = configs.follow(lambda: listener.state(configs.current), look)


class _Protections(NamedTuple):
    """The TLS and the logins of a listener, each by its name if it has them."""

    tls: dict[str, TlsListener]
    logins: dict[str, ListenerLogins]


def _protections(config: BrokerConfig, name: str) -> _Protections:
    """Return what protects one listener.

    Raises:
        ConfigError: it cannot be served as it is meant.
    """
    return _Protections(tls_listeners(config, name), listener_logins(config, os.environ, name))
