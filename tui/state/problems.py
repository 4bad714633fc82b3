"""What is wrong now: the rows of the overview, each with its effects, its beginning, and the place of its rows.
Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.admin.analysis.causes import missing_brokers
from engine.admin.analysis.disks import NO_ROOM_SOON_S, DirTrend, room_advice
from engine.admin.analysis.moves import CopyProgress, CopyState
from engine.admin.analysis.rebalances import changes_of_members
from engine.admin.analysis.throttles import ThrottleVerdict, throttle_texts, what_is_held
from engine.admin.health.report import Check, HealthReason, Severity
from engine.admin.lag.group_lag import PartitionLag
from engine.admin.lag.verdicts import Reason
from engine.admin.watch.events import EventKind
from engine.admin.watch.frame import WatchedGroup
from engine.common.model import TopicPartition
from tui.drawing.cells import Tone
from tui.drawing.units import NOTHING, at_least, byte_rate, count, counted, ids, percent, plain, short_count, span
from tui.pages.brokers import MAY_BE_FROZEN, UNANSWERED
from tui.pages.groups import LOOK_AT_MEMBERS, growth_of, reader_of, readers_of, status_cell, time_lag_cell, why_of
from tui.pages.reassignments import why_of as why_of_copy
from tui.remedies import spelled
from tui.state.board import AWAITS_LEADERS, Board, Since
from tui.state.kinds import KINDS
from tui.state.location import Location, Only

_NAMED_MAX = 3
_OF_MOVES = (Check.RUNNING_REASSIGNMENTS, Check.UNDER_REPLICATED_MOVING)
_BROKERS = (Check.MISSING_BROKERS, Check.SILENT_BROKERS)
_OF_READERS: Mapping[Reason | None, str] = {
    Reason.NOBODY_READS: "start its consumers; see where each partition waits (enter)",
    Reason.STANDS_STILL: f"{LOOK_AT_MEMBERS}; see the record at which each partition stands (enter)",
    Reason.WENT_BACK: "its offsets were reset, or its topic was made anew; its consumers go on from there",
    Reason.LAG_NEVER_FELL: "it reads less than comes in: give it more consumers; see who reads what (enter)",
}
_REBALANCES = (
    "a member that does not join again keeps the others waiting: look at what its members log, or restart them"
)
_OFTEN = 3
_OVER_A_RECORD = (
    "look at what its members log, and at the record before which they stand (enter, enter); "
    "once they are stopped, step over it (O)"
)
_STEP_OVER = "look at the record before which its members stood (enter, enter); step over it (O), then start them again"
_BY_HAND = (
    "by hand, while it is down: remove files that end in .deleted and folders that end in -delete, and no part of any "
    "other; a partition that others have in sync may go as a whole folder, and is copied again"
)
_STUCK = {
    CopyState.STALLED: ("{} copy stands still", "{} copies stand still"),
    CopyState.FALLING_BEHIND: ("{} copy falls behind", "{} copies fall behind"),
}


@dataclass(frozen=True, slots=True)
class Problem:
    """One row.

    Attributes:
        key: the same from frame to frame.
        subject: what is wrong, in two or three words.
        effect: whom it affects, or why it is so.
        since: None: not known.
        opens: where the rows concerned are.
        is_of_cluster: else it is of a client, and the cluster is well.
        examples: whole sentences about cases.
        advice: what to do next.
        incident: the number of the incident that it began or began in, if anybody saw that.
        mends: the actions that may mend it; they act on the rows concerned.
        plan: the file of the plan that it is about; ``enter`` opens it.
        means: what it means, where its subject is a word of Kafka's.
    """

    key: str
    tone: Tone
    subject: str
    effect: str
    since: Since | None
    opens: Location
    is_of_cluster: bool = True
    examples: tuple[str, ...] = ()
    advice: str = ""
    incident: int | None = None
    mends: tuple[str, ...] = ()
    plan: Path | None = None
    means: str = ""

    @property
    def sign(self) -> str:
        return "✖" if self.tone is Tone.BAD else "▲"


def problems_of(board: Board) -> Sequence[Problem]:
    """Return what is wrong, the gravest first: what offline partitions wait for, these, what follows, late readers.

    It is worked out once for each frame: every drawing and every key ask.
    """
    return board.once(_problems_of)


def _problems_of(board: Board) -> Sequence[Problem]:
    parts = (_of_cluster, _of_moves, _of_plans, _of_quota, _doubts, _of_groups, _of_queries)
    causes = {f"broker {broker}" for broker in board.total.last_in_sync}
    return sorted(
        (problem for part in parts for problem in part(board)),
        key=lambda problem: (
            problem.key not in causes,
            problem.key != Check.OFFLINE_PARTITIONS.value,
            problem.tone is not Tone.BAD,
            not problem.is_of_cluster,
        ),
    )


def problem_of(board: Board, page: str, row: Any) -> Problem | None:
    """Return what is wrong with a row of a screen, the gravest first; None if nothing is, or the screen has no such."""
    match page:
        case "brokers":
            keys = {f"broker {row.id}", f"disks of broker {row.id}"}
        case "groups":
            keys = {f"group {row.name}"}
        case "spark":
            keys = {f"query {row.job.path}"}
        case "reassignments":
            keys = {row.state}
        case _:
            return None
    return next((problem for problem in problems_of(board) if problem.key in keys), None)


def problem_of_moves(board: Board) -> Problem | None:
    """Return the gravest problem that the screen of moves shows."""
    return next((problem for problem in problems_of(board) if problem.opens.page == "reassignments"), None)


def _of_cluster(board: Board) -> Iterator[Problem]:
    health = board.frame.health
    for reason in health.reasons if health is not None else ():
        if reason.check in _BROKERS:
            yield from _brokers(board, reason)
        elif reason.check is Check.FULL_LOG_DIRS and board.filling:
            # Those of disks follow, with how fast they fill.
            continue
        elif reason.check is not Check.RUNNING_REASSIGNMENTS or len(_stuck_moves(board)) < reason.count:
            # Else the copies that are stuck say it all.
            yield _problem(board, reason)
    if awaited := board.awaits_leaders:
        yield Problem(
            AWAITS_LEADERS, Tone.WARN, f"{counted(awaited, 'leader')} being chosen",
            "a replica in sync is alive: the controller elects it", board.since.get(AWAITS_LEADERS),
            Location("partitions", only=Only.OFFLINE),
            advice="wait: if it takes longer than a few seconds, the controller does not elect",
        )  # fmt: skip
    filling: dict[int, list[DirTrend]] = {}
    for trend in board.filling:
        filling.setdefault(trend.broker, []).append(trend)
    for trends in filling.values():
        yield _filling(board, trends)


def _brokers(board: Board, reason: HealthReason) -> Iterator[Problem]:
    frame, total = board.frame, board.total
    is_down = reason.check is Check.MISSING_BROKERS
    ids = sorted(set(board.broker_ids) - board.live) if is_down else sorted(board.silent)
    for broker in ids:
        has_hung = broker in board.hung
        trouble = "perhaps frozen" * has_hung if is_down else plain(frame.words[broker].trouble)
        awaited = total.last_in_sync[broker]
        filled = board.filled.get(broker)
        disk = "" if filled is None else "its disk filled up"
        held = f"{counted(board.replicas[broker], 'replica')}, should lead {count(total.preferred[broker])}"
        yield Problem(
            f"broker {broker}", Tone.BAD, f"broker {broker} {'down' if is_down else 'silent'}",
            ": ".join(part for part in (trouble, disk, held) if part), board.since.get(("broker", broker)),
            Location("brokers", row=str(broker), only=Only.DOWN if is_down else Only.SILENT),
            # Nobody can move away what only this broker has.
            examples=tuple(_known_of(board, broker, filled, is_down=is_down)),
            advice=_advice_on(awaited, reason, filled, has_hung=has_hung),
            mends=(*["settings.alter"] * (is_down and _may_shrink(filled)), *["plan.retire"] * (not awaited)),
            incident=incident.number if (incident := board.history.incidents.around(broker)) is not None else None,
        )  # fmt: skip


def _known_of(board: Board, broker: int, filled: DirTrend | None, *, is_down: bool) -> Iterator[str]:
    """Say where a broker was, how it went, and what its disk was like."""
    if broker in board.seen_at:
        yield f"it {'was' if is_down else 'is'} at {plain(board.seen_at[broker])}"
    if broker in board.hung:
        yield UNANSWERED
    if filled is not None:
        yield f"when its disks were last read: {_room_left(filled)}"
        if is_down:
            yield _BY_HAND


def _advice_on(awaited: int, reason: HealthReason, filled: DirTrend | None, *, has_hung: bool) -> str:
    """Say what to do about a broker for which so many offline partitions wait; ``filled``: its log dir without room."""
    start = "start it"
    if filled is not None:
        # What is copied again would fill it again.
        grower = filled.grower
        lower = "" if grower is None or not grower.is_deleted else f"lower the retention of {plain(grower.topic)} (A), "
        start = f"{lower}make room in {plain(filled.log_dir or NOTHING)}, then start it"
    if awaited:
        wait = f"{count(awaited)} offline {'partition waits' if awaited == 1 else 'partitions wait'}"
        return f"{f'{MAY_BE_FROZEN};' if has_hung else f'{start}:'} {wait} for it, because it was last in sync"
    if has_hung:
        return f"{MAY_BE_FROZEN}; or move its replicas away"
    is_down = reason.check is Check.MISSING_BROKERS
    return f"{start}, or move its replicas away" if is_down else spelled(reason.check.advice)


def _may_shrink(trend: DirTrend | None) -> bool:
    """Whether a lower retention of the topic that grows most makes room."""
    return trend is not None and trend.grower is not None and trend.grower.is_deleted


def _filling(board: Board, dirs: Sequence[DirTrend]) -> Problem:
    """Return the log dirs of one broker that need room, the most urgent first: often they share a volume."""
    first = dirs[0]
    broker = first.broker
    is_soon = any(trend.full_in_s is not None and trend.full_in_s < NO_ROOM_SOON_S for trend in dirs)
    seen = [since for trend in dirs if (since := board.since.get(("log dir", broker, trend.log_dir))) is not None]
    more = f", and {counted(len(dirs) - 1, 'more log dir')}" if len(dirs) > 1 else ""
    return Problem(
        f"disks of broker {broker}", Tone.BAD if is_soon else Tone.WARN,
        f"broker {broker} disk fills up", f"{_room_left(first)}{more}",
        min(seen, key=lambda since: since.at_ms, default=None),
        Location("brokers", row=str(broker), only=Only.FILLING),
        examples=tuple(map(_room_left, dirs)),
        advice=spelled(
            room_advice(first, board.dir_trends, board.frame, board.history, is_held=_is_held(board, first))
        ),
        mends=(*["producers.quota"] * (first.is_urgent and first.is_produced),
               *["settings.alter"] * _may_shrink(first), "plan.rebalance"),
    )  # fmt: skip


def _is_held(board: Board, trend: DirTrend) -> bool:
    """Whether a quota was set that is about to slow the topic down that fills a log dir."""
    quota, grower = board.producer_quota, trend.grower
    return quota is not None and grower is not None and 2 * quota < grower.bytes_per_s


def _of_quota(board: Board) -> Iterator[Problem]:
    """Yield a reminder of the quota that was set while a disk filled up, until it is removed."""
    if (quota := board.producer_quota) is not None:
        yield Problem(
            "producers", Tone.WARN, "producers have a quota", f"each client id may send {byte_rate(quota)} to a broker",
            None, Location("brokers"), advice="remove it once the disks have room (Q)", mends=("producers.quota",),
        )  # fmt: skip


def _room_left(trend: DirTrend) -> str:
    used = "" if trend.used_percent is None else f"{percent(trend.used_percent / 100)} full"
    left = "" if trend.full_in_s is None else f"no room in {span(trend.full_in_s)}"
    left = "measuring since the quota changed" if trend.is_overtaken else left
    of = "" if trend.recent_per_s is None or trend.recent_per_s <= 0 else f" of {byte_rate(trend.recent_per_s)}"
    grows = "" if trend.grower is None else f"{plain(trend.grower.topic)} +{byte_rate(trend.grower.bytes_per_s)}{of}"
    return ", ".join(part for part in (left, used, grows, plain(trend.log_dir or "")) if part)


def _problem(board: Board, reason: HealthReason) -> Problem:
    kind = KINDS[reason.check]
    single, many = kind.single, kind.many or kind.single
    if reason.check is Check.RUNNING_REASSIGNMENTS and _is_held_up(board):
        single, many = "{} reassignment held up", "{} reassignments held up"
    rest = reason.count - len(reason.examples)
    more = (f"and {counted(rest, 'other')}",) if reason.examples and rest > 0 else ()
    cases = reason.examples
    if reason.check is Check.OFFLINE_PARTITIONS:
        # The engine does not know which brokers were frozen.
        start = _start(board, board.total.last_in_sync.keys())
        cases = tuple(case.replace("; start broker ", f"; {start} broker ") for case in cases)
    return Problem(
        reason.check.value,
        Tone.BAD if reason.severity is Severity.CRITICAL else Tone.WARN,
        (single if reason.count == 1 else many).format(count(reason.count)),
        _effect(board, reason),
        board.since.get(reason.check),
        kind.opens,
        examples=(*cases, *more),
        advice=_advice_of(board, reason),
        incident=_incident_of(board, reason.check, kind.begins_with),
        # If no replica is alive that an election could choose, it mends nothing.
        mends=kind.mends if reason.check is not Check.OFFLINE_PARTITIONS or "(U)" in spelled(reason.advice) else (),
        means=reason.check.meaning,
    )


def _advice_of(board: Board, reason: HealthReason) -> str:
    """Return the check's advice; where only certain brokers help, these are named instead of any replica."""
    if reason.check is Check.LEAKED_THROTTLES:
        # The dashboard does with one key what the engine advises step by step.
        return "remove them (X)"
    advice = spelled(reason.advice)
    if reason.check in _OF_MOVES and _throttles(board):
        return f"{'' if _is_held_up(board) else 'if that is too slow, '}raise the throttle (H); {advice}"
    if reason.check is Check.OFFLINE_PARTITIONS and board.total.last_in_sync:
        return "; ".join(part for part in (_who_helps(board), advice.partition("; ")[2]) if part)
    return advice


