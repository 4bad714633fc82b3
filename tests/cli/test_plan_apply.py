"""Plans applied to three running brokers: wave by wave, by two operators at once, with an adaptive throttle."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from applied_plans import FAST, QUICK_LOCK, SLOW, WAIT_S, Room, made_plan, nothing_is_left, plan_cluster
from kazoo.client import KazooClient
from operated_cluster import Klamm as Operator
from operated_cluster import filled
from patience import wait_for

from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.target import ClusterTarget, Origin
from engine.admin.reassignment.journal import read_journal
from engine.admin.reassignment.lock import operator_lock, read_holder
from engine.admin.reassignment.lock_by_group import GROUP as LOCK_GROUP
from engine.admin.reassignment.lock_by_znode import PATH as LOCK_ZNODE
from engine.admin.reassignment.lock_holder import Holder, LockHeld
from engine.admin.reassignment.throttle_settings import FOLLOWER_RATE
from engine.common.snapshot import LogDirSnapshot
from engine.local.cluster import LocalCluster
from engine.local.zookeeper import EmbeddedZooKeeper

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def three_brokers(zookeeper: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with plan_cluster(tmp_path_factory.mktemp("applied"), zookeeper) as cluster:
        yield cluster


def test_a_plan_of_another_cluster_is_refused_and_its_throttles_are_left_alone(
    by_wire: Operator, by_znodes: Operator, topic_name: str, tmp_path: Path
) -> None:
    filled(by_wire, topic_name, "0:1")
    plan = made_plan(by_wire, tmp_path, topic_name, [0, 2])
    document = json.loads(plan.read_text())
    document["klamm"]["cluster_id"] = "another"
    plan.write_text(json.dumps(document))
    throttled = ("configs", "alter", "--topic", topic_name, "--add-config", "leader.replication.throttled.replicas=*")
    assert by_wire(*throttled).code == 0
    kept = by_znodes.settings("--topic", topic_name)
    assert kept
    for operator in (by_wire, by_znodes):
        for look in ("verify", "status"):
            refusal = operator("plan", look, plan)
            assert (refusal.code, "the file is for cluster another, and this is cluster" in refusal.err) == (2, True), (
                refusal.err
            )
        refused = operator("plan", "apply", plan)
        assert (refused.code, "hint: name the cluster that the plan was made for" in refused.err) == (1, True)
    assert by_znodes.settings("--topic", topic_name) == kept
    assert by_wire("configs", "alter", "--topic", topic_name, "--delete-config", ",".join(kept)).code == 0


def test_a_plan_is_applied_in_waves_and_rolled_back(
    by_wire: Operator, by_znodes: Operator, topic_name: str, tmp_path: Path
) -> None:
    filled(by_wire, topic_name, "0:1,1:0,0:1")
    plan = made_plan(by_wire, tmp_path, topic_name, [0, 2], [2, 0], [1, 0])
    unbegun = by_wire("plan", "verify", plan, "-o", "json")
    assert (unbegun.code, [move["state"] for move in unbegun.json]) == (1, ["not_begun"] * 3)
    assert "3 partitions: 3 not begun" in unbegun.err
    assert f"the plan has not begun; to begin it: klamm plan apply {plan}" in unbegun.err
    would = by_wire("plan", "apply", plan, "--wave-replicas", "1", "--dry-run", "-o", "json")
    assert (would.code, [(move["wave"], move["partition"]) for move in would.json]) == (0, [(1, 0), (2, 1), (3, 2)])
    assert not list(tmp_path.glob("plan.json.*"))

    done = by_wire("plan", "apply", plan, "--wave-replicas", "1", "--throttle", FAST, *QUICK_LOCK, "-o", "jsonl")
    assert done.code == 0, done.err
    events = [json.loads(line) for line in done.out.splitlines()]
    assert [event["wave"] for event in events if event.get("event") == "wave_done"] == [1, 2, 3]
    assert (events[-1]["outcome"], events[-1]["done"], events[-1]["partitions"]) == ("done", 3, 3)
    assert by_znodes.replicas(topic_name) == [[0, 2], [2, 0], [1, 0]]
    assert by_znodes.leaders(topic_name) == [0, 2, 1]
    nothing_is_left(by_znodes, topic_name)
    assert by_wire("plan", "verify", plan).code == 0
    status = by_wire("plan", "status", plan, "-o", "json").json
    assert (status["done"], status["waiting"], status["lock"], status["journal"]["event"]) == (3, 0, None, "done")
    back = json.loads((tmp_path / "plan.json.rollback.json").read_text())
    assert [partition["replicas"] for partition in back["partitions"]] == [[0, 1], [1, 0], [0, 1]]

    again = by_wire("plan", "apply", plan, *QUICK_LOCK)
    assert (again.code, "nothing to do: the plan is carried out already" in again.err) == (0, True), again.err
    rest = by_wire("plan", "resume", plan, "--dry-run", "-o", "json")
    assert (rest.code, rest.json) == (0, []), "all is done, so nothing would be done"
    undone = by_wire("plan", "rollback", plan, *QUICK_LOCK)
    assert undone.code == 0, undone.err
    assert "3 of 3 partitions are where they were before the plan" in undone.err
    assert by_znodes.replicas(topic_name) == [[0, 1], [1, 0], [0, 1]]
    assert by_znodes.leaders(topic_name) == [0, 1, 0]
    led_back = by_wire("plan", "verify", plan, "-o", "json")
    assert (led_back.code, [move["state"] for move in led_back.json]) == (1, ["rolled_back"] * 3)
    assert "the plan was rolled back: every partition is where it was before" in led_back.err
    nothing_is_left(by_znodes, topic_name)


def test_a_broker_with_too_little_room_is_named_before_anything_is_copied(
    by_wire: Operator, by_znodes: Operator, topic_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(by_wire, topic_name, "0:1,1:0")
    plan = made_plan(by_wire, tmp_path, topic_name, [0, 2], [2, 0])

    async def volumes(_: Cluster) -> list[LogDirSnapshot]:
        return [LogDirSnapshot(2, "/small", 1 << 30, 4 << 20)]

    would = by_wire("plan", "apply", plan, "--dry-run")
    assert (would.code, "has to copy" in would.err) == (0, False), "there is room"
    monkeypatch.setattr("engine.admin.brokers.reading_load.read_volumes", volumes)
    for side in (by_wire, by_znodes):
        would = side("plan", "apply", plan, "--dry-run")
        assert would.code == 0
        assert re.search(r"^warning: broker 2 has to copy \d\.\d MB, but has only 4\.2 MB free", would.err, re.M)


def test_one_operator_at_a_time_and_an_interrupt_says_what_is_left(
    three_brokers: LocalCluster, by_wire: Operator, by_znodes: Operator, topic_name: str, tmp_path: Path
) -> None:
    filled(by_wire, topic_name, "0:1,0:1")
    plan = made_plan(by_wire, tmp_path, topic_name, [2, 1], [2, 1])
    first = Room(tmp_path / "first", (*by_wire.where, *by_znodes.where))
    with first.start("plan", "apply", plan, "--throttle", SLOW, "--wave-replicas", "1", *QUICK_LOCK) as running:
        try:
            wait_for(lambda: topic_name in by_znodes("reassign", "list").out)
            seen = by_wire("plan", "verify", plan, "-o", "json", "--dry-run")
            assert (seen.code, [move["state"] for move in seen.json]) == (5, ["in_progress", "waiting"])
            for second in (by_wire, by_znodes):
                refused = second("plan", "resume", plan, "--journal", tmp_path / "other", "--lock-timeout", "1s")
                assert refused.code == 4, refused.err
                assert f"another operator is carrying out a plan: {os.environ.get('USER', '')}" in refused.err
                assert f"(pid {running.pid}) since 20" in refused.err
                refused = second("plan", "apply", plan, "--journal", tmp_path / "other", "--lock-timeout", "1s")
                assert (refused.code, f"(pid {running.pid}) since 20" in refused.err) == (4, True), refused.err
                refused = second("plan", "apply", plan)
                assert (refused.code, f"(pid {running.pid}) since 20" in refused.err) == (4, True), refused.err
                would = second("plan", "rollback", plan, "--dry-run")
                assert (would.code, "dry run: would roll back plan.json" in would.err) == (0, True), would.err
                assert re.search(rf"^warning: another operator .*\(pid {running.pid}\) since 20", would.err, re.M)
                holder = second("plan", "status", plan, "-o", "json").json["lock"]
                assert (f"(pid {running.pid})" in holder["who"], holder["what"]) == (True, "apply plan.json")
            running.send_signal(signal.SIGINT)
            _, said = running.communicate(timeout=WAIT_S)
        finally:
            running.kill()
    assert running.returncode == 130, said
    throttled = f"--throttle {SLOW} --wave-replicas 1 --lock-timeout 3s"
    assert (
        f"copies stay throttled until a plan command ends that; go on with: klamm plan resume {plan} {throttled}"
        in said
    )
    assert read_journal(plan.with_name("plan.json.journal")).last["reason"] == "interrupted"
    assert by_wire("plan", "status", plan, "-o", "json").json["lock"] is None, "the lock was given back"
    # The copy goes on, and the throttle covers only what copies.
    verified = by_wire("plan", "verify", plan, "-o", "json")
    assert (verified.code, [move["state"] for move in verified.json]) == (5, ["in_progress", "not_begun"])
    resume = f"klamm plan resume {plan} {' '.join(by_wire.where)}"
    assert f"the last run of the plan ended early; to go on: {resume}\n" in verified.err
    assert by_znodes.settings("--broker", "2")["follower.replication.throttled.rate"] == SLOW
    begun = by_wire("plan", "apply", plan, *QUICK_LOCK)
    assert (begun.code, "klamm plan resume" in begun.err) == (2, True), begun.err
    undone = by_wire("plan", "rollback", plan, "--throttle", FAST, *QUICK_LOCK)
    assert undone.code == 0, undone.err
    assert by_znodes.replicas(topic_name) == [[0, 1]] * 2
    nothing_is_left(by_znodes, topic_name)


def test_the_lock_is_an_ephemeral_znode_of_the_run_that_holds_it(
    three_brokers: LocalCluster, by_wire: Operator, by_znodes: Operator, topic_name: str, tmp_path: Path
) -> None:
    """It says who has it since when and for what, lasts as long as its holder, and ends after a kill -9."""
    filled(by_wire, topic_name, "0:1")
    plan = made_plan(by_wire, tmp_path, topic_name, [2, 1])
    room, client = Room(tmp_path / "first", by_znodes.where), KazooClient(three_brokers.zookeeper_connect)
    client.start()
    try:
        before = datetime.now(UTC).replace(microsecond=0)
        with room.start("plan", "apply", plan, "--throttle", SLOW, *QUICK_LOCK) as running:
            try:
                wait_for(lambda: topic_name in by_znodes("reassign", "list").out)
                data, stat = client.get(LOCK_ZNODE)
                holder = json.loads(data)
                assert stat.ephemeralOwner not in (0, client.client_id[0])
                assert (f"(pid {running.pid})" in holder["who"], holder["what"]) == (True, "apply plan.json")
                assert before <= datetime.fromisoformat(holder["since"]) <= datetime.now(UTC)
                assert holder == by_znodes("plan", "status", plan, "-o", "json").json["lock"]
                running.kill()
                running.communicate(timeout=WAIT_S)
            finally:
                running.kill()
        wait_for(lambda: client.exists(LOCK_ZNODE) is None)
    finally:
        client.stop()
        client.close()
    undone = by_wire("plan", "rollback", plan, *QUICK_LOCK)
    assert undone.code == 0, undone.err
    nothing_is_left(by_znodes, topic_name)


def test_without_zookeeper_the_lock_is_the_membership_in_a_group(
    three_brokers: LocalCluster, by_wire: Operator, by_znodes: Operator, topic_name: str, tmp_path: Path
) -> None:
    """The brokers keep it: they name one member, which is gone a session after a kill -9. No znode is made."""
    filled(by_wire, topic_name, "0:1")
    plan = made_plan(by_wire, tmp_path, topic_name, [2, 1])
    room = Room(tmp_path / "first", by_wire.where)

    def members() -> list[dict[str, Any]]:
        return list(by_wire("groups", "describe", "--group", LOCK_GROUP, "--members", "-o", "json").json)

    with room.start("plan", "apply", plan, "--throttle", SLOW, *QUICK_LOCK) as running:
        try:
            wait_for(lambda: topic_name in by_znodes("reassign", "list").out)
            assert len(members()) == 1
            assert by_znodes("zk", "get", LOCK_ZNODE).code != 0, "nobody named ZooKeeper"
            holder = by_wire("plan", "status", plan, "-o", "json").json["lock"]
            assert (f"(pid {running.pid})" in holder["who"], holder["what"]) == (True, "apply plan.json")
            running.kill()
            running.communicate(timeout=WAIT_S)
        finally:
            running.kill()
    wait_for(lambda: by_wire("plan", "status", plan, "-o", "json").json["lock"] is None)
    undone = by_wire("plan", "rollback", plan, *QUICK_LOCK)
    assert undone.code == 0, undone.err
    nothing_is_left(by_znodes, topic_name)


def test_a_replica_goes_to_another_log_dir_and_back(by_wire: Operator, topic_name: str, tmp_path: Path) -> None:
    filled(by_wire, topic_name, "0:1", records=300)

    def place() -> tuple[str, str]:
        """Return the log dir of the replica on broker 0, and the other one."""
        dirs = by_wire("brokers", "log-dirs", "--broker-list", "0", "-o", "json").json
        (here,) = {log_dir["log_dir"] for log_dir in dirs if any(r["topic"] == topic_name for r in log_dir["replicas"])}
        return here, next(log_dir["log_dir"] for log_dir in dirs if log_dir["log_dir"] != here)

    here, other = place()
    plan = made_plan(by_wire, tmp_path, topic_name, [0, 1])
    document = json.loads(plan.read_text())
    document["partitions"][0]["log_dirs"] = [other, "any"]
    document["klamm"]["rollback"][0]["log_dirs"] = [here, "any"]
    document["klamm"]["score"]["moves"] = 1
    plan.write_text(json.dumps(document))
    assert by_wire("plan", "check", plan).code == 0
    applied = by_wire("plan", "apply", plan, "--throttle", FAST, *QUICK_LOCK, "-o", "json")
    assert (applied.code, applied.json["done"]) == (0, 1), applied.err
    assert place() == (other, here)
    back = json.loads((tmp_path / "plan.json.rollback.json").read_text())
    assert back["partitions"][0]["log_dirs"] == [here, "any"]
    undone = by_wire("plan", "rollback", plan, *QUICK_LOCK)
    assert undone.code == 0, undone.err
    assert place() == (here, other)
    nothing_is_left(by_wire, topic_name)


def test_bad_files_and_other_clusters_change_nothing(by_wire: Operator, topic_name: str, tmp_path: Path) -> None:
    assert by_wire("topics", "create", topic_name, "--replica-assignment", "0:1").code == 0
    plan = made_plan(by_wire, tmp_path, topic_name, [0, 2])
    good, journal = plan.read_text(), plan.with_name("plan.json.journal")
    for changed, refusal in (
        (good.replace('"cluster_id": "', '"cluster_id": "x'), "this plan is for cluster x"),
        (good.replace('"replicas": [0, 2]', '"replicas": [0, 9]'), "is to go to broker 9, which is not alive"),
        (good.replace(topic_name, f"{topic_name}-gone"), f"{topic_name}-gone-0 does not exist any more"),
        (
            good.replace('["any", "any"]', '["any", "/nowhere"]', 1),
            "log dir /nowhere of broker 2, which it does not have",
        ),
    ):
        plan.write_text(changed)
        checked = by_wire("plan", "check", plan)
        assert (checked.code, refusal in checked.out) == (1, True), checked.out
        refused = by_wire("plan", "apply", plan, *QUICK_LOCK)
        assert (refused.code, refusal in refused.err) == (1, True), refused.err
    plan.write_text(good)
    journal.write_text('{"event": "journal", "format": 1, "plan": "another"}\n')
    of_another = by_wire("plan", "apply", plan, *QUICK_LOCK)
    assert (of_another.code, "the journal belongs to another plan" in of_another.err) == (2, True), of_another.err
    journal.write_text("{broken\n")
    damaged = by_wire("plan", "resume", plan, *QUICK_LOCK)
    assert (damaged.code, "the journal is damaged" in damaged.err) == (2, True), damaged.err
    assert "move it away and resume" in damaged.err
    journal.unlink()
    assert by_wire.replicas(topic_name) == [[0, 1]]
    assert by_wire("topics", "alter", topic_name, "--partitions", "2", "--yes").code == 0
    drifted = by_wire("plan", "check", plan)
    assert (drifted.code, "its own partitions have not" in drifted.out) == (1, True)
    applied = by_wire("plan", "apply", plan, *QUICK_LOCK)
    assert (applied.code, "may not be the smallest any more" in applied.err) == (0, True), applied.err
    assert by_wire.replicas(topic_name)[0] == [0, 2]


def test_of_many_who_want_the_lock_one_has_it(three_brokers: LocalCluster) -> None:
    """Half of them know ZooKeeper, half only brokers. All come at once, and each releases it at once."""
    wire, zookeeper = three_brokers.bootstrap_servers.split(","), three_brokers.zookeeper_connect
    addresses = tuple((host, int(port)) for host, _, port in (address.partition(":") for address in wire))
    inside: list[int] = []
    had: list[int] = []

    async def contend(number: int) -> None:
        target = ClusterTarget("c", Origin.OPTIONS, zookeeper if number % 2 else None, addresses)
        async with Cluster(target, timeout_s=20) as cluster:
            while number not in had:
                holder = Holder.myself(f"contender {number}")
                with suppress(LockHeld):
                    async with operator_lock(cluster, holder, session_timeout_s=4.0) as lock:
                        inside.append(number)
                        assert inside == [number]
                        assert (await read_holder(cluster)) == holder
                        await asyncio.sleep(0.3)
                        await lock.ensure()
                        assert inside == [number]
                        inside.remove(number)
                        had.append(number)

    async def all_at_once() -> None:
        async with asyncio.timeout(WAIT_S), asyncio.TaskGroup() as group:
            for number in range(4):
                group.create_task(contend(number))

    asyncio.run(all_at_once())
    assert sorted(had) == [0, 1, 2, 3]


def test_a_passed_deadline_and_a_cancelled_copy(
    by_wire: Operator, by_znodes: Operator, topic_name: str, tmp_path: Path
) -> None:
    filled(by_wire, topic_name, "0:1")
    plan = made_plan(by_wire, tmp_path, topic_name, [0, 2], throttle=int(SLOW))
    late = by_wire("plan", "apply", plan, *QUICK_LOCK, "--timeout", "1", "-o", "json")
    assert (late.code, late.json["reason"], late.json["under_way"]) == (
        5,
        "the deadline has passed",
        [f"{topic_name}-0"],
    )
    assert late.json["throttles_left"] == [f"the throttle of {topic_name} stays on while it copies"]
    room = Room(tmp_path / "first", by_wire.where)
    with room.start("plan", "resume", plan, *QUICK_LOCK, "-o", "json") as running:
        try:
            wait_for(lambda: by_znodes("plan", "status", plan, "-o", "json").json["lock"] is not None)
            wait_for(lambda: '"wave": 1' in plan.with_name("plan.json.journal").read_text().split('"begun"')[-1])
            assert by_wire("reassign", "cancel", "--all", "--yes", "--force", "--preserve-throttles").code == 0
            out, said = running.communicate(timeout=WAIT_S)
        finally:
            running.kill()
    assert running.returncode == 1, said
    assert json.loads(out)["reason"] == f"another client has cancelled {topic_name}-0"
    assert by_znodes.replicas(topic_name) == [[0, 1]]
    nothing_is_left(by_znodes, topic_name)


def test_with_zookeeper_alone_a_move_under_way_is_rolled_back_when_it_has_arrived(
    by_wire: Operator, by_znodes: Operator, topic_name: str, tmp_path: Path
) -> None:
    """The tools' znode takes one batch after the other, and reverses nothing."""
    filled(by_wire, topic_name, "0:1")
    plan = made_plan(by_wire, tmp_path, topic_name, [0, 2], throttle=int(SLOW))
    assert by_znodes("plan", "apply", plan, *QUICK_LOCK, "--timeout", "1").code == 5
    early = by_znodes("plan", "rollback", plan, *QUICK_LOCK, "--timeout", "1")
    assert early.code == 4, early.err
    assert "error: another reassignment is being carried out" in early.err
    assert "hint: wait until it is done, then run this again; check with: klamm reassign list" in early.err
    assert by_wire("plan", "resume", plan, *QUICK_LOCK, "--throttle", FAST).code == 0
    assert by_znodes.replicas(topic_name) == [[0, 2]]
    back = by_znodes("plan", "rollback", plan, *QUICK_LOCK, "--throttle", FAST)
    assert back.code == 0, back.err
    assert by_znodes.replicas(topic_name) == [[0, 1]]
    nothing_is_left(by_znodes, topic_name)


