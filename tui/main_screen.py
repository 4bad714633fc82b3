"""The one screen of the dashboard: title, standing, screens, the table or the overview, and the keys."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from textual import events
from textual.app import ComposeResult
from textual.screen import Screen
from textual.widgets import Input

from engine.admin.cluster.errors import AdminError
from engine.admin.cluster.target import Side
from tui.actions import PAGES, Action, Group, key_label
from tui.cells import Tone
from tui.command_line import Do, GoTo, NotUnderstood, parse_command, suggestions
from tui.dialogs.dialog import TextDialog
from tui.dialogs.menu import Choice, CommandDialog, MenuDialog
from tui.filters import Filter
from tui.lines import Line, line, width_of
from tui.location import History, Location
from tui.offers import OPERATIONS, offer_for
from tui.operations.operation import failure_text
from tui.pages import brokers as brokers_page
from tui.pages import groups, logs, overview, partitions, plans, reassignments, spark, timeline, topics, zookeeper
from tui.pages.page import Page, View
from tui.saving import Saving
from tui.status import source_lines, standing_of, status_lines
from tui.table_model import Rows, TableModel
from tui.units import plain
from tui.widgets.line_table import LineTable
from tui.widgets.lines_view import KeyBar, KeyItem, LinesView
from tui.work import Work

if TYPE_CHECKING:
    from tui.app import Dashboard

WIDTH_MIN, HEIGHT_MIN = 60, 16
_TAB_TITLES = {"reassignments": "Reassign", "zookeeper": "ZK"}
"""Eleven titles have to fit into 120 columns."""
_NAME_MAX = 40


def fitted_name(name: str) -> Line:
    """Return the cluster's name, cut where it would leave no room for anything else."""
    return line((name if len(name) <= _NAME_MAX else name[: _NAME_MAX - 1] + "…", Tone.STRONG))


