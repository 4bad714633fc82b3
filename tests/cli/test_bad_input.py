"""Bad input to every command about a cluster: the message names it, the exit code gives its kind, nothing changes.

The cluster is a recorded one, in a real ZooKeeper without brokers. The test would notice every write.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from klamm_program import PROGRAM, Ran, environment, in_process
from patience import within

from engine.local.addresses import own_loopback_address

Recorded = Callable[[str], str]
Tree = dict[str, tuple[bytes, int, int]]
Capture = pytest.CaptureFixture[str]
PLAN = ("--reassignment-json-file", "plan.json")
GENERATE = ("reassign", "generate", "--topics-to-move-json-file", "topics.json", "--broker-list")
ELECT = ("elect", "preferred", "--path-to-json-file", "partitions.json")
EVERY_COMMAND = (
    ("topics", "list"),
    ("topics", "describe"),
    ("topics", "create", "new", "--partitions", "1", "--replication-factor", "1"),
    ("topics", "alter", "lag", "--partitions", "9"),
    ("topics", "delete", "lag", "--yes"),
    ("elect", "preferred", "--all-topic-partitions", "--yes"),
    ("elect", "unclean", "--topic", "lag", "--yes"),
    (*GENERATE, "0,2"),
    ("reassign", "execute", *PLAN),
    ("reassign", "verify", *PLAN),
    ("reassign", "cancel", *PLAN, "--yes"),
    ("reassign", "list"),
    ("replicas", "verify"),
    ("brokers", "list"),
    ("cluster", "describe"),
    ("cluster", "health"),
    ("cluster", "load"),
    ("cluster", "snapshot", "out.json"),
)
BY_ZOOKEEPER_ONLY = (("zk", "tree"), ("zk", "get", "/controller"))


@pytest.fixture(autouse=True)
def files_of_a_caller(own_folder: Path) -> None:
    write("plan.json", {"version": 1, "partitions": [{"topic": "lag", "partition": 0, "replicas": [2, 0]}]})
    write("topics.json", {"version": 1, "topics": [{"topic": "move"}]})
    write("partitions.json", {"partitions": [{"topic": "lag", "partition": 0}]})


def write(name: str, document: Any) -> None:
    Path(name).write_text(document if isinstance(document, str) else json.dumps(document))


def name_of(words: tuple[str, ...]) -> str:
    return "-".join(words[:2])


@pytest.mark.parametrize("words", EVERY_COMMAND, ids=name_of)
def test_no_broker_is_there(capsys: Capture, words: tuple[str, ...]) -> None:
    nobody = ("--bootstrap-server", f"{own_loopback_address()}:1", "--timeout", "5")
    ran = in_process(*words, *nobody, capture=capsys)
    assert (ran.code, ran.out) == (3, ""), ran.err
    assert "error: no broker can be reached" in ran.err
    assert "hint:" in ran.err
    assert not Path("out.json").exists()


@pytest.mark.parametrize("words", (*EVERY_COMMAND, *BY_ZOOKEEPER_ONLY), ids=name_of)
def test_no_zookeeper_is_there(capsys: Capture, words: tuple[str, ...]) -> None:
    ran = in_process(*words, "--zookeeper", f"{own_loopback_address()}:1", "--timeout", "0.3", capture=capsys)
    assert (ran.code, ran.out) == (3, ""), ran.err
    assert "error: " in ran.err and ":1" in ran.err


@pytest.mark.parametrize("words", (*EVERY_COMMAND, *BY_ZOOKEEPER_ONLY), ids=name_of)
def test_the_chroot_is_wrong(recorded: Recorded, capsys: Capture, words: tuple[str, ...]) -> None:
    ran = in_process(*words, "--zookeeper", f"{recorded('leaderless')}/elsewhere", capture=capsys)
    assert (ran.code, ran.out) == (3, ""), ran.err
    assert "chroot" in ran.err
    assert not Path("out.json").exists()


class Untouched:
    """Runs commands on a recorded cluster, and checks that they change nothing."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._reader = KazooClient(where)
        self._reader.start()
        self._before = self._tree()

    def __call__(self, *words: str, capture: Capture, code: int = 2) -> Ran:
        ran = in_process(*words, "--zookeeper", self._where, capture=capture)
        assert ran.code == code, ran.err
        assert self._tree() == self._before
        assert not list(Path.cwd().glob("rollback-*"))
        return ran

    def _tree(self) -> Tree:
        """Return the data, version and last change of every znode."""
        tree: Tree = {}
        level = ["/"]
        while level:
            answers = [(path, self._reader.get_async(path), self._reader.get_children_async(path)) for path in level]
            level = []
            for path, data, children in answers:
                text, stat = data.get(10)
                tree[path] = (text, stat.version, stat.mzxid)
                level += [f"{path.rstrip('/')}/{name}" for name in children.get(10)]
        return tree

    def close(self) -> None:
        self._reader.stop()
        self._reader.close()


