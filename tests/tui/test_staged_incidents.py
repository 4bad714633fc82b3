"""Eight incidents, by keys alone: the row on the overview, the rows concerned, why it is so, and what mends it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import uuid4

import pytest
from dashboards import WAIT_S, Driven, dashboard, drive
from ended_sessions import kill_for_good
from fake_cluster import FakeCluster
from fake_feed import FakeFeed
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from operated_cluster import Klamm, filled, of_three_brokers
from patience import within
from textual.widgets import Input

from engine.admin.analysis.throttles import what_is_held
from engine.admin.cluster.errors import BadRequest
from engine.admin.cluster.target import ClusterTarget, Origin, parse_addresses
from engine.admin.elections.scope_and_result import ElectionScope, ElectionType
from engine.admin.health.report import (
    Check,
    HealthReason,
    HealthReport,
    HealthStatus,
    HoldingTransaction,
    Severity,
)
from engine.admin.watch.live_feed import LiveFeed
from engine.common.model import TopicPartition
from engine.local.cluster import LocalCluster
from engine.local.zookeeper import EmbeddedZooKeeper
from tui.app import Dashboard
from tui.dialogs.form import FormDialog
from tui.operations.elections import Elect
from tui.operations.groups import ResetOffsets
from tui.operations.partitions import AbortHanging
from tui.operations.reassignments import CancelReassignments, RemoveThrottles
from tui.pages.brokers import BrokerItem
from tui.pages.why import why_lines
from tui.screen.action_handlers import chosen
from tui.screen.offers import Ask, NotNow, Offer, offer_for
from tui.state.board import Board
from tui.state.location import Location
from tui.state.problems import problems_of
from tui.state.session import Session


@dataclass(frozen=True)
class Incident:
    """One incident.

    Attributes:
        happens: makes it happen.
        row: how its row on the overview begins.
        place: what the title says where ``enter`` leads.
        shown: the rows there; where the place has no rows, nothing.
        why: what ``w`` says.
        seconds: until it can be seen.
        tells: what the place says above its rows.
        mends: the key that mends it, and what that key offers.
    """

    happens: Callable[[FakeCluster], None]
    row: str
    place: str
    shown: tuple[str, ...]
    why: tuple[str, ...]
    seconds: int = 3
    tells: str = ""
    mends: tuple[str, Callable[[Offer], bool]] | None = None


def _five() -> FakeCluster:
    cluster = FakeCluster(5, {"orders": 10})
    cluster.create_topic("audit", 1, replication_factor=1)
    cluster.add_group("billing", "orders", reads=100, lag=0)
    return cluster


def _stick(cluster: FakeCluster) -> None:
    cluster.reassign(TopicPartition("orders", 0), (4, 5, 1))
    cluster.reassign(TopicPartition("orders", 1), (2, 3, 5), is_stalled=True)
    cluster.copy_rate = 5_000_000


def _starve(cluster: FakeCluster) -> None:
    """A move whose throttle lets less through than is produced."""
    _throttle(cluster, 1_000)
    cluster.reassign(TopicPartition("orders", 1), (2, 3, 5))
    cluster.copy_rate = 1_000


def _throttle(cluster: FakeCluster, rate: int) -> None:
    cluster.set_topic_config("orders", "leader.replication.throttled.replicas", "*")
    for broker in range(1, 6):
        cluster.set_broker_config(broker, "leader.replication.throttled.rate", str(rate))


def _leak(cluster: FakeCluster) -> None:
    cluster.set_broker_config(2, "follower.replication.throttled.rate", "1000000")
    cluster.set_topic_config("orders", "follower.replication.throttled.replicas", "0:2,1:3")


def _restart_2(cluster: FakeCluster) -> None:
    cluster.kill(2)
    cluster.start(2)


def _of_audit(cluster: FakeCluster) -> int:
    (topic,) = (topic for topic in cluster.frame().cluster.topics if topic.name == "audit")  # type: ignore[union-attr]
    return topic.partitions[0].replicas[0]


INCIDENTS = {
    "dead broker": Incident(
        lambda cluster: cluster.kill(4), "✖ broker 4 down", "Brokers › down", ("4",),
        ("start it, or move its replicas away", "6 replicas, should lead 2", "it was at kafka4:9092"),
        mends=("plan.retire", lambda offer: isinstance(offer, Ask) and offer.fields[0].value == "4"),
    ),
    "frozen broker": Incident(
        lambda cluster: cluster.silence(3), "✖ broker 3 silent", "Brokers › silent", ("3",),
        ("no answer within 5 s", "check the process and its server.log"), seconds=6,
        mends=("plan.retire", lambda offer: isinstance(offer, Ask) and offer.fields[0].value == "3"),
    ),
    "full disk": Incident(
        lambda cluster: cluster.fail_log_dir(4), "✖ 1 log dir failed", "Brokers › log dir failed", ("4",),
        ("broker 4: /var/lib/kafka", "make room or replace it, then restart the broker"), seconds=6,
        mends=("plan.retire", lambda offer: isinstance(offer, Ask) and offer.fields[0].value == "4"),
    ),
    "stuck move": Incident(
        _stick, "✖ 1 copy stands still", "Reassignments › stuck", ("orders-1",),
        ("orders-1 to broker 5: no byte seen for", "see what both brokers log; or cancel it (C)"), seconds=60,
        mends=("reassignment.cancel", lambda offer: offer == CancelReassignments((TopicPartition("orders", 1),))),
    ),
    "starved move": Incident(
        _starve, "✖ 1 copy falls behind", "Reassignments › stuck", ("orders-1",),
        ("orders-1 to broker 5: 1.0 kB/s are copied, 100 kB/s are produced",
         "sends under a throttle of 1.0 kB/s; the move can never finish", "raise the throttle (H); or cancel it (C)"),
        seconds=60,
        mends=("reassignment.throttle", lambda offer: isinstance(offer, Ask) and offer.fields[0].value == "1M"
               and offer.fields[0].hint == "for each broker, now 1.0 kB/s, 1.0 MB/s would let it end within an hour"),
    ),
    "leaked throttle": Incident(
        _leak, "▲ 2 throttle settings left", "Reassignments", (),
        ("broker 2: follower.replication.throttled.rate=1000000", "remove them (X)"),
        tells="topic orders: follower.replication.throttled.replicas=0:2,1:3",
        mends=("reassignment.unthrottle", lambda offer: isinstance(offer, RemoveThrottles)),
    ),
    "unpreferred leaders": Incident(
        _restart_2, "▲ 1 broker leads too few", "Partitions › not preferred", ("orders-1", "orders-6"),
        ("broker 2 does not lead 2 of the 3 partitions", "elect the preferred leaders (E)"),
        mends=("leader.elect", lambda offer: offer == Elect(ElectionType.PREFERRED, ElectionScope())),
    ),
    "stalled group": Incident(
        lambda cluster: cluster.add_group("reports", "audit", reads=0, lag=40_000), "✖ group reports STALL",
        "Groups › reports › unhealthy", ("audit-0",),
        ("stands still", "audit-0: 42.6k behind, read by reports at /10.0.0.1", "look at what its members log, and at"),
        seconds=30, tells="members: reports at /10.0.0.1 (1)",
        mends=("group.reset",
               lambda offer: isinstance(offer, Ask) and [field.value for field in offer.fields] == ["audit:0", "+1"]),
    ),
    "offline partition": Incident(
        lambda cluster: cluster.kill(_of_audit(cluster)), "✖ 1 partition offline", "Partitions › offline", ("audit-0",),
        ("all down; start broker",),
        mends=("leader.elect_unclean",
               lambda offer: offer == NotNow("no replica is alive that could lead: see what to do (w)")),
    ),
}  # fmt: skip


def offered(driven: Driven, action_id: str) -> Offer:
    main = driven.main
    if action_id.startswith("plan."):
        return main.desk.offer_for(action_id, main.view, chosen(main, action_id))
    return offer_for(action_id, main.view, chosen(main, action_id))


async def choose(driven: Driven, *rows: str) -> int:
    """Put the cursor on a problem that begins like one of these, by keys; return how many that took from the first.

    On a real cluster other rows come and go meanwhile: then it begins again.
    """
    is_in_time = within(WAIT_S)
    while is_in_time():
        await driven.until(
            lambda: any(f"{item.sign} {item.subject}".startswith(rows) for item in driven.main.model.shown)
        )
        await driven.press("g")
        for keys in range(len(driven.main.model.shown)):
            if any(driven.lines_with(f"▌{row}") for row in rows):
                return keys
            await driven.press("j")
    raise AssertionError(driven.text)


@pytest.mark.parametrize("incident", INCIDENTS.values(), ids=INCIDENTS)
def test_an_incident_is_seen_opened_explained_and_mended(incident: Incident) -> None:
    """In a large terminal, and in a small one."""

    async def look(driven: Driven) -> None:
        assert await choose(driven, incident.row) <= 1, "the gravest come first"
        registry = driven.app.session.registry
        mending = incident.mends and registry.named(incident.mends[0])
        if incident.mends is not None and mending:
            assert registry.for_key(mending.keys[0], "overview") is mending
            assert incident.mends[1](offered(driven, mending.id)), offered(driven, mending.id)
        await driven.press("w")
        for told in incident.why:
            assert told in " ".join(driven.text.split()), driven.text
        await driven.press("escape", "enter")
        assert incident.place in driven.text.splitlines()[0]
        names = [str(item.id if isinstance(item, BrokerItem) else item.name) for item in driven.main.model.shown]
        assert names == [*incident.shown]
        assert incident.tells in driven.text
        await driven.press("escape")
        assert driven.lines_with(f"▌{incident.row}"), "the cursor is where it was"

    async def run() -> None:
        async with dashboard(FakeFeed(_five(), plays=False), size=(120, 40)) as driven:
            await driven.tick(3)
            incident.happens(driven.feed.cluster)
            await driven.tick(incident.seconds)
            await look(driven)
            await driven.pilot.resize_terminal(80, 24)
            await look(driven)

    drive(run)


@pytest.mark.parametrize("check", Check, ids=lambda item: item.name)
def test_the_overview_has_words_and_a_place_for_whatever_health_finds(check: Check) -> None:
    cluster = FakeCluster(3, {"orders": 3})
    found = HealthReport(HealthStatus.WARNING, (HealthReason(check, Severity.WARNING, 2, ("orders-0 (so and so)",)),))
    board = Board()
    board.take(replace(cluster.frame(), health=found))
    if check in (Check.MISSING_BROKERS, Check.SILENT_BROKERS):
        assert not problems_of(board), "none is missing or silent"
        return
    (problem,) = [problem for problem in problems_of(board) if problem.is_of_cluster]
    assert problem.subject and problem.advice


def test_a_key_that_mends_another_kind_of_problem_says_so() -> None:
    async def look(driven: Driven) -> None:
        driven.feed.cluster.kill(2)
        await driven.tick(2)
        assert driven.lines_with("▌✖ broker 2 down")
        for action_id in ("reassignment.cancel", "leader.elect_unclean"):
            assert isinstance(offered(driven, action_id), NotNow)
        await driven.press("j")
        assert driven.lines_with("▌✖ 34 under-replicated")
        assert isinstance(offered(driven, "plan.retire"), NotNow)

    async def run() -> None:
        async with dashboard("live") as driven:
            await look(driven)

    drive(run)


@pytest.mark.parametrize("is_frozen", [False, True])
def test_a_move_to_a_dead_broker_waits_for_it_and_not_for_a_throttle(is_frozen: bool) -> None:
    async def look(driven: Driven) -> None:
        await driven.tick(3)
        _starve(driven.feed.cluster)
        await driven.tick(3)
        if is_frozen:
            driven.feed.cluster.silence(5, "no answer for 9 s")
            await driven.tick(6)
        driven.feed.cluster.kill(5)
        await driven.tick(3)
        (row,) = [row for row in problems_of(driven.app.board) if "reassignment.cancel" in row.mends]
        assert row.subject == "1 copy stands still" and row.mends == ("reassignment.cancel",)
        start = "continue or restart" if is_frozen else "start"
        assert row.advice == f"{start} broker 5; or cancel it (C)"
        assert row.examples == ("orders-1 to broker 5: broker 5, which gets it, is down",)

    async def run() -> None:
        async with dashboard(FakeFeed(_five(), plays=False)) as driven:
            await look(driven)

    drive(run)


def test_a_move_under_a_throttle_says_so_on_its_row() -> None:
    async def look(driven: Driven) -> None:
        await driven.tick(3)
        _starve(driven.feed.cluster)
        await driven.tick(5)
        (row,) = [problem for problem in problems_of(driven.app.board) if "reassignment" in problem.subject]
        assert row.subject == "1 reassignment held up", "nobody waits for a move at 1 kB/s"
        assert row.effect.startswith("broker 2 sends under a throttle of 1.0 kB/s"), row.effect
        assert "1.0 MB/s would let it end within an hour" in row.effect, row.effect
        assert row.advice.startswith("raise the throttle (H)"), row.advice
        _throttle(driven.feed.cluster, 50_000_000)
        await driven.tick(2)
        (row,) = [problem for problem in problems_of(driven.app.board) if "reassignment" in problem.subject]
        assert row.subject == "1 reassignment runs"

    async def run() -> None:
        async with dashboard(FakeFeed(_five(), plays=False)) as driven:
            await look(driven)

    drive(run)


def test_throttle_settings_say_what_they_hold_up_and_who_was_throttled_when() -> None:
    board = Board()
    cluster = _five()
    feed = FakeFeed(cluster, plays=False)
    board.take(feed.tick())
    for broker in range(1, 6):
        cluster.set_broker_config(broker, "leader.replication.throttled.rate", "1000")
        board.take(feed.tick())
    assert what_is_held(board.frame) == "", "no replica is listed"
    cluster.set_topic_config("orders", "leader.replication.throttled.replicas", "0:2")
    for _ in range(3):
        board.take(feed.tick())
    (row,) = [problem for problem in problems_of(board) if "throttle settings left" in problem.subject]
    held = "replicas of orders that are out of sync copy under a throttle of 1.0 kB/s, "
    assert row.effect.startswith(held), row.effect
    told = "\n".join("".join(text for text, _ in line) for line in why_lines(row, board))
    assert "5 times  leader.replication.throttled.rate=1000  broker 1, broker 2, broker 3, broker 4, …" in told, told
    assert "orders  leader.replication.throttled.replicas=0:2" in told, told


def test_throttles_that_moves_need_are_named_instead_of_removed() -> None:
    async def look(driven: Driven) -> None:
        await driven.tick(3)
        first = offered(driven, "reassignment.throttle")
        assert first == NotNow("nothing is being moved")
        _starve(driven.feed.cluster)
        await driven.tick(60)
        await driven.press("6")
        offer = offered(driven, "reassignment.unthrottle")
        assert isinstance(offer, RemoveThrottles)
        assert offer.needed[0].endswith(
            "sends under a throttle of 1.0 kB/s; the move can never finish: 1.0 MB/s would let it end within an hour"
        )

    async def run() -> None:
        async with dashboard(FakeFeed(_five(), plays=False)) as driven:
            await look(driven)

    drive(run)


def test_a_transaction_that_hangs_is_ended_from_its_problem() -> None:
    async def look(driven: Driven) -> None:
        frame = driven.feed.cluster.frame()
        reason = HealthReason(Check.HANGING_TRANSACTIONS, Severity.CRITICAL, 1, ("orders-3 (so and so)",))
        held = HoldingTransaction("orders-3", 5, 7, 600_000, is_hanging=True)
        report = HealthReport(HealthStatus.CRITICAL, (reason,))
        driven.app.take(replace(frame, sequence=frame.sequence + 1, health=report, holding=(held,)))
        await choose(driven, "✖ 1 transaction hangs")
        assert offered(driven, "transactions.abort") == AbortHanging((TopicPartition("orders", 3),))
        assert isinstance(offered(driven, "group.reset"), NotNow)

    async def run() -> None:
        async with dashboard(FakeFeed(_five(), plays=False)) as driven:
            await driven.tick(2)
            await look(driven)

    drive(run)


@pytest.fixture(scope="module")
def three_brokers(zookeeper: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A cluster without other tests' topics: rows count what is wrong in all of it, and its brokers are killed."""
    with of_three_brokers(zookeeper, tmp_path_factory.mktemp("incidents")) as cluster:
        yield cluster


