"""Asks for what an operation needs. What is typed is checked before the window closes."""

from __future__ import annotations

from typing import Any

from textual.widget import Widget
from textual.widgets import Input

from engine.admin.cluster.errors import AdminError
from tui.cells import Tone
from tui.dialogs.dialog import Dialog
from tui.lines import line
from tui.offers import Ask
from tui.operations.operation import failure_text
from tui.widgets.lines_view import LinesView


class FormDialog(Dialog[Any]):
    """Fields one below the other; enter in the last one goes on."""

    def __init__(self, ask: Ask) -> None:
        super().__init__(ask.title, "enter: next field, then on   esc: leave it")
        self._fields = ask.fields
        self._build = ask.build

    def body(self) -> list[Widget]:
        """Return a label and an input for each field."""
        widgets: list[Widget] = []
        for field in self._fields:
            label = LinesView()
            label.set_lines([line(field.label, (f"   {field.hint}", Tone.QUIET))])
            widgets += [label, Input(field.value, id=f"field-{field.name}")]
        widgets.append(LinesView(id="problem"))
        return widgets

    def on_mount(self) -> None:
        """Begin with the first field."""
        self.query(Input).first().focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Go to the next field; after the last, check all and go on."""
        event.stop()
        inputs = list(self.query(Input))
        at = inputs.index(event.input)
        if at + 1 < len(inputs):
            inputs[at + 1].focus()
            return
        values = {field.name: self.query_one(f"#field-{field.name}", Input).value for field in self._fields}
        try:
            operation = self._build(values)
        except AdminError as error:
            self.query_one("#problem", LinesView).set_lines([line((failure_text(error), Tone.BAD))])
            return
        self.dismiss(operation)
