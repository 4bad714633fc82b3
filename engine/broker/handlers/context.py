"""What a handler receives besides the decoded request: the header, the session, and the parts of the broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from engine.broker.network.request import RequestHead
from engine.broker.network.session import Session

if TYPE_CHECKING:
    from engine.broker.controller.loop import Controller
    from engine.broker.controller.producer_ids import ProducerIdManager
    from engine.broker.controller.topic_admin import TopicAdmin
    from engine.broker.coordinator.groups.coordinator import GroupCoordinator
    from engine.broker.coordinator.transactions.coordinator import TransactionCoordinator
    from engine.broker.coordinator.transactions.verifier import TransactionVerifier
    from engine.broker.fetch.session_cache import FetchSessionCache
    from engine.broker.log.log_manager import LogManager
    from engine.broker.quotas.client_quotas import ClientQuotas
    from engine.broker.replication.metadata_cache import MetadataCache
    from engine.broker.replication.offset_lookup import OffsetSearch
    from engine.broker.replication.replica_manager import ReplicaManager
    from engine.broker.security.authorizer import Authorizer
    from engine.broker.security.delegation_tokens import DelegationTokens
    from engine.common.clock import Clock
    from engine.kafka.config.broker import BrokerConfig
    from engine.kafka.config.dynamic import DynamicConfigs
    from engine.kafka.zk.config_changes import ConfigChangeListener
    from engine.kafka.zk.kafka_client import KafkaZkClient
    from engine.runtime.offload import Offloader
    from engine.runtime.supervisor import Supervisor


class Broker(Protocol):
    """The parts of a running broker that handlers use. ``engine.broker.server`` puts them together."""

    @property
    def broker_id(self) -> int: ...
    @property
    def broker_epoch(self) -> int: ...
    @property
    def cluster_id(self) -> str: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def config(self) -> BrokerConfig: ...
    @property
    def dynamic_configs(self) -> DynamicConfigs: ...
    @property
    def features_epoch(self) -> int: ...
    def check_listeners(self, config: BrokerConfig) -> None:
        """Check settings before they take effect; raise ConfigError if a listener cannot take them."""
        ...

    @property
    def topic_configs(self) -> ConfigChangeListener: ...
    @property
    def zk(self) -> KafkaZkClient: ...
    @property
    def supervisor(self) -> Supervisor: ...
    @property
    def offloader(self) -> Offloader: ...
    @property
    def offset_search(self) -> OffsetSearch: ...
    @property
    def log_manager(self) -> LogManager: ...
    @property
    def replica_manager(self) -> ReplicaManager: ...
    @property
    def metadata_cache(self) -> MetadataCache: ...
    @property
    def controller(self) -> Controller: ...
    @property
    def topic_admin(self) -> TopicAdmin: ...
    @property
    def producer_ids(self) -> ProducerIdManager: ...
    @property
    def group_coordinator(self) -> GroupCoordinator: ...
    @property
    def transaction_coordinator(self) -> TransactionCoordinator: ...
    @property
    def transaction_verifier(self) -> TransactionVerifier: ...
    @property
    def authorizer(self) -> Authorizer | None: ...
    @property
    def tokens(self) -> DelegationTokens | None: ...
    @property
    def fetch_sessions(self) -> FetchSessionCache: ...
    @property
    def quotas(self) -> ClientQuotas: ...


class RequestContext(RequestHead):
    """A request's header, its session and the broker it reached."""

    __slots__ = ("broker",)

    def __init__(
        self,
        broker: Broker,
        api_key: int,
        api_version: int,
        correlation_id: int,
        client_id: str | None,
        session: Session,
    ) -> None:
        self.broker = broker
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.session = session
        self.size_bytes = 0
        self.use = None
