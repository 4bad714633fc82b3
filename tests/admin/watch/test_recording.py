"""Recordings: playback equals what was recorded, damage ends it there, and other versions are refused."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from event_loop import in_event_loop
from fake_cluster import FakeCluster, big_cluster, small_cluster
from fake_feed import SCENES, FakeFeed

from engine.admin.cluster.errors import BadRequest, NotFound
from engine.admin.watch import replay_feed
from engine.admin.watch.frame import Frame
from engine.admin.watch.frame_building import FrameBuilder, changes_of
from engine.admin.watch.recording import KEY_EVERY, FrameWriter, Recording, record
from engine.admin.watch.replay_feed import ReplayFeed
from engine.common.model import TopicPartition
from engine.common.version import VERSION


def _frames(count: int) -> list[Frame]:
    """Frames of a cluster in which much happens."""
    cluster = small_cluster()
    frames = []
    for tick in range(count):
        cluster.advance()
        match tick:
            case 3:
                cluster.kill(2)
            case 5:
                cluster.create_topic("new", 3, replication_factor=2)
            case 7:
                cluster.start(2)
            case 9:
                cluster.reassign(TopicPartition("orders", 1), (3, 2, 1))
            case 11:
                cluster.delete_topic("audit")
            case 12:
                cluster.set_topic_config("orders", "retention.ms", "1000")
            case 13:
                cluster.set_broker_config(1, "log.cleaner.threads", "2")
        frames.append(cluster.frame())
    return frames


def _written(path: Path, frames: list[Frame]) -> None:
    writer = FrameWriter(path, "shop")
    for frame in frames:
        writer.write(frame)
    writer.close()


async def _until(is_so: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not is_so():
            await asyncio.sleep(0)


def _built(known: Frame | None, lines: Iterable[str], *, is_whole: bool = False) -> Frame:
    building = FrameBuilder(known, is_whole=is_whole)
    for line in lines:
        building.take(json.loads(line))
    return building.made()


@pytest.mark.parametrize("scene", sorted(set(SCENES) - {"big"}))
def test_each_state_of_a_feed_is_recorded_whole(scene: str) -> None:
    frame = SCENES[scene]().frame()
    assert _built(None, changes_of(None, frame)) == replace(frame, health=None)


def test_changes_make_the_next_frame_out_of_the_one_before() -> None:
    frames = _frames(20)
    played = _built(None, changes_of(None, frames[0]))
    for before, after in pairwise(frames):
        played = _built(played, changes_of(before, after))
        assert played == replace(after, health=None)


def test_a_large_frame_is_written_in_small_pieces() -> None:
    """While Python makes JSON of one value, no other thread runs: a piece must not take long."""
    frame = big_cluster(3, 100, 5_000).frame()
    sizes = [len(text) for text in changes_of(None, frame)]
    assert sum(sizes) > 500_000 and max(sizes) < 10_000, (sum(sizes), max(sizes))


def test_what_did_not_change_is_not_written_and_stays_the_same_object() -> None:
    cluster = FakeCluster(3, {"still": 50, "busy": 1}, rate=0)
    first = cluster.frame()
    cluster.move_leader(TopicPartition("busy", 0), 3)
    second = cluster.frame()
    changes = list(changes_of(first, second))
    assert not any("still" in line for line in changes)
    played = _built(first, changes)
    assert played.cluster is not None and first.cluster is not None
    assert played.cluster.topic("still") is first.cluster.topic("still")


def test_a_recording_plays_what_was_recorded_from_any_place(tmp_path: Path) -> None:
    frames = _frames(KEY_EVERY + 15)
    _written(tmp_path / "r", frames)
    recording = Recording(tmp_path / "r")
    assert recording.count == len(frames) and recording.cluster == "shop" and not recording.cut_short
    for position in (0, 14, 3, KEY_EVERY + 14, KEY_EVERY, KEY_EVERY - 1, 5):
        assert recording.frame(position) == frames[position], position
    recording.close()


@pytest.mark.parametrize("missing", [1, 30, 200])
def test_a_recording_that_is_cut_off_plays_up_to_there(tmp_path: Path, missing: int) -> None:
    frames = _frames(12)
    _written(tmp_path / "r", frames)
    data = (tmp_path / "r").read_bytes()
    (tmp_path / "r").write_bytes(data[:-missing])
    recording = Recording(tmp_path / "r")
    assert 0 < recording.count < 12
    assert "cut off" in recording.cut_short
    assert recording.frame(recording.count - 1) == frames[recording.count - 1]
    recording.close()


@pytest.mark.parametrize("place", [5, 40])
@in_event_loop
async def test_a_recording_that_is_damaged_plays_up_to_there(tmp_path: Path, place: int) -> None:
    """One byte is wrong: in the checksum of a record's head, or in its data."""
    frames = _frames(12)
    _written(tmp_path / "r", frames[:6])
    good = (tmp_path / "r").stat().st_size
    (tmp_path / "r").unlink()
    _written(tmp_path / "r", frames)
    data = bytearray((tmp_path / "r").read_bytes())
    data[good + place] ^= 0xFF
    (tmp_path / "r").write_bytes(data)
    feed = ReplayFeed(tmp_path / "r")
    await feed.start()
    feed.seek(5)
    await _until(lambda: feed.position == 5)
    assert not feed.cut_short
    feed.seek(8)
    await _until(lambda: feed.cut_short)
    assert feed.position == 5 and "frame 6 is damaged" in feed.cut_short and feed.status.is_paused
    feed.seek(2)
    await _until(lambda: feed.position == 2)
    await feed.close()