def test_leaders_come_back_by_keys_on_a_real_cluster(three_brokers: LocalCluster, by_wire: Klamm) -> None:
    name = f"i-{uuid4().hex[:8]}"
    assert by_wire("topics", "create", name, "--replica-assignment", "1:2", "--yes").code == 0

    def isr(driven: Driven) -> tuple[int, ...]:
        return next(topic for topic in driven.app.board.topics if topic.name == name).partitions[0].isr

    async def scene(driven: Driven) -> None:
        await asyncio.to_thread(kill_for_good, three_brokers, 2)
        await choose(driven, "✖ broker 2 down")
        await driven.press("R")
        await driven.sees("Plan: empty brokers")
        await driven.press("escape")
        await driven.until(lambda: isr(driven) == (1,))
        await asyncio.to_thread(kill_for_good, three_brokers, 1)
        await driven.until(lambda: driven.app.board.live == {0})
        await asyncio.to_thread(three_brokers.start_broker, 2)
        await driven.until(lambda: driven.app.board.live == {0, 2})
        row = next(item.subject for item in driven.main.model.shown if "offline" in item.subject)
        await choose(driven, f"✖ {row}")
        await driven.press("U")
        await driven.sees(f"--topic {name} --partition 0")
        word = re.search("type (.+) and press enter", driven.text)
        assert word is not None
        await driven.type(word[1])
        await driven.press("enter")
        await driven.sees("Elect unclean leaders: done")
        await driven.press("escape")
        await asyncio.to_thread(three_brokers.start_broker, 1)
        await asyncio.to_thread(three_brokers.wait_until_serving)
        await choose(driven, "▲ 1 broker leads too few")
        await driven.press("E")
        await driven.sees("Elect preferred leaders of")
        await driven.press("y")
        await driven.sees("Elect preferred leaders: done")
        await driven.press("escape")
        await driven.until(lambda: not driven.lines_with("leads too few"))

    try:
        driven_live(three_brokers, scene)
    finally:
        three_brokers.start_brokers([1, 2])
        three_brokers.wait_until_serving()


