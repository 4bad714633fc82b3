"""Asks for what an operation needs, and checks the input before the window closes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.widget import Widget
from textual.widgets import Input

from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import AdminError
from tui.dialogs.dialog import Dialog
from tui.drawing.cells import Tone
from tui.drawing.lines import Line, line
from tui.operations.operation import failure_text
from tui.screen.offers import Ask, FieldNeeded
from tui.widgets.lines_view import LinesView

FEW = 4
"""Up to this many fields have their name on a line above them; with more, the name stands beside the field."""


class FormDialog(Dialog[Any]):
    """Fields one below the other; enter in the last one goes on."""

    DEFAULT_CSS = """
    FormDialog .fields { height: auto; max-height: 60vh; scrollbar-size-vertical: 1; }
    FormDialog .field { height: 1; & > LinesView { width: 18; } & > Input { width: 1fr; margin: 0; } }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+g", "go_on", "Go on", show=False, priority=True),
        # Before the field itself takes them: what is typed next belongs to the next field already.
        Binding("enter", "next", "Next", show=False, priority=True),
        Binding("down", "move(1)", "Next", show=False, priority=True),
        Binding("up", "move(-1)", "Before", show=False, priority=True),
    ]

    def __init__(self, ask: Ask) -> None:
        self.ask = ask
        """What is asked for; once the window has closed, with what was typed."""
        more = "" if len(ask.fields) <= FEW else "   ^g: on at once"
        goes_on = "enter goes on" if len(ask.fields) == 1 else f"enter: next field, then on{more}"
        super().__init__(ask.title, f"{goes_on}   esc: leave it")

    def body(self) -> list[Widget]:
        problem_lines = [line((self.ask.problem, Tone.BAD))] if self.ask.problem else []
        problem = LinesView(problem_lines, id="problem", folds=True)
        if len(self.ask.fields) <= FEW:
            return [*(part for field in self.ask.fields for part in _below(field)), problem]
        rows = VerticalScroll(*map(_beside, self.ask.fields), classes="fields", can_focus=False)
        return [rows, problem]

    def on_mount(self) -> None:
        """Begin with the first field; in a form that was refused, with the one at fault."""
        self._go_to(self.ask.at_fault() or self.ask.fields[0])

    def _go_to(self, field: FieldNeeded) -> None:
        self.query_one(f"#field-{field.name}", Input).focus()

    def again(self, problem: str) -> Ask:
        """Return the same form, with what was typed, and with why it was refused."""
        return replace(self.ask, problem=problem)

    @property
    def reads(self) -> bool:
        """Whether it wants to know something of the cluster."""
        return self.ask.hints is not None

    def not_filled(self, why: str) -> None:
        """Leave the hints as they are: the cluster has not said more."""

    async def fill(self, cluster: Cluster) -> None:
        """Show better hints, once the cluster has said what it does by default."""
        assert self.ask.hints is not None
        for name, hint in (await self.ask.hints(cluster)).items():
            for label in self.query(f"#label-{name}").results(LinesView):
                label.set_lines([_labelled(next(field.label for field in self.ask.fields if field.name == name), hint)])

    def action_next(self) -> None:
        """Go to the next field; after the last, check all and go on."""
        if self.focused is self.query(Input).last():
            self.action_go_on()
        else:
            self.action_move(1)

    def action_move(self, by: int) -> None:
        inputs = list(self.query(Input))
        at = next((index for index, field_input in enumerate(inputs) if field_input is self.focused), 0)
        self.set_focus(inputs[max(0, min(at + by, len(inputs) - 1))])

    def action_go_on(self) -> None:
        """Check all fields and go on; if one is wrong, say so and keep the window open."""
        values = {field.name: self.query_one(f"#field-{field.name}", Input).value for field in self.ask.fields}
        self.ask = replace(
            self.ask, fields=tuple(replace(field, value=values[field.name]) for field in self.ask.fields)
        )
        try:
            operation = self.ask.build(values)
        except (AdminError, OSError) as error:
            self.ask = self.again(failure_text(error))
            self.query_one("#problem", LinesView).set_lines([line((self.ask.problem, Tone.BAD))])
            if (field := self.ask.at_fault()) is not None:
                self._go_to(field)
            return
        self.dismiss(operation)


def _below(field: FieldNeeded) -> list[Widget]:
    label = LinesView([_labelled(field.label, field.hint)], id=f"label-{field.name}", folds=True)
    return [label, Input(field.value, id=f"field-{field.name}")]


def _labelled(label: str, hint: str) -> Line:
    return line((label, Tone.STRONG), (f"   {hint}", Tone.QUIET))


def _beside(field: FieldNeeded) -> Widget:
    value = Input(field.value, placeholder=field.hint, id=f"field-{field.name}")
    return Horizontal(LinesView([line(field.label)]), value, classes="field")
