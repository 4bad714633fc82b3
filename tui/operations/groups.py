"""Consumer groups: resets or deletes offsets, deletes groups."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import BadRequest
from engine.admin.cluster.rollback_file import new_rollback_path
from engine.admin.groups.committing import execute_reset
from engine.admin.groups.deleting import (
    DeletionResult,
    delete_groups,
    delete_offsets,
    doubts_of,
    find_groups_to_delete,
    find_offsets_to_delete,
    refusals_of,
)
from engine.admin.groups.reset_plan import (
    ResetResult,
    ResetSpec,
    ResetTo,
    TopicScope,
    before_now,
    parse_datetime,
    parse_iso_duration,
    parse_topic_scope,
)
from engine.admin.groups.resetting import PlannedReset, plan_reset
from engine.admin.groups.scope import GroupScope
from engine.common.quantities import counted
from tui.drawing.cells import Cell
from tui.drawing.units import NOTHING, count
from tui.operations.operation import (
    Operation,
    Outcome,
    Prepared,
    command_text,
    failure_texts,
    repeated,
    result_cell,
    shortened,
)

ALL = "*"
"""Stands for all topics that a group has committed: no topic has this name."""
RESET_HINT = "earliest, latest, current, an offset, +10 or -10, 2026-11-21T12:00:00, 02:00 or PT30M"


@dataclass(frozen=True, slots=True)
class ResetOffsets(Operation):
    """Sets a group's committed offsets to where a person says; ``topics`` None: all that it has committed."""

    group: str
    topics: TopicScope | None
    spec: ResetSpec
    words: tuple[str, ...]
    title: str = "Reset offsets"

    @staticmethod
    def of(group: str, topics: str, to: str) -> ResetOffsets:
        """Return the operation that a form asks for; raises BadRequest if it names no topics, or no place."""
        named = topics.split()
        if not named:
            raise BadRequest("name topics", hint=f"write orders or orders:0,1, or {ALL} for all that it has committed")
        spec, option = parse_reset(to)
        if named == [ALL]:
            return ResetOffsets(group, None, spec, ("--all-topics", *option))
        return ResetOffsets(group, parse_topic_scope(named), spec, (*repeated("--topic", named), *option))

    async def prepare(self, cluster: Cluster) -> Prepared:
        plan = await plan_reset(cluster, GroupScope((self.group,)), self.topics, self.spec)
        for refusal in plan.refusals:
            raise refusal
        rows = [reset for group in plan.able for reset in group.resets]
        if not rows:
            return Prepared(f"group {self.group} has no offset to reset there")
        moved = [row for row in rows if row.current_offset != row.new_offset]
        stay = (f"{counted(len(rows) - len(moved), 'other')} already there",) if len(moved) < len(rows) else ()
        words = ["groups", "reset-offsets", self.group, *self.words, "--execute"]
        warnings = [str(warning) for group in plan.groups for warning in group.warnings]
        warnings += [
            f"group {group.group} does not exist yet: this creates it" for group in plan.groups if group.is_new
        ]
        return Prepared(
            f"Reset {counted(len(moved), 'offset')} of group {self.group} in {cluster.target.name}?",
            (
                *shortened([f"{row.name}  {_offset(row.current_offset)} → {count(row.new_offset)}" for row in moved]),
                *stay,
            ),
            (*warnings, "records may be read again, or never"),
            command_text(words, cluster.target),
            typed=self.group,
            run=lambda cluster: self._run(cluster, plan),
        )

    async def _run(self, cluster: Cluster, plan: PlannedReset) -> Outcome:
        path = new_rollback_path("offsets", ".csv")
        saved: list[str] = []
        rows, failures = await execute_reset(
            cluster,
            plan,
            rollback_file=path,
            with_group=False,
            goes_on="some offsets may be set already",
            on_saved=lambda: saved.append(f"the old offsets are in {path}"),
            on_dropped=saved.clear,
        )
        table = tuple(
            (
                Cell(str(row.name)),
                Cell(_offset(row.current_offset)),
                Cell(count(row.new_offset)),
                result_cell(row.result, is_good=row.result is ResetResult.RESET),
                Cell(row.error or ""),
            )
            for row in rows
        )
        columns = ("partition", "before", "after", "result", "why")
        return Outcome(self.title, columns, table, failure_texts(failures), tuple(saved))