@pytest.fixture(scope="module")
def leaderless(recorded: Recorded) -> Iterator[Untouched]:
    """A recorded cluster in ZooKeeper. Its znodes before the first test count for all tests."""
    with closing(Untouched(recorded("leaderless"))) as cluster:
        yield cluster


@pytest.fixture
def untouched(leaderless: Untouched, capsys: Capture) -> Callable[..., Ran]:
    return partial(leaderless, capture=capsys)


def partition(topic: str = "lag", index: int = 0, *replicas: int, **more: Any) -> dict[str, Any]:
    return {"topic": topic, "partition": index, "replicas": list(replicas), **more}


def plan(*partitions: Any) -> dict[str, Any]:
    return {"version": 1, "partitions": list(partitions)}


BAD_PLANS = {
    "empty": ("", "the file is empty"),
    "blank": (" \n", "the file is empty"),
    "not-json": ("{", "not JSON"),
    "binary": ("\x00\x01\x02", "not JSON"),
    "a-list": ("[]", "not a JSON object"),
    "version-2": ({"version": 2, "partitions": []}, "not supported version"),
    "no-partitions": ({"version": 1}, "no list called 'partitions'"),
    "nothing-in-it": (plan(), "cannot be empty"),
    "a-number": (plan(7), "not a partition with its replicas"),
    "no-replicas": (plan(partition()), "replica list cannot be empty: lag-0"),
    "negative-id": (plan(partition("lag", 0, -1)), "not a partition with its replicas"),
    "text-as-id": (plan({"topic": "lag", "partition": "0", "replicas": [0]}), "not a partition with its replicas"),
    "replica-twice": (plan(partition("lag", 0, 2, 2)), "multiple entries for 2"),
    "partition-twice": (plan(partition("lag", 0, 0), partition("lag", 0, 2)), "lag-0"),
    "log-dirs-too-few": (plan(partition("lag", 0, 0, 2, log_dirs=["any"])), "size of replicas list"),
}


@pytest.mark.parametrize("kind", BAD_PLANS)
@pytest.mark.parametrize("command", ["execute", "verify", "cancel"])
def test_plan_files_that_are_wrong(untouched: Callable[..., Ran], command: str, kind: str) -> None:
    text, message = BAD_PLANS[kind]
    write("plan.json", text)
    ran = (
        untouched("reassign", command, *PLAN, "--yes") if command != "verify" else untouched("reassign", command, *PLAN)
    )
    assert message in ran.err
    assert "plan.json" in ran.err


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (plan(partition("absent", 0, 0)), "unable to find partition: absent-0"),
        (plan(partition("lag", 7, 0)), "unable to find partition: lag-7"),
        (plan(partition("lag", 0, 0, 9)), "unknown broker id 9"),
        (plan(partition("lag", 0, 0, 1)), "broker 1 is dead, and gets no replica"),
        (plan(partition("lag", 0, 2, 0), partition("absent", 3, 0)), "unable to find partition: absent-3"),
    ],
)
def test_plans_that_do_not_fit_the_cluster(untouched: Callable[..., Ran], document: Any, message: str) -> None:
    write("plan.json", document)
    for words in (("--yes",), ("--dry-run",), ("--throttle", "50000000", "--yes")):
        assert message in untouched("reassign", "execute", *PLAN, *words).err


def test_a_cluster_that_must_not_be_changed_may_be_tried_dry(recorded: Recorded, capsys: Capture) -> None:
    where = ("--zookeeper", recorded("leaderless"))
    assert in_process("profiles", "add", "prod", *where, "--read-only", capture=capsys).code == 0
    for words in (("elect", "preferred", "--topic", "lag", "--partition", "0"), ("reassign", "execute", *PLAN)):
        refused = in_process(*words, "--cluster", "prod", capture=capsys)
        assert (refused.code, "read-only" in refused.err) == (2, True)
        assert in_process(*words, "--cluster", "prod", "--dry-run", capture=capsys).code == 0


def test_a_throttle_that_makes_no_sense(untouched: Callable[..., Ran]) -> None:
    assert "a throttle below" in untouched("reassign", "execute", *PLAN, "--throttle", "5").err


