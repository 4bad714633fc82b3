"""Cancels reassignments under way, changes their throttle, and removes throttles that were left behind."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import BadRequest
from engine.admin.configs.values import Entity, EntityType
from engine.admin.reassignment.access import list_running
from engine.admin.reassignment.cancel import (
    CancelledPartition,
    CancelResult,
    PreparedCancellation,
    cancel_reassignments,
    prepare_cancellation,
)
from engine.admin.reassignment.prepare import prepare_reassignment
from engine.admin.reassignment.reassignment_file import PartitionMove, plan_document
from engine.admin.reassignment.throttle_settings import Throttle
from engine.admin.reassignment.throttles import ClearedThrottles, delete_throttles, set_throttle
from engine.admin.reassignment.verify import preview_unneeded_throttles, verify_reassignment
from engine.common.model import TopicPartition
from engine.common.quantities import counted, parse_rate
from engine.common.snapshot import PartitionSnapshot
from tui.drawing.cells import Cell
from tui.drawing.units import byte_rate, ids
from tui.operations.operation import Operation, Outcome, Prepared, command_text, result_cell, shortened
from tui.operations.topics import quantity

MOVING_FILE = "moving.json"
"""What the command calls the file of the partitions that are moving. It is overwritten: no plan may be called so."""


@dataclass(frozen=True, slots=True)
class CancelReassignments(Operation):
    """Stops moves: the partitions go back to the replicas they had."""

    names: tuple[TopicPartition, ...]
    title: str = "Cancel reassignments"

    async def prepare(self, cluster: Cluster) -> Prepared:
        plan = tuple(PartitionMove(name, ()) for name in self.names)
        prepared = await prepare_cancellation(cluster, plan)
        running = prepared.running
        if not running:
            return Prepared("nothing of this is under way any more")
        back = [
            f"{name}: back to {ids(reassignment.assignment.origin_replicas)}" for name, reassignment in running.items()
        ]
        words = ["reassign", "cancel", "--reassignment-json-file", MOVING_FILE]
        return Prepared(
            f"Cancel {counted(len(running), 'reassignment')} in {cluster.target.name}?",
            (sum_of(running.values()), *shortened(back)),
            ("what was copied so far is discarded",),
            _with_file(dict.fromkeys(self.names, ()), words, cluster),
            run=lambda cluster: _cancelled(cluster, prepared, self.title),
            touches=frozenset(name.topic for name in running),
        )


def _with_file(replicas: Mapping[TopicPartition, tuple[int, ...]], words: list[str], cluster: Cluster) -> str:
    """Return the command that writes a plan file, and the one that takes it; with blanks, at which it folds."""
    document = json.dumps(plan_document(replicas), ensure_ascii=False)
    return f"echo '{document}' > {MOVING_FILE}; {command_text(words, cluster.target)}"


def sum_of(running: Iterable[PartitionSnapshot]) -> str:
    """Return what cancelling all of them does: which brokers give up how many new replicas."""
    given_up = Counter(broker for move in running for broker in move.assignment.adding_replicas)
    tally = ", ".join(f"{number} on broker {broker}" for broker, number in sorted(given_up.items()))
    return f"{counted(given_up.total(), 'new replica')} given up: {tally}" if tally else "no new replica is given up"


async def _cancelled(cluster: Cluster, prepared: PreparedCancellation, title: str) -> Outcome:
    done = await cancel_reassignments(cluster, prepared, goes_on="it may be cancelled already")
    notes = tuple(done.cleared.left)
    if done.cleared.brokers:
        notes = (f"the throttle is removed from brokers {ids(done.cleared.brokers)}", *notes)
    gone = [partition for partition in done.results if partition.result is CancelResult.CANCELLED]
    names = {TopicPartition(partition.topic, partition.partition) for partition in gone}
    sums = (sum_of(reassignment for name, reassignment in prepared.running.items() if name in names),) if names else ()
    rows = tuple(map(_cancel_row, done.results))
    return Outcome(title, ("partition", "result", "replicas", "why"), rows, (), notes, sums=sums)


def _cancel_row(cancelled: CancelledPartition) -> tuple[Cell, ...]:
    is_good, is_pending = cancelled.result is not CancelResult.FAILED, cancelled.result is CancelResult.UNDER_WAY
    result = result_cell(cancelled.result, is_good=is_good, is_pending=is_pending)
    name = TopicPartition(cancelled.topic, cancelled.partition)
    return Cell(str(name)), result, Cell(ids(cancelled.replicas)), Cell(cancelled.error or "")


def typed_rate(rate: int | None) -> str:
    """Return a rate as a form takes it; empty without one."""
    if not rate:
        return ""
    units = ((1_000_000, "M"), (1_000, "k"), (1, ""))
    return next(f"{rate // size}{unit}" for size, unit in units if rate % size == 0)


@dataclass(frozen=True, slots=True)
class ChangeThrottle(Operation):
    """Changes the limit for what brokers copy, for all reassignments under way."""

    bytes_per_s: int
    title: str = "Change the throttle"

    @staticmethod
    def of(text: str) -> ChangeThrottle:
        """Return the operation that a form asks for; raises BadRequest if it is no rate, or lets nothing through."""
        rate = quantity(parse_rate, "the throttle", text)
        if rate is None:
            raise BadRequest("give a throttle, such as 50M")
        Throttle(rate).check()
        return ChangeThrottle(rate)

    async def prepare(self, cluster: Cluster) -> Prepared:
        running = await list_running(cluster)
        if not running:
            return Prepared("nothing is under way, so there is nothing to throttle")
        targets = {
            TopicPartition(move.topic, move.partition): tuple(
                replica for replica in move.replicas if replica not in move.removing
            )
            for move in running
        }
        moves = tuple(PartitionMove(name, replicas) for name, replicas in targets.items())
        execution = await prepare_reassignment(cluster, moves, Throttle(self.bytes_per_s), is_additional=True)
        settings = execution.throttle
        if settings is None:
            return Prepared("no live broker copies anything, so there is nothing to throttle")
        rate, brokers = byte_rate(self.bytes_per_s), settings.brokers

        async def run(cluster: Cluster) -> Outcome:
            cluster.accepted("some brokers may be throttled already")
            await set_throttle(cluster, settings)
            rows = [
                (Cell(f"broker {broker}"), Cell(rate), result_cell("throttled", is_good=True)) for broker in brokers
            ]
            # verify knows a rate by klamm's mark, and there is none where somebody throttles all replicas.
            also = ", or klamm reassign verify --all" if settings.topics else ""
            note = f"once the moves have ended it has to go: X on Reassignments removes it{also}"
            return Outcome(self.title, ("broker", "limit", "result"), tuple(rows), notes=(note,))

        words = ["reassign", "execute", "--reassignment-json-file", MOVING_FILE, "--additional"]
        words += ["--throttle", str(self.bytes_per_s)]
        lines = [f"broker {broker}  {rate}" for broker in brokers]
        return Prepared(
            f"Let brokers copy {rate} each in {cluster.target.name}?",
            shortened(lines + [f"topic {topic}  throttled replicas" for topic in settings.topics]),
            execution.warnings,
            _with_file(targets, words, cluster),
            run=run,
            touches=None,
        )


@dataclass(frozen=True, slots=True)
class RemoveThrottles(Operation):
    """Removes throttles that no move needs from topics and brokers: klamm's; if it has left none, those of others.

    ``needed`` are sentences about the throttles that moves go through now.
    """

    needed: tuple[str, ...] = ()
    title: str = "Remove throttles"

    async def prepare(self, cluster: Cluster) -> Prepared:
        cluster.check_may_change()
        unneeded = await preview_unneeded_throttles(cluster)
        whose = [(len(unneeded.brokers), "broker"), (len(unneeded.topics), "topic")]
        parts = " and ".join(counted(number, noun) for number, noun in whose if number)
        if not parts and unneeded.foreign:
            return self._of_others(cluster, unneeded)
        if not parts:
            if self.needed:
                why = "the moves under way need the throttles that there are: H changes them, X removes them afterwards"
                return Prepared(why, (*self.needed, *unneeded.left))
            # What is left may be klamm's, if a broker does not say.
            none = (
                "there is no throttle that can be removed now" if unneeded.left else "klamm has left no throttle behind"
            )
            return Prepared(none, unneeded.left)
        lines = [f"{name}  {rates or 'throttled replicas'} → none" for name, rates in _throttles_of(unneeded)]
        return Prepared(
            f"Remove throttles from {parts} in {cluster.target.name}?",
            shortened(lines),
            unneeded.left,
            command_text(["reassign", "verify", "--all"], cluster.target),
            run=self._run,
        )

    def _of_others(self, cluster: Cluster, unneeded: ClearedThrottles) -> Prepared:
        async def run(cluster: Cluster) -> Outcome:
            cluster.accepted("some throttles may be removed already")
            # Only what was shown: somebody may have set others meanwhile.
            now = (await preview_unneeded_throttles(cluster)).foreign
            same = {
                entity: kept
                for entity, shown in unneeded.foreign.items()
                if (kept := {key: value for key, value in shown.items() if now.get(entity, {}).get(key) == value})
            }
            failed = await delete_throttles(cluster, same)
            gone = ((entity, setting) for entity, kept in same.items() if entity not in failed for setting in kept)
            is_gone = result_cell("removed", is_good=True)
            rows = tuple((Cell(str(entity)), Cell(setting), is_gone) for entity, setting in gone)
            verdict = "some throttles stay" if failed else ""
            return Outcome(self.title, ("of", "setting", "result"), rows, (), tuple(failed.values()), verdict)

        lines, commands = [], []
        for entity, settings in unneeded.foreign.items():
            words = ["configs", "alter", *_option_of(entity), "--delete-config", ",".join(settings)]
            commands.append(command_text(words, cluster.target))
            lines += [f"{entity}  {key}={value} → none" for key, value in settings.items()]
        return Prepared(
            f"Remove throttles that klamm has not set from {cluster.target.name}?",
            shortened(lines),
            ("nothing moves now; whoever set them may still want them",),
            "; ".join(commands),
            run=run,
            touches=None,
        )

    async def _run(self, cluster: Cluster) -> Outcome:
        cluster.accepted("some throttles may be removed already")
        done = (await verify_reassignment(cluster, None)).cleared
        rows = tuple(
            (Cell(name), Cell(rates), result_cell("removed", is_good=True)) for name, rates in _throttles_of(done)
        )
        verdict = "some throttles stay" if done.left else ""
        return Outcome(self.title, ("of", "rate", "result"), rows, (), done.left, verdict)


def _option_of(entity: Entity) -> list[str]:
    if entity.type is EntityType.TOPIC:
        return ["--topic", str(entity.name)]
    return ["--broker-defaults"] if entity.name is None else ["--broker", entity.name]


def _throttles_of(cleared: ClearedThrottles) -> list[tuple[str, str]]:
    """Return each rate that a broker loses, and each topic: health counts settings too."""
    brokers = [
        (f"broker {broker} {key}", byte_rate(int(rate)))
        for broker, rates in sorted(cleared.rates.items())
        for key, rate in rates.items()
    ]
    return brokers + [(f"topic {topic}", "") for topic in cleared.topics]
