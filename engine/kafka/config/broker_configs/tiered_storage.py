"""Settings of tiered storage (KIP-405). klamm keeps all segments on its own disks."""

from __future__ import annotations

from engine.kafka.config.definition import AUTO_THREADS, BOOLEAN, CLUSTER_WIDE, DOUBLE, INT, LONG, LOW, MEDIUM, STRING
from engine.kafka.config.validators import NonEmpty, at_least, between
from engine.kafka.config.values import LONG_MAX


class TieredStorageKeys:
    """Tiered storage"""

    remote_log_storage_system_enable = BOOLEAN(False, MEDIUM).without_effect("Switch tiered storage on for the broker.")
    remote_log_storage_manager_class_name = STRING(None, MEDIUM, NonEmpty()).without_effect(
        "Java class that stores segments elsewhere."
    )
    remote_log_storage_manager_class_path = STRING(None, MEDIUM).without_effect("Class path of that class.")
    remote_log_storage_manager_impl_prefix = STRING("rsm.config.", MEDIUM, NonEmpty()).without_effect(
        "Prefix of settings that are handed to that class."
    )
    remote_log_metadata_manager_class_name = STRING(
        "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager", MEDIUM, NonEmpty()
    ).without_effect("Java class that remembers which segments are stored where.")
    remote_log_metadata_manager_class_path = STRING(None, MEDIUM).without_effect("Class path of that class.")
    remote_log_metadata_manager_impl_prefix = STRING("rlmm.config.", MEDIUM, NonEmpty()).without_effect(
        "Prefix of settings that are handed to that class."
    )
    remote_log_metadata_manager_listener_name = STRING(None, MEDIUM, NonEmpty()).without_effect(
        "Listener by which that class reaches the broker itself."
    )
    remote_log_metadata_custom_metadata_max_bytes = INT(128, LOW, at_least(0)).without_effect(
        "Maximum bytes of its own that a storage plug-in may keep with a segment."
    )
    remote_log_index_file_cache_total_size_bytes = LONG(1_073_741_824, LOW, at_least(1), CLUSTER_WIDE).without_effect(
        "Bytes of local disk for indexes of remote segments."
    )
    remote_log_manager_thread_pool_size = INT(10, MEDIUM, at_least(1)).without_effect(
        "Deprecated: threads that copy and delete remote segments."
    )
    remote_log_manager_copier_thread_pool_size = INT(-1, MEDIUM, AUTO_THREADS).without_effect(
        "Threads that copy segments; -1: as `remote.log.manager.thread.pool.size`."
    )
    remote_log_manager_expiration_thread_pool_size = INT(-1, MEDIUM, AUTO_THREADS).without_effect(
        "Threads that delete remote segments; -1: as `remote.log.manager.thread.pool.size`."
    )
    remote_log_manager_task_interval_ms = LONG(30000, LOW, at_least(1)).without_effect(
        "Milliseconds between checks for segments to copy or delete."
    )
    remote_log_manager_task_retry_backoff_ms = LONG(500, LOW, at_least(1), is_internal=True).without_effect(
        "Milliseconds before a failed copy is tried again."
    )
    remote_log_manager_task_retry_backoff_max_ms = LONG(30000, LOW, at_least(1), is_internal=True).without_effect(
        "Maximum milliseconds between two tries of a copy."
    )
    remote_log_manager_task_retry_jitter = DOUBLE(0.2, LOW, between(0, 0.5), is_internal=True).without_effect(
        "Share of random delay added to a retry."
    )
    remote_log_reader_threads = INT(10, MEDIUM, at_least(1)).without_effect("Threads that read remote segments.")
    remote_log_reader_max_pending_tasks = INT(100, MEDIUM, at_least(1)).without_effect(
        "Remote reads that may wait; more are refused."
    )
    remote_log_manager_copy_max_bytes_per_second = LONG(LONG_MAX, MEDIUM, at_least(1), CLUSTER_WIDE).without_effect(
        "Maximum bytes a second copied to remote storage."
    )
    remote_log_manager_copy_quota_window_num = INT(11, MEDIUM, at_least(1)).without_effect(
        "Samples that this limit is averaged over."
    )
    remote_log_manager_copy_quota_window_size_seconds = INT(1, MEDIUM, at_least(1)).without_effect(
        "Seconds of one such sample."
    )
    remote_log_manager_fetch_max_bytes_per_second = LONG(LONG_MAX, MEDIUM, at_least(1), CLUSTER_WIDE).without_effect(
        "Maximum bytes a second read from remote storage."
    )
    remote_log_manager_fetch_quota_window_num = INT(11, MEDIUM, at_least(1)).without_effect(
        "Samples that this limit is averaged over."
    )
    remote_log_manager_fetch_quota_window_size_seconds = INT(1, MEDIUM, at_least(1)).without_effect(
        "Seconds of one such sample."
    )
    remote_fetch_max_wait_ms = INT(500, MEDIUM, at_least(1), CLUSTER_WIDE).without_effect(
        "Maximum milliseconds that a Fetch waits for remote storage."
    )
