"""Shows a location of the dashboard as a table or as the overview; the main screen adds the effects of keys."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from textual.app import ComposeResult
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Input

from tui.actions import PAGES, Action, Group, key_label
from tui.dialogs.dialog import Dialog, TextDialog
from tui.drawing.cells import Tone
from tui.drawing.lines import Line, fitted, line, width_of
from tui.drawing.units import clock_time, plain
from tui.frame_app import FrameApp
from tui.pages import clusters, overview
from tui.pages.all_pages import pages_of
from tui.pages.asides import aside_of
from tui.pages.clusters import cluster_mark
from tui.pages.groups import group_of
from tui.pages.overview import health_word
from tui.pages.page import View
from tui.pages.reassignments import leaked_throttles
from tui.pages.timeline import next_severity
from tui.screen.offers import ASK_CLUSTER
from tui.state.location import History, Location
from tui.state.off_board import OffBoard
from tui.state.problems import Problem, problem_of, problem_of_moves
from tui.state.status import login_of, standing_of, status_lines
from tui.state.table_model import Filter, TableModel
from tui.widgets.line_table import LineTable
from tui.widgets.lines_view import KeyBar, KeyItem, LinesView, RowsView, TableRoom

WIDTH_MIN, HEIGHT_MIN = 60, 16
_PARTS = ("#title", "#status", "#tabs", "#summary", "#overview", "#room", "#table", "#filter", "#footer")
"""What every picture consists of."""
_POINTS_AT_TROUBLE = ("groups", "group", "brokers")
"""Screens whose first row with a problem is under the cursor when they are opened: the first name is anybody's."""