def test_moves_and_throttles_end_by_keys_on_a_real_cluster(
    three_brokers: LocalCluster, by_wire: Klamm, tmp_path: Path
) -> None:
    name = f"i-{uuid4().hex[:8]}"
    filled(by_wire, name, "1:2", records=5000)
    files = ("--reassignment-json-file", tmp_path / "plan.json")
    files[1].write_text(f'{{"version":1,"partitions":[{{"topic":"{name}","partition":0,"replicas":[0,1]}}]}}')
    slowly = ("--throttle", "1024", "--yes", "--rollback-file", tmp_path / "back.json")

    async def cancels(driven: Driven) -> None:
        await choose(driven, "▲ 1 reassignment held up", "✖ 1 copy ")
        await driven.press("C")
        await driven.sees(f"{name}-0: back to ")
        await driven.press("y")
        await driven.sees("Cancel reassignments: done")
        await driven.press("escape")
        await driven.until(lambda: not driven.lines_with("1 moving"))

    async def removes(driven: Driven) -> None:
        await choose(driven, "▲ 8 throttle settings left")
        await driven.press("X")
        await driven.sees("Remove throttles from 3 brokers and 1 topic in tried?")
        await driven.press("y")
        await driven.sees("Remove throttles: done")
        await driven.press("escape")
        await driven.until(lambda: not driven.lines_with("throttle settings left"))

    assert by_wire("reassign", "execute", *files, *slowly).code == 5
    driven_live(three_brokers, cancels)
    (tmp_path / "back.json").unlink()
    assert by_wire("reassign", "execute", *files, *slowly).code == 5
    assert by_wire("reassign", "cancel", *files, "--preserve-throttles", "--yes").code == 0
    driven_live(three_brokers, removes)