def _is_held_up(board: Board) -> bool:
    return board.total.moving > 0 and any(throttle.holds_up for throttle in board.throttles)


def _throttles(board: Board) -> list[str]:
    """Say which throttles hold moves up, or may."""
    texts = throttle_texts(board.throttles) if board.total.moving else []
    return [text for text, verdict in texts if verdict is not ThrottleVerdict.NOT_THE_LIMIT]


def _who_helps(board: Board) -> str:
    """Return which dead brokers would bring offline partitions back, those with most partitions first."""
    awaited = board.total.last_in_sync
    who = ", ".join(str(broker) for broker, _ in awaited.most_common(_NAMED_MAX))
    full = tuple(sorted(awaited.keys() & board.filled.keys()))
    room = f"make room on the disk of broker {ids(full)}, then " if full else ""
    return f"{room}{_start(board, awaited.keys())} broker {who}{', …' * (len(awaited) > _NAMED_MAX)}, last in sync"


def _start(board: Board, brokers: Set[int]) -> str:
    """Return what is to be done with brokers that are down: a frozen one need not have ended."""
    return "continue or restart" if brokers <= board.hung else "start"


def _incident_of(board: Board, check: Check, begins_with: EventKind | None) -> int | None:
    """Return the number of the incident in which a finding began, if that was seen."""
    since = board.since.get(check)
    if since is None or since.is_least or begins_with is None:
        return None
    incident = board.history.incidents.behind(begins_with, since.at_ms)
    return None if incident is None else incident.number


