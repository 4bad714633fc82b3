"""Transactions of a running cluster of ours: the operator's whole story, over the wire."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import transaction_story
from golden import Seen, check_json
from guest_cluster import GuestCluster
from klamm_program import in_process
from transaction_story import SETTINGS, Stage, hang

from engine.admin.cluster.target import ClusterTarget, Origin
from engine.admin.health.report import Check
from engine.admin.watch.frame import Frame
from engine.admin.watch.frame_building import FrameBuilder, changes_of
from engine.admin.watch.live_feed import LiveFeed
from engine.local.cluster import LocalCluster
from engine.local.zookeeper import EmbeddedZooKeeper

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def cluster(zookeeper: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with GuestCluster(zookeeper, 1, directory=tmp_path_factory.mktemp("transactions"), config=SETTINGS) as made:
        yield made


@pytest.fixture
def stage(cluster: LocalCluster, capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    monkeypatch.chdir(tmp_path)

    def run(*words: str, stdin: str = "") -> object:
        ran = in_process(*words, capture=capsys, stdin=stdin)
        if words[0] == "transactions" and "json" in words and ran.out:
            check_json(" ".join(words[:2]), Seen(ran.code, ran.out, ran.err))
        return ran

    return Stage(cluster.bootstrap_servers, run)


def test_an_open_transaction(stage: Stage) -> None:
    transaction_story.an_open_transaction(stage)


def test_a_hanging_transaction(stage: Stage) -> None:
    transaction_story.a_hanging_transaction(stage)


def test_one_transaction_for_stdin(stage: Stage) -> None:
    transaction_story.one_transaction_for_stdin(stage)


def test_load_in_transactions(stage: Stage) -> None:
    transaction_story.load_in_transactions(stage)


def test_the_dashboard_names_what_holds_readers_up(stage: Stage) -> None:
    topic = stage.new_topic()
    assert stage.run("produce", topic, "--transactional-id", "dashboard").code == 0
    hang(stage.servers, topic)
    frame = asyncio.run(_frame_that_names(f"{topic}-0 (producer ", stage.servers))
    building = FrameBuilder(None, is_whole=True)
    for line in changes_of(None, frame):
        building.take(json.loads(line))
    assert building.made().holding == frame.holding, "a recording has it"


async def _frame_that_names(start: str, servers: str) -> Frame:
    host, _, port = servers.partition(":")
    feed = LiveFeed(ClusterTarget("brokers", Origin.OPTIONS, bootstrap=((host, int(port)),)))
    await feed.start()
    try:
        async with asyncio.timeout(60):
            async for frame in feed.frames():
                reasons = () if frame.health is None else frame.health.reasons
                lines = [
                    line for reason in reasons if reason.check is Check.HANGING_TRANSACTIONS for line in reason.examples
                ]
                if any(line.startswith(start) for line in lines):
                    return frame
    finally:
        await feed.close()
    raise AssertionError("the feed ended")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("describe absent-1", "transactional id 'absent-1' does not exist"),
        ("force-terminate absent-1 --yes", "transactional id 'absent-1' does not exist"),
        ("describe", "give a transactional id"),
        ("force-terminate a b --yes", "give one transactional id"),
        ("list --state Sleeping", "not a state of transactions: 'Sleeping'"),
        ("producers absent-0", "topic 'absent' does not exist"),
        ("producers kept", "'kept' is not a partition"),
        ("producers __transaction_state-77", "there is no partition 77"),
        ("find-hanging --partition 1", "--partition needs --topic"),
        ("abort __transaction_state-0 --yes", "give --start-offset, or all of"),
        ("abort __transaction_state-0 --start-offset 1 --producer-id 1 --yes", "give --start-offset, or all of"),
        ("abort __transaction_state-0 --start-offset 1 --yes", "none is open in this partition"),
        ("abort --topic t --start-offset 1 --yes", "--topic needs --partition"),
    ],
)
def test_bad_input(stage: Stage, words: str, told: str) -> None:
    assert stage.run("produce", "--transactional-id", "kept", stage.new_topic(1)).code == 0
    ran = stage.run("transactions", *words.split())
    assert (ran.code, told in ran.err) == (2, True), ran.err
