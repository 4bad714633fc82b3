"""The parts of a screen: one or two lines that sum it up, and rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.admin.cluster.target import ClusterTarget
from engine.admin.watch.frame import Frame, Stage
from tui.drawing.lines import Line
from tui.state.board import Board
from tui.state.location import Location
from tui.state.off_board import OffBoard
from tui.state.status import login_of
from tui.state.table_model import Rows


@dataclass(frozen=True, slots=True)
class View:
    """What a screen is drawn from. ``height`` is that of the whole terminal, in lines.

    ``is_filtered``: only rows that contain a text are shown. ``newest`` is the newest frame, if the board does not
    show it yet because the view is frozen. ``cursor_key``: the row under the cursor.
    """

    board: Board
    location: Location
    target: ClusterTarget | None = None
    height: int = 40
    is_filtered: bool = False
    newest: Frame | None = None
    off_board: OffBoard = field(default_factory=OffBoard)
    cursor_key: Any | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """One screen.

    Attributes:
        rows: the table.
        summary: the lines above it, for a width.
        opens: where enter leads from a row.
        is_trouble: whether a row has a problem; None if that makes no sense here.
        command: the words of the command that shows the same.
    """

    name: str
    rows: Callable[[View], Rows]
    summary: Callable[[View, int], list[Line]] = lambda view, width: []
    opens: Callable[[View, Any], Location | None] = lambda view, item: None
    is_trouble: Callable[[View, Any], bool] | None = None
    command: Callable[[View, Sequence[Any]], list[str]] = lambda view, items: []


def rows_at(page: Page, view: View) -> list[Any]:
    """Return the rows that a screen shows at the view's location, in no order."""
    rows = page.rows(view)
    return [item for item in rows.items if rows.is_kept is None or rows.is_kept(item)]


def why_empty(view: View, what: str) -> str:
    """Return what to say if there are no rows: nothing was read yet, or there is nothing."""
    if not view.board.has_metadata:
        return f"{what} are not known yet: no broker has reported them"
    return f"no {what}{who_sees(view)}"


def who_sees(view: View) -> str:
    """Return by whose rights there is nothing: on a secured cluster others may see more."""
    frame = view.board.frame
    # Who sees all log dirs sees the names of all topics and groups.
    sees_all = login_of(frame) is None or frame.stage(Stage.LOG_DIRS).read_at_ms is not None
    if sees_all and not frame.denied:
        return ""
    return f" that {frame.principal or 'this login'} may see"
