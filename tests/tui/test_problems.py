"""The overview's problems: rows that say what is wrong, since when, and open what they are about."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import fake_readers
import pytest
from dashboards import Driven, shown
from event_loop import staged
from fake_cluster import FakeCluster
from fake_feed import FakeFeed, fake_feed

from engine.admin.analysis.clocks_and_epochs import Doubt, Finding
from engine.admin.analysis.incidents import RUNS_MAX, Run, Runs
from engine.admin.analysis.standstills import may_step_over
from engine.admin.cluster.target import ClusterTarget, Origin
from engine.admin.configs.values import Entity, EntityType
from engine.admin.groups.values import GroupState
from engine.admin.health.report import Check, HealthReason, HealthReport, HealthStatus, Severity
from engine.admin.lag.group_lag import GroupLag
from engine.admin.lag.verdicts import LagStatus, Reason
from engine.admin.reassignment.journal import UnfinishedPlan
from engine.admin.watch.events import Event, EventKind
from engine.admin.watch.frame import Stage, StageStatus, WatchedGroup
from engine.admin.watch.judging import HealthMemory
from engine.admin.znodes.tree import Znode
from engine.common.model import TopicPartition
from engine.kafka.protocol.records.record import Record
from tui.dialogs.dialog import TextDialog
from tui.drawing.cells import Cell, Tone
from tui.drawing.lines import text_of
from tui.drawing.units import NOTHING, short_count
from tui.operations.elections import Elect
from tui.operations.settings import ALL_CLIENTS, AlterSettings
from tui.pages import asides, brokers, groups, overview, partitions, timeline, topics, zookeeper
from tui.pages.asides import aside_of
from tui.pages.page import View, rows_at
from tui.pages.timeline import change_text
from tui.pages.why import age_text, why_lines
from tui.screen.action_handlers import chosen
from tui.screen.offers import Ask, EditSettings, NotNow, offer_for
from tui.screen.page_screen import footer_items
from tui.state import problems
from tui.state.board import Board
from tui.state.location import Location, Only
from tui.state.off_board import ShownRecord, ZnodeLevel
from tui.state.problems import Problem, problems_of


def board_of(feed: FakeFeed, ticks: int, board: Board | None = None) -> Board:
    board = board or Board()
    for _ in range(ticks):
        board.take(feed.tick())
    return board


def told(board: Board, subject: str) -> tuple[str, str, Tone]:
    (found,) = [problem for problem in problems_of(board) if problem.subject == subject]
    return found.effect, age_text(found, board), found.tone


def test_a_dead_broker_comes_before_what_follows_from_it() -> None:
    feed = fake_feed("live", plays=False)
    board = board_of(feed, 5)
    assert not [problem for problem in problems_of(board) if problem.is_of_cluster]
    feed.cluster.kill(2)
    board_of(feed, 4, board)
    assert [problem.subject for problem in problems_of(board)][:2] == ["broker 2 down", "34 under-replicated"]
    assert told(board, "34 under-replicated") == ("all missing broker 2", "3s", Tone.BAD)
    feed.cluster.start(2)
    board_of(feed, 20, board)
    assert not [problem for problem in problems_of(board) if problem.key == "broker 2"]
    feed.cluster.kill(2)
    board_of(feed, 2, board)
    assert told(board, "broker 2 down")[1] == "1s", "the second time counts from the second time"


def test_what_began_while_nobody_looked_is_at_least_so_old() -> None:
    feed = fake_feed("live", plays=False)
    board = board_of(feed, 5)
    feed.cluster.kill(2)
    board.take(feed.tick(120_000))
    assert told(board, "34 under-replicated")[1] == "≥0s", "a jump in a recording, or a machine that slept"
    board_of(feed, 2, board)
    assert told(board, "34 under-replicated")[1] == "≥2s"


def test_what_is_wrong_at_the_first_look_began_before_it() -> None:
    board = board_of(fake_feed("broker-down", plays=False), 3)
    ages = {age_text(problem, board)[:1] for problem in problems_of(board) if problem.is_of_cluster}
    assert ages == {"≥"}


def test_the_first_verdict_on_a_group_says_nothing_of_when_it_began() -> None:
    """It takes several looks: a group that nobody has read for an hour is STOP some seconds after the start."""
    feed, board = fake_feed("live", plays=False), Board()

    def took(status: LagStatus) -> str | None:
        frame = feed.tick()
        (first, *_) = frame.groups
        board.take(replace(frame, groups=(replace(first, lag=replace(first.lag, status=status)),)))
        rows = [problem for problem in problems_of(board) if problem.key == f"group {first.name}"]
        return age_text(rows[0], board) if rows else None

    assert took(LagStatus.UNKNOWN) is None
    assert took(LagStatus.STOP) == "≥0s"
    assert took(LagStatus.STOP) == "≥1s"
    assert took(LagStatus.UNKNOWN) is None, "it was judged all the same"
    assert took(LagStatus.STOP) == "0s", "it was not so before"


def test_a_group_that_stops_committing_is_not_told_that_it_reads_too_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fake_readers, "_POINTS_MAX", 40)
    feed = FakeFeed(FakeCluster(3, {"orders": 4}), plays=False)
    rate = feed.cluster.rate
    feed.cluster.add_group("reports", "orders", reads=rate * 0.9, lag=1_000)
    board = board_of(feed, 22)

    def why() -> str:
        (found,) = [problem for problem in problems_of(board) if problem.key == "group reports"]
        return f"{found.subject}: {found.effect}; {found.examples[0]}; {found.advice}"

    assert "WARN" in why() and "reads less than comes in" in why() and "nothing for" not in why()
    feed.cluster.stop_reading("reports")
    board_of(feed, 14, board)
    assert "WARN" in why(), "the verdict takes its time"
    assert "no commit for 10s, " in why() and "; its members commit nothing: look at what they log" in why()
    assert f"↑ {short_count(rate * 4)}/s" in why(), "all that comes in"
    panels = "".join(part for line in overview.overview_of(board, [], 120, 40).lines for part, _ in line)
    assert re.search(rf"reports .*↑ {short_count(rate * 4)}/s", panels)
    place = View(board, Location("group", group="reports"))
    assert "has committed nothing for 10s" in "".join(part for part, _ in groups.GROUP_PAGE.summary(place, 120)[0])
    of_group, *_ = groups.PAGE.rows(View(board, Location("groups"))).items
    of_partition, *_ = groups.GROUP_PAGE.rows(place).items
    for columns, item, comes in (
        (groups.COLUMNS, of_group, rate * 4),
        (groups.PARTITION_COLUMNS, of_partition, rate),
    ):
        cells = {column.name: column.cell(item).text for column in columns}
        assert cells["trend"] == f"↑ {short_count(comes)}/s", "what it committed before does not count"
        assert cells["clear_in_ms"] == NOTHING
    assert {column.name: column.cell(of_group).text for column in groups.COLUMNS}["out_per_sec"] == "0"
    board_of(feed, 60, board)
    assert "STALL" in why() and "stands still" in why() and f"↑ {short_count(rate * 4)}/s" in why()


def test_a_group_that_read_well_is_no_longer_fine_after_two_looks_without_a_commit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fake_readers, "_POINTS_MAX", 40)
    feed = FakeFeed(FakeCluster(3, {"orders": 4}), plays=False)
    feed.cluster.add_group("reports", "orders", reads=feed.cluster.rate * 1.01, lag=200_000)
    board = board_of(feed, 22)
    assert not problems_of(board)
    feed.cluster.stop_reading("reports")
    board_of(feed, 14, board)
    (found,) = problems_of(board)
    assert (found.sign, found.subject) == ("▲", "group reports WARN")
    assert found.effect.startswith("no commit for 10s, ") and "/s" in found.effect
    assert found.advice.startswith("its members commit nothing") and "step over" not in found.advice
    banner = "".join(part for part, _ in overview.overview_of(board, problems_of(board), 80, 24).lines[0])
    assert banner.startswith(" ▲ 1 unhealthy group") and "nothing is wrong" not in banner
    place = View(board, Location("group", group="reports", only=Only.UNHEALTHY))
    rows = list(rows_at(groups.GROUP_PAGE, place))
    assert len(rows) == 4
    for row in rows:
        aside = "\n".join("".join(text for text, _ in line) for line in aside_of(place, "group", row, 100))
        assert "look at what they log" in aside and "step over" not in aside
    feed.cluster.resume_reading("reports", feed.cluster.rate * 1.01)
    board_of(feed, 6, board)
    assert not problems_of(board)
    told = [(event.kind, event.subject, event.reason) for event in board.events if event.kind.startswith("group_")]
    assert told[-2:] == [
        (EventKind.GROUP_STALLED, "group reports", "no commit for 10s"),
        (EventKind.GROUP_READS_AGAIN, "group reports", "no commit for 10s before"),
    ]


def test_a_group_that_stops_before_its_pace_is_known_commits_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the verdict on its lag, which never fell, says that this is no pause."""
    monkeypatch.setattr(fake_readers, "_POINTS_MAX", 40)
    feed = FakeFeed(FakeCluster(3, {"orders": 4}), plays=False)
    feed.cluster.add_group("reports", "orders", reads=feed.cluster.rate * 0.9, lag=1_000)
    board = board_of(feed, 6)
    feed.cluster.stop_reading("reports")
    board_of(feed, 11, board)
    (found,) = problems_of(board)
    assert found.subject == "group reports WARN"
    assert found.effect.startswith("no commit for 10s, ")


