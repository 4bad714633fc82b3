"""The tones of texts as styles of Textual, for every widget that draws lines itself."""

from __future__ import annotations

from functools import cached_property
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip
from textual.widget import Widget

from tui.drawing.cells import Tone
from tui.drawing.lines import Line, fitted
from tui.drawing.units import plain

_LOUD = (Tone.ALARM, Tone.ALERT)


class Toned(Widget):
    """Knows the style of each tone."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"tone--chosen", "tone--changed", *(f"tone--{tone.value}" for tone in Tone)}
    DEFAULT_CSS = """
    Toned {
        & > .tone--plain { color: $foreground; }
        & > .tone--strong { color: $foreground; text-style: bold; }
        & > .tone--quiet { color: $quiet; }
        & > .tone--accent { color: $accent; }
        & > .tone--good { color: $success; }
        & > .tone--warn { color: $warning; }
        & > .tone--bad { color: $error; text-style: bold; }
        & > .tone--frame { color: $frame; }
        & > .tone--alarm { color: $background; background: $error; text-style: bold; }
        & > .tone--alert { color: $background; background: $warning; text-style: bold; }
        & > .tone--chosen { background: $selected; }
        & > .tone--changed { background: $changed; }
    }
    """

    @cached_property
    def _styles(self) -> dict[str, Style]:
        """The styles used so far; computing one costs more than drawing a line."""
        return {}

    def notify_style_update(self) -> None:
        """Forget colours: the theme has changed."""
        self._styles.clear()
        super().notify_style_update()

    @property
    def base_style(self) -> Style:
        """The widget's own style."""
        if "" not in self._styles:
            self._styles[""] = self.rich_style
        return self._styles[""]

    def tone_style(self, tone: Tone) -> Style:
        """Return the tone's colour on this widget's background."""
        style = self._styles.get(tone)
        if style is None:
            part = self.get_component_rich_style(f"tone--{tone.value}", partial=True)
            behind = Style(bgcolor=part.bgcolor) if tone in _LOUD else Style()
            style = self._styles[tone] = self.base_style + Style(color=part.color, bold=part.bold) + behind
        return style

    def behind(self, what: str) -> Style:
        """Return the background alone of what is ``chosen`` or ``changed``."""
        if what not in self._styles:
            part = self.get_component_rich_style(f"tone--{what}", partial=True)
            self._styles[what] = Style(bgcolor=part.bgcolor)
        return self._styles[what]

    def strip_of(self, line: Line, width: int) -> Strip:
        """Return a line in exactly ``width`` cells."""
        segments = [Segment(plain(text), self.tone_style(tone)) for text, tone in fitted(line, width)]
        return Strip(segments).adjust_cell_length(width, self.base_style)
