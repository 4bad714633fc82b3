"""DynamicConfigs: the settings that change while a broker runs, from ZooKeeper's ``/config``. No I/O.

It belongs to the broker's event loop. Other code reads ``/config/<type>/<name>`` and passes the content to ``apply``;
this provides the settings in force and passes changes to its followers. Precedence: topic override, this broker's
dynamic settings, those of all brokers, the broker's file, Kafka's default (KIP-226).

``check_reconfiguration`` is what a change of a running broker's settings must respect beyond each value's own limits.
Source: the reconfigurables of DynamicBrokerConfig in Kafka 3.9; the texts of the errors are Kafka's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, TypeVar

from engine.common.errors import ConfigError
from engine.kafka.config.broker import BrokerConfig
from engine.kafka.config.broker_configs import BROKER_CONFIG_DEF, BrokerKeys
from engine.kafka.config.dynamic_keys import Throttles, is_dynamic_for_listeners, usable_dynamic_config
from engine.kafka.config.log_config import LogConfig
from engine.kafka.config.password_encoder import PasswordEncoder, decoded
from engine.kafka.config.topic_config_values import (
    ignored_format_version_warning,
    server_defaults,
    topic_log_config,
    usable_overrides,
)
from engine.kafka.config.values import ReconfigurationError

TOPICS: Final = "topics"
BROKERS: Final = "brokers"
CLIENTS: Final = "clients"
USERS: Final = "users"
IPS: Final = "ips"
ENTITY_TYPES: Final = (TOPICS, CLIENTS, USERS, BROKERS, IPS)
"""The folders of ``/config`` whose nodes hold settings."""

CLIENT_TYPES: Final = (CLIENTS, USERS, IPS)
"""Those that are about the cluster's clients."""

DEFAULT_ENTITY: Final = "<default>"
"""The name of the entity that means all of its type."""

Overrides = Mapping[str, str]
TopicFollower = Callable[[str, LogConfig], None]
ClientFollower = Callable[[str, str, Overrides], None]

NOTES_MAX: Final = 10

T = TypeVar("T")

_NONE: Final[Overrides] = {}