def test_a_group_that_commits_seldom_has_not_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fake_readers, "_POINTS_MAX", 60)
    feed = FakeFeed(FakeCluster(3, {"orders": 4}), plays=False)
    rate = feed.cluster.rate
    feed.cluster.add_group("seldom", "orders", reads=rate * 20, lag=100_000)
    board = board_of(feed, 2)
    stalled = []
    for _ in range(5):
        feed.cluster.stop_reading("seldom")
        board_of(feed, 14, board)
        stalled.append(sum(event.kind is EventKind.GROUP_STALLED for event in board.events))
        feed.cluster.resume_reading("seldom", rate * 20)
        board_of(feed, 1, board)
    assert stalled[1:] == stalled[:1] * 4, "its pace is known"


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
def test_enter_on_a_partition_that_its_group_does_not_read_says_what_helps(size: tuple[int, int]) -> None:
    cluster = FakeCluster(3, {"orders": 1})
    cluster.add_group("reports", "orders", reads=0, lag=40_000)

    async def look(driven: Driven) -> None:
        await driven.tick(30)
        await driven.press("5", "enter", "enter")
        told = " ".join(driven.text.split())
        for words in ("reports at /10.0.0.1", "committed 1 960 000 of 2 003 000: 43 000 to read"):
            assert words in told, driven.text
        assert isinstance(driven.app.screen, TextDialog)
        await driven.press("escape")
        assert driven.main.location == Location("group", group="reports"), "it is not left"

    shown(look, FakeFeed(cluster, plays=False), size=size)


@staged(shown)
async def test_groups_open_at_the_one_in_trouble_and_w_says_why(driven: Driven, /) -> None:
    await driven.tick(30)
    await driven.press("5")
    names = [group.name for group in driven.main.model.shown]
    first = next(at for at, group in enumerate(driven.main.model.shown) if group.lag.status.is_trouble)
    assert first > 0 and driven.main.model.cursor == first
    await driven.press("w")
    await driven.sees(f"group {names[first]} ")
    assert isinstance(driven.app.screen, TextDialog) and "read by" in driven.text
    await driven.press("escape", "g", "w")
    assert [notification.message for notification in driven.app._notifications] == ["nothing is wrong with this row"]
    await driven.press("j", "1", "5")
    assert driven.main.model.cursor == 1, "it was moved there"


@staged(shown)
async def test_brokers_open_at_the_one_with_a_problem(driven: Driven, /) -> None:
    await driven.tick(3)
    driven.feed.cluster.kill(2)
    await driven.tick(1)
    await driven.press("2")
    assert driven.main.model.cursor_item.id == 2


@staged(shown)
async def test_a_group_that_is_behind_is_no_fault_of_the_cluster(driven: Driven, /) -> None:
    await driven.tick(3)
    assert driven.lines_with("✖ 2 unhealthy groups   the cluster is healthy")
    assert driven.text.splitlines()[0].split()[-4:-2] == ["✖", "problems"], driven.text.splitlines()[0]
    assert "nothing is wrong" not in driven.text
    assert driven.lines_with("▌✖ group nightly-report STOP")
    await driven.press("enter")
    assert driven.main.location == Location("group", group="nightly-report", only=Only.UNHEALTHY)


def test_sign_and_colour_are_never_greener_than_the_worst_row() -> None:
    feed = FakeFeed(FakeCluster(3, {"orders": 4}), plays=False)
    board = board_of(feed, 3)

    def told() -> tuple[tuple[str, Tone], tuple[str, Tone]]:
        banner = overview.overview_of(board, problems_of(board), 80, 24).lines[0]
        return overview.health_word(board), banner[0]

    assert told() == (("● healthy", Tone.GOOD), (" ● HEALTHY", Tone.GOOD))
    feed.cluster.add_group("slow", "orders", reads=feed.cluster.rate * 0.9, lag=1_000)
    board_of(feed, 12, board)
    assert told() == (("▲ problem", Tone.WARN), (" ▲ ", Tone.WARN))
    feed.cluster.add_group("hangs", "orders", reads=0, lag=1_000)
    board_of(feed, 30, board)
    assert told() == (("✖ problems", Tone.BAD), (" ✖ ", Tone.BAD))
    feed.cluster.reassign(TopicPartition("orders", 0), (2, 3, 1))
    feed.cluster.set_broker_config(2, "follower.replication.throttled.rate", "1000000")
    board_of(feed, 3, board)
    word, banner = told()
    assert word == ("✖ problems", Tone.BAD) and banner[0].startswith(" ✖ PROBLEMS") and banner[1] is Tone.ALARM


@pytest.mark.parametrize(
    ("trouble", "is_hung"), [("no answer for 9 s", True), ("127.0.0.1:9092: connection refused", False), (None, False)]
)
def test_a_broker_that_hangs_is_told_from_one_that_ended_once_its_session_is_over(
    trouble: str | None, is_hung: bool
) -> None:
    feed = fake_feed("live", plays=False)
    board = board_of(feed, 3)
    if trouble is not None:
        feed.cluster.silence(2, trouble)
    board_of(feed, 6, board)
    feed.cluster.kill(2)
    board_of(feed, 3, board)
    (found,) = [problem for problem in problems_of(board) if problem.subject == "broker 2 down"]
    (item,) = [item for item in brokers.items_of(board) if item.id == 2]
    view = View(board, Location("brokers"))
    lines = [*brokers.PAGE.summary(view, 200), *aside_of(view, "brokers", item, 100)]
    page = " ".join(" ".join("".join(part for part, _ in line) for line in lines).split())
    ends = "its process may be frozen: continue it, or kill and start it"
    if is_hung:
        assert found.effect.startswith("perhaps frozen: 34 replicas") and found.advice.startswith(ends)
        assert page.count(ends) == 2 and "it gave no answer before its session ended; " + ends in page
    else:
        assert found.effect.startswith("34 replicas") and found.advice.startswith("start it, or move its replicas away")
        assert "frozen" not in page
    feed.cluster.start(2)
    board_of(feed, 1, board)
    assert not board.hung


def test_offline_partitions_wait_for_a_frozen_broker_to_continue() -> None:
    feed = FakeFeed(FakeCluster(3, {}), plays=False)
    feed.cluster.create_topic("audit", 3, replication_factor=1)
    board = board_of(feed, 3)
    feed.cluster.silence(1, "no answer for 9 s")
    board_of(feed, 6, board)
    feed.cluster.kill(1)
    board_of(feed, 3, board)
    (found,) = [problem for problem in problems_of(board) if "offline" in problem.subject]
    assert found.effect.startswith("continue or restart broker 1, last in sync: audit-"), found.effect
    cases = [case for case in found.examples if "last in sync" in case]
    assert cases and all("; continue or restart broker 1, last in sync" in case for case in cases), found.examples
    assert found.advice.startswith("continue or restart broker 1"), found.advice