def _stuck_moves(board: Board) -> Set[TopicPartition]:
    return {copy.name for copy in board.moves.copies if copy.state in _STUCK} if board.total.moving else set()


def _of_moves(board: Board) -> Iterator[Problem]:
    """Yield a problem for copies that will not end by themselves."""
    if not board.total.moving:
        return
    moves = board.moves
    for state, (singular, plural) in _STUCK.items():
        stuck = [copy for copy in moves.copies if copy.state is state]
        if not stuck:
            continue
        cases = [f"{plain(str(copy.name))} to broker {copy.broker}" for copy in stuck[:_NAMED_MAX]]
        longest = max(stuck, key=lambda copy: copy.stalled_s or 0)
        may_go = [copy for copy in stuck if not copy.is_blocked]
        through = {(copy.source, True) for copy in may_go} | {(copy.broker, False) for copy in may_go}
        limits = [one for one in board.throttles if (one.broker, one.is_leader) in through]
        throttles = throttle_texts([one for one in limits if one.verdict is not ThrottleVerdict.NOT_THE_LIMIT])
        yield Problem(
            state.value, Tone.BAD, (singular if len(stuck) == 1 else plural).format(count(len(stuck))),
            ", ".join(cases) + ", …" * (len(stuck) > _NAMED_MAX),
            None if not longest.stalled_s
            else Since(board.frame.at_ms - round(longest.stalled_s * 1000), longest.is_at_least),
            Location("reassignments", only=Only.STUCK),
            examples=(
                *(f"{case}: {why_of_copy(copy)}" for case, copy in zip(cases, stuck, strict=False)),
                *(text for text, _ in throttles[:_NAMED_MAX]),
            ),
            advice=f"{_lets_go_on(board, stuck, has_throttle=bool(throttles))}; or cancel it (C)",
            mends=("reassignment.cancel", *["reassignment.throttle"] * bool(may_go)),
        )  # fmt: skip