class DynamicConfigs:
    """The settings in force on one broker.

    Code that depends on a changeable setting follows it: ``follow`` for the broker's own, ``follow_topics`` for those
    of topics. Followers run inside ``apply``, in the order in which they came, once the new settings are in force. If
    one fails, the others still run, and ``apply`` then raises its error.
    """

    def __init__(self, static: BrokerConfig, resolve: Callable[[Overrides], Overrides] = lambda texts: texts) -> None:
        """``resolve`` replaces references to what stands elsewhere, as in the broker's file; it raises ConfigError."""
        self.static = static
        self._resolve = resolve
        self.password_encoder = PasswordEncoder.of(static)
        self.current = static
        self.broker_overrides: Overrides = _NONE
        self.default_overrides: Overrides = _NONE
        self.throttles = Throttles(_NONE)
        self.is_running = False
        """Whether the broker has started: from then on, it refuses settings that it cannot change to."""
        self._followers: list[Callable[[], None]] = []
        self._topic_followers: list[TopicFollower] = []
        self._client_followers: list[ClientFollower] = []
        self._stored: dict[tuple[str, str], Overrides] = {}
        self._topic_overrides: dict[str, Overrides] = {}
        self._log_configs: dict[str, LogConfig] = {}
        self._default_log_config = topic_log_config({}, static)
        self.log_defaults = server_defaults(static)
        """The broker's settings that are defaults of topics' settings, by the topic's key."""

    def follow(self, read: Callable[[], T], take: Callable[[T], None]) -> Callable[[], None]:
        """Pass to ``take`` what ``read`` returns for the broker's settings: now, and again each time that changes.

        A change that ``take`` fails on is passed to it again with the next one. Who goes before the broker does, calls
        what this returns, once: from then on ``take`` gets nothing.
        """
        taken = read()
        take(taken)

        def look() -> None:
            nonlocal taken
            new = read()
            if new != taken:
                take(new)
                taken = new

        self._followers.append(look)
        return lambda: self._followers.remove(look)

    def follow_topics(self, take: TopicFollower) -> None:
        """Pass each known topic and its settings to ``take``: now, and again when the topic's overrides change."""
        for topic in self._topic_overrides:
            take(topic, self.log_config(topic))
        self._topic_followers.append(take)

    def follow_clients(self, take: ClientFollower) -> None:
        """Pass the settings of users, client ids and addresses to ``take``: now, and again when an entity's are read.

        It gets the type, the name and the settings, none if the entity is gone.
        """
        for (entity_type, name), texts in self._stored.items():
            if entity_type in CLIENT_TYPES:
                take(entity_type, name, texts)
        self._client_followers.append(take)

    def apply(self, entity_type: str, entity_name: str, texts: Overrides) -> list[str]:
        """Apply the content of ``/config/<entity_type>/<entity_name>``; empty if the node is gone.

        Returns what could not be used, a sentence each, for the log: the rest is in force.
        """
        if entity_type == TOPICS:
            return self._apply_topic(entity_name, dict(texts))
        if texts or entity_type == BROKERS:
            self._stored[entity_type, entity_name] = dict(texts)
        else:
            self._stored.pop((entity_type, entity_name), None)
        if entity_type == BROKERS:
            return self._apply_broker(entity_name, dict(texts))
        _run_all(partial(take, entity_type, entity_name, texts) for take in self._client_followers)
        return []

    def log_config(self, topic: str) -> LogConfig:
        """Return the settings of a topic's logs; a topic without overrides has the broker's defaults."""
        config = self._log_configs.get(topic)
        if config is not None:
            return config
        overrides = self._topic_overrides.get(topic)
        if not overrides:
            return self._default_log_config
        usable, _ = usable_overrides(overrides)
        broker = self.current
        made = topic_log_config(usable, broker)
        if broker is self.current:  # logs are loaded in a thread while changes may come in
            self._log_configs[topic] = made
        return made

    def topic_overrides(self, topic: str) -> Overrides:
        """Return a topic's overrides as last reported, including unusable ones."""
        return self._topic_overrides.get(topic, _NONE)

    def stored_texts(self, entity_type: str, entity_name: str) -> Overrides:
        """Return the last reported content of an entity's node, usable or not."""
        if entity_type == TOPICS:
            return self.topic_overrides(entity_name)
        return self._stored.get((entity_type, entity_name), _NONE)

    def known_names(self, entity_type: str) -> set[str]:
        """Return the names of a type's entities that had settings when last reported."""
        if entity_type == TOPICS:
            return set(self._topic_overrides)
        return {name for kind, name in self._stored if kind == entity_type}

    def knows_topic(self, topic: str) -> bool:
        """Say whether a topic's overrides were ever reported, even if it has none."""
        return topic in self._topic_overrides

    def forget_topic(self, topic: str) -> None:
        """Drop a deleted topic, so that a new one with its name does not inherit its overrides. Notifies no
        subscriber."""
        self._topic_overrides.pop(topic, None)
        self._log_configs.pop(topic, None)

    def preview(self, texts: Overrides, *, is_per_broker: bool) -> BrokerConfig:
        """Return the broker's settings as they would be with these for it, or for all brokers.

        Raises:
            ConfigError: they are not allowed.
        """
        if is_per_broker:
            return self._merge(self.default_overrides, texts)
        return self._merge(texts, self.broker_overrides)

    def _apply_topic(self, topic: str, texts: dict[str, str]) -> list[str]:
        if self._topic_overrides.get(topic) == texts:
            return []
        usable, problems = usable_overrides(texts)
        config = topic_log_config(usable, self.current)
        self._topic_overrides[topic] = texts
        self._log_configs.pop(topic, None)
        if usable:
            self._log_configs[topic] = config
        _run_all(partial(take, topic, config) for take in self._topic_followers)
        warning = ignored_format_version_warning(topic, usable, self.current)
        return problems if warning is None else [*problems, warning]

    def _apply_broker(self, name: str, texts: dict[str, str]) -> list[str]:
        is_default = name == DEFAULT_ENTITY
        if not is_default and name != str(self.static.broker_id):
            return []
        clear, undecoded = decoded(texts, self.password_encoder)
        usable, problems = usable_dynamic_config(clear, is_per_broker=not is_default)
        problems += undecoded
        # As in Kafka, they stay even if they cannot be used: with those of the other level, read next, they may do.
        if is_default:
            self.default_overrides = usable
        else:
            self.broker_overrides = usable
        try:
            self._install(self._merge(self.default_overrides, self.broker_overrides))
        except ConfigError as error:
            whose = "Cluster default configs" if is_default else f"Per-broker configs of {name}"
            problems.append(f"{whose} could not be applied: {error}")
        # Whatever is wrong with other settings: a reassignment under way relies on its throttles.
        self.throttles = Throttles({**self.default_overrides, **self.broker_overrides})
        _run_all(self._followers)
        return problems

    def _install(self, new: BrokerConfig) -> None:
        if self.is_running:
            check_reconfiguration(self.current, new)
        self.current = new
        defaults = server_defaults(new)
        if defaults != self.log_defaults:
            self._default_log_config = topic_log_config({}, new)
            self._log_configs.clear()
            self.log_defaults = defaults

    def _merge(self, default_overrides: Overrides, broker_overrides: Overrides) -> BrokerConfig:
        texts = dict(self.static.originals)
        for overrides in (default_overrides, broker_overrides):
            for name, text in overrides.items():
                key = BROKER_CONFIG_DEF.get(name)
                for synonym in key.synonyms if key is not None else ():
                    texts.pop(synonym, None)
                texts[name] = text
        return BrokerConfig(self._resolve(texts), generated_broker_id=self.static.generated_broker_id)