def parse_reset(text: str) -> tuple[ResetSpec, tuple[str, ...]]:
    """Return where to, and the option that says the same; raises BadRequest if ``RESET_HINT`` does not name it."""
    word = text.strip()
    if not word:
        raise BadRequest("say where to", hint=RESET_HINT)
    simple = {"earliest": ResetTo.EARLIEST, "latest": ResetTo.LATEST, "current": ResetTo.CURRENT}
    if word.lower() in simple:
        return ResetSpec(simple[word.lower()]), (f"--to-{word.lower()}",)
    if word.isdecimal():
        return ResetSpec(ResetTo.OFFSET, int(word)), ("--to-offset", word)
    if word[:1] in "+-" and word[1:].isdecimal():
        return ResetSpec(ResetTo.SHIFT_BY, int(word)), ("--shift-by", str(int(word)))
    if word[:1] in "Pp":
        return ResetSpec(ResetTo.TIME, before_now(parse_iso_duration(word), datetime.now(UTC))), ("--by-duration", word)
    try:
        return ResetSpec(ResetTo.TIME, parse_datetime(word)), ("--to-datetime", word)
    except BadRequest:
        raise BadRequest(f"cannot reset to {word!r}", hint=RESET_HINT) from None


@dataclass(frozen=True, slots=True)
class DeleteGroups(Operation):
    """Groups deleted with all their committed offsets."""

    names: tuple[str, ...]
    title: str = "Delete groups"

    async def prepare(self, cluster: Cluster) -> Prepared:
        wanted = await find_groups_to_delete(cluster, GroupScope(self.names))
        stays = failure_texts(wanted.all_failures)
        command = command_text(["groups", "delete", *self.names], cluster.target)
        if not wanted.names:
            return Prepared("no group can be deleted", shortened(stays), command=command)

        async def run(cluster: Cluster) -> Outcome:
            rows, failures = await delete_groups(cluster, wanted)
            table = [(Cell(row.group), _deleted(row.result), Cell(row.error or "")) for row in rows]
            return Outcome(self.title, ("group", "result", "why"), tuple(table), failure_texts(failures))

        subject = f"group {wanted.names[0]}" if len(wanted.names) == 1 else counted(len(wanted.names), "group")
        return Prepared(
            f"Delete {subject} in {cluster.target.name}, with all committed offsets?",
            shortened(wanted.names),
            (*stays, "a consumer that comes back begins where auto.offset.reset says"),
            command,
            typed=wanted.names[0] if len(wanted.names) == 1 else f"{len(wanted.names)} groups",
            run=run,
        )


@dataclass(frozen=True, slots=True)
class DeleteOffsets(Operation):
    """A group's committed offsets of some topics deleted."""

    group: str
    topics: tuple[str, ...]
    title: str = "Delete offsets"

    async def prepare(self, cluster: Cluster) -> Prepared:
        if not self.topics:
            raise BadRequest("name a topic", hint="write orders or orders:0,1,2")
        groups, rows = found = await find_offsets_to_delete(cluster, self.group, parse_topic_scope(self.topics))
        going = [row for row in rows if row.result is DeletionResult.WOULD_BE_DELETED]
        stays = failure_texts(refusals_of(rows))
        words = ["groups", "delete-offsets", self.group, *repeated("--topic", self.topics)]
        command = command_text(words, cluster.target)
        if not going:
            why = "no offset can be deleted" if stays else f"group {self.group} has committed nothing there"
            return Prepared(why, shortened(stays), command=command)

        async def run(cluster: Cluster) -> Outcome:
            done, failures = await delete_offsets(cluster, groups, rows)
            table = [
                (Cell(str(reset.name)), Cell(_offset(reset.offset)), _deleted(reset.result), Cell(reset.error or ""))
                for reset in done
            ]
            columns = ("partition", "offset", "result", "why")
            return Outcome(self.title, columns, tuple(table), (*stays, *failure_texts(failures)))

        return Prepared(
            f"Delete {counted(len(going), 'offset')} of group {self.group} in {cluster.target.name}?",
            shortened([f"{row.name}  {_offset(row.offset)} → none" for row in going]),
            (*stays, *doubts_of([found]), "a consumer that comes back begins where auto.offset.reset says"),
            command,
            typed=self.group,
            run=run,
        )


def _deleted(result: DeletionResult) -> Cell:
    return result_cell(result, is_good=result in (DeletionResult.DELETED, DeletionResult.NOTHING_COMMITTED))


def _offset(offset: int | None) -> str:
    return NOTHING if offset is None else count(offset)
