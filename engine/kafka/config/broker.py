"""BrokerConfig: the settings of a broker, read from a ``server.properties`` and the command line, checked and typed.

``broker_warnings`` is what an operator should know although the broker starts: keys without effect.

It never changes: changes at run time make a new one (see ``dynamic``). The caller reads files.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any, Final

from engine.common.errors import ConfigError
from engine.kafka.config.broker_configs import BROKER_CONFIG_DEF, OWN_KEYS, BrokerKeys
from engine.kafka.config.definition import ConfigKey
from engine.kafka.config.dynamic_keys import DYNAMIC_CONFIG_DEF, LISTENER_PREFIX
from engine.kafka.config.listeners import ListenerSettings, parse_csv, resolve_listeners
from engine.kafka.config.metadata_version import (
    highest_record_magic,
    is_message_format_version_ignored,
    parse_metadata_version,
)
from engine.kafka.config.values import Value, require

_MIB = 1024 * 1024


def check_broker_rules(config: BrokerKeys) -> None:
    """Check the settings of a broker against each other.

    Raises:
        ConfigError: the first rule that is broken.
    """
    _check_mode(config)
    _check_broker_id(config)
    _check_log(config)
    _check_replication(config)
    _check_connections(config)
    _check_groups(config)
    _check_record_format(config)


def _check_mode(config: BrokerKeys) -> None:
    roles = config.process_roles
    if roles:
        raise ConfigError(
            f"process.roles={','.join(roles)} asks for KRaft mode, but klamm brokers keep their metadata in ZooKeeper. "
            "Remove process.roles and set zookeeper.connect.",
            key="process.roles",
        )
    if config.zookeeper_metadata_migration_enable:
        raise ConfigError(
            "zookeeper.metadata.migration.enable=true asks for the move to KRaft, but klamm brokers stay with "
            "ZooKeeper. Remove it.",
            key="zookeeper.metadata.migration.enable",
        )
    if config.zookeeper_connect is None:  # here only: no other code sees settings without it
        raise ConfigError(
            "Missing required configuration `zookeeper.connect` which has no default value.", key="zookeeper.connect"
        )
    names = config.controller_listener_names
    require(
        not names,
        f"controller.listener.names must be empty when not running in KRaft mode: [{names}]",
        key="controller.listener.names",
    )


def _check_broker_id(config: BrokerKeys) -> None:
    if config.node_id != config.broker_id:
        raise ConfigError("You must set `node.id` to the same value as `broker.id`.", key="node.id")
    if config.broker_id_generation_enable:
        require(
            -1 <= config.broker_id <= config.reserved_broker_max_id,
            "broker.id must be greater than or equal to -1 and not greater than reserved.broker.max.id",
            key="broker.id",
        )
    else:
        require(config.broker_id >= 0, "broker.id must be greater than or equal to 0", key="broker.id")


def _check_log(config: BrokerKeys) -> None:
    require(config.log_roll_ms >= 1, "log.roll.ms must be greater than or equal to 1", key="log.roll.ms")
    require(
        config.log_roll_jitter_ms >= 0,
        "log.roll.jitter.ms must be greater than or equal to 0",
        key="log.roll.jitter.ms",
    )
    require(
        config.log_retention_ms >= 1 or config.log_retention_ms == -1,
        "log.retention.ms must be unlimited (-1) or, greater than or equal to 1",
        key="log.retention.ms",
    )
    require(
        bool(config.log_dirs), "At least one log directory must be defined via log.dirs or log.dir.", key="log.dirs"
    )
    threads = config.log_cleaner_threads
    require(
        threads > 0 and config.log_cleaner_dedupe_buffer_size // threads > _MIB,
        "log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread.",
        key="log.cleaner.dedupe.buffer.size",
    )


def _check_replication(config: BrokerKeys) -> None:
    wait_ms = config.replica_fetch_wait_max_ms
    require(
        wait_ms <= config.replica_socket_timeout_ms,
        "replica.socket.timeout.ms should always be at least replica.fetch.wait.max.ms "
        "to prevent unnecessary socket timeouts",
        key="replica.socket.timeout.ms",
    )
    require(
        wait_ms <= config.replica_lag_time_max_ms,
        "replica.fetch.wait.max.ms should always be less than or equal to replica.lag.time.max.ms "
        "to prevent frequent changes in ISR",
        key="replica.fetch.wait.max.ms",
    )


def _check_connections(config: BrokerKeys) -> None:
    queued_bytes, request_bytes = config.queued_max_request_bytes, config.socket_request_max_bytes
    require(
        queued_bytes <= 0 or queued_bytes >= request_bytes,
        "queued.max.request.bytes must be larger or equal to socket.request.max.bytes",
        key="queued.max.request.bytes",
    )
    require(
        bool(config.max_connections_per_ip_overrides) or config.max_connections_per_ip > 0,
        "max.connections.per.ip can be set to zero only if max.connections.per.ip.overrides property is set.",
        key="max.connections.per.ip",
    )
    delay_ms, idle_ms = config.connection_failed_authentication_delay_ms, config.connections_max_idle_ms
    require(
        idle_ms < 0 or delay_ms < idle_ms,
        f"connection.failed.authentication.delay.ms={delay_ms} should always be less than "
        f"connections.max.idle.ms={idle_ms} to prevent failed authentication responses from timing out",
        key="connections.max.idle.ms",
    )


_ZSTD: Final = 4
"""The last of the codecs' numbers."""

