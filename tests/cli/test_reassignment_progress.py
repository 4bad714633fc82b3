"""Progress of moves on a terminal: a line that is rewritten in place leaves nothing behind."""

from __future__ import annotations

import io
import sys
import time

import pytest

from cli.framework.talk import Talk
from cli.views.reassignment import ProgressView, progress_lines
from engine.admin.reassignment.moves import MoveProgress, ReassignmentProgress
from engine.common.model import TopicPartition


class Terminal(io.StringIO):
    """Claims to be a terminal."""

    def isatty(self) -> bool:
        return True


def test_what_moves_stands_first_and_what_waits_says_for_whom(monkeypatch: pytest.MonkeyPatch) -> None:
    overall = MoveProgress(None, 10, 200, 5.0, 38.0)
    stuck = MoveProgress(TopicPartition("t", 0), 0, 150, 0.0, None, "waits for dead broker 1")
    moving = MoveProgress(TopicPartition("t", 1), 10, 50, 5.0, 8.0)
    progress = ReassignmentProgress(overall, (stuck, moving), 0, 2)
    lines = progress_lines(progress)
    assert [line.split()[0] for line in lines[1:]] == ["t-1", "t-0"]
    assert lines[2].endswith(", waits for dead broker 1")
    log = io.StringIO()
    monkeypatch.setattr(sys, "stderr", log)
    view = ProgressView(Talk())
    monkeypatch.setattr(time, "monotonic", iter([0.0, 5.0, 9.0, 9.0]).__next__)
    view.show(progress)
    view.show(progress)
    assert log.getvalue().count("\n") == 1
    assert log.getvalue().endswith("; waits for dead broker 1\n")


def test_an_echoed_ctrl_c_leaves_nothing_of_the_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    overall = MoveProgress(None, 1, 2, 1.0, 1.0)
    progress = MoveProgress(TopicPartition("t", 0), 1, 2, 1.0, 1.0)
    view = ProgressView(Talk())
    view.show(ReassignmentProgress(overall, (progress,), 0, 1))
    assert terminal.getvalue().count("\n") == 2
    terminal.truncate(0)
    terminal.write("^C")
    view.end()
    # To the beginning of the line, up over both, and erase everything below.
    assert terminal.getvalue().lstrip("\0") == "^C\r\x1b[2A\x1b[J"
