"""Transactions of a running cluster of ours: the operator's whole story, over the wire."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import transaction_story
from golden import Seen
from json_schemas import check_json
from klamm_program import in_process
from transaction_story import SETTINGS, Stage

from engine.local.cluster import LocalCluster

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(1, directory=tmp_path_factory.mktemp("transactions"), config=SETTINGS) as made:
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


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("describe absent-1", "transactional id 'absent-1' does not exist"),
        ("force-terminate absent-1 --yes", "transactional id 'absent-1' does not exist"),
        ("describe", "give a transactional id"),
        ("force-terminate a b --yes", "give one transactional id"),
        ("list --state Sleeping", "not a state of transactions: 'Sleeping'"),
        ("producers absent-0", "topic 'absent' does not exist"),
        ("producers kept", "'kept' is no partition"),
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