def _lets_go_on(board: Board, stuck: Sequence[CopyProgress], *, has_throttle: bool) -> str:
    """Return what lets copies go on: no throttle helps those that are blocked."""
    dead = {copy.broker for copy in stuck} - board.live
    ways = [f"{_start(board, dead)} broker {ids(tuple(sorted(dead)))}"] if dead else []
    if not all(copy.is_blocked for copy in stuck):
        ways.append("raise the throttle (H)" if has_throttle else "see what both brokers log")
    return "; ".join(ways) or "see why (w)"


def _of_plans(board: Board) -> Iterator[Problem]:
    """Yield a problem for a plan that was stopped or killed: its moves under way continue, the rest does not."""
    plan = board.stopped_plan
    if plan is None:
        return
    where = "" if None in (plan.wave, plan.waves) else f" in wave {plan.wave} of {plan.waves}"
    yield Problem(
        f"plan {plan.path}", Tone.WARN, f"plan {plain(plan.path.name)} not finished",
        f"stopped{where}: {plain(plan.reason)}" if plan.reason else f"it was killed{where}",
        Since(plan.written_ms, False), Location("plans"),
        examples=("no process carries it out now; what moves goes on, its further waves do not begin",),
        advice="resume it (R); or open it (enter), and roll it back there (B)", mends=("plan.resume",), plan=plan.path,
    )  # fmt: skip