def _run_all(followers: Iterable[Callable[[], None]]) -> None:
    """Run all of them, then raise the first error, with a note of each other one."""
    failures: list[Exception] = []
    for run in followers:
        try:
            run()
        except Exception as error:
            failures.append(error)
    raise_first(failures)


def raise_first(failures: Sequence[Exception]) -> None:
    """Raise the first error, if there is any, with a note of each of the next few, so that the log has them."""
    if failures:
        for other in failures[1:NOTES_MAX]:
            failures[0].add_note(f"another failed, too: {other!r}")
        raise failures[0]


_THREAD_COUNTS: Final = (
    BrokerKeys.num_io_threads,
    BrokerKeys.num_replica_fetchers,
    BrokerKeys.num_recovery_threads_per_data_dir,
    BrokerKeys.background_threads,
    BrokerKeys.num_network_threads,
)


_LIMITS: Final = (BrokerKeys.max_connections.name, BrokerKeys.max_connection_creation_rate.name)
"""How many connections a listener may have, and how many may come to it in a second."""


def check_reconfiguration(current: BrokerConfig, new: BrokerConfig) -> None:
    """Check the step from one set of settings to another.

    Raises:
        ReconfigurationError: a thread count more than halves or doubles, a listener changes that stays, or no client
            could connect to it any more.
    """
    for key in _THREAD_COUNTS:
        _check_thread_count(key.name, key.of(current), key.of(new))
    _check_cleaner_threads(current.log_cleaner_threads, new.log_cleaner_threads)
    _check_listeners(current, new)
    _check_limits(current, new)


def _check_listeners(current: BrokerConfig, new: BrokerConfig) -> None:
    """Let listeners come and go; of one that stays, only stores and limits may change."""
    protocols = {each.listener_name: each.security_protocol for each in current.listener_settings.listeners}
    for endpoint in new.listener_settings.listeners:
        name = endpoint.listener_name
        if name not in protocols:
            continue
        if _fixed_texts(current, name) != _fixed_texts(new, name):
            raise ReconfigurationError(
                f"Configs cannot be updated dynamically for existing listener ListenerName({name}), restart broker or "
                "create a new listener for update",
                key="listeners",
            )
        if protocols[name] is not endpoint.security_protocol:
            raise ReconfigurationError(
                f"Security protocol cannot be updated for existing listener ListenerName({name})", key="listeners"
            )


def _check_limits(current: BrokerConfig, new: BrokerConfig) -> None:
    """Refuse limits that let no connection in: no operator could connect to raise them again."""
    for endpoint in current.listener_settings.listeners:
        before, after = (
            {name: config.for_listener(endpoint.listener_name, name) for name in _LIMITS} for config in (current, new)
        )
        if after != before:
            for name, limit in after.items():
                if limit == 0:
                    raise ReconfigurationError(f"Invalid {name} {limit}", key=name)


def _fixed_texts(config: BrokerConfig, listener_name: str) -> dict[str, str]:
    prefix = f"listener.name.{listener_name.lower()}."
    own = {name.removeprefix(prefix): text for name, text in config.originals.items() if name.startswith(prefix)}
    return {name: text for name, text in own.items() if not is_dynamic_for_listeners(name)}


def _check_thread_count(name: str, old: int, new: int) -> None:
    failed = f"Dynamic thread count update validation failed for {name}={new}"
    if new < old // 2:
        raise ReconfigurationError(f"{failed}, value should be at least half the current value {old}", key=name)
    if new > old * 2:
        raise ReconfigurationError(
            f"{failed}, value should not be greater than double the current value {old}", key=name
        )


def _check_cleaner_threads(old: int, new: int) -> None:
    name = "log.cleaner.threads"
    if new < old // 2:
        raise ReconfigurationError(
            f"Log cleaner threads cannot be reduced to less than half the current value {old}", key=name
        )
    if new > old * 2:
        raise ReconfigurationError(
            f"Log cleaner threads cannot be increased to more than double the current value {old}", key=name
        )
