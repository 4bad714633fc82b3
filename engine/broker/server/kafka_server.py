"""KafkaServer: one broker, which creates, starts and stops its parts in Kafka's order.

It makes no decision that belongs to a part; it is the only module that knows them all.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from pathlib import Path

from engine.broker.controller.loop import Controller
from engine.broker.controller.producer_ids import ProducerIdManager, block_from_controller
from engine.broker.controller.topic_admin import TopicAdmin
from engine.broker.coordinator.groups.coordinator import GroupCoordinator
from engine.broker.coordinator.peers import BrokerConnections
from engine.broker.coordinator.transactions.coordinator import TransactionCoordinator
from engine.broker.coordinator.transactions.marker_writer import MarkerWriter
from engine.broker.coordinator.transactions.settings import transaction_settings
from engine.broker.coordinator.transactions.verifier import TransactionVerifier
from engine.broker.fetch.session_cache import FetchSessionCache
from engine.broker.handlers.api_versions import answer_unknown_version
from engine.broker.handlers.context import RequestContext
from engine.broker.handlers.guards import guarded
from engine.broker.handlers.metadata import UNKNOWN_MS_MAX, once_known
from engine.broker.handlers.registry import all_handlers
from engine.broker.log.environment import LoadingStopped
from engine.broker.log.log_manager import LogManager, LogManagerConfig
from engine.broker.network.routes import HandlerSpec, Route, RouteTable
from engine.broker.network.server import SocketServer
from engine.broker.quotas.client_quotas import ClientQuotas
from engine.broker.replication.alter_partition import AlterPartitionManager
from engine.broker.replication.controller_channel import ControllerChannel
from engine.broker.replication.isr_updater import IsrUpdater, ZkIsrUpdater
from engine.broker.replication.metadata_cache import MetadataCache
from engine.broker.replication.offset_lookup import OffsetSearch
from engine.broker.replication.replica_manager import ReplicaManager
from engine.broker.replication.replica_selector import replica_selector
from engine.broker.security.authorizer import Authorizer
from engine.broker.security.delegation_tokens import DelegationTokens, secret_of_tokens
from engine.broker.server.controlled_shutdown import ControlledShutdown
from engine.broker.server.dynamic_effects import follow_limits, follow_quotas, follow_settings, set_log_settings
from engine.broker.server.log_cleaning import LogCleaner
from engine.broker.server.log_upkeep import LogUpkeep
from engine.broker.server.metrics import BrokerMetrics
from engine.broker.server.metrics_pages import MetricsPages
from engine.broker.server.own_listeners import OwnListeners
from engine.broker.server.own_security import OwnSecurity
from engine.broker.server.reporters import MetricsReport, reporters
from engine.broker.server.settings import (
    allows_without_rules,
    channel_settings,
    check_served,
    controller_options,
    controller_quota_window,
    metrics_address,
    metrics_window,
    quota_window,
    random_cluster_id,
    replication_settings,
    server_limits,
    super_users,
    zookeeper_security,
)
from engine.common.clock import Clock, SystemClock
from engine.common.errors import OperationError
from engine.common.model import BrokerInfo, Endpoint, address_text
from engine.kafka.client.config_providers import resolve_references
from engine.kafka.config.broker import BrokerConfig
from engine.kafka.config.dynamic import BROKERS, DynamicConfigs
from engine.kafka.config.metadata_version import (
    MetadataVersion,
    broker_id_znode_version,
    is_allocate_producer_ids_supported,
    is_alter_partition_supported,
    is_topic_id_supported,
    is_zstd_supported,
)
from engine.kafka.config.password_encoder import PasswordEncoder, encoded_anew
from engine.kafka.zk.brokers import BrokerRegistration
from engine.kafka.zk.client import ZkClient
from engine.kafka.zk.config_changes import ConfigChangeListener
from engine.kafka.zk.finalized_features import FinalizedFeaturesListener
from engine.kafka.zk.kafka_client import KafkaZkClient
from engine.kafka.zk.session_keeper import SessionEvent
from engine.runtime.descriptors import RESERVE, descriptor_limit, descriptors_for_sockets
from engine.runtime.loop_lag import LoopLagGauge
from engine.runtime.offload import Offloader
from engine.runtime.supervisor import Supervisor

logger = logging.getLogger("kafka.server.KafkaServer")


LOOP_LAG_MS_MAX = 50
"""Nothing may block the event loop longer; if something does, the log says so."""

LOOP_LAG_INTERVAL_MS = 60_000

DESCRIPTORS_ENOUGH = 4096
"""With fewer descriptors for connections than this, the start logs their number."""

SPARES_INTERVAL_MS = 1000

IDLE_CLIENTS_INTERVAL_MS = 30_000


class BrokerState(IntEnum):
    """Kafka's BrokerState metric."""

    STARTING = 1
    RECOVERY = 2
    RUNNING = 3
    SHUTTING_DOWN = 7


