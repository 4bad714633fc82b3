"""Settings of quotas and metrics."""

from __future__ import annotations

from engine.kafka.config.definition import BOOLEAN, CLASS, CLUSTER_WIDE, INT, LIST, LONG, LOW, STRING
from engine.kafka.config.validators import at_least


class QuotaKeys:
    """Quotas and metrics"""

    quota_window_num = INT(11, LOW, at_least(1)).with_effect("Samples that client quotas are averaged over.")
    quota_window_size_seconds = INT(1, LOW, at_least(1)).with_effect("Seconds of one sample of client quotas.")
    replication_quota_window_num = INT(11, LOW, at_least(1)).without_effect(
        "Samples that replication throttles are averaged over."
    )
    replication_quota_window_size_seconds = INT(1, LOW, at_least(1)).without_effect(
        "Seconds of one sample of replication throttles."
    )
    alter_log_dirs_replication_quota_window_num = INT(11, LOW, at_least(1)).with_effect(
        "Samples that the throttle of moves between log dirs is averaged over."
    )
    alter_log_dirs_replication_quota_window_size_seconds = INT(1, LOW, at_least(1)).with_effect(
        "Seconds of one sample of that throttle."
    )
    controller_quota_window_num = INT(11, LOW, at_least(1)).with_effect(
        "Samples that quotas of topic changes are averaged over."
    )
    controller_quota_window_size_seconds = INT(1, LOW, at_least(1)).with_effect(
        "Seconds of one sample of those quotas."
    )
    client_quota_callback_class = CLASS(None, LOW).without_effect(
        "Java class that decides quotas instead of those in ZooKeeper."
    )
    metric_reporters = LIST((), LOW, dynamic=CLUSTER_WIDE).without_effect("Java classes that metrics are handed to.")
    auto_include_jmx_reporter = BOOLEAN(True, LOW).without_effect(
        "Deprecated: hand metrics to JMX even if `metric.reporters` does not name it."
    )
    metrics_num_samples = INT(2, LOW, at_least(1)).without_effect("Samples that a metric is averaged over.")
    metrics_sample_window_ms = LONG(30000, LOW, at_least(1)).without_effect("Milliseconds of one sample of a metric.")
    metrics_recording_level = STRING("INFO", LOW).without_effect("How much is measured: INFO, DEBUG or TRACE.")
    kafka_metrics_reporters = LIST((), LOW).with_effect(
        "Reporters of metrics. klamm has `kafka.metrics.KafkaCSVMetricsReporter`, which writes a file for each metric "
        "into the folder `kafka.csv.metrics.dir` (`kafka_metrics`) if `kafka.csv.metrics.reporter.enabled` is `true`; "
        "other Java classes are left out. `klamm.metrics.reporters` has more."
    )
    kafka_metrics_polling_interval_secs = INT(10, LOW, at_least(1)).with_effect(
        "Seconds between two reports of metrics."
    )
    telemetry_max_bytes = INT(1_048_576, LOW, at_least(1)).without_effect(
        "Largest packet of metrics, in bytes, that a client may push (KIP-714)."
    )
