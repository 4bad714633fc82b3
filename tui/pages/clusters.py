"""All clusters of the profiles, a row each: its health, and why it is unhealthy or out of sight. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from engine.admin.cluster.profiles import Colour
from engine.admin.cluster.target import Side
from engine.admin.health.report import HealthStatus
from engine.admin.watch.frame import Frame, LinkState
from engine.common.model import NO_CONTROLLER
from tui.drawing.cells import NO_DATA, Cell, Column, Tone, column, figure, tinted
from tui.drawing.lines import Line, cut, folded, line, text_of, wrapped
from tui.drawing.units import NOTHING, at_least, count, counted, plain, short_count
from tui.pages.overview import WORDS, health_word, status_of
from tui.pages.page import Page, View
from tui.state.board import Board
from tui.state.fleet import Fleet, Member
from tui.state.problems import problems_of
from tui.state.status import Standing, cause_of, causes_of
from tui.state.table_model import Rows

_NAMED_MAX = 3
_UNSEEN = {
    Standing.CONNECTING: ("○ connecting", Tone.ACCENT),
    Standing.DISCONNECTED: ("✖ unreachable", Tone.BAD),
    Standing.DENIED: ("⊘ refused", Tone.BAD),
}
_GRAVEST_FIRST = (HealthStatus.CRITICAL, None, HealthStatus.WARNING, HealthStatus.OK)
"""A cluster that cannot be reached may be critical."""


def health_of(member: Member, now_ms: int | None = None) -> tuple[str, Tone]:
    """Return how a cluster is, in the words of its own header, as short as they can be; or why that is not known."""
    standing = member.standing(now_ms)
    if standing is None:
        return "✖ bad profile", Tone.BAD
    if not member.board.has_metadata and standing in _UNSEEN:
        return _UNSEEN[standing]
    word, tone = health_word(member.board, is_seen=standing.is_seen)
    return word.removesuffix(" when last seen"), tone  # it says so in the header; here it would widen the column


def _status_seen(member: Member, now_ms: int | None) -> HealthStatus | None:
    """Return the verdict on a cluster that is in sight."""
    frame, standing = member.board.frame, member.standing(now_ms)
    if frame.health is None or standing is None or not standing.is_seen:
        return None
    return status_of(member.board)


def reasons_of(member: Member, now_ms: int | None = None) -> list[str]:
    """Return why a cluster is not well, or not seen as it should; the gravest first."""
    frame, standing = member.board.frame, member.standing(now_ms)
    if standing is None:
        return [member.error] if member.error else []
    every = problems_of(member.board)
    problems = [problem for problem in every if problem.is_of_cluster] or every
    subjects = [problem.subject for problem in problems[:_NAMED_MAX]]
    if len(problems) > _NAMED_MAX:
        subjects.append(f"{len(problems) - _NAMED_MAX} more")
    return [*subjects, *causes_of(frame)] if standing.is_seen else [*_lost(frame), *subjects]


def _lost(frame: Frame) -> list[str]:
    """Return why neither brokers nor ZooKeeper are seen, each cause once; the row names the cluster already."""
    causes = (frame.link(side).cause for side in (Side.WIRE, Side.ZOOKEEPER))
    return list(dict.fromkeys(cause for cause in causes if cause))


def _brokers(board: Board) -> tuple[int, int] | None:
    """Return how many brokers answer, and how many there are; None until a broker has said it."""
    return (len(board.live - board.silent), len(board.broker_ids)) if board.has_metadata else None


def _brokers_cell(member: Member) -> Cell:
    known = _brokers(member.board)
    if known is None:
        return NO_DATA
    return Cell(f"{known[0]}/{known[1]}", Tone.BAD if known[0] < known[1] else Tone.PLAIN)


def _controller(member: Member) -> int | None:
    cluster = member.board.frame.cluster
    return cluster.controller_id if cluster is not None and member.board.has_metadata else None


def _under_replicated(member: Member) -> int | None:
    return member.board.total.under_replicated if member.board.has_metadata else None


def _lag_cell(member: Member) -> Cell:
    lag = member.board.lag
    return NO_DATA if lag is None else Cell(at_least(short_count(lag), is_least=member.board.has_unknown_lag))


def version_of(member: Member) -> str | None:
    """Return the releases of its brokers, the oldest first: more than one while it is upgraded."""
    frame = member.board.frame
    releases = {word.release for word in frame.words.values() if word.release}
    return ", ".join(sorted(releases, key=lambda release: [int(part) for part in release.split(".")])) or None


def _name_cell(member: Member) -> Cell:
    profile = member.profile
    mark = cluster_mark(profile.name, profile.label or "", profile.colour)
    return Cell(text_of(mark), mark[0][1])


def _columns(now_ms: int | None) -> tuple[Column, ...]:
    def why(member: Member) -> str:
        return " · ".join(reasons_of(member, now_ms))

    return (
        Column("cluster", "CLUSTER", _name_cell, lambda m: m.name, width=12),
        Column("health", "HEALTH", lambda m: Cell(*health_of(m, now_ms)), lambda m: health_of(m, now_ms)[0], width=14),
        figure("controller", "CTRL", _controller, lambda id_: "none" if id_ == NO_CONTROLLER else str(id_), rank=3,
               tone=lambda m: Tone.BAD if _controller(m) == NO_CONTROLLER else Tone.PLAIN),
        Column("brokers", "BROKERS", _brokers_cell, lambda m: (_brokers(m.board) or (None,))[0], is_figure=True),
        Column("under_replicated", "UNDER-REPL", lambda m: tinted(_under_replicated(m), count(_under_replicated(m))),
               _under_replicated, rank=1, is_figure=True),
        Column("lag", "LAG", _lag_cell, lambda m: m.board.lag, rank=2, is_figure=True, width=6),
        column("version", "VERSION", version_of, rank=4,
               tone=lambda m: Tone.WARN if "," in (version_of(m) or "") else Tone.PLAIN),
        Column("why", "WHY", lambda m: Cell(plain(why(m))), lambda m: why(m) or None, is_wide=True),
    )  # fmt: skip


def _is_trouble(member: Member, now_ms: int | None) -> bool:
    return _status_seen(member, now_ms) is not HealthStatus.OK or bool(problems_of(member.board))


def page_of(fleet: Fleet | None) -> Page:
    members = () if fleet is None else fleet.members

    def rows(view: View) -> Rows:
        now_ms = _now(view)
        gravest = sorted(
            members,
            key=lambda m: (_GRAVEST_FIRST.index(_status_seen(m, now_ms)), not _is_trouble(m, now_ms), m.name),
        )
        return Rows(
            _columns(now_ms),
            gravest,
            lambda member: member.name,
            lambda member: f"{member.name} {member.profile.label or ''} {health_of(member, now_ms)[0]}",
            "there are no profiles",
        )

    def command(view: View, items: Sequence[Any]) -> list[str]:
        return ["cluster", "health", "--cluster", items[0].name] if items else ["profiles", "list"]

    return Page("clusters", rows, is_trouble=lambda view, cluster: _is_trouble(cluster, _now(view)), command=command)


def _now(view: View) -> int | None:
    return None if view.newest is None else view.newest.at_ms


def tally_line(fleet: Fleet, now_ms: int | None) -> Line:
    words = Counter(_word(member, now_ms) for member in fleet.members)
    pieces = [line((f"{counted(len(fleet.members), 'cluster')}", Tone.STRONG))]
    for word, tone in (
        (WORDS[HealthStatus.CRITICAL], Tone.BAD),
        ("not seen", Tone.BAD),
        (WORDS[HealthStatus.WARNING], Tone.WARN),
        ("not known yet", Tone.QUIET),
        (WORDS[HealthStatus.OK], Tone.GOOD),
    ):
        if words[word]:
            pieces.append(line((f"{words[word]} {word}", tone)))
    return wrapped(pieces, 10_000)[0]


def _word(member: Member, now_ms: int | None) -> str:
    status, standing = _status_seen(member, now_ms), member.standing(now_ms)
    if status is not None:
        return WORDS[status]
    is_begun = standing is not None and (standing.is_seen or standing is Standing.CONNECTING)
    return "not known yet" if is_begun else "not seen"


def aside(view: View, member: Member, width: int) -> list[Line]:
    """Return all that is known of a cluster that its row has no room for."""
    lines = [line((plain(member.name), Tone.STRONG)), *_addresses(member)]
    frame = member.board.frame
    if member.error:
        return [*lines, (), *folded(line((plain(member.error), Tone.BAD)), width)]
    for problem in problems_of(member.board):
        lines += folded(line((f"{problem.sign} {problem.subject}", problem.tone), f"  {problem.effect}"), width)
    for side in Side:
        link = frame.link(side)
        if link.state in (LinkState.LOST, LinkState.DENIED):
            lines += folded(line((f"{plain(link.address)}: {cause_of(link)}", Tone.BAD)), width)
    if not any(link.cause for link in frame.links.values()):
        lines += [part for cause in causes_of(frame) for part in folded(line((plain(cause), Tone.WARN)), width)]
    return lines


def _addresses(member: Member) -> list[Line]:
    profile = member.profile
    named = (("brokers", profile.bootstrap_servers), ("ZooKeeper", profile.zookeeper))
    return [line((f"{what:<11}", Tone.QUIET), plain(address or NOTHING)) for what, address in named if address]


# What distinguishes a cluster from others: its name in its colour, and its label. The profile says both; without a
# colour, a production cluster has the colour of a warning.

_TONES = {Colour.GREEN: Tone.GOOD, Colour.YELLOW: Tone.WARN, Colour.RED: Tone.BAD, Colour.BLUE: Tone.ACCENT}
_PRODUCTION = re.compile(r"(?<![a-z])(?:prod|prd|production)(?![a-z])", re.IGNORECASE)
_NAME_MAX = 40
_LABEL_MAX = 20


def cluster_tone(name: str, label: str, colour: Colour | None) -> Tone:
    if colour is not None:
        return _TONES[colour]
    return Tone.WARN if _PRODUCTION.search(name) or _PRODUCTION.search(label) else Tone.STRONG


def cluster_mark(name: str, label: str = "", colour: Colour | None = None) -> Line:
    """Return the name and the label, each cut if it would leave no room for anything else."""
    tone = cluster_tone(name, label, colour)
    mark = f" [{cut(plain(label), _LABEL_MAX)}]" if label else ""
    return line((cut(plain(name), _NAME_MAX), tone), *([(mark, tone)] if mark else []))
