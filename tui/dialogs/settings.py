"""All settings of a topic or a broker as a table, edited in place: value, who sets it, default, and what it means."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.widget import Widget
from textual.widgets import Input

from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import BadRequest
from engine.admin.configs.values import parse_additions, plain_value, reading_of
from tui.dialogs.dialog import Dialog
from tui.drawing.cells import Cell, Column, Tone
from tui.drawing.lines import Line, folded, line
from tui.drawing.units import NOTHING, plain
from tui.operations.operation import failure_text
from tui.operations.settings import AlterSettings, Setting, read_settings
from tui.screen.offers import EditSettings
from tui.state.table_model import Filter, Rows, TableModel
from tui.widgets.line_table import LineTable
from tui.widgets.lines_view import LinesView

_HINT = "enter edits   d drops   a adds   / filters   ^g goes on   esc: leave it"
_TYPING = "enter takes it   esc: leave it as it was"
_MEANING_LINES = 4


class SettingsDialog(Dialog[AlterSettings]):
    """The table; what is typed is collected, and altered together."""

    DEFAULT_CSS = """
    SettingsDialog LineTable { height: auto; min-height: 3; max-height: 55vh; background: $panel; }
    SettingsDialog #meaning { height: 4; margin-top: 1; }
    SettingsDialog #value { display: none; }
    SettingsDialog #value.-shown { display: block; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "enter", "Edit", show=False, priority=True),
        Binding("ctrl+g", "go_on", "Go on", show=False, priority=True),
    ]

    def __init__(self, offer: EditSettings) -> None:
        super().__init__(f"Settings of {offer.entity}", _HINT)
        self.offer = offer
        self.add_class("-wide")
        self._edits: dict[str, str | None] = dict(offer.edits)
        self._settings: list[Setting] | None = None
        """None: they have not been read yet."""
        self._empty = "reading …"
        self._model = TableModel()
        self._typed_for: Setting | None = None
        """The setting whose value is being typed."""
        self._typing = ""
        """What is typed: a "value", an "addition", a "filter", or nothing."""

    reads = True

    def body(self) -> list[Widget]:
        table = LineTable(id="settings")
        return [table, LinesView(id="meaning"), Input(id="value"), LinesView(id="problem", folds=True)]

    def on_mount(self) -> None:
        """Show the settings, if they have been read this quickly."""
        self._draw()
        self._table.set_model(self._model)
        self._table.focus()
        self._tell(self.offer.problem)
        self._find_refused()

    @property
    def _table(self) -> LineTable:
        return self.query_one(LineTable)

    async def fill(self, cluster: Cluster) -> None:
        """Show the settings; the cursor is on the one that was refused, or comes first, if there is one."""
        self._settings = await read_settings(cluster, self.offer.entity)
        self._empty = "nothing is set"
        if self.is_mounted:
            self._draw()
            self._find_refused()

    def _find_refused(self) -> None:
        refused = next((name for name in self._edits if name in self.offer.problem), self.offer.first)
        if refused and self._model.put_cursor_on(refused):
            self._draw()

    def not_filled(self, why: str) -> None:
        self._empty = f"the settings cannot be read: {why}"
        if self.is_mounted:
            self._draw()

    def again(self, problem: str) -> EditSettings:
        """Return the same table with the same edits, and with why they were refused."""
        return replace(self.offer, edits=self._edits, problem=problem)

    # Drawing

    def _draw(self) -> None:
        read = self._settings or []
        known = {setting.name for setting in read}
        added = [Setting(name, None, "", None, "") for name in self._edits if name not in known and self._settings]
        # What the offer came with stands on top, whatever the keys do then.
        rows = sorted([*added, *read], key=lambda setting: setting.name not in self.offer.edits)
        self._model.show(
            Rows(self._columns(), rows, lambda setting: setting.name, lambda setting: setting.name, self._empty)
        )
        self._table.refresh_rows(is_new_data=False)
        self._describe()

    def _columns(self) -> tuple[Column, ...]:
        def name(setting: Setting) -> Cell:
            return Cell(setting.name, Tone.STRONG if setting.is_own or setting.name in self._edits else Tone.PLAIN)

        return (
            Column("name", "SETTING", name, lambda setting: setting.name, width=24),
            Column("value", "VALUE", self._value, lambda setting: setting.value, is_wide=True, width=16),
            Column("source", "SET BY", lambda setting: Cell(setting.source, Tone.QUIET),
                   lambda setting: setting.source, rank=1),
            Column("default", "DEFAULT", lambda setting: Cell(plain(setting.default or ""), Tone.QUIET),
                   lambda setting: setting.default, rank=2, width=10),
        )  # fmt: skip

    def _value(self, setting: Setting) -> Cell:
        """Return the value, or what it would be."""
        if setting.name not in self._edits:
            text = "hidden" if setting.is_secret else NOTHING if setting.value is None else setting.value
            return Cell(plain(text), Tone.STRONG if setting.is_own else Tone.QUIET if setting.is_fixed else Tone.PLAIN)
        new = self._edits[setting.name]
        shown = (
            f"dropped → {NOTHING if setting.default is None else setting.default or 'empty'}" if new is None else new
        )
        before = (
            f"{setting.value} → " if new is not None and setting.value is not None and not setting.is_secret else ""
        )
        return Cell(plain(f"{before}{shown}"), Tone.ACCENT)

    def _describe(self) -> None:
        setting = self._model.cursor_item
        lines: list[Line] = []
        if setting is not None:
            fixed = "only the broker's file sets it; " if setting.is_fixed else ""
            wanted = self._edits.get(setting.name, setting.value) or setting.default
            reading = reading_of(setting.name, wanted or "")
            read = "" if reading is None else f"{wanted} is {reading}. "
            text = f"{read}{fixed}{setting.meaning or 'klamm does not know this setting'}"
            lines = folded(line((plain(text), Tone.QUIET)), max(20, self._table.size.width - 2))
        self.query_one("#meaning", LinesView).set_lines(lines[:_MEANING_LINES])

    def _tell(self, problem: str) -> None:
        self.query_one("#problem", LinesView).set_lines([line((problem, Tone.BAD))] if problem else [])

    def _hint(self, text: str) -> None:
        self.query_one("#hint", LinesView).set_lines([line((text, Tone.QUIET))])

    # Keys

    def on_key(self, event: events.Key) -> None:
        if self._typing:
            return
        setting = self._model.cursor_item
        if event.key == "d" and setting is not None:
            self._drop(setting)
        elif event.key == "a":
            self._type("addition", "", "NAME=VALUE")
        elif event.key == "slash":
            self._type("filter", self._model.filter.text, "a part of the name")
        elif not self._table.take_key(event.key):
            return
        event.stop()
        event.prevent_default()

    def on_input_changed(self, event: Input.Changed) -> None:
        if self._typing == "filter":
            self._filter(event.value)

    def _filter(self, text: str) -> None:
        self._model.set_filter(Filter(text))
        # Other names may hold this one.
        self._model.put_cursor_on(text.strip())
        self._draw()

    def on_line_table_moved(self) -> None:
        self._describe()

    def on_line_table_opened(self) -> None:
        self.action_enter()

    def _drop(self, setting: Setting) -> None:
        if setting.name in self._edits:
            del self._edits[setting.name]
        elif setting.is_own:
            self._edits[setting.name] = None
        else:
            self._tell(f"{setting.name} is not set here, so there is nothing to drop")
            return
        self._tell("")
        self._draw()

    def _type(self, what: str, value: str, placeholder: str) -> None:
        field = self.query_one("#value", Input)
        self._typing = what
        field.value, field.placeholder = value, placeholder
        field.add_class("-shown")
        field.focus()
        self._hint(f"{placeholder}: {_TYPING}")

    def _stop_typing(self) -> None:
        self._typing, self._typed_for = "", None
        self.query_one("#value", Input).remove_class("-shown")
        self._table.focus()
        self._hint(_HINT)

    def action_enter(self) -> None:
        """Edit the value under the cursor, or take what was typed."""
        if self._typing:
            self._take(self.query_one("#value", Input).value)
            return
        setting = self._model.cursor_item
        if setting is None:
            return
        if setting.is_fixed:
            self._tell(f"{setting.name} cannot be altered while the broker runs: its file sets it")
            return
        self._typed_for = setting
        edited = self._edits.get(setting.name)
        self._type("value", edited if edited is not None else setting.value or "", setting.name)

    def _take(self, text: str) -> None:
        """Take what was typed, if it can be a value."""
        try:
            if self._typing == "addition" and text.strip():
                self._edits |= parse_additions(text)
            elif self._typing == "value" and self._typed_for is not None:
                self._set(self._typed_for, plain_value(self._typed_for.name, text.strip()))
        except BadRequest as error:
            self._tell(failure_text(error))
            return
        if self._typing == "filter":
            self._filter(text)
        self._tell("")
        self._stop_typing()
        self._draw()

    def _set(self, setting: Setting, value: str) -> None:
        if value == (setting.value or ""):
            self._edits.pop(setting.name, None)
        else:
            self._edits[setting.name] = value

    def action_leave(self) -> None:
        if self._typing:
            self._stop_typing()
        else:
            super().action_leave()

    def action_go_on(self) -> None:
        if self._typing:
            self._take(self.query_one("#value", Input).value)
        if self._typing:
            return
        if not self._edits:
            self._tell("nothing is edited: enter edits the value under the cursor")
            return
        self.dismiss(AlterSettings.of(self.offer.entity, self._edits))
