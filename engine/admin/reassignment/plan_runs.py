"""How a user wants a plan carried out: which plan, in which direction, within which limits.

An interface reads the plan file and the user's options, makes a ``PlanRun`` of them, asks, and calls ``carry_out``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import AdminError, BadRequest
from engine.admin.cluster.remedies import Do, Operation, Phrase
from engine.admin.reassignment.adaptive_throttle import ThrottleRange
from engine.admin.reassignment.journal import JournalRecord, read_journal
from engine.admin.reassignment.lock import SESSION_TIMEOUT_S, refuse_while_held
from engine.admin.reassignment.lock_holder import Holder
from engine.admin.reassignment.log_dirs import read_log_dirs
from engine.admin.reassignment.reassignment_file import PartitionMove
from engine.admin.reassignment.wave_execution import execute_waves
from engine.admin.reassignment.wave_progress import STALL_S, WaveControl, WaveSettings, WavesResult, WaveWatcher
from engine.admin.reassignment.wave_standings import read_standings
from engine.admin.reassignment.waves import Standing, Wave, WaveCaps, WaveMove, turned_round, waves_of
from engine.common.model import TopicPartition
from engine.common.quantities import counted, rate_text


class Verb(StrEnum):
    """What to do with a plan; the value is the command's name."""

    APPLY = "apply"
    RESUME = "resume"
    ROLLBACK = "rollback"


class Placed(Protocol):
    """An entry of a plan file: one partition with its replicas and their log dirs."""

    @property
    def name(self) -> TopicPartition: ...
    @property
    def replicas(self) -> tuple[int, ...]: ...
    @property
    def log_dirs(self) -> tuple[str, ...]: ...


def moves_between(before: Iterable[Placed], targets: Iterable[Placed]) -> tuple[WaveMove, ...]:
    """Return the moves of a plan from its entries; ``before`` has each partition of ``targets``."""
    origins = {entry.name: entry for entry in before}
    return tuple(
        WaveMove(
            PartitionMove(target.name, target.replicas, target.log_dirs),
            origins[target.name].replicas,
            dirs_before=origins[target.name].log_dirs,
        )
        for target in targets
    )


def is_led_back(
    plan: Path,
    forward: Mapping[TopicPartition, Standing],
    back: Mapping[TopicPartition, Standing],
    holder: Holder | None,
    record: JournalRecord | None,
) -> bool:
    """Whether a plan is being rolled back: the lock holder says so, else what moves, else the journal.

    ``forward`` and ``back`` are its partitions' standings towards the target and towards the rollback.
    """
    if holder is not None and holder.what in {f"{verb} {plan.name}" for verb in Verb}:
        return holder.what.startswith(Verb.ROLLBACK)
    if Standing.MOVING in back.values() or Standing.MOVING in forward.values():
        return Standing.MOVING not in forward.values()
    return record is not None and record.is_under_way and record.is_of_rollback


def what_is_left(waves: Sequence[Wave], standings: Mapping[TopicPartition, Standing] | None) -> tuple[Wave, ...]:
    """Return the waves without the moves that are done, and without those of partitions that no longer exist.

    A wave of which nothing is left stays, as an empty one.
    """
    standing_of, over = standings or {}, (Standing.DONE, Standing.GONE)
    return tuple(tuple(move for move in wave if standing_of.get(move.name) not in over) for wave in waves)


def beside(plan: Path, suffix: str) -> Path:
    """Return the path of a file that belongs to a plan and lies beside it."""
    return plan.with_name(f"{plan.name}{suffix}")


def refuse_overwriting(plan: Path) -> None:
    """Refuse to write another plan to a file whose plan has begun: a journal lies beside it.

    Raises:
        BadRequest: it has begun, whether or not it is done.
    """
    journal = beside(plan, ".journal")
    if not journal.exists() or journal.stat().st_size == 0:
        return
    if read_journal(journal).is_under_way:
        hint = Phrase("go on with it: ", Do(Operation.RESUME_PLAN, str(plan)), "; or name another file")
        raise BadRequest("the plan in this file has begun and is not done", where=str(plan), hint=hint)
    raise BadRequest(
        "the plan in this file was carried out, and has its journal",
        where=str(plan),
        hint=f"name another file, or move this one away together with {journal.name}",
    )