def test_the_throttle_is_halved_while_brokers_answer_later_than_the_user_allows(
    by_wire: Operator, by_znodes: Operator, topic_name: str, tmp_path: Path
) -> None:
    """No broker answers within a microsecond, so the first measured p99 is too large."""
    filled(by_wire, topic_name, "0:1")
    plan = made_plan(by_wire, tmp_path, topic_name, [2, 1])
    room, journal = Room(tmp_path / "first", by_wire.where), plan.with_name("plan.json.journal")

    def rates() -> list[int]:
        events = read_journal(journal).events if journal.exists() else []
        return [event["rate"] for event in events if event["event"] == "throttle"]

    with room.start("plan", "apply", plan, "--throttle", "40000", "--throttle-p99", "0.001ms", *QUICK_LOCK) as running:
        try:
            wait_for(lambda: len(rates()) > 1 or running.poll() is not None)
            wait_for(lambda: by_znodes.settings("--broker", "2").get(FOLLOWER_RATE) == "20000")
            running.send_signal(signal.SIGINT)
            _, said = running.communicate(timeout=WAIT_S)
        finally:
            running.kill()
    assert (running.returncode, rates()[:2]) == (130, [40000, 20000]), said
    assert "throttle 40.0 kB/s → 20.0 kB/s: broker " in said and " ms, above 0.001 ms" in said, said
    undone = by_wire("plan", "rollback", plan, "--throttle", FAST, "--throttle-p99", "10m", *QUICK_LOCK)
    assert (undone.code, "throttle" in undone.err) == (0, False), undone.err
    nothing_is_left(by_znodes, topic_name)