def test_producers_are_held_back_and_let_go_by_keys_on_a_real_cluster(
    three_brokers: LocalCluster,
) -> None:
    def kept() -> bytes:
        """What ZooKeeper holds for all client ids."""
        client = KazooClient(three_brokers.zookeeper_connect)
        client.start()
        try:
            content, _ = client.get("/config/clients/<default>")
        except NoNodeError:
            content = b""
        finally:
            client.stop()
            client.close()
        return bytes(content)

    async def holds(driven: Driven) -> None:
        await driven.press("Q")
        await driven.until(lambda: isinstance(driven.app.screen, FormDialog))
        await driven.type("50k")
        await driven.press("enter")
        await driven.sees("producer_byte_rate: not set → 50000")
        await driven.press("y")
        await driven.sees("Settings of the default of all clients: done")
        assert b'"producer_byte_rate":"50000' in await asyncio.to_thread(kept)
        await driven.press("escape")
        await choose(driven, "▲ producers have a quota")
        assert driven.lines_with("each client id may send 50.0 kB/s to a broker")
        await driven.press("Q")
        await driven.sees("now 50.0 kB/s; empty: no quota")
        await driven.press("enter")
        await driven.sees("producer_byte_rate: 50000 → dropped")
        await driven.press("y")
        await driven.sees("Settings of the default of all clients: done")
        await driven.press("escape")
        await driven.until(lambda: not driven.lines_with("producers have a quota"))
        assert b"producer_byte_rate" not in await asyncio.to_thread(kept)

    driven_live(three_brokers, holds)