def test_a_plan_that_moves_nothing_is_done(untouched: Callable[..., Ran]) -> None:
    write("plan.json", plan(partition("lag", 0, 0, 2)))
    ran = untouched("reassign", "execute", *PLAN, "--yes", code=0)
    assert "nothing to move" in ran.err
    assert ran.rows == [["lag", "0", "complete", "0,2", "0,2", "-", "-", "-", "-"]]
    untouched("reassign", "verify", *PLAN, code=0)


def test_a_plan_of_a_topic_that_is_gone_is_told_apart(untouched: Callable[..., Ran]) -> None:
    write("plan.json", plan(partition("gone", 0, 0, 2), partition("lag", 0, 0, 2)))
    ran = untouched("reassign", "verify", *PLAN, code=1)
    assert [row[2] for row in ran.rows] == ["not_found", "complete"]


@pytest.mark.parametrize(
    ("text", "brokers", "message"),
    [
        ("", "0,2", "the file is empty"),
        ("nonsense", "0,2", "not JSON"),
        ('{"topics":[]}', "0,2", "is empty"),
        ('{"topics":[{"topic":"move"},{"topic":"move"}]}', "0,2", "duplicate entries: move"),
        ('{"topics":["move"]}', "0,2", "not a topic"),
        ('{"topics":[{"topic":"absent"}]}', "0,2", "'absent' does not exist"),
        ('{"topics":[{"topic":"move"}]}', "0,1", "no live broker has the id 1"),
        ('{"topics":[{"topic":"move"}]}', "0,9", "no live broker has the id 9"),
        ('{"topics":[{"topic":"move"}]}', "0,0", "duplicate entries: 0"),
        ('{"topics":[{"topic":"move"}]}', "0,two", "not a list of broker ids"),
        ('{"topics":[{"topic":"move"}]}', "", "not a list of broker ids"),
        ('{"topics":[{"topic":"move"}]}', "0", "larger than available brokers: 1"),
    ],
)
def test_what_cannot_be_generated(untouched: Callable[..., Ran], text: str, brokers: str, message: str) -> None:
    write("topics.json", text)
    assert message in untouched(*GENERATE, brokers, "--proposed", "out.json").err
    assert not Path("out.json").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty"),
        ("nonsense", "not JSON"),
        ('{"partitions":[]}', "lists no partition"),
        ('{"partitions":[{"topic":"lag","partition":0},{"topic":"lag","partition":0}]}', "lag-0"),
        ('{"partitions":[{"topic":"lag"}]}', "lag"),
        ('{"partitions":[{"topic":"absent","partition":0}]}', "absent"),
        ('{"partitions":[{"topic":"lag","partition":9}]}', "lag-9"),
    ],
)
def test_elections_of_what_is_not_there(untouched: Callable[..., Ran], text: str, message: str) -> None:
    write("partitions.json", text)
    assert message in untouched(*ELECT, "--yes").err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("topics", "create", "x y", "--partitions", "1", "--replication-factor", "1"), "topic name is invalid"),
        (("topics", "create", "new", "--partitions", "0", "--replication-factor", "1"), "must be greater than 0"),
        (("topics", "create", "new", "--replica-assignment", "0:9"), "no live broker has the id 9"),
        (("topics", "create", "new", "--replica-assignment", "0:0"), "duplicate entries: 0"),
        (("topics", "alter", "lag", "--partitions", "3", "--replica-assignment", "0:2,0:2,0:1"), "has the id 1"),
        (("topics", "create", "new", "--replica-assignment", "0", "--config", "retention.ms=soon"), "retention.ms"),
        (("topics", "create", "new", "--replica-assignment", "0", "--config", "no.such.key=1"), "no.such.key"),
        (("topics", "alter", "lag", "--config", "retention.ms=soon"), "retention.ms"),
        (("topics", "alter", "absent", "--partitions", "9"), "'absent' does not exist"),
        (("topics", "delete", "absent", "--yes"), "'absent' does not exist"),
        (("topics", "delete", "lag"), "--yes"),
        (("elect", "unclean", "--topic", "lag"), "not possible through ZooKeeper"),
        (("cluster", "load", "absent"), "'absent' does not exist"),
        (("replicas", "verify", "--topic", "absent"), "'absent' does not exist"),
        (("zk", "get", "/no/such/znode"), "/no/such/znode"),
        (("zk", "tree", "/no/such/znode"), "/no/such/znode"),
    ],
)
def test_other_wrong_values(untouched: Callable[..., Ran], words: tuple[str, ...], message: str) -> None:
    assert message in untouched(*words).err


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("topics", "create", "lag", "--partitions", "1", "--replication-factor", "1"), "TOPIC_ALREADY_EXISTS"),
        (("topics", "create", "new", "--partitions", "1", "--replication-factor", "5"), "INVALID_REPLICATION_FACTOR"),
        (("topics", "alter", "lag", "--partitions", "1"), "INVALID_PARTITIONS"),
    ],
)
def test_what_kafka_would_refuse_is_refused(untouched: Callable[..., Ran], words: tuple[str, ...], error: str) -> None:
    assert error in untouched(*words, code=4).err


