"""Groups of a running cluster of ours: the operator's whole story, over the wire and in ZooKeeper."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import group_story
import pytest
from group_members import commit, kafka_python_member
from group_story import Stage
from guest_cluster import GuestCluster
from klamm_program import in_process
from patience import wait_for
from znode_writer import znode_writer

from cli.framework.talk import Talk
from cli.main import main
from engine.local.cluster import LocalCluster
from engine.local.zookeeper import EmbeddedZooKeeper

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def group_cluster(zookeeper: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Two brokers that share the groups, which start without delay."""
    settings = {
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "1000",
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "4",
        "auto.create.topics.enable": "false",
        "controlled.shutdown.retry.backoff.ms": "100",
    }
    with GuestCluster(zookeeper, 2, directory=tmp_path_factory.mktemp("groups"), config=settings) as cluster:
        yield cluster


@pytest.fixture
def stage(group_cluster: LocalCluster, capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    monkeypatch.chdir(tmp_path)
    return Stage(
        group_cluster.bootstrap_servers,
        group_cluster.zookeeper_connect,
        lambda *words: in_process(*words, capture=capsys),
        tmp_path,
    )


def test_a_group_with_members(stage: Stage) -> None:
    group_story.a_group_with_members(stage)


def test_every_reset(stage: Stage) -> None:
    group_story.every_reset(stage)


def test_several_groups_at_once(stage: Stage) -> None:
    group_story.several_groups_at_once(stage)


def test_groups_in_zookeeper(stage: Stage) -> None:
    with znode_writer(stage.zookeeper) as write:
        group_story.groups_in_zookeeper(stage, write)


def test_an_old_client_goes_on_where_a_reset_says(stage: Stage) -> None:
    group_story.an_old_client_goes_on_where_a_reset_says(stage)


def test_on_a_terminal_it_is_asked_for(stage: Stage, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    group, topic = stage.new_group(), stage.new_topic()
    commit(stage.servers, group, {(topic, 0): 4})
    monkeypatch.setattr(Talk, "can_ask", True)
    words = ("groups", "reset-offsets", "--group", group, "--all-topics", "--to-earliest", "--execute",
             "-b", stage.servers)  # fmt: skip
    for answer in ("n\n", "\n", ""):
        refused = in_process(*words, capture=capsys, stdin=answer)
        assert (refused.code, refused.err.endswith("error: not confirmed, nothing was changed\n")) == (2, True)
        assert f"{group}: {topic}-0: 4 → 0" in refused.err
    assert (stage.offsets(group), list(stage.folder.glob("offsets-*.csv"))) == ({(topic, 0): 4}, [])
    done = in_process(*words, capture=capsys, stdin="y\n")
    assert done.code == 0
    assert stage.offsets(group) == {(topic, 0): 0}
    (saved,) = stage.folder.glob("offsets-*.csv")
    assert saved.read_text() == f"{topic},0,4\n"
    assert f"the rollback is in {saved.absolute()}; to go back: " in done.err, "it can be found from any folder"


def test_the_tab_key_offers_groups(stage: Stage, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    group = stage.new_group()
    commit(stage.servers, group, {(stage.new_topic(), 0): 1})
    line = f"klamm groups describe -b {stage.servers} {group[:5]}"
    asked = {"_KLAMM_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    for name, value in asked.items():
        monkeypatch.setenv(name, value)
    # A person waits one second for this, which is too short while many tests run.
    monkeypatch.setattr("cli.framework.completing._PATIENCE_S", 20.0)
    capsys.readouterr()
    with pytest.raises(SystemExit):
        main([])
    assert capsys.readouterr().out.splitlines() == [group]


def test_a_backup_of_offsets_is_a_read_that_nothing_refuses(stage: Stage) -> None:
    group, other, topic = stage.new_group(), stage.new_group(), stage.new_topic()
    commit(stage.servers, other, {(topic, 1): 4})
    groups = ["--group", group, "--group", other]
    words = ["groups", "reset-offsets", *groups, "--all-topics", "--to-current"]
    whole = [f"{group},{topic},{partition},10" for partition in range(3)] + [f"{other},{topic},1,4"]
    with kafka_python_member(stage.servers, topic, group):
        wait_for(lambda: sorted(stage.run(*words, "--export").out.split()) == sorted(whole), "all that is committed")
        backup = stage.run(*words, "--export")
        assert (backup.code, backup.err) == (0, "")
        refused = stage.run(*words, "--execute", "--yes")
        assert (refused.code, "NON_EMPTY_GROUP" in refused.err) == (4, True)
    absent = stage.run(*words, "--export", "--group", "nobody")
    assert (absent.code, "'nobody' does not exist" in absent.err) == (2, True), "left out, but not silently"
    assert sorted(absent.out.split()) == sorted(whole)


def test_bad_input(stage: Stage) -> None:
    group_story.bad_input(stage)
