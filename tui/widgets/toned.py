"""The tones of texts as styles of Textual, for every widget that draws lines itself."""

from __future__ import annotations

from functools import cached_property

from rich.color import Color as RichColor
from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.strip import Strip
from textual.widget import Widget

from tui.drawing.cells import Tone
from tui.drawing.lines import Line, fitted
from tui.drawing.units import plain

_COLOURS = {
    Tone.PLAIN: "foreground", Tone.STRONG: "foreground", Tone.QUIET: "quiet", Tone.ACCENT: "accent",
    Tone.GOOD: "success", Tone.WARN: "warning", Tone.BAD: "error", Tone.FRAME: "frame",
}  # fmt: skip
_LOUD = {Tone.ALARM: "error", Tone.ALERT: "warning"}
_BOLD = (Tone.STRONG, Tone.BAD, *_LOUD)


class Toned(Widget):
    """Knows the style of each tone.

    The colours are the theme's. Component classes would be Textual's way: it styles each of them anew in every widget
    whenever that may look different, which took a quarter of the dashboard's start.
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
        if "" not in self._styles:
            self._styles[""] = self.rich_style
        return self._styles[""]

    def tone_style(self, tone: Tone) -> Style:
        """Return the tone's colour on this widget's background."""
        style = self._styles.get(tone)
        if style is None:
            own = self._colour("background" if tone in _LOUD else _COLOURS[tone])
            behind = Style(bgcolor=self._colour(_LOUD[tone])) if tone in _LOUD else Style()
            style = self._styles[tone] = self.base_style + Style(color=own, bold=tone in _BOLD or None) + behind
        return style

    def behind(self, tone: str) -> Style:
        """Return the background alone of what is ``selected`` or ``changed``."""
        if tone not in self._styles:
            self._styles[tone] = Style(bgcolor=self._colour(tone))
        return self._styles[tone]

    def _colour(self, name: str) -> RichColor:
        return Color.parse(self.app.theme_variables[name]).rich_color

    def strip_of(self, line: Line, width: int) -> Strip:
        """Return a line in exactly ``width`` cells."""
        segments = [Segment(plain(text), self.tone_style(tone)) for text, tone in fitted(line, width)]
        return Strip(segments).adjust_cell_length(width, self.base_style)
