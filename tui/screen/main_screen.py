"""The only screen of the dashboard: shows a location, carries out what keys ask for, and has the plan desk."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from textual import events

from engine.common.model import TopicPartition
from tui.dialogs.confirm import ConfirmDialog
from tui.dialogs.dialog import GO_ON
from tui.frame_app import FrameApp
from tui.screen.page_screen import PageScreen
from tui.screen.saving import Saving
from tui.screen.work import Work
from tui.state.location import History
from tui.state.off_board import OffBoard
from tui.widgets.line_table import LineTable
from tui.widgets.lines_view import KeyBar, RowsView

if TYPE_CHECKING:
    from tui.planning.desk import PlanDesk


class MainScreen(PageScreen):
    """The screen of pages with what the user does on it; ``perform`` does what an action says."""

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

    def __init__(self, dashboard: FrameApp, perform: Callable[[MainScreen, str], None]) -> None:
        super().__init__(dashboard)
        self._perform = perform
        self.work = Work(self, lambda wish, form: self.desk.make(wish, form))
        self.saving = Saving(self)
        self.opened_desk: PlanDesk | None = None
        self._is_leaving = False

    @property
    def desk(self) -> PlanDesk:
        """Where plans are made and carried out. Its import is slow, so it waits until it is needed."""
        if self.opened_desk is None:
            from tui.planning.desk import PlanDesk

            self.opened_desk = PlanDesk(self, self.work)
        return self.opened_desk

    def arrive(self) -> None:
        self.read_shown()
        super().arrive()

    def read_shown(self) -> None:
        where = self.location
        if where.page == "zookeeper":
            self.work.read_znodes(where.path or "/")
        if where.page == "logs" and where.topic is not None and where.partition is not None:
            self.work.read_partition_log(TopicPartition(where.topic, where.partition))

    def begin_anew(self, row: str | None = None) -> None:
        """Forget the other cluster, and begin on the first screen, with the cursor on a row."""
        self.models.clear()
        self.opened_desk, self.off_board = None, OffBoard()
        self.history = History(self.first)
        self.go_to(replace(self.first, row=row), is_visit=False)

    def draw(self, *, is_new_data: bool) -> None:
        super().draw(is_new_data=is_new_data)
        if is_new_data and self.is_whole:
            self.work.look_beyond_frames()

    def leave(self, code: int) -> None:
        """End the dashboard; if that would end the run of a plan, ask first. A second request needs no answer."""
        desk = self.opened_desk
        if desk is None or not desk.left_behind or self._is_leaving:
            self.app.exit(code)
            return
        self._is_leaving = True
        prepared = desk.end_prepared("End the dashboard, and the run of the plan with it?")

        def answered(is_meant: bool | None) -> None:
            if is_meant:
                self.app.exit(code)
            self._is_leaving = False

        self.app.push_screen(ConfirmDialog(prepared, GO_ON), answered)

    def on_screen_resume(self) -> None:
        """Tell what has waited for the last window to close, or for the end of typing."""
        if self.opened_desk is not None:
            self.opened_desk.tell_outcome()

    on_descendant_blur = on_screen_resume

    # Keys

    def take_key(self, key: str) -> bool:
        """Do what the registry says a key does here, move the cursor, or say where the key works.

        Returns whether it did.

        The app calls this before it looks at the next key. If the focused widget passed the key on, the key would
        arrive here after the next one had gone to the window that this one opens.
        """
        if not self.has_all_parts or (self.focused is self.query_one("#filter") and key != "escape"):
            return False
        registry = self.dashboard.session.registry
        action = registry.for_key(key, self.location.screen, self.mends)
        if action is not None:
            self._perform(self, action.id)
            return True
        if self._moves_cursor(key):
            return True
        if where := registry.elsewhere(key):
            self.tell(where)
        return bool(where)

    def _moves_cursor(self, key: str) -> bool:
        if self.location.page != "overview":
            return isinstance(self.focused, LineTable) and self.focused.take_key(key)
        place = self.model.place_after(key, 5, 5)
        if place is not None:
            self._choose_problem(place)
        return place is not None

    def _choose_problem(self, row: int) -> None:
        self.model.cursor, self.model.is_opened = row, False
        self.query_one("#overview", RowsView).remake()
        self.draw_footer()

    def on_rows_view_clicked(self, event: RowsView.Clicked) -> None:
        """Choose the problem that was clicked; a click on the chosen one opens it."""
        if event.row == self.model.cursor:
            self._perform(self, "row.open")
        else:
            self._choose_problem(event.row)

    def on_key(self, event: events.Key) -> None:
        """Do what a key does that came before the screen was there."""
        if self.take_key(event.key):
            event.stop()
            event.prevent_default()

    def on_key_bar_pressed(self, event: KeyBar.Pressed) -> None:
        self._perform(self, event.action_id)

    def on_line_table_opened(self) -> None:
        self._perform(self, "row.open")