def test_a_failed_log_dir_is_shown_instead_of_how_full_the_healthy_ones_are() -> None:
    feed = fake_feed("live", plays=False)
    board = board_of(feed, 3)
    frame = feed.tick()
    words = {**frame.words, 2: replace(frame.words[2], offline_log_dirs=("/var/lib/kafka-2",))}
    board.take(replace(frame, words=words))
    assert board.broker_disk_share(2) is not None, "its other log dir is well"
    strip = [
        "".join(part for part, _ in line) for line in overview.overview_of(board, problems_of(board), 120, 40).lines
    ]
    told = {row.split()[1]: row for row in strip if re.match(r"│ +[123]  [●✖]", row)}
    assert "  failed  " in told["2"] and "failed" not in told["1"] + told["3"]
    (item,) = [item for item in brokers.items_of(board) if item.id == 2]
    assert brokers.disk_cell(item) == Cell("failed", Tone.BAD)


def test_enter_opens_the_rows_concerned_and_no_others() -> None:
    cluster = FakeCluster(3, {"alone": 3, "orders": 4}, replication_factor=3)
    cluster.create_topic("single", 2, replication_factor=1)

    async def look(driven: Driven) -> None:
        await driven.tick(2)
        single = next(topic for topic in cluster.frame().cluster.topics if topic.name == "single")  # type: ignore[union-attr]
        cluster.kill(single.partitions[0].leader)
        await driven.tick(2)
        await driven.press("g", "j")
        assert driven.lines_with("▌✖ 1 partition offline")
        await driven.press("enter")
        assert driven.main.location.only is Only.OFFLINE
        assert "Partitions › offline" in driven.text.splitlines()[0]
        assert [str(item.name) for item in driven.main.model.shown] == ["single-0"]
        await driven.press("escape")
        assert driven.lines_with("▌✖ 1 partition offline"), "the cursor is where it was"
        offer = offer_for("leader.elect_unclean", driven.main.view, chosen(driven.main, "leader.elect_unclean"))
        assert isinstance(offer, NotNow), "its only replica is down: no replica can be elected"
        await driven.press("up")
        assert driven.lines_with("▌✖ broker ")
        assert isinstance(
            offer_for("leader.elect_unclean", driven.main.view, chosen(driven.main, "leader.elect_unclean")), NotNow
        )

    shown(look, FakeFeed(cluster, plays=False))


def test_an_unclean_election_is_offered_where_a_replica_that_fell_behind_is_up() -> None:
    cluster = FakeCluster(3, {"orders": 1}, replication_factor=2)

    async def look(driven: Driven) -> None:
        await driven.tick(2)
        (topic,) = (topic for topic in cluster.frame().cluster.topics if topic.name == "orders")  # type: ignore[union-attr]
        first, last = topic.partitions[0].replicas
        cluster.kill(first)
        cluster.kill(last)
        cluster.start(first)
        await driven.tick(2)
        await driven.press("g", "j")
        offer = offer_for("leader.elect_unclean", driven.main.view, chosen(driven.main, "leader.elect_unclean"))
        assert isinstance(offer, Elect) and offer.scope.wanted == (("orders", 0),)
        assert "where another replica is up, an unclean election (U)" in problems_of(driven.app.board)[1].advice

    shown(look, FakeFeed(cluster, plays=False))


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
def test_the_broker_that_brings_offline_partitions_back_comes_first_and_then_these(size: tuple[int, int]) -> None:
    cluster = FakeCluster(3, {"orders": 4}, replication_factor=3)
    cluster.create_topic("single", 2, replication_factor=1)
    cluster.add_group("a-group-with-a-long-name-that-waits", "orders", reads=0, lag=40_000)

    async def look(driven: Driven) -> None:
        await driven.tick(30)
        single = next(topic for topic in cluster.frame().cluster.topics if topic.name == "single")  # type: ignore[union-attr]
        dead = single.partitions[0].leader
        cluster.kill(dead)
        await driven.tick(2)
        cause, offline, *_ = problems_of(driven.app.board)
        assert (offline.subject, cause.subject) == ("1 partition offline", f"broker {dead} down")
        (row,) = driven.lines_with("✖ 1 partition offline  ")
        assert f"start broker {dead}, last in sync" in row
        assert offline.advice == f"start broker {dead}, last in sync"
        assert "(U)" not in offline.advice and offline.mends == (), "no replica can be elected"
        assert cause.mends == (), "what only this broker has cannot be moved away"
        assert cause.advice == "start it: 1 offline partition waits for it, because it was last in sync"
        await driven.press("g")
        assert driven.lines_with(f"▌✖ broker {dead} down")
        assert "retire" not in driven.text.splitlines()[-1]

    shown(look, FakeFeed(cluster, plays=False), size=size)


def test_a_partition_whose_leader_is_about_to_be_chosen_is_not_offline() -> None:
    feed = FakeFeed(FakeCluster(3, {"orders": 6}), plays=False)
    board = board_of(feed, 3)
    feed.cluster.kill(2, elects=False)

    def found() -> dict[str, tuple[str, ...]]:
        return {problem.subject: problem.mends for problem in problems_of(board)}

    board_of(feed, 1, board)
    assert problems_of(board)[0].subject == "broker 2 down"
    assert found()["2 leaders being chosen"] == ()
    assert not [subject for subject in found() if "offline" in subject]
    picture = "".join(
        part for line in overview.overview_of(board, problems_of(board), 80, 24).lines for part, _ in line
    )
    assert "offline" not in picture
    board_of(feed, 6, board)
    assert found()["2 partitions offline"] == ("leader.elect_unclean",) and "2 leaders being chosen" not in found()
    assert "the controller has not elected" in told(board, "2 partitions offline")[0]
    feed.cluster.elect_without(2)
    board_of(feed, 1, board)
    assert not [subject for subject in found() if "offline" in subject or "leader" in subject]
    feed.cluster.start(2)
    board_of(feed, 8, board)
    feed.cluster.elect_preferred()
    board_of(feed, 1, board)
    feed.cluster.kill(2, elects=False)
    board_of(feed, 1, board)
    assert "2 leaders being chosen" in found(), "the next time has its own patience"


@staged(shown)
async def test_why_follows_its_problem_and_says_when_it_is_over(driven: Driven, /) -> None:
    await driven.tick(3)
    driven.feed.cluster.kill(2)
    await driven.tick(2)
    await driven.press("w")
    await driven.sees("start it, or move its replicas away")
    driven.feed.cluster.start(2)
    await driven.tick(20)
    await driven.sees("over; now: ")
    assert isinstance(driven.app.screen, TextDialog) and "start it, or move" not in driven.text


def _rows_of(board: Board, subject: str) -> list[str]:
    """The rows that enter shows behind a problem."""
    (found,) = [problem for problem in problems_of(board) if problem.subject == subject]
    page = {"partitions": partitions.PAGE, "topics": topics.PAGE, "brokers": brokers.PAGE}[found.opens.page]
    return sorted(str(getattr(item, "name", None) or item.id) for item in rows_at(page, View(board, found.opens)))


def test_a_finding_of_partitions_opens_the_partitions_that_it_counts() -> None:
    cluster = FakeCluster(6, {"orders": 4, "audit": 2}, replication_factor=3)
    cluster.create_topic("single", 2, replication_factor=1)
    cluster.reassign(TopicPartition("audit", 0), (1, 4, 2))
    cluster.advance(3_600_000)
    cluster.shrink_isr(TopicPartition("orders", 1), 3)
    words = {broker: replace(said, caps_min_isr=True) for broker, said in cluster.frame().words.items()}
    board = Board()
    frame = replace(cluster.frame(), words=words)
    board.take(replace(frame, health=HealthMemory().judge(frame)))
    assert _rows_of(board, "1 partition in too few racks") == ["audit-0"]
    assert _rows_of(board, "2 min ISR above their factor") == ["single-0", "single-1"]
    assert _rows_of(board, "1 under-replicated, lagging") == ["orders-1"]


