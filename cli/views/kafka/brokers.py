"""What kafka-log-dirs, kafka-broker-api-versions, kafka-cluster, kafka-get-offsets and kafka-delete-records print."""

from __future__ import annotations

import json
from collections.abc import Sequence

from cli.output.report import KafkaText
from cli.views.kafka.hash_order import in_hash_order
from engine.admin.brokers.description import BrokerDetails
from engine.admin.brokers.self_report import OfferedApi
from engine.admin.log_dirs.describing import DirReplica, LogDir
from engine.admin.offsets.listing import PartitionOffset
from engine.admin.records.deletion import DeletionResult, RecordsDeletion
from engine.common.model import TopicPartition
from engine.kafka.protocol.api_keys import API_SPECS

_STORAGE_ERROR = "KAFKA_STORAGE_ERROR"
_LATEST = (
    11, 17, 9, 12, 7, 4, 8, 3, 9, 9, 6, 9, 4, 5, 5, 5, 5, 1, 4, 7, 6, 2, 5, 4, 5, 4, 4, 1, 4, 3, 3, 3, 4, 2, 2, 4, 2, 3,
    3, 2, 2, 3, 2, 2, 1, 0, 0, 0, 1, 1, 0, 0,
)  # fmt: skip
"""The newest version of each API that the clients of Kafka 3.9.1 speak, from Produce (0) on."""
_LATEST_OF = dict(enumerate(_LATEST)) | {
    55: 2, 56: 3, 57: 1, 58: 0, 60: 1, 61: 0, 64: 0, 65: 0, 66: 1, 67: 0, 68: 0, 69: 0, 71: 0, 72: 0, 74: 0, 75: 0,
    80: 0, 81: 0,
}  # fmt: skip
_ABSENT = {
    64: "UnregisterBroker", 71: "GetTelemetrySubscriptions",
    72: "PushTelemetry", 74: "ListClientMetricsResources", 75: "DescribeTopicPartitions", 76: "ShareGroupHeartbeat",
    77: "ShareGroupDescribe", 78: "ShareFetch", 79: "ShareAcknowledge", 80: "AddRaftVoter", 81: "RemoveRaftVoter",
    83: "InitializeShareGroupState", 84: "ReadShareGroupState", 85: "WriteShareGroupState",
    86: "DeleteShareGroupState", 87: "ReadShareGroupStateSummary",
}  # fmt: skip
"""APIs of clients that klamm has no messages for; the tool lists what a broker lacks all the same."""


def log_dirs_text(dirs: Sequence[LogDir]) -> KafkaText:
    """kafka-log-dirs: two lines of talk, and one of JSON."""
    brokers = sorted({log_dir.broker for log_dir in dirs})
    document = {"brokers": [_broker_dirs(broker, dirs) for broker in brokers], "version": 1}
    lines = (
        "Querying brokers for log directories information",
        f"Received log directory information from brokers {','.join(map(str, brokers))}",
        json.dumps(document, ensure_ascii=False, separators=(",", ":")),
    )
    return KafkaText("".join(f"{line}\n" for line in lines))


def _broker_dirs(broker: int, dirs: Sequence[LogDir]) -> dict[str, object]:
    own = in_hash_order(
        [log_dir for log_dir in dirs if log_dir.broker == broker and log_dir.log_dir],
        lambda log_dir: log_dir.log_dir or "",
    )
    return {
        "broker": broker,
        "logDirs": [
            {
                "partitions": [_replica(replica) for replica in in_hash_order(each.replicas, _name)],
                "error": _exception(each.error),
                "logDir": each.log_dir,
            }
            for each in own
        ],
    }


def _replica(replica: DirReplica) -> dict[str, object]:
    return {
        "partition": str(_name(replica)),
        "size": replica.size_bytes,
        "offsetLag": replica.offset_lag or 0,
        "isFuture": replica.is_future,
    }


def _name(replica: DirReplica | RecordsDeletion) -> TopicPartition:
    return TopicPartition(replica.topic, replica.partition)


def _exception(error: str | None) -> str | None:
    if error is not None and _STORAGE_ERROR in error:
        return "org.apache.kafka.common.errors.KafkaStorageException"
    return error


def api_versions_text(brokers: Sequence[BrokerDetails]) -> KafkaText:
    """kafka-broker-api-versions: what each broker offers, and the newest version that Kafka 3.9.1's clients use."""
    text = ""
    for broker in brokers:
        at = broker.listeners[0] if broker.listeners else None
        where = f"{'' if at is None else at.host}:{-1 if at is None else at.port}"
        text += f"{where} (id: {broker.id} rack: {broker.rack or 'null'}) -> "
        text += f"ERROR: {broker.report.trouble}\n" if broker.report.trouble else f"({_apis(broker.report.apis)}\n)\n"
    return KafkaText(text)


def _apis(apis: Sequence[OfferedApi]) -> str:
    names = {int(key): spec.name for key, spec in API_SPECS.items()} | _ABSENT
    lines = {key: f"{name}({key}): UNSUPPORTED" for key, name in names.items()}
    lines |= {api.key: _api(api) for api in apis}
    return ",".join(f"\n\t{lines[key]}" for key in sorted(lines))


def _api(api: OfferedApi) -> str:
    versions = f"{api.min_version}" if api.min_version == api.max_version else f"{api.min_version} to {api.max_version}"
    if api.key not in _LATEST_OF:
        return f"UNKNOWN({api.key}): {versions}"
    newest = _LATEST_OF[api.key]
    usable = "unusable: node too new" if newest < api.min_version else f"usable: {min(newest, api.max_version)}"
    return f"{api.name or 'UNKNOWN'}({api.key}): {versions} [{usable}]"


def cluster_id_text(cluster_id: str | None) -> KafkaText:
    if cluster_id is None:
        return KafkaText("No cluster ID found. The Kafka version is probably too old.\n")
    return KafkaText(f"Cluster ID: {cluster_id}\n")


def offsets_text(offsets: Sequence[PartitionOffset]) -> KafkaText:
    """kafka-get-offsets: partitions that have such an offset; on stderr those that could not be asked for."""
    known = "".join(
        f"{offset.topic}:{offset.partition}:{offset.offset}\n" for offset in offsets if offset.offset is not None
    )
    failed = "".join(
        f"Skip getting offsets for topic-partition {offset.topic}:{offset.partition} due to error: {offset.error}\n"
        for offset in offsets
        if offset.error is not None
    )
    return KafkaText(known, failed)


def deletions_text(deletions: Sequence[RecordsDeletion]) -> KafkaText | None:
    """kafka-delete-records: where each log begins now; None for a dry run."""
    if any(deletion.result is DeletionResult.WOULD_BE_DELETED for deletion in deletions):
        return None
    lines = ["Executing records delete operation", "Records delete operation completed:"]
    for deletion in in_hash_order(deletions, _name):
        low = deletion.start_offset if deletion.low_watermark is None else deletion.low_watermark
        outcome = f"low_watermark: {low}" if deletion.error is None else f"error: {deletion.error}"
        lines.append(f"partition: {_name(deletion)}\t{outcome}")
    return KafkaText("".join(f"{line}\n" for line in lines))
