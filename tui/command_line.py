"""What is typed behind ``:``: where to go, or what to do. Pure.

``:t orders`` shows the partitions of a topic, ``:b 2`` those of a broker, ``:g billing`` a group; the name of a screen
shows it, the name of an action does it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tui.actions import PAGES, Registry
from tui.location import Location

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


@dataclass(frozen=True, slots=True)
class GoTo:
    """Show a screen."""

    location: Location


@dataclass(frozen=True, slots=True)
class Do:
    """Carry out an action."""

    action_id: str


@dataclass(frozen=True, slots=True)
class NotUnderstood:
    """What is wrong with what was typed."""

    message: str


Command = GoTo | Do | NotUnderstood


def parse_command(text: str, registry: Registry) -> Command:
    """Return what a line asks for."""
    word, _, rest = text.strip().removeprefix(":").partition(" ")
    rest = rest.strip()
    if not word:
        return NotUnderstood("type a screen, such as :topics, or an action")
    pages = {name for name, _, _ in PAGES}
    page = word if word in pages else ALIASES.get(word)
    if page is not None:
        return _page_command(page, rest)
    action_id = _WORDS.get(word, word)
    if any(action.id == action_id for action in registry.actions):
        return Do(action_id)
    return NotUnderstood(f"nothing is called {word!r}: {_suggestion(word, pages, registry)}")


def suggestions(text: str, registry: Registry, named: Callable[[str], Iterable[str]] = lambda page: ()) -> list[str]:
    """Return what the text may become: words that begin like it, or behind a screen the names that ``named`` has.

    Names that begin like what was typed come before those that only contain it.
    """
    word, space, part = text.partition(" ")
    if space:
        page = ALIASES.get(word, word)
        found = [name for name in named(page) if part.lower() in name.lower()]
        found.sort(key=lambda name: not name.lower().startswith(part.lower()))
        return [f"{word} {name}" for name in found]
    words = [name for name, _, _ in PAGES] + [action.id for action in registry.actions if "page." not in action.id]
    return [word for word in words if word.startswith(text)]


def _page_command(page: str, rest: str) -> Command:
    if not rest:
        return GoTo(Location(page))
    match page:
        case "topics" | "partitions":
            topic, dash, number = rest.rpartition("-")
            if page == "partitions" and dash and number.isdecimal():
                return GoTo(Location("partitions", topic=topic, row=rest))
            return GoTo(Location("partitions", topic=rest))
        case "brokers":
            if not rest.isdecimal():
                return NotUnderstood(f"a broker's id is a number, not {rest!r}")
            return GoTo(Location("partitions", broker=int(rest)))
        case "groups":
            return GoTo(Location("group", group=rest))
        case "zookeeper":
            return GoTo(Location("zookeeper", path=rest if rest.startswith("/") else f"/{rest}"))
    return NotUnderstood(f"{page} takes no name: type :{page}")


def _suggestion(word: str, pages: set[str], registry: Registry) -> str:
    from difflib import get_close_matches

    known = [*pages, *ALIASES, *(action.id for action in registry.actions)]
    close = get_close_matches(word, known, 1)
    return f"did you mean {close[0]!r}?" if close else "? shows what there is"