def test_a_finding_of_topics_opens_those_topics() -> None:
    cluster = FakeCluster(3, {"orders": 1, "audit": 1, "clicks": 1})
    frame = cluster.frame()
    assert frame.cluster is not None
    known = [replace(topic, configs=None) if topic.name == "audit" else topic for topic in frame.cluster.topics]
    stages = {**frame.stages, Stage.SETTINGS: replace(frame.stages[Stage.SETTINGS], missing=("broker 1: no answer",))}
    frame = replace(
        frame, cluster=replace(frame.cluster, topics=tuple(known)), stages=stages,
        deletion_ages_ms={"clicks": 90_000, "orders": 1_000}, unreadable=("/brokers/topics/odd: not JSON",),
    )  # fmt: skip
    board = Board()
    board.take(replace(frame, health=HealthMemory().judge(frame)))
    assert _rows_of(board, "settings not known") == ["audit"]
    assert _rows_of(board, "1 deletion stuck") == ["clicks"]
    (odd,) = [problem for problem in problems_of(board) if problem.subject == "1 topic unreadable"]
    assert odd.opens == Location("zookeeper", path="/brokers/topics", only=Only.UNREADABLE)
    znodes = [Znode(f"/brokers/topics{n}", None, "", n and n[1:], 0, 0, None, 0, 0, None, None) for n in ("", "/odd")]
    level = ZnodeLevel("/brokers/topics", (*znodes, replace(znodes[1], path="/t", complaint=None)))
    rows = zookeeper.rows_of(level, odd.opens.only)
    assert [item.name for item in rows.items if rows.is_kept is None or rows.is_kept(item)] == ["odd"]


def test_a_disk_that_fills_up_is_a_problem_before_it_is_full() -> None:
    def filled(size_bytes: int, rate: int, ticks: int) -> Board:
        cluster = FakeCluster(3, {"big": 3}, rate=rate, partition_bytes=size_bytes)
        return board_of(FakeFeed(cluster, plays=False), ticks)

    board = filled(640_000_000_000, 0, 3)
    assert told(board, "broker 2 disk fills up") == ("96 % full, /var/lib/kafka", "≥2s", Tone.WARN)
    assert _rows_of(board, "broker 2 disk fills up") == ["1", "2", "3"]
    assert overview.health_word(board) == ("▲ warning", Tone.WARN)
    assert not any("almost full" in problem.subject for problem in problems_of(board)), "a disk is told once"
    effect, _, tone = told(filled(400_000_000_000, 30_000, 310), "broker 2 disk fills up")
    assert effect.startswith("no room in 2h") and tone is Tone.WARN
    assert told(filled(600_000_000_000, 30_000, 310), "broker 2 disk fills up")[2] is Tone.BAD, "there is no time left"
    quiet = board_of(fake_feed("live", plays=False), 3)
    assert not quiet.filling


def test_a_full_disk_names_what_fills_it_and_its_key_opens_the_settings_of_that() -> None:
    async def look(driven: Driven) -> None:
        await driven.tick(25)
        (row, *_) = (
            problem for problem in problems_of(driven.app.board) if problem.subject == "broker 2 disk fills up"
        )
        assert "98 % full, clickstream +6.0 MB/s of 7.0 MB/s" in row.effect
        assert row.advice.startswith("lower the retention of clickstream: settings (A) of the topic")
        assert row.mends == ("settings.alter", "plan.rebalance")
        await driven.until(lambda: bool(driven.lines_with("disk fills up")))
        await driven.press("g")
        assert isinstance(driven.main.model.cursor_item, Problem) and "disk" in driven.main.model.cursor_item.subject
        settings = offer_for("settings.alter", driven.main.view, chosen(driven.main, "settings.alter"))
        assert isinstance(settings, EditSettings) and settings.entity == Entity(EntityType.TOPIC, "clickstream")
        logs = driven.app.board.frame.logs.items()
        largest = max(log.size_bytes for name, found in logs if name.topic == "clickstream" for log in found)
        assert settings.edits.keys() == {"retention.bytes"}, "files may stay for a minute: there is time"
        assert 0.4 * largest < int(settings.edits["retention.bytes"] or 0) <= largest // 2
        (trend, *_) = driven.app.board.filling
        urgent = replace(trend, full_in_s=30.0)
        assert urgent.is_urgent and not trend.is_urgent
        driven.app.board._dir_trends = [urgent]
        settings = offer_for("settings.alter", driven.main.view, chosen(driven.main, "settings.alter"))
        assert isinstance(settings, EditSettings) and settings.edits["file.delete.delay.ms"] == "1000"
        plan = driven.main.desk.offer_for("plan.rebalance", driven.main.view, chosen(driven.main, "plan.rebalance"))
        assert isinstance(plan, Ask) and {field.name: field.value for field in plan.fields}["aim"] == "bytes"
        assert isinstance(offer_for("settings.alter", driven.main.view, []), NotNow)

    cluster = FakeCluster(3, {"orders": 1}, rate=1_000, partition_bytes=280_000_000_000)
    cluster.create_topic("clickstream", 6)
    shown(look, FakeFeed(cluster, plays=False))


def test_a_disk_that_no_retention_saves_offers_to_hold_the_producers_back_first() -> None:
    async def look(driven: Driven) -> None:
        board = driven.app.board
        await driven.tick(25)
        (trend, *_) = board.filling
        board._dir_trends = [replace(trend, full_in_s=200.0)]
        board._made.clear()
        (row, *_) = problems_of(board)
        assert row.mends == ("producers.quota", "settings.alter", "plan.rebalance")
        assert row.advice.startswith("hold the producers back, which works at once: quota (Q); then lower "), row.advice
        driven.main.draw(is_new_data=False)
        driven.app.session.target = ClusterTarget("made up", Origin.OPTIONS, bootstrap=(("made-up", 1),))
        keys = [item.key for item in footer_items(driven.main)]
        driven.app.session.target = None
        assert keys[:3] == ["Q", "A", "B"], "what works at once comes first"
        offer = offer_for("producers.quota", driven.main.view, [])
        assert isinstance(offer, Ask)
        (rate,) = offer.fields
        assert trend.free_bytes is not None
        assert trend.free_bytes / 900 / 3 == pytest.approx(14_500_000, rel=0.03)
        assert rate.value == "15M", "what three brokers send lasts for a quarter of an hour"
        assert offer.build({"rate": "22k"}) == AlterSettings.of(ALL_CLIENTS, {"producer_byte_rate": "22000"})
        assert offer.build({"rate": " "}).deletions == ("producer_byte_rate",)
        board.note_quota(22_000.0)
        board._dir_trends = [replace(trend, full_in_s=200.0, is_overtaken=True)]
        (row, *rest) = problems_of(board)
        assert row.advice.startswith("lower "), "the quota is there already"
        assert row.effect.startswith("measuring since the quota changed, 98 % full"), "nobody knows yet what it does"
        (reminder,) = [other for other in rest if other.subject == "producers have a quota"]
        assert reminder.effect == "each client id may send 22.0 kB/s to a broker" and "(Q)" in reminder.advice
        board.note_quota(50_000_000.0)
        board._dir_trends = [replace(trend, full_in_s=200.0)]
        assert problems_of(board)[0].advice.startswith("hold the producers back"), "it lets through what comes"
        board._dir_trends = []
        offer = offer_for("producers.quota", driven.main.view, [])
        assert isinstance(offer, Ask) and offer.fields[0].value == "" and "now 50.0 MB/s" in offer.fields[0].hint

    cluster = FakeCluster(3, {"orders": 1}, rate=1_000, partition_bytes=280_000_000_000)
    cluster.create_topic("clickstream", 6)
    shown(look, FakeFeed(cluster, plays=False))


def test_only_a_quota_that_was_seen_to_change_makes_what_was_foretold_count_no_more() -> None:
    cluster = FakeCluster(3, {"orders": 1}, rate=1_000, partition_bytes=280_000_000_000)
    cluster.create_topic("clickstream", 6)
    board = board_of(FakeFeed(cluster, plays=False), 25)
    before = board.dir_trends
    assert board.filling
    board.note_quota(22_000.0)
    assert board.dir_trends == before, "it may have been there for a year"
    board.note_quota(None)
    assert all(trend.is_overtaken for trend in board.dir_trends), "it was removed"


