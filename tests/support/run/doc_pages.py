"""The pages that a reader of the repository meets, with their links, anchors and commands."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
INDEX = DOCS / "README.md"
PROGRAM = "klamm"

_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)", re.DOTALL)
_HEADING = re.compile(r"^#{1,6} (.+)$")
_FENCE = re.compile(r"^\s*```(\w*)")
_SPAN = re.compile(r"`([^`]+)`")
_REDIRECTION = re.compile(r"\s[<>]{1,2} ?\S+")
_SEPARATORS = frozenset(("|", "||", "&&", ";", "&"))


class Link(NamedTuple):
    """A link of a page: the path as written ("" is the page itself), and the heading it points to, if any."""

    target: str
    anchor: str


class Command(NamedTuple):
    """The words after ``klamm`` on a line of a page."""

    line: int
    words: list[str]


def pages() -> list[Path]:
    """Return every page of the docs, and the pages at the root."""
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]


def links(page: Path) -> list[Link]:
    """Return the links to files and headings, without links to other sites."""
    prose = "\n".join(text for _, language, text in _lines(page) if language is None)
    targets = [_split(target) for target in _LINK.findall(prose)]
    return [link for link in targets if "://" not in link.target and not link.target.startswith("mailto:")]


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    names: set[str] = set()
    for _, language, text in _lines(page):
        heading = _HEADING.match(text) if language is None else None
        if heading:
            name = _slug(heading[1])
            copies = sum(1 for known in names if known == name or re.fullmatch(rf"{re.escape(name)}-\d+", known))
            names.add(f"{name}-{copies}" if copies else name)
    return names


def typed_commands(page: Path) -> Iterator[Command]:
    """Yield what a reader is shown to type: lines that call klamm in sh blocks, after ``$`` in console blocks, and
    indented.
    """
    for number, language, text in _lines(page):
        is_prompted = language == "console" and text.lstrip().startswith("$ ")
        is_indented = language is None and text.startswith("    ")
        if language == "sh" or is_prompted or is_indented:
            for words in _calls(text.lstrip().removeprefix("$ ")):
                yield Command(number, words)


def quoted_commands(page: Path) -> Iterator[Command]:
    """Yield commands that running text names in backquotes."""
    for number, language, text in _lines(page):
        for span in _SPAN.findall(text) if language is None else ():
            if span.startswith(f"{PROGRAM} "):
                for words in _calls(span):
                    yield Command(number, words)


def fenced_blocks(page: Path, language: str) -> list[str]:
    """Return the text of a page's fenced blocks in one language."""
    blocks: list[list[str]] = []
    last = 0
    for number, of, text in _lines(page):
        if of == language:
            blocks += [[]] if number != last + 1 else []
            blocks[-1].append(text)
            last = number
    return ["\n".join(lines) for lines in blocks]


def _lines(page: Path) -> Iterator[tuple[int, str | None, str]]:
    """Yield the number, the language of the fenced block (None outside), and the text of each line."""
    language: str | None = None
    for number, text in enumerate(page.read_text("utf-8").splitlines(), start=1):
        fence = _FENCE.match(text)
        if fence:
            language = fence[1] if language is None else None
        else:
            yield number, language, text


def _split(target: str) -> Link:
    path, _, anchor = target.partition("#")
    return Link(path, anchor)


def _slug(heading: str) -> str:
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
    return re.sub(r"[^\w\- ]", "", text).strip().replace(" ", "-")


def _calls(line: str) -> Iterator[list[str]]:
    lexer = shlex.shlex(_REDIRECTION.sub("", line), posix=True, punctuation_chars="|&;")
    lexer.whitespace_split = True
    call: list[str] = []
    for word in [*lexer, ";"]:
        if word not in _SEPARATORS:
            call.append(word)
            continue
        if call[:1] == [PROGRAM]:
            yield call[1:]
        call = []
