"""Every command of the two "Coming from …" pages runs on a cluster, both klamm's own words and Kafka's.

A new command of these pages runs here automatically. If it needs more words than the page gives, they are below.
"""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import pytest
from doc_pages import DOCS
from guest_cluster import GuestCluster
from klamm_program import PROGRAM, Ran, environment, in_process, klamm
from state_change_logs import entry, write_log

from engine.local.addresses import own_loopback_address
from engine.local.cluster import LocalCluster
from engine.local.zookeeper import EmbeddedZooKeeper

Capture = pytest.CaptureFixture[str]
PAGES = ("coming-from-kafkas-tools", "coming-from-other-tools")
_SPAN = re.compile(r"`([^`]+)`")
_OF_KAFKA = ("kafka-", "kafka.tools.", "zookeeper-")


def commands() -> list[str]:
    """Return the commands in the tables of the pages, klamm's and Kafka's, each once."""
    commands: dict[str, None] = {}
    for page in PAGES:
        for line in (DOCS / "guides" / f"{page}.md").read_text("utf-8").splitlines():
            for text in _SPAN.findall(line) if line.startswith("|") else ():
                if text.startswith(("klamm ", *_OF_KAFKA)):
                    commands[text.removeprefix("klamm ")] = None
    return list(commands)


RESET = "--group G --topic T --to-earliest"
GENERATE = "--topics-to-move-json-file topics.json --broker-list 0,1"
FEW = "--num-records 10 --record-size 10"
QUICKLY = "--interval 200ms"
"""Lag is measured three times, by default five seconds apart."""
MORE = {
    "consume T --from-beginning": "--max-messages 3",
    "consume __consumer_offsets --from-beginning": "--max-messages 1",
    "exporter": "--once",
    "elect preferred": "--topic T --partition 0",
    "groups delete G": "--yes",
    "groups describe": "G",
    "groups reset-offsets …": RESET,
    "kafka-console-consumer --topic T --from-beginning": "--max-messages 3",
    "kafka-console-consumer --topic __consumer_offsets --formatter …":
        "kafka.coordinator.group.GroupMetadataManager$OffsetsMessageFormatter --from-beginning --max-messages 1",
    "kafka-consumer-groups --reset-offsets … --dry-run": RESET,
    "kafka-consumer-perf-test": "--topic T --messages 3",
    "kafka-producer-perf-test": f"--topic T {FEW} --throughput -1 --producer-props acks=1",
    "kafka-reassign-partitions --cancel …": "--reassignment-json-file F",
    "kafka-reassign-partitions --generate …": GENERATE,
    "kafka.tools.StateChangeLogMerger": "--logs state-change.log",
    "lag": QUICKLY,
    "lag --fail-on warn": QUICKLY,
    "lag --history FILE": QUICKLY,
    "lag --not-ok": QUICKLY,
    "lag -o prometheus": QUICKLY,
    "local up": "--detach",
    "local up --brokers 3": "--detach",
    "perf consumer": "T --messages 3",
    "perf producer": f"T {FEW}",
    "perf suite": "--quick --dry-run",
    "plan apply": "plan.json --yes",
    "plan apply --throttle 50M --throttle-floor 10M --throttle-ceiling 200M": "plan.json --yes",
    "plan apply plan.json": "--yes",
    "plan factor 3": "--topic T",
    "plan replace 7=12": "--topic T",
    "plan decommission 7": "--topic T",
    "profiles add": "prod --bootstrap-server 10.0.0.1:9092",
    "reassign cancel …": "--all --yes",
    "reassign execute": "--reassignment-json-file F --wait --yes",
    "reassign execute --reassignment-json-file F --throttle 50M": "--wait --yes",
    "reassign generate …": GENERATE,
    "records delete --offset-json-file F": "--yes",
    "state-changes merge": "state-change.log",
    "top": "--screenshot top.svg",
    "topics alter T --partitions 12": "--yes",
    "topics delete T": "--yes",
}  # fmt: skip
"""Words that a command needs beside those of its page."""

