"""The table of all clusters: how each is and why, into one and back, and that none waits for another."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from dashboards import Driven, dashboard, drive, fleet_of
from event_loop import in_event_loop
from fake_cluster import FakeCluster, small_cluster
from fake_feed import FakeFeed, fake_feed
from klamm_program import in_process

from engine.admin.cluster.profiles import Colour, load_profiles, profiles_path
from engine.admin.cluster.target import ClusterTarget
from engine.admin.watch.feed import Feed
from engine.admin.watch.frame import BrokerWords, Stage
from engine.admin.watch.live_feed import LiveFeed
from engine.local.cluster import LocalCluster
from tui.pages.clusters import version_of
from tui.run import Wishes, members_of
from tui.state.fleet import Fleet

Look = Callable[[Driven], Awaitable[None]]


def shown(fleet: Fleet, look: Look, **options: Any) -> None:
    """Look at clusters; without ``size`` at 120 by 40."""

    async def run() -> None:
        async with dashboard(fleet, fleet=fleet, open_feed=fleet.open_feed, **options) as driven:
            await driven.until(lambda: fleet.is_settled)
            await look(driven)

    drive(run)


def shown_names(driven: Driven) -> list[str]:
    return [item.name for item in driven.main.model.shown]


SOME = {name: name for name in ("live", "broker-down", "unreachable", "denied")}
BAD = {"bad": "absent.properties: no such file"}


def test_each_cluster_has_the_verdict_of_its_own_header_and_the_gravest_is_first() -> None:
    async def look(driven: Driven) -> None:
        await driven.sees("✖ critical")
        assert shown_names(driven) == ["broker-down", "bad", "denied", "unreachable", "live"]
        assert driven.main.model.cursor == 0, "the gravest is chosen until somebody chooses another"
        row = {line.split()[0].removeprefix("▌"): line for line in driven.text.splitlines() if line.strip()}
        down = driven.lines_with("✖ critical")[0].split()
        assert down[:9] == ["▌", "broker-down", "✖", "critical", "1", "2/3", "34", "1.6M", "3.9"]
        assert "broker 2 down" in " ".join(down)
        assert row["live"].split()[1:7] == ["✖", "problems", "1", "3/3", "0", "1.6M"]
        assert "✖ unreachable" in row["unreachable"] and row["unreachable"].rstrip().endswith("connection refused")
        assert "⊘ refused" in row["denied"] and "SASL_AUTHENTICATION_FAILED" in row["denied"]
        assert "✖ bad profile" in row["bad"] and "no such file" in row["bad"]
        assert driven.lines_with("5 clusters   1 critical   3 not seen   1 healthy")
        assert driven.drawn.splitlines()[3].startswith("  CLUSTER "), "nothing stands between"
        await driven.press("z")
        assert shown_names(driven) == ["broker-down", "bad", "denied", "unreachable", "live"], (
            "its groups are unhealthy"
        )
        await driven.press("z", "enter")
        await driven.sees("broker-down › Overview")
        await driven.sees("✖ CRITICAL")
        assert "✖ critical" in driven.text.splitlines()[0]

    shown(fleet_of(SOME | BAD), look)


def test_enter_goes_into_a_cluster_and_esc_comes_back_to_its_row() -> None:
    opened: list[FakeFeed] = []

    def open_feed(target: ClusterTarget) -> Feed:
        opened.append(fake_feed(target.name, plays=False))
        return opened[-1]

    async def look(driven: Driven) -> None:
        fleet = driven.app.session.fleet
        assert fleet is not None and [feed.status.is_paused for feed in opened] == [False, False]
        await driven.press("down", "enter")
        await driven.sees("live › Brokers")
        entered = opened[2]
        assert driven.app.session.feed is entered
        assert [feed.status.is_paused for feed in opened[:2]] == [True, True], "at rest they cost nothing"
        await driven.press("3", "escape", "escape")
        await driven.until(lambda: driven.app.session.shows_fleet)
        await driven.sees("all clusters › Clusters")
        assert entered.status.has_ended
        assert [feed.status.is_paused for feed in opened[:2]] == [False, False]
        assert all(Stage.METADATA in feed.refreshed[-1] for feed in opened[:2]), "what was read before is old"
        assert driven.main.model.cursor_key == "live"
        await driven.press("ctrl+o")
        assert any("enter opens" in notification.message for notification in driven.app._notifications)
        await driven.press("enter")
        await driven.sees("live › Brokers")
        await driven.press("ctrl+o")
        await driven.sees("all clusters › Clusters")

    shown(fleet_of({"live": "live", "broker-down": "broker-down"}, open_feed=open_feed), look, page="brokers")
    assert all(feed.status.has_ended for feed in opened), "nothing is left running"


def test_no_screen_of_a_cluster_opens_before_one_is_chosen() -> None:
    async def look(driven: Driven) -> None:
        for keys in (("3",), ("colon", "t", "enter"), ("E",), ("N",)):
            await driven.press(*keys)
            assert driven.main.location.page == "clusters", keys
        assert any(
            "enter opens the one under the cursor" in notification.message for notification in driven.app._notifications
        )
        await driven.press("l")
        assert driven.main.location.page == "logs"
        assert driven.text.splitlines()[0].startswith(" klamm all clusters › Logs")
        await driven.press("escape", "down", "i")
        assert any("metadata" in line and "poll" in line for line in driven.text.splitlines()), "of the chosen cluster"
        await driven.press("escape", "slash")
        await driven.type("bad")
        await driven.press("enter", "enter")
        assert "Cluster bad cannot be opened" in driven.text
        assert "absent.properties" in driven.text

    shown(fleet_of({"live": "live"} | BAD), look)


def test_a_cluster_is_asked_seldom_once_it_is_known_and_keeps_its_name_and_label() -> None:
    async def look(driven: Driven) -> None:
        fleet = driven.app.session.fleet
        assert fleet is not None
        feed = fleet.members[0].feed
        assert feed is not None
        await driven.until(lambda: feed.status.interval_s == 10)
        await driven.press("r")
        assert feed.status.interval_s == 1, "until it was read after this"
        assert isinstance(feed, FakeFeed)
        feed.tick(1_000)
        await driven.until(lambda: feed.status.interval_s == 10)
        await driven.press("equals_sign")
        assert feed.status.interval_s == 5
        await driven.press("space")
        assert feed.status.is_paused and "paused" in driven.text.splitlines()[0]
        await driven.press("space")
        assert not feed.status.is_paused
        assert "live [eu]" in driven.text
        assert driven.main.saving.text_of("command") == "klamm cluster health --cluster live"
        assert '"why": "group nightly-report STOP · group search-index WARN"' in driven.main.saving.text_of("row")

    shown(fleet_of({"live": "live"}, live={"label": "eu", "colour": Colour.RED}), look)


@in_event_loop
async def test_a_cluster_that_never_answers_holds_none_of_the_others() -> None:
    class Hangs(FakeFeed):
        async def start(self) -> None:
            await asyncio.Event().wait()

    def open_feed(target: ClusterTarget) -> Feed:
        return (Hangs if target.name == "hangs" else FakeFeed)(small_cluster(), plays=False)

    fleet = fleet_of({"hangs": "live", "live": "live"}, open_feed=open_feed)
    async with dashboard(fleet, fleet=fleet, open_feed=open_feed) as driven:
        await driven.sees("● healthy")
        assert driven.lines_with("○ connecting")
        assert driven.lines_with("2 clusters   1 not known yet   1 healthy")
        await driven.press("down", "down", "enter")
        await driven.sees("live › Overview")


def test_what_was_seen_last_is_not_shown_as_what_is() -> None:
    async def look(driven: Driven) -> None:
        fleet = driven.app.session.fleet
        assert fleet is not None
        await driven.sees("? was healthy")
        assert "when last seen" not in driven.text, "the column would widen, and never narrow again"
        assert driven.lines_with("1 not seen")

    shown(fleet_of({"disconnected": "disconnected"}), look)


def test_the_versions_of_a_cluster_that_is_upgraded() -> None:
    member = fleet_of({"live": "live"}).members[0]
    frame = FakeCluster().frame()
    member.board.take(replace(frame, words={1: BrokerWords(release="3.10"), 2: BrokerWords(release="3.9")}))
    assert version_of(member) == "3.9, 3.10"


def test_an_open_a_secured_and_an_unreachable_cluster_and_one_with_a_wrong_password(
    three_brokers: LocalCluster, secured: LocalCluster, tmp_path: Path
) -> None:
    right = (secured.directory / "client.properties").read_text("utf-8")
    (tmp_path / "wrong.properties").write_text(
        "".join(line.replace('password\\="', 'password\\="not-') for line in right.splitlines(keepends=True)), "utf-8"
    )
    (tmp_path / "klamm").mkdir()
    (tmp_path / "klamm" / "clusters.toml").write_text(
        f"""[clusters.open]
