"""Settings of the broker in its cluster: ZooKeeper, replication, elections, the controller; and the keys of KRaft."""

from __future__ import annotations

from engine.kafka.config.definition import (
    BOOLEAN,
    CLUSTER_WIDE,
    HIGH,
    IBP,
    INT,
    LIST,
    LONG,
    LOW,
    MEDIUM,
    PASSWORD,
    STRING,
)
from engine.kafka.config.metadata_version import parse_metadata_version
from engine.kafka.config.values import ListOf, at_least


class ZooKeeperKeys:
    """ZooKeeper and the broker's identity"""

    zookeeper_connect = (
        STRING(None, HIGH)
        .required()
        .with_effect(
            "ZooKeeper servers as `host:port,host:port`, with an optional chroot path at the end (`/kafka`), so "
            "that several clusters can share one ensemble. Must be set."
        )
    )
    zookeeper_session_timeout_ms = INT(18000, HIGH).with_effect(
        "Milliseconds without a heartbeat after which ZooKeeper ends the broker's session and the controller takes "
        "its partitions away. Lower values find dead brokers sooner, but penalise long pauses."
    )
    zookeeper_connection_timeout_ms = (
        INT(None, HIGH)
        .or_else(lambda broker: broker.zookeeper_session_timeout_ms)
        .with_effect(
            "Milliseconds to wait for the first connection to ZooKeeper at start. Not set: the session time-out."
        )
    )
    zookeeper_max_in_flight_requests = INT(10, HIGH, at_least(1)).without_effect(
        "How many requests may be under way to ZooKeeper at once. klamm sends up to 1,000 and keeps their order."
    )
    zookeeper_set_acl = BOOLEAN(False, HIGH).with_effect(
        "Create znodes with ACLs, so that only authenticated brokers may change them."
    )
    zookeeper_clientCnxnSocket = STRING(None, MEDIUM).without_effect(
        "Java class of ZooKeeper's client socket; Kafka needs the Netty one for TLS."
    )
    zookeeper_ssl_client_enable = BOOLEAN(False, MEDIUM).with_effect("Talk to ZooKeeper over TLS.")
    zookeeper_ssl_keystore_location = STRING(None, MEDIUM).with_effect(
        "File with the key and certificate shown to ZooKeeper."
    )
    zookeeper_ssl_keystore_password = PASSWORD(None, MEDIUM).with_effect("Password of the key store for ZooKeeper.")
    zookeeper_ssl_keystore_type = STRING(None, MEDIUM).with_effect(
        "Format of the key store for ZooKeeper: JKS, PKCS12 or PEM; not set: known by the file's name."
    )
    zookeeper_ssl_truststore_location = STRING(None, MEDIUM).with_effect(
        "File with the certificates that ZooKeeper's own is checked against."
    )
    zookeeper_ssl_truststore_password = PASSWORD(None, MEDIUM).with_effect("Password of the trust store for ZooKeeper.")
    zookeeper_ssl_truststore_type = STRING(None, MEDIUM).with_effect(
        "Format of the trust store for ZooKeeper: JKS, PKCS12 or PEM; not set: known by the file's name."
    )
    zookeeper_ssl_protocol = STRING("TLSv1.2", LOW).with_effect("TLS version to negotiate with ZooKeeper.")
    zookeeper_ssl_enabled_protocols = LIST(None, LOW).with_effect(
        "TLS versions allowed with ZooKeeper. Not set: the one that `zookeeper.ssl.protocol` is set to, else TLSv1.2 "
        "and TLSv1.3, of which new servers allow only the latter."
    )
    zookeeper_ssl_cipher_suites = LIST(None, LOW).with_effect(
        "Cipher suites allowed with ZooKeeper; not set: all that the platform offers."
    )
    zookeeper_ssl_endpoint_identification_algorithm = STRING("HTTPS", LOW).with_effect(
        "`HTTPS` checks that ZooKeeper's certificate names the host; empty does not."
    )
    zookeeper_ssl_crl_enable = BOOLEAN(False, LOW).with_effect(
        "Check revocation lists for ZooKeeper's certificate. This broker cannot, and does not start with `true`."
    )
    zookeeper_ssl_ocsp_enable = BOOLEAN(False, LOW).with_effect(
        "Ask by OCSP whether ZooKeeper's certificate was revoked. This broker cannot, and does not start with `true`."
    )
    zookeeper_metadata_migration_enable = BOOLEAN(False, HIGH).with_effect(
        "Start the move of the metadata to KRaft. klamm brokers stay with ZooKeeper and refuse it."
    )
    zookeeper_metadata_migration_min_batch_size = INT(200, MEDIUM, at_least(1), is_internal=True).without_effect(
        "Smallest batch, in records, of a migration to KRaft."
    )
    broker_id = INT(-1, HIGH).with_effect(
        "The broker's number, unique in the cluster and stable over restarts. -1: ZooKeeper hands one out, see "
        "`broker.id.generation.enable`."
    )
    broker_id_generation_enable = BOOLEAN(True, MEDIUM).with_effect(
        "Let ZooKeeper number brokers that have no `broker.id`."
    )
    reserved_broker_max_id = INT(1000, MEDIUM, at_least(0)).with_effect(
        "Largest `broker.id` that may be chosen by hand; numbers handed out begin after it."
    )
    broker_rack = STRING(None, MEDIUM).with_effect(
        "Rack or zone of the broker. Replicas of a partition are spread over racks, and consumers may read from their "
        "own (KIP-36, KIP-392)."
    )


