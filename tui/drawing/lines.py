"""Lines of text with tones, for everything that is not a table. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence, Set

from rich.cells import cell_len, set_cell_size

from tui.drawing.cells import Tone

Span = tuple[str, Tone]
Line = tuple[Span, ...]
_ELIDED_MIN = 9
"""In less room the beginning says more than both ends."""


def line(*parts: str | Span) -> Line:
    """Return a line; a text alone has no tone."""
    return tuple((part, Tone.PLAIN) if isinstance(part, str) else part for part in parts)


def width_of(spans: Line) -> int:
    return sum(cell_len(text) for text, _ in spans)


def text_of(spans: Line) -> str:
    """Return a line without its tones, and without blanks at its end."""
    return "".join(text for text, _ in spans).rstrip()


def cut(text: str, length: int) -> str:
    """Return a text of at most so many characters; one that is cut ends with an ellipsis."""
    return text if len(text) <= length else f"{text[: length - 1]}…"


def elided(text: str, width: int) -> str:
    """Return a name in at most ``width`` cells. Its middle is left out if need be: names differ at both ends."""
    if cell_len(text) <= width or width < _ELIDED_MIN:
        return text
    tail = set_cell_size(text[::-1], (width - 1) // 2)[::-1]
    return set_cell_size(text, width - 1 - cell_len(tail)) + "…" + tail


def fitted(whole: Line, width: int) -> Line:
    """Return the line in exactly ``width`` cells; a line that is cut ends with an ellipsis."""
    spans: list[Span] = []
    left = width
    for text, tone in whole:
        length = cell_len(text)
        if length > left:
            if left > 0:
                begin = set_cell_size(text, left - 1).rstrip(" ,")
                spans.append((f"{begin}…{' ' * (left - 1 - cell_len(begin))}", tone))
            return tuple(spans)
        spans.append((text, tone))
        left -= length
    return (*spans, (" " * left, Tone.PLAIN)) if left else tuple(spans)


def folded(long: Line, width: int) -> list[Line]:
    """Return the line as several if it is too long: broken at blanks, or inside a word that is too long by itself.

    All of them begin with as many blanks; behind a label, a first part that ends with two, they stand below its text.
    """
    if width <= 0 or width_of(long) <= width:
        return [long]
    whole = "".join(text for text, _ in long)
    label = long[0][0]
    hangs = cell_len(label) if label.endswith("  ") else len(whole) - len(whole.lstrip(" "))
    blanks = min(hangs, width // 2)
    begin: list[Span] = [(" " * blanks, Tone.PLAIN)] if blanks else []
    lines: list[Line] = []
    spans: list[Span] = []
    room = width
    for text, tone in long:
        for word in re.findall(r" +|[^ ]+", text):
            if cell_len(word) > room and room < width - blanks:
                lines.append(tuple(spans))
                spans, room = [*begin], width - blanks
                if word.isspace():
                    continue
            while cell_len(word) > room:
                head = set_cell_size(word, room)
                lines.append((*spans, (head, tone)))
                spans, room = [*begin], width - blanks
                word = word[len(head) :]
            spans.append((word, tone))
            room -= cell_len(word)
    return [*lines, tuple(spans)] if spans else lines


def beside(left: Sequence[Line], right: Sequence[Line], *, left_width: int, gap: int = 3) -> list[Line]:
    rows = []
    for index in range(max(len(left), len(right))):
        first = left[index] if index < len(left) else ()
        second = right[index] if index < len(right) else ()
        rows.append((*fitted(first, left_width), (" " * gap, Tone.PLAIN), *second))
    return rows


def table_lines(titles: Sequence[str], rows: Sequence[Sequence[Span]], figures: Set[int] = frozenset()) -> list[Line]:
    """Return titles and rows, each column as wide as its longest text; ``figures`` are those aligned to the right."""
    table = [[(title, Tone.QUIET) for title in titles], *rows]
    widths = [max(cell_len(row[at][0]) for row in table) for at in range(len(titles))]

    def padded(text: str, at: int) -> str:
        blanks = " " * (widths[at] - cell_len(text))
        return f"{blanks}{text}  " if at in figures else f"{text}{blanks}  "

    return [line(*((padded(text, at), tone) for at, (text, tone) in enumerate(row))) for row in table]


def panel(
    title: str, lines: Sequence[Line], width: int, height: int, *, note: str = "", tone: Tone = Tone.QUIET
) -> list[Line]:
    """Return lines in a frame of ``width`` by ``height`` with a title, and a note of ``tone`` at the right of it."""
    inner = width - 2
    if height < 3 or inner < 1:
        return [fitted((), max(0, width)) for _ in range(height)]
    head: list[Span] = [("┌ ", Tone.FRAME), (title, Tone.QUIET), (" ", Tone.FRAME)]
    room = width - width_of(tuple(head)) - 1
    label = f" {note} " if note and len(note) + 6 <= room else ""
    rest = "─" * max(0, room - cell_len(label) - 1)
    head += [(rest, Tone.FRAME), (label, tone), ("─┐", Tone.FRAME)]
    body = [*lines[: height - 2], *[()] * (height - 2 - len(lines))]
    edge: Span = ("│", Tone.FRAME)
    return [
        fitted(tuple(head), width),
        *((edge, *fitted(row, inner), edge) for row in body),
        (("└" + "─" * inner + "┘", Tone.FRAME),),
    ]


def wrapped(words: Iterable[Line], width: int) -> list[Line]:
    """Return short pieces one after the other, with a new line where the next would not fit."""
    lines: list[Line] = []
    current: Line = ()
    for piece in words:
        joined = (*current, ("   ", Tone.PLAIN), *piece) if current else piece
        if current and width_of(joined) > width:
            lines.append(current)
            joined = piece
        current = joined
    return [*lines, current] if current else lines