def test_a_broker_that_died_with_a_full_disk_points_at_the_disk() -> None:
    cluster = FakeCluster(3, {"big": 3}, rate=0, partition_bytes=640_000_000_000)
    feed = FakeFeed(cluster, plays=False)
    board = board_of(feed, 3)
    cluster.fail_log_dir(2)
    board_of(feed, 15, board)
    cluster.kill(2)
    board_of(feed, 15, board)
    (found,) = [problem for problem in problems_of(board) if problem.subject == "broker 2 down"]
    assert found.effect.startswith("its disk filled up: 3 replicas")
    where, read, by_hand = found.examples
    assert where == "it was at kafka2:9092" and read == "when its disks were last read: 96 % full, /var/lib/kafka"
    assert "remove files that end in .deleted" in by_hand
    assert found.advice.startswith("make room in /var/lib/kafka, then start it, or move")
    cluster.kill(1)
    cluster.kill(3)
    board_of(feed, 3, board)
    (offline,) = [problem for problem in problems_of(board) if "offline" in problem.subject]
    assert offline.advice.startswith("make room on the disk of broker "), offline.advice
    quiet = FakeFeed(FakeCluster(3, {"big": 3}), plays=False)
    board = board_of(quiet, 3)
    quiet.cluster.kill(2)
    board_of(quiet, 3, board)
    (found,) = [problem for problem in problems_of(board) if problem.subject == "broker 2 down"]
    assert "disk" not in found.effect + found.advice


def test_a_disk_that_fills_up_much_later_is_not_why_a_broker_died() -> None:
    """Its trend says only when it would be full."""
    feed = FakeFeed(FakeCluster(3, {"big": 3}, rate=400_000, partition_bytes=200_000_000_000), plays=False)
    board = board_of(feed, 120)
    (trend,) = [trend for trend in board.filling if trend.broker == 2]
    assert trend.full_in_s is not None and 600 < trend.full_in_s < 86_400, trend
    feed.cluster.kill(2)
    board_of(feed, 3, board)
    (found,) = [problem for problem in problems_of(board) if problem.subject == "broker 2 down"]
    assert "disk" not in found.effect + found.advice and not any("disks" in known for known in found.examples)


def test_log_dirs_of_one_broker_that_fill_up_are_one_row() -> None:
    """They often share a volume, and their paths differ only where a row is cut."""
    cluster = FakeCluster(3, {"big": 3}, rate=0, partition_bytes=640_000_000_000)
    frame = cluster.frame()
    twice = tuple(replace(log_dir, log_dir=f"{log_dir.log_dir}/{n}") for log_dir in frame.log_dirs for n in (0, 1))
    board = Board()
    board.take(replace(frame, log_dirs=twice))
    rows = [problem for problem in problems_of(board) if "disk fills up" in problem.subject]
    assert [row.subject for row in rows] == [f"broker {broker} disk fills up" for broker in (1, 2, 3)]
    assert rows[1].effect == "96 % full, /var/lib/kafka/0, and 1 more log dir"
    assert rows[1].examples == ("96 % full, /var/lib/kafka/0", "96 % full, /var/lib/kafka/1")


def test_a_partition_whose_data_contradict_each_other_is_the_row_that_opens() -> None:
    board = board_of(FakeFeed(FakeCluster(3, {"a-1": 2}), plays=False), 1)
    board.findings = [Finding(Doubt.LEADER_NOT_IN_ISR, "a-1-0", "leader 1, ISR 2", 0)]
    (found,) = problems_of(board)
    assert found.opens == Location("partitions", topic="a-1", row="a-1-0")


@staged(shown)
async def test_the_gravest_is_chosen_until_somebody_chooses_another(driven: Driven, /) -> None:
    await driven.tick(3)
    assert driven.lines_with("▌✖ group nightly-report")
    driven.feed.cluster.kill(2)
    await driven.tick(2)
    assert driven.lines_with("▌✖ broker 2 down")
    await driven.press("j", "j")
    assert driven.lines_with("▌✖ group nightly-report")
    driven.feed.cluster.kill(3)
    await driven.tick(2)
    assert driven.lines_with("▌✖ group nightly-report"), "now the cursor stays on its row"


@staged(shown)
async def test_a_problem_that_somebody_has_opened_is_under_the_cursor_when_he_comes_back(driven: Driven, /) -> None:
    """What its keys mend is what he has just looked at, whatever has come before it meanwhile."""
    await driven.tick(3)
    assert driven.lines_with("▌✖ group nightly-report")
    await driven.press("enter")
    driven.feed.cluster.kill(2)
    await driven.tick(2)
    await driven.press("escape")
    assert driven.lines_with("▌✖ group nightly-report")
    driven.feed.cluster.kill(3)
    await driven.tick(2)
    assert driven.lines_with("▌✖ group nightly-report")


@staged(shown)
async def test_w_says_why_and_what_to_do(driven: Driven, /) -> None:
    await driven.tick(3)
    driven.feed.cluster.kill(2)
    await driven.tick(2)
    await driven.press("down", "w")
    await driven.sees("__consumer_offsets-0 (broker 2 not in sync)")
    assert "broker down" in driven.text and "34 times" in driven.text
    assert "start each dead broker again" in driven.text


@staged(shown)
async def test_a_click_chooses_a_problem_and_a_second_one_opens_it(driven: Driven, /) -> None:
    await driven.tick(3)
    driven.feed.cluster.kill(2)
    await driven.tick(2)
    at = next(y for y, text in enumerate(driven.text.splitlines()) if "34 under-replicated  " in text and "│" in text)
    await driven.pilot.click(offset=(10, at))
    await driven.settled()
    assert driven.lines_with("▌✖ 34 under-replicated")
    await driven.pilot.click(offset=(10, at))
    await driven.settled()
    assert driven.main.location.only is Only.UNDER_REPLICATED


def test_a_grave_change_is_not_pushed_out_by_what_came_after_it() -> None:
    feed = fake_feed("live", plays=False)
    board = board_of(feed, 3)
    feed.cluster.kill(2)
    board_of(feed, 1, board)
    assert board.frame is not None
    for number in range(1, 30):
        event = Event(board.frame.at_ms + number, EventKind.GROUP_APPEARED, f"group g{number}")
        board.take(replace(board.frame, sequence=board.frame.sequence + 1, at_ms=board.frame.at_ms + number,
                           events=(event,)))  # fmt: skip
    lines = overview.overview_of(board, problems_of(board), 120, 34).lines
    assert any("broker down" in "".join(text for text, _ in line) for line in lines)


def test_why_tells_no_events_of_a_moment_that_nobody_saw() -> None:
    board = board_of(fake_feed("broker-down", plays=False), 3)
    lines = ["".join(text for text, _ in line) for line in why_lines(problems_of(board)[0], board)]
    assert not any("what happened then" in line for line in lines)
    assert any("what to do" in line for line in lines)


@staged(shown, size=(200, 40))
async def test_a_failure_is_one_row_of_the_timeline_and_its_events_are_behind_it(driven: Driven, /) -> None:
    await driven.tick(3)
    driven.feed.cluster.kill(2)
    await driven.tick(3)
    await driven.press("8")
    (row,) = driven.lines_with("▌")
    assert "12 leaders moved → 1,3" in row and "34 left the ISR" in row and "ongoing for " in row
    assert len(driven.main.model.shown) == 1
    aside = " ".join(" ".join(line.partition("│")[2] for line in driven.text.splitlines()).split())
    assert "broker 2 broker down ongoing for " in aside and "+0.0s 34 left the ISR" in aside
    assert aside.count(" 6 partitions") == 2 and "still out of sync __consumer_offsets-0, " in aside
    assert ", and 26 others" in aside
    await driven.press("slash")
    await driven.type("clicks-3")
    assert len(driven.main.model.shown) >= 1, "a filter looks into incidents"
    await driven.press("escape", "escape", "1", "o")
    assert driven.main.location.incident == 1
    kinds = [event.kind for _, event in driven.main.model.shown]
    assert kinds == [EventKind.BROKER_DOWN, EventKind.LEADER_CHANGED, EventKind.ISR_SHRANK], "cause first, by kind"
    assert "what followed when broker 2 was down" in driven.text
    (row,) = driven.lines_with("ISR shrank  ")
    assert "34 partitions" in row and "2 left, down" in row
    await driven.press("G", "enter")
    assert len(driven.main.model.shown) == 34 and driven.lines_with("› one moment")
    await driven.press("escape")
    driven.feed.cluster.start(2)
    await driven.tick(30)
    await driven.press("1", "8")
    assert driven.lines_with("over after ") and "still out of sync" not in driven.text