@dataclass(frozen=True, slots=True)
class PlanRun:
    """How a plan is carried out.

    Attributes: digest: identifies the plan in its journal. moves: those of the plan, whatever the direction. journal:
    None is the file beside the plan. rollback_file: where the rollback is written; None is the file beside the plan.
    """

    verb: Verb
    path: Path
    digest: str
    moves: tuple[WaveMove, ...]
    throttle: ThrottleRange | None = None
    caps: WaveCaps = field(default_factory=WaveCaps)
    stall_s: float = STALL_S
    lock_timeout_s: float = SESSION_TIMEOUT_S
    elects: bool = True
    journal: Path | None = None
    rollback_file: Path | None = None

    @property
    def journal_file(self) -> Path:
        return self.journal or beside(self.path, ".journal")

    @property
    def goes_on_with(self) -> Verb:
        """The verb that continues after the run was interrupted."""
        return Verb.ROLLBACK if self.verb is Verb.ROLLBACK else Verb.RESUME

    @property
    def directed_moves(self) -> tuple[WaveMove, ...]:
        return turned_round(self.moves) if self.verb is Verb.ROLLBACK else self.moves

    async def waves(self, cluster: Cluster) -> tuple[Wave, ...]:
        """Spread the moves over waves, with the sizes that brokers report."""
        return await plan_waves(cluster, self.directed_moves, self.caps)

    async def standings(self, cluster: Cluster) -> dict[TopicPartition, Standing]:
        """Return where each partition is, seen in the direction of this run."""
        return await read_standings(cluster, self.directed_moves)

    async def is_carried_out(self, cluster: Cluster) -> bool:
        """Whether every partition is already where this run leads, and none is moving."""
        standings = await self.standings(cluster)
        return bool(standings) and all(standing is Standing.DONE for standing in standings.values())

    def question(
        self, cluster: Cluster, waves: Sequence[Wave], standings: Mapping[TopicPartition, Standing] | None = None
    ) -> str:
        """Return what the run will do: ``apply plan.json in prod: 3 partitions (2 replicas to copy) in 1 wave``.

        With ``standings`` only what is left counts.
        """
        left = [rest for rest in what_is_left(waves, standings) if rest]
        moves = [move for wave in left for move in wave]
        copies = sum(len(move.adding) + len(move.changing_dirs) for move in moves)
        what = f"{counted(len(moves), 'partition')} ({counted(copies, 'replica')} to copy)"
        verb = "roll back" if self.verb is Verb.ROLLBACK else self.verb
        question = f"{verb} {self.path.name} in {cluster.target.title}: {what} in {counted(len(left), 'wave')}"
        if copies:
            question += (
                ", without a throttle" if self.throttle is None else f", at {rate_text(self.throttle.start)} a broker"
            )
        count, gone = sum(map(len, waves)), sum(standing is Standing.GONE for standing in (standings or {}).values())
        if done := count - len(moves) - gone:
            question += f", {done} of {count} done already"
        return f"{question}, {gone} no longer exist{'s' if gone == 1 else ''}" if gone else question

    async def refuse_begun(self, cluster: Cluster) -> None:
        """Refuse to apply a plan that, by its journal, began and did not end well.

        Raises:
            LockHeld: an operator is carrying out this plan or another.
            BadRequest: it must be resumed.
        """
        if self.verb is not Verb.APPLY or not self.journal_file.exists():
            return
        record = read_journal(self.journal_file)
        if record.events and record.events[0]["plan"] == self.digest and record.is_under_way:
            await refuse_while_held(cluster)
            hint = Phrase("go on with: ", Do(Operation.RESUME_PLAN, str(self.path)))
            raise BadRequest("this plan has already begun and is not done", where=str(self.journal_file), hint=hint)

    async def doubt(self, cluster: Cluster, standings: Mapping[TopicPartition, Standing] | None) -> str | None:
        """Return why the user must agree before klamm resumes the plan: it was rolled back, maybe elsewhere.

        None if there is no sign of that. ``standings`` are those in the direction of this run.
        """
        is_left = standings is not None and Standing.WAITING in standings.values()
        if self.verb is not Verb.RESUME or not is_left or not self.journal_file.exists():
            return None
        record = read_journal(self.journal_file)
        if not record.has_moved or record.events[0].get("plan") != self.digest:
            return None
        back = set((await read_standings(cluster, turned_round(self.moves))).values()) - {Standing.GONE}
        if back != {Standing.DONE}:
            return None
        return (
            "the plan seems to have been rolled back: its journal tells of moves, "
            "but every partition is where it was before the plan"
        )

    async def carry_out(
        self,
        cluster: Cluster,
        waves: Sequence[Wave],
        watcher: WaveWatcher,
        *,
        deadline_s: float | None = None,
        control: WaveControl | None = None,
    ) -> WavesResult:
        """Carry out the waves; raises as ``execute_waves`` does."""
        back = None if self.verb is Verb.ROLLBACK else self.rollback_file or beside(self.path, ".rollback.json")
        settings = WaveSettings(
            plan_digest=self.digest,
            what=f"{self.verb} {self.path.name}",
            journal=self.journal_file,
            rollback_file=back,
            throttle=self.throttle,
            deadline_s=deadline_s,
            stall_s=self.stall_s,
            lock_timeout_s=self.lock_timeout_s,
            elects=self.elects,
        )
        return await execute_waves(cluster, waves, settings, watcher, control)


# The moves of a plan with the sizes that brokers report, spread over waves.


async def plan_waves(cluster: Cluster, moves: Sequence[WaveMove], caps: WaveCaps) -> tuple[Wave, ...]:
    """Return the waves that carry out ``moves``."""
    return waves_of(await with_sizes(cluster, moves), caps)


async def with_sizes(cluster: Cluster, moves: Sequence[WaveMove]) -> list[WaveMove]:
    """Return the moves with the sizes of their partitions; None stays if no broker reports it."""
    sizes: dict[TopicPartition, int] = {}
    holders = {broker for move in moves for broker in move.before}
    try:
        live = await (await cluster.wire()).live_brokers()
        log_dirs = await read_log_dirs(cluster, holders & live, [move.name for move in moves])
    except AdminError as error:
        cluster.observe(f"no sizes: {error}")
        return list(moves)
    for (name, _), place in log_dirs.places.items():
        sizes[name] = max(sizes.get(name, 0), place.size_bytes)
    return [replace(move, size_bytes=sizes.get(move.name)) for move in moves]
