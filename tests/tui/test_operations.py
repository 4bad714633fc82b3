"""Operations on three of our brokers: offered, confirmed, carried out, reported; refused in read-only mode."""

from __future__ import annotations

import asyncio
import re
import shlex
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from uuid import uuid4

import pytest
from dashboards import Driven
from ended_sessions import SEEN_WITHIN_S, kill_for_good, session_ended
from event_loop import in_event_loop
from group_members import commit, fill
from operated_cluster import Klamm, filled
from patience import slowness
from scripted_brokers import scripted_cluster
from scripted_groups import ScriptedGroups
from textual.widgets import Input
from transaction_story import hang
from transactional_clients import Confluent
from typed_command import fault_of

from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import BadRequest
from engine.admin.cluster.target import ClusterTarget, Origin, parse_addresses
from engine.admin.configs.values import Entity, EntityType
from engine.admin.elections.scope_and_result import ElectionScope, ElectionType
from engine.admin.reassignment.throttles import ClearedThrottles
from engine.admin.watch.live_feed import LiveFeed
from engine.common.model import NO_LEADER, TopicPartition
from engine.common.quantities import parse_rate
from engine.common.snapshot import PartitionSnapshot
from engine.kafka.zk.client import ZkClient
from engine.local.cluster import LocalCluster
from tui.app import Dashboard
from tui.drawing.cells import Tone
from tui.drawing.units import count
from tui.operations import reassignments
from tui.operations.elections import Elect
from tui.operations.groups import DeleteGroups, DeleteOffsets, ResetOffsets
from tui.operations.operation import Operation, Outcome, Prepared
from tui.operations.partitions import AbortHanging, DeleteRecords, VerifyReplicas
from tui.operations.reassignments import CancelReassignments, ChangeThrottle, RemoveThrottles
from tui.operations.settings import AlterSettings
from tui.operations.topics import CreateTopic, DeleteTopics, GrowTopic, quantity, whole_number
from tui.screen.page_screen import why_not
from tui.state.session import Session
from tui.widgets.line_table import LineTable


def target_of(cluster: LocalCluster, *, has_zookeeper: bool = False, is_read_only: bool = False) -> ClusterTarget:
    return ClusterTarget(
        "tried",
        Origin.OPTIONS,
        zookeeper=cluster.zookeeper_connect if has_zookeeper else None,
        bootstrap=parse_addresses(cluster.bootstrap_servers),
        is_read_only=is_read_only,
    )


def prepared(target: ClusterTarget, operation: Operation) -> Prepared:
    async def run() -> Prepared:
        async with Cluster(target, timeout_s=20) as cluster:
            return await operation.prepare(cluster)

    outcome = asyncio.run(run())
    for command in outcome.command.split("; "):
        words = shlex.split(command)
        if words[:1] == ["klamm"]:
            assert fault_of(words[1:]) is None, command
    return outcome


def carried_out(target: ClusterTarget, operation: Operation) -> Outcome:
    async def run() -> Outcome:
        async with Cluster(target, timeout_s=20) as cluster:
            preparation = await operation.prepare(cluster)
            assert preparation.run is not None, preparation.question
            return await preparation.run(cluster)

    return asyncio.run(run())


@pytest.fixture
def topic(by_wire: Klamm) -> str:
    name = f"t-{uuid4().hex[:8]}"
    assert by_wire("topics", "create", name, "--partitions", "2", "--replication-factor", "2", "--yes").code == 0
    return name


def driven_live(target: ClusterTarget, scene: Callable[[Driven], Awaitable[None]], **options: object) -> None:
    async def run() -> None:
        feed = LiveFeed(target, interval_s=0.5)
        app = Dashboard(Session(feed, target, **options))  # type: ignore[arg-type]
        async with app.run_test(size=(140, 45)) as pilot:
            driven = Driven(app, pilot, feed)
            await driven.until(lambda: app.main is not None and app.board.has_metadata)
            await scene(driven)

    asyncio.run(run())


async def edit_setting(driven: Driven, name: str, value: str) -> None:
    """Alter one setting in the table of all."""
    await driven.press("A")
    await driven.until(lambda: "max.message.bytes" in driven.drawn)
    await driven.press("slash")
    await driven.type(name)
    await driven.press("enter", "enter")
    await driven.type(value)
    await driven.press("enter", "ctrl+g")