def test_an_election_is_one_row_and_a_leader_where_nobody_led_says_so() -> None:
    async def look(driven: Driven) -> None:
        cluster = driven.feed.cluster
        cluster.kill(2)
        cluster.start(2)
        await driven.tick(20)
        cluster.elect_preferred()
        await driven.tick()
        await driven.press("8")
        (row,) = driven.lines_with("▌")
        assert "leader changed  " in row and "12 partitions" in row and "the preferred replica leads" in row, row
        await driven.press("enter")
        assert len(driven.main.model.shown) == 12 and "› Timeline › one moment" in driven.text
        assert driven.main.location.incident is None
        await driven.press("enter")
        assert driven.main.location.page == "partitions"
        await driven.press("escape", "escape", "slash")
        await driven.type("leader changed clicks")
        assert len(driven.main.model.shown) == 4, "a filter finds each, there and back"

    shown(look, "live", size=(160, 40))
    assert change_text(Event(1, EventKind.LEADER_CHANGED, "orders-0", "none", "3")) == "3 leads; nothing led before"


def test_what_follows_from_a_failure_leads_to_its_incident() -> None:
    feed = fake_feed("live", plays=False)
    board = board_of(feed, 3)
    feed.cluster.kill(2)
    board_of(feed, 2, board)
    incidents = {problem.subject: problem.incident for problem in problems_of(board) if problem.is_of_cluster}
    assert incidents == {"broker 2 down": 1, "34 under-replicated": 1}
    feed.cluster.start(2)
    board_of(feed, 3, board)
    incidents = {problem.subject: problem.incident for problem in problems_of(board) if problem.is_of_cluster}
    assert incidents == {"1 broker leads too few": 1}, "its leaders moved then"
    board = board_of(feed, 1)
    assert {problem.incident for problem in problems_of(board)} == {None}, "nobody saw that begin"


@staged(shown, size=(120, 30))
async def test_the_timeline_counts_what_is_folded_and_elides_a_long_name_in_its_middle(driven: Driven, /) -> None:
    await driven.tick(3)
    driven.feed.cluster.kill(2)
    await driven.tick(3)
    frame = driven.app.board.frame
    path = "/mnt/disks/of/the/machine/with/a/long/name/kafka-logs-of-broker-3/data-7"
    event = Event(frame.at_ms + 1, EventKind.LOG_DIR_FAILED, f"broker 3: {path}", "well", "failed", broker=3)
    driven.app.board.take(replace(frame, sequence=frame.sequence + 1, at_ms=frame.at_ms + 1, events=(event,)))
    await driven.press("8")
    events, shown = len(driven.app.board.events), len(driven.main.model.shown)
    assert shown < events
    assert driven.lines_with(f"{events} events, {events - shown} of them folded")
    row, *_ = driven.lines_with("log dir failed")
    assert "broker 3: /" in row and "/data-7" in row and "…" in row and "ongoing for" in row, driven.text


def test_what_happened_then_has_the_return_of_the_broker() -> None:
    feed = fake_feed("live", plays=False)
    board = board_of(feed, 5)
    feed.cluster.kill(2)
    board_of(feed, 4, board)
    (follows,) = [problem for problem in problems_of(board) if problem.key == Check.UNDER_REPLICATED_DEAD_BROKER.value]
    feed.cluster.start(2)
    frame = feed.tick()
    board.take(frame)
    lines = ["".join(text for text, _ in line) for line in why_lines(follows, board)]
    at = [next(at for at, text in enumerate(lines) if kind in text) for kind in ("broker down", "broker up")]
    assert at == sorted(at)


@staged(shown)
async def test_z_narrows_the_timeline_to_warnings_then_to_failures(driven: Driven, /) -> None:
    await driven.tick(2)
    cluster = driven.feed.cluster
    cluster.create_topic("new", 1, replication_factor=1)
    await driven.tick()
    cluster.delete_topic("new")
    await driven.tick()
    cluster.kill(2)
    await driven.tick(2)
    await driven.press("8")

    def kinds() -> set[EventKind]:
        return {event.kind for _, event in driven.main.model.shown}

    everything = kinds()
    assert {EventKind.TOPIC_CREATED, EventKind.TOPIC_DELETED, EventKind.BROKER_DOWN} <= everything
    await driven.press("z")
    assert "Timeline › warnings and failures" in driven.text.splitlines()[0]
    assert kinds() == {EventKind.TOPIC_DELETED, EventKind.BROKER_DOWN}
    await driven.press("z")
    assert kinds() == {EventKind.BROKER_DOWN}
    await driven.press("z")
    assert kinds() == everything
    await driven.press("escape")
    assert driven.main.location == Location("overview"), "to narrow it is no visit"


def test_a_run_is_kept_up_with_each_event_and_says_what_all_of_them_say() -> None:
    def event(at_ms: int, number: int, reason: str, kind: EventKind = EventKind.ISR_SHRANK) -> Event:
        return Event(at_ms, kind, f"orders-{number}", reason=reason)

    runs = Runs()

    def take(*events: Event) -> None:
        for each in events:
            runs.take(each)

    for number in range(8):
        take(event(1, number, "2 left"), event(1, number, f"{number} left", EventKind.LEADER_CHANGED))
    shrank, changed = runs
    assert (shrank.count, shrank.reason, shrank.subjects) == (8, "2 left", [f"orders-{number}" for number in range(5)])
    assert (changed.count, changed.reason) == (8, "")
    take(*(event(at_ms, 0, "") for at_ms in range(2, RUNS_MAX + 5)))
    assert len(list(runs)) == RUNS_MAX and [*runs][1].event.at_ms == 6, "the oldest are forgotten"
    down = Event(10_000, EventKind.BROKER_DOWN, "broker 2", broker=2)
    take(down, *(event(at_ms, 0, "") for at_ms in range(20_000, 20_000 + 2 * RUNS_MAX)))
    assert [*runs][:2] == [changed, Run(down, 1, ["broker 2"], "")], "what comes often pushes out only its own kind"
    assert len(list(runs)) == RUNS_MAX


def test_any_record_is_shown_as_text_that_a_terminal_can_take() -> None:
    name = TopicPartition("orders", 1)

    def told(**parts: Any) -> str:
        shown = ShownRecord(name, 5, **parts)
        return "\n".join("".join(text for text, _ in line).rstrip() for line in asides._record(shown, 70))

    odd = Record(7, 2**62, None, b"\xff\x1b[2J" + b"x" * 1_500, [("trace", b"1"), ("none", None)])
    lines = told(record=odd).splitlines()
    assert lines[0] == f"offset 7  time {2**62}, 1.5 kB"
    assert lines[1:4] == ["key    null", "header trace 1", "header none null"]
    whole = " ".join(map(str.strip, lines[4:]))
    assert whole.startswith("value  \\xff") and whole.endswith("… and 505 more bytes")
    assert "\x1b" not in told(record=odd)
    assert told(record=Record(5, -1, b"", b"")).splitlines()[0] == "offset 5  no time, 0 B"
    assert told(is_loading=True) == "reading it …" and told() == "there is none: the log ends here"
    assert told(error="TOPIC_AUTHORIZATION_FAILED") == "TOPIC_AUTHORIZATION_FAILED"