class MainScreen(Screen[None]):
    """Shows one location at a time; remembers how each table was arranged."""

    CSS = """
    MainScreen { layout: vertical; background: $background; color: $foreground; }
    #title { height: 1; background: $panel; }
    #status { height: auto; max-height: 3; background: $panel; }
    #tabs { margin-bottom: 1; }
    #summary { padding: 0 2; }
    #summary.-shown { margin-bottom: 1; }
    #overview { height: 1fr; }
    #table { height: 1fr; }
    #filter { height: 1; border: none; padding: 0 2; background: $panel; display: none; }
    #filter:focus { border: none; }
    #filter.-shown { display: block; }
    #footer { background: $panel; }
    #small { display: none; height: 1fr; padding: 1 2; }
    MainScreen.-small #small { display: block; }
    MainScreen.-small #table, MainScreen.-small #overview, MainScreen.-small #summary, MainScreen.-small #tabs,
    MainScreen.-small #footer, MainScreen.-small #filter, MainScreen.-small #title, MainScreen.-small #status {
        display: none;
    }
    """

    def __init__(self) -> None:
        super().__init__()
        self.history = History(Location("overview"))
        self._models: dict[str, TableModel] = {}
        self._only_trouble: set[str] = set()
        self.plan: plans.PlanFile | None = None
        self.znodes = zookeeper.ZnodeLevel("/")
        self.work = Work(self)
        self.saving = Saving(self)
        self._pages = self._all_pages()

    @property
    def dashboard(self) -> Dashboard:
        """The program."""
        return cast("Dashboard", self.app)

    @property
    def location(self) -> Location:
        return self.history.current

    @property
    def page_name(self) -> str:
        """The screen that actions belong to: one group counts as groups."""
        return "groups" if self.location.page == "group" else self.location.page

    @property
    def view(self) -> View:
        return View(self.dashboard.board, self.location, self.dashboard.session.target)

    @property
    def model(self) -> TableModel:
        """The table of this location, as it was arranged."""
        return self._models.setdefault(self.location.table_name, TableModel())

    def _all_pages(self) -> dict[str, Page]:
        pages = {
            page.name: page
            for page in (
                brokers_page.PAGE,
                topics.PAGE,
                partitions.PAGE,
                groups.PAGE,
                groups.GROUP_PAGE,
                reassignments.PAGE,
                timeline.PAGE,
                spark.PAGE,
            )
        }
        pages["plans"] = Page(
            "plans",
            lambda view: plans.rows_of(view, self.plan),
            lambda view, width: plans.summary_of(view, self.plan, width),
            plans.opens,
            lambda view, item: item.state in ("not found", "going elsewhere"),
            plans.command,
        )
        pages["zookeeper"] = Page(
            "zookeeper",
            lambda view: zookeeper.rows_of(self.znodes),
            lambda view, width: zookeeper.summary_of(self.znodes, view),
            zookeeper.opens,
            lambda view, item: item.complaint is not None,
            zookeeper.command,
        )
        pages["logs"] = Page(
            "logs",
            lambda view: logs.rows_of(self.dashboard.session.log),
            lambda view, width: logs.summary_of(self.dashboard.session.log),
            is_trouble=lambda view, item: item.level >= 30,
        )
        return pages

    def compose(self) -> ComposeResult:
        """Put the lines one below the other."""
        yield LinesView(id="title")
        yield LinesView(id="status")
        yield KeyBar(id="tabs")
        yield LinesView(id="summary")
        yield LinesView(id="overview")
        yield LineTable(id="table")
        yield Input(placeholder="text   !text leaves out   ~text is fuzzy", id="filter")
        yield LinesView(id="small")
        yield KeyBar(id="footer")

    def on_mount(self) -> None:
        """Begin where it was asked for."""
        self.query_one("#overview", LinesView).set_maker(
            lambda width, height: overview.overview_lines(
                self.dashboard.board,
                width,
                height,
                is_seen=standing_of(self.dashboard.newest, self.dashboard.now_ms).is_seen,
            )
        )
        self.go_to(Location(self.dashboard.session.page), is_visit=False)
        self.set_interval(1.0, self.draw_head, name="head")

    # Where one is

    def go_to(self, location: Location, *, is_visit: bool = True) -> None:
        """Show a location."""
        if location.page == "partitions" and location != self.location:
            # Another topic has other rows: what was tagged and where the cursor was, belongs to the one before.
            self._models.pop("partitions", None)
        if is_visit:
            self.history.visit(location)
        else:
            self.history.current = location
        self._arrive()

    def _arrive(self) -> None:
        self._close_filter()
        is_overview = self.location.page == "overview"
        table = self.query_one(LineTable)
        table.display = not is_overview
        self.query_one("#overview").display = is_overview
        if not is_overview:
            self.draw_table(is_new_data=False)
            table.set_model(self.model)
            if self.location.row is not None:
                self._find_row(self.location.row)
            table.focus()
        else:
            self.set_focus(None)
        if self.location.page == "zookeeper":
            self.work.read_znodes(self.location.path or "/")
        self.draw(is_new_data=False)

    def _find_row(self, row: str) -> None:
        model = self.model
        for item in model.shown:
            key = model.rows.key(item)
            if str(key) == row:
                model.put_cursor_on(key)
                return

    # Drawing

    def draw(self, *, is_new_data: bool) -> None:
        """Draw all of it."""
        if not self.is_mounted or not self.query("#table"):
            return
        self.draw_head()
        self._draw_keys()
        if self.location.page == "overview":
            self.query_one("#overview", LinesView)._remake()
            self._show_summary([])
        else:
            self.draw_table(is_new_data=is_new_data)
        if is_new_data:
            self.saving.frame_was_drawn()

    def draw_head(self) -> None:
        """Draw title and standing; the age of the data grows between frames too."""
        if not self.query("#title"):
            return
        app = self.dashboard
        self.query_one("#title", LinesView).set_lines([self._title()])
        told = status_lines(app.newest, self.size.width - 2, now_ms=app.now_ms)
        self.query_one("#status", LinesView).set_lines([line(" ", *one) for one in told])

    def _title(self) -> Line:
        app = self.dashboard
        session = app.session
        name = session.target.name if session.target is not None else session.feed.status.name
        crumbs: list[Any] = [(" klamm ", Tone.ACCENT), *fitted_name(plain(name))]
        for crumb in self.location.breadcrumbs:
            crumbs += [(" › ", Tone.QUIET), (plain(crumb), Tone.STRONG)]
        marks: list[Any] = []
        if session.why_no_changes:
            marks.append(("  read-only", Tone.WARN))
        if app.is_paused or session.feed.status.is_paused:
            marks.append(("  paused", Tone.WARN))
        marks += self._playback_marks()
        if self.location.page in self._only_trouble:
            marks.append(("  only trouble", Tone.WARN))
        if not self.model.filter.is_empty and self.location.page != "overview":
            marks.append((f"  /{plain(self.model.filter.text)}", Tone.ACCENT))
        if self.model.tags:
            marks.append((f"  {len(self.model.tags)} tagged", Tone.ACCENT))
        word = overview.health_word(app.board, is_seen=standing_of(app.newest, app.now_ms).is_seen)
        every = f"  every {session.feed.status.interval_s:g}s "
        left = line(*crumbs, *marks)
        right = line(word, (every, Tone.QUIET))
        if width_of(left) + width_of(right) + 2 > self.size.width:
            right = line(word, " ")
        gap = self.size.width - width_of(left) - width_of(right)
        return line(*left, " " * max(2, gap), *right)

    def _playback_marks(self) -> list[Any]:
        playback = self.dashboard.session.feed.playback
        if playback is None:
            return []
        cut = f" ({playback.cut_short})" if playback.cut_short else ""
        return [(f"  recording {playback.position + 1}/{playback.count} ×{playback.speed:g}{cut}", Tone.ACCENT)]

    def _draw_keys(self) -> None:
        registry = self.dashboard.session.registry
        tabs = [
            KeyItem(
                key_label(registry.named(f"page.{name}").keys[0]), _TAB_TITLES.get(name, title), f"page.{name}",
                is_current=name == self.page_name,
            )
            for name, _, title in PAGES
        ]  # fmt: skip
        self.query_one("#tabs", KeyBar).set_items(tabs)
        shown = [action for action in registry.on_page(self.page_name) if action.in_footer]
        # What belongs to this screen comes before what is everywhere.
        shown.sort(key=lambda action: not action.pages)
        items = [
            KeyItem(key_label(action.keys[0]), action.title.lower(), action.id, not self.why_not(action))
            for action in shown
        ]
        self.query_one("#footer", KeyBar).set_items(items)

    def draw_table(self, *, is_new_data: bool) -> None:
        """Draw the summary and the rows."""
        page = self._pages[self.location.page]
        view = self.view
        self._show_summary(page.summary(view, self.size.width - 4))
        rows = page.rows(view)
        if self.location.page in self._only_trouble and page.is_trouble is not None:
            is_trouble = page.is_trouble
            rows = replace(rows, items=[item for item in rows.items if is_trouble(view, item)], empty="no trouble here")
        self.model.show(rows)
        table = self.query_one(LineTable)
        if table.model is self.model:
            table.refresh_rows(is_new_data=is_new_data)

    def _show_summary(self, lines: list[Line]) -> None:
        summary = self.query_one("#summary", LinesView)
        summary.set_class(bool(lines), "-shown")
        summary.set_lines(lines)

    def on_resize(self) -> None:
        """Say so where there is too little room."""
        width, height = self.size
        is_small = width < WIDTH_MIN or height < HEIGHT_MIN
        self.set_class(is_small, "-small")
        if is_small:
            self.query_one("#small", LinesView).set_lines(
                [
                    line(("the terminal is too small", Tone.WARN)),
                    line(f"{width}×{height}; the dashboard needs {WIDTH_MIN}×{HEIGHT_MIN}"),
                    line(("q quits", Tone.QUIET)),
                ]
            )
        self.draw(is_new_data=False)

    # Keys

    def on_key(self, event: events.Key) -> None:
        """Do what the registry says that a key does here."""
        if self.query_one("#filter", Input).has_focus and event.key not in ("escape",):
            return
        action = self.dashboard.session.registry.for_key(event.key, self.page_name)
        if action is not None:
            event.stop()
            event.prevent_default()
            self.perform(action.id)

    def on_key_bar_pressed(self, event: KeyBar.Pressed) -> None:
        """A click on a key is the key."""
        self.perform(event.action_id)

    def on_line_table_opened(self) -> None:
        """A second click opens."""
        self.perform("row.open")

    def on_line_table_header_clicked(self, event: LineTable.HeaderClicked) -> None:
        """A click on a title sorts by it."""
        self.model.sort_by(event.name)
        self.query_one(LineTable).refresh_rows(is_new_data=False)

    def why_not(self, action: Action) -> str:
        """Return why an action cannot be done now; empty where it can."""
        session = self.dashboard.session
        if action.changes or action.id in OPERATIONS:
            if session.target is None:
                return session.why_no_changes
            if action.changes:
                return session.why_no_changes
        if action.group is Group.RECORDING and session.feed.playback is None:
            return "this is no recording"
        if action.id == "clusters" and (session.profiles is None or session.open_feed is None):
            return "no profiles"
        return ""

    def perform(self, action_id: str) -> None:
        """Carry out an action, or say why not."""
        action = self.dashboard.session.registry.named(action_id)
        why_not = self.why_not(action)
        if why_not:
            self.tell(why_not, is_error=True)
            return
        if not action.is_on(self.page_name):
            self.tell(f"{action.title.lower()} belongs to {', '.join(sorted(action.pages))}", is_error=True)
            return
        if action_id.startswith("page."):
            self.go_to(Location(action_id.removeprefix("page.")))
        elif action_id in OPERATIONS:
            items = [] if self.location.page == "overview" else self._chosen()
            self.work.offer(offer_for(action_id, self.view, items))
        else:
            self._handlers[action_id](self)

    def _chosen(self) -> list[Any]:
        """Return what an operation is about; inside a group that is the group, not its partitions."""
        return [] if self.location.page == "group" else self.model.chosen

    def tell(self, text: str, *, is_error: bool = False) -> None:
        """Say something for a moment."""
        self.notify(plain(text), severity="warning" if is_error else "information", markup=False)

    # What the actions do

    def _open(self) -> None:
        if self.location.page == "overview":
            return
        item = self.model.cursor_item
        location = None if item is None else self._pages[self.location.page].opens(self.view, item)
        if location is not None:
            self.go_to(location)

    def _leave(self) -> None:
        if self.query_one("#filter", Input).has_class("-shown"):
            self._close_filter()
            self.query_one(LineTable).focus()
        elif not self.model.filter.is_empty and self.location.page != "overview":
            self.model.set_filter(Filter())
            self.draw(is_new_data=False)
        else:
            self._back()

    def _back(self) -> None:
        if self.history.back():
            self._arrive()

    def _forward(self) -> None:
        if self.history.forward():
            self._arrive()

    def _filter(self) -> None:
        if self.location.page == "overview":
            self.tell("the overview has no rows to filter")
            return
        field = self.query_one("#filter", Input)
        field.add_class("-shown")
        field.value = self.model.filter.text
        field.focus()

    def _close_filter(self) -> None:
        self.query_one("#filter", Input).remove_class("-shown")

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter while one types."""
        if event.input.id == "filter" and event.input.has_class("-shown"):
            self.model.set_filter(Filter(event.value))
            self.query_one(LineTable).refresh_rows(is_new_data=False)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Keep the filter and go back to the rows."""
        if event.input.id == "filter":
            self._close_filter()
            self.query_one(LineTable).focus()
            self.draw(is_new_data=False)

    def _sort(self) -> None:
        self.model.sort_by_next()
        self.query_one(LineTable).refresh_rows(is_new_data=False)

    def _reverse(self) -> None:
        self.model.reverse()
        self.query_one(LineTable).refresh_rows(is_new_data=False)

    def _tag(self) -> None:
        self.model.toggle_tag()
        self.query_one(LineTable).action_move(1)
        self.draw(is_new_data=False)

    def _tag_all(self) -> None:
        self.model.toggle_all_tags()
        self.draw(is_new_data=False)

    def _trouble(self) -> None:
        self._only_trouble ^= {self.location.page}
        self.draw(is_new_data=False)

    def _pause(self) -> None:
        self.dashboard.toggle_pause()
        self.draw(is_new_data=False)

    def _refresh(self) -> None:
        self.dashboard.session.feed.refresh()
        if self.location.page == "zookeeper":
            self.work.read_znodes(self.location.path or "/")
        self.tell("asking now")

    def _change_rate(self, factor: float) -> None:
        feed = self.dashboard.session.feed
        playback = feed.playback
        if playback is not None:
            playback.set_speed(playback.speed / factor)
        else:
            feed.set_interval(feed.status.interval_s * factor)
        self.draw_head()

    def _source(self) -> None:
        lines = source_lines(self.dashboard.board.frame)
        self.app.push_screen(TextDialog("Who told what is shown", lines, is_wide=True))

    def _theme(self) -> None:
        names = list(self.dashboard.session.palettes)
        at = names.index(self.app.theme) if self.app.theme in names else -1
        self.app.theme = names[(at + 1) % len(names)]
        self.tell(f"theme {self.app.theme}")

    def _step(self, by: int) -> None:
        playback = self.dashboard.session.feed.playback
        if playback is not None:
            playback.step(by)

    def _seek(self, *, to_end: bool) -> None:
        playback = self.dashboard.session.feed.playback
        if playback is not None:
            playback.seek(playback.count - 1 if to_end else 0)

    def _command(self) -> None:
        registry = self.dashboard.session.registry
        dialog = CommandDialog(lambda text: suggestions(text, registry))
        self.app.push_screen(dialog, self._run_command)

    def _run_command(self, text: str | None) -> None:
        if text is None or not text.removeprefix(":").strip():
            return
        word, _, rest = text.strip().removeprefix(":").partition(" ")
        if word == "plan" and rest.strip():
            self.work.open_plan(rest.strip())
            return
        match parse_command(text, self.dashboard.session.registry):
            case GoTo(location):
                self.go_to(location)
            case Do(action_id):
                self.perform(action_id)
            case NotUnderstood(message):
                self.tell(message, is_error=True)

    def _clusters(self) -> None:
        profiles = self.dashboard.session.profiles
        if profiles is None:
            return
        choices = [
            Choice(one.name, f"{one.name}   {one.bootstrap_servers or one.zookeeper}" + "   read-only" * one.read_only)
            for one in profiles.profiles
        ]
        self.app.push_screen(MenuDialog(f"Clusters of {profiles.path}", choices), self._choose_cluster)

    def _choose_cluster(self, name: str | None) -> None:
        if name is not None:
            self.run_worker(self._switch(name), name="switch", exclusive=True, group="switch")

    async def _switch(self, name: str) -> None:
        from pathlib import Path

        from engine.admin.cluster.target import Naming, resolve_target

        try:
            # One broken profile must not keep anybody from the others.
            target = resolve_target(Naming(cluster=name), self.dashboard.session.environment, Path.cwd())
            await self.dashboard.switch_cluster(target)
        except (AdminError, OSError) as error:
            lines = [line((failure_text(error), Tone.BAD))]
            self.app.push_screen(TextDialog(f"Cluster {name} cannot be opened", lines))
            return
        self._models.clear()
        self.znodes = zookeeper.ZnodeLevel("/")
        self.go_to(Location("overview"))

    def _help(self) -> None:
        self.app.push_screen(TextDialog(f"Keys of {self.page_name}", self.help_lines(), is_wide=True))

    def help_lines(self) -> list[Line]:
        """Return every action of this screen under its heading."""
        lines: list[Line] = []
        actions = self.dashboard.session.registry.on_page(self.page_name)
        for group in Group:
            of_group = [action for action in actions if action.group is group]
            if not of_group:
                continue
            lines += [(), line((group.value, Tone.ACCENT))] if lines else [line((group.value, Tone.ACCENT))]
            for action in of_group:
                why_not = self.why_not(action)
                lines.append(
                    line(
                        (f"  {action.key_text:<8}", Tone.QUIET if why_not else Tone.STRONG),
                        (f"{action.title:<18}", Tone.QUIET if why_not else Tone.PLAIN),
                        (action.help + (f" — {why_not}" if why_not else ""), Tone.QUIET),
                    )
                )
        moves = "  arrows, page up and down, home, end move the cursor; a click does, a second click opens"
        return [*lines, (), line((moves, Tone.QUIET))]

    _handlers: dict[str, Callable[[MainScreen], object]] = {  # noqa: RUF012
        "row.open": _open,
        "history.leave": _leave,
        "history.back": _back,
        "history.forward": _forward,
        "rows.filter": _filter,
        "rows.sort": _sort,
        "rows.reverse": _reverse,
        "rows.tag": _tag,
        "rows.tag_all": _tag_all,
        "rows.trouble": _trouble,
        "view.pause": _pause,
        "view.refresh": _refresh,
        "view.faster": lambda self: self._change_rate(0.5),
        "view.slower": lambda self: self._change_rate(2),
        "view.source": _source,
        "view.copy": lambda self: self.saving.ask_what_to_copy(),
        "view.export": lambda self: self.saving.ask_what_to_export(),
        "view.theme": _theme,
        "replay.step": lambda self: self._step(1),
        "replay.back": lambda self: self._step(-1),
        "replay.begin": lambda self: self._seek(to_end=False),
        "replay.end": lambda self: self._seek(to_end=True),
        "command.line": _command,
        "palette": lambda self: self.app.action_command_palette(),
        "clusters": _clusters,
        "help": _help,
        "quit": lambda self: self.app.exit(0),
    }

    def page_rows(self) -> Rows:
        """Return what the table shows."""
        return self.model.rows

    def page_command(self, items: list[Any]) -> list[str]:
        """Return the words of the command that shows the same."""
        if self.location.page == "overview":
            return ["cluster", "health"]
        return self._pages[self.location.page].command(self.view, items)

    @property
    def has_zookeeper(self) -> bool:
        """Whether znodes may be read."""
        target = self.dashboard.session.target
        return target is not None and target.may_ask_zookeeper and target.via is not Side.WIRE