def test_what_is_no_recording_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        Recording(tmp_path / "nothing")
    for content in (b"", b"PK\3\4", b'{"version": 1}\n', b"[1]\n", b"\xff" * 5000):
        (tmp_path / "r").write_bytes(content)
        with pytest.raises(BadRequest, match="not a recording"):
            Recording(tmp_path / "r")
    _written(tmp_path / "empty", [])
    with pytest.raises(BadRequest, match="no whole frame"):
        Recording(tmp_path / "empty")


@pytest.mark.parametrize("key", ["klamm_recording", "shape"])
def test_a_recording_of_another_version_is_refused_and_says_whose(tmp_path: Path, key: str) -> None:
    _written(tmp_path / "r", _frames(2))
    head, rest = (tmp_path / "r").read_bytes().split(b"\n", 1)
    other = json.loads(head) | {key: "other", "klamm": "9.9"}
    del other["fields"]
    (tmp_path / "r").write_bytes(json.dumps(other).encode() + b"\n" + rest)
    with pytest.raises(BadRequest, match=r"klamm 9\.9"):
        Recording(tmp_path / "r")
    for made_by in ({"klamm": VERSION}, {}):
        # Builds of one version may differ, too.
        unlike = {name: value for name, value in other.items() if name != "klamm"} | made_by
        (tmp_path / "r").write_bytes(json.dumps(unlike).encode() + b"\n" + rest)
        with pytest.raises(BadRequest, match="a recording of another build of klamm") as raised:
            Recording(tmp_path / "r")
        assert raised.value.hint == "play it with the version of klamm that recorded it"


def _by_another(path: Path, change: Callable[[str], str]) -> Recording:
    """Open a recording as if a klamm whose frames had other fields had written it."""
    head, rest = path.read_bytes().split(b"\n", 1)
    told = json.loads(head)
    other = told | {"shape": "other", "klamm": "9.9", "fields": [*map(change, told["fields"])]}
    path.write_bytes(json.dumps(other).encode() + b"\n" + rest)
    return Recording(path)