NO_CLUSTER = ("broker start", "dump", "kafka-dump-log", "kafka-server-start", "kafka.tools", "local", "profiles",
              "state-changes", "zookeeper-s", "zookeeper start", "zk", "lag --serve")  # fmt: skip
"""Commands that get no brokers."""
VERDICTS = ("brokers metrics", "cluster health", "kafka-reassign-partitions --verify", "lag", "reassign verify")
"""Code 1 of these is an answer: a test's cluster need not be healthy, nor tell metrics; plans may be half done."""
SERVERS = ("broker start", "kafka-server-start", "zookeeper start", "zookeeper-server-start")
SEGMENT = "00000000000000000000.log"
FILES = {
    "dump": SEGMENT,
    "kafka-delete-records": "offsets.json",
    "kafka-dump-log": SEGMENT,
    "lag --history": "history",
    "records delete": "offsets.json",
}
"""The meaning of F or FILE; otherwise it is a plan."""
MADE_OF_THE_TOPIC = ("F", "topics.json")
"""Files about a test's own topic."""


@pytest.fixture(scope="module")
def cluster(zookeeper: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    settings = {
        "auto.create.topics.enable": "false",
        "auto.leader.rebalance.enable": "false",
        "controlled.shutdown.retry.backoff.ms": "100",
        "offsets.topic.num.partitions": "1",
        "group.min.session.timeout.ms": "200",
    }
    folder = tmp_path_factory.mktemp("coming-from")
    with GuestCluster(zookeeper, 3, directory=folder, config=settings) as cluster:
        # Nobody has begun a transaction, so its topic does not exist. Commands without a topic look at ``kept``.
        for words in (
            ("topics", "create", "__transaction_state", "kept", "--partitions", "1"),
            ("produce", "kept"),
        ):
            ran = klamm(*words, "-b", cluster.bootstrap_servers, folder=folder, stdin="1\n2\n3\n")
            assert ran.code == 0, ran.err
        yield cluster


class Stage:
    """A folder with the files that the pages mention, and a topic and a group of its own."""

    def __init__(self, folder: Path, cluster: LocalCluster, capture: Capture) -> None:
        self.folder, self.cluster, self._capture = folder, cluster, capture
        self.topic, self.group = f"t-{uuid4().hex[:10]}", f"g-{uuid4().hex[:10]}"
        self.brokers = ("--bootstrap-server", cluster.bootstrap_servers)

    def run(self, *words: str, stdin: str = "") -> Ran:
        return in_process(*words, capture=self._capture, stdin=stdin)

    def _must(self, *words: str, stdin: str = "") -> None:
        ran = self.run(*words, *self.brokers, stdin=stdin)
        assert ran.code == 0, (words, ran.err)

    def make(self, words: Sequence[str]) -> None:
        """Create what these words mention."""
        self._files()
        named = {self.topic, self.group, "__consumer_offsets", "plan.json", *FILES.values(), *MADE_OF_THE_TOPIC}
        if "create" in words or "--create" in words or not (words[0] == "lag" or named & set(words)):
            return
        self._must("topics", "create", self.topic, "--replica-assignment", "0,1")
        self._must("produce", self.topic, "--partition", "0", stdin="1\n2\n3\n4\n5\n6\n")
        if self.group in words or words[0] == "lag" or "__consumer_offsets" in words:
            reset = ("groups", "reset-offsets", "--group", self.group, "--topic", self.topic, "--to-latest")
            self._must(*reset, "--execute", "--yes")
        if {"execute", "--execute", "apply"} & set(words) and words[0] in (
            "reassign",
            "kafka-reassign-partitions",
            "plan",
        ):
            # Moves of the previous test may go on, and a reassignment waits for all others.
            self._must("reassign", "verify", "--all", "--wait", "--timeout", "60")
        if "plan.json" in words and "--out" not in words:
            self._must("plan", "factor", "2", "--topic", self.topic, "--out", "plan.json")
        if SEGMENT in words:
            (log,) = self.cluster.directory.rglob(f"{self.topic}-0/*.log")
            shutil.copy(log, self.folder)

    def _files(self) -> None:
        moved = {"topic": self.topic, "partition": 0, "replicas": [1]}
        self._json("F", {"version": 1, "partitions": [moved]})
        self._json("topics.json", {"version": 1, "topics": [{"topic": self.topic}]})
        self._json("offsets.json", {"version": 1, "partitions": [{"topic": self.topic, "partition": 0, "offset": 1}]})
        write_log(self.folder / "state-change.log", entry(0, 0, "Leader t-0 starts at leader epoch 0").lines)
        host = own_loopback_address()
        (self.folder / "zookeeper.properties").write_text(
            f"dataDir={self.folder / 'zk'}\nclientPort=2181\nclientPortAddress={host}\n"
        )
        (self.folder / "server.properties").write_text(
            f"broker.id=9\nlisteners=PLAINTEXT://{host}:9092\nlog.dirs={self.folder / 'data'}\n"
            f"zookeeper.connect={self.cluster.zookeeper_connect}/{self.topic}\n"
        )

    def _json(self, name: str, content: object) -> None:
        (self.folder / name).write_text(json.dumps(content))

    def words(self, text: str) -> list[str]:
        """Return the words to type for a command of a page."""
        file = next((name for start, name in FILES.items() if text.startswith(start)), "F")
        meant = {
            "T": self.topic,
            "TOPIC": self.topic,
            "G": self.group,
            "F": file,
            "FILE": file,
            "N": "50000000",
            "K=V": "message.max.bytes=1048588",
            "HOST": self.cluster.zookeeper_connect,
            "…": "",
            "7=12": "2=1",
            "7": "2",
            "4,5": "1,2",
            ":9308": f"{own_loopback_address()}:9308",
        }
        words = [meant.get(word, word) for word in f"{text} {MORE.get(text, '')}".split()]
        where = () if text.startswith(NO_CLUSTER) else self.brokers
        return [word for word in words if word] + list(where)

    def serve(self, words: list[str], begun: str) -> int:
        """Run a command that keeps running, until it says that it has begun; return its exit code after TERM."""
        said = self.folder / "said"
        with said.open("wb") as stderr:
            process = subprocess.Popen(
                [PROGRAM, *words], cwd=self.folder, env=environment(self.folder), stderr=stderr, stdout=stderr
            )
        try:
            deadline = time.monotonic() + 60
            while begun not in said.read_text("utf-8"):
                assert time.monotonic() < deadline, said.read_text("utf-8")
                time.sleep(0.05)
            if "http" in begun:
                _read_page(f"http://{words[words.index('--serve') + 1]}/metrics", deadline)
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=60)
        finally:
            process.kill()
            process.wait()
        return process.returncode


