"""Settings of producer ids and transactions."""

from __future__ import annotations

from engine.kafka.config.definition import BOOLEAN, CLUSTER_WIDE, HIGH, INT, LOW, SHORT
from engine.kafka.config.validators import at_least


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
