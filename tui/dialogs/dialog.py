"""The frame of every window: a panel in the middle, one box, closed with esc."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cached_property
from typing import ClassVar, NamedTuple, TypeVar

from textual import events
from textual.app import ComposeResult
from textual.await_complete import AwaitComplete
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widget import Widget

from tui.actions import key_label
from tui.drawing.cells import Tone
from tui.drawing.lines import Line, line
from tui.widgets.lines_view import LinesScroll, LinesView

Result = TypeVar("Result")
MORE = "   more with ↓"
"""The hint where text continues below."""
SAME = "the same as a command"
GO_ON = "go on with"
_TOO_EARLY = "{} came too early for this window: press it again"


class EarlyKeys(ModalScreen[Result]):
    """A window that gets the keys which came before it was drawn."""

    TAKES_EARLY_KEYS: ClassVar[bool] = True
    """Whether keys that came before it was drawn are meant for it."""
    _is_ready = False

    def holds_back(self, event: events.Key) -> bool:
        """Keep a key until the window is drawn and its field has the focus; return whether it was kept."""
        if not self._is_ready:
            self._early.append(event)
        return not self._is_ready

    def on_mount(self) -> None:
        """Take keys once the window is drawn; a field asks the app for the focus, so this request is queued behind that
        one."""
        self.call_after_refresh(self.app.call_later, self._take_keys)

    def dismiss(self, result: Result | None = None) -> AwaitComplete:
        """Close it if it is in front. Textual would close whatever is in front instead, even the dashboard's screen."""
        if self.app.screen is not self:
            return AwaitComplete()
        closing = super().dismiss(result)
        # Textual 8 keeps the lines that the last 1,024 widgets have drawn, gone or not (its issue 6665): some 100 kB
        # for each window, unless the widget waits to be drawn again.
        for widget in self.walk_children(Widget):
            widget.refresh()
        return closing

    @cached_property
    def _early(self) -> list[events.Key]:
        return []

    async def _take_keys(self) -> None:
        self._is_ready = True
        early = self._early.copy()
        self._early.clear()
        if early and not self.TAKES_EARLY_KEYS:
            keys = " ".join(key_label(event.key) for event in early)
            self.notify(_TOO_EARLY.format(keys), severity="warning", markup=False)
            return
        for event in early:
            # By the app: one of them may close this window or open another.
            await self.app.on_event(event)