class PageScreen(Screen[None]):
    """Shows one location at a time; remembers how each table was arranged."""

    def __init__(self, dashboard: FrameApp) -> None:
        super().__init__()
        self.dashboard = dashboard
        self.history = History(Location("overview"))
        self.models: dict[str, TableModel] = {}
        self.only_trouble: set[str] = set()
        self.off_board = OffBoard()
        self.background: set[asyncio.Task[None]] = set()
        """What ``run_in_background`` has begun and what has not ended yet."""
        self._told = ""
        """What was said last."""
        self.pages = pages_of(dashboard.session)
        self._parts: list[Widget] = []
        """What ``_PARTS`` names. To look for them at each key costs more than to remember them."""

    @property
    def location(self) -> Location:
        return self.history.current

    @property
    def is_free(self) -> bool:
        """Whether no window is in front, and the filter does not have the focus."""
        return self.app.screen is self and not isinstance(self.focused, Input)

    @property
    def view(self) -> View:
        app, model, height = self.dashboard, self.model, self.size.height
        seen = app.board, self.location, app.session.target, height, not model.filter.is_empty
        return View(*seen, app.newest, self.off_board, model.cursor_key)

    @property
    def table(self) -> LineTable:
        return self.query_one(LineTable)

    @property
    def model(self) -> TableModel:
        """The table of this location, as it was arranged."""
        return self.models.setdefault(self.location.page, TableModel(works_in_turns=True))

    @property
    def problem(self) -> Problem | None:
        return self.model.cursor_item if self.location.page == "overview" else None

    @property
    def explained(self) -> Problem | None:
        """The problem that w explains: that of the row under the cursor, of the group that is open, or of any move."""
        page, item, board = self.location.page, self.model.cursor_item, self.dashboard.board
        if page == "group":
            page, item = "groups", group_of(self.view)
        problem = self.problem if page == "overview" or item is None else problem_of(board, page, item)
        if problem is None and page == "reassignments":
            return problem_of_moves(board)
        return problem

    @property
    def mends(self) -> Sequence[str]:
        return () if self.problem is None else self.problem.mends

    def compose(self) -> ComposeResult:
        yield LinesView(id="title")
        yield LinesView(id="status")
        yield KeyBar(id="tabs")
        yield LinesView(id="summary")
        yield RowsView(id="overview")
        yield TableRoom(id="room")
        yield Input(placeholder="text   !text leaves out   ~text is fuzzy", id="filter")
        yield LinesView(id="small", folds=True)
        yield KeyBar(id="footer")

    def on_mount(self) -> None:
        self._parts = [self.query_one(part) for part in _PARTS]
        self.query_one("#overview", RowsView).set_maker(self._overview_lines)
        self.go_to(self.first, is_visit=False)
        self.set_interval(1.0, self.draw_head, name="head")

    def run_in_background(
        self, work: Coroutine[Any, Any, None], *, name: str, group: str, exclusive: bool = False
    ) -> None:
        """Run work that opens connections, and that closes them when it is cancelled.

        Textual cancels a worker twice when the dashboard ends. The second time would interrupt the closing, so the work
        has a task of its own, for which the dashboard waits.
        """

        async def follow() -> None:
            task = asyncio.create_task(work, name=name)
            self.background.add(task)
            task.add_done_callback(self.background.discard)
            try:
                await asyncio.wait({task})
            finally:
                task.cancel()
            await task

        self.run_worker(follow(), name=name, group=group, exclusive=exclusive)

    # Where one is

    @property
    def first(self) -> Location:
        session = self.dashboard.session
        return Location("clusters" if session.shows_fleet else session.page)

    def go_to(self, location: Location, *, is_visit: bool = True) -> None:
        """Show a location, unless the dashboard is ending: a file that was being read may be there only now."""
        if not self.has_all_parts:
            return
        if self.dashboard.session.shows_fleet and location.page not in ("clusters", "logs"):
            self.tell(self.dashboard.session.why_no_changes, is_error=True)
            return
        if location.page in ("partitions", "partition", "logs") and location != self.location:
            # Another topic has other rows: tags and cursor belong to the topic before.
            self.models.pop(location.page, None)
        if location.page == "timeline" and location != self.location and "timeline" in self.models:
            # Whoever goes there wants to know what has just happened; the way back leads to the same row.
            self.models["timeline"].begin_at_top()
        if is_visit:
            self.history.visit(location)
        else:
            self.history.current = location
        self.arrive()

    def arrive(self) -> None:
        self.close_filter()
        is_overview = self.location.page == "overview"
        here = self.model
        for model in self.models.values():
            if model is not here:
                model.leave()
        # By class: a style of its own would show it on a terminal that is too small, too.
        self.query_one("#room").set_class(is_overview, "-hidden")
        self.query_one("#overview").set_class(not is_overview, "-hidden")
        self._draw_rows(is_new_data=False)
        if not is_overview:
            self.table.set_model(here)
            is_trouble, view = self.pages[self.location.page].is_trouble, self.view
            if self.location.row is not None:
                here.put_cursor_on_first(lambda item: str(here.rows.key(item)) == self.location.row)
            elif here.cursor == 0 and self.location.page in _POINTS_AT_TROUBLE and is_trouble is not None:
                here.put_cursor_on_first(lambda item: is_trouble(view, item))
        self.set_focus(None if is_overview else self.table)
        self.draw(is_new_data=False)

    # Drawing

    @property
    def has_all_parts(self) -> bool:
        """Whether all parts are there: when the dashboard ends, they go one after the other."""
        return bool(self._parts) and all(part.parent is not None for part in self._parts)

    @property
    def is_whole(self) -> bool:
        return self.is_mounted and self.has_all_parts

    def draw(self, *, is_new_data: bool) -> None:
        if not self.is_whole:
            return
        self.draw_head()
        self.query_one("#tabs", KeyBar).set_items(tab_items(self))
        if self.location.page == "overview":
            self._draw_rows(is_new_data=is_new_data)
            self.query_one("#overview", RowsView).remake()
            self._show_summary([])
        else:
            self._draw_rows(is_new_data=is_new_data)
            self._draw_around()
        self.draw_footer()
        self.dashboard.frame_was_drawn()

    def draw_footer(self) -> None:
        self.query_one("#footer", KeyBar).set_items(footer_items(self))

    def draw_head(self) -> None:
        """Draw title and standing; the age of the data grows between frames too."""
        if not self.has_all_parts:
            return
        app = self.dashboard
        self.query_one("#title", LinesView).set_lines([title_line(self)])
        lines = status_lines(app.newest, self.size.width - 2, now_ms=app.now_ms)
        if (fleet := app.session.shown_fleet) is not None:
            lines = [clusters.tally_line(fleet, app.now_ms)]
        self.query_one("#status", LinesView).set_lines([line(" ", *spans) for spans in lines])

    def _overview_lines(self, width: int, height: int) -> list[Line]:
        app = self.dashboard
        is_seen = standing_of(app.newest, app.now_ms).is_seen
        model = self.models.setdefault("overview", TableModel())
        drawn = overview.overview_of(app.board, model.shown, width, height, cursor=model.cursor, is_seen=is_seen)
        self.query_one("#overview", RowsView).set_rows(drawn.problems, drawn.columns, model.cursor)
        return drawn.lines

    def _draw_rows(self, *, is_new_data: bool) -> None:
        page = self.pages[self.location.page]
        view = self.view
        rows = page.rows(view)
        if self.location.page in self.only_trouble and page.is_trouble is not None:
            is_trouble, is_kept = page.is_trouble, rows.is_kept or (lambda item: True)
            rows = replace(
                rows, is_kept=lambda item: is_kept(item) and is_trouble(view, item), empty="no problems here"
            )
        was_first = self.model.cursor == 0
        self.model.show(rows)
        if was_first and not self.model.is_opened and self.location.page in ("overview", "clusters"):
            # Until another is chosen, the gravest is the chosen one.
            self.model.cursor = 0
        table = self.table
        if table.model is self.model:
            table.refresh_rows(is_new_data=is_new_data)

    def _draw_around(self) -> None:
        self._show_summary(self.pages[self.location.page].summary(self.view, self.size.width - 4))
        self._draw_aside()

    def _draw_aside(self) -> None:
        view, page, item = self.view, self.location.page, self.model.cursor_item
        self.query_one(TableRoom).show_aside(self.size.width, partial(aside_of, view, page, item))

    def _show_summary(self, lines: list[Line]) -> None:
        summary = self.query_one("#summary", LinesView)
        summary.set_class(bool(lines), "-shown")
        summary.set_lines(lines)

    def on_resize(self) -> None:
        """Say so if there is too little room."""
        width, height = self.size
        is_small = width < WIDTH_MIN or height < HEIGHT_MIN
        self.set_class(is_small, "-small")
        if is_small:
            needed = line(f"{width}×{height}; the dashboard needs {WIDTH_MIN}×{HEIGHT_MIN}")
            lines = [line(("the terminal is too small", Tone.WARN)), needed, line(("q quits", Tone.QUIET))]
            self.query_one("#small", LinesView).set_lines(lines)
        self.draw(is_new_data=False)

    def on_line_table_moved(self) -> None:
        """Describe the new row, unless a key has left the table meanwhile."""
        if self.location.page != "overview":
            self._draw_around()

    def on_table_room_resized(self) -> None:
        """Fill the room that there is now; what stands above the rows needs no more of it."""
        if self.location.page != "overview":
            self._draw_aside()

    def on_line_table_header_clicked(self, event: LineTable.HeaderClicked) -> None:
        self.put_in_order(lambda model: model.sort_by(event.name))

    def put_in_order(self, change: Callable[[TableModel], None]) -> None:
        change(self.model)
        self.table.refresh_rows(is_new_data=False)

    def tell(self, text: str, *, is_error: bool = False) -> None:
        """Say something for a moment; what is said again takes the place of what is there."""
        if text == self._told:
            self.app.clear_notifications()
        self._told = text
        self.notify(plain(text), severity="warning" if is_error else "information", markup=False)

    def show_text(self, title: str, lines: list[Line], command: str = "") -> None:
        """Show lines, and a command to copy, until the window is closed."""
        self.app.push_screen(TextDialog(title, lines, copied=command, is_wide=True, folds=True))

    def ask(self, dialog: Dialog[Any], then: Callable[[Any], object]) -> None:
        """Open a window; what is chosen or typed there goes to ``then``, and nothing does if the window is left."""

        def answered(answer: Any | None) -> None:
            if answer is not None:
                then(answer)

        self.app.push_screen(dialog, answered)

    # The filter

    def begin_filter(self) -> None:
        field = self.query_one("#filter", Input)
        field.add_class("-shown")
        field.value = self.model.filter.text
        self.set_focus(field)

    def leave_filter(self) -> bool:
        """Stop typing; return False if no filter is being typed."""
        if not self.query_one("#filter", Input).has_class("-shown"):
            return False
        self.close_filter()
        self.set_focus(self.table)
        return True

    def close_filter(self) -> None:
        """Hide the field; the filter stays."""
        self.query_one("#filter", Input).remove_class("-shown")

    def on_input_changed(self, event: Input.Changed) -> None:
        if event.input.id == "filter" and event.input.has_class("-shown"):
            self.model.set_filter(Filter(event.value))
            self._draw_rows(is_new_data=False)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Keep the filter and go back to the rows."""
        if event.input.id == "filter":
            self.close_filter()
            self.set_focus(self.table)
            self.draw(is_new_data=False)


# The keys that it shows


def why_not(screen: PageScreen, action: Action) -> str:
    """Return why an action cannot be done now, or an empty text."""
    session = screen.dashboard.session
    if action.changes or (action.id in ASK_CLUSTER and session.target is None):
        return session.why_no_changes
    if action.group is Group.RECORDING and session.feed.playback is None:
        return "this is not a recording"
    if action.id == "clusters" and session.fleet is None and None in (session.profiles, session.open_feed):
        return "no profiles"
    return ""


_TAB_TITLES = {"reassignments": "Reassign", "zookeeper": "ZK"}
"""Eleven titles have to fit into 120 columns; their short ones into 80."""
_NEED_NO_ROW = frozenset({"topic.create", "plan.make", "plan.open"})
_OF_AN_OPEN_PLAN = frozenset({"plan.save", "plan.details", "plan.check", "plan.apply", "plan.rollback", "plan.cancel"})
OF_A_RUN = ("plan.cancel", "plan.throttle", "plan.stop")
"""Actions that matter most while a plan is carried out."""


def tab_items(screen: PageScreen) -> list[KeyItem]:
    """Return the screens with their keys; while no cluster is opened there is only one."""
    session, items = screen.dashboard.session, []
    if session.shows_fleet:
        return []
    for name, _, title in PAGES:
        action, tab = session.registry.named(f"page.{name}"), _TAB_TITLES.get(name, title)
        is_current = name == screen.location.screen
        items.append(
            KeyItem(key_label(action.keys[0]), tab, action.id, is_current=is_current, short=action.short or tab)
        )
    return items


def footer_items(screen: PageScreen) -> list[KeyItem]:
    """Return the keys that are worth a place at the bottom, those of this screen before those that are everywhere.

    Where nothing may be changed, the keys for that give their places to others; the help has them with the reason.
    """
    session, page, mends = screen.dashboard.session, screen.location.screen, screen.mends
    shown = [entry for entry in session.registry.on_page(page) if entry.in_footer or entry.id in mends]
    if session.why_no_changes:
        shown = [action for action in shown if not action.changes]
    if page == "overview":
        problem = screen.problem
        idle = {"row.open"} if problem is None else set()
        idle |= {"problem.incident"} if problem is None or problem.incident is None else set()
        shown = [entry for entry in shown if entry.id not in idle and (not entry.is_of_rows or entry.id == "row.open")]
        # What changes something is worth its place on the problem that it may mend.
        shown = [entry for entry in shown if entry.id in mends or not (entry.changes or entry.group is Group.PLANS)]
    else:
        idle = _idle_without(screen)
        shown = [entry for entry in shown if entry.id not in idle]
    if screen.explained is None:
        shown = [entry for entry in shown if entry.id != "problem.why"]
    order = {action_id: place for place, action_id in enumerate(mends)}
    shown.sort(key=lambda action: (order.get(action.id, len(order)), not action.pages))
    if screen.off_board.is_plan_under_way:
        shown.sort(key=lambda action: action.id not in OF_A_RUN)
    if page != "timeline" and screen.pages[screen.location.page].is_trouble is None:
        shown = [action for action in shown if action.id != "rows.trouble"]
    titles, item = {}, screen.model.cursor_item
    if screen.location.page == "group" and item is not None and item.status.is_trouble:
        titles["row.open"] = "next record"
    if page == "timeline":
        titles["rows.trouble"] = next_severity(screen.location.only) or "everything"
    elif screen.location.page in screen.only_trouble:
        titles["rows.trouble"] = "everything"
    return [
        KeyItem(
            key_label(action.keys[0]), titles.get(action.id, action.title.lower()), action.id,
            not why_not(screen, action), short=titles.get(action.id, action.short or action.title).lower(),
            stays=action.id in ("help", "quit"),
        )
        for action in shown
    ]  # fmt: skip


def _idle_without(screen: PageScreen) -> set[str]:
    """Return the actions that have nothing to do on a screen: without rows, all but those that need none."""
    board, where, shown = screen.dashboard.board, screen.location, screen.off_board
    has_leak = leaked_throttles(board.frame) is not None
    idle = set[str]() if has_leak else {"reassignment.unthrottle"}
    if shown.is_plan_under_way:
        idle |= {"plan.apply", "plan.rollback"}
    else:
        idle |= {"plan.stop"} if board.total.moving else {*OF_A_RUN}
        idle |= _OF_AN_OPEN_PLAN if shown.plan is None else set()
    # A group without offsets can be deleted, and a plan without moves be saved; znodes come in a moment.
    has_plan = shown.plan is not None or shown.is_plan_under_way
    is_coming = where.page == "zookeeper" and shown.znodes.is_loading
    if len(screen.model.rows.items) or where.group or has_plan or is_coming:
        return idle
    of_leak = {"reassignment.unthrottle", "problem.why"} if has_leak and where.page == "reassignments" else set()
    actions = screen.dashboard.session.registry.on_page(where.screen)
    return idle | {action.id for action in actions if action.pages or action.is_of_rows} - _NEED_NO_ROW - of_leak


# The first line of every screen


def title_line(screen: PageScreen) -> Line:
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
    if app.session.feed.playback is not None and app.board.frame.at_ms:
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


def _fleet_title(screen: PageScreen) -> Line:
    crumbs = [part for crumb in screen.location.breadcrumbs for part in ((" › ", Tone.QUIET), (crumb, Tone.STRONG))]
    left = line((" klamm ", Tone.ACCENT), ("all clusters", Tone.STRONG), *crumbs, *_marks(screen))
    return fitted(left, screen.size.width)


def _cluster(app: FrameApp) -> Line:
    target = app.session.target
    if target is None:
        return cluster_mark(app.cluster_name)
    return cluster_mark(target.name, target.label, target.colour)


def _marks(screen: PageScreen) -> list[tuple[str, Tone]]:
    app, feed = screen.dashboard, screen.dashboard.session.feed
    marks = []
    if app.session.why_no_changes and not app.session.shows_fleet:
        marks.append(("  read-only", Tone.WARN))
    if app.is_paused or feed.status.is_paused:
        since = f" at {clock_time(app.board.frame.at_ms)}" if app.is_paused and app.board.frame.at_ms else ""
        marks.append((f"  paused{since}", Tone.WARN))
    if (playback := feed.playback) is not None:
        cut = f" ({playback.cut_short})" if playback.cut_short else ""
        marks.append((f"  recording {playback.position + 1}/{playback.count} ×{playback.speed:g}{cut}", Tone.ACCENT))
    if screen.location.page in screen.only_trouble:
        marks.append(("  problems only", Tone.WARN))
    if not screen.model.filter.is_empty and screen.location.page != "overview":
        marks.append((f"  /{plain(screen.model.filter.text)}", Tone.ACCENT))
    if tagged := len(screen.model.tags):
        marks.append((f"  {tagged} tagged", Tone.ACCENT))
        if hidden := screen.model.tags_out_of_sight:
            marks.append((", not in sight" if hidden == tagged else f", {hidden} not in sight", Tone.WARN))
    return marks