@pytest.mark.parametrize(
    ("field", "without"),
    [
        ("Frame.min_isr", lambda frame: replace(frame, min_isr={})),
        ("Frame.log_dirs", lambda frame: replace(frame, log_dirs=())),
        ("Link.address", lambda frame: replace(
            frame, links={side: replace(link, address="") for side, link in frame.links.items()})),
        ("TopicSnapshot.configs", lambda frame: replace(frame, cluster=replace(
            frame.cluster, topics=tuple(replace(topic, configs={}) for topic in frame.cluster.topics)))),
    ],
)  # fmt: skip
@pytest.mark.parametrize("change", ["type", "name"])
def test_a_recording_of_another_version_is_played_without_what_both_do_not_know(
    tmp_path: Path, field: str, without: Callable[[Frame], Frame], change: str
) -> None:
    frames = _frames(15)
    _written(tmp_path / "r", frames)

    def changed(line: str) -> str:
        if line.partition(":")[0] != field:
            return line
        return f"{field}:float" if change == "type" else line.replace(field, f"{field}_before")

    recording = _by_another(tmp_path / "r", changed)
    played = [replace(recording.frame(position), health=None) for position in range(recording.count)]
    recording.close()
    whole = [replace(frame, health=None) for frame in frames]
    assert played == [*map(without, whole)] and played != whole


def test_a_recording_without_what_every_frame_needs_is_refused_and_says_what(tmp_path: Path) -> None:
    _written(tmp_path / "r", _frames(2))
    with pytest.raises(BadRequest, match=r"klamm 9\.9, which .* cannot read: it has no PartitionSnapshot\.assignment$"):
        _by_another(tmp_path / "r", lambda line: line.replace("Snapshot.assignment:", "Snapshot.replicas:"))


def test_an_existing_file_is_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "r").write_text("precious")
    with pytest.raises(BadRequest, match="exists"):
        FrameWriter(tmp_path / "r", "shop")
    assert (tmp_path / "r").read_text() == "precious"
    with pytest.raises(BadRequest, match="cannot be written"):
        FrameWriter(tmp_path / "no" / "such" / "r", "shop")


@in_event_loop
async def test_a_feed_is_recorded_without_a_terminal(tmp_path: Path) -> None:
    feed = FakeFeed(small_cluster(), plays=False)
    recording = asyncio.create_task(record(feed, tmp_path / "r"))
    while feed.latest is None:
        await asyncio.sleep(0)
    for _ in range(5):
        feed.tick()
        await asyncio.sleep(0.001)
    await feed.close()
    ending = await recording
    assert ending.frames == 6 and ending.seconds == 5.0
    assert ending.size_bytes == (tmp_path / "r").stat().st_size
    recorded = Recording(tmp_path / "r")
    assert recorded.count == 6
    recorded.close()


@in_event_loop
async def test_a_replay_goes_on_by_itself_at_its_speed_and_stops_at_the_end(tmp_path: Path) -> None:
    frames = _frames(6)
    _written(tmp_path / "r", frames)
    feed = ReplayFeed(tmp_path / "r")
    feed.set_speed(200)
    await feed.start()
    seen = []
    async for frame in feed.frames():
        seen.append(frame)
        if frame.at_ms == frames[-1].at_ms:
            break
    assert sum((frame.events for frame in seen), ()) == sum((frame.events for frame in frames[1:]), ())
    await _until(lambda: feed.status.is_paused)
    feed.resume()
    await _until(lambda: feed.position == 0)
    await feed.close()
    assert feed.status.has_ended


@in_event_loop
async def test_steps_and_jumps_show_their_frame_with_what_happened_on_the_way(tmp_path: Path) -> None:
    frames = _frames(15)
    _written(tmp_path / "r", frames)
    feed = ReplayFeed(tmp_path / "r")
    await feed.start()
    assert (feed.first_ms, feed.last_ms, feed.count) == (frames[0].at_ms, frames[-1].at_ms, 15)
    feed.step(2)
    assert feed.status.is_paused
    await _until(lambda: feed.position == 2)
    feed.seek(10)
    await _until(lambda: feed.position == 10)
    assert feed.latest is not None
    assert feed.latest.events == sum((frame.events for frame in frames[3:11]), ())
    assert feed.latest.events
    before = feed.latest.sequence
    feed.seek(4)
    await _until(lambda: feed.position == 4)
    assert feed.latest.sequence > before and feed.latest.at_ms == frames[4].at_ms
    assert feed.latest.events == ()
    feed.step(-100)
    await _until(lambda: feed.position == 0)
    feed.seek(100)
    await _until(lambda: feed.position == 14)
    for speed in (0, -1, 1e9):
        with pytest.raises(ValueError, match="speed"):
            feed.set_speed(speed)
    await feed.close()


