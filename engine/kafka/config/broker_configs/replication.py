"""Settings of replication, elections, the controller and controlled shutdown."""

from __future__ import annotations

from engine.kafka.config.definition import BOOLEAN, CLUSTER_WIDE, HIGH, IBP, INT, LONG, MEDIUM, STRING
from engine.kafka.config.metadata_version import parse_metadata_version
from engine.kafka.config.validators import at_least


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
        "Milliseconds that a follower waits for its leader's answer; at least `replica.fetch.wait.max.ms`."
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
        "Milliseconds that the controller waits for a broker's answer before it connects again."
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
