"""Spark's streaming queries. A cluster does not know them: they stand in checkpoints, which have to be named."""

from __future__ import annotations

from tui.cells import Tone
from tui.lines import Line, line
from tui.pages.page import Page, View
from tui.table_model import Rows


def _rows(view: View) -> Rows:
    empty = "— no streaming query is known: a cluster does not know them, and no checkpoint is named"
    return Rows((), (), lambda item: item, str, empty)


def _summary(view: View, width: int) -> list[Line]:
    return [line(("Spark keeps its offsets in checkpoints, not in the cluster", Tone.QUIET))]


PAGE = Page("spark", _rows, _summary)