class ReplicationKeys:
    """Replication and controller"""

    replica_lag_time_max_ms = LONG(30000, HIGH).with_effect(
        "Milliseconds without catching up after which a follower leaves the ISR."
    )
    replica_fetch_max_bytes = INT(1_048_576, MEDIUM, at_least(0)).with_effect(
        "Bytes that a follower asks for per partition and request; a larger single batch still comes."
    )
    replica_fetch_response_max_bytes = INT(10_485_760, MEDIUM, at_least(0)).with_effect(
        "Bytes that a follower asks for per request over all partitions; a larger single batch still comes."
    )
    replica_fetch_min_bytes = INT(1, HIGH).with_effect(
        "Bytes that a follower's request waits for, at most `replica.fetch.wait.max.ms`."
    )
    replica_fetch_wait_max_ms = INT(500, HIGH).with_effect(
        "Milliseconds that a follower's request may wait for new records. Must not exceed `replica.lag.time.max.ms`."
    )
    replica_fetch_backoff_ms = INT(1000, MEDIUM, at_least(0)).with_effect(
        "Milliseconds that a follower leaves a partition alone after an error."
    )
    replica_socket_timeout_ms = INT(30000, HIGH).with_effect(
        "Milliseconds in which a follower must reach its leader, with TLS and login; at least "
        "`replica.fetch.wait.max.ms`."
    )
    replica_socket_receive_buffer_bytes = INT(65536, HIGH).without_effect(
        "SO_RCVBUF of a follower's connections, in bytes. klamm leaves it to the operating system."
    )
    replica_high_watermark_checkpoint_interval_ms = LONG(5000, HIGH).with_effect(
        "Milliseconds between two writes of the high watermarks to disk."
    )
    replica_selector_class = STRING(None, MEDIUM).with_effect(
        "Java class that picks the replica a consumer reads from. klamm knows Kafka's two by name: the leader, or the "
        "nearest rack."
    )
    num_replica_fetchers = INT(1, HIGH, dynamic=CLUSTER_WIDE).with_effect(
        "Connections by which a broker fetches from each other broker."
    )
    num_replica_alter_log_dirs_threads = INT(None, HIGH).with_effect(
        "How many replicas are moved between log dirs at once; not set: as many as there are log dirs."
    )
    min_insync_replicas = INT(1, HIGH, at_least(1), CLUSTER_WIDE).with_effect(
        "Replicas that must be in the ISR for a write with `acks=all` to be accepted."
    )
    unclean_leader_election_enable = BOOLEAN(False, HIGH, dynamic=CLUSTER_WIDE).with_effect(
        "Let a replica outside the ISR lead when no other is left. The partition stays available and may lose records."
    )
    unclean_leader_election_interval_ms = LONG(300_000, MEDIUM, at_least(1), is_internal=True).without_effect(
        "Milliseconds between checks for partitions without a leader (KRaft)."
    )
    eligible_leader_replicas_enable = BOOLEAN(False, HIGH).without_effect(
        "Keep replicas that left the ISR safely as candidates for leader (KIP-966; KRaft)."
    )
    auto_leader_rebalance_enable = BOOLEAN(True, HIGH).with_effect(
        "Let the controller give leadership back to the preferred replicas from time to time."
    )
    leader_imbalance_check_interval_seconds = LONG(300, HIGH, at_least(1)).with_effect(
        "Seconds between checks for such imbalance."
    )
    leader_imbalance_per_broker_percentage = INT(10, HIGH).with_effect(
        "Percentage of a broker's preferred partitions that may be led by others before the controller acts."
    )
    controller_socket_timeout_ms = INT(30000, MEDIUM).with_effect(
        "Milliseconds in which the controller must reach a broker, with TLS and login, and that a broker waits for the "
        "controller's answer before it connects again."
    )
    controlled_shutdown_enable = BOOLEAN(True, MEDIUM).with_effect(
        "Hand leadership over before the broker ends. If off, clients notice every restart."
    )
    controlled_shutdown_max_retries = INT(3, MEDIUM).with_effect("How often a failed hand-over is tried again.")
    controlled_shutdown_retry_backoff_ms = LONG(5000, MEDIUM).with_effect(
        "Milliseconds between two tries of the hand-over."
    )
    inter_broker_protocol_version = (
        STRING("3.9-IV0", MEDIUM, IBP)
        .read_as(parse_metadata_version)
        .with_effect(
            "Version in which brokers talk to each other. During an upgrade it stays at the old version until every "
            "broker runs the new code."
        )
    )
    fetch_max_bytes = INT(57_671_680, MEDIUM, at_least(1024)).with_effect(
        "Maximum bytes that one Fetch answer may hold, whatever the client asks for."
    )
    max_incremental_fetch_session_cache_slots = INT(1000, MEDIUM, at_least(0)).with_effect(
        "How many fetch sessions are remembered, so that clients need not name all partitions each time (KIP-227)."
    )
    fetch_purgatory_purge_interval_requests = INT(1000, MEDIUM).without_effect(
        "Finished fetches kept in Kafka's purgatory before it is swept. klamm removes them at once."
    )
    producer_purgatory_purge_interval_requests = INT(1000, MEDIUM).without_effect(
        "Finished produce requests kept in Kafka's purgatory before it is swept. klamm removes them at once."
    )
    delete_records_purgatory_purge_interval_requests = INT(1, MEDIUM).without_effect(
        "Finished DeleteRecords requests kept in Kafka's purgatory before it is swept. klamm removes them at once."
    )


