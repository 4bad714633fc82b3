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


def a_former_producer_is_not_fenced() -> None:
    """The coordinator does what any epoch of a transactional id asks for."""
    from engine.broker.coordinator.transactions import state_machine
    from engine.common.errors import ErrorCode

    def any_epoch(transaction: Any, producer: Any) -> ErrorCode:
        is_known = transaction is not None and transaction.producer_id == producer.producer_id
        return ErrorCode.NONE if is_known else ErrorCode.INVALID_PRODUCER_ID_MAPPING

    state_machine._producer_error = any_epoch


def an_aborted_transaction_gets_the_marker_of_a_committed_one() -> None:
    """Leaders write COMMIT whatever the coordinator says."""
    from engine.broker.coordinator.transactions.marker_writer import MarkerWriter

    write = MarkerWriter.write

    def write_commit(self: Any, marker: Any, partitions: Any, ended: Any) -> None:
        write(self, marker._replace(is_commit=True), partitions, ended)

    MarkerWriter.write = write_commit  # type: ignore[method-assign]


def a_marker_is_answered_and_not_written() -> None:
    """Leaders say that an aborted transaction has its marker."""
    from engine.broker.coordinator.transactions.marker_writer import MarkerWriter
    from engine.common.errors import ErrorCode

    write = MarkerWriter.write

    def write_commits(self: Any, marker: Any, partitions: Any, ended: Any) -> None:
        if marker.is_commit:
            write(self, marker, partitions, ended)
            return
        for partition in partitions:
            ended(partition, ErrorCode.NONE, -1)

    MarkerWriter.write = write_commits  # type: ignore[method-assign]


def any_batch_may_begin_a_transaction() -> None:
    """The coordinator says that every partition belongs to the open transaction."""
    from engine.broker.coordinator.transactions import state_machine
    from engine.common.errors import ErrorCode

    def verify_partitions(_transaction: Any, _producer: Any, partitions: Collection[Any]) -> dict[Any, ErrorCode]:
        return dict.fromkeys(partitions, ErrorCode.NONE)

    state_machine.verify_partitions = verify_partitions


def records_of_open_transactions_are_stable() -> None:
    """Readers of committed records read up to the high watermark."""
    from engine.broker.log.log import Log

    Log.last_stable_offset = property(lambda self: self.high_watermark)  # type: ignore[method-assign, assignment]


RULES: Mapping[str, Callable[[], None]] = {
    rule.__name__: rule
    for rule in (
        stop_replica_is_answered_before_the_checkpoints_are_written,
        records_are_committed_when_the_leader_has_them,
        an_answer_counts_for_whoever_has_the_name,
        a_former_producer_is_not_fenced,
        an_aborted_transaction_gets_the_marker_of_a_committed_one,
        a_marker_is_answered_and_not_written,
        any_batch_may_begin_a_transaction,
        records_of_open_transactions_are_stable,
    )
}
