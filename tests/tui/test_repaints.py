"""Most changes draw a part of the screen: all parts together make what drawing the whole screen would make."""

from __future__ import annotations

import re
from typing import Any

import dashboards
import pytest
from dashboards import Driven, dashboard, drive
from rich.cells import cell_len
from textual._compositor import CompositorUpdate
from textual.widget import Widget

_PIECES = re.compile(r"\x1b\[(\d+);(\d+)H|\x1b\[([\d;]*)m|([^\x1b\n])|\n")


class Paper:
    """What a terminal shows: a character and its style in each cell."""

    def __init__(self, driven: Driven) -> None:
        self.console = driven.app.console
        self.cells: dict[tuple[int, int], tuple[str, str]] = {}

    def draw(self, update: CompositorUpdate | None) -> None:
        """Draw as a terminal does that gets this update."""
        x, y, style = 0, 0, ""
        for row, column, new_style, character in _PIECES.findall(
            "" if update is None else update.render_segments(self.console)
        ):
            if row:
                x, y = int(column) - 1, int(row) - 1
            elif character:
                self.cells[x, y] = character, style
                x += cell_len(character)
            else:
                style = new_style.removesuffix("0") if new_style == "0" else new_style

    def line(self, y: int) -> str:
        return "".join(cell for (_, at), (cell, _) in sorted(self.cells.items()) if at == y)


@pytest.mark.parametrize(
    ("scene", "keys"),
    [
        ("live", "j w escape k 2 j 3 s t G g 4 ctrl+d right z 5 8 1"),
        ("reassigning", "6 j T 7 0 1"),
    ],
)
def test_what_is_drawn_in_parts_is_what_would_be_drawn_as_a_whole(
    scene: str, keys: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    updates: list[Any] = []
    render = dashboards._render_update

    def kept(*given: Any, **named: Any) -> None:
        updates.append(render(*given, **named))

    def draw_on(paper: Paper) -> None:
        for update in updates:
            paper.draw(update)
        updates.clear()

    async def whole(driven: Driven) -> Paper:
        """Return what is drawn if no widget trusts what it has drawn before."""
        paper = Paper(driven)
        for widget in (driven.app.screen, *driven.app.screen.walk_children(Widget)):
            widget.refresh()
        await driven.settled()
        draw_on(paper)
        return paper

    async def run() -> None:
        async with dashboard(scene, size=(100, 30)) as driven:
            await driven.tick(8)
            monkeypatch.setattr(dashboards, "_render_update", kept)
            paper = await whole(driven)
            for number, key in enumerate(keys.split()):
                if number == 4:
                    driven.feed.cluster.kill(2)
                for do in (driven.press, driven.tick):
                    await (do(key) if do == driven.press else do())
                    draw_on(paper)
                    wanted = await whole(driven)
                    wrong = {at[1] for at, cell in wanted.cells.items() if paper.cells.get(at) != cell}
                    assert not wrong, (key, do, [(y, paper.line(y), wanted.line(y)) for y in sorted(wrong)[:3]])

    drive(run)