def _effect(board: Board, reason: HealthReason) -> str:
    """Return what the cases have in common, else the first cases."""
    if reason.check is Check.UNDER_REPLICATED_DEAD_BROKER and reason.count > 1:
        missed = [missing for missing in missing_brokers(board.frame, board.total) if missing.broker not in board.live]
        if missed and missed[0].missed_by == board.total.under_replicated:
            return f"all missing broker {missed[0].broker}"
        return ", ".join(f"{count(cause.missed_by)} missing broker {cause.broker}" for cause in missed[:_NAMED_MAX])
    if reason.check is Check.OFFLINE_PARTITIONS and board.total.last_in_sync:
        # What mends it comes first: names are cut where there is no room for them.
        names = ", ".join(plain(example).partition(" (")[0] for example in reason.examples[:_NAMED_MAX])
        return f"{_who_helps(board)}: {names}{', …' * (reason.count > _NAMED_MAX)}"
    causes = _throttles(board)[:1] if reason.check in _OF_MOVES else []
    if reason.check is Check.LEAKED_THROTTLES and (held := what_is_held(board.frame)):
        causes = [plain(held)]
    named = ", ".join([*causes, *(plain(example) for example in reason.examples[:_NAMED_MAX])])
    return named + (", …" if reason.count > min(_NAMED_MAX, len(reason.examples)) else "")


def _doubts(board: Board) -> Iterator[Problem]:
    """Yield a problem for each contradiction in the data."""
    for finding in board.findings[:_NAMED_MAX]:
        words = finding.doubt.value.replace("_", " ")
        subject = f"{plain(finding.subject)}: {words}"
        topic, dash, number = finding.subject.rpartition("-")
        is_of_partition = bool(dash) and number.isdecimal()
        opens = Location("partitions", topic=topic, row=finding.subject) if is_of_partition else Location("brokers")
        yield Problem(subject, Tone.BAD, subject, plain(finding.evidence), None, opens)


