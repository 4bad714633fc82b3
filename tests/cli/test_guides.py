"""The commands of guides, one after the other on a running cluster, as a reader pastes them: each is carried out.

`test_plan_guides.py`, `test_plan_in_ci.py` and `test_coming_from.py` do more with theirs. What needs another machine, a
login, or hours is left out here, by its words.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from doc_pages import DOCS, typed_commands
from klamm_program import Ran, in_process

from engine.local.cluster import LocalCluster

Capture = pytest.CaptureFixture[str]

GUIDES = (
    "a-broker-died",
    "a-consumer-is-stuck",
    "a-disk-is-full",
    "is-anybody-behind",
    "is-the-cluster-healthy",
    "move-a-topic",
    "what-happened-last-night",
    "work-on-a-broker",
)
LEFT_OUT = {
    "listener.name.ssl": "brokers with TLS: tests/interop/test_tokens_and_certificates.py",
    "from-0.8": "a group in ZooKeeper: tests/cli/test_old_groups.py",
    "--watch": "it never ends",
    "--serve": "it never ends",
    "perf suite": "it takes minutes: tests/cli/test_perf_suite.py",
}
"""Words of commands that are not tried here, and why, or where they are."""
STANDS_FOR = {
    # Brokers of the guide that are not here.
    "3,4,5": "2,0,1",
    # Numbers of the guide that are beyond what is written here.
    "4711": "2",
    "120": "2",
    "120000": "1",
    "1000000": "1000",
    "600000": "1000",
    "30": "1",
}
SAVED_AS = {"groups reset-offsets --all-groups --all-topics --to-current --export": "offsets.csv"}
"""Where the shell of the guide puts what the command prints."""
DONE = (0, 1, 5)
"""Other codes say that the command was wrong, or refused, or reached nobody."""


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    config = {"auto.leader.rebalance.enable": "false", "offsets.topic.num.partitions": "1"}
    config |= {"transaction.state.log.num.partitions": "1", "num.partitions": "4", "default.replication.factor": "3"}
    with LocalCluster(3, directory=tmp_path_factory.mktemp("guides"), config=config) as cluster:
        yield cluster


class Reader:
    """Somebody who reads a guide at a terminal, in a folder of their own, and says yes to every question."""

    def __init__(self, brokers: LocalCluster, capture: Capture, folder: Path) -> None:
        self._brokers = brokers
        self._capture = capture
        self._folder = folder
        self._saved = ""
        """The file that the last reset named to go back."""

    def __call__(self, *words: str, stdin: str = "") -> Ran:
        ran = in_process(*words, capture=self._capture, stdin=stdin)
        if ran.code == 2 and "--yes" in ran.err:
            ran = in_process(*words, "--yes", capture=self._capture, stdin=stdin)
        return ran

    def paste(self, words: list[str]) -> Ran:
        """Run a command of a guide with what stands here for its names."""
        line = " ".join(words)
        ran = self(*map(self._here, words))
        if line in SAVED_AS:
            (self._folder / SAVED_AS[line]).write_text(ran.out)
        self._saved = next((word for word in ran.err.split() if word.endswith(".csv")), self._saved)
        return ran

    def _here(self, word: str) -> str:
        if word in ("127.0.0.1:2181", "zk1:2181"):
            return self._brokers.zookeeper_connect
        if word.startswith("/home/ops/offsets-"):
            return self._saved
        if word == "$began":
            return datetime.now(UTC).isoformat(timespec="seconds")
        return STANDS_FOR.get(word, word.replace("/var/lib/klamm", str(self._folder)))


@pytest.fixture
def reader(brokers: LocalCluster, capsys: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Reader]:
    # As in the folder of a cluster that `klamm local up` has started.
    monkeypatch.setenv("KLAMM_BOOTSTRAP_SERVER", brokers.bootstrap_servers)
    monkeypatch.setenv("KLAMM_ZOOKEEPER", brokers.zookeeper_connect)
    for variable in ("XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(variable, str(tmp_path / variable))
    monkeypatch.chdir(tmp_path)
    person = Reader(brokers, capsys, tmp_path)
    for topic in ("orders", "old-orders"):
        assert person("topics", "create", topic, "--if-not-exists").code == 0
        for partition in range(4):
            assert person("produce", topic, "--partition", str(partition), stdin="1\n2\n3\n").code == 0
    assert person("produce", "orders", "--transactional-id", "payments-1", stdin="4\n").code == 0
    for group in ("billing", "billing-test"):
        where = ("--topic", "orders", "--topic", "old-orders")
        assert person("groups", "reset-offsets", "--group", group, *where, "--to-latest", "--execute").code == 0
    for broker in brokers.status().brokers:
        logs = tmp_path / "logs" / f"broker-{broker.id}"
        shutil.copytree(brokers.broker(broker.id).logs_path, logs)
    yield person


@pytest.mark.parametrize("guide", GUIDES)
def test_each_command_of_a_guide_is_carried_out(guide: str, reader: Reader) -> None:
    commands = [words for _, words in typed_commands(DOCS / "guides" / f"{guide}.md")]
    tried = [words for words in commands if not any(left_out in " ".join(words) for left_out in LEFT_OUT)]
    assert tried
    for words in tried:
        ran = reader.paste(words)
        assert ran.code in DONE, (words, ran)


def test_what_is_left_out_stands_in_a_guide() -> None:
    lines = [" ".join(words) for guide in GUIDES for _, words in typed_commands(DOCS / "guides" / f"{guide}.md")]
    assert [words for words in LEFT_OUT if not any(words in line for line in lines)] == []
    assert not set(SAVED_AS) - set(lines)