def test_a_topic_is_made_changed_and_deleted_by_keys_alone(three_brokers: LocalCluster, by_wire: Klamm) -> None:
    name = f"k-{uuid4().hex[:8]}"

    async def scene(driven: Driven) -> None:
        await driven.press("3", "N")
        await driven.type(name)
        await driven.press("enter", "2", "enter", "3", "enter", "enter")
        await driven.sees(f"Create topic {name} in tried?")
        assert f"klamm topics create {name} --partitions 2 --replication-factor 3" in driven.text
        await driven.press("enter")
        assert f"Create topic {name}" in driven.text, "enter is no answer"
        await driven.press("y")
        await driven.sees("New topic: done")
        await driven.press("escape")
        await driven.until(lambda: driven.main.model.put_cursor_on(name))
        await edit_setting(driven, "max.message.bytes", "60000")
        await driven.sees("max.message.bytes: 1048588 (not set here) → 60000")
        await driven.press("y")
        await driven.sees("done")
        await driven.press("escape")
        await edit_setting(driven, "compression.type", "nonsense")
        await driven.sees("Invalid value nonsense")
        await driven.until(lambda: "producer → nonsense" in driven.drawn)
        table = driven.app.screen.query_one(LineTable)
        assert table.model.cursor_item.name == "compression.type", "the cursor is where the fault is"
        await driven.press("escape")
        await edit_setting(driven, "retention.ms", "60s")
        await driven.sees("retention.ms: 604800000 (not set here) → 60000")
        assert "retention.ms: records may be lost, present or later ones" in driven.text
        await driven.press("y", "enter")
        await driven.sees("nothing was changed so far")
        await driven.press("backspace")
        await driven.type(name)
        await driven.press("enter")
        await driven.sees("Settings of topic")
        await driven.press("escape", "D")
        await driven.sees("with all records?")
        await driven.type("y")
        await driven.press("enter")
        await driven.sees("nothing was changed so far")
        await driven.press("backspace")
        await driven.type(name)
        await driven.press("enter")
        await driven.sees("Delete topics: done")
        await driven.press("escape")
        await driven.until(lambda: name not in [topic.name for topic in driven.app.board.topics])

    driven_live(target_of(three_brokers), scene)
    assert by_wire("topics", "describe", name).code == 2


def test_whoever_deletes_a_topic_of_kafkas_own_learns_what_goes_with_it(
    three_brokers: LocalCluster, topic: str, by_wire: Klamm
) -> None:
    by_wire("consume", topic, "--group", f"g-{topic}", "--until-end")
    target = target_of(three_brokers)
    warning = "__consumer_offsets holds the offsets of all consumer groups"
    assert warning in prepared(target, DeleteTopics((topic, "__consumer_offsets"))).warnings
    assert warning not in prepared(target, DeleteTopics((topic,))).warnings


def test_what_was_typed_is_there_again_when_the_cluster_refuses(three_brokers: LocalCluster, topic: str) -> None:
    async def scene(driven: Driven) -> None:
        await driven.press("3", "N")
        await driven.type(topic)
        await driven.press("enter", "2", "enter", "3", "enter", "enter")
        await driven.sees(f"Topic '{topic}' already exists")
        assert [field.value for field in driven.app.screen.query(Input)] == [topic, "2", "3", ""]
        assert driven.app.focused is driven.app.screen.query_one("#field-name"), "the cursor is where the fault is"
        await driven.sees("empty: the cluster's default, 1")
        await driven.press("escape")
        await driven.until(lambda: driven.app.screen is driven.main)

    driven_live(target_of(three_brokers), scene)


def test_with_zookeeper_alone_the_form_asks_for_the_counts_of_a_topic(three_brokers: LocalCluster) -> None:
    name = f"k-{uuid4().hex[:8]}"
    target = replace(target_of(three_brokers, has_zookeeper=True), bootstrap=())

    async def scene(driven: Driven) -> None:
        await driven.press("3", "N")
        await driven.sees("Replication factor")
        assert "needed: ZooKeeper does not hold the cluster's default" in driven.text
        await driven.type(name)
        await driven.press("enter", "2", "enter", "enter", "enter")
        await driven.sees("replication factor: a number is needed")
        assert [field.value for field in driven.app.screen.query(Input)] == [name, "2", "", ""]
        # The cursor is in the field at fault already.
        await driven.press("3", "ctrl+g")
        await driven.sees(f"Create topic {name}")

    driven_live(target, scene)


def test_nobody_confirms_an_unclean_election_that_zookeeper_alone_cannot_make(three_brokers: LocalCluster) -> None:
    target = replace(target_of(three_brokers, has_zookeeper=True), bootstrap=())
    with pytest.raises(BadRequest, match="unclean elections are not possible through ZooKeeper"):
        prepared(target, Elect(ElectionType.UNCLEAN, ElectionScope()))


def test_a_killed_broker_is_seen_and_its_leaders_are_elected_back_by_keys(
    three_brokers: LocalCluster, topic: str, by_wire: Klamm
) -> None:
    victim = by_wire.leaders(topic)[0]

    async def scene(driven: Driven) -> None:
        loop = asyncio.get_running_loop()
        async with await ZkClient.connect(three_brokers.zookeeper_connect, make_chroot=False) as zk:
            ended_s = await session_ended(zk, victim, lambda: kill_for_good(three_brokers, victim))
        # Until the session ends, the overview counts it as silent, which is not the subject here.
        await driven.until(lambda: victim not in driven.app.board.live)
        await driven.until(lambda: "2 of 3" in driven.text and "✖ CRITICAL" in driven.text)
        assert loop.time() - ended_s < SEEN_WITHIN_S * slowness()
        await loop.run_in_executor(None, three_brokers.start_broker, victim)
        await loop.run_in_executor(None, three_brokers.wait_until_serving)
        await driven.press("3")
        await driven.until(
            lambda: driven.main.model.put_cursor_on(topic) and driven.app.board.total.electable[victim] > 0
        )
        await driven.press("E")
        await driven.sees("Elect preferred leaders of")
        assert f"klamm elect preferred --topic {topic}" in driven.text
        await driven.press("y")
        await driven.sees("Elect preferred leaders: done")
        # Other tests of this cluster have left topics whose changes come at the same moment.
        await driven.press("escape", "8", "slash")
        await driven.type("broker down")
        await driven.until(lambda: bool(driven.lines_with("≤ ")) and "broker down" in driven.lines_with("≤ ")[-1])

    driven_live(target_of(three_brokers, has_zookeeper=True), scene)
    assert by_wire.leaders(topic)[0] == victim