def test_the_last_changes_hold_what_just_happened_and_what_was_grave() -> None:
    feed = FakeFeed(FakeCluster(3, {"orders": 6}), plays=False)
    board = board_of(feed, 3)
    feed.cluster.kill(2)
    board_of(feed, 3, board)
    feed.cluster.start(2)
    board_of(feed, 3, board)
    for number in range(12):
        feed.cluster.set_topic_config("orders", "retention.ms", str(number))
        board_of(feed, 1, board)

    def shown(lines_max: int) -> str:
        return "\n".join("".join(text for text, _ in event) for event in overview._events(board, 100, lines_max))

    assert "retention.ms=10 → retention.ms=11" in shown(1), shown(1)
    told = shown(6)
    assert "broker down" in told and told.count("topic config ") == 3, told
    assert len(told.splitlines()) == 6


def test_the_events_of_a_forgotten_incident_are_rows_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.admin.analysis.incidents.INCIDENTS_MAX", 1)
    feed = fake_feed("live", plays=False)
    board = board_of(feed, 2)
    feed.cluster.kill(2)
    board_of(feed, 2, board)
    assert len(board.folded_events()) == 1
    count = len(board.events)
    feed.cluster.kill(3)
    board_of(feed, 2, board)
    assert len(board.folded_events()) == 4, "the first with two kinds that followed, and the second as one"
    assert sum(len(board.events_of_run(number)) or 1 for number, _ in board.folded_events()) == count + 1


def test_partitions_with_only_markers_do_not_make_one_record_the_cause() -> None:
    """Where all that have records stand still, the members hang; a partition without any says nothing else."""
    feed = FakeFeed(FakeCluster(3, {"orders": 4}), plays=False)
    feed.cluster.add_group("reports", "orders", reads=0.0, lag=1_000)
    (group,) = board_of(feed, 22).frame.groups

    def with_first(reason: Reason, status: LagStatus, lag: int) -> GroupLag:
        first, *others = (
            replace(partition, status=LagStatus.STALL, reason=Reason.STANDS_STILL) for partition in group.lag.partitions
        )
        first = replace(first, status=status, reason=reason, lag=lag)
        return replace(group.lag, partitions=(first, *others))

    assert not may_step_over(with_first(Reason.NO_RECORDS, LagStatus.OK, 1))
    assert not may_step_over(with_first(Reason.ONLY_ABORTED, LagStatus.UNKNOWN, 3))
    assert may_step_over(with_first(Reason.LAG_FELL, LagStatus.OK, 3)), "another one moves"


@pytest.mark.parametrize("state", [GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE])
def test_of_a_group_that_rebalances_no_record_is_looked_at(state: GroupState) -> None:
    feed = FakeFeed(FakeCluster(3, {"orders": 4}), plays=False)
    feed.cluster.add_group("reports", "orders", reads=0.0, lag=1_000)
    board = board_of(feed, 22)
    (problem,) = problems_of(board)
    assert problem.effect.startswith("stands still, ") and "see the record" in problem.advice
    (group,) = board.frame.groups
    stuck = replace(group, lag=replace(group.lag, state=state))
    board.take(replace(board.frame, sequence=board.frame.sequence + 1, groups=(stuck,), events=()))
    (problem,) = problems_of(board)
    assert problem.effect.startswith("rebalancing, ")
    assert problem.advice.startswith("a member that does not join again keeps the others waiting: ")


def test_why_lists_cases_once_and_says_how_many_more_there_are() -> None:
    board = board_of(fake_feed("live", plays=False), 2)
    cases = tuple(f"topic t{number}: leader.replication.throttled.replicas=*" for number in range(5))
    for of_all, more in ((12, ["  and 7 others"]), (5, [])):
        reason = HealthReason(Check.LEAKED_THROTTLES, Severity.WARNING, of_all, cases)
        report = HealthReport(HealthStatus.WARNING, (reason,))
        board.take(replace(board.frame, sequence=board.frame.sequence + 1, health=report, events=()))
        (found,) = [problem for problem in problems_of(board) if problem.key == Check.LEAKED_THROTTLES]
        told = [text_of(line) for line in why_lines(found, board)]
        assert [line for line in told if "topic t0: " in line] == [f"  {cases[0]}"]
        assert [line for line in told if "others" in line] == more


def test_at_first_the_screen_says_that_it_measures_and_reads() -> None:
    cluster = FakeCluster(3, {"orders": 4})
    cluster.add_group("reports", "orders", reads=10.0, lag=1_000)
    feed, board = FakeFeed(cluster, plays=False), Board()
    whole = feed.tick()
    unread = {stage: StageStatus() for stage in (Stage.LOG_DIRS, Stage.GROUPS, Stage.SETTINGS)}
    board.take(replace(whole, stages={**whole.stages, **unread}, health=None, log_dirs=(), groups=(), min_isr={}))

    def drawn() -> str:
        lines = overview.overview_of(board, problems_of(board), 120, 40).lines
        return "\n".join(text_of(line).rstrip() for line in lines)

    assert "the cluster's health is not known yet: settings and disks are being read" in drawn()
    assert "┌ Records in/s ─" in drawn() and " measuring ─┐" in drawn() and "┤" not in drawn(), "no scale of nothing"
    (item, *_) = brokers.items_of(board)
    cells = {column.name: column.cell(item).text for column in brokers.COLUMNS}
    assert (cells["disk"], cells["restart"]) == ("…", "…"), drawn()
    refused = replace(whole, sequence=2, stages={**whole.stages, Stage.LOG_DIRS: StageStatus(error="refused")})
    board.take(replace(refused, log_dirs=(), groups=()))
    (item, *_) = brokers.items_of(board)
    assert brokers.disk_cell(item).text == NOTHING, "nobody will tell"
    board_of(feed, 1, board)
    assert "measuring reports" in drawn() and "UNKNOWN" not in drawn()
    board_of(feed, 30, board)
    assert "measuring" not in drawn()
    assert "┌ Records in/s, last 30s ─" in drawn(), "31 frames are 31 seconds"
    board_of(feed, 300, board)
    assert "┌ Records in/s, last 2m ─" in drawn(), "the chart has no room for more"


def test_a_failure_among_the_last_changes_says_when_it_is_over() -> None:
    feed = fake_feed("live", plays=False)
    board = board_of(feed, 3)

    def row() -> str:
        lines = [text_of(line) for line in overview.overview_of(board, problems_of(board), 120, 40).lines]
        return next(line for line in lines if "broker down" in line)

    feed.cluster.kill(2)
    board_of(feed, 5, board)
    assert "over" not in row()
    feed.cluster.start(2)
    board_of(feed, 30, board)
    assert "broker 2  over after " in row()


def test_brokers_of_a_cluster_out_of_sight_are_not_shown_as_up() -> None:
    board = board_of(fake_feed("live", plays=False), 3)

    def drawn(*, is_seen: bool) -> list[tuple[str, Tone]]:
        picture = overview.overview_of(board, [], 120, 40, is_seen=is_seen)
        return [(text.strip(), tone) for line in picture.lines for text, tone in line]

    assert ("● up ctrl", Tone.GOOD) in drawn(is_seen=True) and ("brokers up", Tone.QUIET) in drawn(is_seen=True)
    unseen = drawn(is_seen=False)
    assert ("? up ctrl", Tone.QUIET) in unseen and ("brokers were up", Tone.QUIET) in unseen
    assert not [text for text, tone in unseen if "up" in text and tone is Tone.GOOD]


def test_why_a_broker_does_not_answer_stands_beside_its_row_once() -> None:
    feed = fake_feed("live", plays=False)
    feed.cluster.silence(2)
    board = board_of(feed, 20)
    view = View(board, Location("brokers"))
    (item,) = [item for item in brokers.items_of(board) if item.id == 2]
    lines = [text_of(line) for line in aside_of(view, "brokers", item, 60)]
    assert item.trouble and lines.count(item.trouble) == 1 and "log dirs" not in lines, lines


def test_an_unhealthy_query_says_why() -> None:
    board = board_of(fake_feed("streaming", plays=False), 3)
    assert told(board, "query payments-fraud STUCK")[0] == "batch too long, 72.0k behind"


