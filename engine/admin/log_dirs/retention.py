"""What a lower retention of a topic deletes, and when the space comes back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set

from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import AdminError
from engine.admin.configs.access import describe_entity
from engine.admin.configs.values import Entity, EntityType
from engine.admin.log_dirs.describing import LogDir, read_log_dirs
from engine.common.model import TopicPartition
from engine.common.quantities import size_text, span_text

_LIMIT_S = 3.0
_CHECK_MS = "log.retention.check.interval.ms"
_DELAY_MS = "file.delete.delay.ms"
_DEFAULTS = {_CHECK_MS: "300000", _DELAY_MS: "60000", "cleanup.policy": "delete"}
"""Those of Kafka 3.9, where a cluster does not say."""


async def deletion_lines(cluster: Cluster, topic: str, new: Mapping[str, str]) -> tuple[str, ...]:
    """Say in lines how much a lower ``retention.bytes`` or ``retention.ms`` deletes, as far as it is known, and when.

    ``new`` are all the topic's settings that change.

    Empty if nothing is deleted for it, as in a topic that is only compacted, or if brokers do not say.
    """
    try:
        wire = await cluster.wire()
        of_topic = await describe_entity(cluster, Entity(EntityType.TOPIC, topic), include_all=True)
        live = await wire.live_brokers()
        broker = Entity(EntityType.BROKER, str(min(live)))
        of_broker = await describe_entity(cluster, broker, include_all=True)
        metadata = await wire.metadata([topic])
        partitions = [p for described in metadata.topics if described.name == topic for p in described.partitions]
        names = [TopicPartition(topic, partition.partition_index) for partition in partitions]
        limit = new.get("retention.bytes", "")
        log_dirs = await read_log_dirs(cluster, None, names, limit_s=_LIMIT_S) if limit.isdecimal() else []
    except (AdminError, ValueError):
        return ()
    in_force = {entry.name: entry.value for entry in (*of_broker.configs, *of_topic.configs) if entry.value is not None}
    holders = {broker_id for partition in partitions for broker_id in partition.replica_nodes}
    silent = {log_dir.broker for log_dir in log_dirs if log_dir.log_dir is None}
    bytes_max = int(limit) if limit.isdecimal() else None
    return text_of({**_DEFAULTS, **in_force, **new}, log_dirs, bytes_max, away=holders - live | holders & silent)


def text_of(
    configs: Mapping[str, str], log_dirs: Iterable[LogDir], bytes_max: int | None, *, away: Set[int] = frozenset()
) -> tuple[str, ...]:
    """Return the lines for these settings of the topic and of a broker. Pure.

    Args:
        bytes_max: the new ``retention.bytes``; None: by age; how much is older is not known.
        away: brokers with replicas of the topic that are down or do not answer.
    """
    if "delete" not in configs["cleanup.policy"]:
        return ()
    expired, who, of = "what is older is", "all brokers", ""
    if away:
        who, of = "the brokers that answer", " on a broker that answers"
    if bytes_max is not None:
        sizes = [replica.size_bytes for log_dir in log_dirs for replica in log_dir.replicas if not replica.is_future]
        # Brokers delete whole segments, as long as at least the limit is left.
        over = sum(max(0, size - bytes_max) for size in sizes)
        if sizes and not over:
            return (f"nothing is deleted now: no replica{of} has more than {size_text(bytes_max)}",)
        expired = f"up to {size_text(over)} of {size_text(sum(sizes))} on {who} are" if sizes else "what exceeds it is"
    check, delay = (span_text(int(configs[key]) // 1000) or "0s" for key in (_CHECK_MS, _DELAY_MS))
    lines = (f"{expired} deleted, at a check every {check}", f"the space comes back {delay} after that ({_DELAY_MS})")
    if not away:
        return lines
    if len(away) == 1:
        return (*lines, f"broker {min(away)} does not answer: it deletes nothing before it is back")
    named = ", ".join(map(str, sorted(away)))
    return (*lines, f"brokers {named} do not answer: they delete nothing before they are back")