class KRaftKeys:
    """KRaft

    In ZooKeeper mode Kafka 3.9 accepts most of them and ignores them; so does klamm.
    """

    process_roles = LIST((), HIGH, ListOf(("broker", "controller"))).with_effect(
        "Roles of a KRaft process. klamm brokers keep their metadata in ZooKeeper and refuse it."
    )
    node_id = INT(-1, HIGH).with_effect("Another name of `broker.id`; if both are set they must be equal.")
    controller_listener_names = STRING(None, HIGH).without_effect(
        "Listeners of KRaft controllers; must be empty with ZooKeeper."
    )
    controller_quorum_voters = LIST((), HIGH).without_effect("KRaft controllers as `id@host:port,…`.")
    controller_quorum_bootstrap_servers = LIST((), HIGH).without_effect(
        "Addresses of servers through which to find a KRaft quorum."
    )
    controller_quorum_election_timeout_ms = INT(1000, HIGH).without_effect(
        "Milliseconds without a leader after which a KRaft voter calls an election."
    )
    controller_quorum_election_backoff_max_ms = INT(1000, HIGH).without_effect(
        "Maximum milliseconds that a lost KRaft election waits."
    )
    controller_quorum_fetch_timeout_ms = INT(2000, HIGH).without_effect(
        "Milliseconds without a fetch after which a KRaft leader or voter gives up on the other."
    )
    controller_quorum_request_timeout_ms = INT(2000, MEDIUM).without_effect(
        "Milliseconds to wait for an answer within the quorum."
    )
    controller_quorum_retry_backoff_ms = INT(20, LOW).without_effect(
        "Milliseconds before a failed request within the quorum is tried again."
    )
    controller_quorum_append_linger_ms = INT(25, MEDIUM).without_effect(
        "Milliseconds for which a KRaft leader gathers writes."
    )
    broker_heartbeat_interval_ms = INT(2000, MEDIUM).without_effect(
        "Milliseconds between two heartbeats of a KRaft broker."
    )
    broker_session_timeout_ms = INT(9000, MEDIUM).without_effect(
        "Milliseconds without a heartbeat after which a KRaft broker is fenced."
    )
    initial_broker_registration_timeout_ms = INT(60000, MEDIUM).without_effect(
        "Milliseconds that a KRaft broker tries to register."
    )
    metadata_log_dir = STRING(None, HIGH).without_effect("Folder of KRaft's metadata log.")
    metadata_log_segment_bytes = INT(1_073_741_824, HIGH, at_least(12)).without_effect(
        "Segment size, in bytes, of the metadata log."
    )
    metadata_log_segment_min_bytes = INT(8_388_608, HIGH, at_least(12), is_internal=True).without_effect(
        "Smallest segment size, in bytes, of the metadata log."
    )
    metadata_log_segment_ms = LONG(604_800_000, HIGH).without_effect(
        "Age, in milliseconds, at which a segment of the metadata log ends."
    )
    metadata_log_max_record_bytes_between_snapshots = LONG(20_971_520, HIGH, at_least(1)).without_effect(
        "Bytes of metadata after which a snapshot is made."
    )
    metadata_log_max_snapshot_interval_ms = LONG(3_600_000, HIGH, at_least(0)).without_effect(
        "Milliseconds after which a snapshot is made."
    )
    metadata_max_retention_bytes = LONG(104_857_600, HIGH).without_effect(
        "Bytes of metadata log and snapshots that are kept."
    )
    metadata_max_retention_ms = LONG(604_800_000, HIGH).without_effect(
        "Milliseconds that metadata log and snapshots are kept."
    )
    metadata_max_idle_interval_ms = INT(500, LOW, at_least(0)).without_effect(
        "Milliseconds between two no-op records of an idle KRaft controller."
    )
