"""BrokerConfig: the settings of a broker, read from a ``server.properties`` and the command line, checked and typed.

It is a value: changes at run time make a new one (see ``dynamic``). Files are read by the caller.
"""

from __future__ import annotations

from collections.abc import Mapping

from engine.kafka.config.broker_configs import BROKER_CONFIG_DEF, BrokerKeys
from engine.kafka.config.broker_warnings import broker_warnings
from engine.kafka.config.listeners import ListenerSettings, resolve_listeners
from engine.kafka.config.rules import check_broker_rules
from engine.kafka.config.values import Value


class BrokerConfig(BrokerKeys):
    """A broker's settings: one attribute for every key that Kafka 3.9 knows, typed by its row in ``broker_configs``.

    ``originals`` are the texts as given; ``listener_settings`` combines several keys. ``warnings`` are
    sentences for the log: unknown keys, and known ones that have no effect here.
    """

    def __init__(self, originals: Mapping[str, str], *, generated_broker_id: int | None = None) -> None:
        """Check the settings. ``generated_broker_id`` replaces a missing ``broker.id``.

        Raises:
            ConfigError: a value or a combination of values is not allowed; the text names the key, the value and what
            is allowed.
        """
        self.originals: Mapping[str, str] = with_node_id(originals)
        self._values: Mapping[str, Value] = BROKER_CONFIG_DEF.parse(self.originals)
        check_broker_rules(self)
        self.generated_broker_id = generated_broker_id
        if generated_broker_id is not None:
            self._set_broker_id(generated_broker_id)
        self.listener_settings: ListenerSettings = self._resolve_listeners()

    @classmethod
    def from_properties(cls, properties: Mapping[str, str], overrides: Mapping[str, str] | None = None) -> BrokerConfig:
        """Return the settings of a properties file; ``overrides`` (``--override key=value``) win."""
        return cls({**properties, **(overrides or {})})

    def with_broker_id(self, broker_id: int) -> BrokerConfig:
        """Return these settings for the id that ZooKeeper handed out."""
        return BrokerConfig(self.originals, generated_broker_id=broker_id)

    @property
    def warnings(self) -> list[str]:
        """What an operator should know about the file, a sentence each."""
        return broker_warnings(self.originals)

    def get(self, name: str) -> Value:
        """Return a setting's value, for code that works by name. KeyError for a key that Kafka 3.9 lacks."""
        return self._values[name]

    def for_listener(self, listener_name: str, name: str) -> Value:
        """Return a setting's value for one listener: ``listener.name.<listener>.<name>`` wins over ``<name>``."""
        text = self.originals.get(f"listener.name.{listener_name.lower()}.{name}")
        return self._values[name] if text is None else BROKER_CONFIG_DEF[name].parse(text)

    def listener_texts(self, listener_name: str) -> dict[str, str]:
        """Return the texts that count for one listener: those with its prefix, without it, win over the others."""
        prefix = f"listener.name.{listener_name.lower()}."
        general = {name: text for name, text in self.originals.items() if not name.startswith("listener.name.")}
        own = {name.removeprefix(prefix): text for name, text in self.originals.items() if name.startswith(prefix)}
        return general | own

    def of_listener(self, listener_name: str) -> BrokerConfig:
        """Return the settings that count for one listener. Raises ConfigError: one of its own is not allowed."""
        return BrokerConfig(self.listener_texts(listener_name), generated_broker_id=self.generated_broker_id)

    def _set_broker_id(self, broker_id: int) -> None:
        self._values = {**self._values, "broker.id": broker_id, "node.id": broker_id}
        vars(self).pop("broker_id", None)
        vars(self).pop("node_id", None)

    def _resolve_listeners(self) -> ListenerSettings:
        return resolve_listeners(
            self.listeners,
            self.advertised_listeners,
            self.listener_security_protocol_map,
            inter_broker_name=self.inter_broker_listener_name,
            inter_broker_protocol=self.security_inter_broker_protocol,
            is_inter_broker_protocol_set="security.inter.broker.protocol" in self.originals,
            control_plane_name=self.control_plane_listener_name,
        )


def with_node_id(originals: Mapping[str, str]) -> dict[str, str]:
    """Return the texts with ``broker.id`` and ``node.id`` replacing each other if one is missing, as in Kafka."""
    texts = dict(originals)
    for missing, present in (("broker.id", "node.id"), ("node.id", "broker.id")):
        if missing not in texts and present in texts:
            texts[missing] = texts[present]
    return texts
