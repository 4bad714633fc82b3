"""DynamicConfigs: the settings that change while a broker runs, as ZooKeeper's ``/config`` tells them. No I/O.

It belongs to the broker's event loop. Somebody else reads ``/config/<type>/<name>`` and hands the content to ``apply``;
it answers with the settings in force and tells listeners what changed. Precedence: topic override, this broker's
dynamic settings, those of all brokers, the broker's file, Kafka's default (KIP-226).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from engine.common.errors import ConfigError
from engine.config.broker import BrokerConfig
from engine.config.broker_configs import BROKER_CONFIG_DEF
from engine.config.dynamic_keys import THROTTLE_KEYS, usable_dynamic_config
from engine.config.log_config import LONG_MAX, LogConfig
from engine.config.reconfiguration import AT_START_ONLY
from engine.config.topic_configs import ignored_format_version_warning, topic_log_config, usable_overrides

TOPICS: Final = "topics"
BROKERS: Final = "brokers"
CLIENTS: Final = "clients"
USERS: Final = "users"
IPS: Final = "ips"
ENTITY_TYPES: Final = (TOPICS, CLIENTS, USERS, BROKERS, IPS)
"""The folders of ``/config`` whose nodes hold settings."""

DEFAULT_ENTITY: Final = "<default>"
"""Name of the entity that stands for all of its type."""

Overrides = Mapping[str, str]
TopicListener = Callable[[str, LogConfig], None]
BrokerListener = Callable[[BrokerConfig, BrokerConfig], None]
EntityListener = Callable[[str, str, Overrides], None]

_NONE: Final[Overrides] = {}


class DynamicConfigs:
    """The settings in force on one broker.

    Listeners run inside ``apply``, once the new settings are in force:

    * ``topic_listeners(topic, log_config)`` after a topic's overrides changed;
    * ``broker_listeners(old, new)`` after the broker's own settings changed, and with them the defaults of all topics;
    * ``entity_listeners(entity_type, entity_name, texts)`` after settings of clients, users or addresses changed.
    """

    def __init__(self, static: BrokerConfig) -> None:
        self.static = static
        self.current = static
        self.broker_overrides: Overrides = _NONE
        self.default_overrides: Overrides = _NONE
        self.topic_listeners: list[TopicListener] = []
        self.broker_listeners: list[BrokerListener] = []
        self.entity_listeners: list[EntityListener] = []
        self._stored: dict[tuple[str, str], Overrides] = {}
        self._topic_overrides: dict[str, Overrides] = {}
        self._log_configs: dict[str, LogConfig] = {}
        self._default_log_config = topic_log_config({}, static)

    def apply(self, entity_type: str, entity_name: str, texts: Overrides) -> list[str]:
        """Take over the content of ``/config/<entity_type>/<entity_name>``; empty where the node is gone.

        Returns what could not be used, a sentence each, for the log: the rest is in force.
        """
        if entity_type == TOPICS:
            return self._apply_topic(entity_name, dict(texts))
        self._stored[entity_type, entity_name] = dict(texts)
        if entity_type == BROKERS:
            return self._apply_broker(entity_name, dict(texts))
        for listener in self.entity_listeners:
            listener(entity_type, entity_name, texts)
        return []

    def log_config(self, topic: str) -> LogConfig:
        """Return the settings of a topic's logs; a topic without overrides has the broker's defaults."""
        found = self._log_configs.get(topic)
        if found is not None:
            return found
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
        """Return a topic's overrides as they were last told, unusable ones included."""
        return self._topic_overrides.get(topic, _NONE)

    def stored_texts(self, entity_type: str, entity_name: str) -> Overrides:
        """Return what an entity's node held when it was last told, usable or not."""
        if entity_type == TOPICS:
            return self.topic_overrides(entity_name)
        return self._stored.get((entity_type, entity_name), _NONE)

    @property
    def known_topics(self) -> frozenset[str]:
        """Topics whose overrides were ever told."""
        return frozenset(self._topic_overrides)

    def knows_topic(self, topic: str) -> bool:
        """Say whether a topic's overrides were ever told, be it that it has none."""
        return topic in self._topic_overrides

    def forget_topic(self, topic: str) -> None:
        """Drop a deleted topic, so that a new one of its name does not inherit its overrides. Tells nobody."""
        self._topic_overrides.pop(topic, None)
        self._log_configs.pop(topic, None)

    @property
    def leader_replication_throttled_rate(self) -> int:
        """Bytes a second that leaders may send to throttled replicas."""
        return self._dynamic_rate("leader.replication.throttled.rate")

    @property
    def follower_replication_throttled_rate(self) -> int:
        """Bytes a second that followers may fetch for throttled replicas."""
        return self._dynamic_rate("follower.replication.throttled.rate")

    @property
    def alter_log_dirs_throttled_rate(self) -> int:
        """Bytes a second that moves between log dirs may take."""
        return self._dynamic_rate("replica.alter.log.dirs.io.max.bytes.per.second")

    def preview(self, texts: Overrides, *, is_per_broker: bool) -> BrokerConfig:
        """Return the broker's settings as they would be with these for it, or for all brokers.

        Raises:
            ConfigError: they would not do.
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
        for listener in self.topic_listeners:
            listener(topic, config)
        warning = ignored_format_version_warning(topic, usable, self.current)
        return problems if warning is None else [*problems, warning]

    def _apply_broker(self, name: str, texts: dict[str, str]) -> list[str]:
        is_default = name == DEFAULT_ENTITY
        if not is_default and name != str(self.static.broker_id):
            return []
        usable, problems = usable_dynamic_config(texts, is_per_broker=not is_default)
        problems += self._drop_listeners(usable)
        try:
            new = self.preview(usable, is_per_broker=not is_default)
        except ConfigError as error:
            whose = "Cluster default configs" if is_default else f"Per-broker configs of {name}"
            return [*problems, f"{whose} could not be applied: {error}"]
        if is_default:
            self.default_overrides = usable
        else:
            self.broker_overrides = usable
        self._install(new)
        return problems

    def _install(self, new: BrokerConfig) -> None:
        old, self.current = self.current, new
        self._default_log_config = topic_log_config({}, new)
        self._log_configs.clear()
        for listener in self.broker_listeners:
            listener(old, new)

    def _merge(self, default_overrides: Overrides, broker_overrides: Overrides) -> BrokerConfig:
        texts = dict(self.static.originals)
        for overrides in (default_overrides, broker_overrides):
            for name, text in overrides.items():
                key = BROKER_CONFIG_DEF.get(name)
                for synonym in key.synonyms if key is not None else ():
                    texts.pop(synonym, None)
                texts[name] = text
        return BrokerConfig(texts, generated_broker_id=self.static.generated_broker_id)

    def _drop_listeners(self, texts: dict[str, str]) -> list[str]:
        """Take out listeners that differ from those the broker opened at its start; return what to say of them."""
        names = [name for name in AT_START_ONLY if name in texts and texts[name] != self.static.originals.get(name)]
        for name in names:
            del texts[name]
        return [f"{name} counts from the broker's file only, at its start" for name in names]

    def _dynamic_rate(self, name: str) -> int:
        text = self.broker_overrides.get(name, self.default_overrides.get(name))
        if text is None:
            return LONG_MAX
        key = next(key for key in THROTTLE_KEYS if key.name == name)
        rate = key.parse(text)
        assert isinstance(rate, int)
        return rate
