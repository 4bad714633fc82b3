"""Changes that nobody carries out, because the controller is dead: deadlines, Ctrl-C, and the messages."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from pathlib import Path
from uuid import uuid4

import pytest
from klamm_program import PROGRAM, environment, in_process
from znode_trees import load_tree

from engine.kafka.zk.client import ZkClient
from engine.local.zookeeper import EmbeddedZooKeeper

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def dead_cluster(zookeeper: EmbeddedZooKeeper) -> str:
    """A recorded cluster of the test's own, whose brokers no longer act."""
    connect = f"{zookeeper.connect_string}/dead-{uuid4().hex[:8]}"
    asyncio.run(load_tree(connect, "leaderless"))
    return connect


def test_the_deadline_passes_after_a_change_was_accepted(dead_cluster: str, capsys: Capture) -> None:
    where = ("--zookeeper", dead_cluster, "--timeout", "3")
    deleted = in_process("topics", "delete", "t1", "--yes", *where, capture=capsys)
    notice = "the deletion goes on: it waits for broker 1, which is dead; until then the name stays blocked"
    assert (deleted.code, deleted.err.splitlines()) == (5, [notice])
    listed = in_process("topics", "list", *where, "-o", "json", capture=capsys).json
    assert [topic["topic"] for topic in listed if topic["marked_for_deletion"]] == ["t1"]

    made = in_process(
        "topics",
        "create",
        "new",
        "--partitions",
        "1",
        "--replication-factor",
        "1",
        *where,
        "-o",
        "json",
        capture=capsys,
    )
    assert (made.code, made.error["kind"]) == (5, "under_way")
    again = in_process(
        "topics", "create", "t1", "--partitions", "1", "--replication-factor", "1", *where, capture=capsys
    )
    assert again.code == 4


def test_no_wait_says_that_it_goes_on(dead_cluster: str, capsys: Capture) -> None:
    where = ("--zookeeper", dead_cluster)
    ran = in_process("topics", "delete", "lag", "--yes", "--no-wait", *where, "-o", "json", capture=capsys)
    assert (ran.code, ran.json[0]["result"]) == (5, "marked_for_deletion")
    again = in_process("topics", "delete", "lag", "--yes", "--no-wait", *where, capture=capsys)
    assert again.code == 5, "a second time is no error"


def test_internal_topics_are_not_deleted_through_znodes(dead_cluster: str, capsys: Capture) -> None:
    where = ("--zookeeper", dead_cluster, "--timeout", "3")
    shape = ("--partitions", "1", "--replication-factor", "1")
    assert in_process("topics", "create", "__consumer_offsets", *shape, *where, capture=capsys).code == 5
    ran = in_process("topics", "delete", "__consumer_offsets", "--yes", *where, capture=capsys)
    assert ran.code == 2
    assert "is a kafka internal topic and is not allowed to be marked for deletion" in ran.err
    dry = in_process("topics", "delete", ".*", "--dry-run", *where, capture=capsys)
    assert dry.err.splitlines()[:3] == ["  lag", "  move", "  t1"]
    assert "would delete 3 topics in" in dry.err


def test_ctrl_c_says_what_goes_on_without_us(dead_cluster: str, tmp_path: Path) -> None:
    # Nobody waits for a broker that is known to be dead.
    asyncio.run(registered(dead_cluster, 1))
    process = subprocess.Popen(
        [PROGRAM, "topics", "delete", "move", "--yes", "--verbose", "--zookeeper", dead_cluster],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(tmp_path),
    )
    with process:
        while "move" not in marked(dead_cluster):
            assert process.poll() is None
            os.sched_yield()
        seen = waits_of(process.pid)
        while waits_of(process.pid) < seen + 5:
            # It hears that it is marked a little later than ZooKeeper shows it.
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=20)
    assert process.returncode == 130
    lines = err.decode().splitlines()
    assert lines[-2] == "error: interrupted"
    assert lines[-1].startswith("hint: the controller deletes what is marked")


def waits_of(pid: int) -> int:
    """Return how often the main thread of a process has waited so far."""
    status = Path(f"/proc/{pid}/status").read_text("ascii")
    return int(status.partition("\nvoluntary_ctxt_switches:")[2].split()[0])


async def registered(connect: str, broker_id: int) -> None:
    """Make a dead broker look alive: its registration is that of broker 0."""
    async with await ZkClient.connect(connect, session_timeout_ms=10_000) as zk:
        data, _ = await zk.get("/brokers/ids/0")
        await zk.create(f"/brokers/ids/{broker_id}", data)


def marked(connect: str) -> list[str]:
    async def reading() -> list[str]:
        async with await ZkClient.connect(connect, session_timeout_ms=10_000) as zk:
            return await zk.children("/admin/delete_topics")

    return asyncio.run(reading())
