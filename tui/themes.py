"""The look of the dashboard: one accent colour, and tones for good, doubtful and bad.

A custom theme is a TOML file in ``$XDG_CONFIG_HOME/klamm/themes``: ``base`` names one of the themes here, the other
keys are colours, such as ``accent = "#88c0d0"``.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from rich.cells import cell_len
from rich.color import Color as RichColor
from rich.segment import Segment
from rich.style import Style
from textual.color import Color, ColorParseError
from textual.filter import LineFilter
from textual.theme import Theme


@dataclass(frozen=True, slots=True)
class Palette:
    """The colours of a theme."""

    background: str
    text: str
    quiet: str
    accent: str
    good: str
    warn: str
    bad: str
    panel: str
    selected: str
    changed: str
    is_dark: bool = True


PALETTES: Mapping[str, Palette] = {
    "dark": Palette(
        background="#0f1318", text="#d5dbe3", quiet="#7b8794", accent="#6cb6ff", good="#6bc46d", warn="#e0b44c",
        bad="#ff6b68", panel="#171d25", selected="#22354d", changed="#2b2f1d",
    ),
    "light": Palette(
        background="#fbfbf9", text="#22272e", quiet="#6b7480", accent="#0a58b8", good="#1a7f37", warn="#8a5a00",
        bad="#c11c28", panel="#eeeeea", selected="#cfe2f8", changed="#fff3c4", is_dark=False,
    ),
    "contrast": Palette(
        background="#000000", text="#ffffff", quiet="#d0d0d0", accent="#00e5ff", good="#00ff66", warn="#ffee00",
        bad="#ff7070", panel="#000000", selected="#004c9e", changed="#4d4400",
    ),
    "monochrome": Palette(
        background="#000000", text="#d8d8d8", quiet="#9a9a9a", accent="#ffffff", good="#d8d8d8", warn="#ffffff",
        bad="#ffffff", panel="#1c1c1c", selected="#4a4a4a", changed="#303030",
    ),
}  # fmt: skip
"""The themes that come with klamm."""
_KEYS = [field.name for field in fields(Palette) if field.name != "is_dark"]


class ColourlessFilter(LineFilter):
    """Sends no colour to the terminal: attributes of the text say what a palette's colours would.

    What is chosen is reversed, as is the row under the cursor; changed cells and fields are underlined, quiet text is
    dim.
    """

    def __init__(self, palette: Palette) -> None:
        super().__init__()
        self._selected, self._changed, self._quiet = (
            _brightness(Color.parse(colour).rich_color) for colour in (palette.selected, palette.changed, palette.quiet)
        )
        self._styles: dict[tuple[Style, bool], Style] = {}

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        behind = background.rich_color
        return [
            Segment(text, None if style is None else self._plain(style, style.bgcolor == behind), control)
            for text, style, control in segments
        ]

    def _plain(self, style: Style, is_background: bool) -> Style:
        """Return a style by its brightness: a window blends the colours of what is behind it."""
        known = self._styles.get((style, is_background))
        if known is None:
            behind = _brightness(style.bgcolor)
            is_marked = behind >= self._selected and not is_background
            known = self._styles[style, is_background] = style.without_color + Style(
                reverse=is_marked or style.reverse,
                underline=(behind >= self._changed and not is_marked) or style.underline,
                dim=style.color is not None and _brightness(style.color) <= self._quiet and not is_marked,
            )
        return known


def _brightness(colour: RichColor | None) -> int:
    return 0 if colour is None or colour.triplet is None else sum(colour.triplet)


def theme_of(name: str, palette: Palette) -> Theme:
    """Return Textual's form of a palette."""
    return Theme(
        name=name,
        primary=palette.accent,
        secondary=palette.accent,
        accent=palette.accent,
        foreground=palette.text,
        background=palette.background,
        surface=palette.background,
        panel=palette.panel,
        success=palette.good,
        warning=palette.warn,
        error=palette.bad,
        dark=palette.is_dark,
        variables={
            "quiet": palette.quiet,
            "selected": palette.selected,
            "changed": palette.changed,
            "frame": Color.parse(palette.background).blend(Color.parse(palette.quiet), 0.6).hex,
            "divider": palette.quiet if palette.panel == palette.background else palette.panel,
            "block-cursor-foreground": palette.text,
            "block-cursor-background": palette.selected,
            "input-cursor-background": palette.text,
            "scrollbar": palette.quiet,
            "scrollbar-background": palette.background,
            "scrollbar-corner-color": palette.background,
            "scrollbar-hover": palette.accent,
            "scrollbar-active": palette.accent,
            "scrollbar-background-hover": palette.background,
            "scrollbar-background-active": palette.background,
        },
    )


def custom_themes(folder: Path) -> tuple[dict[str, Palette], dict[str, str]]:
    """Return the themes of a folder, and what is wrong with those that cannot be used, both by name."""
    themes: dict[str, Palette] = {}
    problems: dict[str, str] = {}
    for path in sorted(folder.glob("*.toml")) if folder.is_dir() else []:
        try:
            themes[path.stem] = _palette(tomllib.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, ColorParseError) as error:
            problems[path.stem] = f"{path}: {error}"
    return themes, problems


def _palette(document: Mapping[str, object]) -> Palette:
    base = PALETTES.get(str(document.get("base", "dark")))
    if base is None:
        raise ValueError(f"base must be one of {', '.join(PALETTES)}")
    unknown = sorted(set(document) - {*_KEYS, "base"})
    if unknown:
        raise ValueError(f"unknown key {unknown[0]!r}: known are base, {', '.join(_KEYS)}")
    colours = {key: str(document.get(key, getattr(base, key))) for key in _KEYS}
    for colour in colours.values():
        Color.parse(colour)
    return Palette(**colours, is_dark=base.is_dark)


_ALIKE = str.maketrans(
    {
        "—": "-", "…": "~", "→": ">", "←": "<", "↑": "^", "↓": "v", "●": "*", "◐": "o", "○": "o", "✖": "X", "▲": "^",
        "▼": "v", "⊘": "/", "•": "+", "▌": "|", "━": "#", "╌": "-", "≤": "<", "≥": ">", "›": ">", "│": "|", "─": "-",
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
    """For terminals without UTF-8: every other character becomes one of ASCII, in the same width."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [Segment(ascii_text(text), style, control) for text, style, control in segments]
