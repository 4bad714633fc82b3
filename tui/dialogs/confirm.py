"""Asks before a change, and shows its outcome.

``y`` goes ahead and ``n`` does not; there is no default, and enter does nothing. If data can be lost, the user has to
type the name of what is lost.
"""

from __future__ import annotations

from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.widget import Widget
from textual.widgets import Input

from tui.dialogs.dialog import SAME, Dialog, TextDialog, command_view
from tui.drawing.cells import Tone
from tui.drawing.lines import Line, line, table_lines
from tui.drawing.units import plain
from tui.operations.operation import Outcome, Prepared
from tui.widgets.lines_view import LinesScroll, LinesView


class ConfirmDialog(Dialog[bool]):
    """Shows what would happen, and asks."""

    TAKES_EARLY_KEYS = False
    """A key does not agree to what was not shown yet."""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "Yes", show=False),
        Binding("n", "answer(False)", "No", show=False),
        Binding("ctrl+y", "copy", "Copy the command", show=False),
        # The field has the focus where a name is wanted, and a long preview is to be read all the same.
        Binding("down", "scroll_preview(1)", "Down", show=False, priority=True),
        Binding("up", "scroll_preview(-1)", "Up", show=False, priority=True),
        Binding("pagedown", "scroll_preview(10)", "Page down", show=False, priority=True),
        Binding("pageup", "scroll_preview(-10)", "Page up", show=False, priority=True),
    ]

    def __init__(self, prepared: Prepared, leads: str = SAME) -> None:
        word = prepared.typed
        hint = f"type {plain(word)} and press enter   esc: no" if word else "y: yes   n: no"
        super().__init__(prepared.question, f"{hint}   ^y copies the command")
        self._prepared = prepared
        self._leads = leads

    def body(self) -> list[Widget]:
        """Return warnings, old and new, the command, and the field for a name if one is needed."""
        prepared = self._prepared
        lines: list[Line] = [line(("! ", Tone.WARN), (text, Tone.WARN)) for text in prepared.warnings]
        lines += [()] * bool(lines) + [line(text) for text in prepared.lines]
        widgets: list[Widget] = [
            LinesScroll(lines, id="preview", folds=True),
            command_view(prepared.command, self._leads),
        ]
        if prepared.typed is not None:
            widgets.append(Input(id="typed", placeholder=f"type {plain(prepared.typed)} here"))
        return widgets

    def on_mount(self) -> None:
        self.query_one("#preview" if self._prepared.typed is None else "#typed").focus()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """If a name is needed, y and n are letters of it."""
        return action != "answer" or self._prepared.typed is None

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        # A name with control characters is shown, and so typed, with signs in their place.
        typed = self._prepared.typed or ""
        if event.value in (typed, plain(typed)):
            self.dismiss(True)
            return
        text = f"that is not {plain(typed)!r}; nothing was changed so far   esc: no"
        self.query_one("#hint", LinesView).set_lines([line((text, Tone.BAD))])

    def action_answer(self, is_meant: bool) -> None:
        self.dismiss(is_meant)

    def action_leave(self) -> None:
        self.dismiss(False)

    def action_scroll_preview(self, by: int) -> None:
        """Show what stands further down or up."""
        self.query_one("#preview", LinesScroll).scroll_relative(y=by, animate=False)

    def action_copy(self) -> None:
        self.app.copy_to_clipboard(self._prepared.command)


class OutcomeDialog(TextDialog):
    """Shows what became of an operation, row by row; it stays until it is closed."""

    def __init__(self, outcome: Outcome, command: str, leads: str = SAME) -> None:
        word = outcome.verdict or ("done" if outcome.is_good else "not all of it was done")
        lines: list[Line] = [line(("✖ ", Tone.BAD), (text, Tone.BAD)) for text in outcome.errors]
        sums = [text for text in (*outcome.sums, outcome.counts) if text]
        lines += [line((text, Tone.STRONG)) for text in sums] + [()] * bool(sums)
        lines += table_lines(outcome.columns, outcome.rows) if outcome.rows else []
        lines += [line((text, Tone.QUIET)) for text in outcome.notes]
        super().__init__(f"{outcome.title}: {word}", lines, copied=command, leads=leads, is_wide=True)

    def on_key(self, event: events.Key) -> None:
        """Close it at the key of a screen, and show that."""
        if event.key.isdecimal():
            self.dismiss(None)
            self.app.call_next(self.app.on_event, events.Key(event.key, event.character))
