"""The screens of the dashboard, read and used by keys and clicks."""

from __future__ import annotations

import asyncio
import json
import re
import resource
from collections.abc import Awaitable, Callable
from pathlib import Path

import dashboards
import pytest
from dashboards import Driven, dashboard, shown
from event_loop import in_event_loop, staged
from fake_cluster import FakeCluster
from fake_feed import FakeFeed, fake_feed
from textual import events
from textual.command import CommandList

from engine.admin.cluster.profiles import load_profiles, profiles_path
from engine.admin.cluster.target import ClusterTarget, Origin, Side
from engine.admin.watch.frame import LinkState, Stage
from engine.admin.watch.recording import RecordedFeed
from engine.common.model import TopicPartition
from tui.actions import ACTIONS, PAGES
from tui.drawing.cells import Tone
from tui.drawing.lines import folded, text_of
from tui.screen.saving import write_new
from tui.state.location import Location
from tui.state.status import source_lines
from tui.widgets.line_table import LineTable
from tui.widgets.lines_view import KeyBar, LinesView


@pytest.mark.parametrize("scene", ["live", "unreachable", "stages-failing"])
def test_every_screen_opens_by_its_key_in_every_state(scene: str) -> None:
    async def look(driven: Driven) -> None:
        for page, key, title in PAGES:
            await driven.press(key)
            assert driven.main.location.page == page
            first, *_, last = driven.text.splitlines()
            assert f"› {title}" in first
            assert last.split()[-4:] == ["?", "help", "q", "quit"], f"other keys make room: {last}"

    shown(look, scene, size=(80, 24))


@staged(shown)
async def test_the_overview_says_how_the_cluster_is_and_why(driven: Driven, /) -> None:
    assert driven.lines_with("✖ 2 unhealthy groups   the cluster is healthy")
    driven.feed.cluster.kill(2)
    await driven.tick()
    await driven.sees("✖ CRITICAL")
    assert driven.lines_with("▌✖ broker 2 down  "), "the gravest problem is under the cursor"
    assert "2 of 3" in driven.text
    assert driven.lines_with("broker down")


@staged(shown, "disconnected")
async def test_a_cluster_that_is_out_of_sight_is_not_called_healthy(driven: Driven, /) -> None:
    assert "✖ disconnected" in driven.text
    assert "was healthy when last seen" in driven.text.splitlines()[0]
    assert "● HEALTHY" not in driven.text
    assert "no answer for 10 s" in driven.text
    assert "next try in 2s" in driven.text


@pytest.mark.parametrize(
    ("scene", "expected"),
    [
        ("connecting", "○ connecting"),
        ("unreachable", "connection refused"),
        ("denied", "SASL_AUTHENTICATION_FAILED"),
        ("zookeeper-lost", "the session is over"),
        ("brokers-lost", "connection refused"),
        ("stages-failing", "⊘ groups: GROUP_AUTHORIZATION_FAILED"),
        ("stale", "asked and not answered"),
    ],
)
def test_every_standing_is_named_with_its_cause(scene: str, expected: str) -> None:
    async def look(driven: Driven) -> None:
        assert expected in driven.text

    shown(look, scene)


@staged(shown, "unreachable")
async def test_a_screen_without_data_says_why_instead_of_being_blank(driven: Driven, /) -> None:
    for key, message in (("3", "topics are not known yet"), ("4", "partitions are not known yet"), ("5", "groups")):
        await driven.press(key)
        assert message in driven.text


@staged(shown, size=(80, 24))
async def test_a_long_way_here_leaves_room_for_how_the_cluster_is(driven: Driven, /) -> None:
    await driven.press("colon")
    await driven.type("p " + "orders" * 9 + "-0")
    await driven.press("enter", "space")
    first = driven.text.splitlines()[0]
    assert first.endswith("✖ problems") and "…" in first


def test_a_long_name_leaves_room_for_what_must_not_be_changed() -> None:
    target = ClusterTarget("a-cluster-with-a-very-long-name." * 2, Origin.OPTIONS, bootstrap=(("k", 1),))

    async def look(driven: Driven) -> None:
        driven.main.go_to(Location("partitions", topic="orders"))
        first = driven.text.splitlines()[0]
        assert "  read-only  " in first
        assert first.endswith("✖ problems")

    shown(look, "live", size=(80, 24), page="topics", target=target, is_read_only=True)


