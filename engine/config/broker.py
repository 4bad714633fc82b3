"""BrokerConfig: the settings of a broker, read from a ``server.properties`` and the command line, checked and typed.

It is a value: changes at run time make a new one (see ``dynamic``). Files are read by the caller.
"""

from __future__ import annotations

from collections.abc import Mapping

from engine.config.attributes import Setting, bool_of, first_int_of, int_of, optional_str_of, retention_ms_of, str_of
from engine.config.broker_configs import BROKER_CONFIG_DEF
from engine.config.broker_warnings import broker_warnings
from engine.config.listeners import (
    ListenerSettings,
    parse_connection_overrides,
    parse_csv,
    resolve_listeners,
)
from engine.config.metadata_version import parse_metadata_version
from engine.config.rules import check_broker_rules
from engine.config.values import Value

_SECOND_MS = 1000
_MINUTE_MS = 60 * _SECOND_MS
_HOUR_MS = 60 * _MINUTE_MS


class BrokerConfig:
    """A broker's settings.

    ``originals`` are the texts as given; ``get`` and its typed relatives answer for every key that Kafka 3.9 knows; the
    attributes name what the engine reads most. ``warnings`` are sentences for the log: unknown keys, and known ones
    that have no effect here.
    """

    def __init__(self, originals: Mapping[str, str], *, generated_broker_id: int | None = None) -> None:
        """Check the settings. ``generated_broker_id`` stands in for a ``broker.id`` that is not given.

        Raises:
            ConfigError: a value or a combination of values is not allowed; the text names key, value and what is.
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
        """Return a setting's value. KeyError where Kafka 3.9 knows no such key."""
        return self._values[name]

    def get_int(self, name: str) -> int:
        """Return a whole number."""
        value = self._values[name]
        assert isinstance(value, int), f"{name} is {value!r}"
        return value

    def get_float(self, name: str) -> float:
        """Return a fraction."""
        value = self._values[name]
        assert isinstance(value, (float, int)), f"{name} is {value!r}"
        return float(value)

    def get_bool(self, name: str) -> bool:
        """Return a switch."""
        value = self._values[name]
        assert isinstance(value, bool), f"{name} is {value!r}"
        return value

    def get_str(self, name: str) -> str:
        """Return a text that is always there."""
        value = self._values[name]
        assert isinstance(value, str), f"{name} is {value!r}"
        return value

    def get_list(self, name: str) -> tuple[str, ...]:
        """Return a list; one that is not set is empty."""
        value = self._values[name]
        assert value is None or isinstance(value, tuple), f"{name} is {value!r}"
        return value or ()

    def get_optional_int(self, name: str) -> int | None:
        """Return a whole number, or None where it is not set."""
        return None if self._values[name] is None else self.get_int(name)

    def get_optional_str(self, name: str) -> str | None:
        """Return a text, or None where it is not set."""
        return None if self._values[name] is None else self.get_str(name)

    def for_listener(self, listener_name: str, name: str) -> Value:
        """Return a setting as it is for one listener: ``listener.name.<listener>.<name>`` goes before ``<name>``."""
        text = self.originals.get(f"listener.name.{listener_name.lower()}.{name}")
        return self._values[name] if text is None else BROKER_CONFIG_DEF[name].parse(text)

    def _set_broker_id(self, broker_id: int) -> None:
        self._values = {**self._values, "broker.id": broker_id, "node.id": broker_id}
        vars(self).pop("broker_id", None)

    def _resolve_listeners(self) -> ListenerSettings:
        return resolve_listeners(
            self.get_str("listeners"),
            self.get_optional_str("advertised.listeners"),
            self.get_str("listener.security.protocol.map"),
            inter_broker_name=self.get_optional_str("inter.broker.listener.name"),
            inter_broker_protocol=self.get_str("security.inter.broker.protocol"),
            is_inter_broker_protocol_set="security.inter.broker.protocol" in self.originals,
            control_plane_name=self.get_optional_str("control.plane.listener.name"),
        )

    broker_id = int_of("broker.id")
    broker_id_generation_enable = bool_of("broker.id.generation.enable")
    reserved_broker_max_id = int_of("reserved.broker.max.id")
    rack = optional_str_of("broker.rack")

    zookeeper_connect = str_of("zookeeper.connect")
    zookeeper_session_timeout_ms = int_of("zookeeper.session.timeout.ms")
    zookeeper_connection_timeout_ms = first_int_of(
        ("zookeeper.connection.timeout.ms", 1), ("zookeeper.session.timeout.ms", 1)
    )
    zookeeper_max_in_flight_requests = int_of("zookeeper.max.in.flight.requests")

    listeners = Setting(lambda config: config.listener_settings.listeners)
    advertised_listeners = Setting(lambda config: config.listener_settings.advertised_listeners)
    inter_broker_listener_name = Setting(lambda config: config.listener_settings.inter_broker_listener_name)
    inter_broker_security_protocol = Setting(lambda config: config.listener_settings.inter_broker_security_protocol)
    socket_send_buffer_bytes = int_of("socket.send.buffer.bytes")
    socket_receive_buffer_bytes = int_of("socket.receive.buffer.bytes")
    socket_request_max_bytes = int_of("socket.request.max.bytes")
    socket_listen_backlog_size = int_of("socket.listen.backlog.size")
    socket_connection_setup_timeout_ms = int_of("socket.connection.setup.timeout.ms")
    socket_connection_setup_timeout_max_ms = int_of("socket.connection.setup.timeout.max.ms")
    connections_max_idle_ms = int_of("connections.max.idle.ms")
    max_connections = int_of("max.connections")
    max_connections_per_ip = int_of("max.connections.per.ip")
    max_connections_per_ip_overrides = Setting(
        lambda config: parse_connection_overrides(config.get_str("max.connections.per.ip.overrides"))
    )
    max_connection_creation_rate = int_of("max.connection.creation.rate")
    request_timeout_ms = int_of("request.timeout.ms")

    log_dirs = Setting(lambda config: parse_csv(_first_text(config, "log.dirs", "log.dir")))
    log_segment_bytes = int_of("log.segment.bytes")
    log_roll_ms = first_int_of(("log.roll.ms", 1), ("log.roll.hours", _HOUR_MS))
    log_roll_jitter_ms = first_int_of(("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", _HOUR_MS))
    log_retention_ms = retention_ms_of(
        ("log.retention.ms", 1), ("log.retention.minutes", _MINUTE_MS), ("log.retention.hours", _HOUR_MS)
    )
    log_flush_interval_ms = first_int_of(("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1))
    log_flush_scheduler_interval_ms = int_of("log.flush.scheduler.interval.ms")
    log_flush_offset_checkpoint_interval_ms = int_of("log.flush.offset.checkpoint.interval.ms")
    log_flush_start_offset_checkpoint_interval_ms = int_of("log.flush.start.offset.checkpoint.interval.ms")
    log_retention_check_interval_ms = int_of("log.retention.check.interval.ms")
    log_initial_task_delay_ms = int_of("log.initial.task.delay.ms")
    num_recovery_threads_per_data_dir = int_of("num.recovery.threads.per.data.dir")
    message_max_bytes = int_of("message.max.bytes")
    num_partitions = int_of("num.partitions")
    default_replication_factor = int_of("default.replication.factor")
    auto_create_topics_enable = bool_of("auto.create.topics.enable")
    delete_topic_enable = bool_of("delete.topic.enable")

    replica_lag_time_max_ms = int_of("replica.lag.time.max.ms")
    replica_fetch_max_bytes = int_of("replica.fetch.max.bytes")
    replica_fetch_response_max_bytes = int_of("replica.fetch.response.max.bytes")
    replica_fetch_min_bytes = int_of("replica.fetch.min.bytes")
    replica_fetch_wait_max_ms = int_of("replica.fetch.wait.max.ms")
    replica_fetch_backoff_ms = int_of("replica.fetch.backoff.ms")
    replica_socket_timeout_ms = int_of("replica.socket.timeout.ms")
    replica_socket_receive_buffer_bytes = int_of("replica.socket.receive.buffer.bytes")
    replica_high_watermark_checkpoint_interval_ms = int_of("replica.high.watermark.checkpoint.interval.ms")
    replica_selector_class = optional_str_of("replica.selector.class")
    num_replica_fetchers = int_of("num.replica.fetchers")
    min_insync_replicas = int_of("min.insync.replicas")
    unclean_leader_election_enable = bool_of("unclean.leader.election.enable")
    auto_leader_rebalance_enable = bool_of("auto.leader.rebalance.enable")
    leader_imbalance_check_interval_seconds = int_of("leader.imbalance.check.interval.seconds")
    leader_imbalance_per_broker_percentage = int_of("leader.imbalance.per.broker.percentage")
    controller_socket_timeout_ms = int_of("controller.socket.timeout.ms")
    controlled_shutdown_enable = bool_of("controlled.shutdown.enable")
    controlled_shutdown_max_retries = int_of("controlled.shutdown.max.retries")
    controlled_shutdown_retry_backoff_ms = int_of("controlled.shutdown.retry.backoff.ms")
    inter_broker_protocol_version = Setting(
        lambda config: parse_metadata_version(config.get_str("inter.broker.protocol.version"))
    )
    fetch_max_bytes = int_of("fetch.max.bytes")
    max_incremental_fetch_session_cache_slots = int_of("max.incremental.fetch.session.cache.slots")

    producer_id_expiration_ms = int_of("producer.id.expiration.ms")
    producer_id_expiration_check_interval_ms = int_of("producer.id.expiration.check.interval.ms")
    offsets_topic_num_partitions = int_of("offsets.topic.num.partitions")
    offsets_topic_replication_factor = int_of("offsets.topic.replication.factor")
    transaction_state_log_num_partitions = int_of("transaction.state.log.num.partitions")
    transaction_state_log_replication_factor = int_of("transaction.state.log.replication.factor")


def _first_text(config: BrokerConfig, name: str, stand_in: str) -> str:
    text = config.get_optional_str(name)
    return config.get_str(stand_in) if text is None else text


def with_node_id(originals: Mapping[str, str]) -> dict[str, str]:
    """Return the texts with ``broker.id`` and ``node.id`` standing in for each other, as in Kafka."""
    texts = dict(originals)
    for missing, present in (("broker.id", "node.id"), ("node.id", "broker.id")):
        if missing not in texts and present in texts:
            texts[missing] = texts[present]
    return texts
