"""What a principal may not see is hidden: neither absent nor broken, and the screen says for want of which right."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from dashboards import Driven, dashboard, drive
from fake_cluster import FakeCluster
from fake_feed import FakeFeed
from klamm_program import in_process

from engine.admin.cluster.client_properties import load_client_properties
from engine.admin.cluster.rights import Right
from engine.admin.cluster.target import ClusterTarget, Origin, parse_addresses
from engine.admin.watch.frame import Frame, Stage, StageSource, StageStatus
from engine.admin.watch.live_feed import LiveFeed
from engine.common.acl import AclOperation, ResourceType
from engine.common.model import TopicPartition
from engine.local.cluster import LocalCluster
from tui.pages import brokers, reassignments, topics
from tui.pages.page import View
from tui.state.board import Board
from tui.state.location import Location, Only
from tui.state.status import Standing, login_of, rights_text, standing_of, status_lines

SEE_CLUSTER = Right(AclOperation.DESCRIBE, ResourceType.CLUSTER)


def see_settings(topic: str) -> Right:
    return Right(AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, topic)


def denied(*rights: Right, **stages: StageStatus) -> Frame:
    frame = FakeCluster().frame()
    without = {**frame.stages, **{Stage(name): status for name, status in stages.items()}}
    return replace(frame, principal="User:alice", denied=rights, stages=without)


def test_rights_alike_are_told_as_one() -> None:
    frame = denied(see_settings("orders"), SEE_CLUSTER, see_settings("clicks"), see_settings("audit"))
    assert rights_text(frame) == "User:alice lacks describe-configs on topic orders and 2 more; describe on the cluster"
    assert rights_text(replace(frame, principal=None)).startswith("this login lacks")
    assert rights_text(replace(frame, denied=())) == ""


def test_nobody_is_named_where_nobody_logs_in() -> None:
    frame = replace(denied(), principal="User:ANONYMOUS")
    assert login_of(frame) is None and login_of(denied()) == "User:alice"
    assert login_of(replace(frame, denied=(SEE_CLUSTER,))) == "User:ANONYMOUS", "rules apply to it, too"


def test_what_is_hidden_is_no_fault_of_the_cluster() -> None:
    read_ms = FakeCluster().frame().at_ms
    refused = StageStatus(StageSource.POLL, read_at_ms=read_ms, error="Cluster authorization failed.", is_denied=True)
    frame = denied(SEE_CLUSTER, log_dirs=refused)
    assert standing_of(frame) is Standing.LIVE
    status = "\n".join("".join(text for text, _ in line) for line in status_lines(frame, 120))
    assert "live" in status and "⊘ User:alice lacks describe on the cluster" in status
    assert "authorization failed" not in status, "once is enough"
    assert standing_of(replace(frame, denied=())) is Standing.DEGRADED, "nobody knows of a right"


def test_cells_and_empty_tables_say_hidden() -> None:
    board = Board()
    frame = denied(SEE_CLUSTER, see_settings("orders"))
    board.take(replace(frame, min_isr={"clicks": 2}, log_dirs=(), logs={}))
    cells = {column.name: column.cell for column in topics.columns_of(board)}
    named = {topic.name: topic for topic in board.topics}
    assert cells["min_isr"](named["orders"]).text == "⊘" and cells["min_isr"](named["clicks"]).text == "2"
    assert cells["min_isr"](named["audit"]).text == "—", "nobody said that it is hidden"
    assert cells["bytes"](named["clicks"]).text == "⊘"
    of_broker = {column.name: column.cell for column in brokers.COLUMNS}
    item = brokers.items_of(board)[0]
    assert {of_broker[name](item).text for name in ("bytes", "disk", "full_in_s")} == {"⊘"}
    refused = StageStatus(error="Cluster authorization failed.", is_denied=True)
    board.take(replace(frame, stages={**frame.stages, Stage.REASSIGNMENTS: refused}))
    empty = reassignments.PAGE.rows(View(board, Location("reassignments"))).empty
    assert empty == "⊘ reassignments are hidden: " + rights_text(frame)
    assert frame.cluster is not None
    frame = replace(frame, cluster=replace(frame.cluster, topics=()))
    board.take(frame)
    assert topics.PAGE.rows(View(board, Location("topics"))).empty == "no topics that User:alice may see"
    board.take(replace(frame, denied=()))
    assert topics.PAGE.rows(View(board, Location("topics"))).empty == "no topics", "all log dirs were shown"
    board.take(replace(frame, denied=(), stages={**frame.stages, Stage.LOG_DIRS: StageStatus()}))
    assert topics.PAGE.rows(View(board, Location("topics"))).empty == "no topics that User:alice may see"


def test_nobody_expects_an_answer_of_a_broker_that_is_down() -> None:
    cluster = FakeCluster()
    cluster.kill(2)
    frame = cluster.frame()
    for broker, standing in ((2, Standing.LIVE), (1, Standing.DEGRADED)):
        read = replace(frame.stages[Stage.LOG_DIRS], missing=(f"broker {broker}: connection refused",))
        seen = replace(frame, stages={**frame.stages, Stage.LOG_DIRS: read})
        text = "".join(part for line in status_lines(seen, 120) for part, _ in line)
        assert standing_of(seen) is standing and ("refused" in text) is (standing is Standing.DEGRADED), text
    assert standing_of(replace(seen, cluster=None)) is Standing.DEGRADED, "nobody knows who is down"


def target_of(cluster: LocalCluster, user: str) -> ClusterTarget:
    properties = load_client_properties(cluster.directory / f"{user}.properties")
    addresses = parse_addresses(cluster.bootstrap_servers)
    return ClusterTarget("secured", Origin.OPTIONS, bootstrap=addresses, client_properties=properties)


Klamm = Callable[..., None]


@pytest.fixture
def admin(secured: LocalCluster, capsys: pytest.CaptureFixture[str]) -> Klamm:
    """Run a command as the administrator of the secured cluster."""
    config = secured.directory / "client.properties"
    where = ("--bootstrap-server", secured.bootstrap_servers, "--command-config", config)

    def run(*words: str | Path) -> None:
        ran = in_process(*words, *where, capture=capsys)
        assert ran.code == 0, ran.err

    return run


def shown(target: ClusterTarget, look: Callable[[Driven], Awaitable[None]]) -> None:
    async def run() -> None:
        feed = LiveFeed(target, interval_s=0.5)
        async with dashboard(feed, target=target, page="topics", size=(160, 40)) as driven:
            await driven.until(lambda: driven.app.board.was_read_whole)
            await look(driven)

    drive(run)


def test_a_user_sees_what_he_may_and_for_want_of_which_right_no_more(secured: LocalCluster, admin: Klamm) -> None:
    admin("topics", "create", "orders", "--partitions", "2")
    admin("topics", "create", "secret", "--partitions", "2")

    async def nothing(driven: Driven) -> None:
        assert "secured as User:alice › Topics" in driven.text.splitlines()[0]
        await driven.sees("no topics that User:alice may see")
        await driven.sees("⊘ User:alice lacks describe on the cluster")
        assert driven.lines_with("● live") and not driven.lines_with("✖"), "no fault"
        await driven.press("6")
        await driven.sees("⊘ reassignments are hidden: User:alice lacks")
        await driven.press("5")
        assert "no consumer group that User:alice may see" in driven.text
        await driven.press("2")
        assert any("⊘" in line for line in driven.lines_with("controller")), "sizes"
        await driven.press("i")
        assert "⊘ Hidden from User:alice" in driven.text
        assert "klamm acls add --allow-principal User:alice --operation describe --cluster-resource" in driven.text

    shown(target_of(secured, "alice"), nothing)
    admin("acls", "add", "--allow-principal", "User:alice", "--operation", "describe", "--topic", "orders", "--yes")

    async def one_topic(driven: Driven) -> None:
        await driven.sees("describe-configs on topic orders")
        assert "⊘" in driven.lines_with("▌ orders")[0] and "secret" not in driven.text
        health = driven.app.board.frame.health if driven.app.board.frame is not None else None
        assert health is not None and not health.reasons, "hidden settings are no fault"

    shown(target_of(secured, "alice"), one_topic)

    async def all_of_it(driven: Driven) -> None:
        assert "secured as User:admin › Topics" in driven.text.splitlines()[0]
        await driven.sees("secret")
        assert "⊘" not in driven.text

    shown(target_of(secured, "client"), all_of_it)


def test_a_group_is_seen_although_the_topic_in_which_groups_live_is_hidden(secured: LocalCluster, admin: Klamm) -> None:
    admin("topics", "create", "read", "--partitions", "1")
    admin("groups", "reset-offsets", "--group", "readers", "--topic", "read", "--to-earliest", "--execute", "--yes")
    admin("acls", "add", "--allow-principal", "User:alice", "--operation", "describe", "--group", "readers")

    async def one_group(driven: Driven) -> None:
        assert "__consumer_offsets" not in driven.text
        await driven.press("5")
        await driven.sees("▌ readers")

    shown(target_of(secured, "alice"), one_group)


def test_the_record_that_comes_next_needs_the_right_to_read_its_topic(secured: LocalCluster, admin: Klamm) -> None:
    admin("topics", "create", "letters", "--partitions", "1")
    admin("acls", "add", "--allow-principal", "User:alice", "--operation", "describe", "--topic", "letters", "--yes")
    feed = FakeFeed(FakeCluster(3, {"letters": 1}), plays=False)
    admin("perf", "producer", "--topic", "letters", "--num-records", "5", "--record-size", "10")
    feed.cluster.add_group("reports", "letters", reads=feed.cluster.rate, lag=50)
    feed.cluster.stop_at("reports", TopicPartition("letters", 0), 1)

    async def run() -> None:
        async with dashboard(feed, target=target_of(secured, "alice"), size=(160, 50)) as driven:
            await driven.tick(40)
            driven.main.go_to(Location("group", group="reports", only=Only.UNHEALTHY))
            await driven.press("enter")
            await driven.sees("User:alice lacks read on topic letters")
            rule = "klamm acls add --allow-principal User:alice --operation read --topic letters"
            assert rule in " ".join(driven.text.split())

    drive(run)