def test_where_nothing_may_be_changed_the_last_line_has_no_keys_for_it() -> None:
    target = ClusterTarget("first", Origin.OPTIONS, bootstrap=(("k", 1),))

    async def look(driven: Driven) -> None:
        for page, key, _ in PAGES:
            await driven.press(key)
            listed = [action for action in ACTIONS if action.title.lower() in driven.text.splitlines()[-1]]
            assert not [action.id for action in listed if action.changes and action.in_footer and action.is_on(page)], (
                page
            )
            assert "? help" in driven.text.splitlines()[-1]
        await driven.press("3", "question_mark")
        assert driven.lines_with("dim keys do nothing now: started with --read-only"), "said once for all"
        assert driven.lines_with("Delete the topics")

    shown(look, "live", target=target, is_read_only=True)


@pytest.mark.parametrize(
    "part", ["title", "status", "tabs", "summary", "overview", "room", "table", "filter", "footer"]
)
@staged(shown)
async def test_a_picture_that_comes_while_the_dashboard_ends_is_left_out(driven: Driven, /, part: str) -> None:
    """A screen that is taken apart loses its parts one after the other; drawing then ended in NoMatches."""
    await driven.tick(2)
    await driven.main.query_one(f"#{part}").remove()
    driven.main.draw(is_new_data=True)
    driven.main.draw_head()
    driven.main.go_to(Location("topics"))
    assert driven.main.location.page == "overview" and not driven.main.take_key("3")


@staged(shown)
async def test_drill_down_leaves_breadcrumbs_and_history_leads_back(driven: Driven, /) -> None:
    await driven.press("3", "down", "down", "enter")
    assert driven.text.splitlines()[0].startswith(" klamm made-up cluster (live) › Topics › clicks")
    assert [str(item.name) for item in driven.main.model.shown] == [f"clicks-{number}" for number in range(6)]
    await driven.press("left_square_bracket")
    assert driven.main.location.page == "topics"
    assert driven.main.model.cursor_key == "clicks"
    await driven.press("right_square_bracket")
    assert driven.main.location.topic == "clicks"
    await driven.press("escape", "2", "enter")
    assert driven.main.location.broker == 1
    assert "broker 1 is up" in driven.text


@staged(shown)
async def test_a_filter_holds_while_frames_come_and_ends_with_escape(driven: Driven, /) -> None:
    await driven.press("3", "slash")
    await driven.type("!i")
    await driven.press("enter")
    await driven.tick(2)
    assert "/!i" in driven.text.splitlines()[0]
    await driven.press("2")
    assert "/!i" not in driven.text.splitlines()[0], "each screen has its own"
    await driven.press("3")
    assert driven.lines_with("payments")
    assert not driven.lines_with("invoices")
    await driven.press("escape")
    assert driven.lines_with("invoices")


@staged(shown)
async def test_tags_that_a_filter_hides_are_counted_as_such(driven: Driven, /) -> None:
    await driven.press("3", "t", "t")
    assert "2 tagged  " in driven.text.splitlines()[0]
    await driven.press("slash")
    await driven.type("consumer")
    await driven.press("enter")
    assert "2 tagged, 1 not in sight" in driven.text.splitlines()[0]
    await driven.press("slash", "ctrl+u")
    await driven.type("orders")
    await driven.press("enter")
    assert "2 tagged, not in sight" in driven.text.splitlines()[0]


@staged(shown)
async def test_keys_typed_into_the_filter_are_letters_not_actions(driven: Driven, /) -> None:
    await driven.press("3", "slash")
    await driven.type("q1D")
    assert driven.main.model.filter.text == "q1D"
    assert driven.main.location.page == "topics"
    assert "no row of 6 passes the filter 'q1D'" in driven.text