_BOUNDED: Final = (
    (
        BrokerKeys.group_consumer_heartbeat_interval_ms,
        BrokerKeys.group_consumer_min_heartbeat_interval_ms,
        BrokerKeys.group_consumer_max_heartbeat_interval_ms,
    ),
    (
        BrokerKeys.group_consumer_session_timeout_ms,
        BrokerKeys.group_consumer_min_session_timeout_ms,
        BrokerKeys.group_consumer_max_session_timeout_ms,
    ),
    (
        BrokerKeys.group_share_heartbeat_interval_ms,
        BrokerKeys.group_share_min_heartbeat_interval_ms,
        BrokerKeys.group_share_max_heartbeat_interval_ms,
    ),
    (
        BrokerKeys.group_share_session_timeout_ms,
        BrokerKeys.group_share_min_session_timeout_ms,
        BrokerKeys.group_share_max_session_timeout_ms,
    ),
)
"""Settings with others that are their bounds."""


def _check_groups(config: BrokerKeys) -> None:
    codec, acks = config.offsets_topic_compression_codec, config.offsets_commit_required_acks
    if not 0 <= codec <= _ZSTD:
        raise ConfigError(f"Unknown compression type id: {codec}", key="offsets.topic.compression.codec")
    if not -1 <= acks <= config.offsets_topic_replication_factor:
        raise ConfigError(
            "offsets.commit.required.acks must be greater or equal to -1 and less or equal to "
            "offsets.topic.replication.factor",
            key="offsets.commit.required.acks",
        )
    for key, low, high in _BOUNDED:
        for small, large, is_high in ((low, high, True), (low, key, True), (key, high, False)):
            if small.of(config) > large.of(config):
                name, word, other = (large.name, "greater", small.name) if is_high else (small.name, "less", large.name)
                raise ConfigError(f"{name} must be {word} than or equals to {other}", key=name)
    protocols = config.group_coordinator_rebalance_protocols
    name = "group.coordinator.rebalance.protocols"
    if "classic" not in protocols:
        raise ConfigError("Disabling the 'classic' protocol is not supported.", key=name)
    if "consumer" in protocols:
        raise ConfigError("The new 'consumer' rebalance protocol is only supported in KRaft cluster.", key=name)


def _check_record_format(config: BrokerKeys) -> None:
    ibp = config.inter_broker_protocol_version
    asked = config.log_message_format_version
    magic = 0 if is_message_format_version_ignored(ibp) else highest_record_magic(parse_metadata_version(asked))
    needed = ("0.8.0", "0.10.0", "0.11.0")[magic]
    require(
        highest_record_magic(ibp) >= magic,
        f"log.message.format.version {asked} can only be used when inter.broker.protocol.version "
        f"is set to version {needed} or higher",
        key="log.message.format.version",
    )
    require(
        config.offsets_topic_compression_codec != _ZSTD or highest_record_magic(ibp) == 2,
        "offsets.topic.compression.codec zstd can only be used when inter.broker.protocol.version is set to version "
        "2.1 or higher",
        key="offsets.topic.compression.codec",
    )


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
        self._check_early_listeners()

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> BrokerConfig:
        """Return the settings of a properties file."""
        return cls({**properties})

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

    def with_prefix(self, prefix: str) -> BrokerConfig:
        """Return the settings that count for a part that has its own below a prefix, as a mechanism has.

        Raises ConfigError: one of its own is not allowed.
        """
        own = {name.removeprefix(prefix): text for name, text in self.originals.items() if name.startswith(prefix)}
        return BrokerConfig({**self.originals, **own}, generated_broker_id=self.generated_broker_id)

    def _set_broker_id(self, broker_id: int) -> None:
        self._values = {**self._values, "broker.id": broker_id, "node.id": broker_id}
        vars(self).pop("broker_id", None)
        vars(self).pop("node_id", None)

    def _check_early_listeners(self) -> None:
        known = {endpoint.listener_name for endpoint in self.listener_settings.listeners}
        unknown = next((name for name in parse_csv(self.early_start_listeners) if name not in known), None)
        if unknown is not None:
            raise ConfigError(
                f"early.start.listeners contains listener {unknown}, but this is not contained in listeners or "
                "controller.listener.names",
                key="early.start.listeners",
            )

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