def _read_page(address: str, deadline: float) -> None:
    """Read a page until it has the results of the first sample."""
    page = b""
    while b"klamm_cluster_up 1" not in page:
        assert time.monotonic() < deadline, page
        with suppress(urllib.error.HTTPError), urllib.request.urlopen(address, timeout=60) as answer:
            page = answer.read()
        time.sleep(0.05)


@pytest.fixture
def stage(own_folder: Path, cluster: LocalCluster, capsys: Capture) -> Stage:
    return Stage(own_folder, cluster, capsys)


@pytest.mark.parametrize("text", commands())
def test_it_runs(text: str, stage: Stage) -> None:
    words = stage.words(text)
    stage.make(words)
    if text.startswith(SERVERS):
        assert stage.serve(words, "serving" if text.startswith("zookeeper") else "started") in (0, 143)
        return
    if text.startswith("lag --serve"):
        assert stage.serve([*words, *stage.brokers], "serving http://") == 143
        return
    try:
        ran = stage.run(*words, stdin='{"value": "7"}\n')
    finally:
        if text.startswith("local up"):
            assert stage.run("local", "down").code == 0
    assert ran.code in ((0, 1) if text.startswith(VERDICTS) else (0,)), (words, ran.out, ran.err)
    assert "Traceback" not in ran.err


def test_no_words_are_kept_for_a_command_that_no_page_has() -> None:
    assert set(MORE) <= set(commands())
    assert len(commands()) > 80