@staged(shown)
async def test_a_click_on_a_title_sorts_and_a_second_click_on_a_row_opens(driven: Driven, /) -> None:
    await driven.press("3")
    table = driven.main.query_one(LineTable)
    await driven.pilot.click(table, offset=(25, 0))
    title = driven.lines_with("TOPIC")[0]
    assert ("▼" in title) or ("▲" in title)
    await driven.press("S", "S")
    await driven.pilot.click(table, offset=(5, 3))
    assert driven.main.model.cursor == 2
    assert driven.main.location.page == "topics"
    await driven.pilot.click(table, offset=(5, 3))
    await driven.until(lambda: driven.main.location.page == "partitions")


@pytest.mark.parametrize(("width", "name"), [(120, "Reassign"), (100, "Moves"), (80, "Moves"), (60, "6")])
def test_a_click_on_a_key_of_the_bars_is_the_key(width: int, name: str) -> None:
    async def look(driven: Driven) -> None:
        tabs = driven.main.query_one("#tabs", KeyBar)
        shown = driven.text.splitlines()[tabs.region.y]
        for page, key, title in PAGES:
            named = {"reassignments": "Moves" if width < 120 else "Reassign", "zookeeper": "ZK"}.get(page, title)
            assert f" {key} {named[:4]}" in shown or width < 80, "at 80 columns, too, each screen has a name"
        await driven.pilot.click(tabs, offset=(shown.index(name), 0))
        await driven.until(lambda: driven.main.location.page == "reassignments")

    shown(look, "live", size=(width, 24))


@staged(shown)
async def test_pause_holds_the_view_while_data_go_on_and_loses_no_event(driven: Driven, /) -> None:
    await driven.press("4", "space")
    before = driven.text.splitlines()[6:]
    driven.feed.cluster.kill(2)
    await driven.tick()
    await driven.tick()
    assert driven.text.splitlines()[6:] == before
    assert re.search(r"  paused at \d\d:\d\d:\d\d", driven.text.splitlines()[0])
    await driven.press("space")
    assert driven.lines_with("under-replicated")
    await driven.press("8", "end")
    assert driven.lines_with("broker down")


@staged(shown)
async def test_how_often_the_cluster_is_asked_is_changed_within_bounds(driven: Driven, /) -> None:
    for keys, interval in (
        ((), "every 1s"),
        (["equals_sign"] * 2, "every 0.5s"),
        (["minus"] * 6, "every 10s"),
    ):
        await driven.press(*keys)
        assert driven.text.splitlines()[0].rstrip().endswith(interval)


@staged(shown)
async def test_changed_cells_are_tinted_until_the_next_frame(driven: Driven, /) -> None:
    await driven.press("4")
    await driven.tick()
    table = driven.main.query_one(LineTable)
    driven.feed.cluster.kill(3)
    await driven.tick()
    names = [column.name for column in table.model.rows.columns]
    changed = {names[index] for index in table._changed[TopicPartition("audit", 0)]}
    assert {"isr", "state"} <= changed
    await driven.tick()
    still = {names[index] for index in table._changed.get(TopicPartition("audit", 0), ())}
    assert not {"isr", "state"} & still


@staged(shown)
async def test_only_trouble_is_shown_on_demand(driven: Driven, /) -> None:
    await driven.press("4", "z")
    assert "no problems here" in driven.text
    driven.feed.cluster.create_topic("alone", 1, replication_factor=1)
    driven.feed.cluster.kill(driven.feed.cluster.frame().cluster.topic("alone").partitions[0].leader)
    await driven.tick()
    assert {item.partition.is_under_replicated or item.partition.leader < 0 for item in driven.main.model.shown} == {
        True
    }
    assert "offline" in driven.lines_with("alone-0")[0]


@staged(shown)
async def test_commands_lead_where_they_say_and_mistakes_are_told(driven: Driven, /) -> None:
    await driven.press("colon")
    await driven.type("t orders")
    await driven.press("enter")
    assert driven.main.location.topic == "orders"
    await driven.press("colon")
    await driven.type("pa")
    await driven.press("tab", "enter")
    assert driven.main.location.page == "partitions"
    await driven.press("colon")
    await driven.type("nothing-like-it")
    await driven.press("enter")
    await driven.until(lambda: any("nothing is called" in n.message for n in driven.app._notifications))