FORMER_KEYS: Final[Mapping[str, str]] = {
    "port": "Set listeners instead, e.g. listeners=PLAINTEXT://:9092.",
    "host.name": "Set listeners instead, e.g. listeners=PLAINTEXT://host:9092.",
    "advertised.port": "Set advertised.listeners instead.",
    "advertised.host.name": "Set advertised.listeners instead.",
    "quota.producer.default": "Set the default quota of clients by klamm quotas instead.",
    "quota.consumer.default": "Set the default quota of clients by klamm quotas instead.",
    "replica.lag.max.messages": "Followers leave the ISR by time alone, see replica.lag.time.max.ms.",
    "zookeeper.sync.time.ms": "It was for Kafka's old ZooKeeper client; remove it.",
    "log.cleaner.min.cleanable.dirty.ratio": "The key is log.cleaner.min.cleanable.ratio.",
    "log.delete.delay.ms": "The key is log.segment.delete.delay.ms.",
}
"""Keys of older Kafka versions that 3.9 does not know, and what to do about each."""

_OF_PROVIDERS: Final = "config.providers"
"""What the settings begin with that say where values stand that are not in the file."""

_OF_AUTHORIZER: Final = ("super.users", "allow.everyone.if.no.acl.found", "authorizer.zookeeper.url")
_OF_LISTENERS: Final = ("ssl.", "sasl.", "connections.max.reauth.ms", "max.connection")
"""Beginnings of the settings that klamm takes for single listeners."""

CSV_REPORTER: Final = "kafka.metrics.KafkaCSVMetricsReporter"
_OF_CSV_REPORTER: Final = ("kafka.csv.metrics.dir", "kafka.csv.metrics.reporter.enabled")


def broker_warnings(originals: Mapping[str, str]) -> list[str]:
    """Return a sentence for each key that is unknown or has no effect in klamm."""
    return [warning for name in sorted(originals) if (warning := _warning(name, originals)) is not None]


def unknown_settings(names: Iterable[str]) -> dict[str, str | None]:
    """Return the names that no setting of a broker has, each with the known one that is nearest to it, if any is near.

    A broker stores and hands out such settings at run time: a plug-in may read them.
    """
    return {name: _near(name) for name in names if not _is_known(name)}


def _is_known(name: str) -> bool:
    prefix = LISTENER_PREFIX.match(name)
    return (
        name in OWN_KEYS
        or name.startswith(_OF_PROVIDERS)
        or name in DYNAMIC_CONFIG_DEF
        or name in _OF_AUTHORIZER
        or name in _OF_CSV_REPORTER
        or _key(name[prefix.end() :] if prefix else name, has_prefix=prefix is not None) is not None
    )


def _key(base: str, *, has_prefix: bool) -> ConfigKey[Any] | None:
    return BROKER_CONFIG_DEF.get(base) or (BROKER_CONFIG_DEF.get(base.partition(".")[2]) if has_prefix else None)


def _near(name: str) -> str | None:
    names = [*BROKER_CONFIG_DEF.names, *OWN_KEYS]
    return next(iter(difflib.get_close_matches(name, names, n=1, cutoff=0.9)), None)


def _warning(name: str, originals: Mapping[str, str]) -> str | None:
    if name in OWN_KEYS or name.startswith(_OF_PROVIDERS):
        return None
    if name == "node.id" and originals.get("broker.id") == originals[name]:
        return None
    prefix = LISTENER_PREFIX.match(name)
    base = name[prefix.end() :] if prefix else name
    key = _key(base, has_prefix=prefix is not None)
    if key is not None:
        is_idle = not key.has_effect or (prefix is not None and not key.name.startswith(_OF_LISTENERS))
        return f"Setting {name} has no effect in klamm: {key.doc}" if is_idle else None
    if name in _OF_AUTHORIZER:
        has_authorizer = bool(originals.get("authorizer.class.name"))
        return None if has_authorizer else f"Setting {name} has no effect without an authorizer."
    if name in _OF_CSV_REPORTER:
        has_reporter = CSV_REPORTER in originals.get("kafka.metrics.reporters", "")
        return None if has_reporter else f"Setting {name} has no effect without kafka.metrics.reporters={CSV_REPORTER}."
    if name in FORMER_KEYS:
        return f"Setting {name} is unknown since an earlier Kafka version and has no effect. {FORMER_KEYS[name]}"
    if name in DYNAMIC_CONFIG_DEF:
        return f"Setting {name} has no effect in a file. Set it at run time: klamm configs alter broker/<id> {name}=…"
    near = _near(name)
    hint = "" if near is None else f" Did you mean {near}?"
    return f"Setting {name} is unknown and has no effect.{hint}"
