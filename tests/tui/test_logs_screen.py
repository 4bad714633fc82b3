"""The logs screen: the brokers' lines about a partition, and the dashboard's own log with its file."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest
from dashboards import dashboard, drive
from event_loop import in_event_loop
from fake_cluster import FakeCluster
from fake_feed import FakeFeed
from state_change_logs import recorded_entries

from engine.admin.cluster.profiles import profiles_path
from engine.admin.cluster.target import ClusterTarget, Origin, Side
from engine.admin.watch.frame import LinkState
from tui.run import key_file_path
from tui.screen.saving import Saving
from tui.state.log_ring import LINES_MAX, LogRing, log_file_path, logs_kept

RECORDED = Path(__file__).parents[2] / "fixtures" / "state-changes" / "broker-killed"
MOVE_0 = "Cached leader info UpdateMetadataPartitionState(topicName='move', partitionIndex=0,"
STATE = r" ([\d:,]+)\] .* leader=(\d+), leaderEpoch=(\d+), isr=\[([\d, ]+)\], zkVersion=(\d+)"


def target(*logs: str | Path) -> ClusterTarget:
    return ClusterTarget("dev", Origin.OPTIONS, bootstrap=(("kafka1", 9092),), logs=tuple(map(str, logs)))


def feed() -> FakeFeed:
    return FakeFeed(FakeCluster(3, {"move": 2, "other": 1}), plays=False)


@in_event_loop
async def test_what_brokers_logged_of_the_partition_under_the_cursor() -> None:
    last = next(line for line in reversed(recorded_entries(RECORDED)) if MOVE_0 in line)
    time, leader, leader_epoch, isr, version = re.findall(STATE, last)[0]
    minute = time[:6]
    async with dashboard(feed(), page="partitions", target=target(RECORDED), size=(160, 30)) as driven:
        await driven.press("down", "w")
        await driven.sees("entries about move-1")
        assert "› Topics › move › 1 › Logs" in driven.text.splitlines()[0]
        await driven.press("escape", "up", "w")
        await driven.sees("9 entries about move-0")
        newest, *_ = driven.lines_with(minute)
        assert time.replace(",", ".") in newest and "Cached leader info" in newest
        # Leader, ISR, leader epoch and version are decoded from the line, each in its column.
        assert newest.split()[6:10] == [leader, isr, leader_epoch, version]
        assert Saving(driven.main).command() == (
            f"klamm state-changes merge {RECORDED} --topic move --partition 0 --bootstrap-server kafka1:9092"
        )
        await driven.press("enter")
        assert re.search(r"controller \d+ epoch \d+ with correlation id \d+", last)[0] in driven.text
        await driven.press("escape", "slash")
        await driven.type("Completed")
        assert len(driven.main.model.shown) == 1
        await driven.press("escape", "escape", "l")
        assert "the dashboard's own log" in driven.text


@pytest.mark.parametrize("place", ["", "/absent/logs"])
@in_event_loop
async def test_without_logs_it_says_how_to_name_them_or_what_is_wrong(place: str) -> None:
    async with dashboard(feed(), page="partitions", target=target(*[place] * bool(place))) as driven:
        await driven.press("w")
        await driven.sees(f"{place}: no such file or folder" if place else "klamm top --logs FOLDER")


@in_event_loop
async def test_a_partitions_replicas_and_the_way_back() -> None:
    made = feed()
    async with dashboard(made, page="partitions") as driven:
        await driven.press("enter")
        assert "› Topics › move › 0" in driven.text.splitlines()[0]
        assert "leader, preferred" in driven.lines_with("in sync")[0]
        made.cluster.kill(1)
        await driven.tick()
        assert "broker down" in driven.lines_with("preferred")[0]
        assert "under-replicated" in driven.text
        await driven.press("enter")
        assert driven.main.location.broker == 1
        await driven.press("escape", "escape")
        assert driven.main.location.page == "partitions"


@in_event_loop
async def test_operations_inside_a_partition_are_about_it() -> None:
    async with dashboard(feed(), page="partitions", target=target()) as driven:
        await driven.press("enter", "X")
        await driven.until(lambda: "move-0" in driven.text and "Delete" in driven.text)


def test_losing_sight_and_seeing_again_stand_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    made = feed()
    caplog.set_level(logging.INFO, "tui.state.status")

    async def run() -> None:
        async with dashboard(made) as driven:
            for side in Side:
                made.cluster.set_link(side, LinkState.LOST, "connection refused")
            await driven.tick(3)
            for side in Side:
                made.cluster.set_link(side, LinkState.CONNECTED)
            await driven.tick(2)

    drive(run)
    records = [
        (record.levelname, record.getMessage()) for record in caplog.records if record.name == "tui.state.status"
    ]
    assert [level for level, _ in records] == ["INFO", "WARNING", "INFO"], records
    assert "disconnected" in records[1][1] and "connection refused" in records[1][1] and "live" in records[2][1]


def test_a_file_keeps_what_was_logged_and_is_rolled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = log_file_path({"XDG_STATE_HOME": str(tmp_path)})
    assert path == tmp_path / "klamm" / "top.log"
    assert log_file_path({"HOME": "/home/me"}) == Path("/home/me/.local/state/klamm/top.log")
    monkeypatch.setattr("tui.state.log_ring.FILE_BYTES_MAX", 2_000)
    with logs_kept(path) as ring:
        for number in range(100):
            logging.getLogger("tui.trial").warning("line %d of it", number)
    assert ring.path == path and len(ring.lines) == 100 <= LINES_MAX
    assert path.read_text("utf-8").endswith("WARNING tui.trial: line 99 of it\n")
    assert len(list(path.parent.iterdir())) == 4, "the file and three older ones"
    assert all(file.stat().st_size <= 2_000 for file in path.parent.iterdir())


def test_a_line_that_does_not_fit_its_values_is_kept_as_it_is() -> None:
    with logs_kept() as ring:
        logging.getLogger("somebody.else").warning("%d of %d", "three")
    assert ring.lines[0].message == "%d of %d ('three',)"


def test_a_user_without_a_home_has_no_file_and_a_dashboard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.path.expanduser", lambda path: path)
    for path in (log_file_path({}), key_file_path({}), profiles_path({})):
        assert path.is_absolute()


@in_event_loop
async def test_logs_that_cannot_be_read_for_any_reason_are_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: object) -> None:
        raise IndexError("of a mistake")

    monkeypatch.setattr("engine.admin.state_changes.partition_log.partition_log", broken)
    async with dashboard(feed(), page="partitions", target=target(RECORDED)) as driven:
        await driven.press("w")
        await driven.sees("IndexError: of a mistake")


@in_event_loop
async def test_the_dashboards_own_log_is_a_screen() -> None:
    ring = LogRing()
    ring.emit(logging.makeLogRecord({"name": "engine.kafka.zk", "levelno": logging.WARNING, "msg": "lost\x1b it"}))
    async with dashboard(log=ring) as driven:
        await driven.press("l")
        assert "lost\\x1b it" in driven.lines_with("engine.kafka.zk")[0]


def test_mistakes_in_the_users_files_stay_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """A message on the screen goes away by itself."""

    async def run() -> None:
        async with dashboard("live", problems=("keys.toml:3: no action is called 'topic.deleet'",)):
            pass

    with caplog.at_level(logging.WARNING, "tui.frame_app"):
        drive(run)
    assert "keys.toml:3: no action is called 'topic.deleet'" in caplog.messages
