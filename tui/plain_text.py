"""For terminals without UTF-8: every character that is not ASCII becomes one that is, in the same width."""

from __future__ import annotations

from rich.cells import cell_len
from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

_ALIKE = str.maketrans(
    {
        "—": "-", "…": "~", "→": ">", "←": "<", "↑": "^", "↓": "v", "●": "*", "◐": "o", "○": "o", "✖": "X", "▲": "^",
        "▼": "v", "⊘": "/", "•": "+", "▌": "|", "━": "#", "╌": "-", "±": "~", "≥": ">", "›": ">", "│": "|", "─": "-",
        "┌": "+", "┐": "+", "└": "+", "┘": "+", "┤": "|",
        "▁": ".", "▂": ".", "▃": ":", "▄": ":", "▅": "+", "▆": "+", "▇": "#", "█": "#", "░": ".", "▒": ":", "▓": "+",
    }
    | dict.fromkeys(map(chr, range(0x2800, 0x2900)), "*")
)  # fmt: skip


def ascii_text(text: str) -> str:
    """Return the text in ASCII, as wide as it was."""
    if text.isascii():
        return text
    return "".join(c if c.isascii() else "?" * cell_len(c) for c in text.translate(_ALIKE))


class PlainTextFilter(LineFilter):
    """Writes ASCII only."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """Return the segments in ASCII."""
        return [Segment(ascii_text(text), style, control) for text, style, control in segments]
