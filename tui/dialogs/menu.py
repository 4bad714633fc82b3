"""A menu of a few choices; and the line to type a command after ``:``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Input, OptionList
from textual.widgets.option_list import Option

from engine.admin.cluster.errors import BadRequest
from tui.actions import PAGES, Registry
from tui.dialogs.dialog import Dialog
from tui.drawing.cells import Tone
from tui.drawing.lines import line
from tui.drawing.units import plain
from tui.state.location import Location
from tui.widgets.lines_view import LinesView


@dataclass(frozen=True, slots=True)
class Choice:
    """One thing to choose; if ``why_not`` has a reason, it cannot be chosen."""

    id: str
    title: str
    reason_against: str = ""
    tone: Tone = Tone.PLAIN


_STYLES = {Tone.GOOD: "$success", Tone.WARN: "$warning", Tone.BAD: "$error", Tone.ACCENT: "$accent"}


class MenuDialog(Dialog[str]):
    """A list; enter or a click chooses, and so does the number of the line."""

    DEFAULT_CSS = """
    MenuDialog OptionList { background: $panel; border: none; height: auto; max-height: 20; padding: 0; }
    MenuDialog OptionList:focus { border: none; }
    MenuDialog OptionList > .option-list--option-highlighted { background: $selected; color: $foreground; }
    """

    def __init__(self, title: str, choices: Sequence[Choice]) -> None:
        super().__init__(title, "enter chooses   esc: none of it")
        self._choices = choices

    def body(self) -> list[Widget]:
        options = []
        for number, choice in enumerate(self._choices, 1):
            text = f"{number}  {plain(choice.title)}"
            text += f"   {plain(choice.reason_against)}" if choice.reason_against else ""
            styled = Content.styled(text, _STYLES.get(choice.tone, ""))
            options.append(Option(styled, choice.id, disabled=bool(choice.reason_against)))
        return [OptionList(*options, id="choices")]

    def on_mount(self) -> None:
        self.query_one(OptionList).focus()

    def on_key(self, event: events.Key) -> None:
        steps = {"j": OptionList.action_cursor_down, "k": OptionList.action_cursor_up, "g": OptionList.action_first,
                 "G": OptionList.action_last}  # fmt: skip
        if event.key in steps:
            steps[event.key](self.query_one(OptionList))
        for number, choice in enumerate(self._choices, 1):
            if event.key == str(number) and not choice.reason_against:
                self.dismiss(choice.id)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.dismiss(event.option.id)


class CommandDialog(Dialog[str]):
    """One line to type into; the tab key completes the word."""

    DEFAULT_CSS = """
    CommandDialog { align: left bottom; background: $background 0%; }
    CommandDialog > Vertical { width: 100%; max-width: 100%; padding: 0 1; }
    CommandDialog .dialog--title, CommandDialog .dialog--hint { display: none; }
    CommandDialog Input { margin: 0; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("tab", "complete", "Complete", show=False, priority=True)]

    def __init__(self, suggest: Callable[[str], list[str]]) -> None:
        super().__init__("Command")
        self._suggest = suggest

    def body(self) -> list[Widget]:
        return [LinesView(id="suggestions"), Input(":", id="command", select_on_focus=False)]

    def on_mount(self) -> None:
        field = self.query_one(Input)
        field.focus()
        field.cursor_position = 1

    @property
    def _words(self) -> list[str]:
        text = self.query_one(Input).value.removeprefix(":")
        return self._suggest(text) if text else []

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        words_text = "  ".join(map(plain, self._words[:8]))
        self.query_one("#suggestions", LinesView).set_lines([line((words_text, Tone.QUIET))] if words_text else [])

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.dismiss(event.value)

    def action_complete(self) -> None:
        """Take the first word that begins with what was typed."""
        for word in self._words[:1]:
            field = self.query_one(Input)
            # A name is the end of a command, a word alone may be followed by one.
            field.value = f":{word}" if " " in word else f":{word} "
            field.cursor_position = len(field.value)


# What is typed behind ``:``: ``t orders`` shows the partitions of a topic, ``b 2`` those of a broker, ``g billing`` a
# group; the name of a screen shows it, the name of an action does it.

ALIASES = {
    "o": "overview",
    "b": "brokers",
    "broker": "brokers",
    "t": "topics",
    "topic": "topics",
    "p": "partitions",
    "partition": "partitions",
    "g": "groups",
    "group": "groups",
    "lag": "groups",
    "r": "reassignments",
    "reassign": "reassignments",
    "plan": "plans",
    "events": "timeline",
    "zk": "zookeeper",
    "log": "logs",
}
"""Short words for screens."""

_WORDS = {"q": "quit", "q!": "quit", "exit": "quit", "h": "help", "cluster": "clusters", "theme": "view.theme"}


def parse_command(text: str, registry: Registry) -> Location | str:
    """Return the place that a line names, or the id of its action; raises BadRequest if it is neither."""
    word, _, rest = text.strip().removeprefix(":").partition(" ")
    rest = rest.strip()
    if not word:
        raise BadRequest("type a screen, such as :topics, or an action")
    pages = {name for name, _, _ in PAGES}
    page = word if word in pages else ALIASES.get(word)
    if page is not None:
        return _page_command(page, rest)
    action_id = _WORDS.get(word, word)
    if any(action.id == action_id for action in registry.actions):
        return action_id
    raise BadRequest(f"nothing is called {word!r}: {_suggestion(word, pages, registry)}")


def suggestions(text: str, registry: Registry, named: Callable[[str], Iterable[str]] = lambda page: ()) -> list[str]:
    """Return completions of the text: words that begin with it, or after a screen's word the names that ``named`` has.

    Names that begin with what was typed come before those that only contain it.
    """
    word, space, part = text.partition(" ")
    if space:
        page = ALIASES.get(word, word)
        names = [name for name in named(page) if part.lower() in name.lower()]
        names.sort(key=lambda name: not name.lower().startswith(part.lower()))
        return [f"{word} {name}" for name in names]
    words = [name for name, _, _ in PAGES] + [action.id for action in registry.actions if "page." not in action.id]
    return [word for word in words if word.startswith(text)]


def _page_command(page: str, rest: str) -> Location:
    if not rest:
        return Location(page)
    match page:
        case "topics" | "partitions":
            topic, dash, number = rest.rpartition("-")
            if page == "partitions" and dash and number.isdecimal():
                return Location("partitions", topic=topic, row=rest)
            return Location("partitions", topic=rest)
        case "brokers":
            if not rest.isdecimal():
                raise BadRequest(f"a broker's id is a number, not {rest!r}")
            return Location("partitions", broker=int(rest))
        case "groups":
            return Location("group", group=rest)
        case "zookeeper":
            return Location("zookeeper", path=rest if rest.startswith("/") else f"/{rest}")
    raise BadRequest(f"{page} takes no name: type :{page}")


def _suggestion(word: str, pages: set[str], registry: Registry) -> str:
    from difflib import get_close_matches

    known = [*pages, *ALIASES, *(action.id for action in registry.actions)]
    close = get_close_matches(word, known, 1)
    return f"did you mean {close[0]!r}?" if close else "? shows what there is"
