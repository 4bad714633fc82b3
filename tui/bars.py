"""The lines above and below every screen: title, tabs and the keys of the screen."""

from __future__ import annotations

from typing import Any

from tui.actions import PAGES, Group, key_label
from tui.cells import Tone
from tui.cluster_mark import cluster_mark
from tui.lines import Line, fitted, line, width_of
from tui.main_view import MainView, Program
from tui.pages.overview import health_word
from tui.status import login_of, standing_of
from tui.units import clock_time, plain
from tui.widgets.lines_view import KeyItem

_TAB_TITLES = {"reassignments": "Reassign", "zookeeper": "ZK"}
"""Eleven titles have to fit into 120 columns."""
_SHORT_TITLES = {
    "overview": "Over",
    "brokers": "Brok",
    "topics": "Topic",
    "partitions": "Part",
    "groups": "Group",
    "reassignments": "Moves",
    "plans": "Plan",
    "timeline": "Time",
}
"""And these into 80; the others are short enough."""


OF_A_RUN = ("plan.cancel", "plan.throttle", "plan.stop")
"""Actions that matter most while a plan is carried out."""


def title_line(screen: MainView) -> Line:
    """Return the cluster's name, the location in it, the state of the view, and how the cluster is."""
    if screen.dashboard.session.shows_fleet:
        return _fleet_title(screen)
    app, width = screen.dashboard, screen.size.width
    crumbs: list[Any] = [(" klamm ", Tone.ACCENT), *_cluster(app)]
    if login := login_of(app.newest):
        crumbs.append((f" as {plain(login)}", Tone.QUIET))
    for crumb in screen.location.breadcrumbs:
        crumbs += [(" › ", Tone.QUIET), (plain(crumb), Tone.STRONG)]
    word = health_word(app.board, is_seen=standing_of(app.newest, app.now_ms).is_seen)
    pace = f"  every {app.session.feed.status.interval_s:g}s "
    if app.session.feed.playback is not None and app.board.frame is not None:
        pace = f"  at {clock_time(app.board.frame.at_ms)} "
    way, marks = line(*crumbs), line(*_marks(screen))
    left = line(*way, *marks)
    right = line(word, (pace, Tone.QUIET))
    if width_of(left) + width_of(right) + 2 > width:
        right = line(word, " ")
        room = width - width_of(right) - 2
        # How the cluster is, and that it is read-only, matters more than a long name and the last breadcrumbs.
        way = fitted(way, min(width_of(way), max(room - width_of(marks), room // 2)))
        left = line(*way, *marks)
        left = fitted(left, min(width_of(left), room))
    gap = width - width_of(left) - width_of(right)
    return line(*left, " " * max(2, gap), *right)


def _fleet_title(screen: MainView) -> Line:
    crumbs = [part for crumb in screen.location.breadcrumbs for part in ((" › ", Tone.QUIET), (crumb, Tone.STRONG))]
    left = line((" klamm ", Tone.ACCENT), ("all clusters", Tone.STRONG), *crumbs, *_marks(screen))
    return fitted(left, screen.size.width)


def _cluster(app: Program) -> Line:
    target = app.session.target
    if target is None:
        return cluster_mark(app.cluster_name)
    return cluster_mark(target.name, target.label, target.colour)


def _marks(screen: MainView) -> list[tuple[str, Tone]]:
    app, feed = screen.dashboard, screen.dashboard.session.feed
    marks = []
    if app.session.why_no_changes and not app.session.shows_fleet:
        marks.append(("  read-only", Tone.WARN))
    if app.is_paused or feed.status.is_paused:
        frame = app.board.frame
        since = f" at {clock_time(frame.at_ms)}" if app.is_paused and frame is not None else ""
        marks.append((f"  paused{since}", Tone.WARN))
    if (playback := feed.playback) is not None:
        cut = f" ({playback.cut_short})" if playback.cut_short else ""
        marks.append((f"  recording {playback.position + 1}/{playback.count} ×{playback.speed:g}{cut}", Tone.ACCENT))
    if screen.shows_only_trouble:
        marks.append(("  only trouble", Tone.WARN))
    if not screen.model.filter.is_empty and screen.location.page != "overview":
        marks.append((f"  /{plain(screen.model.filter.text)}", Tone.ACCENT))
    if tagged := len(screen.model.tags):
        marks.append((f"  {tagged} tagged", Tone.ACCENT))
        if hidden := screen.model.tags_out_of_sight:
            marks.append((", not in sight" if hidden == tagged else f", {hidden} not in sight", Tone.WARN))
    return marks


def tab_items(screen: MainView) -> list[KeyItem]:
    """Return the screens with their keys; while no cluster is opened there is only one."""
    if screen.dashboard.session.shows_fleet:
        return []
    registry = screen.dashboard.session.registry
    return [
        KeyItem(
            key_label(registry.named(f"page.{name}").keys[0]),
            tab := _TAB_TITLES.get(name, title),
            f"page.{name}",
            is_current=name == screen.page_name,
            short=_SHORT_TITLES.get(name, tab),
        )
        for name, _, title in PAGES
    ]


def footer_items(screen: MainView) -> list[KeyItem]:
    """Return the keys that are worth a place at the bottom, those of this screen before those that are everywhere.

    Where nothing may be changed, the keys for that give their places to others; the help has them with the reason.
    """
    session = screen.dashboard.session
    problem = screen.model.cursor_item if screen.page_name == "overview" else None
    mends = () if problem is None else problem.mends
    shown = [one for one in session.registry.on_page(screen.page_name) if one.in_footer or one.id in mends]
    if session.why_no_changes:
        shown = [action for action in shown if not action.changes]
    if screen.page_name == "overview":
        shown = [action for action in shown if not action.is_of_rows or action.id == "row.open"]
        # What changes something is worth its place on the problem that it may mend.
        shown = [one for one in shown if one.id in mends or not (one.changes or one.group is Group.PLANS)]
    shown.sort(key=lambda action: (action.id not in mends, not action.pages))
    desk = screen.opened_desk
    if desk is not None and desk.run is not None and desk.run.is_under_way:
        shown.sort(key=lambda action: action.id not in OF_A_RUN)
    return [
        KeyItem(
            key_label(action.keys[0]), action.title.lower(), action.id, not screen.why_not(action),
            short=action.short.lower() or action.title.lower(), stays=action.id in ("help", "quit"),
        )
        for action in shown
    ]  # fmt: skip
