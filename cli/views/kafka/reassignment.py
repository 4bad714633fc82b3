"""What kafka-reassign-partitions and kafka-leader-election print."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from cli.output.report import KafkaText
from cli.views.kafka.hash_order import in_hash_order
from engine.admin.elections.scope_and_result import ElectionResult, PartitionElection
from engine.admin.reassignment.cancel import CancelledPartition, CancelResult
from engine.admin.reassignment.moves import PartitionStatus, ReassignmentState, RunningReassignment
from engine.admin.reassignment.reassignment_file import PartitionMove, plan_document, plan_text
from engine.common.model import TopicPartition
from engine.common.quantities import plural

_MOVING = (ReassignmentState.IN_PROGRESS, ReassignmentState.WAITING)
_NO_REPLICA_MOVES = "None of the specified partition moves are active."


def running_text(running: Sequence[RunningReassignment]) -> KafkaText:
    """``--list``."""
    if not running:
        return KafkaText("No partition reassignments found.\n")
    lines = [
        f"{move.topic}-{move.partition}: replicas: {_listed(move.replicas)}."
        + (f" adding: {_listed(move.adding)}." if move.adding else "")
        + (f" removing: {_listed(move.removing)}." if move.removing else "")
        for move in sorted(running, key=lambda move: (move.topic, move.partition))
    ]
    return KafkaText("".join(f"{line}\n" for line in ("Current partition reassignments:", *lines)))


def started_text(
    plan: Sequence[PartitionMove],
    origins: Mapping[TopicPartition, Sequence[int]],
    throttle: int | None,
    log_dir_throttle: int | None,
) -> KafkaText:
    """``--execute``: where the replicas were, the throttles, and what has started."""
    lines = [
        "Current partition replica assignment",
        "",
        plan_text(plan_document({move.name: tuple(origins[move.name]) for move in plan})),
        "",
        "Save this to use as the --reassignment-json-file option during rollback",
    ]
    if throttle is not None or log_dir_throttle is not None:
        lines.append(
            "Warning: You must run --verify periodically, until the reassignment completes, "
            "to ensure the throttle is removed."
        )
    if throttle is not None:
        lines.append(f"The inter-broker throttle limit was set to {throttle} B/s")
    if log_dir_throttle is not None:
        lines.append(f"The replica-alter-dir throttle limit was set to {log_dir_throttle} B/s")
    names = sorted(move.name for move in plan)
    lines.append(f"Successfully started partition {plural('reassignment', len(names))} for {','.join(map(str, names))}")
    dirs = sorted((broker, move.name, path) for move in plan for broker, path in move.wanted_dirs.items())
    lines += [
        f"Successfully started moving log directory to {path} for replica {name} with broker {broker} "
        for broker, name, path in dirs
    ]
    return KafkaText("".join(f"{line}\n" for line in lines))


def verified_text(
    statuses: Sequence[PartitionStatus],
    plan: Sequence[PartitionMove],
    brokers: Iterable[int],
    *,
    left: Sequence[str] | None,
) -> KafkaText:
    """``--verify``: how far each partition is.

    Once nothing moves, throttles are removed, unless ``left`` is None; it names those that stay, for stderr.
    """
    lines = ["Status of partition reassignment:", *(_status_line(status) for status in sorted(statuses, key=_name))]
    states = {status.name: status.state for status in statuses}
    dirs = sorted((broker, move.name) for move in plan for broker in move.wanted_dirs)
    moved = {True: "completed successfully", False: "is still in progress"}
    lines += [
        f"Reassignment of replica {name}-{broker} {moved[states.get(name) is ReassignmentState.COMPLETE]}."
        for broker, name in dirs
    ] or [""]
    if left is not None and not left and not any(state in _MOVING for state in states.values()):
        lines += _clearing(plan, brokers)
    return KafkaText("".join(f"{line}\n" for line in lines), _ended(left or ()))


def _status_line(status: PartitionStatus) -> str:
    if status.state is ReassignmentState.COMPLETE:
        return f"Reassignment of partition {status.name} is completed."
    if status.state in _MOVING:
        return f"Reassignment of partition {status.name} is still in progress."
    return (
        f"There is no active reassignment of partition {status.name}, "
        f"but replica set is {_listed(status.replicas)} rather than {_listed(status.target)}."
    )


def cancelled_text(
    results: Sequence[CancelledPartition],
    plan: Sequence[PartitionMove],
    brokers: Iterable[int],
    *,
    left: Sequence[str] | None,
) -> KafkaText:
    """``--cancel``: what was stopped, and which throttles go with it; ``left`` as for ``verified_text``."""
    stopped = (CancelResult.CANCELLED, CancelResult.UNDER_WAY)
    names = sorted(TopicPartition(result.topic, result.partition) for result in results if result.result in stopped)
    message = "None of the specified partition reassignments are active."
    if names:
        message = (
            f"Successfully cancelled partition {plural('reassignment', len(names))} for: {','.join(map(str, names))}"
        )
    # The tool ends this line only if another follows.
    clearing = _clearing(plan, brokers) if left is not None and not left else ()
    return KafkaText(f"{message}\n{_NO_REPLICA_MOVES}{_ended(clearing)}", _ended(left or ()))


def _ended(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _clearing(plan: Sequence[PartitionMove], brokers: Iterable[int]) -> list[str]:
    ids = sorted({*brokers, *(broker for move in plan for broker in move.replicas)})
    topics = in_hash_order({move.name.topic: None for move in plan}, lambda name: name)
    return [
        f"Clearing broker-level throttles on {plural('broker', len(ids))} {_listed(ids)}",
        f"Clearing topic-level throttles on {plural('topic', len(topics))} {','.join(topics)}",
    ]


def elected_text(results: Sequence[PartitionElection], election: str, *, is_of_all: bool) -> KafkaText | None:
    """kafka-leader-election: what was elected; of an election of all partitions only what was needed.

    None for a dry run.
    """
    if any(result.result in (ElectionResult.WOULD_BE_ELECTED, ElectionResult.WOULD_FAIL) for result in results):
        return None
    of: dict[ElectionResult, list[PartitionElection]] = {}
    for result in results:
        of.setdefault(result.result, []).append(result)
    out = ""
    if done := of.get(ElectionResult.ELECTED):
        out += f"Successfully completed leader election ({election.upper()}) for partitions {_partitions(done)}\n"
    if (needless := of.get(ElectionResult.NOT_NEEDED)) and not is_of_all:
        out += f"Valid replica already elected for partitions {_partitions(needless)}\n"
    failed = of.get(ElectionResult.FAILED, [])
    for failure in in_hash_order(failed, _name):
        out += (
            f"Error completing leader election ({election.upper()}) for partition: {_name(failure)}: {failure.error}\n"
        )
    return KafkaText(out, f"{len(failed)} replica(s) could not be elected\n" if failed else "")


def _partitions(elections: Sequence[PartitionElection]) -> str:
    return ", ".join(str(_name(election)) for election in in_hash_order(elections, _name))


def _name(result: PartitionStatus | PartitionElection) -> TopicPartition:
    return TopicPartition(result.topic, result.partition)


def _listed(ids: Iterable[int]) -> str:
    return ",".join(map(str, ids))