class Dialog(EarlyKeys[Result]):
    """A window over the dashboard."""

    DEFAULT_CSS = """
    Dialog {
        align: center middle;
        background: $background 60%;
        & > Vertical {
            width: 80%;
            max-width: 110;
            height: auto;
            max-height: 90%;
            background: $panel;
            padding: 1 2;
            border-left: outer $accent;
        }
        & .dialog--title { height: auto; margin-bottom: 1; }
        & .dialog--hint { margin-top: 1; }
        & Input { background: $background; border: none; height: 1; padding: 0 1; margin-bottom: 1; }
        & Input:focus { background: $selected; border: none; }
    }
    Dialog.-wide > Vertical { width: 94%; max-width: 160; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "Close", show=False, priority=True)]

    def __init__(self, title: str, hint: str = "esc closes") -> None:
        super().__init__()
        self.dialog_title = title
        self.hint = hint
        self._is_over = False

    def on_resize(self) -> None:
        """Give text that can be scrolled what room the rest leaves, so that hint and field stay in sight."""
        self.call_after_refresh(self._fit)

    def _fit(self) -> None:
        panel = self.query_one(Vertical)
        for scroll in panel.query_children(LinesScroll):
            rest = sum(
                child.outer_size.height + child.styles.margin.height for child in panel.children if child is not scroll
            )
            room = max(3, self.size.height * 9 // 10 - panel.styles.padding.height - rest)
            scroll.styles.max_height = room
            if scroll.virtual_size.height > room and MORE not in self.hint:
                self.hint += MORE
                self.query_one("#hint", LinesView).set_lines([line((self.hint, Tone.QUIET))])

    def body(self) -> list[Widget]:
        """Return what stands between title and hint."""
        return []

    def compose(self) -> ComposeResult:
        with Vertical():
            yield LinesView([line((self.dialog_title, Tone.STRONG))], id="title", classes="dialog--title", folds=True)
            yield from self.body()
            yield LinesView([line((self.hint, Tone.QUIET))], id="hint", classes="dialog--hint", folds=True)

    def action_leave(self) -> None:
        self.dismiss(None)

    def finish(self) -> None:
        """Close it because its subject is over; if another window covers it, as soon as that one is gone."""
        self._is_over = True
        self.dismiss(None)

    def on_screen_resume(self) -> None:
        """Leave as well, if nothing needs it any more."""
        if self._is_over:
            self.dismiss(None)


class Also(NamedTuple):
    """Another key of a window: its name in Textual, what it does, and what it calls."""

    key: str
    does: str
    act: Callable[[], object]


class TextDialog(Dialog[None]):
    """Shows a message, with a command if there is one to copy; it stays until it is closed."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,q", "leave", "Close", show=False),
        Binding("ctrl+y,y", "copy", "Copy", show=False),
    ]

    def __init__(
        self, title: str, lines: list[Line], *, copied: str = "", leads: str = SAME, is_wide: bool = False,
        folds: bool = False, also: Also | None = None, renewed: Callable[[], list[Line]] | None = None,
    ) -> None:  # fmt: skip
        more = "" if also is None else f"   {key_label(also.key)} {also.does}"
        super().__init__(title, "esc closes" + "   ^y copies the command" * bool(copied) + more)
        self._lines = lines
        self._copied, self._leads = copied, leads
        self._also = also
        self._folds = folds
        self._renewed = renewed
        self.set_class(is_wide, "-wide")

    def body(self) -> list[Widget]:
        command = [command_view(self._copied, self._leads)] if self._copied else []
        return [LinesScroll(self._lines, id="lines", folds=self._folds), *command]

    def on_mount(self) -> None:
        """Follow the changes of what it shows."""
        if self._renewed is not None:
            self.set_interval(0.5, self._renew)

    def _renew(self) -> None:
        if self._renewed is not None and self.query("#lines"):
            self.query_one("#lines", LinesScroll).view.set_lines(self._renewed())

    def action_copy(self) -> None:
        if self._copied:
            self.app.copy_to_clipboard(self._copied)

    def on_key(self, event: events.Key) -> None:
        """Close it, and carry out the action of a key that it offers."""
        if self._also is not None and event.key == self._also.key:
            event.stop()
            self.dismiss(None)
            self.app.call_next(self._also.act)


def command_view(command: str, leads: str = SAME) -> LinesView:
    """Return a command with what it is, folded where it is long."""
    return LinesView([(), line((leads, Tone.QUIET)), line((command, Tone.ACCENT))], id="command", folds=True)


class ProgressDialog(Dialog[None]):
    """Shows the progress of long work. Closing it gives the work up."""

    HINT: ClassVar[str] = "esc gives it up"

    def __init__(self, title: str, what: str) -> None:
        super().__init__(title, self.HINT)
        self._notes: list[Line] = []
        self._what = what
        self._started = time.monotonic()

    def body(self) -> list[Widget]:
        return [LinesView(id="progress", folds=True)]

    def on_mount(self) -> None:
        """Let the elapsed time grow while there is no news."""
        self._draw()
        self.set_interval(0.5, self._draw)

    def show(self, text: str) -> None:
        self._what = text
        self._draw()

    def note(self, text: str) -> None:
        """Keep something in sight that the user should know."""
        self._notes.append(line(("! ", Tone.WARN), (text, Tone.WARN)))
        self._draw()

    def _draw(self) -> None:
        if self.is_mounted and self.query("#progress"):
            elapsed = f"   {time.monotonic() - self._started:.0f} s"
            lines = [*self._notes, line((self._what, Tone.ACCENT), (elapsed, Tone.QUIET))]
            self.query_one("#progress", LinesView).set_lines(lines)


class WaitDialog(ProgressDialog):
    """Says what is being waited for; closing it leaves the work alone."""

    HINT = "esc goes back to the dashboard; the work goes on"

    def on_key(self, event: events.Key) -> None:
        """Say that an answer comes before its question."""
        if event.key in ("y", "n", "enter"):
            self.notify(_TOO_EARLY.format(key_label(event.key)), severity="warning", markup=False)