@in_event_loop
async def test_a_jump_over_very_much_tells_the_last_events_on_its_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frames = _frames(15)
    _written(tmp_path / "r", frames)
    recording = Recording(tmp_path / "r")
    assert recording.before_bytes(14, 10**9) == -1
    assert recording.before_bytes(14, 0) == 14
    sizes = [place.size for place in recording._places]
    assert recording.before_bytes(14, sum(sizes[11:])) == 10
    assert recording.before_bytes(14, sum(sizes[11:]) - 1) == 11
    recording.close()
    for limit, value in (("_FRAMES_ON_THE_WAY", 4), ("_BYTES_ON_THE_WAY", sum(sizes[11:]))):
        with monkeypatch.context() as changed:
            changed.setattr(replay_feed, limit, value)
            feed = ReplayFeed(tmp_path / "r")
            await feed.start()
            feed.seek(14)
            await _until(lambda feed=feed: feed.position == 14)  # type: ignore[misc]
            assert feed.latest is not None
            assert feed.latest.events == sum((frame.events for frame in frames[11:15]), ())
            await feed.close()


async def _shown(feed: ReplayFeed) -> list[int]:
    """Take frames until the feed ends; return their times."""
    return [frame.at_ms async for frame in feed.frames()]


@in_event_loop
async def test_a_jump_lets_the_event_loop_do_other_things(tmp_path: Path) -> None:
    """Reading this far takes seconds on 50,000 partitions."""
    frames = _frames(15)
    _written(tmp_path / "r", frames)
    feed = ReplayFeed(tmp_path / "r")
    await feed.start()
    feed.step(100)
    turns = 0
    while feed.position != 14:
        assert feed.position == 0, "nothing else is shown on the way"
        await asyncio.sleep(0)
        turns += 1
    assert turns >= 14, "one for each frame at least"
    await feed.close()


@in_event_loop
async def test_a_later_jump_replaces_one_that_is_still_being_read(tmp_path: Path) -> None:
    frames = _frames(15)
    _written(tmp_path / "r", frames)
    feed = ReplayFeed(tmp_path / "r")
    feed.pause()
    await feed.start()
    shown = asyncio.create_task(_shown(feed))
    feed.seek(14)
    for _ in range(5):
        await asyncio.sleep(0)
    feed.seek(3)
    await _until(lambda: feed.position == 3)
    assert feed.latest is not None and feed.latest.events == sum((frame.events for frame in frames[1:4]), ())
    # Each step counts from where the one before goes to.
    for by in (1, 1, 1, -1):
        feed.step(by)
    await _until(lambda: feed.position == 5)
    await asyncio.sleep(0)
    await feed.close()
    times = await shown
    assert times[-1] == frames[5].at_ms and frames[14].at_ms not in times


@in_event_loop
async def test_steps_that_follow_each_other_quickly_show_frames_on_the_way(tmp_path: Path) -> None:
    """Whoever holds the key sees the recording go by, and does not wait for the release."""
    _written(tmp_path / "r", _frames(60))
    feed = ReplayFeed(tmp_path / "r")
    await feed.start()
    seen = set()
    for _ in range(50):
        feed.step(1)
        for _ in range(2):
            await asyncio.sleep(0)
        seen.add(feed.position)
    assert len(seen) > 10
    await _until(lambda: feed.position == 50)
    await feed.close()
