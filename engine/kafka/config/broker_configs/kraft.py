"""Settings of KRaft mode. Kafka 3.9 knows them in ZooKeeper mode, too, and ignores them; so does klamm."""

from __future__ import annotations

from engine.kafka.config.definition import HIGH, INT, LIST, LONG, LOW, MEDIUM, STRING
from engine.kafka.config.validators import ListOf, at_least


class KRaftKeys:
    """KRaft"""

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