@staged(shown)
async def test_help_lists_every_action_of_the_screen(driven: Driven, /) -> None:
    await driven.press("3", "question_mark")
    for action in driven.app.session.registry.on_page("topics"):
        assert (action.help if action.pages else action.title) in driven.text, action.id


@pytest.mark.parametrize("keys", [("ctrl+p",), ("question_mark", "slash")], ids=["by its key", "from the help"])
@staged(shown)
async def test_the_palette_finds_actions_by_name(driven: Driven, /, keys: tuple[str, ...]) -> None:
    await driven.press(*keys)
    await driven.type("brok")
    listed = driven.app.screen.query_one(CommandList)
    await driven.until(lambda: listed.option_count > 0 and "Brokers" in str(listed.get_option_at_index(0).prompt))
    await driven.press("down", "enter")
    await driven.until(lambda: driven.main.location.page == "brokers")


@staged(shown, "stages-failing")
async def test_sources_say_who_told_what_and_how_old_it_is(driven: Driven, /) -> None:
    await driven.press("i")
    assert "GROUP_AUTHORIZATION_FAILED" in driven.text
    assert "no answer within 8 s" in driven.text
    assert "zk1:2181" in driven.text


def test_a_long_problem_of_a_source_stays_indented_where_it_is_folded() -> None:
    cluster = FakeCluster()
    cluster.fail_stage(Stage.LOG_DIRS, " ".join(["no answer within 8 s"] * 8))
    cluster.set_link(Side.WIRE, LinkState.LOST, " ".join(["connection refused"] * 8))
    told = [part for long in source_lines(cluster.frame()) for part in folded(long, 72)]
    troubles = [text_of(part) for part in told if any(tone is Tone.WARN for _, tone in part)]
    assert len(troubles) > 4 and all(text.startswith("  ") for text in troubles), troubles


def test_rows_in_sight_are_exported_and_copied(tmp_path: Path) -> None:
    async def look(driven: Driven) -> None:
        await driven.press("3", "slash")
        await driven.type("o")
        await driven.press("enter", "ctrl+s", "2")
        await driven.until(lambda: len(list(tmp_path.glob("*.json"))) == 1)
        rows = json.loads(next(tmp_path.glob("*.json")).read_text("utf-8"))
        assert [row["topic"] for row in rows] == ["__consumer_offsets", "invoices", "orders"]
        assert rows[2]["partition_count"] == 12
        await driven.press("ctrl+s", "3")
        await driven.until(lambda: len(list(tmp_path.glob("*.svg"))) == 1)
        assert "consumer_offsets" in next(tmp_path.glob("*.svg")).read_text("utf-8")
        await driven.press("y", "1")
        await driven.until(lambda: driven.app.clipboard == "klamm topics describe __consumer_offsets")

    shown(look, "live", folder=tmp_path)


def test_a_partition_is_exported_by_its_name(tmp_path: Path) -> None:
    async def look(driven: Driven) -> None:
        await driven.press("4", "slash")
        await driven.type("orders-7")
        await driven.press("enter", "ctrl+s", "1")
        await driven.until(lambda: len(list(tmp_path.glob("*.csv"))) == 1)
        _, row = next(tmp_path.glob("*.csv")).read_text("utf-8").splitlines()
        assert row.startswith("orders-7,"), row
        await driven.press("ctrl+s", "2")
        await driven.until(lambda: len(list(tmp_path.glob("*.json"))) == 1)
        (saved,) = json.loads(next(tmp_path.glob("*.json")).read_text("utf-8"))
        assert saved["partition"] == "orders-7"

    shown(look, "live", folder=tmp_path)


def test_a_folder_that_cannot_be_written_to_is_told(tmp_path: Path) -> None:
    async def look(driven: Driven) -> None:
        await driven.press("3", "ctrl+s", "1")
        await driven.until(lambda: any("not written" in n.message for n in driven.app._notifications))

    shown(look, "live", folder=tmp_path / "absent")