def test_a_replica_out_of_sync_leads_by_keys_where_nobody_does(three_brokers: LocalCluster, by_wire: Klamm) -> None:
    name = f"u-{uuid4().hex[:8]}"
    assert by_wire("topics", "create", name, "--replica-assignment", "1:2", "--yes").code == 0

    def partition(driven: Driven) -> PartitionSnapshot:
        return next(topic for topic in driven.app.board.topics if topic.name == name).partitions[0]

    async def scene(driven: Driven) -> None:
        await asyncio.to_thread(kill_for_good, three_brokers, 2)
        await driven.until(lambda: partition(driven).isr == (1,))
        await asyncio.to_thread(kill_for_good, three_brokers, 1)
        await driven.until(lambda: driven.app.board.live == {0})
        await asyncio.to_thread(three_brokers.start_broker, 2)
        await driven.until(lambda: driven.app.board.live == {0, 2} and partition(driven).leader == NO_LEADER)
        await driven.press("3")
        await driven.until(lambda: driven.main.model.put_cursor_on(name))
        await driven.press("U")
        await driven.sees(f"klamm elect unclean --topic {name}")
        await driven.press("y", "enter")
        assert "Elect unclean leaders: done" not in driven.text, "records may be lost: its name has to be typed"
        await driven.press("ctrl+u")
        await driven.type(f"{name}-0")
        await driven.press("enter")
        await driven.sees("Elect unclean leaders: done")
        await driven.press("escape")
        await driven.until(lambda: partition(driven).leader == 2)

    try:
        driven_live(target_of(three_brokers, has_zookeeper=True), scene)
    finally:
        three_brokers.start_broker(1)
        three_brokers.wait_until_serving()
    assert by_wire.leaders(name) == [2]


def test_what_the_cluster_refuses_stays_on_the_screen_until_it_was_read(
    three_brokers: LocalCluster, topic: str
) -> None:
    async def scene(driven: Driven) -> None:
        await driven.press("3")
        await driven.until(lambda: driven.main.model.put_cursor_on(topic))
        await driven.press("plus", "backspace", "1", "enter")
        await driven.sees("Topic currently has 2 partitions")
        text = driven.text
        await driven.until(lambda: driven.feed.status.frames_made > 3)
        assert driven.text == text
        assert driven.app.screen.query_one(Input).value == "1", "what was typed is there again"
        await driven.press("escape")
        assert driven.app.screen is driven.main

    driven_live(target_of(three_brokers), scene)


def test_growing_electing_and_verifying_tell_each_partition(three_brokers: LocalCluster, topic: str) -> None:
    target = target_of(three_brokers)
    preparation = prepared(target, GrowTopic.of(topic, 2, "3"))
    assert preparation.lines == ("partitions  2 → 3",)
    assert preparation.typed is None
    assert carried_out(target, GrowTopic.of(topic, 2, "3")).is_good
    scope = ElectionScope(((topic, None),))
    assert "led by its preferred replica" in prepared(target, Elect(ElectionType.PREFERRED, scope)).question
    one = ElectionScope(((topic, 0),))
    assert prepared(target, Elect(ElectionType.UNCLEAN, one)).question.startswith("the partition has a leader")
    assert "has a leader" in prepared(target, Elect(ElectionType.UNCLEAN, scope)).question
    verified = carried_out(target, VerifyReplicas((topic,)))
    assert [row[3].text for row in verified.rows] == ["agree"] * 3
    assert verified.notes == ("all replicas agree",)
    one_partition = carried_out(target, VerifyReplicas((topic,), TopicPartition(topic, 1)))
    assert [row[0].text for row in one_partition.rows] == [f"{topic}-1"]


