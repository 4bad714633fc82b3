"""Rules that protect records, each of which a process can break: their tests must notice."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any


def stop_replica_is_answered_before_the_checkpoints_are_written() -> None:
    """A deleted log stays in the checkpoints until they are next written."""
    from engine.broker.log.log_checkpoints import LogCheckpoints
    from engine.broker.replication.replica_manager import ReplicaManager

    async def forget_logs(_self: ReplicaManager, _topic_partitions: Collection[Any]) -> bool:
        return True

    def jobs_without(_self: LogCheckpoints, _path: Any, _topic_partitions: Collection[Any]) -> list[Any]:
        return []

    ReplicaManager.forget_logs = forget_logs  # type: ignore[method-assign]
    LogCheckpoints.jobs_without = jobs_without  # type: ignore[method-assign]


def records_are_committed_when_the_leader_has_them() -> None:
    """acks=all is answered, and consumers read, before any follower has the records."""
    from engine.broker.replication import partition

    def high_watermark_candidate(leader_end_offset: int, *_: Any, **__: Any) -> int:
        return leader_end_offset

    partition.high_watermark_candidate = high_watermark_candidate


def an_answer_counts_for_whoever_has_the_name() -> None:
    """A follower's request for a topic counts for a new topic that was created under the same name meanwhile."""
    from engine.broker.replication.fetcher import ReplicaFetcher

    use = ReplicaFetcher._use

    def use_for_all(self: Any, response: Any, plan: Any, api_version: int) -> Any:
        for topic_partition, sent in list(plan.partitions.items()):
            state = self._table.states.get(topic_partition)
            if state is not None:
                plan.partitions[topic_partition] = sent._replace(asker=state)
        return use(self, response, plan, api_version)

    ReplicaFetcher._use = use_for_all  # type: ignore[method-assign]


RULES: Mapping[str, Callable[[], None]] = {
    rule.__name__: rule
    for rule in (
        stop_replica_is_answered_before_the_checkpoints_are_written,
        records_are_committed_when_the_leader_has_them,
        an_answer_counts_for_whoever_has_the_name,
    )
}
