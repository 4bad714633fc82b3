"""Why a partition moves, or does not, in sentences."""

from __future__ import annotations

from collections.abc import Sequence

from engine.common.model import TopicPartition
from engine.common.quantities import counted
from plans.errors import BadOption
from plans.plan_file import MadePlan, PlanFile, dir_changes
from plans.problem import Problem, mask_of
from plans.score import BrokerScore


def explanations(made: MadePlan, names: Sequence[str]) -> tuple[str, ...]:
    """Return the sentences for the named partitions, in that order.

    Raises:
        BadOption: the cluster has no such partition.
    """
    problem = made.problem
    lines: list[str] = []
    for name in names:
        index = next((i for i, partition in enumerate(problem.partitions) if str(partition.name) == name), None)
        if index is None:
            raise BadOption(f"no such partition to explain: {name}", hint="write TOPIC-PARTITION, such as orders-0")
        lines += _partition(made, index)
    return tuple(lines)


def _partition(made: MadePlan, index: int) -> list[str]:
    problem, after = made.problem, made.after[index]
    partition = problem.partitions[index]
    before = partition.current
    lines = [f"{partition.name}: {_ids(problem, before)} becomes {_ids(problem, after)}"]
    disks = _disks(made.plan, partition.name)
    if before == after and disks:
        return [f"{partition.name} stays on {_ids(problem, before)} and changes its log dir:", *disks]
    if before == after:
        reason = "moving it gains nothing" if partition.is_movable else "it is pinned, excluded, out of scope or moving"
        return [f"{partition.name} stays on {_ids(problem, before)}: {reason}"]
    rows = {row.broker: row for row in made.plan.klamm.score.brokers}
    left = [b for b in before if b not in after]
    lines += [f"  it leaves broker {problem.brokers[b].id}: {_leaving(problem, index, b, rows)}" for b in left]
    for broker in after:
        if broker not in before:
            row = rows[problem.brokers[broker].id]
            lines.append(
                f"  broker {row.broker} gets it: it goes from {row.replicas_before} to {row.replicas_after} replicas"
            )
    if after[:1] != before[:1]:
        old, new = (rows[problem.brokers[b].id] for b in (before[0], after[0]))
        why = (
            f"broker {old.broker} no longer holds it"
            if before[0] in left
            else f"broker {old.broker} goes from {old.leaders_before} to {old.leaders_after} leaders"
        )
        lines.append(f"  broker {new.broker} leads it: {why}")
    return lines + disks


def _disks(plan: PlanFile, name: TopicPartition) -> list[str]:
    """Return a line for each replica of a partition that goes to another log dir."""
    before = next((move for move in plan.klamm.rollback if move.name == name), None)
    after = next((partition for partition in plan.partitions if partition.name == name), None)
    return (
        []
        if before is None or after is None
        else [f"  broker {dir_change}" for dir_change in dir_changes(before, after)]
    )


def _leaving(problem: Problem, index: int, broker: int, rows: dict[int, BrokerScore]) -> str:
    partition = problem.partitions[index]
    row = rows[problem.brokers[broker].id]
    if broker in problem.leaving:
        return "that broker is emptied" if row.replicas_after == 0 else _partly_emptied(row.replicas_after)
    if not partition.may_hold >> broker & 1:
        return "that broker is not one of the wanted ones"
    if len(partition.current) > partition.factor:
        return f"{partition.factor} replicas are wanted instead of {len(partition.current)}"
    rack = problem.brokers[broker].rack
    if sum(problem.brokers[b].rack == rack for b in partition.current) > 1 and mask_of(partition.current):
        return f"another replica is in rack {problem.brokers[broker].rack_name} too"
    return f"that broker goes from {row.replicas_before} to {row.replicas_after} replicas"


def _partly_emptied(left: int) -> str:
    return f"the plan takes from that broker what it may move; {counted(left, 'replica')} stay{'s' * (left == 1)} there"


def _ids(problem: Problem, replicas: Sequence[int]) -> str:
    return ", ".join(str(problem.brokers[b].id) for b in replicas)


def lines_of_file(plan: PlanFile, name: TopicPartition) -> tuple[str, ...]:
    """Return what a plan file alone says about one of its partitions: old, new, and the effect on the brokers."""
    before = next((move for move in plan.klamm.rollback if move.name == name), None)
    after = next((partition for partition in plan.partitions if partition.name == name), None)
    if before is None or after is None:
        return ()
    rows = {row.broker: row for row in plan.klamm.score.brokers}
    lines = [f"{name}: {', '.join(map(str, before.replicas))} becomes {', '.join(map(str, after.replicas))}"]
    for verb, brokers in (
        ("it leaves broker {}", [replica for replica in before.replicas if replica not in after.replicas]),
        ("broker {} gets it", [replica for replica in after.replicas if replica not in before.replicas]),
    ):
        for broker in brokers:
            row = rows.get(broker)
            counts = "" if row is None else f": it goes from {row.replicas_before} to {row.replicas_after} replicas"
            lines.append(f"  {verb.format(broker)}{counts}")
    if before.replicas[:1] != after.replicas[:1]:
        lines.append(f"  broker {after.replicas[0]} leads it, not broker {before.replicas[0]}")
    return (*lines, *_disks(plan, name))