def test_groups_are_reset_and_deleted(
    three_brokers: LocalCluster, topic: str, by_wire: Klamm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    target, group = target_of(three_brokers), f"g-{topic}"
    assert by_wire("produce", topic, "--partition", "0", stdin="a\nb\nc\n").code == 0
    reset = ResetOffsets.of(group, topic, "latest")
    preparation = prepared(target, reset)
    assert f"{topic}-0  — → 3" in preparation.lines
    assert (preparation.typed, f"group {group} does not exist yet: this creates it" in preparation.warnings) == (
        group,
        True,
    )
    assert carried_out(target, reset).is_good
    back = carried_out(target, ResetOffsets.of(group, f"{topic}:0", "-2"))
    assert [cell.text for cell in back.rows[0]] == [f"{topic}-0", "3", "1", "reset", ""]
    (saved,) = tmp_path.glob("offsets-*.csv")
    assert back.notes == (f"the old offsets are in {saved}",)
    offsets = DeleteOffsets(group, (f"{topic}:0",))
    assert prepared(target, offsets).lines == (f"{topic}-0  1 → none",)
    assert carried_out(target, offsets).is_good
    assert prepared(target, DeleteGroups((group,))).typed == group
    assert carried_out(target, DeleteGroups((group,))).is_good
    assert by_wire("groups", "describe", group).code == 2


def test_only_offsets_are_deleted_that_no_member_reads() -> None:
    async def found(*topics: str) -> Prepared:
        async with scripted_cluster(2) as brokers:
            world = ScriptedGroups(brokers, {})
            world.offsets, world.subscribed = {"g1": {("t", 0): 1, ("other", 0): 2}}, ["t"]
            target = ClusterTarget("scripted", Origin.OPTIONS, bootstrap=tuple(brokers.bootstrap))
            async with Cluster(target, timeout_s=10) as cluster:
                return await DeleteOffsets("g1", topics).prepare(cluster)

    some = asyncio.run(found("t", "other"))
    assert (some.question, some.lines) == ("Delete 1 offset of group g1 in scripted?", ("other-0  2 → none",))
    (refusal,) = (warning for warning in some.warnings if "a member of the group reads the topic" in warning)
    none = asyncio.run(found("t"))
    assert (none.question, none.lines, none.run, none.typed) == ("no offset can be deleted", (refusal,), None, None)
    nothing = asyncio.run(found("other:7"))
    assert (nothing.question, nothing.lines, nothing.run) == ("group g1 has committed nothing there", (), None)


def test_a_group_that_reads_is_shown_with_its_lag_as_it_falls(three_brokers: LocalCluster, topic: str) -> None:
    servers, group = three_brokers.bootstrap_servers, f"reads-{topic}"
    fill(servers, topic, 2, 50)
    commit(servers, group, {(topic, 0): 10, (topic, 1): 0})

    async def scene(driven: Driven) -> None:
        loop = asyncio.get_running_loop()
        await driven.press("5")
        await driven.until(lambda: any(item.name == group and item.lag.lag == 90 for item in driven.main.model.shown))
        driven.main.model.put_cursor_on(next(key for key in map(driven.main.model.rows.key, driven.main.model.shown)
                                             if key[0] == group))  # fmt: skip
        await loop.run_in_executor(None, commit, servers, group, {(topic, 0): 50, (topic, 1): 45})
        await driven.press("enter", "r")
        await driven.until(lambda: sum(item.lag or 0 for item in driven.main.model.shown) == 5)
        await driven.until(lambda: bool(driven.lines_with("least 5   most 90")))

    driven_live(target_of(three_brokers), scene)


def test_records_are_deleted_up_to_an_offset(three_brokers: LocalCluster, topic: str, by_wire: Klamm) -> None:
    target, name = target_of(three_brokers), TopicPartition(topic, 0)
    assert by_wire("produce", topic, "--partition", "0", stdin="a\nb\nc\n").code == 0
    operation = DeleteRecords.of((name,), "2")
    preparation = prepared(target, operation)
    assert preparation.typed == str(name)
    assert preparation.lines[0].startswith(f"{name}  0 → 2: 2 records")
    outcome = carried_out(target, operation)
    assert [cell.text for cell in outcome.rows[0]] == [str(name), "2", "2", "deleted", ""]
    assert prepared(target, operation).run is None, "nothing is left before it"


def test_a_transaction_that_hangs_is_aborted(three_brokers: LocalCluster, topic: str, by_wire: Klamm) -> None:
    target, name = target_of(three_brokers), TopicPartition(topic, 0)
    operation = AbortHanging((name,))
    assert prepared(target, operation).question == "no transaction hangs here"
    producer_id = hang(three_brokers.broker(by_wire.leaders(topic)[0]).address, topic)
    preparation = prepared(target, operation)
    assert preparation.typed == str(name) and preparation.question == "Abort 1 hanging transaction in tried?"
    assert preparation.lines == (f"{name}  producer {producer_id} from offset 0: no coordinator knows it",)
    with pytest.raises(BadRequest, match="read-only"):
        carried_out(target_of(three_brokers, is_read_only=True), operation)
    outcome = carried_out(target, operation)
    assert [cell.text for cell in outcome.rows[0]] == [str(name), "0", str(producer_id), "aborted", ""]
    assert prepared(target, operation).run is None


def test_a_transaction_that_its_coordinator_will_end_is_left_to_it(
    three_brokers: LocalCluster, topic: str, by_wire: Klamm
) -> None:
    producer = Confluent(three_brokers.bootstrap_servers, f"open-{topic}")
    producer.begin()
    producer.send(topic, 0, b"open")
    preparation = prepared(target_of(three_brokers), AbortHanging((TopicPartition(topic, 0),)))
    assert preparation.run is None and preparation.question == "no transaction hangs here"
    assert preparation.lines[0].endswith(f"open-{topic} is Ongoing, and its coordinator will end it")
    producer.abort()
    producer.close()


def test_moves_are_throttled_and_cancelled(three_brokers: LocalCluster, by_wire: Klamm, tmp_path: Path) -> None:
    target, name = target_of(three_brokers), f"m-{uuid4().hex[:8]}"
    filled(by_wire, name, "0:1")
    plan = tmp_path / "plan.json"
    plan.write_text(f'{{"version":1,"partitions":[{{"topic":"{name}","partition":0,"replicas":[2,1]}}]}}')
    assert by_wire(
        "reassign", "execute", "--reassignment-json-file", plan, "--throttle", "15000", "--yes",
        "--rollback-file", tmp_path / "back.json",
    ).code == 5  # fmt: skip
    throttle = prepared(target, ChangeThrottle.of("20000"))
    assert "broker 2  20.0 kB/s" in throttle.lines
    assert '"log_dirs": [' in throttle.command, "it folds at its blanks"
    changed = carried_out(target, ChangeThrottle.of("20000"))
    assert changed.is_good
    (note,) = changed.notes
    assert note.startswith("once the moves have ended it has to go: X on Reassignments removes it, or klamm reassign ")
    needed = ("broker 2 receives under a throttle of 20.0 kB/s",)
    kept = prepared(target, RemoveThrottles(needed))
    assert kept.run is None and needed[0] in kept.lines
    assert kept.question.startswith("the moves under way need the throttles that there are: H changes them")
    assert by_wire.settings("--broker", "2")["follower.replication.throttled.rate"] == "20000"
    cancel = CancelReassignments((TopicPartition(name, 0),))
    total, back = prepared(target, cancel).lines
    assert total == "1 new replica given up: 1 on broker 2"
    assert back in (f"{name}-0: back to 0,1", f"{name}-0: back to 1,0")
    outcome = carried_out(target, cancel)
    assert [cell.text for cell in outcome.rows[0]][:2] == [f"{name}-0", "cancelled"]
    assert [sorted(replicas) for replicas in by_wire.replicas(name)] == [[0, 1]]
    assert "throttled" not in " ".join(by_wire.settings("--broker", "2")), "klamm's throttle is off again"
    assert prepared(target, cancel).run is None


def test_the_rate_of_moves_rises_where_somebody_throttles_all_replicas(
    three_brokers: LocalCluster, by_wire: Klamm, tmp_path: Path
) -> None:
    target, name = target_of(three_brokers), f"s-{uuid4().hex[:8]}"
    filled(by_wire, name, "0:1")
    lists = [f"{side}.replication.throttled.replicas" for side in ("leader", "follower")]
    rates = [f"{side}.replication.throttled.rate" for side in ("leader", "follower")]
    every = ",".join(f"{key}=*" for key in lists)
    assert by_wire("configs", "alter", "--topic", name, "--add-config", every, "--yes").code == 0
    for broker in range(3):
        slow = ",".join(f"{key}=1000" for key in rates)
        assert by_wire("configs", "alter", "--broker", broker, "--add-config", slow, "--yes").code == 0
    plan = tmp_path / "plan.json"
    plan.write_text(f'{{"version":1,"partitions":[{{"topic":"{name}","partition":0,"replicas":[2,1]}}]}}')
    words = ("--reassignment-json-file", plan, "--yes", "--rollback-file", tmp_path / "back.json")
    assert by_wire("reassign", "execute", *words).code == 5
    shown = prepared(target, ChangeThrottle.of("20M"))
    assert any(
        f"another client throttles all replicas of topic {name}: that stays" in warning for warning in shown.warnings
    ), shown.warnings
    assert not any(line.startswith("topic ") for line in shown.lines), "its lists stay"
    changed = carried_out(target, ChangeThrottle.of("20M"))
    assert changed.is_good and not any("verify" in note for note in changed.notes), "verify finds no mark to go by"
    assert [by_wire.settings("--broker", "2")[key] for key in rates] == ["20000000"] * 2
    assert [by_wire.settings("--topic", name)[key] for key in lists] == ["*", "*"]
    deadline = time.monotonic() + SEEN_WITHIN_S
    while prepared(target, RemoveThrottles()).run is None and time.monotonic() < deadline:
        time.sleep(0.1)
    assert carried_out(target, RemoveThrottles()).is_good
    assert "throttled" not in " ".join((*by_wire.settings("--broker", "2"), *by_wire.settings("--topic", name)))


def test_replicas_are_compared_by_keys(three_brokers: LocalCluster, topic: str, by_wire: Klamm) -> None:
    assert by_wire("produce", topic, "--partition", "0", stdin="a\nb\nc\n").code == 0

    async def scene(driven: Driven) -> None:
        await driven.press("3")
        await driven.until(lambda: driven.main.model.put_cursor_on(topic))
        await driven.press("V")
        await driven.sees("Verify replicas: done")
        assert f"klamm replicas verify --topic {topic}" in driven.text
        assert "all replicas agree" in driven.text
        assert [line.split()[3] for line in driven.lines_with(f"{topic}-")] == ["agree", "agree"]
        assert driven.lines_with(f"{topic}-0")[0].split()[2] == "3"
        await driven.press("escape")
        assert driven.app.screen is driven.main

    driven_live(target_of(three_brokers), scene)


def test_a_move_is_throttled_and_cancelled_by_keys(three_brokers: LocalCluster, by_wire: Klamm, tmp_path: Path) -> None:
    name = f"h-{uuid4().hex[:8]}"
    filled(by_wire, name, "0:1")
    plan = tmp_path / "plan.json"
    plan.write_text(f'{{"version":1,"partitions":[{{"topic":"{name}","partition":0,"replicas":[2,1]}}]}}')
    assert by_wire(
        "reassign", "execute", "--reassignment-json-file", plan, "--throttle", "15000", "--yes",
        "--rollback-file", tmp_path / "back.json",
    ).code == 5  # fmt: skip

    async def scene(driven: Driven) -> None:
        await driven.press("6")
        await driven.until(lambda: bool(driven.lines_with(f"{name}-0")))
        await driven.sees("receives under a throttle of 15.0 kB/s")
        await driven.press("H")
        await driven.sees("Change the throttle")
        await driven.type("5")
        await driven.press("enter")
        await driven.sees("a throttle below")
        await driven.press("ctrl+u")
        await driven.type("20000")
        await driven.press("enter")
        await driven.sees("Let brokers copy 20.0 kB/s each in tried?")
        assert "--additional --throttle 20000" in driven.text
        await driven.press("enter")
        assert "Let brokers copy" in driven.text, "enter is no answer"
        await driven.press("y")
        await driven.sees("Change the throttle: done")
        await driven.press("escape")
        await driven.sees("receives under a throttle of 20.0 kB/s")
        await driven.press("C")
        await driven.sees("Cancel 1 reassignment in tried?")
        assert f"{name}-0: back to " in driven.text
        assert "}' > moving.json; klamm" in " ".join(driven.text.split()), "it overwrites nobody's plan.json"
        await driven.press("n")
        assert driven.lines_with(f"{name}-0"), "it goes on"
        await driven.press("C")
        await driven.sees("Cancel 1 reassignment in tried?")
        await driven.press("y")
        await driven.sees("Cancel reassignments: done")
        await driven.press("escape")
        await driven.sees("nothing is being moved")

    driven_live(target_of(three_brokers), scene)
    assert [sorted(replicas) for replicas in by_wire.replicas(name)] == [[0, 1]]
    assert "throttled" not in " ".join(by_wire.settings("--broker", "2"))


def test_throttles_that_were_left_behind_are_removed_by_keys(
    three_brokers: LocalCluster, by_wire: Klamm, tmp_path: Path
) -> None:
    name = f"l-{uuid4().hex[:8]}"
    filled(by_wire, name, "0:1")
    plan = tmp_path / "plan.json"
    plan.write_text(f'{{"version":1,"partitions":[{{"topic":"{name}","partition":0,"replicas":[2,1]}}]}}')
    files = ("--reassignment-json-file", plan)
    back = ("--rollback-file", tmp_path / "back.json")
    assert by_wire("reassign", "execute", *files, "--throttle", "15000", "--yes", *back).code == 5
    assert by_wire("reassign", "cancel", *files, "--preserve-throttles", "--yes").code == 0
    foreign = "follower.replication.throttled.rate"
    assert by_wire("configs", "alter", "--broker", "1", "--add-config", f"{foreign}=70000", "--yes").code == 0

    async def scene(driven: Driven) -> None:
        await driven.press("6")
        await driven.sees("throttle settings serve no move   X removes klamm's, then those of others")
        await driven.press("X")
        await driven.sees("Remove throttles from 3 brokers and 1 topic in tried?")
        assert f"topic {name}  throttled replicas → none" in driven.text
        assert "broker 2 leader.replication.throttled.rate  15.0 kB/s → none" in driven.text
        assert f"broker 1 keeps {foreign}=70000: no mark says that klamm set it" in driven.text
        assert "klamm reassign verify --all" in driven.text
        await driven.press("enter", "n")
        await driven.press("X")
        await driven.sees("Remove throttles from 3 brokers and 1 topic in tried?")
        await driven.press("y")
        await driven.sees("Remove throttles: some throttles stay")
        for whose in ("broker 0", "broker 1", "broker 2", f"topic {name}"):
            assert any(line.endswith("removed") for line in driven.lines_with(whose)), whose
        assert f"broker 1 keeps {foreign}=70000" in driven.text
        await driven.press("escape", "X")
        await driven.sees("Remove throttles that klamm has not set from tried?")
        assert f"broker 1  {foreign}=70000 → none" in driven.text
        assert f"klamm configs alter --broker 1 --delete-config {foreign}" in driven.text
        assert "whoever set them may still want them" in driven.text
        await driven.press("n", "X")
        await driven.sees("Remove throttles that klamm has not set from tried?")
        assert f"broker 1  {foreign}=70000 → none" in driven.text, "nothing was removed without a yes"
        await driven.press("y")
        await driven.sees("Remove throttles: done")
        await driven.press("escape", "X")
        await driven.sees("klamm has left no throttle behind")
        await driven.press("escape")

    driven_live(target_of(three_brokers), scene)
    assert by_wire.settings("--broker", "1") == {} == by_wire.settings("--broker", "2")
    assert by_wire.settings("--topic", name) == {}


def test_no_throttle_is_said_to_be_left_only_if_that_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = cast("Any", SimpleNamespace(check_may_change=lambda: None))
    silent = "broker 2: cannot tell now whether it has a rate of klamm's: no answer within 3 s"
    for left, sentence in (
        ((silent,), "there is no throttle that can be removed now"),
        ((), "klamm has left no throttle"),
    ):

        async def preview(cluster: Cluster, left: tuple[str, ...] = left) -> ClearedThrottles:
            return ClearedThrottles(left=left)

        monkeypatch.setattr(reassignments, "preview_unneeded_throttles", preview)
        preparation = asyncio.run(RemoveThrottles().prepare(cluster))
        assert (
            preparation.question.startswith(sentence) and preparation.run is None and tuple(preparation.lines) == left
        )


def test_a_lower_retention_says_what_it_deletes_and_when(
    three_brokers: LocalCluster, topic: str, by_wire: Klamm
) -> None:
    assert by_wire("produce", topic, "--partition", "0", stdin="a\n" * 100).code == 0
    entity = Entity(EntityType.TOPIC, topic)

    async def told(edits: dict[str, str | None]) -> tuple[tuple[str, ...], Outcome]:
        async with Cluster(target_of(three_brokers), timeout_s=20) as cluster:
            prepared = await AlterSettings.of(entity, edits).prepare(cluster)
            assert prepared.run is not None
            return prepared.lines, await prepared.run(cluster)

    (_, _, *lines), outcome = asyncio.run(told({"retention.bytes": "100", "file.delete.delay.ms": "2000"}))
    assert re.match(r"up to .*B of .*B on all brokers are deleted, at a check every ", lines[0]), lines
    assert outcome.notes == (*lines,) and lines[1].startswith("the space comes back 2s after that")
    (_,), outcome = asyncio.run(told({"retention.bytes": "1000000"}))
    assert outcome.notes == (), "it is longer"
    (_,), outcome = asyncio.run(told({"delete.retention.ms": "1"}))
    assert outcome.notes == (), "of tombstones, not of records"


def test_more_replicas_in_sync_than_there_are_come_with_a_warning(three_brokers: LocalCluster, topic: str) -> None:
    async def warned() -> list[tuple[str, ...]]:
        async with Cluster(target_of(three_brokers), timeout_s=20) as cluster:
            altered = AlterSettings.of(Entity(EntityType.TOPIC, topic), {"min.insync.replicas": "9"})
            created = CreateTopic.of("another", "1", "2", "min.insync.replicas=3")
            return [(await operation.prepare(cluster)).warnings for operation in (altered, created)]

    altered, created = asyncio.run(warned())
    assert any("min.insync.replicas=9, but a partition has" in warning for warning in altered)
    assert any("min.insync.replicas=3, but a partition has 2 replicas" in warning for warning in created)


def test_a_read_only_cluster_is_refused_by_the_engine_whatever_the_dashboard_lets_through(
    three_brokers: LocalCluster, topic: str, by_wire: Klamm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    group = f"g-{topic}"
    assert by_wire("produce", topic, "--partition", "0", stdin="a\n").code == 0
    assert by_wire("groups", "reset-offsets", group, "--topic", topic, "--to-latest", "--execute", "--yes").code == 0
    before = by_wire("topics", "describe", topic, "-o", "json").json
    name = TopicPartition(topic, 0)
    scope = ElectionScope(((topic, None),))
    for operation in (
        CreateTopic.of(f"new-{topic}", "1", "1", ""),
        GrowTopic.of(topic, 2, "5"),
        AlterSettings.of(Entity(EntityType.TOPIC, topic), {"retention.ms": "1000"}),
        DeleteTopics((topic,)),
        DeleteRecords.of((name,), "-1"),
        ResetOffsets.of(group, topic, "earliest"),
        DeleteOffsets(group, (topic,)),
        DeleteGroups((group,)),
        RemoveThrottles(),
    ):
        with pytest.raises(BadRequest, match="read-only"):
            carried_out(target_of(three_brokers, is_read_only=True), operation)
    assert not list(tmp_path.glob("offsets-*"))
    leader = by_wire.leaders(topic)[0]
    other = next(broker for broker in by_wire.replicas(topic)[0] if broker != leader)
    plan = tmp_path / "swap.json"
    replicas = [other, leader]
    plan.write_text(f'{{"version":1,"partitions":[{{"topic":"{topic}","partition":0,"replicas":{replicas}}}]}}')
    words = ("reassign", "execute", "--reassignment-json-file", plan, "--wait", "--yes", "--rollback-file")
    assert by_wire(*words, tmp_path / "back.json").code == 0
    with pytest.raises(BadRequest, match="read-only"):
        carried_out(target_of(three_brokers, is_read_only=True), Elect(ElectionType.PREFERRED, scope))
    after = by_wire("topics", "describe", topic, "-o", "json").json
    assert len(after[0]["partitions"]) == len(before[0]["partitions"]) == 2
    assert after[0]["configs"] == before[0]["configs"]
    assert after[0]["partitions"][0]["leader"] == leader


def test_a_read_only_session_lets_no_changing_key_through(three_brokers: LocalCluster, topic: str) -> None:
    async def scene(driven: Driven) -> None:
        assert "read-only" in driven.text.splitlines()[0]
        registry = driven.app.session.registry
        for page, key in (
            ("brokers", "2"),
            ("topics", "3"),
            ("partitions", "4"),
            ("groups", "5"),
            ("reassignments", "6"),
            ("overview", "1"),
        ):
            await driven.press(key)
            for action in registry.on_page(page):
                if action.changes:
                    assert why_not(driven.main, action) == "started with --read-only"
                    await driven.press(action.keys[0])
                    assert driven.app.screen is driven.main, action.id
        await driven.press("3", "V")
        await driven.sees("Verify replicas")

    driven_live(target_of(three_brokers), scene, is_read_only=True)


def test_znodes_are_read_and_gone_into(three_brokers: LocalCluster) -> None:
    async def scene(driven: Driven) -> None:
        await driven.press("colon")
        await driven.type("zk /brokers")
        await driven.press("enter")
        await driven.sees("ids/")
        assert driven.main.model.put_cursor_on("/brokers/ids")
        await driven.press("enter")
        await driven.until(lambda: [z.name for z in driven.main.model.shown] == ["0", "1", "2"])
        assert "0x" in driven.text, "the session that a broker's znode lives by"
        await driven.press("left_square_bracket")
        await driven.until(lambda: [z.name for z in driven.main.model.shown] == ["ids", "seqid", "topics"])

    driven_live(target_of(three_brokers, has_zookeeper=True), scene)


@in_event_loop
async def test_an_address_that_nobody_answers_is_named_and_tried_again() -> None:
    target = ClusterTarget("gone", Origin.OPTIONS, bootstrap=(("127.0.0.1", 1),))
    feed = LiveFeed(target, interval_s=0.5)
    app = Dashboard(Session(feed, target))
    started = time.monotonic()
    async with app.run_test(size=(120, 30)) as pilot:
        driven = Driven(app, pilot, feed)
        await driven.sees("127.0.0.1:1")
        await driven.sees("next try")
        assert "disconnected" in driven.text
    assert time.monotonic() - started < 20


def test_bad_values_are_told_in_the_form_and_nothing_is_asked() -> None:
    for build, complaint in (
        (lambda: CreateTopic.of("a b", "", "", ""), "topic name is invalid"),
        (lambda: CreateTopic.of("t", "x", "", ""), "partitions must be a whole number"),
        (lambda: CreateTopic.of("t", "0", "", ""), "greater than 0"),
        (lambda: GrowTopic.of("t", 1, ""), "nothing to alter"),
        (lambda: ChangeThrottle.of("5"), "a throttle below"),
        (lambda: ChangeThrottle.of(""), "give a throttle"),
        (lambda: ChangeThrottle.of("fast"), "the throttle: .*fast"),
        (lambda: DeleteRecords.of((TopicPartition("t", 0),), "-2"), "give an offset"),
        (lambda: ResetOffsets.of("g", "orders", "somewhere"), "cannot reset to"),
        (lambda: ResetOffsets.of("g", "", "latest"), "name topics"),
    ):
        with pytest.raises(BadRequest, match=complaint):
            build()


def test_a_throttle_is_given_as_in_the_form_of_a_plan() -> None:
    for text in ("2M", "2000000", "2.0 MB/s"):
        assert ChangeThrottle.of(text).bytes_per_s == quantity(parse_rate, "the throttle", text) == 2_000_000


def test_counts_can_be_typed_as_they_are_shown() -> None:
    assert whole_number("the offset", count(12_345)) == 12_345


def test_commands_name_the_cluster_as_it_was_named(three_brokers: LocalCluster) -> None:
    from tui.operations.operation import command_text

    target = target_of(three_brokers, has_zookeeper=True)
    words = shlex.split(command_text(["topics", "list"], target))
    assert words[:3] == ["klamm", "topics", "list"]
    assert words[3:] == [
        "--zookeeper", three_brokers.zookeeper_connect, "--bootstrap-server", three_brokers.bootstrap_servers,
    ]  # fmt: skip
    assert command_text(["top"], replace(target, origin=Origin.LOCAL)) == "klamm top"
    assert command_text(["top"], replace(target, origin=Origin.PROFILE)) == "klamm top --cluster tried"


def test_a_result_with_a_failed_row_is_not_called_done() -> None:
    from tui.drawing.cells import Cell

    assert not Outcome("t", ("a",), ((Cell("x", Tone.BAD),),)).is_good
    assert not Outcome("t", ("a",), (), ("no",)).is_good
    assert Outcome("t", ("a",), ((Cell("x", Tone.WARN),),)).is_good