@pytest.mark.parametrize(
    "words",
    [
        ("reassign", "execute", "--reassignment-json-file"),
        ("reassign", "verify", "--reassignment-json-file"),
        ("reassign", "cancel", "--yes", "--reassignment-json-file"),
        ("elect", "preferred", "--path-to-json-file"),
        ("reassign", "generate", "--broker-list", "0,2", "--topics-to-move-json-file"),
    ],
)
def test_files_that_cannot_be_read(untouched: Callable[..., Ran], words: tuple[str, ...]) -> None:
    Path("folder").mkdir()
    for name in ("nowhere.json", "folder"):
        assert name in untouched(*words, name).err


@pytest.mark.parametrize(
    "text", ["", "{}", "nonsense", "[" * 200_000, '{"version": 99, "topics": []}', '{"version": 1, "topics": [7]}']
)
def test_snapshots_that_are_none(capsys: Capture, text: str) -> None:
    write("snapshot.json", text)
    for words in (("topics", "list"), ("cluster", "health"), ("cluster", "load"), ("reassign", "list")):
        ran = in_process(*words, "--snapshot", "snapshot.json", capture=capsys)
        assert (ran.code, "not a snapshot" in ran.err) == (2, True), ran.err
    assert in_process("topics", "list", "--snapshot", "nowhere.json", capture=capsys).code == 2


def test_a_snapshot_that_cannot_be_written_is_named_as_the_caller_named_it(recorded: Recorded, capsys: Capture) -> None:
    words = ("cluster", "snapshot", "nowhere/out.json", "--zookeeper", recorded("dynamic-configs"))
    ran = in_process(*words, capture=capsys)
    assert (ran.code, ran.err) == (2, "error: cannot be written: No such file or directory: nowhere/out.json\n")


def test_client_properties_that_are_none_are_named(capsys: Capture) -> None:
    write("client.properties", "client.id=\\u00")
    words = ("topics", "list", "-b", "127.0.0.1:1", "--command-config", "client.properties")
    ran = in_process(*words, capture=capsys)
    assert (ran.code, ran.err[:34]) == (2, "error: not a properties file: Line"), ran.err
    assert ran.err.endswith(": client.properties\n")


def test_keys_that_no_client_knows_are_named_once_without_their_values(recorded: Recorded, capsys: Capture) -> None:
    write("client.properties", "ssl.trustore.password=s3cret\nbatch.size=1\nconfig.providers=env\nmy.own=s3cret")
    words = ("topics", "list", "--zookeeper", recorded("dynamic-configs"), "--command-config", "client.properties")
    ran = in_process(*words, capture=capsys)
    said = "ssl.trustore.password (did you mean ssl.truststore.password?)"
    assert ran.code == 0
    assert ran.err == f"warning: client properties that no client of Kafka knows: my.own, {said}\n"
    assert in_process(*words, "--quiet", capture=capsys).err == ""


def test_a_jaas_file_that_is_not_there_is_named(capsys: Capture) -> None:
    write("client.properties", "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN")
    words = ("topics", "list", "-b", "127.0.0.1:1", "--command-config", "client.properties", "--jaas-config", "no.conf")
    ran = in_process(*words, capture=capsys)
    assert ran.code == 2
    assert "the JAAS file cannot be read (No such file or directory): no.conf" in ran.err


def test_ctrl_c_while_waiting_for_health(recorded: Recorded, tmp_path: Path) -> None:
    words = ["cluster", "health", "--wait", "--timeout", "60", "--verbose", "--zookeeper", recorded("leaderless")]
    running = subprocess.Popen(
        [PROGRAM, *words], cwd=tmp_path, env=environment(tmp_path), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL,
        text=True,
    )  # fmt: skip
    assert running.stderr is not None
    try:
        is_in_time = within(30)
        while not re.match(r"waited \d+ s so far: .*offline_partitions \(\d+\)", running.stderr.readline()):
            assert is_in_time() and running.poll() is None
        running.send_signal(signal.SIGINT)
        _, said = running.communicate(timeout=30)
    finally:
        running.kill()
        running.communicate()
    assert running.returncode == 130
    assert "interrupted" in said
