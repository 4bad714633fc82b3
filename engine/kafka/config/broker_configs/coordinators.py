"""Settings of groups, their offsets, producer ids and transactions."""

from __future__ import annotations

from engine.kafka.config.definition import BOOLEAN, CLUSTER_WIDE, HIGH, INT, LIST, LONG, LOW, MEDIUM, SHORT, STRING
from engine.kafka.config.values import INT_MAX, ListOf, OneOfAnyCase, at_least, between


class GroupKeys:
    """Groups"""

    group_min_session_timeout_ms = INT(6000, MEDIUM).with_effect(
        "Shortest session time-out, in milliseconds, that a member may ask for."
    )
    group_max_session_timeout_ms = INT(1_800_000, MEDIUM).with_effect(
        "Longest session time-out, in milliseconds, that a member may ask for."
    )
    group_initial_rebalance_delay_ms = INT(3000, MEDIUM).with_effect(
        "Milliseconds that a new group waits for further members before its first rebalance. 0 suits tests."
    )
    group_max_size = INT(INT_MAX, MEDIUM, at_least(1)).with_effect("Maximum members of one group.")
    group_coordinator_rebalance_protocols = LIST(
        ("classic",), MEDIUM, ListOf(("consumer", "classic", "share", "unknown"))
    ).without_effect("Rebalance protocols on offer; with ZooKeeper only `classic`.")
    group_coordinator_new_enable = BOOLEAN(False, MEDIUM, is_internal=True).without_effect(
        "Use Kafka's new group coordinator (KRaft)."
    )
    group_coordinator_threads = INT(1, MEDIUM, at_least(1)).without_effect("Threads of Kafka's new group coordinator.")
    group_coordinator_append_linger_ms = INT(10, MEDIUM, at_least(0)).without_effect(
        "Milliseconds for which the new group coordinator gathers writes."
    )
    group_consumer_assignors = LIST(
        (
            "org.apache.kafka.coordinator.group.assignor.UniformAssignor",
            "org.apache.kafka.coordinator.group.assignor.RangeAssignor",
        ),
        MEDIUM,
    ).without_effect("Server-side assignors of the new consumer protocol (KIP-848), the default one first.")
    group_consumer_heartbeat_interval_ms = INT(5000, MEDIUM, at_least(1)).without_effect(
        "Heartbeat interval, in milliseconds, for members under the new consumer protocol."
    )
    group_consumer_min_heartbeat_interval_ms = INT(5000, MEDIUM, at_least(1)).without_effect(
        "Smallest heartbeat interval that a group may be given, in milliseconds."
    )
    group_consumer_max_heartbeat_interval_ms = INT(15000, MEDIUM, at_least(1)).without_effect(
        "Largest heartbeat interval that a group may be given, in milliseconds."
    )
    group_consumer_session_timeout_ms = INT(45000, MEDIUM, at_least(1)).without_effect(
        "Session time-out, in milliseconds, under the new consumer protocol."
    )
    group_consumer_min_session_timeout_ms = INT(45000, MEDIUM, at_least(1)).without_effect(
        "Smallest session time-out that a group may be given, in milliseconds."
    )
    group_consumer_max_session_timeout_ms = INT(60000, MEDIUM, at_least(1)).without_effect(
        "Largest session time-out that a group may be given, in milliseconds."
    )
    group_consumer_max_size = INT(INT_MAX, MEDIUM, at_least(1)).without_effect(
        "Maximum members of one group under the new consumer protocol."
    )
    group_consumer_migration_policy = STRING(
        "disabled", MEDIUM, OneOfAnyCase(("DISABLED", "DOWNGRADE", "UPGRADE", "BIDIRECTIONAL")), is_internal=True
    ).without_effect("Whether groups with members may change between the classic and the new protocol.")
    group_share_enable = BOOLEAN(False, MEDIUM, is_internal=True).without_effect("Offer share groups (KIP-932; KRaft).")
    group_share_delivery_count_limit = INT(5, MEDIUM, between(2, 10)).without_effect(
        "How often to deliver a record to a share group before giving it up."
    )
    group_share_heartbeat_interval_ms = INT(5000, MEDIUM, at_least(1)).without_effect(
        "Heartbeat interval, in milliseconds, of share group members."
    )
    group_share_min_heartbeat_interval_ms = INT(5000, MEDIUM, at_least(1)).without_effect(
        "Smallest heartbeat interval of share group members, in milliseconds."
    )
    group_share_max_heartbeat_interval_ms = INT(15000, MEDIUM, at_least(1)).without_effect(
        "Largest heartbeat interval of share group members, in milliseconds."
    )
    group_share_session_timeout_ms = INT(45000, MEDIUM, at_least(1)).without_effect(
        "Session time-out, in milliseconds, of share group members."
    )
    group_share_min_session_timeout_ms = INT(45000, MEDIUM, at_least(1)).without_effect(
        "Smallest session time-out of share group members, in milliseconds."
    )
    group_share_max_session_timeout_ms = INT(60000, MEDIUM, at_least(1)).without_effect(
        "Largest session time-out of share group members, in milliseconds."
    )
    group_share_max_groups = SHORT(10, MEDIUM, between(1, 100)).without_effect("Maximum share groups of the cluster.")
    group_share_max_size = SHORT(200, MEDIUM, between(10, 1000)).without_effect("Maximum members of one share group.")
    group_share_partition_max_record_locks = INT(200, MEDIUM, between(100, 10000)).without_effect(
        "Maximum records that a share group may hold locked in one partition."
    )
    group_share_record_lock_duration_ms = INT(30000, MEDIUM, between(1000, 60000)).without_effect(
        "Milliseconds for which a record is locked for the member that got it."
    )
    group_share_min_record_lock_duration_ms = INT(15000, MEDIUM, between(1000, 30000)).without_effect(
        "Smallest lock time of a record, in milliseconds."
    )
    group_share_max_record_lock_duration_ms = INT(60000, MEDIUM, between(30000, 3_600_000)).without_effect(
        "Largest lock time of a record, in milliseconds."
    )
    offset_metadata_max_bytes = INT(4096, HIGH).with_effect(
        "Longest text, in bytes, that a client may store with an offset."
    )
    offsets_commit_required_acks = SHORT(-1, HIGH).without_effect(
        "Deprecated: acks of a commit's write. klamm waits for all in-sync replicas, as with -1."
    )
    offsets_commit_timeout_ms = INT(5000, HIGH, at_least(1)).with_effect(
        "Milliseconds that a commit waits for its replicas."
    )
    offsets_load_buffer_size = INT(5_242_880, HIGH, at_least(1)).with_effect(
        "Bytes read at once when a coordinator loads the offsets topic."
    )
    offsets_retention_minutes = INT(10080, HIGH, at_least(1)).with_effect(
        "Minutes that offsets of an empty group are kept."
    )
    offsets_retention_check_interval_ms = LONG(600_000, HIGH, at_least(1)).with_effect(
        "Milliseconds between checks for offsets to forget."
    )
    offsets_topic_num_partitions = INT(50, HIGH, at_least(1)).with_effect(
        "Partitions of the offsets topic; must not change once it exists."
    )
    offsets_topic_replication_factor = SHORT(3, HIGH, at_least(1)).with_effect(
        "Replicas of the offsets topic; it is not created before there are as many brokers."
    )
    offsets_topic_segment_bytes = INT(104_857_600, HIGH, at_least(1)).with_effect(
        "Segment size of the offsets topic in bytes; small ones load fast."
    )
    offsets_topic_compression_codec = INT(0, HIGH).with_effect(
        "Codec number of the offsets topic's batches: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd."
    )