def test_an_empty_plan_is_done_at_once(by_wire: Operator, topic_name: str, tmp_path: Path) -> None:
    assert by_wire("topics", "create", topic_name, "--replica-assignment", "0:1").code == 0
    plan = made_plan(by_wire, tmp_path, topic_name)
    applied = by_wire("plan", "apply", plan)
    assert (applied.code, "nothing to move" in applied.err) == (0, True), applied.err
    assert not plan.with_name("plan.json.journal").exists()
    assert by_wire("plan", "verify", plan).code == 0


def test_what_a_running_plan_relies_on_is_not_changed_unasked(
    three_brokers: LocalCluster, by_wire: Operator, by_znodes: Operator, topic_name: str, tmp_path: Path
) -> None:
    """Deleting, growing, moving and throttling its topics; other topics are nobody's business."""
    other = f"{topic_name}-other"
    for name in (topic_name, other):
        assert by_wire("topics", "create", name, "--replica-assignment", "0:1").code == 0
    mark = "leader.replication.throttled.replicas=5000:2147483647"
    assert by_wire("configs", "alter", "--topic", other, "--add-config", mark).code == 0
    moves = tmp_path / "moves.json"
    moves.write_text(
        json.dumps({"version": 1, "partitions": [{"topic": topic_name, "partition": 0, "replicas": [1, 0]}]})
    )
    throttled = "leader.replication.throttled.replicas=0:0"
    changes: list[tuple[str, ...]] = [
        ("configs", "alter", "--topic", topic_name, "--add-config", throttled),
        ("configs", "alter", "--broker", "0", "--add-config", "follower.replication.throttled.rate=9000"),
        ("topics", "alter", topic_name, "--config", throttled),
        ("topics", "alter", topic_name, "--partitions", "2"),
        ("reassign", "execute", "--reassignment-json-file", str(moves)),
        ("topics", "delete", topic_name),
    ]
    holder = Holder("bo@elsewhere (pid 1)", "2026-01-01T00:00:00Z", "apply other.json", (topic_name,))
    with lock_held(three_brokers, holder):
        for words in changes:
            refused = by_wire(*words, "--yes")
            assert (refused.code, "bo@elsewhere" in refused.err) == (4, True), (words, refused.err)
            assert "--force" in refused.err
        kept = by_wire("reassign", "verify", "--all")
        assert (kept.code, "throttles stay while a plan is carried out: bo@elsewhere" in kept.err) == (0, True)
        examples = {
            reason["check"]: reason["examples"] for reason in by_wire("cluster", "health", "-o", "json").json["reasons"]
        }
        assert "leaked_throttles" not in examples
        assert any("bo@elsewhere" in example for example in examples["running_reassignments"]), examples
        dry = by_znodes("topics", "delete", topic_name, "--dry-run")
        assert dry.code == 0, "it may live in a place that only brokers know"
        forced = by_wire(*changes[0], "--yes", "--force")
        assert (forced.code, "warning: another operator is carrying out a plan" in forced.err) == (0, True)
        assert by_wire("topics", "alter", other, "--partitions", "2", "--yes").code == 0, "it is not the plan's"
        old = ("kafka-topics", "--alter", "--topic", topic_name, "--partitions", "2")
        refused = by_wire(*old)
        assert (refused.code, "--force" in refused.err) == (4, True), refused.err
        forced = by_wire(*old, "--force")
        assert (forced.code, "warning: another operator" in forced.err) == (0, True), forced.err
    removed = by_wire("reassign", "verify", "--all")
    assert "throttle removed from topic" in removed.err, removed.err
    assert by_wire(*changes[-1], "--yes").code == 0


@contextmanager
def lock_held(cluster: LocalCluster, holder: Holder) -> Iterator[None]:
    """Hold the plan lock as an operator who knows only brokers, in a thread of its own."""
    addresses = tuple(
        (host, int(port))
        for host, _, port in (address.partition(":") for address in cluster.bootstrap_servers.split(","))
    )
    held, over = threading.Event(), threading.Event()

    async def hold() -> None:
        target = ClusterTarget("c", Origin.OPTIONS, None, addresses)
        async with Cluster(target, timeout_s=WAIT_S) as opened, operator_lock(opened, holder):
            held.set()
            await asyncio.to_thread(over.wait)

    thread = threading.Thread(target=lambda: asyncio.run(hold()), name="another-operator")
    thread.start()
    try:
        assert held.wait(WAIT_S)
        yield
    finally:
        over.set()
        thread.join()
