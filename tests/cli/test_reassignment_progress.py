"""Progress of moves on a terminal: what is rewritten in place leaves nothing behind."""

from __future__ import annotations

import io
import sys

import pytest

from cli.framework.talk import Talk
from cli.views.reassignment_progress import ProgressView
from engine.admin.reassignment.progress import MoveProgress, ReassignmentProgress
from engine.common.model import TopicPartition


class Terminal(io.StringIO):
    """Says that it is one."""

    def isatty(self) -> bool:
        return True


def test_an_echoed_ctrl_c_leaves_nothing_of_the_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    overall = MoveProgress(None, 1, 2, 1.0, 1.0)
    one = MoveProgress(TopicPartition("t", 0), 1, 2, 1.0, 1.0)
    view = ProgressView(Talk())
    view.show(ReassignmentProgress(overall, (one,), 0, 1))
    assert terminal.getvalue().count("\n") == 2
    terminal.truncate(0)
    terminal.write("^C")
    view.end()
    # To the beginning of the line, up over both, and away with all below.
    assert terminal.getvalue().lstrip("\0") == "^C\r\x1b[2A\x1b[J"