def test_a_row_of_the_timeline_names_the_brokers_of_one_moment() -> None:
    feed = FakeFeed(FakeCluster(9, {"orders": 3}), plays=False)
    board = board_of(feed, 2)

    def subjects(*ids: int) -> str:
        for broker in ids:
            feed.cluster.set_broker_config(broker, "log.cleaner.threads", str(2 + len(ids)))
        board_of(feed, 1, board)
        (of,) = [column for column in timeline.columns_of(board) if column.name == "subject"]
        return of.cell(board.folded_events()[0]).text

    assert subjects(4) == "broker 4"
    assert subjects(1, 2, 3, 4, 5) == "brokers 1, 2, 3, 4, 5"
    assert subjects(*range(1, 10)) == "brokers 1 and 8 others"


def test_replicas_that_a_move_adds_do_not_raise_the_factor_of_a_topic() -> None:
    cluster = FakeCluster(5, {"orders": 2})
    cluster.reassign(TopicPartition("orders", 0), (4, 5, 1))
    board = board_of(FakeFeed(cluster, plays=False), 1)
    (factor,) = [column for column in topics.columns_of(board) if column.name == "replication_factor"]
    assert factor.cell(board.topics[0]).text == "3" and len(board.topics[0].partitions[0].replicas) > 3
    of_topic = View(board, Location("partitions", topic="orders"))
    assert "factor 3 " in text_of(partitions.PAGE.summary(of_topic, 120)[0]), "as in the table of topics"


def test_a_reader_that_commits_rarely_is_not_called_measuring_for_hours() -> None:
    told = [groups.status_cell(LagStatus.UNKNOWN, why).text for why in (Reason.TOO_FEW_SAMPLES, Reason.BETWEEN_COMMITS)]
    assert told == ["measuring", "UNKNOWN"]


@staged(shown, size=(120, 40))
async def test_keys_that_narrow_say_what_they_show_next(driven: Driven, /) -> None:
    await driven.tick(2)
    driven.feed.cluster.kill(2)
    await driven.tick(2)
    assert "z " not in driven.text.splitlines()[-1], "problems are all there is"
    for keys, told in (("4", "z problems only"), ("z", "z everything"), ("8", "z warnings and failures"),
                       ("z", "z failures"), ("z", "z everything")):  # fmt: skip
        await driven.press(keys)
        assert told in driven.text.splitlines()[-1], driven.text


@staged(shown, "empty")
async def test_the_last_line_names_no_key_that_has_nothing_to_do(driven: Driven, /) -> None:
    await driven.tick(2)
    driven.app.session.target = ClusterTarget("made up", Origin.OPTIONS, bootstrap=(("made-up", 1),))
    for page, keys in (
        ("reassignments", ": ? q"), ("groups", ": ? q"), ("topics", "N : ? q"), ("plans", "N o : ? q"),
        ("timeline", ": ? q"), ("brokers", "A E R enter / z : ? q"),
    ):  # fmt: skip
        driven.main.go_to(Location(page))
        assert [item.key for item in footer_items(driven.main)] == keys.split(), page
    driven.feed.cluster.set_broker_config(1, "leader.replication.throttled.rate", "1000")
    await driven.tick(2)
    driven.main.go_to(Location("reassignments"))
    assert [item.key for item in footer_items(driven.main)] == ["w", "X", ":", "?", "q"]


def test_readers_are_explained_by_what_concerns_them_and_the_gravest_leads() -> None:
    cluster = FakeCluster(3, {"orders": 4, "other": 4})
    cluster.add_group("reports", "orders", reads=cluster.rate, lag=10)
    feed = FakeFeed(cluster, plays=False)
    board = board_of(feed, 30)
    cluster.set_broker_config(2, "follower.replication.throttled.rate", "1000000")
    cluster.stop_at("reports", TopicPartition("orders", 1), 5)
    for _ in range(40):
        cluster.set_topic_config("other", "retention.ms", str(board.frame.at_ms))
        board_of(feed, 1, board)
    problems = problems_of(board)
    (reader,) = [problem for problem in problems if not problem.is_of_cluster]
    assert reader.tone is Tone.BAD and reader.since is not None and not reader.since.is_least
    told = "\n".join(text_of(line) for line in why_lines(reader, board))
    assert "topic config" not in told, told
    assert "topic config" in "\n".join(text_of(line) for line in why_lines(replace(reader, is_of_cluster=True), board))
    banner = text_of(overview.overview_of(board, problems, 120, 40).lines[0])
    assert banner.startswith(" ✖ PROBLEMS  1 unhealthy group · 1 throttle setting left"), banner


def test_the_key_that_makes_room_works_after_the_broker_died_of_its_disk() -> None:
    async def look(driven: Driven) -> None:
        await driven.tick(25)
        driven.feed.cluster.kill(2)
        await driven.tick(3)
        row = next(problem for problem in problems_of(driven.app.board) if problem.subject == "broker 2 down")
        assert row.effect.startswith("its disk filled up: ")
        assert row.advice.startswith(
            "lower the retention of clickstream (A), make room in /var/lib/kafka, then start it"
        )
        assert row.mends == ("settings.alter", "plan.retire")
        await driven.press("g")
        offer = offer_for("settings.alter", driven.main.view, chosen(driven.main, "settings.alter"))
        assert isinstance(offer, EditSettings) and offer.entity == Entity(EntityType.TOPIC, "clickstream")

    cluster = FakeCluster(3, {"orders": 1}, rate=1_000, partition_bytes=280_000_000_000)
    cluster.create_topic("clickstream", 6)
    shown(look, FakeFeed(cluster, plays=False))


def test_what_is_wrong_is_worked_out_once_for_each_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    """With very many groups it takes long, and title, banner, rows and each key ask."""
    feed = FakeFeed(FakeCluster(3, {"orders": 6}), plays=False)
    for name in ("a", "b", "c"):
        feed.cluster.add_group(name, "orders", reads=0)
    board = Board()
    for _ in range(30):
        board.take(feed.tick())
    looked: list[str] = []
    cases_of = problems._cases_of

    def noted(group: WatchedGroup, changes: int) -> Iterator[str]:
        looked.append(group.name)
        return cases_of(group, changes)

    monkeypatch.setattr(problems, "_cases_of", noted)
    assert [problem.key for problem in problems.problems_of(board)] == ["group a", "group b", "group c"]
    assert overview.health_word(board)[0] == "✖ problems"
    assert problems.problem_of(board, "topics", board.topics[0]) is None
    assert problems.problem_of_moves(board) is None
    problem = problems.problem_of(board, "groups", board.frame.groups[1])
    assert problem is not None and problem.key == "group b" and looked == ["a", "b", "c"]
    board.take(feed.tick())
    assert len(problems.problems_of(board)) == 3 and looked == ["a", "b", "c"] * 2


def test_a_quota_and_a_stopped_plan_are_problems_before_the_next_frame() -> None:
    board = board_of(FakeFeed(FakeCluster(3, {"orders": 6}), plays=False), 2)
    assert not problems_of(board)
    board.note_quota(1_000_000.0)
    assert [problem.key for problem in problems_of(board)] == ["producers"]
    board.note_quota(None)
    board.note_plan(UnfinishedPlan(Path("plan.json"), 1, 2, "", 1))
    assert [problem.mends for problem in problems_of(board)] == [("plan.resume",)]
    board.note_plan(None)
    assert not problems_of(board)


def test_the_members_of_a_group_are_looked_through_once_however_many_partitions_are_behind() -> None:
    """With 500 of each, every drawing took a quarter of a million looks."""

    class Counted(tuple[Any, ...]):
        looks = 0

        def __iter__(self) -> Iterator[Any]:
            self.looks += 1
            return super().__iter__()

    feed = FakeFeed(FakeCluster(3, {"orders": 60}), plays=False)
    for name in ("a", "b"):
        feed.cluster.add_group(name, "orders", reads=0)
    board = Board()
    for _ in range(30):
        board.take(feed.tick())
    members = [Counted(group.members or ()) for group in board.frame.groups]
    groups = tuple(replace(group, members=own) for group, own in zip(board.frame.groups, members, strict=True))
    board.frame = replace(board.frame, groups=groups)
    found = problems.problems_of(board)
    assert len(found) == 2 and all("read by" in problem.examples[0] for problem in found)
    assert [own.looks for own in members] == [1, 1]