def test_a_file_that_does_not_fit_on_the_disk_leaves_no_half(tmp_path: Path) -> None:
    """A resource limit of the process replaces the disk: both end a write half-way."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            write_new(tmp_path / "view.json", "x" * 100_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "view.json").write_text("mine")
    with pytest.raises(FileExistsError):
        write_new(tmp_path / "view.json", "x")
    assert (tmp_path / "view.json").read_text() == "mine"


@staged(shown, "broker-down", size=(20, 8))
async def test_even_a_tiny_terminal_says_it_whole(driven: Driven, /) -> None:
    text = " ".join(driven.drawn.split())
    assert "the terminal is too small 20×8; the dashboard needs 60×16 q quits" in text


@staged(shown, "broker-down", size=(59, 15))
async def test_a_terminal_that_is_too_small_says_what_it_needs(driven: Driven, /) -> None:
    assert "the terminal is too small" in driven.text
    assert "59×15; the dashboard needs 60×16" in driven.text
    await driven.press("3")
    assert "orders" not in driven.text, "no table shines through"
    await driven.press("1")
    await driven.pilot.resize_terminal(60, 16)
    await driven.sees("CRITICAL")


@staged(shown)
async def test_keys_for_rows_that_problems_do_not_know_say_so(driven: Driven, /) -> None:
    await driven.press("3", "1")
    for action in driven.app.session.registry.on_page("overview"):
        if action.is_of_rows and action.id != "row.open":
            driven.app.clear_notifications()
            await driven.press(action.keys[0])
            assert driven.main.location.page == "overview"
            assert len(driven.app._notifications) == 1, action.id
    assert not driven.main.model.tags
    await driven.press("3")
    assert driven.main.model.cursor == 0


def test_odd_names_do_no_harm() -> None:
    cluster = FakeCluster(3, {"x" * 249: 2, "a\x1b[31m\nb": 1, "[bold]": 1, "日本": 1})
    cluster.add_group("g\x07[/]", "[bold]", reads=1)

    async def look(driven: Driven) -> None:
        for key in "34582":
            await driven.press(key)
            await driven.tick()
            assert "\x1b" not in driven.text
            assert "\x07" not in driven.text
        await driven.press("3")
        assert driven.lines_with("[bold]")
        assert driven.lines_with("a\\x1b[31m\\nb")

    shown(look, FakeFeed(cluster, plays=False), size=(80, 24))


def test_a_topic_of_two_thousand_partitions_is_moved_through() -> None:
    feed = FakeFeed(FakeCluster(3, {"wide": 2_000}), plays=False)

    async def look(driven: Driven) -> None:
        await driven.press("4", "end")
        assert driven.lines_with("wide-1999")
        await driven.press("pageup", "home")
        assert driven.lines_with("wide-0 ")
        assert len(driven.main.model.shown) == 2_000

    shown(look, feed)


@staged(shown)
async def test_a_frame_that_cannot_be_shown_is_told_and_the_next_one_is_shown(
    driven: Driven, /, monkeypatch: pytest.MonkeyPatch
) -> None:
    taking = driven.app.board.take
    monkeypatch.setattr(driven.app.board, "take", lambda frame: 1 / 0)
    driven.feed.tick()
    await driven.until(lambda: any("could not be shown" in n.message for n in driven.app._notifications))
    monkeypatch.setattr(driven.app.board, "take", taking)
    driven.feed.cluster.set_link(Side.WIRE, LinkState.LOST, "gone")
    await driven.tick()
    assert "degraded" in driven.text


@in_event_loop
async def test_q_ends_with_0_and_ctrl_c_with_130() -> None:
    async def run(key: str) -> int | None:
        async with dashboard() as driven:
            await driven.press(key)
        return driven.app.return_value

    assert await run("q") == 0
    assert await run("ctrl+c") == 130


def test_another_cluster_of_the_profiles_is_chosen_and_a_broken_one_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "klamm"
    folder.mkdir()
    (folder / "clusters.toml").write_text(
        '[clusters.dev]\nbootstrap_servers = "127.0.0.1:9092"\n'
        '[clusters.bad]\nbootstrap_servers = "127.0.0.1:9092"\ncommand_config = "absent.properties"\n',
        "utf-8",
    )
    environment = {"XDG_CONFIG_HOME": str(tmp_path)}

    async def look(driven: Driven) -> None:
        await driven.press("ctrl+o")
        assert "Clusters of" in driven.text
        await driven.press("2")
        await driven.sees("Cluster bad cannot be opened")
        await driven.press("escape")
        assert driven.app.session.feed is driven.feed
        recorded = driven.app.session.feed = RecordedFeed(driven.feed, tmp_path / "now.rec")
        await driven.press("3", "ctrl+o", "1")
        await driven.until(lambda: driven.app.session.feed is not recorded)
        await driven.until(lambda: any("now.rec has ended" in n.message for n in driven.app._notifications))
        await driven.sees("✖ CRITICAL")
        assert driven.text.splitlines()[0].startswith(" klamm dev › Overview")

    shown(
        look,
        "live",
        environment=environment,
        profiles=load_profiles(profiles_path(environment)),
        open_feed=lambda target: fake_feed("broker-down", plays=False),
    )


def test_a_group_shows_its_lag_in_time() -> None:
    async def look(driven: Driven) -> None:
        await driven.press("5", "enter")
        assert not driven.lines_with("most"), "one look is no past"
        await driven.tick(11)
        samples = driven.app.board.history.lag.of(driven.main.location.group or "")
        values = [sample.value for sample in samples]
        row = driven.lines_with("lag   ")[0]
        assert len(values) > 2
        assert f"least {min(values):,.0f}".replace(",", " ") in row
        assert f"most {max(values):,.0f}".replace(",", " ") in row
        assert any(block in row for block in "▁▂▃▄▅▆▇█")

    cluster = FakeCluster(3, {"orders": 2})
    cluster.add_group("billing", "orders", reads=50, lag=5)
    shown(look, FakeFeed(cluster, plays=False))


def test_the_lag_of_a_partition_without_leader_is_not_known() -> None:
    async def look(driven: Driven) -> None:
        await driven.tick(11)
        furthest = driven.text.splitlines()
        at = next(index for index, line in enumerate(furthest) if line.startswith("┌ Groups"))
        names = [line.split()[1:4] for line in furthest[at + 1 : at + 4]]
        assert names == [["STALL", "behind", "≥400"], ["UNKNOWN", "reads-all", "—"], ["STALL", "other", "7.0k"]]
        assert "1 of 2 unknown" in driven.lines_with("reads-all")[0]
        assert driven.lines_with("≥7.4k lag")
        assert driven.app.board.samples[-1].lag is None, "a gap in the chart"
        await driven.press("5")
        assert "3 groups, at least 7 400 records behind" in driven.text
        assert driven.lines_with("reads-all")[0].split()[1:6] == ["UNKNOWN", "2", "—", "—", "—"]
        assert "≥400" in driven.lines_with("behind  ")[1].split()
        await driven.press("end", "enter")
        assert "UNKNOWN no leader, lag of 1 of 2 unknown" in driven.text

    cluster = FakeCluster(3, {"clicks": 1, "orders": 2}, replication_factor=1, rate=0)
    cluster.add_group("reads-all", "orders", reads=100)
    cluster.add_group("behind", "orders", reads=0, lag=400)
    cluster.add_group("other", "clicks", reads=0, lag=7_000)
    cluster.frame()
    cluster.kill(cluster.frame().cluster.topics[1].partitions[1].leader)  # type: ignore[union-attr]
    shown(look, FakeFeed(cluster, plays=False))


@staged(shown)
async def test_the_overview_does_not_show_for_a_moment_what_it_showed_last(driven: Driven, /) -> None:
    assert "the cluster is healthy" in driven.text
    await driven.press("5")
    driven.feed.cluster.kill(2)
    await driven.tick()
    driven.main.go_to(Location("overview"))
    overview = driven.main.query_one("#overview", LinesView)
    assert "healthy" not in overview.text, "this is drawn first, before the screen is laid out again"
    await driven.settled()
    assert "CRITICAL" in overview.text


def test_a_lag_that_was_known_leaves_a_gap_while_it_is_not() -> None:
    async def look(driven: Driven) -> None:
        await driven.tick(11)
        cluster.kill(leader)
        await driven.tick(6)
        cluster.start(leader)
        await driven.tick(6)
        await driven.press("5", "enter")
        course = driven.lines_with("lag   ")[0]
        assert course.split("least")[0].split()[1:] == ["███", "██"]
        assert "least 10   most 10" in course

    cluster = FakeCluster(3, {"orders": 2}, replication_factor=1, rate=0)
    cluster.add_group("billing", "orders", reads=0, lag=5)
    leader = cluster.frame().cluster.topics[0].partitions[1].leader  # type: ignore[union-attr]
    shown(look, FakeFeed(cluster, plays=False))


@staged(shown)
async def test_a_plan_file_stands_beside_the_cluster(driven: Driven, /, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    partitions = [
        {"topic": "audit", "partition": 0, "replicas": [3, 1, 2]},
        {"topic": "gone", "partition": 0, "replicas": [1]},
    ]
    plan.write_text(json.dumps({"version": 1, "partitions": partitions}))
    await driven.press("7")
    assert "o opens a file" in driven.text
    await driven.press("colon")
    await driven.type(f"plan {plan}")
    await driven.press("enter")
    await driven.sees("1 to do, 1 not found")
    assert "2,1,3" in driven.lines_with("audit-0")[-1]
    assert "3,1,2" in driven.lines_with("audit-0")[-1]
    assert driven.lines_with("preferred leaders")
    plan.write_text("{")
    await driven.press("colon")
    await driven.type(f"plan {plan}")
    await driven.press("enter")
    await driven.sees("not JSON")


@staged(shown)
async def test_the_timeline_opens_at_the_newest_entry_and_goes_back_to_where_one_was(driven: Driven, /) -> None:
    for number in range(4):
        driven.feed.cluster.create_topic(f"new-{number}", 1)
        await driven.tick()
    await driven.press("8", "down", "down", "down")
    left = driven.main.model.cursor_key
    assert driven.main.model.cursor == 3
    await driven.press("1", "left_square_bracket")
    assert driven.main.model.cursor_key == left, "back where one was"
    await driven.press("1")
    driven.feed.cluster.kill(2)
    await driven.tick()
    await driven.press("8")
    assert driven.main.model.cursor == 0
    await driven.press("down", "8")
    assert driven.main.model.cursor == 1, "one is there already"


@staged(shown, page="zookeeper")
async def test_where_znodes_cannot_be_read_no_key_is_offered_for_them(driven: Driven, /) -> None:
    footer = driven.drawn.splitlines()[-1]
    assert "no ZooKeeper is named" in driven.drawn and "? help" in footer
    assert not [key for key in ("enter", "filter", "problems") if key in footer], footer


@staged(shown, "denied", size=(80, 24))
async def test_what_nobody_may_read_is_not_said_to_be_read(driven: Driven, /) -> None:
    assert driven.lines_with("the cluster's health is not known yet: the cause stands above")


@staged(shown)
async def test_a_click_where_the_terminal_was_before_it_became_smaller_harms_no_palette(driven: Driven, /) -> None:
    await driven.press("ctrl+p")
    palette = driven.app.screen

    def click(x: int, y: int) -> None:
        keys = {"shift": False, "meta": False, "ctrl": False}
        palette.post_message(events.Click(palette, x, y, 0, 0, button=1, screen_x=x, screen_y=y, **keys))

    click(200, 10)
    click(10, 90)
    await driven.settled()
    assert driven.app.screen is palette
    click(1, 1)
    await driven.until(lambda: driven.app.screen is driven.main)


@pytest.mark.parametrize("wait", [Driven.settled, lambda driven: driven.until(lambda: False)], ids=["settled", "until"])
def test_a_test_ends_at_once_with_what_the_dashboard_crashed_with(wait: Callable[[Driven], Awaitable[None]]) -> None:
    def crash() -> None:
        raise ValueError("no such row")

    async def look(driven: Driven) -> None:
        driven.main.call_later(crash)
        async with asyncio.timeout(20):
            await wait(driven)

    with pytest.raises(ValueError, match="no such row"):
        shown(look)


@staged(shown)
async def test_a_test_waits_for_no_dashboard_that_never_settles(
    driven: Driven, /, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dashboards, "WAIT_S", 0.1)

    async def again() -> None:
        driven.main.call_later(again)
        await asyncio.sleep(0)

    driven.main.call_later(again)
    with pytest.raises(AssertionError, match="the screen:"):
        await driven.settled()