def _of_groups(board: Board) -> Iterator[Problem]:
    changes = changes_of_members(board.events, board.frame.at_ms)
    for group in (group for group in board.frame.groups if group.lag.status.is_trouble):
        status = status_cell(group.lag.status)
        lag = at_least(short_count(group.lag.lag), is_least=group.lag.has_unknown_lag)
        still_s = board.standstills.still_s(group)
        long = "" if group.lag.time_lag_ms is None else f" for {time_lag_cell(group.lag).text}"
        why = why_of(group.lag) if still_s is None else f"no commit for {span(still_s)}"
        parts = [*([why] if why else []), f"{lag} behind{long}"]
        is_stopped = group.lag.reason is Reason.STANDS_STILL and group.lag.is_rebalancing
        held = [partition for partition in group.lag.partitions if board.standstills.holds_up(group.name, partition)]
        growth = growth_of(group.lag)
        if growth is not None and abs(growth) >= 1:
            parts.append(f"{'↑' if growth > 0 else '↓'} {short_count(abs(growth))}/s")
        yield Problem(
            f"group {group.name}", status.tone, f"group {plain(group.name)} {status.text}", ", ".join(parts),
            board.since.get(("group", group.name)), Location("group", group=group.name, only=Only.UNHEALTHY),
            is_of_cluster=False,
            examples=tuple(_cases_of(group, changes[f"group {group.name}"])),
            advice=(_OVER_A_RECORD if any(partition.consumer_id for partition in held) else _STEP_OVER) if held
            else _REBALANCES if is_stopped
            else _OF_READERS.get(group.lag.reason, "see which partitions are behind, and who owns them (enter)"),
            mends=("group.reset",) if held else (),
        )  # fmt: skip


def _cases_of(group: WatchedGroup, changes: int) -> Iterator[str]:
    """Say whose partitions are the reason why a group is unhealthy, the reader furthest behind first.

    ``changes``: how often its members came or went in the last minute.
    """
    lag, readers = group.lag, readers_of(group)
    if changes >= _OFTEN:
        yield f"its members left or joined {count(changes)} times in the last minute: see whether they crash"
    by_reader: dict[str, list[PartitionLag]] = {}
    for partition in sorted(lag.partitions, key=lambda partition: -(partition.lag or 0)):
        is_unread = lag.reason is Reason.NOBODY_READS and partition.is_behind and not partition.consumer_id
        if partition.status is lag.status or is_unread:
            by_reader.setdefault(reader_of(readers, partition), []).append(partition)
    for reader, partitions in list(by_reader.items())[:_NAMED_MAX]:
        rest = len(partitions) - _NAMED_MAX
        names = ", ".join(partition.name for partition in partitions[:_NAMED_MAX]) + (
            f" and {count(rest)} more" if rest > 0 else ""
        )
        known = [partition.lag for partition in partitions if partition.lag is not None]
        behind = at_least(short_count(sum(known)), is_least=len(known) < len(partitions)) if known else NOTHING
        yield f"{names}: {behind} behind, read by {reader or 'nobody'}"
    if len(by_reader) > _NAMED_MAX:
        yield f"and {counted(len(by_reader) - _NAMED_MAX, 'other reader')}"


def _of_queries(board: Board) -> Iterator[Problem]:
    """Yield a problem for each unhealthy query of Spark."""
    for query in board.frame.queries:
        job = query.job
        if not job.status.is_trouble:
            continue
        status = status_cell(job.status)
        name = plain(job.name or job.path)
        why = next((why_of(lag) for lag in query.lags if lag.status is job.status), "")
        behind = "" if job.lag is None else f"{short_count(job.lag)} behind"
        yield Problem(
            f"query {job.path}", status.tone, f"query {name} {status.text}",
            ", ".join(part for part in (why, behind) if part), board.since.get(("query", job.path)),
            Location("spark", row=name), is_of_cluster=False, advice="see its batches and its sources (enter)",
        )  # fmt: skip