bootstrap_servers = "{three_brokers.bootstrap_servers}"
zookeeper = "{three_brokers.zookeeper_connect}"
[clusters.secured]
bootstrap_servers = "{secured.bootstrap_servers}"
command_config = "{secured.directory}/client.properties"
[clusters.wrong]
bootstrap_servers = "{secured.bootstrap_servers}"
command_config = "{tmp_path}/wrong.properties"
[clusters.gone]
bootstrap_servers = "127.0.0.1:1"
[clusters.bad]
bootstrap_servers = "127.0.0.1:1"
command_config = "absent.properties"
""",
        "utf-8",
    )
    profiles = load_profiles(profiles_path({"XDG_CONFIG_HOME": str(tmp_path)}))

    async def look(driven: Driven) -> None:
        # Other tests on the same brokers may have left topics with other leaders than they prefer.
        def are_seen() -> bool:
            judged = driven.lines_with("● healthy") + driven.lines_with("too few")
            return all(any(name in row and " 3.9" in row for row in judged) for name in ("secured", "open"))

        await driven.until(are_seen)
        lines = {profile.name: driven.lines_with(profile.name)[0] for profile in profiles.profiles}
        assert "● healthy" in lines["secured"] and lines["secured"].split("healthy")[1].split()[:3] == ["0", "1/1", "0"]
        assert " 3/3 " in lines["open"] and ("● healthy" in lines["open"] or "too few" in lines["open"])
        assert "⊘ refused" in lines["wrong"] and "refuses admin by PLAIN" in lines["wrong"]
        assert "✖ unreachable" in lines["gone"] and "no broker can be reached" in lines["gone"]
        assert "absent.properties: no such file" in lines["bad"]
        await driven.press("slash")
        await driven.type("secured")
        await driven.press("enter", "enter")
        await driven.sees("secured as User:admin › Overview")
        await driven.until(lambda: len(driven.app.board.live) == 1)
        await driven.press("escape")
        await driven.sees("all clusters › Clusters")

    members = members_of(profiles, Wishes(), None, {"XDG_CONFIG_HOME": str(tmp_path)})
    shown(Fleet(members, LiveFeed), look, size=(200, 40))


def test_all_stands_alone_and_needs_profiles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    ran = in_process("top", "--all", "--screenshot", tmp_path / "all.svg", capture=capsys)
    assert ran.code == 2 and "there are no profiles" in ran.err and "klamm profiles add" in ran.err
    for option, value in (("--cluster", "x"), ("--replay", "x.rec"), ("--record", "x.rec"), ("--logs", "/x")):
        ran = in_process("top", "--all", option, value, capture=capsys)
        assert ran.code == 2 and f"--all and {option} contradict each other" in ran.err


def test_a_picture_of_all_clusters_says_by_its_code_whether_any_answered(
    three_brokers: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    (tmp_path / "klamm").mkdir()
    profiles = tmp_path / "klamm" / "clusters.toml"
    profiles.write_text('[clusters.gone]\nbootstrap_servers = "127.0.0.1:1"\n', "utf-8")
    picture = tmp_path / "all.svg"
    ran = in_process("top", "--all", "--screenshot", picture, capture=capsys)
    assert ran.code == 3 and "no cluster answered in time" in ran.err and "unreachable" in picture.read_text("utf-8")
    with profiles.open("a", encoding="utf-8") as file:
        file.write(f'[clusters.there]\nbootstrap_servers = "{three_brokers.bootstrap_servers}"\n')
    ran = in_process("top", "--all", "--screenshot", picture, capture=capsys)
    assert ran.code == 0 and "3/3" in picture.read_text("utf-8")
