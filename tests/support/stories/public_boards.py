"""Which metrics of a broker well-known boards for Grafana ask for."""

from __future__ import annotations

BOARDS = {
    "Strimzi Kafka": """
        kafka_cluster_partition_atminisr kafka_cluster_partition_replicascount kafka_cluster_partition_underminisr
        kafka_controller_controllerstats_uncleanleaderelections_total
        kafka_controller_kafkacontroller_activecontrollercount kafka_controller_kafkacontroller_offlinepartitionscount
        kafka_log_log_size{topic,partition} kafka_network_socketserver_networkprocessoravgidle_percent
        kafka_server_brokertopicmetrics_bytesin_total{topic} kafka_server_brokertopicmetrics_bytesout_total{topic}
        kafka_server_brokertopicmetrics_failedfetchrequests_total
        kafka_server_brokertopicmetrics_failedproducerequests_total
        kafka_server_brokertopicmetrics_messagesin_total{topic}
        kafka_server_brokertopicmetrics_totalfetchrequests_total{topic}
        kafka_server_brokertopicmetrics_totalproducerequests_total{topic}
        kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent
        kafka_server_kafkaserver_linux_disk_read_bytes kafka_server_kafkaserver_linux_disk_write_bytes
        kafka_server_replicamanager_leadercount kafka_server_replicamanager_partitioncount
        kafka_server_replicamanager_underreplicatedpartitions
        kafka_server_socket_server_metrics_connection_count{listener}
        process_cpu_seconds_total process_open_fds
    """,
    "Kafka Overview (Grafana 721)": """
        kafka_server_brokertopicmetrics_bytesin_total{topic} kafka_server_brokertopicmetrics_bytesout_total{topic}
        kafka_server_brokertopicmetrics_messagesin_total{topic} process_cpu_seconds_total
    """,
}
"""What they ask of a broker's page, with the labels that they use. Figures of the JVM are left out: there
is none; so are those that Kubernetes tells.
"""
