"""A dashboard that records what it shows: the file never holds the screen up, and no event is lost."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from dashboards import dashboard, drive
from event_loop import in_event_loop
from fake_cluster import FakeCluster, small_cluster
from fake_feed import FakeFeed

from engine.admin.watch.events import EventKind
from engine.admin.watch.frame import Frame
from engine.admin.watch.recording import FrameWriter, RecordedFeed, Recording

WAIT_S = 60.0


def _loses_a_broker(cluster: FakeCluster, tick: int) -> None:
    if tick == 2:
        cluster.kill(2)
    if tick == 4:
        cluster.start(2)


def test_frames_are_shown_while_a_slow_disk_holds_the_recording_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk_answers, write = threading.Event(), FrameWriter.write
    writers = set()

    def slow_write(writer: FrameWriter, frame: Frame) -> None:
        writers.add(threading.current_thread())
        assert disk_answers.wait(WAIT_S)
        write(writer, frame)

    monkeypatch.setattr(FrameWriter, "write", slow_write)

    async def run() -> None:
        feed = FakeFeed(small_cluster(), on_tick=_loses_a_broker, plays=False)
        recorded = RecordedFeed(feed, tmp_path / "r")
        async with dashboard(recorded) as driven:
            driven.feed = feed
            await driven.tick(6)
            newest = driven.app.newest
            assert newest is not None and newest.sequence >= 7
            disk_answers.set()
        assert not recorded.trouble

    drive(run)
    assert writers and threading.main_thread() not in writers
    recording = Recording(tmp_path / "r")
    frames = [recording.frame(position) for position in range(recording.count)]
    recording.close()
    kinds = [event.kind for frame in frames for event in frame.events]
    assert len(frames) < 6, "frames that come meanwhile are written as one"
    assert kinds.count(EventKind.BROKER_DOWN) == kinds.count(EventKind.BROKER_UP) == 1
    assert frames[-1].cluster is not None and frames[-1].cluster.live_broker_ids == {1, 2, 3}


@in_event_loop
async def test_a_disk_that_fails_ends_the_recording_and_not_the_view(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(writer: FrameWriter, frame: Frame) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(FrameWriter, "write", full)
    recorded = RecordedFeed(FakeFeed(small_cluster(), plays=False), tmp_path / "r")
    async with dashboard(recorded) as driven:
        driven.feed = recorded._feed
        await driven.until(lambda: bool(recorded.trouble))
        await driven.tick(2)
        await driven.until(
            lambda: any("No space left" in notification.message for notification in driven.app._notifications)
        )