@dataclass(frozen=True, slots=True)
class _Step:
    """How to stop a started part."""

    name: str
    end: Callable[[], Awaitable[object]]


class KafkaServer:
    """A broker. Create it on the running event loop; ``start`` returns when it serves and is registered."""

    zk: KafkaZkClient
    cluster_id: str
    dynamic_configs: DynamicConfigs
    log_manager: LogManager
    replica_manager: ReplicaManager
    controller: Controller
    topic_admin: TopicAdmin
    group_coordinator: GroupCoordinator
    transaction_coordinator: TransactionCoordinator
    transaction_verifier: TransactionVerifier
    producer_ids: ProducerIdManager
    quotas: ClientQuotas
    topic_configs: ConfigChangeListener
    network: SocketServer
    log_cleaner: LogCleaner
    metrics: BrokerMetrics
    _security: OwnSecurity
    _listeners: OwnListeners
    _features: FinalizedFeaturesListener
    _routes: RouteTable

    def __init__(self, config: BrokerConfig) -> None:
        self.config = config
        self.clock: Clock = SystemClock()
        self.broker_epoch = -1
        self.state: int = BrokerState.STARTING
        self.failure: str | None = None
        self.loop_lag = LoopLagGauge()
        self.offloader = Offloader()
        self.offset_search = OffsetSearch(self.offloader)
        self.authorizer: Authorizer | None = None
        self.tokens: DelegationTokens | None = None
        self.fetch_sessions = FetchSessionCache(config.max_incremental_fetch_session_cache_slots)
        self.metadata_cache = MetadataCache(config.broker_id)
        self._stop_requested = asyncio.Event()
        self.supervisor = Supervisor("broker")
        self._ending: list[_Step] = []
        self._are_logs_loaded = False
        self.is_zookeeper_away = False

    @property
    def broker_id(self) -> int:
        return self.config.broker_id

    def routes(self) -> list[Route]:
        """Return the APIs, in the versions that clients have used."""
        return self.network.routes()

    # -- life

    async def start(self) -> None:
        """Start every part.

        Raises:
            OperationError: the port or the broker id is taken. ConfigError: data of another broker or cluster.
            StorageError: no log dir is usable. CoordinationError: ZooKeeper does not answer.
        """
        logger.info("starting")
        check_served(self.config)
        metrics_address(self.config)
        self._reporters = reporters(self.config)
        self.loop_lag.start()
        self._ends_with("supervised tasks", self.supervisor.stop)
        self.supervisor.every(LOOP_LAG_INTERVAL_MS, self._tell_loop_lag, "loop lag")
        await self._open_zookeeper()
        await self._start_authorizer()
        await self._start_tokens()
        await self._open_log_dirs()
        await self._load_logs()
        self._make_replication()
        self._make_controller()
        self._make_coordinators()
        self._bind_network()
        await self._register()
        await self._open_network()
        await self._begin_to_work()
        self._listeners.follow(self.supervisor, self._announce)
        self.dynamic_configs.is_running = True
        self.state = BrokerState.RUNNING
        logger.info("[KafkaServer id=%d] started", self.broker_id)

    @property
    def features_epoch(self) -> int:
        """Version of the finalized features in ZooKeeper; -1 while there are none."""
        return self._features.features_epoch

    async def stop(self) -> None:
        """Stop the started parts, the last one first; log failures and continue with the rest."""
        self.state = BrokerState.SHUTTING_DOWN
        for step in reversed(self._ending):
            try:
                await step.end()
            except Exception:
                logger.exception("[KafkaServer id=%d] Cannot stop a part part=%s", self.broker_id, step.name)
        self._ending.clear()
        self.loop_lag.stop()
        self.offloader.close()
        logger.info("[KafkaServer id=%d] shut down completed", self.broker_id)

    def request_stop(self) -> None:
        """Request a stop: after a signal, or because the broker cannot continue."""
        self._stop_requested.set()

    async def wait_for_stop_request(self) -> None:
        await self._stop_requested.wait()

    def give_up(self, reason: str) -> None:
        """Stop the broker, as Kafka does when no log dir is left or ZooKeeper refuses it."""
        logger.critical("[KafkaServer id=%d] Shutting down: %s", self.broker_id, reason)
        self.failure = self.failure or reason
        self.request_stop()

    # -- parts, in the order of the start

    async def _open_zookeeper(self) -> None:
        config = self.config
        logger.info("Connecting to zookeeper on %s", config.zookeeper_connect)
        client = await ZkClient.connect(
            config.zookeeper_connect,
            session_timeout_ms=config.zookeeper_session_timeout_ms,
            connection_timeout_ms=config.zookeeper_connection_timeout_ms,
            client_name=f"broker {config.broker_id}",
            security=zookeeper_security(config),
        )
        self._ends_with("zookeeper", client.close)
        self.zk = KafkaZkClient(client, clock=self.clock)
        await self.zk.cluster.make_persistent_paths()
        self.cluster_id = await self.zk.cluster.get_or_create_cluster_id(random_cluster_id())
        logger.info("Cluster ID = %s", self.cluster_id)

    async def _start_authorizer(self) -> None:
        """Read the access rules, if there are any to obey. If they cannot be understood, this broker does not start."""
        config = self.config
        if not config.authorizer_class_name:
            return
        self.authorizer = Authorizer(
            self.zk, self.clock, super_users=super_users(config), allows_without_rules=allows_without_rules(config)
        )
        await self.authorizer.start()
        self._ends_with("authorizer", self.authorizer.stop)

    async def _start_tokens(self) -> None:
        """Read the delegation tokens, if the settings have a secret for them."""
        if not secret_of_tokens(self.config):
            return
        self.tokens = DelegationTokens(self.zk, self.clock, self.config)
        await self.tokens.start()
        self._ends_with("tokens", self.tokens.stop)
        interval_ms = self.config.delegation_token_expiry_check_interval_ms
        self.supervisor.every(interval_ms, self._remove_expired_tokens, "expired tokens")

    async def _remove_expired_tokens(self) -> None:
        if self.tokens is not None and self.controller.is_active:
            await self.tokens.remove_expired()

    async def _open_log_dirs(self) -> None:
        """Lock the log dirs, find out this broker's id, and start following its settings."""
        config = self.config
        loop = asyncio.get_running_loop()

        def log_dir_failed(path: Path) -> None:
            # A dir may also fail in a thread while logs are loading.
            loop.call_soon_threadsafe(self._log_dir_failed, path)

        self.log_manager = LogManager(
            LogManagerConfig(
                log_dirs=tuple(Path(path) for path in config.log_dirs),
                producer_id_expiration_ms=config.producer_id_expiration_ms,
                log_segment_delete_delay_ms=config.log_segment_delete_delay_ms,
                takes_zstd=is_zstd_supported(config.inter_broker_protocol_version),
                keeps_topic_ids=is_topic_id_supported(config.inter_broker_protocol_version),
                log_cleaner_enable=config.log_cleaner_enable,
            ),
            lambda topic: self.dynamic_configs.log_config(topic),
            self.clock,
            log_dir_failed,
        )
        self._ends_with("log dirs", self._close_logs)
        self._keep_descriptors()
        configured_id = config.broker_id if config.broker_id >= 0 else None
        _, broker_id = self.log_manager.check_identity(self.cluster_id, configured_id)
        if broker_id is None:
            broker_id = await self.zk.brokers.generate_broker_id(config.reserved_broker_max_id)
        if broker_id != config.broker_id:
            self.config = config.with_broker_id(broker_id)
            self.metadata_cache = MetadataCache(broker_id)
        declared = self.config.originals
        self.dynamic_configs = DynamicConfigs(
            self.config, lambda texts: resolve_references(texts, os.environ, declared=declared)
        )
        await self._encode_passwords_anew()
        self.topic_configs = ConfigChangeListener(self.zk.client, self.dynamic_configs, self.clock)
        await self.topic_configs.start()
        self._ends_with("settings", self.topic_configs.stop)
        await self._protect()
        self._features = FinalizedFeaturesListener(self.zk.client)
        await self._features.start()
        self._ends_with("finalized features", self._features.stop)

    async def _protect(self) -> None:
        """Protect the listeners as this broker's file and its settings in ZooKeeper say together.

        As in Kafka, stores and logins that only the file names, and ZooKeeper names others, need not be there.
        """
        self._security = OwnSecurity(self.dynamic_configs.current)
        self._ends_with("logins", self._security.stop)
        await self._security.start()
        self._security.check_own_user(self.dynamic_configs)

    async def _encode_passwords_anew(self) -> None:
        """Encrypt this broker's passwords in ZooKeeper with its new secret, if its file names the old one too."""
        old = PasswordEncoder.of(self.config, is_old=True)
        if old is not None:
            entity = f"{BROKERS}/{self.config.broker_id}"
            stored = await self.zk.configs.get_entity_configs(entity)
            anew = await asyncio.to_thread(encoded_anew, stored, old, self.dynamic_configs.password_encoder)
            if anew != stored:
                # No controller may be there yet when a whole cluster starts.
                await self.zk.configs.change_entity_configs(entity, anew, check_controller=False)

    def _keep_descriptors(self) -> None:
        """Reserve file descriptors for the logs, and log how many are left for connections if they are few."""
        RESERVE.start(self.log_manager.close_files)
        self._ends_with("spare descriptors", self._give_up_descriptors)
        self.supervisor.every(SPARES_INTERVAL_MS, RESERVE.fill, "spare descriptors")
        limit = descriptor_limit()
        for_sockets = descriptors_for_sockets(limit)
        if for_sockets < DESCRIPTORS_ENOUGH:
            logger.warning(
                "The limit of open files is %d: about %d connections may be open at a time, the rest is for files. "
                "Raise it (ulimit -n)",
                limit,
                for_sockets,
            )

    async def _give_up_descriptors(self) -> None:
        RESERVE.stop()

    async def _load_logs(self) -> None:
        self.state = BrokerState.RECOVERY
        set_log_settings(self.log_manager, self.dynamic_configs.current)
        loading = asyncio.create_task(self.offloader.run(self.log_manager.load), name="load logs")
        try:
            await asyncio.shield(loading)
        except asyncio.CancelledError:
            # Cleanly closed logs finish loading and close cleanly again. A recovery may take hours, so it stops.
            self.log_manager.stop_loading()
            try:
                await loading
                self._are_logs_loaded = True
            except LoadingStopped as stopped:
                logger.info("The next start will recover the logs again: %s", stopped)
            raise
        self._are_logs_loaded = True

    def _make_replication(self) -> None:
        config = self.config
        settings = replication_settings(config, self._security.between_brokers)
        self.controller_channel = ControllerChannel(self.metadata_cache, settings)
        self._ends_with("controller channel", self.controller_channel.close)
        self.replica_manager = ReplicaManager(
            settings,
            clock=self.clock,
            log_manager=self.log_manager,
            metadata_cache=self.metadata_cache,
            isr_updater=self._make_isr_updater(),
            broker_epoch=lambda: self.broker_epoch,
            selector=replica_selector(config.replica_selector_class),
            run_slow=self.offloader.run,
        )
        self.log_manager.on_converted = self.replica_manager.environment.topics.count_produce_conversions
        self._ends_with("replica manager", self.replica_manager.stop)

    def _make_isr_updater(self) -> IsrUpdater:
        """Send ISR changes to the controller; before IBP 2.7-IV2, leaders wrote the state znode themselves."""
        ibp = self.config.inter_broker_protocol_version
        if not is_alter_partition_supported(ibp):
            updater = ZkIsrUpdater(
                self.zk.partitions.write_partition_state,
                self.zk.notifications.propagate_isr_changes,
                self.clock,
                self.supervisor,
            )
            updater.start()
            return updater
        manager = AlterPartitionManager(
            self.controller_channel, broker_id=self.broker_id, broker_epoch=lambda: self.broker_epoch, ibp=ibp
        )
        self.supervisor.start(manager.run(), "alter-partition")
        return manager

    def _make_controller(self) -> None:
        ibp = self.config.inter_broker_protocol_version
        self.controller = Controller(
            self.zk,
            controller_options(self.config),
            channel_settings(self.config, self._security.between_brokers),
            unclean_by_default=lambda: self.dynamic_configs.current.unclean_leader_election_enable,
            register_broker=self._register_again,
        )
        follow_settings(
            self.dynamic_configs, self.log_manager, self.replica_manager, self.controller.enable_unclean_election
        )
        self.topic_admin = TopicAdmin(self.zk, self.metadata_cache, lambda: self.dynamic_configs.current)
        if is_allocate_producer_ids_supported(ibp):
            self.producer_ids = ProducerIdManager(
                lambda: block_from_controller(self.controller_channel, self.broker_id, self.broker_epoch)
            )
        else:
            self.producer_ids = ProducerIdManager(lambda: self.zk.cluster.allocate_producer_id_block(self.broker_id))
        self._ends_with("producer ids", self.producer_ids.close)

    def _make_coordinators(self) -> None:
        self.group_coordinator = GroupCoordinator(
            self.config,
            clock=self.clock,
            replica_manager=self.replica_manager,
            metadata_cache=self.metadata_cache,
            offloader=self.offloader,
            read_size=self.zk.topics.partition_count,
        )
        self.group_coordinator.start()
        self._ends_with("group coordinator", self.group_coordinator.stop)
        self._make_transactions()

    def _make_transactions(self) -> None:
        settings = transaction_settings(self.config, self._security.between_brokers)
        self.transaction_coordinator = TransactionCoordinator(
            settings,
            clock=self.clock,
            replica_manager=self.replica_manager,
            metadata_cache=self.metadata_cache,
            offloader=self.offloader,
            marker_writer=MarkerWriter(
                self.replica_manager,
                self.clock,
                timeout_ms=settings.request_timeout_ms,
                offsets_ended=self.group_coordinator.offsets.end_transaction,
            ),
            next_producer_id=self.producer_ids.next_producer_id,
            read_size=self.zk.topics.partition_count,
        )
        self.transaction_coordinator.start()
        self._ends_with("transaction coordinator", self.transaction_coordinator.stop)
        connections = BrokerConnections(
            self.metadata_cache,
            listener_name=settings.listener_name,
            client_id=f"broker-{self.broker_id}-txn-verifier",
            setup_timeouts=settings.setup_timeouts,
            request_timeout_ms=settings.request_timeout_ms,
            security=settings.security,
        )
        self.transaction_verifier = TransactionVerifier(
            self.broker_id,
            self.transaction_coordinator,
            self.replica_manager,
            self.metadata_cache,
            connections,
            self.clock,
        )
        self._ends_with("transaction verifier", self.transaction_verifier.stop)

    def _bind_network(self) -> None:
        config = self.config
        handlers = {key: once_known(self._guarded(spec)) for key, spec in all_handlers().items()}
        self._routes = RouteTable(handlers, answer_unknown_version)
        self.quotas = ClientQuotas(
            quota_window(config),
            controller_quota_window(config),
            self.clock,
            announce=lambda is_on: self._routes.show_answers(self.quotas.before_encoding if is_on else None),
            metrics_window=metrics_window(config),
        )
        self.supervisor.every(IDLE_CLIENTS_INTERVAL_MS, self.quotas.forget_idle, "idle clients' quotas")
        self._security.offer_logins(handlers, self.dynamic_configs, self.clock, self.tokens)
        self.network = SocketServer(
            self._routes,
            partial(RequestContext, self),
            server_limits(config),
            self.clock,
            self._security.tls_listeners,
            self._security.login_policies,
            quota_window(config),
            metrics_window(config),
        )
        follow_limits(self.dynamic_configs, self.network)
        follow_quotas(self.dynamic_configs, self.quotas, self.network.rates)
        self._security.follow(self.dynamic_configs, self.supervisor)
        self._ends_with("network", self.network.stop)
        self._listeners = OwnListeners(self.network, self._security, self.dynamic_configs)

    def _guarded(self, spec: HandlerSpec) -> HandlerSpec:
        return spec if self.authorizer is None else guarded(spec, self.authorizer)

    @property
    def advertised_listeners(self) -> tuple[Endpoint, ...]:
        """The addresses that others are told."""
        return self._listeners.advertised

    def check_listeners(self, config: BrokerConfig) -> None:
        """Check settings before they take effect.

        Raises:
            ConfigError: a new listener cannot be served as it is meant, or one cannot use its new stores.
        """
        self._security.check(config, self._listeners.names)

    async def _announce(self) -> None:
        """Tell the cluster this broker's new addresses, unless another broker has one of them."""
        try:
            await self._check_addresses()
        except OperationError as error:
            logger.error("The cluster keeps the addresses that it knows: %s", error)
            return
        await self.zk.brokers.update_broker(self.registration())
        logger.info(
            "Updated broker %d at path /brokers/ids/%d with addresses: %s",
            self.broker_id,
            self.broker_id,
            ",".join(map(str, self.advertised_listeners)),
        )

    async def _open_network(self) -> None:
        """Start answering. Earlier, while it waited for its id, this broker would have told clients about no topics."""
        self.metadata_cache.expects_topics = bool(self.log_manager.logs)
        await self._listeners.accept()
        asyncio.get_running_loop().call_later(UNKNOWN_MS_MAX / 1000, self.metadata_cache.known.set)
        self.network.start_idle_sweep()

    async def _check_addresses(self) -> None:
        """Refuse addresses that another broker tells clients already. As in Kafka, only those with host and port count.

        Raises:
            OperationError: another broker has one of them.
        """
        endpoints = self.dynamic_configs.current.listener_settings.advertised_listeners
        own = {address_text(each.host, each.port) for each in endpoints if each.host and each.port}
        for broker_id, broker in (await self.zk.brokers.get_all_brokers_with_epochs()).items():
            taken = own & {address_text(each.host, each.port) for each in broker.endpoints}
            if taken and broker_id != self.broker_id:
                raise OperationError(
                    f"Configured end points {','.join(sorted(taken))} in advertised listeners are already registered "
                    f"by broker {broker_id}",
                    hint="set listeners and advertised.listeners to addresses that only this broker has",
                )

    async def _register(self) -> None:
        await self._check_addresses()
        self.broker_epoch = await self.zk.brokers.register_broker(self.registration())
        self.log_manager.write_identity(self.cluster_id, self.broker_id)
        self.zk.client.add_session_listener(self._on_session_event)
        logger.info(
            "Registered broker %d at path /brokers/ids/%d with addresses: %s, czxid (broker epoch): %d",
            self.broker_id,
            self.broker_id,
            ",".join(map(str, self.advertised_listeners)),
            self.broker_epoch,
        )

    async def _begin_to_work(self) -> None:
        await self.controller.start()
        self._ends_with("controller", self.controller.stop)
        self.replica_manager.start()
        upkeep = LogUpkeep(self.config, self.log_manager, self.offloader)
        upkeep.start()
        self._ends_with("log upkeep", upkeep.stop)
        self.log_cleaner = LogCleaner(self.dynamic_configs, self.log_manager, self.offloader)
        self.log_cleaner.start()
        self._ends_with("log cleaner", self.log_cleaner.stop)
        await self._open_metrics()
        shutdown = ControlledShutdown(
            self.config, self.controller_channel, lambda: self.broker_epoch, self._is_helpless_controller
        )
        self._ends_with("transactions", self.transaction_coordinator.resign)
        self._ends_with("groups", self.group_coordinator.resign)
        self._ends_with("leadership", shutdown.run)
        self._ends_with("fetchers' starts", self._begin_replica_shutdown)

    async def _open_metrics(self) -> None:
        """Count and measure from now on, and let others read it where the settings say.

        Raises:
            OperationError: the address is taken, or does not belong to this machine.
        """
        self.metrics = BrokerMetrics(self, metrics_window(self.config))
        self.metrics.start()
        if (address := metrics_address(self.config)) is not None:
            pages = MetricsPages(self.metrics, address)
            self._ends_with("metrics pages", pages.stop)
        for reporter in self._reporters:
            report = MetricsReport(self.metrics, reporter, self.config.kafka_metrics_polling_interval_secs)
            self._ends_with(f"metrics to {reporter.name}", report.stop)
        self._ends_with("metrics", self.metrics.stop)

    # -- what happens to a broker

    def _tell_loop_lag(self) -> None:
        held_ms = self.loop_lag.take_max_ms()
        if held_ms > LOOP_LAG_MS_MAX:
            logger.warning(
                "[KafkaServer id=%d] The event loop was blocked for %d ms: every request waited that long. Usually "
                "the machine is short of CPU. limit_ms=%d",
                self.broker_id,
                held_ms,
                LOOP_LAG_MS_MAX,
            )

    def registration(self) -> BrokerRegistration:
        """Return this broker's registration in ZooKeeper."""
        ibp = self.config.inter_broker_protocol_version
        info = BrokerInfo(self.broker_id, self.advertised_listeners, self.config.broker_rack, self.broker_epoch)
        return BrokerRegistration(info, self.clock.now_ms(), json_version=broker_id_znode_version(ibp))

    def _on_session_event(self, event: SessionEvent) -> None:
        self.is_zookeeper_away = event not in (SessionEvent.RECONNECTED, SessionEvent.NEW_SESSION)
        if event is SessionEvent.AUTH_FAILED:
            self.give_up("ZooKeeper refuses this broker's credentials")

    def _is_helpless_controller(self) -> bool:
        return self.is_zookeeper_away and self.metadata_cache.controller_id == self.broker_id

    async def _register_again(self) -> None:
        """Register again in a new session: the old registration and its broker epoch are gone or going.

        If another broker has the id by now, this one stops: unregistered, it would keep answering as if it led
        partitions.
        """
        try:
            self.broker_epoch = await self.zk.brokers.register_broker(self.registration())
        except OperationError as error:
            self.give_up(str(error))
            raise

    def _log_dir_failed(self, path: Path) -> None:
        """Handle a failed log dir: take its replicas offline and tell the controller; stop the broker if no dir is
        left.

        Before IBP 1.0 one dir is enough: the controller may be of a Kafka that knows nothing of failed dirs (KIP-112),
        and would leave the leadership here.
        """
        if not self.log_manager.live_dirs:
            self.give_up(f"all log dirs have failed: {', '.join(self.config.log_dirs)}")
            return
        if self.config.inter_broker_protocol_version < MetadataVersion.IBP_1_0_IV0:
            self.give_up(f"a log dir has failed, which inter.broker.protocol.version before 1.0 cannot tell: {path}")
            return
        if self._are_logs_loaded:
            self.replica_manager.handle_log_dir_failure(path)
            self.supervisor.start(self.zk.notifications.propagate_log_dir_event(self.broker_id), "log dir event")

    async def _begin_replica_shutdown(self) -> None:
        self.replica_manager.begin_shutdown()

    async def _close_logs(self) -> None:
        if self._are_logs_loaded:
            await self.offloader.run(self.log_manager.shutdown)
        else:
            self.log_manager.release()

    def _ends_with(self, name: str, end: Callable[[], Awaitable[object]]) -> None:
        self._ending.append(_Step(name, end))
