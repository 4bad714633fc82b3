"""The one screen of the dashboard: shows a location as a table or as the overview, and does what keys ask for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from textual import events
from textual.app import ComposeResult
from textual.screen import Screen
from textual.widgets import Input

from engine.common.model import TopicPartition
from tui.actions import Action, Group
from tui.bars import footer_items, tab_items, title_line
from tui.cells import Tone
from tui.clusters import ask_for_cluster, leave_for_fleet, open_member
from tui.command_line import Do, GoTo, NotUnderstood, parse_command, suggestions
from tui.dialogs.dialog import TextDialog
from tui.dialogs.menu import CommandDialog
from tui.filters import Filter
from tui.help import help_lines
from tui.lines import Line, line
from tui.location import History, Location
from tui.main_view import Program
from tui.offers import ASK_CLUSTER, OPERATIONS, offer_for
from tui.pace import change_rate, seek, step
from tui.pages import clusters, logs, overview, replicas, timeline
from tui.pages.all_pages import pages_of
from tui.pages.asides import aside_of
from tui.pages.page import View, rows_at
from tui.pages.zookeeper import ZnodeLevel
from tui.partition_logs import PartitionLogs
from tui.problems import why_lines
from tui.saving import Saving
from tui.status import source_lines, standing_of, status_lines
from tui.table_model import TableModel
from tui.units import plain
from tui.widgets.line_table import LineTable
from tui.widgets.lines_view import KeyBar, LinesView, RowsView
from tui.widgets.table_room import TableRoom
from tui.work import Work

if TYPE_CHECKING:
    from tui.plan_desk import PlanDesk

WIDTH_MIN, HEIGHT_MIN = 60, 16


class MainScreen(Screen[None]):
    """Shows one location at a time; remembers how each table was arranged."""

    CSS = """
    MainScreen { layout: vertical; background: $background; color: $foreground; }
    #title { height: 1; background: $panel; }
    #status { height: auto; max-height: 5; background: $panel; }
    #tabs { margin-bottom: 1; }
    #summary { padding: 0 2; }
    #summary.-shown { margin-bottom: 1; }
    #overview { height: 1fr; }
    #filter { height: 1; border: none; padding: 0 2; background: $panel; display: none; }
    #filter:focus { border: none; }
    #filter.-shown { display: block; }
    #footer { background: $panel; }
    #small { display: none; height: 1fr; padding: 1 2; }
    #room.-hidden, #overview.-hidden { display: none; }
    MainScreen.-small #small { display: block; }
    MainScreen.-small #room, MainScreen.-small #overview, MainScreen.-small #summary, MainScreen.-small #tabs,
    MainScreen.-small #footer, MainScreen.-small #filter, MainScreen.-small #title, MainScreen.-small #status {
        display: none;
    }
    """

    def __init__(self, dashboard: Program) -> None:
        super().__init__()
        self.dashboard = dashboard
        self.history = History(Location("overview"))
        self._models: dict[str, TableModel] = {}
        self._only_trouble: set[str] = set()
        self.znodes = ZnodeLevel("/")
        self.work = Work(self)
        self.opened_desk: PlanDesk | None = None
        self.saving = Saving(self)
        self.partition_logs = PartitionLogs(self)
        self._pages = pages_of(self, self.partition_logs)

    @property
    def desk(self) -> PlanDesk:
        """Where plans are made and carried out. Its import is slow, so it waits until somebody needs it."""
        if self.opened_desk is None:
            from tui.plan_desk import PlanDesk

            self.opened_desk = PlanDesk(self, self.work)
        return self.opened_desk

    @property
    def location(self) -> Location:
        return self.history.current

    @property
    def page_name(self) -> str:
        """The screen that actions belong to: one group counts as groups."""
        return self.location.screen

    @property
    def shows_only_trouble(self) -> bool:
        return self.location.page in self._only_trouble

    @property
    def is_free(self) -> bool:
        """Whether no window is in front, and nobody types into the filter."""
        return self.app.screen is self and not isinstance(self.focused, Input)

    @property
    def view(self) -> View:
        app = self.dashboard
        is_filtered = not self.model.filter.is_empty
        return View(app.board, self.location, app.session.target, self.size.height, is_filtered, app.newest)

    @property
    def model(self) -> TableModel:
        """The table of this location, as it was arranged."""
        return self._models.setdefault(self.location.table_name, TableModel(works_in_turns=True))

    def compose(self) -> ComposeResult:
        """Put the lines one below the other."""
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
        """Begin at the requested location."""
        self.query_one("#overview", RowsView).set_maker(self._overview_lines)
        self.go_to(self._first, is_visit=False)
        self.set_interval(1.0, self.draw_head, name="head")

    # Where one is

    @property
    def _first(self) -> Location:
        session = self.dashboard.session
        return Location("clusters" if session.shows_fleet else session.page)

    def go_to(self, location: Location, *, is_visit: bool = True) -> None:
        """Show a location, unless the dashboard is ending: a file that was being read may be there only now."""
        if len(self.query("#filter, #table, #room, #overview")) < 4:
            return
        if self.dashboard.session.shows_fleet and location.page not in ("clusters", "logs"):
            self.tell(self.dashboard.session.why_no_changes, is_error=True)
            return
        if location.page in ("partitions", "partition", "logs") and location != self.location:
            # Another topic has other rows: tags and cursor belong to the topic before.
            self._models.pop(location.page, None)
        if location.page == "timeline" and location != self.location and "timeline" in self._models:
            # Whoever goes there wants to know what has just happened; whoever goes back finds his row.
            self._models["timeline"].begin_at_top()
        if is_visit:
            self.history.visit(location)
        else:
            self.history.current = location
        self._arrive()

    def _arrive(self) -> None:
        self._close_filter()
        where = self.location
        if where.page == "logs" and where.topic is not None and where.partition is not None:
            self.partition_logs.read(TopicPartition(where.topic, where.partition))
        is_overview = self.location.page == "overview"
        here = self.model
        for one in self._models.values():
            if one is not here:
                one.leave()
        table = self.query_one(LineTable)
        # By class: a style of its own would show it on a terminal that is too small, too.
        self.query_one("#room").set_class(is_overview, "-hidden")
        self.query_one("#overview").set_class(not is_overview, "-hidden")
        if not is_overview:
            self._draw_rows(is_new_data=False)
            table.set_model(self.model)
            if self.location.row is not None:
                self.model.put_cursor_on_named(self.location.row)
            self.set_focus(table)
        else:
            self.set_focus(None)
            self._draw_rows(is_new_data=False)
        if self.location.page == "zookeeper":
            self.work.read_znodes(self.location.path or "/")
        self.draw(is_new_data=False)

    def begin_anew(self, row: str | None = None) -> None:
        """Forget the other cluster, and begin on the first screen, with the cursor on a row."""
        self._models.clear()
        self.opened_desk = self.partition_logs.shown = None
        self.znodes = ZnodeLevel("/")
        self.history = History(self._first)
        self.go_to(replace(self._first, row=row), is_visit=False)

    # Drawing

    def draw(self, *, is_new_data: bool) -> None:
        """Draw all of it."""
        if not self.is_mounted or not self.query("#table"):
            return
        self.draw_head()
        self.query_one("#tabs", KeyBar).set_items(tab_items(self))
        if self.location.page == "overview":
            self._draw_rows(is_new_data=is_new_data)
            self.query_one("#overview", RowsView).remake()
            self._show_summary([])
        else:
            self.draw_table(is_new_data=is_new_data)
        self.query_one("#footer", KeyBar).set_items(footer_items(self))
        self.saving.frame_was_drawn()

    def draw_head(self) -> None:
        """Draw title and standing; the age of the data grows between frames too."""
        if not self.query("#title"):
            return
        app = self.dashboard
        self.query_one("#title", LinesView).set_lines([title_line(self)])
        fleet = app.session.fleet
        if fleet is not None and app.session.shows_fleet:
            told = [clusters.tally_line(fleet, app.now_ms)]
        else:
            told = status_lines(app.newest, self.size.width - 2, now_ms=app.now_ms)
        self.query_one("#status", LinesView).set_lines([line(" ", *one) for one in told])

    def _overview_lines(self, width: int, height: int) -> list[Line]:
        app = self.dashboard
        is_seen = standing_of(app.newest, app.now_ms).is_seen
        model = self._models.setdefault("overview", TableModel())
        drawn = overview.picture_of(app.board, model, width, height, is_seen=is_seen)
        self.query_one("#overview", RowsView).set_rows(drawn.problems, drawn.columns, model.cursor)
        return drawn.lines

    def draw_table(self, *, is_new_data: bool) -> None:
        """Draw the rows, and what is around them."""
        self._draw_rows(is_new_data=is_new_data)
        self._draw_around()

    def _draw_rows(self, *, is_new_data: bool) -> None:
        page = self._pages[self.location.page]
        view = self.view
        rows = page.rows(view)
        if self.shows_only_trouble and page.is_trouble is not None:
            is_trouble, is_kept = page.is_trouble, rows.is_kept or (lambda item: True)
            rows = replace(rows, is_kept=lambda item: is_kept(item) and is_trouble(view, item), empty="no trouble here")
        was_first = self.model.cursor == 0
        self.model.show(rows)
        if was_first and self.location.page in ("overview", "clusters"):
            # Until somebody chooses another, the gravest is the chosen one.
            self.model.cursor = 0
        table = self.query_one(LineTable)
        if table.model is self.model:
            table.refresh_rows(is_new_data=is_new_data)

    def _draw_around(self) -> None:
        view, page, item = self.view, self.location.page, self.model.cursor_item
        self._show_summary(self._pages[page].summary(view, self.size.width - 4))
        self.query_one(TableRoom).show_aside(self.size.width, lambda width: aside_of(view, page, item, width))

    def _show_summary(self, lines: list[Line]) -> None:
        summary = self.query_one("#summary", LinesView)
        summary.set_class(bool(lines), "-shown")
        summary.set_lines(lines)

    def on_screen_resume(self) -> None:
        """Tell what has waited for the last window to close."""
        self._tell_outcome()

    def on_descendant_blur(self) -> None:
        """Tell what has waited for the end of typing."""
        self._tell_outcome()

    def _tell_outcome(self) -> None:
        if self.opened_desk is not None:
            self.opened_desk.tell_outcome()

    def on_resize(self) -> None:
        """Say so if there is too little room."""
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

    def take_key(self, key: str) -> bool:
        """Do what the registry says a key does here, or move the cursor; return whether it does either.

        The app calls this before it looks at the next key. If the focused widget passed the key on, the key would
        arrive here after the next one had gone to the window that this one opens.
        """
        if not self.query("#table") or (self.focused is self.query_one("#filter") and key != "escape"):
            return False
        action = self.dashboard.session.registry.for_key(key, self.page_name)
        if action is not None:
            self.perform(action.id)
            return True
        if self.location.page == "overview":
            return self._take_cursor_key(key)
        return isinstance(self.focused, LineTable) and self.focused.take_key(key)

    def _take_cursor_key(self, key: str) -> bool:
        """Move the cursor of the overview; return whether the key moves it."""
        model, last = self.model, len(self.model.shown) - 1
        far = last + 1
        steps = {"up": -1, "k": -1, "down": 1, "j": 1, "home": -far, "g": -far, "end": far, "G": far}
        steps |= {"pageup": -5, "ctrl+u": -5, "pagedown": 5, "ctrl+d": 5}
        if key not in steps:
            return False
        self._choose_problem(max(0, min(model.cursor + steps[key], last)))
        return True

    def _choose_problem(self, row: int) -> None:
        self.model.cursor = row
        self.query_one("#overview", RowsView).remake()
        self.query_one("#footer", KeyBar).set_items(footer_items(self))

    def on_rows_view_clicked(self, event: RowsView.Clicked) -> None:
        """Choose the problem that was clicked; a click on the chosen one opens it."""
        if event.row == self.model.cursor:
            self.perform("row.open")
        else:
            self._choose_problem(event.row)

    def on_key(self, event: events.Key) -> None:
        """Do what a key does that came before the screen was there."""
        if self.take_key(event.key):
            event.stop()
            event.prevent_default()

    def on_key_bar_pressed(self, event: KeyBar.Pressed) -> None:
        """A click on a key is the key."""
        self.perform(event.action_id)

    def on_line_table_opened(self) -> None:
        """A second click opens."""
        self.perform("row.open")

    def on_line_table_moved(self) -> None:
        """Describe the new row, unless a key has left the table meanwhile."""
        if self.location.page != "overview":
            self._draw_around()

    def on_line_table_header_clicked(self, event: LineTable.HeaderClicked) -> None:
        """A click on a title sorts by it."""
        self.model.sort_by(event.name)
        self.query_one(LineTable).refresh_rows(is_new_data=False)

    def why_not(self, action: Action) -> str:
        """Return why an action cannot be done now, or an empty text."""
        session = self.dashboard.session
        if action.changes or (action.id in ASK_CLUSTER and session.target is None):
            return session.why_no_changes
        if action.group is Group.RECORDING and session.feed.playback is None:
            return "this is not a recording"
        if action.id == "clusters" and session.fleet is None and None in (session.profiles, session.open_feed):
            return "no profiles"
        return ""

    def perform(self, action_id: str) -> None:
        """Carry out an action, or say why not."""
        action = self.dashboard.session.registry.named(action_id)
        if why_not := self.why_not(action):
            self.tell(why_not, is_error=True)
            return
        if not action.is_on(self.page_name):
            self.tell(f"{action.title.lower()} belongs to {', '.join(sorted(action.pages))}", is_error=True)
            return
        if action.is_of_rows and action_id != "row.open" and self.location.page == "overview":
            self.tell("problems are shown by their gravity: enter opens the rows of one")
        elif action_id.startswith("page."):
            self.go_to(Location(action_id.removeprefix("page.")))
        elif action_id in OPERATIONS:
            self.work.offer(offer_for(action_id, self.view, self.chosen(action_id)))
        elif action_id in self._handlers:
            self._handlers[action_id](self)
        else:
            from tui.plan_offers import plan_offer

            self.work.offer(plan_offer(action_id, self.desk, self.view, self.chosen(action_id)))

    def chosen(self, action_id: str) -> list[Any]:
        """Return the subject of an operation; inside a group that is the group, not its partitions.

        On the overview they are the rows that a problem is about, if the operation may mend it.
        """
        if self.location.page == "partition":
            return list(replicas.chosen(self.view))
        problem = self.model.cursor_item if self.location.page == "overview" else None
        if problem is not None and action_id in problem.mends:
            return rows_at(self._pages[problem.opens.page], replace(self.view, location=problem.opens))
        return [] if self.location.page in ("group", "overview") else self.model.chosen

    def tell(self, text: str, *, is_error: bool = False) -> None:
        """Say something for a moment; what is said again takes the place of what is there."""
        for same in [one for one in self.app._notifications if one.message == plain(text)]:
            self.app._unnotify(same)
        self.notify(plain(text), severity="warning" if is_error else "information", markup=False)

    # What the actions do

    def _open(self) -> None:
        item = self.model.cursor_item
        if self.location.page == "logs" and item is not None:
            self.app.push_screen(TextDialog("One line of the log", logs.whole(item), is_wide=True))
            return
        if self.location.page == "clusters" and item is not None:
            open_member(self, item)
        elif item is not None and (location := self._pages[self.location.page].opens(self.view, item)) is not None:
            self.go_to(location)

    def _why(self) -> None:
        problem = self.model.cursor_item
        if problem is None:
            self.tell("nothing is wrong")
            return
        lines = why_lines(problem, self.dashboard.board, self.dashboard.session.registry)
        self.app.push_screen(TextDialog("Why", lines, is_wide=True, folds=True))

    def _incident(self) -> None:
        problem = self.model.cursor_item
        if problem is None or problem.incident is None:
            self.tell("incidents begin with a broker that fails while the dashboard watches; 8 shows all that happened")
            return
        self.go_to(Location("timeline", incident=problem.incident))

    def _partition_log(self) -> None:
        items = replicas.chosen(self.view) if self.location.page == "partition" else [self.model.cursor_item]
        if not items or items[0] is None:
            self.tell("there is no partition under the cursor", is_error=True)
            return
        name = items[0].name
        self.go_to(Location("logs", topic=name.topic, partition=name.partition))

    def _leave(self) -> None:
        if self.query_one("#filter", Input).has_class("-shown"):
            self._close_filter()
            self.set_focus(self.query_one(LineTable))
        elif not self.model.filter.is_empty and self.location.page != "overview":
            self.model.set_filter(Filter())
            self.draw(is_new_data=False)
        else:
            self._back()

    def _back(self) -> None:
        if self.history.back():
            self._arrive()
        else:
            leave_for_fleet(self)

    def _forward(self) -> None:
        if self.history.forward():
            self._arrive()

    def _filter(self) -> None:
        field = self.query_one("#filter", Input)
        field.add_class("-shown")
        field.value = self.model.filter.text
        self.set_focus(field)

    def _close_filter(self) -> None:
        self.query_one("#filter", Input).remove_class("-shown")

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter while the user types."""
        if event.input.id == "filter" and event.input.has_class("-shown"):
            self.model.set_filter(Filter(event.value))
            self._draw_rows(is_new_data=False)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Keep the filter and go back to the rows."""
        if event.input.id == "filter":
            self._close_filter()
            self.set_focus(self.query_one(LineTable))
            self.draw(is_new_data=False)

    def _sort(self) -> None:
        self.model.sort_by_next()
        self.query_one(LineTable).refresh_rows(is_new_data=False)

    def _reverse(self) -> None:
        self.model.reverse()
        self.query_one(LineTable).refresh_rows(is_new_data=False)

    def _scroll_columns(self, by: int) -> None:
        if not self.query_one(LineTable).scroll_columns(by):
            self.tell(f"there are no columns further {'right' if by > 0 else 'left'}")

    def _tag(self) -> None:
        self.model.toggle_tag()
        self.query_one(LineTable).take_key("down")
        self.draw(is_new_data=False)

    def _tag_all(self) -> None:
        self.model.toggle_all_tags()
        self.draw(is_new_data=False)

    def _trouble(self) -> None:
        if self.location.page == "timeline":
            self.go_to(replace(self.location, only=timeline.next_severity(self.location.only)), is_visit=False)
            return
        self._only_trouble ^= {self.location.page}
        self.draw(is_new_data=False)

    def _pause(self) -> None:
        self.dashboard.toggle_pause()
        self.draw(is_new_data=False)

    def _refresh(self) -> None:
        self.dashboard.session.feed.refresh()
        where = self.location
        if where.page == "zookeeper":
            self.work.read_znodes(where.path or "/")
        if where.page == "logs" and where.topic is not None and where.partition is not None:
            self.partition_logs.read(TopicPartition(where.topic, where.partition))
        self.tell("asking now")

    def _source(self) -> None:
        member = self.model.cursor_item if self.location.page == "clusters" else None
        lines = source_lines((self.dashboard if member is None else member).board.frame)
        self.app.push_screen(TextDialog("Where the data comes from", lines, is_wide=True, folds=True))

    def _theme(self) -> None:
        names = list(self.dashboard.session.palettes)
        at = names.index(self.app.theme) if self.app.theme in names else -1
        self.app.theme = names[(at + 1) % len(names)]
        self.tell(f"theme {self.app.theme}")

    def _command(self) -> None:
        registry = self.dashboard.session.registry
        self.app.push_screen(CommandDialog(lambda text: suggestions(text, registry, self._named)), self._run_command)

    def _named(self, page: str) -> list[str]:
        """Return the names that a command may give behind this screen."""
        board = self.dashboard.board
        match page:
            case "topics" | "partitions":
                return [topic.name for topic in board.topics]
            case "brokers":
                return [str(broker) for broker in board.broker_ids]
            case "groups":
                return [group.name for group in (board.frame.groups if board.frame is not None else ())]
        return []

    def places(self) -> Iterator[tuple[str, str, Location]]:
        """Return the places that the palette finds by name: what it is called, what it is, and where."""
        for topic in self._named("topics"):
            yield topic, "topic", Location("partitions", topic=topic)
        for group in self._named("groups"):
            yield group, "consumer group", Location("group", group=group)
        for broker in self._named("brokers"):
            yield f"broker {broker}", "its partitions", Location("partitions", broker=int(broker))

    def _run_command(self, text: str | None) -> None:
        if text is None or not text.removeprefix(":").strip():
            return
        word, _, rest = text.strip().removeprefix(":").partition(" ")
        if word == "plan" and rest.strip():
            self.desk.open_named(rest)
            return
        match parse_command(text, self.dashboard.session.registry):
            case GoTo(location):
                self.go_to(location)
            case Do(action_id):
                self.perform(action_id)
            case NotUnderstood(message):
                self.tell(message, is_error=True)

    def _help(self) -> None:
        lines = help_lines(self.dashboard.session.registry.on_page(self.page_name), self.why_not, self.size.width)
        self.app.push_screen(TextDialog(f"Keys of {self.page_name}", lines, is_wide=True, folds=True))

    _handlers: dict[str, Callable[[MainScreen], object]] = {  # noqa: RUF012
        "row.open": _open,
        "history.leave": _leave,
        "history.back": _back,
        "history.forward": _forward,
        "rows.filter": _filter,
        "rows.sort": _sort,
        "rows.reverse": _reverse,
        "rows.left": lambda self: self._scroll_columns(-1),
        "rows.right": lambda self: self._scroll_columns(1),
        "rows.tag": _tag,
        "rows.tag_all": _tag_all,
        "rows.trouble": _trouble,
        "partition.log": _partition_log,
        "problem.why": _why,
        "problem.incident": _incident,
        "view.pause": _pause,
        "view.refresh": _refresh,
        "view.faster": lambda self: change_rate(self, 0.5),
        "view.slower": lambda self: change_rate(self, 2),
        "view.source": _source,
        "view.copy": lambda self: self.saving.ask_what_to_copy(),
        "view.export": lambda self: self.saving.ask_what_to_export(),
        "view.theme": _theme,
        "plan.make": lambda self: self.desk.ask_for_strategy(),
        "plan.open": lambda self: self.desk.ask_what_to_open(),
        "plan.save": lambda self: self.desk.ask_where_to_save(),
        "plan.details": lambda self: self.desk.show_details(),
        "plan.explain": lambda self: self.desk.explain(),
        "plan.stop": lambda self: self.desk.ask_to_stop(),
        "replay.step": lambda self: step(self, 1),
        "replay.back": lambda self: step(self, -1),
        "replay.begin": lambda self: seek(self, to_end=False),
        "replay.end": lambda self: seek(self, to_end=True),
        "command.line": _command,
        "palette": lambda self: self.app.action_command_palette(),
        "clusters": ask_for_cluster,
        "help": _help,
        "quit": lambda self: self.dashboard.leave(0),
    }

    def page_command(self, items: list[Any]) -> list[str]:
        """Return the words of the command that shows the same."""
        return self._pages[self.location.page].command(self.view, items)