def driven_live(cluster: LocalCluster, scene: Callable[[Driven], Awaitable[None]]) -> None:
    addresses = parse_addresses(cluster.bootstrap_servers)
    target = ClusterTarget("tried", Origin.OPTIONS, cluster.zookeeper_connect, addresses)

    async def run() -> None:
        feed = LiveFeed(target, interval_s=0.5)
        app = Dashboard(Session(feed, target))
        async with app.run_test(size=(140, 45)) as pilot:
            driven = Driven(app, pilot, feed)
            await driven.until(lambda: app.main is not None and app.board.has_metadata)
            await scene(driven)

    asyncio.run(run())


def test_the_record_that_holds_a_group_up_is_shown_and_stepped_over_by_keys(
    three_brokers: LocalCluster, by_wire: Klamm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    name = f"i-{uuid4().hex[:8]}"
    assert by_wire("topics", "create", name, "--replica-assignment", "0:1,1:2", "--yes").code == 0
    sent = by_wire("produce", name, "--partition", "1", "--key-separator", ":", stdin="a:well\nb:{bad\x1b\nc:well\n")
    assert sent.code == 0, sent.err
    feed = FakeFeed(FakeCluster(3, {name: 2}), plays=False)
    feed.cluster.add_group("reports", name, reads=feed.cluster.rate, lag=50)
    feed.cluster.stop_at("reports", TopicPartition(name, 1), 1)
    target = ClusterTarget("tried", Origin.OPTIONS, bootstrap=parse_addresses(three_brokers.bootstrap_servers))

    async def run() -> None:
        async with dashboard(feed, target=target) as driven:
            await driven.tick(30)
            await choose(driven, "✖ group reports STALL")
            await driven.press("enter")
            assert "enter next record" in driven.text.splitlines()[-1]
            await driven.press("enter")
            await driven.sees("offset 1  ")
            assert driven.lines_with("key    b") and driven.lines_with("value  {bad")
            assert f"--topic {name}:1 --to-offset 2 --execute" in driven.text
            await driven.press("O")
            await driven.until(lambda: isinstance(driven.app.screen, FormDialog))
            assert [field.value for field in driven.app.screen.query(Input)] == [f"{name}:1", "2"]
            await driven.press("enter", "enter")
            await driven.sees(f"{name}-1  — → 2")
            await driven.type("reports")
            await driven.press("enter")
            await driven.sees("Reset offsets: done")

    drive(run)


def test_offsets_are_reset_where_the_cursor_is_and_nowhere_is_chosen_for_a_person() -> None:
    async def look(driven: Driven) -> None:
        cluster = driven.feed.cluster
        cluster.add_group("stuck", "orders", reads=cluster.rate, lag=50)
        cluster.stop_at("stuck", TopicPartition("orders", 3), 5)
        cluster.stop_at("stuck", TopicPartition("orders", 7), 5)
        await driven.tick(30)

        def prefilled(action_id: str = "group.reset") -> list[str]:
            offer = offered(driven, action_id)
            assert isinstance(offer, Ask)
            return [field.value for field in offer.fields]

        await choose(driven, "✖ group stuck STALL")
        assert prefilled() == ["orders:3,7", ""], "which of them a record holds up is not known"
        await driven.press("enter")
        assert prefilled() == ["orders:3", "+1"]
        await driven.press("t", "t")
        assert prefilled() == ["orders:3,7", ""]
        await driven.press("g", "t", "t")
        driven.main.go_to(Location("group", group="stuck", row="orders-2"))
        assert prefilled() == ["orders:2", ""], "it reads there"
        assert prefilled("group.delete_offsets") == ["orders:2"]
        driven.main.go_to(Location("groups", row="billing"))
        await driven.until(lambda: driven.main.location.page == "groups")
        driven.main.model.put_cursor_on(("billing", driven.main.model.shown[0].lag.type))
        assert prefilled() == ["", ""]
        for topics, to in (("", "latest"), ("orders", "")):
            with pytest.raises(BadRequest):
                ResetOffsets.of("billing", topics, to)
        assert ResetOffsets.of("billing", "*", "latest").topics is None

    async def run() -> None:
        async with dashboard(FakeFeed(_five(), plays=False)) as driven:
            await look(driven)

    drive(run)
