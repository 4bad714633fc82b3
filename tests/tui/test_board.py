"""What the screens know of the newest frame. Without Textual."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.admin.watch.fake_cluster import FakeCluster
from engine.admin.watch.frame import Frame, Stage, StageStatus
from tui.board import Board


def with_stage(frame: Frame, stage: Stage, status: StageStatus) -> Frame:
    return replace(frame, stages={**frame.stages, stage: status})


@pytest.mark.parametrize("stage", list(Stage))
def test_a_frame_is_whole_when_every_stage_was_read_or_says_why_not(stage: Stage) -> None:
    frame = FakeCluster(topics={"orders": 4}).frame()
    board = Board()
    board.take(frame)
    assert board.was_read_whole
    board.take(with_stage(frame, stage, StageStatus()))
    assert not board.was_read_whole
    board.take(with_stage(frame, stage, StageStatus(error="nobody may tell")))
    assert board.was_read_whole is (stage is not Stage.METADATA), "without topics there is nothing to be seen"