class TransactionKeys:
    """Producer ids and transactions"""

    producer_id_expiration_ms = INT(86_400_000, LOW, at_least(1), CLUSTER_WIDE).with_effect(
        "Milliseconds without a write after which a partition forgets a producer's sequence numbers."
    )
    producer_id_expiration_check_interval_ms = INT(600_000, LOW, at_least(1), is_internal=True).with_effect(
        "Milliseconds between checks for producer ids to forget."
    )
    transactional_id_expiration_ms = INT(604_800_000, HIGH, at_least(1)).with_effect(
        "Milliseconds without a request from its producer after which a transactional id is forgotten."
    )
    transaction_max_timeout_ms = INT(900_000, HIGH, at_least(1)).with_effect(
        "Longest transaction time-out, in milliseconds, that a producer may ask for."
    )
    transaction_partition_verification_enable = BOOLEAN(True, LOW, dynamic=CLUSTER_WIDE).with_effect(
        "Check with the coordinator that a partition belongs to the transaction before writing to it (KIP-890)."
    )
    transaction_state_log_num_partitions = INT(50, HIGH, at_least(1)).with_effect(
        "Partitions of the transaction topic; must not change once it exists."
    )
    transaction_state_log_replication_factor = SHORT(3, HIGH, at_least(1)).with_effect(
        "Replicas of the transaction topic; it is not created before there are as many brokers."
    )
    transaction_state_log_min_isr = INT(2, HIGH, at_least(1)).with_effect(
        "`min.insync.replicas` of the transaction topic."
    )
    transaction_state_log_segment_bytes = INT(104_857_600, HIGH, at_least(1)).with_effect(
        "Segment size of the transaction topic in bytes; small ones load fast."
    )
    transaction_state_log_load_buffer_size = INT(5_242_880, HIGH, at_least(1)).with_effect(
        "Bytes read at once when a coordinator loads the transaction topic."
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms = INT(10000, LOW, at_least(1)).with_effect(
        "Milliseconds between checks for transactions that ran out of time."
    )
    transaction_remove_expired_transaction_cleanup_interval_ms = INT(3_600_000, LOW, at_least(1)).with_effect(
        "Milliseconds between checks for transactional ids to forget."
    )
